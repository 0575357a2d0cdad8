"""Load generators side by side: how wrong are their numbers, and what do they cost, on one server with a known truth?

    python -m benchmarks.loadgen --peers /opt/peers --points 1,32,128,256,512 --repeats 2 --out loadgen.json
    python -m benchmarks.loadgen --list                 what is installed, and how to install the rest

Server on core 0, client alone on core 1, one after the other in turn, so that a slow minute of the machine hits all alike.
Truth is the server's own stamp just before each send. CPU is that of the whole process tree: over the whole command,
and while the load ran. Needs Linux, `taskset`, and a machine that has nothing else to do. On one that has, `--precedence`
runs server and clients before other programs (`chrt --rr`): not for comparing peers, because Linux takes 5 % of every second
from a real-time program that never waits, which is what a client is that has fallen behind.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.loadgen_clients import CLIENTS, ROOT, TOKENIZER, Client, Reported, version_of
from benchmarks.loadgen_truth import Point, Truth, rank, serving, truth_of

SAMPLE_S = 0.1
LIMIT_S = 240.0
TRACKED_PROBES = 40


@dataclass(frozen=True, slots=True)
class Run:
    """One client at one point, once."""

    client: str
    concurrency: int
    tokens_per_second: float
    completed: int | None
    ttft_error_ms: float | None
    tpot_error_ms: float | None
    stamp_lag_p99_ms: float | None
    cpu_ms_per_1k_whole: float
    cpu_ms_per_1k_in_load: float
    rss_mib: float
    wall_s: float
    wall_over_ideal_s: float | None
    parsing_s: float | None = None
    cpu_ms_per_1k_parsing: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process tree used: samples of (monotonic s, CPU s, RSS bytes)."""

    samples: tuple[tuple[float, float, int], ...]
    cpu_s: float
    wall_s: float
    code: int

    def cpu_between(self, start_s: float, end_s: float) -> float:
        """CPU seconds between two moments, by the samples that lie between them: what came just before is no load."""
        inside = [sample for sample in self.samples if start_s <= sample[0] <= end_s]
        if len(inside) < 2:
            return 0.0
        (first_s, first_cpu_s, _), (last_s, last_cpu_s, _) = inside[0], inside[-1]
        return (last_cpu_s - first_cpu_s) * (end_s - start_s) / (last_s - first_s)


def watch(command: Sequence[str], *, env: Mapping[str, str], log: Path) -> Usage:
    """Run a command to its end and look at its process tree meanwhile."""
    begun, before_s = time.monotonic(), children_cpu_s()
    samples: list[tuple[float, float, int]] = []
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=dict(env)) as process:
        ended = threading.Event()

        def look() -> None:
            tree = psutil.Process(process.pid)
            while not ended.is_set():
                cpu_s, rss = tree_usage(tree)
                samples.append((time.monotonic(), max(cpu_s, samples[-1][1] if samples else 0.0), rss))
                if time.monotonic() - begun > LIMIT_S:
                    for each in family(tree):
                        each.kill()
                ended.wait(SAMPLE_S)

        watcher = threading.Thread(target=look)
        watcher.start()
        code = process.wait()  # without a time limit, which would be looked at every 50 ms only
        wall_s = time.monotonic() - begun
        ended.set()
        watcher.join()
    last = samples[-1] if samples else (begun, 0.0, 0)
    return Usage(tuple(samples), max(last[1], children_cpu_s() - before_s), wall_s, code)


