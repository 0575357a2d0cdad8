"""Ends the main step's container when the step is over and its container is not.

When a job is cancelled the runner kills the engine's client; the container that the client had started lives on, and with
it everything that it holds. The post step runs in a container of the same image with the same workspace, and by these two
the main step's is known. Refuses to touch any other container, and to guess where the engine does not show its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from servegate_action.errors import LaunchFailed
from servegate_action.launch.docker_world import Me, connect, find_me, remove_container, translated
from servegate_action.launch.sweep import engine_is_near

CANCEL_S = 8.0
"""What a cancelled run may take to end its stacks and to say so, before it is killed."""


def end_main_step(*, environment: Mapping[str, str]) -> list[str]:
    """Ask, wait, kill and remove; one line for each container. Empty when nothing of the main step runs any more."""
    if not engine_is_near(environment):
        return []
    try:
        client, _ = connect(environment)
    except LaunchFailed as error:
        return [f"the main step's container was not looked for: {error.what}"]
    said = []
    try:
        me = find_me(client)
        workspace = PurePosixPath(environment.get("GITHUB_WORKSPACE", ""))
        if me is None or (source := _source(me, workspace)) is None:
            return []
        with translated("the containers that run cannot be listed"):
            running = client.containers.list(ignore_removed=True)
        for container in running:
            attrs = container.attrs
            if attrs["Id"] == me.id or attrs["Image"] != me.image:
                continue
            if (str(workspace), source) in _mounts(attrs.get("Mounts") or ()):
                remove_container(container, patience_s=CANCEL_S)
                said.append(f"ended container {container.name}: the main step was over and it still ran")
    finally:
        client.close()
    return said


def _source(me: Me, destination: PurePosixPath) -> str | None:
    return next((str(mount.on_host) for mount in me.mounts if mount.inside == destination), None)


def _mounts(listed: Iterable[Mapping[str, object]]) -> set[tuple[str, str]]:
    return {(str(mount.get("Destination")), str(mount.get("Source"))) for mount in listed}
