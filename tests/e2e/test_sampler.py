"""The sampler in a sibling container, on a real engine: its lines arrive here, and nothing of it is left.

Without a GPU it reads the CPU's counters there; that a sibling gets the GPU that it asks for is not shown here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from servegate_action import telemetry
from servegate_action.errors import TelemetryUnavailable
from servegate_action.launch import DockerWorld, SamplerImage, docker_world, start_sampler
from tests.e2e.world import Engine

pytestmark = pytest.mark.container

PYTHON = "/opt/servegate/bin/python3"


@pytest.fixture
def world(engine: Engine) -> Iterator[DockerWorld]:
    with docker_world({"DOCKER_HOST": f"unix://{engine.socket}"}, "e2e-sampler") as opened:
        yield opened


def remote(world: DockerWorld, image: str) -> telemetry.RemoteHost:
    return telemetry.RemoteHost(partial(start_sampler, world, SamplerImage(image, PYTHON, gpus="none")))


def test_samples_of_a_sibling_arrive_in_the_file_and_it_is_gone_afterwards(
    world: DockerWorld, image: str, engine: Engine, tmp_path: Path
) -> None:
    path = tmp_path / "telemetry.jsonl"
    before = engine.containers(image)
    with telemetry.sampling(backend="cpu", uuids=(), pids=None, path=path, host=remote(world, image)) as sampler:
        while sampler.latest() is None:
            sampler.check()
        assert sampler.static.backend == "cpu"
    assert len(path.read_bytes().splitlines()) >= 2
    assert engine.containers(image) == before


def test_a_sibling_without_a_gpu_says_so_early(world: DockerWorld, image: str, engine: Engine) -> None:
    before = engine.containers(image)
    with pytest.raises(TelemetryUnavailable):
        telemetry.choose("nvidia", gpu_expected=True, host=remote(world, image))
    assert engine.containers(image) == before
