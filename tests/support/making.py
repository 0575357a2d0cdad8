"""Single records with sensible defaults, for tests that need one fact at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from servegate_action.records import (
    CellPlan,
    CellRun,
    ClientHealth,
    LaunchRecord,
    LaunchState,
    RequestRecord,
    Side,
    StampSource,
    TokenSource,
)

S = 1_000_000_000
MS = 1_000_000


def request(
    token_ns: Sequence[int] = (),
    *,
    name: str = "r",
    cell: str = "chat/1",
    phase: Literal["warmup", "measured"] = "measured",
    scheduled_ns: int = 0,
    sent_ns: int | None = 0,
    end_ns: int | None = None,
    requested: int | None = None,
    output_tokens: int | None = None,
    event_tokens: Sequence[int] | None = None,
    prompt_tokens: int | None = 100,
    cached_tokens: int | None = None,
    ok: bool = True,
    error: str | None = None,
    slot: int | None = 0,
    first_answer_ns: int | None = None,
    source: TokenSource | None = TokenSource.USAGE,
) -> RequestRecord:
    """A request whose N, unless given, is its number of token events (or of their tokens)."""
    counted = sum(event_tokens) if event_tokens is not None else len(token_ns)
    n = output_tokens if output_tokens is not None else counted
    return RequestRecord(
        id=name,
        cell=cell,
        phase=phase,
        scheduled_ns=scheduled_ns,
        sent_ns=sent_ns,
        first_byte_ns=token_ns[0] if token_ns else None,
        token_ns=tuple(token_ns),
        event_tokens=tuple(event_tokens) if event_tokens is not None else None,
        first_answer_ns=first_answer_ns if first_answer_ns is not None else (token_ns[0] if token_ns else None),
        end_ns=end_ns if end_ns is not None else (token_ns[-1] if token_ns else scheduled_ns),
        requested_output_tokens=requested if requested is not None else max(n, 1),
        prompt_tokens=prompt_tokens,
        output_tokens=n if ok else output_tokens,
        token_source=source if ok else None,
        cached_tokens=cached_tokens,
        finish_reason="length" if ok else None,
        events=len(token_ns) + 3,
        coalesced_reads=0,
        slot=slot,
        connection_reused=True,
        ok=ok,
        error=error,
        text_sha256=None,
    )


def failed(
    *, error: str | None = "HTTP 503", requested: int = 4, name: str = "f", cell: str = "chat/1"
) -> RequestRecord:
    """A request that got nothing back."""
    return request((), name=name, cell=cell, ok=False, error=error, requested=requested, end_ns=1)


def client(
    *, lag_ns: int = 0, cpu_ns: int = 0, wall_ns: int = S, drift_ns: int = 0, reads: int = 100, coalesced: int = 0
) -> ClientHealth:
    """The load generator's own health."""
    return ClientHealth(
        processes=1,
        stamp_source=StampSource.KERNEL,
        reads=reads,
        reads_without_kernel_stamp=0,
        coalesced_reads=coalesced,
        cpu_ns=cpu_ns,
        parse_cpu_ns=0,
        wall_ns=wall_ns,
        dispatch_lag_p99_ns=lag_ns,
        clock_offset_drift_ns=drift_ns,
        peak_rss_bytes=1,
    )


def plan(
    cell: str = "chat/1",
    *,
    weight: float = 1.0,
    concurrency: int | None = 1,
    rate: float | None = None,
    requests: int = 1,
    output_tokens: float = 4,
) -> CellPlan:
    """One operating point."""
    return CellPlan(
        id=cell,
        name=cell.split("/", maxsplit=1)[0],
        prompt_tokens=100,
        output_tokens=output_tokens,
        concurrency=concurrency if rate is None else None,
        rate_per_second=rate,
        weight=weight,
        requests=requests,
        warmup_requests=1,
    )


def run(
    cell: str = "chat/1",
    *,
    start: int = 0,
    end: int = 10 * S,
    ended: int | None = None,
    health: ClientHealth | None = None,
) -> CellRun:
    """One cell measured, steady from `start` to `end`."""
    return CellRun(
        cell=cell,
        started_ns=start,
        steady_start_ns=start,
        steady_end_ns=end,
        ended_ns=end if ended is None else ended,
        requests=1,
        client=health or client(),
    )


def launch(
    *cells: CellRun,
    side: Side = Side.BASELINE,
    number: int = 1,
    attempt: int = 1,
    state: LaunchState = LaunchState.COMPLETE,
    reason: str | None = None,
) -> LaunchRecord:
    """One launch without a cold start."""
    return LaunchRecord(
        round=number,
        side=side,
        position=1 if side is Side.BASELINE else 2,
        attempt=attempt,
        directory=f"rounds/{number:02d}-{side.value}-{attempt}",
        state=state,
        reason=reason,
        cold_start=None,
        idle=None,
        cells=cells,
        release=None,
    )
