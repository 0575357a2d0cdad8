"""The sampler as somebody's child: started, listened to, spoken to, ended.

`Host` is where it runs. `LocalHost` starts a process here. A sibling container with a GPU request is another host that
the room which owns the container engine provides: it starts the same command with `--detached` and copies standard
output to the file. This module refuses to read samples.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

COMMAND = ("-m", "servegate_action.telemetry")


class Child(Protocol):
    """A running sampler."""

    def send(self, line: str) -> None:
        """One line to its standard input; ignored when it cannot hear."""

    def events(self, timeout_s: float) -> list[str]:
        """Lines of its standard error since the last call; waits up to the timeout for the first one, or for its end."""

    def poll(self) -> int | None:
        """Its exit status once it has ended."""

    def stop(self, timeout_s: float) -> None:
        """End it; killed when it takes longer than the timeout."""


class Host(Protocol):
    """A place where a sampler can run."""

    def start(self, arguments: Sequence[str], *, output: Path) -> Child:
        """Run `python -m servegate_action.telemetry` with these arguments, its standard output into the new file `output`."""


class LocalChild:
    """A child process in a session of its own, so that Ctrl-C reaches only the parent, which then ends it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._rest = b""
        if process.stderr is None or process.stdin is None:
            raise ValueError("the sampler needs both pipes")
        self._stdin, self._stderr = process.stdin, process.stderr
        os.set_blocking(self._stderr.fileno(), False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, line: str) -> None:
        """A broken pipe means that it has ended; `poll` says so."""
        try:
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def events(self, timeout_s: float) -> list[str]:
        """Never blocks longer than the timeout; an incomplete line waits for its rest."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._stderr, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                got = os.read(self._stderr.fileno(), 65536) if ready else b""
                *lines, self._rest = (self._rest + got).split(b"\n")
                if lines or not got:
                    return [line.decode(errors="replace") for line in lines if line]

    def poll(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def stop(self, timeout_s: float) -> None:
        """Closing its input is the order to stop; then SIGKILL."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


class LocalHost:
    """This machine. `environment` replaces the inherited one when given."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._environment = environment

    def start(self, arguments: Sequence[str], *, output: Path) -> LocalChild:
        """The same interpreter as ours."""
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *COMMAND, *arguments],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        return LocalChild(process)
