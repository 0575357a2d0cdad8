"""Ten minutes at 10,000 tokens a second: does the client stay flat, does its clock stay put, does a socket leak?

    python -m benchmarks.loadgen_soak --seconds 600

Closed loop at 200 streams, 20 ms between tokens. Every ten seconds the client process's resident memory and open
files are read from /proc; at the end the growth per token, the largest change of the clock offset and the sockets that
are left are printed as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import psutil

from benchmarks.loadgen_truth import Point, answer
from servegate_action.load import CellProgress, LoadLimits, Target, run_cell
from servegate_action.load.dialect import negotiate
from servegate_action.workload import PlannedCell, PlannedRequest
from tests.support.scripted_server import scripted

STREAMS = 200
EVERY_S = 10.0


class Watch:
    """Reads the client processes from outside, now and then."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int, int, int]] = []
        self._next_s = 0.0

    def __call__(self, state: CellProgress) -> None:
        if state.elapsed_s < self._next_s:
            return
        self._next_s = state.elapsed_s + EVERY_S
        rss = files = 0
        for child in psutil.Process().children(recursive=True):
            if "worker import main" in " ".join(child.cmdline()):
                rss += child.memory_info().rss
                files += len(os.listdir(f"/proc/{child.pid}/fd"))
        self.samples.append((state.elapsed_s, state.reads, rss, files))
        print(f"{state.elapsed_s:6.0f} s  {state.reads:9d} reads  {rss / 2**20:6.1f} MiB  {files} files", flush=True)


def main() -> None:
    """Run, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    told = parser.parse_args()
    point = Point(STREAMS, STREAMS)
    count = round(STREAMS * told.seconds / point.ideal_s)
    script = answer(point, chat=False).script()
    with scripted({"default": script}, phases=(64, 20_000_000), cpu=0, keep_bodies=False, keep_truth=False) as server:
        dialect = negotiate(server.url, api="completions", served_model=None, headers={}, timeout_s=60)
        requests = tuple(PlannedRequest(f"r{n}", f"prompt {n}", point.tokens, None) for n in range(count))
        cell = PlannedCell("soak", "soak", STREAMS, None, 1.0, (), requests)
        watch = Watch()
        begun = time.monotonic()
        result = run_cell(Target(server.url, dialect), cell, limits=LoadLimits(processes=1), progress=watch)
        wall_s = time.monotonic() - begun
        server.stop()
    steady = watch.samples[len(watch.samples) // 4 :]
    tokens = steady[-1][1] - steady[0][1]
    client = result.run.client
    found = {
        "seconds": round(wall_s, 1),
        "tokens_per_second": round(count * point.tokens / (client.wall_ns / 1e9)),
        "failed": sum(not request.ok for request in result.requests),
        "client_rss_growth_bytes_per_token": round((steady[-1][2] - steady[0][2]) / tokens, 2),
        "client_rss_mib_first_last": [round(sample[2] / 2**20, 1) for sample in (steady[0], steady[-1])],
        "client_files_first_last": [steady[0][3], steady[-1][3]],
        "clock_offset_drift_ms": client.clock_offset_drift_ns / 1e6,
        "cpu_ms_per_1k_tokens": round(client.cpu_ns / 1e6 / (count * point.tokens / 1000), 2),
        "coalesced_reads": client.coalesced_reads,
        "reads_without_kernel_stamp": client.reads_without_kernel_stamp,
        "server_connections": server.connections,
        "sockets_left_at_server": server.open,
        "files_left_here": len(list(Path("/proc/self/fd").iterdir())),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
