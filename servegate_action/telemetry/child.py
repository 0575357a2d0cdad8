"""The sampler as somebody's child: started, listened to, spoken to, ended.

`Host` is where it runs. `LocalHost` starts a process here. `RemoteHost` is for a place that the room which owns the
container engine provides, a sibling container with a GPU request: it starts the same command there, and its standard
output is copied to the file here. This module refuses to read samples.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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


class Remote(Protocol):
    """A sampler that was started elsewhere, with both its streams attached."""

    def output(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """(standard output, standard error) as they come, until the end; the shape of docker's `attach(demux=True)`."""

    def status(self) -> int | None:
        """Its exit status once it has ended."""

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL after the timeout; gone when it returns."""


class RemoteChild:
    """A thread copies standard output to the file and keeps the lines of standard error."""

    def __init__(self, remote: Remote, output: Path) -> None:
        self._remote = remote
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._copy, args=(output,), name="servegate-telemetry-copy", daemon=True)
        self._thread.start()

    def _copy(self, path: Path) -> None:
        rest = b""
        with path.open("wb", buffering=0) as file:
            for out, err in self._remote.output():
                if out:
                    file.write(out)
                *lines, rest = (rest + (err or b"")).split(b"\n")
                for line in filter(None, lines):
                    self._said.put(line.decode(errors="replace"))

    def send(self, line: str) -> None:
        """It is detached and hears nothing: the stack's process ids here would not be those that NVML gives, anyway."""

    def events(self, timeout_s: float) -> list[str]:
        """What came since the last call."""
        lines: list[str] = []
        with contextlib.suppress(queue.Empty):
            lines.append(self._said.get(timeout=timeout_s) if timeout_s > 0 else self._said.get_nowait())
            while True:
                lines.append(self._said.get_nowait())
        return lines

    def poll(self) -> int | None:
        """None until it has ended and everything that it said has arrived."""
        return None if self._thread.is_alive() else self._remote.status()

    def stop(self, timeout_s: float) -> None:
        """End it, and wait for the last lines."""
        self._remote.stop(timeout_s)
        self._thread.join(timeout_s)


class RemoteHost:
    """A place elsewhere. `start` runs `python -m servegate_action.telemetry ARGUMENTS` there, attached."""

    def __init__(self, start: Callable[[Sequence[str]], Remote]) -> None:
        self._start = start

    def start(self, arguments: Sequence[str], *, output: Path) -> RemoteChild:
        """Detached: nothing is sent to its standard input, and only a signal ends it."""
        output.touch()
        return RemoteChild(self._start([*arguments, "--detached"]), output)