def children_cpu_s() -> float:
    """CPU seconds of all children that have ended and been waited for, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree_usage(root: psutil.Process) -> tuple[float, int]:
    """CPU seconds (reaped children included) and resident bytes of a process and its descendants."""
    cpu_s, rss = 0.0, 0
    for process in family(root):
        try:
            times = process.cpu_times()
            cpu_s += times.user + times.system + times.children_user + times.children_system
            rss += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return cpu_s, rss


def family(root: psutil.Process) -> Iterator[psutil.Process]:
    """The process and all that descend from it."""
    try:
        yield root
        yield from root.children(recursive=True)
    except psutil.NoSuchProcess:
        return


def measure(client: Client, point: Point, *, peers: Path, prefix: Sequence[str], keep: Path) -> Run:
    """One run."""
    out = Path(tempfile.mkdtemp(prefix="loadgen-", dir=keep))
    env = os.environ | {"HF_HOME": str(peers / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    with serving(point, chat=client.chat, cpu=0, undisturbed=bool(prefix)) as server:
        command = ["taskset", "-c", "1", *prefix, *client.command(peers, server.url, point, out)]
        usage = watch(command, env=env, log=out / "log.txt")
        server.stop()
    if len(server.truth) < point.requests:
        return failed(client, point, usage, f"{len(server.truth)} of {point.requests} requests came; exit {usage.code}")
    truth = truth_of(server, point)
    try:
        reported = client.read(out)
    except (OSError, ValueError, KeyError) as error:
        return failed(client, point, usage, f"no result to read: {error}; exit {usage.code}")
    sends = [stamp for told in server.truth for stamp in told["sent_ns"]]
    load = (min(told["arrived_ns"] for told in server.truth) / 1e9, max(sends) / 1e9)
    return judged(client, point, usage, (truth, reported, load, lag_p99(out, server.truth, point)))


def judged(
    client: Client, point: Point, usage: Usage, seen: tuple[Truth, Reported, tuple[float, float], float | None]
) -> Run:
    """What was reported beside what is true."""
    truth, reported, load, lag_ms = seen
    thousands = point.total_tokens / 1000
    seconds = load[1] - load[0]
    return Run(
        client=client.name,
        concurrency=point.concurrency,
        tokens_per_second=round(point.total_tokens / seconds),
        completed=reported.completed,
        ttft_error_ms=difference(reported.ttft_p95_ms, truth.ttft_p95_ms),
        tpot_error_ms=difference(reported.tpot_p95_ms, truth.tpot_p95_ms),
        stamp_lag_p99_ms=lag_ms,
        cpu_ms_per_1k_whole=usage.cpu_s * 1000 / thousands,
        cpu_ms_per_1k_in_load=usage.cpu_between(*load) * 1000 / thousands,
        rss_mib=max(sample[2] for sample in usage.samples) / 2**20,
        wall_s=usage.wall_s,
        wall_over_ideal_s=usage.wall_s - point.ideal_s,
        parsing_s=reported.parsing_s,
        cpu_ms_per_1k_parsing=None if reported.parsing_cpu_s is None else reported.parsing_cpu_s * 1000 / thousands,
    )


def difference(one: float | None, other: float) -> float | None:
    """one − other, or nothing."""
    return None if one is None else one - other


def failed(client: Client, point: Point, usage: Usage, note: str) -> Run:
    """A run that gave nothing to compare."""
    return Run(
        *(client.name, point.concurrency, 0.0, None, None, None, None),
        *(usage.cpu_s * 1000 / (point.total_tokens / 1000), 0.0, 0.0, usage.wall_s, None, None, None, note),
    )


def lag_p99(out: Path, truth: Sequence[Mapping[str, object]], point: Point) -> float | None:
    """Ours only: |client's stamp − server's stamp| of every token, p99, ms. Requests are joined by the number in their prompt."""
    path = out / "requests.jsonl"
    if not path.exists():
        return None
    ours = {str(number): json.loads(line)["token_ns"] for number, line in enumerate(path.open())}
    theirs = {one["label"]: list(one["sent_ns"]) for one in truth}  # type: ignore[call-overload]
    lags = [
        abs(seen - sent) / 1e6
        for number, tokens in ours.items()
        if len(tokens) == len(theirs.get(number, ())) == point.tokens
        for seen, sent in zip(tokens, theirs[number], strict=True)
    ]
    return rank(lags, 0.99) if lags else None


# ---------------------------------------------------------------- table


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Markdown: medians over the repeats, and ratios to ours."""
    yield "| client | c | CPU ms/1k in load | parsing after it | whole command | p95 TTFT error ms | p95 TPOT error ms | RSS MiB | wall − ideal s | of it parsing |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for concurrency in sorted({run.concurrency for run in runs}):
        for name in dict.fromkeys(run.client for run in runs):
            some = [run for run in runs if (run.client, run.concurrency) == (name, concurrency)]
            good = [run for run in some if not run.note]
            if not good:
                yield f"| {name} | {concurrency} | " + (some[0].note if some else "not run") + " | | | | | | | |"
                continue
            cells = [
                middle([run.cpu_ms_per_1k_in_load for run in good], 1),
                middle([run.cpu_ms_per_1k_parsing for run in good], 1),
                middle([run.cpu_ms_per_1k_whole for run in good], 1),
                middle([run.ttft_error_ms for run in good], 3),
                middle([run.tpot_error_ms for run in good], 4),
                middle([run.rss_mib for run in good], 0),
                middle([run.wall_over_ideal_s for run in good], 2),
                middle([run.parsing_s for run in good], 2),
            ]
            yield f"| {name} | {concurrency} | " + " | ".join(cells) + " |"


