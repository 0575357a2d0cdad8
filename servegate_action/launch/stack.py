"""What a launched stack is to the rest of servegate, whichever way it was started, and the last lines of its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from servegate_action.client import OneToken, Reply
from servegate_action.config.stacks import Engine, Stack
from servegate_action.records import Absent, ColdStart, MaybeStr, Side

Progress = Callable[[str], None]
"""Takes one plain line."""

TAIL_LINES = 20
_TAIL_BYTES = 64 * 1024
_LONGEST_SHOWN = 400
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")

_HEALTH_PATHS: Mapping[Engine, str] = {
    Engine.VLLM: "/health",
    Engine.SGLANG: "/health_generate",
    Engine.TENSORRT_LLM: "/health",
    Engine.LLAMA_CPP: "/health",
}


class FirstToken(Protocol):
    """Asks for a real completion of one token: `functools.partial(client.one_token, api=…)` is one."""

    def __call__(self, base_url: str, *, timeout_s: float) -> OneToken | Reply:
        """`OneToken` when the server really completed, else what it said instead."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What one launch is told."""

    stack: Stack
    side: Side
    run_id: str
    log_path: Path
    environment: Mapping[str, str]
    workspace: Path
    first_token: FirstToken
    progress: Progress


@dataclass(frozen=True, slots=True)
class Ready:
    """A stack that has answered its first token, and how it got there. `command` is fit to be recorded: secrets out."""

    base_url: str
    pid: int | None
    container_id: str | None
    container_digest: MaybeStr
    cold_start: ColdStart
    command: tuple[str, ...]


class VolumeReader(Protocol):
    """Runs Python where a stack's volumes are, when they cannot be seen from here."""

    def run_python(self, code: str, args: Sequence[str]) -> str:
        """`python3 -c code args…`; its standard output. Raises CannotMeasure when it fails."""


class Running(Protocol):
    """A stack between ready and gone."""

    @property
    def ready(self) -> Ready:
        """How it became ready."""

    @property
    def log_path(self) -> Path:
        """Where its output goes."""

    @property
    def volume(self) -> VolumeReader | None:
        """A reader of the container's volumes; None for what is no container."""

    def alive(self) -> None:
        """Return when it still runs; raise StackDied, with the end of its log, when it does not."""

    def pids(self) -> tuple[int, ...]:
        """Its processes, by the pids that this machine's kernel knows; empty when they cannot be seen from here."""

    def stop(self) -> None:
        """End it: ask, wait, kill. A second call does nothing."""

    def gone(self) -> bool:
        """Whether nothing of it is left."""


def health_path(stack: Stack) -> str | None:
    """The path that answers 200 once healthy: declared, or known of the engine. None when nobody says."""
    return stack.health or _HEALTH_PATHS.get(stack.engine)


def nothing_launched(reason: str, requested_ns: int) -> ColdStart:
    """The cold start of a stack that servegate did not start."""
    absent = Absent(absent=reason)
    return ColdStart(
        requested_ns=requested_ns,
        image_ready_ns=absent,
        process_up_ns=absent,
        port_open_ns=absent,
        healthy_ns=absent,
        first_token_ns=absent,
        page_cache="unknown",
    )


def log_tail(path: Path, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines of a log, without colours and control characters, each cut to a readable length. Foreign text."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    cleaned = (
        _CONTROL.sub("", line.rpartition("\r")[2] or line).rstrip() for line in text.replace("\r\n", "\n").split("\n")
    )
    shown = [line if len(line) <= _LONGEST_SHOWN else line[:_LONGEST_SHOWN] + "…" for line in cleaned if line]
    return tuple(shown[-lines:])
