"""The sampler process: `python -m servegate_action.telemetry sample|probe`.

`sample` writes JSON lines to standard output, first a `TelemetryStatic`, then one `TelemetrySample` per tick. Standard
error is the line to the parent: one JSON event per line (`ready`, `lost`, `problem`). Standard input takes
`{"roots": [pid, …]}` lines; its end, SIGTERM, or the death of the parent end the sampler. SIGINT is left to the parent.
`probe` writes the static record and ends. It refuses to buffer: a line is written whole or not at all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence

from servegate_action.errors import ServegateError
from servegate_action.records import Record, TelemetrySample
from servegate_action.telemetry.backend import Backend
from servegate_action.telemetry.loop import Orders, run

EXIT_PROBLEM = 5


class Process:
    """The real clock and the real standard input. Without a parent to listen to (`--detached`) only signals end it."""

    def __init__(self, *, detached: bool) -> None:
        self._detached = detached
        self._parent = os.getppid()
        self._rest = b""
        self._wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC, the clock of the whole recording."""
        return time.monotonic_ns()

    def wait_until(self, deadline_ns: int) -> Orders:
        """Sleep in select, so that an order or a signal ends the wait at once."""
        watched = [self._wake] if self._detached else [self._wake, 0]
        timeout = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        ready, _, _ = select.select(watched, [], [], timeout)
        if self._wake in ready or (not self._detached and os.getppid() != self._parent):
            return Orders(stop=True)
        return self._read() if 0 in ready else Orders()

    def _read(self) -> Orders:
        got = os.read(0, 65536)
        if not got:
            return Orders(stop=True)
        *lines, self._rest = (self._rest + got).split(b"\n")
        roots: tuple[int, ...] | None = None
        for line in filter(None, lines):
            roots = tuple(int(pid) for pid in json.loads(line)["roots"])
        return Orders(roots=roots)


def main(arguments: Sequence[str] | None = None) -> int:
    """Open the backend, say `ready`, sample."""
    options = _parser().parse_args(arguments)
    try:
        backend = _open(options.backend, tuple(options.uuid))
    except ServegateError as error:
        _problem(error)
        return EXIT_PROBLEM
    with contextlib.closing(backend):
        static = backend.static(options.interval_ns)
        _write(1, static)
        if options.command == "probe":
            return 0
        _event({"event": "ready"})
        os.set_blocking(2, False)
        emit = Emitter(_event, [device.uuid for device in static.devices])
        run(backend, Process(detached=options.detached), interval_ns=options.interval_ns, emit=emit)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m servegate_action.telemetry", description=__doc__)
    parser.add_argument("command", choices=["sample", "probe"])
    parser.add_argument("--backend", choices=["nvidia", "cpu"], required=True)
    parser.add_argument("--uuid", action="append", default=[], help="a device; default: all that are visible")
    parser.add_argument("--interval-ns", type=int, default=100_000_000)
    parser.add_argument("--detached", action="store_true", help="do not listen to standard input (in a container)")
    return parser


def _open(kind: str, uuids: tuple[str, ...]) -> Backend:
    """Import only the backend asked for: neither library may exist where the other one is used."""
    if kind == "cpu":
        from servegate_action.telemetry.cpu import CpuBackend

        return CpuBackend()
    from servegate_action.telemetry.nvml import NvmlBackend, sees_host_pids

    return NvmlBackend(uuids, host_pids=sees_host_pids())


class Emitter:
    """Writes samples, and tells the parent of errors: each new text, and each change of which devices are left, once.

    The parent may be busy for minutes, so the way to it must never block: what does not fit is tried again with the next
    sample.
    """

    def __init__(self, say: Callable[[dict[str, object]], bool], devices: Sequence[str]) -> None:
        self._say = say
        self._text: str | None = None
        self._told: tuple[str | None, tuple[str, ...]] = (None, tuple(devices))

    def __call__(self, sample: TelemetrySample) -> None:
        """One sample."""
        _write(1, sample)
        self.tell(sample)

    def tell(self, sample: TelemetrySample) -> None:
        """The error of a sample, if it is news."""
        self._text = sample.error or self._text
        news = (self._text, tuple(device.uuid for device in sample.devices))
        if news == self._told:
            return
        if self._say({"event": "error", "t_ns": sample.t_ns, "what": self._text, "devices": list(news[1])}):
            self._told = news


def _write(descriptor: int, record: Record) -> None:
    line = record.model_dump_json(exclude_none=True).encode() + b"\n"
    try:
        os.write(descriptor, line)
    except OSError as error:
        _event({"event": "problem", "kind": "StorageFailed", "what": f"telemetry cannot be written: {error.strerror}"})
        sys.exit(EXIT_PROBLEM)


def _problem(error: ServegateError) -> None:
    _event(
        {
            "event": "problem",
            "kind": type(error).__name__,
            "what": error.what,
            "why": error.why,
            "next": error.next_step,
        }
    )


def _event(event: dict[str, object]) -> bool:
    """One line to the parent; False when it does not fit now (or the parent is gone, which the loop notices by itself)."""
    line = json.dumps(event).encode() + b"\n"
    try:
        return os.write(2, line) == len(line)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
