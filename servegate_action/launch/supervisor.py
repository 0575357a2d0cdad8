"""The small process between servegate and a stack: it starts the command, copies its output to the log, and ends the tree.

It runs as a script of its own (`python -I -S supervisor.py`, standard library only), so that the stack ends with servegate
however servegate ends: a `kill -9` closes the pipe from which orders come, and that is the order to stop. It is the
subreaper of everything that the command starts, so that a server that forks twice and changes its session is still one
of its descendants. Orders come as lines on standard input (the first is an `Order` as JSON, then `stop SECONDS`), what
happened goes as JSON lines to standard output. Known secrets are blanked before a byte of output reaches the disk.

It refuses to know the rest of servegate, to decide whether a stack is ready, and to outlive the processes it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STOPPING_TICK_S = 0.05
_TICK_S = 1.0
_LONGEST_LINE = 65_536
_KILL_PATIENCE_S = 3.0
LOG_LIMIT_BYTES = 256 * 1024 * 1024
SECRET_BLANK = b"***"


@dataclass(frozen=True, slots=True)
class Order:
    """What to start, and how to stop it. `secrets` are blanked in the log."""

    command: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    log_path: str
    stop_timeout_s: float
    secrets: Sequence[str]

    def line(self) -> bytes:
        """The order as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


