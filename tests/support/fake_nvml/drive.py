"""Runs the real backend and the real loop on the fake's virtual clock, in a child process.

Standard input takes one run per line: `{"scenario": text, "ticks": 300, "uuids": [], "roots": null, "host_pids": true,
"busy_ms": 0}`, where `roots` are the stack's processes, told after the first tick, and `busy_ms` is how long a tick's calls take. Each is answered with the lines that
the sampler would write (the static record, then samples) or with one `{"problem": …}`, and an empty line at the end. A
minute of samples takes a fraction of a second, and every time in them is exact.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Sequence

from servegate_action.errors import ServegateError
from servegate_action.records import Record, TelemetrySample
from servegate_action.telemetry.loop import Orders, run
from servegate_action.telemetry.nvml import NvmlBackend

MS = 1_000_000


class VirtualTime:
    """Jumps from deadline to deadline and takes the fake library along; stops after so many ticks."""

    def __init__(self, ticks: int, roots: Sequence[int] | None) -> None:
        self._set = ctypes.CDLL("libnvidia-ml.so.1").fake_nvml_set_ms
        self._set.argtypes = [ctypes.c_longlong]
        self._set(0)
        self._now_ns = 0
        self._left = ticks
        self._roots = None if roots is None else tuple(roots)

    def now_ns(self) -> int:
        """Virtual, from 0."""
        return self._now_ns

    def spend(self, ms: int) -> None:
        """The driver took its time."""
        self._now_ns += ms * MS

    def wait_until(self, deadline_ns: int) -> Orders:
        """At once."""
        self._left -= 1
        self._now_ns = deadline_ns
        self._set(deadline_ns // MS)
        roots, self._roots = self._roots, None
        return Orders(roots=roots, stop=self._left <= 0)


def play(
    scenario: str, ticks: int, uuids: Sequence[str], roots: Sequence[int] | None, *, host_pids: bool, busy_ms: int
) -> None:
    """One run, from `nvmlInit` to `nvmlShutdown`."""
    with tempfile.NamedTemporaryFile("w", suffix=".scenario") as file:
        file.write(scenario)
        file.flush()
        os.environ["FAKE_NVML_SCENARIO"] = file.name
        time = VirtualTime(ticks, roots)
        backend = NvmlBackend(tuple(uuids), host_pids=host_pids)
    say(backend.static(100 * MS))

    def emit(sample: TelemetrySample) -> None:
        say(sample)
        time.spend(busy_ms)

    run(backend, time, interval_ns=100 * MS, emit=emit)
    backend.close()


def say(record: Record) -> None:
    """One line."""
    print(record.model_dump_json(exclude_none=True))


def main() -> None:
    """Until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            play(**order)
        except ServegateError as error:
            kind = type(error).__name__
            print(
                json.dumps({"problem": {"kind": kind, "what": error.what, "why": error.why, "next": error.next_step}})
            )
        print(flush=True)


if __name__ == "__main__":
    main()
