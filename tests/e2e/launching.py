"""Launches the tiny server as a sibling container, says as JSON what it saw, and waits: on the host or in a container.

    python launching.py RUN_ID FOLDER [--wait] [flags of the tiny server]

Standard library and servegate only, so that it runs inside of the action's image, too.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from servegate_action import client
from servegate_action.config.stacks import ContainerStack, Stack
from servegate_action.errors import Cancelled
from servegate_action.launch import docker_world, launch
from servegate_action.records import Side

IMAGE = "python:3.13-slim"


def container(*flags: str, ready_s: float = 60.0, env: tuple[str, ...] = (), **changes: object) -> Stack:
    """The tiny server as a container stack; its file is mounted out of the workspace."""
    options: dict[str, object] = {
        "image": IMAGE,
        "allow_tag": True,
        "command": ("python3", "-u", "/tiny/server.py", "--host", "0.0.0.0", "--port", "{port}", *flags),
        "volumes": ("./tiny_server.py:/tiny/server.py:ro",),
        "port": 8000,
        "shm_size": "64m",
        **changes,
    }
    return Stack(
        label="tiny",
        container=ContainerStack.model_validate(options),
        env=env,
        ready_timeout_s=ready_s,
        stop_timeout_s=3,
    )


def main(run_id: str, folder: Path, flags: list[str]) -> int:
    """As the door does: both signals are Cancelled in the main thread."""

    def cancel(number: int, _frame: FrameType | None) -> None:
        raise Cancelled(number)

    signal.signal(signal.SIGINT, cancel)
    signal.signal(signal.SIGTERM, cancel)
    wait = "--wait" in flags
    try:
        with (
            docker_world(os.environ, run_id) as world,
            launch(
                container(*(flag for flag in flags if flag != "--wait")),
                side=Side.BASELINE,
                run_id=run_id,
                log_path=folder / "server.log",
                environment=os.environ,
                workspace=folder,
                first_token=functools.partial(client.one_token, api="completions"),
                progress=lambda _: None,
                docker=world,
            ) as running,
        ):
            me = world.me
            said = {"base_url": running.ready.base_url, "me": me.id if me else None, "pids": running.pids()}
            print(json.dumps(said), flush=True)
            while wait:
                signal.pause()
    except Cancelled as cancelled:
        return cancelled.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
