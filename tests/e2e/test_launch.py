"""Container stacks on a real engine: from nothing to gone, from the host and from inside of a container."""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from servegate_action import client
from servegate_action.config.stacks import Stack
from servegate_action.errors import CannotMeasure, LaunchFailed, StackDied, UsageError
from servegate_action.launch import Running, sweep
from servegate_action.launch import launch as start
from servegate_action.records import Absent, Side, TelemetrySample
from tests.e2e.launching import IMAGE, container
from tests.e2e.world import ROOT, Engine
from tests.integration.launch.making import LIMIT_S, eventually

pytestmark = pytest.mark.container

CANCEL_LIMIT_S = 7.0


@dataclass(frozen=True, slots=True)
class Place:
    """A run of its own on the engine, with a folder that holds the tiny server."""

    engine: Engine
    folder: Path
    run_id: str = field(default_factory=lambda: f"e2e-{secrets.token_hex(4)}")

    @property
    def environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": f"unix://{self.engine.socket}", "HF_TOKEN": "hf_0123456789"}

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def launch(self, stack: Stack) -> AbstractContextManager[Running]:
        return start(
            stack,
            side=Side.BASELINE,
            run_id=self.run_id,
            log_path=self.log,
            environment=self.environment,
            workspace=self.folder,
            first_token=functools.partial(client.one_token, api="completions"),
            progress=lambda _: None,
        )

    def left(self) -> set[str]:
        """Containers and networks of this run."""
        chosen = ("--filter", f"label=servegate.run={self.run_id}")
        containers = self.engine.docker("ps", "--all", *chosen, "--format", "{{.Names}}")
        networks = self.engine.docker("network", "ls", *chosen, "--format", "{{.Name}}")
        return {*containers.split(), *networks.split()}


@pytest.fixture
def place(engine: Engine, tmp_path: Path) -> Iterator[Place]:
    shutil.copy(ROOT / "tests/support/tiny_server.py", tmp_path)
    place = Place(engine, tmp_path)
    yield place
    sweep(state_dir=tmp_path / "state", run_id=place.run_id, environment=place.environment)


# ---------------------------------------------------------------- from the host


def test_a_container_is_ready_by_its_first_token_and_gone_with_the_block(place: Place) -> None:
    with place.launch(container("--say", "a token: hf_0123456789!", env=("HF_TOKEN",))) as running:
        running.alive()
        cold = running.ready.cold_start
        stamps = (cold.image_ready_ns, cold.process_up_ns, cold.port_open_ns, cold.first_token_ns)
        assert list(stamps) == sorted(stamp for stamp in stamps if isinstance(stamp, int))
        assert running.ready.container_id is not None
        assert not isinstance(running.ready.container_digest, Absent)
        assert "sha256:" in running.ready.container_digest
        assert len(place.left()) == 2
        assert running.pids()
        with urllib.request.urlopen(running.ready.base_url + "/environment", timeout=LIMIT_S) as answer:
            assert json.load(answer)["HF_TOKEN"] == "hf_0123456789"
    assert running.gone()
    assert place.left() == set()
    assert "hf_0123456789" not in place.log.read_text() + " ".join(running.ready.command)
    assert "a token: ***!" in place.log.read_text()


def test_two_stacks_with_the_same_fixed_port_follow_each_other(place: Place) -> None:
    for _ in range(2):
        with place.launch(container(port=8123)) as running:
            running.alive()
    assert place.left() == set()


def test_a_container_that_exits_at_start_fails_with_its_code_and_last_lines(place: Place) -> None:
    with pytest.raises(LaunchFailed, match="exit code 3") as failed, place.launch(container("--exit-at-start", "3")):
        pass
    assert failed.value.log_tail == ("cannot find the weights",)
    assert place.left() == set()


def test_a_container_that_dies_in_the_middle_is_said_to_have_died(place: Place) -> None:
    with place.launch(container()) as running:
        with pytest.raises(OSError, match=r".*"):
            urllib.request.urlopen(running.ready.base_url + "/die", timeout=LIMIT_S)
        with pytest.raises(StackDied, match="exit code 7") as died:
            eventually(running.alive)
        assert died.value.log_tail[-1] == "told to die"
        assert running.gone()
    assert place.left() == set()


def test_a_container_that_listens_on_loopback_only_is_told_so(place: Place) -> None:
    command = ("python3", "-u", "/tiny/server.py", "--port", "{port}")
    with pytest.raises(LaunchFailed, match="not ready") as failed, place.launch(container(command=command, ready_s=3)):
        pass
    assert "--host 0.0.0.0" in failed.value.why
    assert place.left() == set()


