"""Starts a stack, waits until it serves, and ends it: a process, a container, or an endpoint that already runs.

    with launch(stack, side=…, …) as running:
        …                       # running.ready.base_url answers; running.alive() raises when it no longer does

The block's end, an error, Ctrl-C and SIGTERM (raised as `Cancelled`) all leave nothing behind; what a `kill -9` leaves,
the supervisor ends, and `sweep` finds the rest. Refuses to measure anything, and to call ready what has not answered a
real completion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from servegate_action.config.stacks import Stack
from servegate_action.launch.beside import Beside, start_beside
from servegate_action.launch.container import launch_container
from servegate_action.launch.docker_world import DockerWorld, docker_world, in_container
from servegate_action.launch.endpoint import launch_endpoint
from servegate_action.launch.ledger import state_directory
from servegate_action.launch.main_step import end_main_step
from servegate_action.launch.process import launch_process
from servegate_action.launch.stack import FirstToken, Launch, Progress, Ready, Running, log_tail
from servegate_action.launch.sweep import sweep
from servegate_action.records import Side

__all__ = [
    "Beside",
    "DockerWorld",
    "FirstToken",
    "Progress",
    "Ready",
    "Running",
    "docker_world",
    "end_main_step",
    "launch",
    "log_tail",
    "start_beside",
    "state_directory",
    "sweep",
]


@contextmanager
def launch(  # noqa: PLR0913 - the border of the room, all by keyword
    stack: Stack,
    *,
    side: Side,
    run_id: str,
    log_path: Path,
    environment: Mapping[str, str],
    workspace: Path,
    first_token: FirstToken,
    progress: Progress,
    docker: DockerWorld | None = None,
) -> Iterator[Running]:
    """Start one stack and end it with the block.

    `environment` is the job's; the stack sees an allow-list of it. `first_token` decides when it is ready, for instance
    `functools.partial(client.one_token, api="completions")`. `docker` is the run's view of the engine, opened once with
    `docker_world`; without it a container stack opens one for itself. Raises LaunchFailed, UsageError, StorageFailed.
    """
    told = Launch(
        stack=stack,
        side=side,
        run_id=run_id,
        log_path=log_path,
        environment=environment,
        workspace=workspace,
        first_token=first_token,
        progress=progress,
    )
    if stack.process is not None:
        with launch_process(told, stack.process, state_dir=state_directory(environment)) as process:
            yield process
    elif stack.container is not None:
        with (
            nullcontext(docker) if docker is not None else docker_world(environment, run_id) as world,
            launch_container(told, stack.container, world) as container,
        ):
            yield container
    elif stack.endpoint is not None:
        with launch_endpoint(told, stack.endpoint, inside_container=in_container()) as endpoint:
            yield endpoint