def ratios(runs: Sequence[Run]) -> Iterator[str]:
    """Markdown: how many times ours each client's medians are."""
    yield "| client | c | CPU in load | with our parsing | CPU of the whole command | p95 TTFT error | RSS |"
    yield "|---|---|---|---|---|---|---|"
    ours = CLIENTS[0].name
    for concurrency in sorted({run.concurrency for run in runs}):
        for name in dict.fromkeys(run.client for run in runs if run.client != ours):
            pair = [
                [run for run in runs if (run.client, run.concurrency, run.note) == (one, concurrency, "")]
                for one in (ours, name)
            ]
            if all(pair):
                cells = [times(pair, of) for of in RATIOS]
                yield f"| {name} | {concurrency} | " + " | ".join(cells) + " |"


RATIOS: tuple[Callable[[Run], float | None], ...] = (
    lambda run: run.cpu_ms_per_1k_in_load,
    lambda run: run.cpu_ms_per_1k_in_load + (run.cpu_ms_per_1k_parsing or 0.0),
    lambda run: run.cpu_ms_per_1k_whole,
    lambda run: None if run.ttft_error_ms is None else abs(run.ttft_error_ms),
    lambda run: run.rss_mib,
)


def times(pair: Sequence[Sequence[Run]], of: Callable[[Run], float | None]) -> str:
    """The ratio of two medians, with two digits."""
    mine, theirs = ([value for run in some if (value := of(run)) is not None] for some in pair)
    return f"{median(theirs) / median(mine):.2g}×" if mine and theirs and median(mine) else "–"


def middle(values: Sequence[float | None], digits: int) -> str:
    """Median, or a dash."""
    known = [value for value in values if value is not None]
    return f"{median(known):.{digits}f}" if known else "–"


def prefix_of() -> list[str]:
    """How to run before other programs, as far as this user may."""
    tried = subprocess.run(["chrt", "--rr", "15", "true"], check=False, capture_output=True)
    return ["chrt", "--rr", "15"] if tried.returncode == 0 else []


def connections_tracked() -> bool:
    """Whether the kernel follows each connection, as it does for a packet filter or for the networks of containers.

    That costs every packet, and so a client that acknowledges each token more than one that has fallen behind.
    """
    count = Path("/proc/sys/net/netfilter/nf_conntrack_count")
    if not count.exists():
        return False
    before = int(count.read_text())
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(TRACKED_PROBES):
            opened.enter_context(socket.create_connection(listener.getsockname()))
        return int(count.read_text()) - before >= TRACKED_PROBES // 2


@contextmanager
def neighbour(*, busy: bool) -> Iterator[None]:
    """A program that wants the client's core all the time, at ordinary priority."""
    if not busy:
        yield
        return
    with subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            yield
        finally:
            spinning.kill()


def make_tokenizer(peers: Path) -> None:
    """The tokenizer as an entry of the hub's cache, made by whichever peer has the library."""
    folder = peers / "hf/hub" / ("models--" + TOKENIZER.replace("/", "--"))
    if not folder.exists():
        raise SystemExit(f"no tokenizer at {folder}: see docs/measurement.md, 'Compare it yourself'")


def main() -> None:
    """Run everything in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path("/opt/peers"))
    parser.add_argument("--points", default="128,256,512")
    parser.add_argument("--waves", type=int, default=2, help="requests per stream")
    parser.add_argument("--gap-ms", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument(
        "--precedence", action="store_true", help="server and clients at real-time priority (see above)"
    )
    parser.add_argument("--busy", action="store_true", help="a neighbour spins on the client's core")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", action="store_true")
    told = parser.parse_args()
    chosen = [c for c in CLIENTS if c.installed(told.peers) and (not told.only or c.name in told.only.split(","))]
    if told.list:
        for client in CLIENTS:
            here = f"installed ({version_of(client, told.peers)})" if client.installed(told.peers) else "not installed"
            print(f"{client.name}: {here}; {client.install}")
        return
    if any(client.program for client in chosen):
        make_tokenizer(told.peers)
    prefix = prefix_of() if told.precedence else []
    print(f"connection tracking: {'on' if connections_tracked() else 'off'}", flush=True)
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="loadgen-") as keep, neighbour(busy=told.busy):
        for _ in range(told.repeats):
            for concurrency in map(int, told.points.split(",")):
                point = Point(concurrency, concurrency * told.waves, gap_ns=round(told.gap_ms * 1e6))
                for client in chosen:
                    runs.append(measure(client, point, peers=told.peers, prefix=prefix, keep=Path(keep)))
                    print(json.dumps(asdict(runs[-1])), flush=True)
                    if told.out:
                        told.out.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    print("\n".join(table(runs)))
    print("\n".join(ratios(runs)))


if __name__ == "__main__":
    main()
