"""A Python module of servegate's own, run in a sibling of its own image that is given GPUs.

A container action gets no GPU, and a sibling does. What it prints is attached, split into its two streams; only a signal
ends it. This module refuses to know what the module does: it is the telemetry's sampler, but nothing here says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from servegate_action.errors import LaunchFailed
from servegate_action.launch.docker_world import SIDE_LABEL, DockerWorld, remove_container, translated
from servegate_action.launch.siblings import gpu_requests

if TYPE_CHECKING:
    from docker.models.containers import Container


class Beside:
    """One running module. Its output comes in pairs, of which one is None: (standard output, standard error)."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def output(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Both streams from the beginning, until the end."""
        with translated("the sibling's output cannot be read"):
            yield from self._container.attach(stream=True, logs=True, demux=True)

    def status(self) -> int | None:
        """Its exit status once it has ended."""
        from docker.errors import NotFound

        with translated("the engine cannot say whether the sibling still runs"):
            try:
                self._container.reload()
            except NotFound:
                return -1
        state = self._container.attrs["State"]
        return None if state.get("Running") else int(state.get("ExitCode", -1))

    def stop(self, timeout_s: float) -> None:
        """Ask, wait, kill, remove."""
        remove_container(self._container, patience_s=max(1.0, timeout_s))


def start_beside(
    world: DockerWorld, module: str, arguments: Sequence[str], *, gpus: str | int | tuple[str, ...] = "all"
) -> Beside:
    """`python -m module arguments…` beside this container. Raises LaunchFailed where servegate is in no container."""
    if world.me is None:
        raise LaunchFailed(
            "servegate runs in no container, so that there is no image of its own to run beside it",
            next_step="run it on the host with access to the GPU, or as a container action",
        )
    with translated("a container with a GPU cannot be started beside servegate's own"):
        container = world.client.containers.create(
            world.me.image,
            entrypoint=[sys.executable],
            command=["-I", "-B", "-m", module, *arguments],
            device_requests=gpu_requests(gpus, ()),
            labels={**world.labels(), SIDE_LABEL: "sampler"},
            network_mode="none",
        )
        try:
            container.start()
        except BaseException:
            remove_container(container, patience_s=0.0)
            raise
    return Beside(container)
