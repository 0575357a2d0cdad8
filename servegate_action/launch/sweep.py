"""Removes what dead earlier runs left: process trees by the ledger, containers and networks by their labels.

Refuses to touch anything whose owner still runs, or cannot be seen from here, and anything that servegate did not start.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from servegate_action.errors import LaunchFailed
from servegate_action.launch import ledger, supervisor
from servegate_action.launch.docker_world import (
    CONTAINER_LABEL,
    DEFAULT_HOST,
    OWNER_LABEL,
    RUN_LABEL,
    connect,
    remove_container,
    remove_network,
    translated,
)

if TYPE_CHECKING:
    from docker import DockerClient

_ASKED_S = 2.0
_KILLED_S = 3.0


def sweep(*, state_dir: Path, run_id: str | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """One line for each thing removed. With `run_id`, only that run's, whatever its owner does.

    Containers are looked for when `environment` (with its DOCKER_HOST, if any) leads to an engine.
    """
    said = _sweep_processes(state_dir, run_id)
    if environment is not None and engine_is_near(environment):
        said += _sweep_containers(environment, run_id)
    return said


def engine_is_near(environment: Mapping[str, str]) -> bool:
    """Whether there is a socket to talk to; a machine without containers is swept without one."""
    address = environment.get("DOCKER_HOST") or DEFAULT_HOST
    path = address.removeprefix("unix://")
    return path == address or os.access(path, os.R_OK | os.W_OK)


def _sweep_containers(environment: Mapping[str, str], run_id: str | None) -> list[str]:
    try:
        client, _ = connect(environment)
    except LaunchFailed as error:
        # a run without containers needs no engine; one with containers says the same again, as an error
        return [f"containers of earlier runs were not looked for: {error.what}"]
    said = []
    wanted = RUN_LABEL if run_id is None else f"{RUN_LABEL}={run_id}"
    try:
        with translated("what earlier runs left cannot be listed"):
            containers = client.containers.list(all=True, filters={"label": wanted})
            networks = client.networks.list(filters={"label": wanted})
        for container in containers:
            if run_id is not None or _owner_is_dead(client, container.labels):
                remove_container(container, patience_s=0.0)
                said.append(f"removed container {container.name} that run {container.labels[RUN_LABEL]} had left")
        for network in networks:
            own = network.attrs.get("Labels") or {}
            if run_id is not None or _owner_is_dead(client, own):
                remove_network(network)
                said.append(f"removed network {network.name} that run {own.get(RUN_LABEL)} had left")
    finally:
        client.close()
    return said


def _owner_is_dead(client: DockerClient, labels: Mapping[str, str]) -> bool:
    """False in doubt. An owner in a container lives as long as that; another is a process of this machine, or unseen."""
    from docker.errors import NotFound

    if container_id := labels.get(CONTAINER_LABEL):
        with translated("the engine cannot say whether a run still runs"):
            try:
                return not client.containers.get(container_id).attrs["State"]["Running"]
            except NotFound:
                return True
    try:
        owner = ledger.Owner.model_validate_json(labels.get(OWNER_LABEL, ""))
    except ValidationError:
        return False
    return owner.visible() and not owner.alive()


def _sweep_processes(state_dir: Path, run_id: str | None) -> list[str]:
    said: list[str] = []
    for path, entry in ledger.left_behind(state_dir, run_id=run_id):
        ended, stuck = _end(entry.token)
        if ended:
            said.append(f"ended {_listed(ended)} that run {entry.run_id} had left of its {entry.side}")
        if stuck:
            said.append(f"could not end {_listed(stuck)} of run {entry.run_id}: stuck inside the kernel")
        else:
            path.unlink(missing_ok=True)
    return said


def _end(token: str) -> tuple[list[int], list[int]]:
    """Ask, wait, kill every carrier of the token. Returns those that ended and those that did not."""
    seen: set[int] = set()
    for signal_number, patience_s in ((signal.SIGTERM, _ASKED_S), (signal.SIGKILL, _KILLED_S)):
        until = time.monotonic() + patience_s
        asked: set[int] = set()
        while pids := _living(token):
            seen.update(pids)
            fresh = [pid for pid in pids if pid not in asked or signal_number == signal.SIGKILL]
            asked.update(fresh)
            supervisor.send(fresh, signal_number)
            if time.monotonic() > until:
                break
            time.sleep(0.02)
    stuck = _living(token)
    return sorted(seen - set(stuck)), stuck


def _living(token: str) -> list[int]:
    own = os.getpid()
    return [pid for pid in ledger.carriers(token) if pid != own and supervisor.start_ticks(pid) is not None]


def _listed(pids: list[int]) -> str:
    return ("process " if len(pids) == 1 else "processes ") + ", ".join(map(str, pids))
