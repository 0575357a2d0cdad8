"""Other containers beside a stack's: what they share with it (mounts, GPUs), and a reader of the stack's volumes.

Weights that only the stack's container sees are hashed where they are, by Python in a sibling. It gets the volumes
read-only and no network; this module refuses to give it anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from servegate_action.errors import CannotMeasure
from servegate_action.launch.docker_world import DockerWorld, translated
from servegate_action.launch.volumes import Volume

if TYPE_CHECKING:
    from docker.models.images import Image
    from docker.types import DeviceRequest, Mount


@dataclass(frozen=True, slots=True)
class SiblingReader:
    """Runs Python in a sibling container with the stack's volumes, read-only and without a network."""

    world: DockerWorld
    image: Image
    volumes: tuple[Volume, ...]

    def run_python(self, code: str, args: Sequence[str]) -> str:
        """`python3 -c code args…`; its standard output. In servegate's own image when it has one, else in the stack's."""
        from docker.errors import ContainerError

        image = self.world.me.image if self.world.me is not None else str(self.image.id)
        mounts = [mount(Volume(volume.source, volume.target, read_only=True)) for volume in self.volumes]
        with translated("the stack's volumes cannot be read in a container"):
            try:
                output = self.world.client.containers.run(
                    image,
                    entrypoint=["python3"],
                    command=["-c", code, *args],
                    mounts=mounts,
                    labels=self.world.labels(),
                    network_mode="none",
                    remove=True,
                    stdout=True,
                    stderr=False,
                )
            except ContainerError as error:
                stderr: object = error.stderr
                said = stderr.decode(errors="replace") if isinstance(stderr, bytes) else str(stderr)
                raise CannotMeasure(
                    f"the stack's volumes could not be read: python3 ended with {error.exit_status}",
                    why=said[-500:],
                    next_step="the image needs python3; or name the weights' folder on this machine as model.path",
                ) from error
        return output.decode(errors="replace")


def gpu_requests(gpus: str | int | tuple[str, ...], uuids: tuple[str, ...]) -> list[DeviceRequest]:
    """What the engine is asked for: all, a count, or GPUs by UUID; the stack's `gpu_uuids` narrow `all`."""
    from docker.types import DeviceRequest

    if gpus in {"none", 0}:
        return []
    chosen = gpus if isinstance(gpus, tuple) else uuids if gpus == "all" else ()
    if chosen:
        return [DeviceRequest(device_ids=list(chosen), capabilities=[["gpu"]])]
    return [DeviceRequest(count=gpus if isinstance(gpus, int) else -1, capabilities=[["gpu"]])]


def mount(volume: Volume) -> Mount:
    """A bind mount whose source must exist: the engine would make an empty folder of a misspelt one otherwise."""
    from docker.types import Mount

    if volume.named:
        return Mount(target=volume.target, source=volume.source, type="volume", read_only=volume.read_only)
    return Mount(target=volume.target, source=volume.source, type="bind", read_only=volume.read_only)
