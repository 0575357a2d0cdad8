"""What one launch's requests say, cell by cell: rates by token event, latencies by request.

Every definition is the one of docs/metrics.md. Rates count tokens by the moment at which they arrived, inside the steady
window; latencies count every attempted request of the measured phase, a failed one as +inf. The work per token is done
in numpy; Python touches requests, never tokens. What is undefined is `Absent` with the reason. This module refuses to
combine cells, to compare stacks and to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from servegate_action.analysis.quantiles import BoolArray, FloatArray, IntArray, nearest_rank
from servegate_action.config.limits import Slo
from servegate_action.records import Absent, CellPlan, CellRun, RequestRecord, TokenSource

NS_PER_S = 1e9
NS_PER_MS = 1e6
P95 = 0.95
# More answered requests than this without a latency of their own, and the cell has no p95: the tail could hide in them.
UNMEASURED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Latencies:
    """One latency of every attempted request that can have one, in ns; failed requests are +inf.

    `unmeasured` requests were answered, but their latency cannot be told from the stamps (`why_unmeasured`).
    """

    ns: FloatArray
    unmeasured: int
    why_unmeasured: str

    @property
    def known(self) -> FloatArray | Absent:
        """The sample that quantiles are taken of, or why there is none."""
        if self.unmeasured > UNMEASURED_SHARE * (self.ns.size + self.unmeasured):
            total = self.ns.size + self.unmeasured
            return Absent(absent=f"{self.unmeasured} of {total} requests have none of their own: {self.why_unmeasured}")
        return self.ns if self.ns.size else Absent(absent="no request of this cell can have one")

    @property
    def p95_ms(self) -> float | Absent:
        """p95 in ms by nearest rank over all attempted requests; +inf when the rank falls on a failed one."""
        known = self.known
        return known if isinstance(known, Absent) else nearest_rank(known, P95) / NS_PER_MS

    @property
    def p95_ok_ms(self) -> float | Absent:
        """p95 in ms over the requests that succeeded: printed beside the other, never gated."""
        succeeded = self.ns[np.isfinite(self.ns)]
        return nearest_rank(succeeded, P95) / NS_PER_MS if succeeded.size else Absent(absent="no request succeeded")


@dataclass(frozen=True, slots=True)
class CellMeasures:
    """One cell of one launch. Rates in tokens/s; `mean_*_tokens` per measured request.

    `attempted` and `failed` count measured requests, `warmup` and `warmup_failed` those before them; `failures` tells the
    reasons of both.
    """

    plan: CellPlan
    attempted: int
    failed: int
    warmup: int
    warmup_failed: int
    failures: tuple[tuple[str, int], ...]
    ttft: Latencies
    ttft_from_sent: Latencies
    ttfo: Latencies
    tpot: Latencies
    output_tokens_per_second: float | Absent
    input_tokens_per_second: float | Absent
    decode_tokens_per_second: float | Absent
    decode_user_median: float | Absent
    decode_user_p5: float | Absent
    mean_prompt_tokens: float | Absent
    mean_output_tokens: float
    decode_tokens_per_request: float
    goodput: float | Absent
    single_token_events: bool
    resent: int
    token_sources: tuple[TokenSource, ...]
    trace: tuple[float, ...]

    @property
    def failed_share(self) -> float:
        """Failed over attempted requests of the measured phase; 0 attempted is refused by the caller."""
        return self.failed / self.attempted


@dataclass(frozen=True, slots=True)
class _Events:
    """All token events of one cell, flat, with the requests that they belong to.

    `stamp` and `tokens`: shape (events,). `offset`, `count`, `total`, `first_tokens`, `ok`: shape (requests,), only
    requests with at least one event. `total` is N: usage where given, else the number of events.
    """

    stamp: IntArray
    tokens: FloatArray
    offset: IntArray
    count: IntArray
    total: FloatArray
    first_tokens: FloatArray
    ok: BoolArray

    @property
    def first(self) -> IntArray:
        return self.stamp[self.offset]

    @property
    def last(self) -> IntArray:
        index: IntArray = self.offset + self.count - 1
        return self.stamp[index]

    @property
    def of_ok(self) -> BoolArray:
        """Shape (events,): the event belongs to a request that succeeded."""
        return np.repeat(self.ok, self.count)

    @property
    def after_first(self) -> BoolArray:
        """Shape (events,): not the first event of its request."""
        mask = np.ones(self.stamp.size, dtype=np.bool_)
        mask[self.offset] = False
        return mask


def measure_cell(plan: CellPlan, run: CellRun, requests: Sequence[RequestRecord], *, slo: Slo) -> CellMeasures:
    """Everything that one cell of one launch says. At least one of `requests` is measured.

    Warm-up requests belong to them: their tokens count in the steady window.
    """
    measured = [request for request in requests if request.phase == "measured"]
    events = _flatten([request for request in requests if request.token_ns])
    window = (run.steady_start_ns, run.steady_end_ns)
    open_loop = plan.concurrency is None
    ttft = _ttft(measured, from_schedule=open_loop)
    tpot = _tpot(measured)
    pace = tpot.ns[np.isfinite(tpot.ns)] / NS_PER_S
    failures = Counter(request.error or "no reason given" for request in requests if not request.ok)
    failed = sum(not request.ok for request in measured)
    return CellMeasures(
        plan=plan,
        attempted=len(measured),
        failed=failed,
        warmup=len(requests) - len(measured),
        warmup_failed=failures.total() - failed,
        failures=tuple(failures.most_common()),
        ttft=ttft,
        ttft_from_sent=_ttft(measured, from_schedule=False),
        ttfo=_ttfo(measured, from_schedule=open_loop),
        tpot=tpot,
        output_tokens_per_second=_rate(events.stamp[events.of_ok], events.tokens[events.of_ok], window),
        input_tokens_per_second=_input_rate(requests, window),
        decode_tokens_per_second=_server_decode(events, window),
        decode_user_median=nearest_rank(1.0 / pace, 0.5) if pace.size else Absent(absent="no request has a TPOT"),
        decode_user_p5=nearest_rank(1.0 / pace, 0.05) if pace.size else Absent(absent="no request has a TPOT"),
        mean_prompt_tokens=_mean_prompt_tokens(measured),
        mean_output_tokens=float(np.mean([request.requested_output_tokens for request in measured])),
        decode_tokens_per_request=_decode_per_request(measured),
        goodput=_goodput(measured, slo=slo, open_loop=open_loop),
        single_token_events=bool(np.all(events.count[events.ok] == events.total[events.ok])),
        resent=sum(request.resent for request in measured),
        token_sources=tuple(sorted({request.token_source for request in measured if request.token_source is not None})),
        trace=_trace(events, run),
    )


# ---------------------------------------------------------------- tokens on the clock


def _flatten(requests: Sequence[RequestRecord]) -> _Events:
    """Lay the token events of all requests end to end, each with the tokens that it stands for.

    An event's tokens are its own usage scaled so that the request's events add up to N; without per-event usage the
    first event holds f tokens and the others share N − f evenly (all of N in the only event).
    """
    count = np.array([len(request.token_ns) for request in requests], dtype=np.int64)
    total = np.array([request.output_tokens or len(request.token_ns) for request in requests], dtype=np.float64)
    offset = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(count)[:-1]]) if count.size else count
    size = int(count.sum())
    stamp = np.fromiter(chain.from_iterable(request.token_ns for request in requests), dtype=np.int64, count=size)
    first = np.array([_first_tokens(request) for request in requests], dtype=np.float64)
    tokens = np.repeat(np.divide(total - first, count - 1, out=np.zeros(count.size), where=count > 1), count)
    tokens[offset] = np.where(count > 1, first, total)
    for index, request in enumerate(requests):
        if request.event_tokens is not None and sum(request.event_tokens) > 0:
            own = np.array(request.event_tokens, dtype=np.float64)
            tokens[offset[index] : offset[index] + count[index]] = own * (total[index] / own.sum())
    return _Events(
        stamp=stamp,
        tokens=tokens,
        offset=offset,
        count=count,
        total=total,
        first_tokens=first,
        ok=np.array([request.ok for request in requests], dtype=np.bool_),
    )


def _first_tokens(request: RequestRecord) -> int:
    """f: tokens in the first token event, by the server's word, else by its share of the text, else one."""
    told = request.event_tokens
    return told[0] if told is not None and sum(told) > 0 else request.first_event_tokens or 1