def test_an_image_that_cannot_be_had_fails_with_its_name(place: Place) -> None:
    name = "localhost/no-such-image@sha256:" + "0" * 64
    with pytest.raises(LaunchFailed, match="no-such-image"), place.launch(container(image=name)):
        pass
    assert place.left() == set()


def test_a_misspelt_folder_fails_instead_of_being_made(place: Place) -> None:
    stack = container(volumes=("./no-such-folder:/model:ro",))
    with pytest.raises(UsageError, match="does not exist"), place.launch(stack):
        pass
    assert not (place.folder / "no-such-folder").exists()
    assert place.left() == set()


def test_a_sibling_reads_the_volumes_and_cannot_write_them(place: Place) -> None:
    with place.launch(container(volumes=("./tiny_server.py:/tiny/server.py",))) as running:
        assert running.volume is not None
        read = "import sys; print(len(open(sys.argv[1], 'rb').read()))"
        size = (place.folder / "tiny_server.py").stat().st_size
        assert int(running.volume.run_python(read, ["/tiny/server.py"])) == size
        with pytest.raises(CannotMeasure, match="could not be read") as failed:
            running.volume.run_python("open('/tiny/server.py', 'w')", [])
        assert "Read-only file system" in failed.value.why
    assert place.left() == set()


# ---------------------------------------------------------------- interrupted

Begin = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def begin(place: Place) -> Iterator[Begin]:
    """Starts a servegate of its own on the host; whatever a test left of it is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(*flags: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.e2e.launching", place.run_id, str(place.folder), *flags]
        environment = {**os.environ, **place.environment}
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def test_an_interrupt_during_the_launch_leaves_nothing_and_is_quick(place: Place, begin: Begin) -> None:
    driver = begin("--never-ready", "--deaf")
    eventually(lambda: place.log.exists() and "loading for ever" in place.log.read_text())
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=CANCEL_LIMIT_S) == 130
    assert place.left() == set()


def test_what_a_killed_run_leaves_is_swept_and_said(place: Place, begin: Begin) -> None:
    driver = begin("--wait")
    assert driver.stdout is not None
    assert driver.stdout.readline()
    swept = functools.partial(sweep, state_dir=place.folder / "state", environment=place.environment)
    assert [line for line in swept() if place.run_id in line] == []
    driver.kill()
    driver.wait(timeout=LIMIT_S)
    assert len(place.left()) == 2
    said = [line for line in swept() if place.run_id in line]
    assert [line.split()[:2] for line in said] == [["removed", "container"], ["removed", "network"]]
    assert place.left() == set()


# ---------------------------------------------------------------- from inside of a container


@pytest.mark.parametrize("network", ["bridge", "host"])
def test_from_inside_of_a_container_a_sibling_is_reached_and_paths_are_translated(
    place: Place, image: str, network: str
) -> None:
    """The workspace is mounted at another path, as in an action; the sibling gets the host's."""
    words = ["run", "--rm", "--network", network, "--entrypoint", "/opt/servegate/bin/python3"]
    words += ["-v", f"{place.engine.socket}:/var/run/docker.sock", "-v", f"{place.folder}:/github/workspace"]
    words += ["-v", f"{ROOT / 'tests/e2e/launching.py'}:/launching.py:ro"]
    said = json.loads(place.engine.docker(*words, image, "/launching.py", place.run_id, "/github/workspace"))
    assert said["me"]
    assert said["pids"] == []
    assert said["base_url"].startswith("http://127.0.0.1:") == (network == "host")
    assert place.left() == set()
    assert "asked to end" in place.log.read_text()


def test_a_sampler_beside_the_action_stamps_on_the_same_clock(place: Place, image: str) -> None:
    words = ["run", "--rm", "--entrypoint", "/opt/servegate/bin/python3"]
    words += ["-v", f"{place.engine.socket}:/var/run/docker.sock", "-v", f"{place.folder}:/out"]
    words += ["-v", f"{ROOT / 'tests/e2e/sampling.py'}:/sampling.py:ro"]
    begun = time.monotonic_ns()
    ended = int(place.engine.docker(*words, image, "/sampling.py", "/out/telemetry.jsonl"))
    _static, *samples = (place.folder / "telemetry.jsonl").read_text().splitlines()
    assert len(samples) >= 3
    assert all(begun < TelemetrySample.model_validate_json(line).t_ns < ended for line in samples[:3])


def test_the_image_of_these_tests_is_there(engine: Engine) -> None:
    assert engine.docker("image", "inspect", IMAGE, "--format", "{{.Id}}")