# ---------------------------------------------------------------- processes, as /proc tells them


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with the pid it names one process. None when it has ended."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on. None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def descendants(root: int) -> list[int]:
    """Every living process below `root`, itself left out; zombies are not living."""
    children: dict[int, list[int]] = {}
    zombies: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _stat(int(name))
        if fields is None:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
        if fields[0] in "ZX":
            zombies.add(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [pid for pid in found if pid not in zombies]


def send(pids: Iterable[int], signal_number: int) -> None:
    """Signal each process; one that is gone already is what was wanted."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_number)


# ---------------------------------------------------------------- the log


class Log:
    """Copies output to a file line by line, with secrets blanked, up to a size beyond which a log tells nothing new."""

    def __init__(self, path: str, secrets: Iterable[str]) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - it lives as long as the stack
        self._secrets = sorted((secret.encode() for secret in secrets if secret), key=len, reverse=True)
        self._held_back = len(self._secrets[0]) - 1 if self._secrets else 0
        self._rest = b""
        self._written = 0

    def feed(self, data: bytes) -> None:
        """Take what was read. Whole lines go to the file; of a line without end, all but what may be half a secret."""
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > _LONGEST_LINE:
            data = self._blank(data)
            end = len(data) - self._held_back
        self._rest = data[end:]
        self._write(data[:end])

    def flush(self) -> None:
        """Write the unfinished last line, too."""
        self._write(self._rest)
        self._rest = b""

    def close(self) -> None:
        """Write what is left, and take no more."""
        self.flush()
        self._file.close()

    def _blank(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, SECRET_BLANK)
        return data

    def _write(self, data: bytes) -> None:
        if not data or self._written > LOG_LIMIT_BYTES:
            return
        data = self._blank(data)
        self._written += len(data)
        if self._written > LOG_LIMIT_BYTES:
            data += b"\n[servegate: the log is cut here, at its size limit]\n"
        # a full disk must not end the stack; the run directory, on the same disk, reports it
        with contextlib.suppress(OSError):
            self._file.write(data)


# ---------------------------------------------------------------- supervising


def tell(events_fd: int, **event: object) -> None:
    """Say what happened as one line of JSON. When servegate was killed nobody listens; the work goes on all the same."""
    with contextlib.suppress(BrokenPipeError):
        os.write(events_fd, json.dumps(event).encode() + b"\n")


def begin(order: Order) -> tuple[subprocess.Popen[bytes], int]:
    """Start the command in a session of its own; returns it and the reading end of its output. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    reading, writing = os.pipe()
    try:
        main_process = subprocess.Popen(
            list(order.command),
            cwd=order.cwd,
            env=dict(order.env),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # this process has one thread, so that running code between fork and exec is safe
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
        )
    finally:
        os.close(writing)
    os.set_blocking(reading, False)
    return main_process, reading


class Supervision:
    """One command from its start until nothing of it is left."""

    def __init__(
        self, order: Order, started: tuple[subprocess.Popen[bytes], int], *, orders_fd: int, events_fd: int
    ) -> None:
        self._patience_s = order.stop_timeout_s
        self._main, self._output_fd = started
        self._orders_fd = orders_fd
        self._events_fd = events_fd
        self._owner = os.getppid()
        self._log = Log(order.log_path, order.secrets)
        self._kill_at = math.inf
        self._asked: set[int] = set()
        self._unread = b""

    def run(self) -> int:
        """Watch until told to stop (or left alone), then end the tree. Returns the supervisor's own exit status."""
        wakeup, waker = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for servegate, which then gives the order to stop
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only wakes the loop up
        signal.signal(signal.SIGTERM, lambda *_: self._stop(self._patience_s))
        with selectors.DefaultSelector() as selector:
            for readable in (self._orders_fd, self._output_fd, wakeup):
                selector.register(readable, selectors.EVENT_READ)
            while not self._ended() and time.monotonic() < self._kill_at + _KILL_PATIENCE_S:
                self._wait(selector)
                self._reap()
                if os.getppid() != self._owner:
                    self._stop(self._patience_s)
                self._press()
        return self._finish()

    @property
    def _stopping(self) -> bool:
        return self._kill_at < math.inf

    def _wait(self, selector: selectors.BaseSelector) -> None:
        """Sleep until there is output, an order, the end of a child, or something to check."""
        for key, _ in selector.select(_STOPPING_TICK_S if self._stopping else _TICK_S):
            data = self._read(key.fd)
            if data is None:
                continue
            if key.fd == self._orders_fd:
                self._obey(data)
            elif key.fd == self._output_fd:
                self._log.feed(data)
            if not data:
                selector.unregister(key.fd)

    @staticmethod
    def _read(readable: int) -> bytes | None:
        try:
            return os.read(readable, 65_536)
        except BlockingIOError:
            return None

    def _obey(self, data: bytes) -> None:
        if not data:  # the other end is closed: servegate is gone
            self._stop(self._patience_s)
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, seconds = line.decode().partition(" ")
            if word == "stop":
                self._stop(float(seconds))

    def _stop(self, within_s: float) -> None:
        """Begin to stop, or be quicker about it."""
        self._kill_at = min(self._kill_at, time.monotonic() + within_s)

    def _press(self) -> None:
        """Ask each process once, the main one and its group first and the others when it is gone; then kill, repeatedly."""
        if not self._stopping:
            return
        if time.monotonic() >= self._kill_at:
            send(descendants(os.getpid()), signal.SIGKILL)
        elif self._main.returncode is not None:
            others = [pid for pid in descendants(os.getpid()) if pid not in self._asked]
            self._asked.update(others)
            send(others, signal.SIGTERM)
        elif self._main.pid not in self._asked:
            self._asked.add(self._main.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._main.pid, signal.SIGTERM)

    def _reap(self) -> None:
        """Collect what ended: the main process, and orphans that were handed to this one."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid == self._main.pid:
                code = self._main.wait()
                self._drain()  # whoever hears of the end reads the log's last lines
                left = len(descendants(os.getpid()))
                tell(self._events_fd, event="exited", code=code, t_ns=time.monotonic_ns(), left=left)
            else:
                os.waitpid(ended.si_pid, 0)

    def _drain(self) -> None:
        while data := self._read(self._output_fd):
            self._log.feed(data)
        self._log.flush()

    def _ended(self) -> bool:
        return self._stopping and self._main.returncode is not None and not descendants(os.getpid())

    def _finish(self) -> int:
        self._drain()
        self._log.close()
        left = descendants(os.getpid())
        tell(self._events_fd, event="gone", left=left, t_ns=time.monotonic_ns())
        return 1 if left else 0


def main() -> int:
    """Read the order from standard input and carry it out."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return 1
        line += byte
    order = Order(**json.loads(line))
    try:
        started = begin(order)
    except OSError as error:
        tell(1, event="failed", message=f"{error.strerror}: {error.filename}", t_ns=time.monotonic_ns())
        return 1
    tell(1, event="started", pid=started[0].pid, t_ns=time.monotonic_ns())
    return Supervision(order, started, orders_fd=0, events_fd=1).run()


if __name__ == "__main__":
    sys.exit(main())
