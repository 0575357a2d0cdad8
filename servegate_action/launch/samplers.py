"""A sampler beside servegate's own container: the same program and image, started with a GPU request.

A container action cannot be given a GPU by its workflow, but it may ask the engine for a sibling that has one. The
sampler sees every GPU, because it also has to notice who else uses them; it gets no network and no volumes. This module
starts and ends it; what it says is telemetry's to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from servegate_action.launch.docker_world import DockerWorld, remove_container, translated
from servegate_action.launch.siblings import gpu_requests

if TYPE_CHECKING:
    from docker.models.containers import Container


@dataclass(frozen=True, slots=True)
class SamplerImage:
    """The image that holds servegate, its interpreter, and whether the engine is asked for GPUs."""

    name: str
    python: str
    gpus: str = "all"


class SamplerContainer:
    """One running sampler, attached from its first byte."""

    def __init__(self, container: Container, stream: Iterator[tuple[bytes | None, bytes | None]]) -> None:
        self._container = container
        self._stream = stream

    def output(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Standard output and standard error as they come, until the container ends."""
        return self._stream

    def status(self) -> int | None:
        """The exit status once it has ended; a container that is gone ended by a signal."""
        from docker.errors import NotFound

        try:
            self._container.reload()
        except NotFound:
            return -9
        state = self._container.attrs["State"]
        return None if state.get("Running") else int(state.get("ExitCode", -1))

    def stop(self, timeout_s: float) -> None:
        """End and remove it."""
        remove_container(self._container, patience_s=timeout_s)


def start_sampler(world: DockerWorld, image: SamplerImage, arguments: Sequence[str]) -> SamplerContainer:
    """`python -m servegate_action.telemetry ARGUMENTS` in a sibling. Raises LaunchFailed with what the engine says."""
    with translated("the sampler's container cannot be started"):
        container = world.client.containers.create(
            image.name,
            entrypoint=[image.python],
            command=["-m", "servegate_action.telemetry", *arguments],
            device_requests=gpu_requests(image.gpus, ()),
            environment={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
            labels=world.labels(),
            network_mode="none",
        )
        try:
            stream = container.attach(stdout=True, stderr=True, stream=True, logs=True, demux=True)
            container.start()
        except BaseException:
            with suppress(OSError):
                remove_container(container, patience_s=1.0)
            raise
    return SamplerContainer(container, stream)
