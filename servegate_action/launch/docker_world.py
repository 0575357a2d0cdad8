"""The container engine as launching needs it: its address, servegate's own container, a network per run, images.

Speaks the Docker Engine API, so that Podman's service will do, too. This module refuses images that a tag could move, and
to let an exception of the `docker` package out: each becomes a LaunchFailed with the likely cause and the next step.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from servegate_action.errors import LaunchFailed
from servegate_action.launch.ledger import Owner
from servegate_action.launch.stack import Progress
from servegate_action.launch.volumes import OwnMount, Paths

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.images import Image
    from docker.models.networks import Network

    from docker import DockerClient

RUN_LABEL = "servegate.run"
SIDE_LABEL = "servegate.side"
OWNER_LABEL = "servegate.owner"
CONTAINER_LABEL = "servegate.container"

DEFAULT_HOST = "unix:///var/run/docker.sock"
_API_TIMEOUT_S = 60
_PULL_LINE_EVERY_S = 5.0
_LONG_ID = re.compile(r"/([0-9a-f]{64})/")
_SHORT_ID = re.compile(r"^[0-9a-f]{12,64}$")

# What the engine says, what it means, what to do.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        "could not select device driver",
        "the engine has no NVIDIA runtime, so that it cannot hand out GPUs",
        "install the NVIDIA container toolkit and run `nvidia-ctk runtime configure`, then restart the engine",
    ),
    (
        "unresolvable cdi",
        "the engine knows no NVIDIA devices",
        "generate them: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    ),
    (
        "does not exist",
        "a path or an image that is named does not exist where the engine runs",
        "compare the names; paths are the host's, not those of a container",
    ),
    (
        "no such image",
        "the image is not on this machine and could not be pulled",
        "check the name and the digest, and `docker login` for a private registry",
    ),
    (
        "unauthorized",
        "the registry wants a login",
        "log the runner's engine in: `docker login`",
    ),
    (
        "manifest unknown",
        "the registry has no image of this name and digest",
        "check the digest: `docker buildx imagetools inspect IMAGE`",
    ),
    (
        "no space left",
        "the engine's disk is full",
        "look at `docker system df`",
    ),
    (
        "already in use",
        "something of the same name or port exists already",
        "look at `docker ps --all`; servegate removes its own leftovers when it starts",
    ),
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Foreign errors of the block become LaunchFailed."""
    import requests
    from docker.errors import APIError, DockerException

    try:
        yield
    except (DockerException, requests.RequestException) as error:
        said = str(error.explanation or error) if isinstance(error, APIError) else str(error)
        lowered = said.lower()
        why, next_step = next(
            ((why, next_step) for words, why, next_step in _CAUSES if words in lowered),
            ("", "ask the engine the same by hand; `docker info` shows whether it is well"),
        )
        raise LaunchFailed(f"{what}: {said[:500]}", why=why, next_step=next_step) from error


@dataclass(frozen=True, slots=True)
class Me:
    """Servegate's own container."""

    id: str
    image: str
    network_mode: str
    mounts: tuple[OwnMount, ...]

    @property
    def has_own_network(self) -> bool:
        """False on the host's network, where it is as if it ran on the host."""
        return self.network_mode != "host" and not self.network_mode.startswith("container:")


@dataclass(frozen=True, slots=True)
class DockerWorld:
    """One run's view of the engine: whose labels, which network, and who servegate itself is in there."""

    client: DockerClient
    address: str
    run_id: str
    me: Me | None
    network: Network

    @property
    def by_address(self) -> bool:
        """Whether stacks are reached at their own address on the run's network, instead of at a published port."""
        return self.me is not None and self.me.has_own_network

    def paths(self, workspace: Path) -> Paths:
        """How paths of the configuration become paths of the host."""
        plain = Paths(workspace, self.me.mounts if self.me is not None else ())
        seen = plain.sockets
        if self.address.startswith("unix://"):
            seen = (*seen, PurePosixPath(self.address.removeprefix("unix://")))
        return replace(plain, sockets=(*seen, *map(plain.on_host, seen)))

    def labels(self) -> dict[str, str]:
        """What everything that is launched carries, so that a sweep finds it and its owner."""
        return labels(self.run_id, self.me)

    def image(self, name: str, *, progress: Progress) -> Image:
        """The image, pulled when it is not there."""
        from docker.errors import ImageNotFound

        with translated(f"the image {name} cannot be had"):
            try:
                return self.client.images.get(name)
            except ImageNotFound:
                self._pull(name, progress)
            return self.client.images.get(name)

    def _pull(self, name: str, progress: Progress) -> None:
        started = said = time.monotonic()
        layers: dict[str, tuple[int, int]] = {}
        progress(f"pulling {name}")
        for event in self.client.api.pull(name, stream=True, decode=True):
            if "error" in event:
                raise LaunchFailed(
                    f"the image {name} cannot be pulled: {event['error']}"[:600], next_step=_CAUSES[3][2]
                )
            detail = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and detail.get("total"):
                layers[event["id"]] = (detail["current"], detail["total"])
            if layers and time.monotonic() - said > _PULL_LINE_EVERY_S:
                said = time.monotonic()
                done, total = (sum(part) / 1e9 for part in zip(*layers.values(), strict=True))
                progress(f"pulling {name}: {done:.1f} of {total:.1f} GB known so far")
        progress(f"pulled {name} in {time.monotonic() - started:.0f} s")