def _window_s(window: tuple[int, int]) -> float | Absent:
    start, end = window
    return (end - start) / NS_PER_S if end > start else Absent(absent="the cell never reached a steady state")


def _rate(stamp: IntArray, amount: FloatArray, window: tuple[int, int]) -> float | Absent:
    """Amount per second of what arrived inside [start, end)."""
    seconds = _window_s(window)
    if isinstance(seconds, Absent):
        return seconds
    inside = (stamp >= window[0]) & (stamp < window[1])
    total = float(amount[inside].sum())
    return total / seconds if total > 0 else Absent(absent="no token arrived inside the steady window")


def _input_rate(requests: Sequence[RequestRecord], window: tuple[int, int]) -> float | Absent:
    """Prompt tokens per second: a prompt counts whole, at its first token event, once that answer has succeeded."""
    counted = [request for request in requests if request.ok and request.token_ns]
    if any(request.prompt_tokens is None for request in counted):
        return Absent(absent="the server does not report prompt_tokens")
    stamp = np.array([request.token_ns[0] for request in counted], dtype=np.int64)
    return _rate(stamp, np.array([request.prompt_tokens for request in counted], dtype=np.float64), window)


def _server_decode(events: _Events, window: tuple[int, int]) -> float | Absent:
    """Σ(N − f) of the window over the time in it with at least one decode in flight.

    A decode is in flight from a request's first token event to its last. Only requests that succeeded count.
    """
    decoding = events.ok & (events.count > 1)
    start = np.clip(events.first[decoding], *window)
    end = np.clip(events.last[decoding], *window)
    seconds = _covered_ns(start, end) / NS_PER_S
    if seconds <= 0:
        return Absent(absent="no decode was in flight inside the steady window")
    inside = events.of_ok & events.after_first & (events.stamp >= window[0]) & (events.stamp < window[1])
    total = float(events.tokens[inside].sum())
    return total / seconds if total > 0 else Absent(absent="no token was decoded inside the steady window")


