"""What the load generator did badly while it measured one cell, from its own health and the requests that it sent."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from servegate_action.records import CellRun, RequestRecord

NS_PER_MS = 1e6
OPEN_LOOP_LAG_NS = 10 * NS_PER_MS
LAG_SHARE = 0.05
CPU_SHARE = 0.9
CLOCK_DRIFT_NS = 1 * NS_PER_MS


def client_trouble(run: CellRun, measured: Sequence[RequestRecord]) -> tuple[str, ...]:
    """One sentence for each thing; none when the client kept up."""
    client = run.client
    most = most_lag_ns(measured)
    trouble: list[str] = []
    if client.dispatch_lag_p99_ns > most:
        trouble.append(
            f"{run.cell}: requests were sent late, dispatch lag p99 {client.dispatch_lag_p99_ns / NS_PER_MS:.2f} ms, "
            f"allowed {most / NS_PER_MS:.2f} ms"
        )
    if client.cpu_ns > CPU_SHARE * client.wall_ns * client.processes:
        share = client.cpu_ns / (client.wall_ns * client.processes) if client.wall_ns else 1.0
        trouble.append(f"{run.cell}: the client used {share:.0%} of its cores")
    if client.clock_offset_drift_ns > CLOCK_DRIFT_NS:
        trouble.append(f"{run.cell}: the clock was stepped by {client.clock_offset_drift_ns / NS_PER_MS:.2f} ms")
    return tuple(trouble)


def most_lag_ns(measured: Sequence[RequestRecord]) -> float:
    """The dispatch lag (p99) that is still harmless.

    Open loop: lag counts as latency, so it is held to 10 ms and to 5 % of the median TTFT. Closed loop (requests have a
    slot): latency counts from the real send, so that lag only thins the load; it is held to 5 % of the median duration.
    """
    answered = [request for request in measured if request.ok and request.token_ns]
    if not answered:
        return OPEN_LOOP_LAG_NS
    if all(request.slot is not None for request in answered):
        return LAG_SHARE * median(request.end_ns - (request.sent_ns or request.scheduled_ns) for request in answered)
    return min(OPEN_LOOP_LAG_NS, LAG_SHARE * median(request.token_ns[0] - request.scheduled_ns for request in answered))