def digest_of(image: Image, name: str) -> str:
    """`repository@sha256:…` under the name that was asked for, else the id of an image that no registry knows."""
    repository = name.partition("@")[0]
    repository = repository.rpartition(":")[0] if ":" in repository.rpartition("/")[2] else repository
    known: list[str] = image.attrs.get("RepoDigests") or []
    matching = [entry for entry in known if entry.partition("@")[0].endswith(repository)]
    return (matching or [str(image.id)])[0]


@contextmanager
def docker_world(environment: Mapping[str, str], run_id: str) -> Iterator[DockerWorld]:
    """Connect, find oneself, make the run's network and join it; leave and remove it at the end."""
    client, address = connect(environment)
    try:
        me = find_me(client)
        with translated("the run's network cannot be made"):
            network = client.networks.create(f"servegate-{run_id}", driver="bridge", labels=labels(run_id, me))
        world = DockerWorld(client, address, run_id, me, network)
        try:
            if me is not None and world.by_address:
                with translated("servegate's own container cannot join the run's network"):
                    network.connect(me.id)
            yield world
        finally:
            remove_network(network)
    finally:
        client.close()


def labels(run_id: str, me: Me | None) -> dict[str, str]:
    """Whose it is: the run, the process, and that process's container."""
    own = {RUN_LABEL: run_id, OWNER_LABEL: Owner.this_process().model_dump_json()}
    return own if me is None else {**own, CONTAINER_LABEL: me.id}


def connect(environment: Mapping[str, str]) -> tuple[DockerClient, str]:
    """The engine that DOCKER_HOST names, else the usual socket. Raises LaunchFailed with what to do."""
    import requests
    from docker.errors import DockerException

    import docker

    address = environment.get("DOCKER_HOST") or DEFAULT_HOST
    try:
        client = docker.from_env(environment={"DOCKER_HOST": address, **environment}, timeout=_API_TIMEOUT_S)
        client.ping()
    except (DockerException, requests.RequestException) as error:
        raise LaunchFailed(
            f"the container engine at {address} does not answer: {error}",
            why="it is not running, this user may not use its socket, or DOCKER_HOST is wrong",
            next_step="try `docker info`; a job container needs the socket: volumes: [/var/run/docker.sock:/var/run/docker.sock]",
        ) from error
    return client, address


def find_me(client: DockerClient) -> Me | None:
    """Servegate's own container, as the engine knows it; None when servegate runs beside the engine."""
    from docker.errors import NotFound

    for candidate in _own_ids():
        with translated("the engine cannot say which container this is"):
            try:
                attrs = client.containers.get(candidate).attrs
            except NotFound:
                continue
        mounts = tuple(
            OwnMount(PurePosixPath(mount["Destination"]), PurePosixPath(mount["Source"]))
            for mount in attrs.get("Mounts") or ()
            if mount.get("Source") and mount.get("Destination")
        )
        mode = str(attrs["HostConfig"].get("NetworkMode") or "default")
        return Me(id=str(attrs["Id"]), image=str(attrs["Image"]), network_mode=mode, mounts=mounts)
    return None


def in_container() -> bool:
    """Whether this process runs in a container, as Docker and Podman mark them."""
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()


def _own_ids() -> list[str]:
    """What the own container's id may be: from the files that the engine mounts into it, then from the hostname."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields = line.split()
        if fields[4] in {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"} and (
            match := _LONG_ID.search(fields[3] + "/")
        ):
            found.append(match.group(1))
    name = socket.gethostname()
    if _SHORT_ID.match(name):
        found.append(name)
    return list(dict.fromkeys(found))


def remove_network(network: Network) -> None:
    """Disconnect whoever is on it, and remove it. One that is gone is what was wanted."""
    from docker.errors import NotFound

    with translated(f"the network {network.name} cannot be removed"):
        try:
            network.reload()
            for container_id in network.attrs.get("Containers") or {}:
                network.disconnect(container_id, force=True)
            network.remove()
        except NotFound:
            return


def remove_container(container: Container, *, patience_s: float, ended: Callable[[], None] = lambda: None) -> None:
    """Ask, wait, kill, and remove with its anonymous volumes. One that is gone is what was wanted.

    `ended` is called between its end and its removal: an engine cuts off whoever still reads the output of what it removes.
    """
    from docker.errors import APIError, NotFound

    with translated(f"the container {container.name} cannot be removed"):
        try:
            if patience_s >= 1:
                container.stop(timeout=round(patience_s))
            else:
                _kill(container)
            ended()
            container.remove(v=True, force=True)
        except NotFound:
            return
        except APIError as error:
            # the engine is already removing it
            if error.response is None or error.response.status_code != 409:
                raise


def _kill(container: Container) -> None:
    from docker.errors import APIError

    try:
        container.kill()
    except APIError as error:
        # 409: it is not running, which is what was wanted
        if error.response is None or error.response.status_code != 409:
            raise