def _covered_ns(start: IntArray, end: IntArray) -> int:
    """Length of the union of the intervals [start, end]."""
    if not start.size:
        return 0
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reach[:-1], 0)
    return int(reach[-1] - start[0] - gaps.sum())


def token_trace(requests: Sequence[RequestRecord], run: CellRun) -> tuple[float, ...]:
    """Output tokens that arrived in each second of one cell, from its start; those of failed requests included."""
    return _trace(_flatten([request for request in requests if request.token_ns]), run)


def _trace(events: _Events, run: CellRun) -> tuple[float, ...]:
    """Output tokens that arrived in each second from the cell's start, those of failed requests included."""
    seconds = max(1, int(np.ceil((run.ended_ns - run.started_ns) / NS_PER_S)))
    place = (events.stamp - run.started_ns) // int(NS_PER_S)
    inside = (place >= 0) & (place < seconds)
    return tuple(np.bincount(place[inside], weights=events.tokens[inside], minlength=seconds).tolist())


# ---------------------------------------------------------------- latencies of requests


def _start_ns(request: RequestRecord, *, from_schedule: bool) -> int | None:
    return request.scheduled_ns if from_schedule else request.sent_ns


def _one_event(request: RequestRecord) -> bool:
    """Several tokens, and all of them at one moment: first and last token cannot be told apart."""
    several = (request.output_tokens or len(request.token_ns)) > 1
    return several and request.token_ns[0] == request.token_ns[-1]


def _ttft(requests: Sequence[RequestRecord], *, from_schedule: bool) -> Latencies:
    """First token event − sent (− scheduled in open loop)."""
    known: list[float] = []
    unmeasured = 0
    for request in requests:
        start = _start_ns(request, from_schedule=from_schedule)
        if not request.ok:
            known.append(np.inf)
        elif start is None or not request.token_ns or _one_event(request):
            unmeasured += 1
        else:
            known.append(float(request.token_ns[0] - start))
    return Latencies(np.array(known, dtype=np.float64), unmeasured, "the whole answer came in a single event")


def _ttfo(requests: Sequence[RequestRecord], *, from_schedule: bool) -> Latencies:
    """First token event that is not reasoning − the same start. Reported, never gated."""
    known: list[float] = []
    unmeasured = 0
    for request in requests:
        start = _start_ns(request, from_schedule=from_schedule)
        if not request.ok:
            known.append(np.inf)
        elif start is None or request.first_answer_ns is None:
            unmeasured += 1
        else:
            known.append(float(request.first_answer_ns - start))
    return Latencies(np.array(known, dtype=np.float64), unmeasured, "no token outside the reasoning channel")


def _tpot(requests: Sequence[RequestRecord]) -> Latencies:
    """(last − first token event) / (N − f) of each request that was asked for two tokens or more."""
    known: list[float] = []
    unmeasured = 0
    for request in requests:
        if request.requested_output_tokens < 2:
            continue
        value = np.inf if not request.ok else _tpot_ns(request)
        if value is None:
            unmeasured += 1
        else:
            known.append(value)
    return Latencies(np.array(known, dtype=np.float64), unmeasured, "all tokens came at one moment")


def _tpot_ns(request: RequestRecord) -> float | None:
    later = (request.output_tokens or len(request.token_ns)) - _first_tokens(request)
    if later < 1 or not request.token_ns or request.token_ns[0] == request.token_ns[-1]:
        return None
    return (request.token_ns[-1] - request.token_ns[0]) / later


def _mean_prompt_tokens(requests: Sequence[RequestRecord]) -> float | Absent:
    known = [request.prompt_tokens for request in requests if request.prompt_tokens is not None]
    return float(np.mean(known)) if known else Absent(absent="the server does not report prompt_tokens")


def _decode_per_request(requests: Sequence[RequestRecord]) -> float:
    """Mean of N − 1 as planned: the decode work of one request of this cell, the same for both stacks."""
    return float(np.mean([request.requested_output_tokens - 1 for request in requests]))


def _goodput(requests: Sequence[RequestRecord], *, slo: Slo, open_loop: bool) -> float | Absent:
    """Share of the attempted requests that meet every declared SLO."""
    if slo.ttft_p95_ms is None and slo.tpot_p95_ms is None:
        return Absent(absent="no slo is declared")
    return sum(_meets(request, slo=slo, open_loop=open_loop) for request in requests) / len(requests)


def _meets(request: RequestRecord, *, slo: Slo, open_loop: bool) -> bool:
    start = _start_ns(request, from_schedule=open_loop)
    if not request.ok or start is None or not request.token_ns:
        return False
    if slo.ttft_p95_ms is not None and request.token_ns[0] - start > slo.ttft_p95_ms * NS_PER_MS:
        return False
    if slo.tpot_p95_ms is None or request.requested_output_tokens < 2:
        return True
    pace = _tpot_ns(request)
    return pace is not None and pace <= slo.tpot_p95_ms * NS_PER_MS
