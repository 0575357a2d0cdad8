"""A stack around the tiny server, and a launch of it, as the tests of this room want them."""

from __future__ import annotations

import functools
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from servegate_action import client
from servegate_action.config.stacks import ProcessStack, Stack
from servegate_action.launch import Running, ledger, supervisor
from servegate_action.launch import launch as start
from servegate_action.records import Side

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 30.0


def tiny(*flags: str, ready_s: float = LIMIT_S, stop_s: float = 5.0, env: tuple[str, ...] = ()) -> Stack:
    """The tiny server as a process stack."""
    command = (sys.executable, "-m", "tests.support.tiny_server", "--port", "{port}", *flags)
    return process(*command, ready_s=ready_s, stop_s=stop_s, env=env)


def process(*command: str, ready_s: float = LIMIT_S, stop_s: float = 5.0, env: tuple[str, ...] = ()) -> Stack:
    """Any command as a process stack."""
    return Stack(
        label="tiny", process=ProcessStack(command=command), env=env, ready_timeout_s=ready_s, stop_timeout_s=stop_s
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launch of a test keeps its files, and what it sees of the environment."""

    folder: Path
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.folder), **self.extra}

    @property
    def state_dir(self) -> Path:
        return self.folder / "servegate"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def notes(self) -> list[Path]:
        """What the ledger holds."""
        return sorted(self.state_dir.glob("*.json"))

    def launch(self, stack: Stack, *, run_id: str = "run-1") -> AbstractContextManager[Running]:
        return start(
            stack,
            side=Side.CANDIDATE,
            run_id=run_id,
            log_path=self.log,
            environment=self.environment,
            workspace=ROOT,
            first_token=functools.partial(client.one_token, api="completions"),
            progress=lambda _: None,
        )

    def carriers(self) -> list[int]:
        """Living processes of every stack that the ledger names."""
        return [pid for note in self.notes() for pid in living(note.stem)]


def living(token: str) -> list[int]:
    """Living processes that carry the token."""
    return [pid for pid in ledger.carriers(token) if supervisor.start_ticks(pid) is not None]


def port_of(running: Running) -> int:
    return int(running.ready.base_url.rpartition(":")[2])


def is_free(port: int) -> bool:
    """Whether a server could bind the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def eventually(condition: Callable[[], object]) -> None:
    """Wait for something to become true; fail when it does not within the limit."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)
