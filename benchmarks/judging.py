"""How long a large run is judged, and how long a busy day is replayed.

1,000,000 token events in 5,000 requests are judged in a bounded time and memory; a day of 1,000,000 arrivals goes through
the replicas of a stack that scales to zero, for the cost of its idle time.

    python -m benchmarks.judging [--events 1000000] [--requests 5000] [--bound-seconds 5] [--bound-mb 500]

Writes a made-up run in the form of the run directory (one gzip member of JSON lines per cell, telemetry lines,
`recording.json`) to a temporary folder, then reads, judges and lays it out from a fresh process, as `servegate judge`
does, and prints seconds of one core by step, and the peak of resident memory. Exits with 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from servegate_action.analysis.checklist import judge, trace_csv
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.traffic import Lifecycle, profile_arrivals, replay
from servegate_action.config.models import Config
from servegate_action.records import Recording, RequestRecord, TelemetrySample, TelemetryStatic
from servegate_action.report import comment, page, summary

ROUNDS = 4


def main() -> int:
    """Write the run, then judge it in a child process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--bound-seconds", type=float, default=5.0)
    parser.add_argument("--bound-mb", type=float, default=500.0)
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge is not None:
        return _judge(options.judge, options.bound_seconds, options.bound_mb)
    with tempfile.TemporaryDirectory(prefix="servegate-judging-") as folder:
        _write(Path(folder), requests=options.requests, events=options.events)
        bounds = ["--bound-seconds", str(options.bound_seconds), "--bound-mb", str(options.bound_mb)]
        command = [sys.executable, "-m", "benchmarks.judging", "--judge", folder, *bounds]
        judged = subprocess.run(command, check=False).returncode
    replayed = _replay(options.bound_seconds)
    return judged or int(not replayed)


def _write(folder: Path, *, requests: int, events: int) -> None:
    """A run of four rounds and three cells with about that many requests and token events, warm-up apart."""
    from tests.support.recordings import CELLS, Scene, build

    per_cell = requests // (2 * ROUNDS * len(CELLS))
    tokens = events // (per_cell * 2 * ROUNDS * len(CELLS))
    from dataclasses import replace

    cells = tuple(replace(cell, requests=per_cell, output_tokens=tokens) for cell in CELLS)
    built = build(Scene(cells=cells, rounds=ROUNDS, ttft_factor=0.9, tpot_factor=0.9, cost=True))
    (folder / "recording.json").write_text(built.recording.model_dump_json())
    (folder / "config.json").write_text(built.config.model_dump_json())
    for name, data in built.data.items():
        place = folder / name
        place.mkdir(parents=True)
        with gzip.open(place / "requests.jsonl.gz", "wt", compresslevel=6) as file:
            file.writelines(request.model_dump_json() + "\n" for request in data.requests)
        assert isinstance(data.telemetry, TelemetryStatic)
        lines = [data.telemetry.model_dump_json(), *(sample.model_dump_json() for sample in data.samples)]
        (place / "telemetry.jsonl").write_text("\n".join(lines) + "\n")


def _replay(bound_seconds: float) -> bool:
    """A day of a million arrivals with quiet nights, through one replica that sleeps, and through four."""
    profile = [5_000.0] * 8 + [60_000.0] * 16
    arrivals = profile_arrivals(profile, days=1, random=np.random.default_rng(1))
    good = True
    for replicas, service_s in ((1, 0.04), (4, 0.16)):
        life = Lifecycle(service_s, replicas=replicas, idle_timeout_s=2.0, cold_starts_s=(8.0, 9.0))
        start = time.process_time()
        shares = replay(arrivals, life, random=np.random.default_rng(2))
        seconds = time.process_time() - start
        good = good and seconds <= bound_seconds
        print(
            f"{arrivals.seconds.size:,} arrivals, {replicas} replica(s): {seconds:.2f} s (bound {bound_seconds:g}), "
            f"off {shares.off:.1%}, {shares.starts * arrivals.seconds.size:,.0f} starts"
        )
    return good


def _read(folder: Path) -> tuple[Config, Recording, dict[str, LaunchData]]:
    recording = Recording.model_validate_json((folder / "recording.json").read_bytes())
    config = Config.model_validate_json((folder / "config.json").read_bytes())
    data: dict[str, LaunchData] = {}
    for record in recording.launches:
        place = folder / record.directory
        with gzip.open(place / "requests.jsonl.gz", "rb") as file:
            requests = tuple(RequestRecord.model_validate_json(line) for line in file)
        first, *rest = (place / "telemetry.jsonl").read_text().splitlines()
        samples = tuple(TelemetrySample.model_validate_json(line) for line in rest)
        data[record.directory] = LaunchData(requests, TelemetryStatic.model_validate_json(first), samples)
    return config, recording, data


def _judge(folder: Path, bound_seconds: float, bound_mb: float) -> int:
    wall = time.perf_counter()
    times = [time.process_time()]
    config, recording, data = _read(folder)
    times.append(time.process_time())
    judgement = judge(config, recording, data)
    times.append(time.process_time())
    csv = trace_csv(recording, data)
    times.append(time.process_time())
    texts = [judgement.model_dump_json(), comment(judgement), summary(judgement), page(judgement)]
    times.append(time.process_time())
    requests = sum(len(launch.requests) for launch in data.values())
    events = sum(len(request.token_ns) for launch in data.values() for request in launch.requests)
    total = times[-1] - times[0]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    steps = [f"{end - start:.2f} s" for start, end in itertools.pairwise(times)]
    print(f"{events:,} token events in {requests:,} requests, {len(judgement.metrics)} metrics: {judgement.word}")
    print(
        f"read {steps[0]}, judge {steps[1]}, trace {steps[2]} ({len(csv):,} B), report {steps[3]} ({sum(map(len, texts)):,} B)"
    )
    print(
        f"total {total:.2f} s of one core (bound {bound_seconds:g}), {time.perf_counter() - wall:.2f} s by the clock, peak {peak_mb:.0f} MB (bound {bound_mb:g})"
    )
    return 0 if total <= bound_seconds and peak_mb <= bound_mb else 1


if __name__ == "__main__":
    raise SystemExit(main())
