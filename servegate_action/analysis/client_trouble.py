"""What the load generator did badly while it measured one cell, from its own health and the requests that it sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from servegate_action.records import CellRun, RequestRecord

NS_PER_MS = 1e6
OPEN_LOOP_LAG_NS = 10 * NS_PER_MS
LAG_SHARE = 0.05
MOST_THINNING = 0.02
CPU_SHARE = 0.9
CLOCK_DRIFT_NS = 1 * NS_PER_MS


def client_trouble(run: CellRun, measured: Sequence[RequestRecord]) -> tuple[str, ...]:
    """One sentence for each thing; none when the client kept up."""
    client = run.client
    trouble = [f"{run.cell}: {text}" for text in _late(run, measured)]
    if client.cpu_ns > CPU_SHARE * client.wall_ns * client.processes:
        share = client.cpu_ns / (client.wall_ns * client.processes) if client.wall_ns else 1.0
        trouble.append(f"{run.cell}: the client used {share:.0%} of its cores")
    if client.clock_offset_drift_ns > CLOCK_DRIFT_NS:
        trouble.append(f"{run.cell}: the clock was stepped by {client.clock_offset_drift_ns / NS_PER_MS:.2f} ms")
    return tuple(trouble)


def _late(run: CellRun, measured: Sequence[RequestRecord]) -> Iterator[str]:
    """Requests sent late. Open loop: lag counts as latency, so its p99 is held to 10 ms and to 5 % of the median TTFT.

    Closed loop (requests have a slot): latency counts from the real send, so that lag only thins the load, by its mean
    over the mean time from hand-over to end; that is held to 2 %, the smallest default limit of a throughput.
    """
    answered = [request for request in measured if request.ok and request.token_ns]
    if not answered:
        return  # failures say enough, and there is no latency that lateness could have spoiled
    if all(request.slot is not None for request in answered):
        share = thinning(answered)
        if share > MOST_THINNING:
            yield f"requests were sent late: slots were empty for {share:.1%} of the time, allowed {MOST_THINNING:.0%}"
        return
    most = min(OPEN_LOOP_LAG_NS, _lag_by_latency(answered))
    lag = run.client.dispatch_lag_p99_ns
    if lag > most:
        yield f"requests were sent late, dispatch lag p99 {lag / NS_PER_MS:.2f} ms, allowed {most / NS_PER_MS:.2f} ms"


def _lag_by_latency(answered: Sequence[RequestRecord]) -> float:
    return LAG_SHARE * median(request.token_ns[0] - request.scheduled_ns for request in answered)


def thinning(answered: Sequence[RequestRecord]) -> float:
    """Share of a slot's time that passes between its hand-over and the next send: Σ(sent − scheduled) / Σ(end − scheduled)."""
    empty = sum((request.sent_ns or request.scheduled_ns) - request.scheduled_ns for request in answered)
    whole = sum(request.end_ns - request.scheduled_ns for request in answered)
    return empty / whole if whole else 0.0
