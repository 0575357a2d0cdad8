"""A cell's requests as the few numbers that `servegate load` shows: counts, rates and percentiles.

The definitions are those of docs/measurement.md; a test holds them equal to the ones that verdicts are computed from.
Percentiles are nearest rank over all measured requests, a failed one counting as infinite: a percentile that falls on a
failed request does not exist and says so. It refuses to compare two stacks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, inf
from operator import sub

from servegate_action.records import Absent, RequestRecord

Value = float | Absent


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `values` by column name; rates and counts have the single column `value`."""

    name: str
    unit: str
    values: dict[str, Value]


def ttft_ns(request: RequestRecord, *, open_loop: bool) -> Value:
    """First token event − sent (open loop: − scheduled). Absent when failed or when all came at one moment."""
    begin = request.scheduled_ns if open_loop else request.sent_ns
    if not request.ok or begin is None or not request.token_ns:
        return Absent(absent=request.error or "never sent")
    if (request.output_tokens or 0) > 1 and request.token_ns[0] == request.token_ns[-1]:
        return Absent(absent="the whole answer came in a single event")
    return float(request.token_ns[0] - begin)


def first_tokens(request: RequestRecord) -> int:
    """f: tokens of the first event, by the server's word, else by its share of the text, else one."""
    told = request.event_tokens
    return told[0] if told is not None and sum(told) > 0 else request.first_event_tokens or 1


def tpot_ns(request: RequestRecord) -> Value:
    """(last − first token event) / (N − f), f = tokens of the first event. Never 0."""
    if not request.ok or request.output_tokens is None:
        return Absent(absent=request.error or "the number of tokens is not known")
    decoded = request.output_tokens - first_tokens(request)
    if decoded < 1 or request.token_ns[0] == request.token_ns[-1]:
        return Absent(absent="no token after the first event")
    return (request.token_ns[-1] - request.token_ns[0]) / decoded


def gaps_ns(request: RequestRecord) -> Iterator[int]:
    """Time between neighbouring token events."""
    stamps = request.token_ns
    return map(sub, stamps[1:], stamps)


def ordered(values: Iterable[Value]) -> list[float]:
    """Ascending, absent values last: a failed request is infinitely slow."""
    return sorted(inf if isinstance(value, Absent) else value for value in values)


def ranked(values: Sequence[float], share: float) -> Value:
    """x[⌈share · n⌉] of ascending values."""
    if not values:
        return Absent(absent="no requests")
    found = values[max(1, ceil(share * len(values))) - 1]
    return Absent(absent="falls on a failed request") if found == inf else found


def tokens_in(requests: Iterable[RequestRecord], start_ns: int, end_ns: int) -> float:
    """Output tokens of the answered requests' events inside [start, end). Stamps of a request never go back."""
    total = 0.0
    for request in requests:
        if request.ok:
            first, last = (bisect_left(request.token_ns, moment) for moment in (start_ns, end_ns))
            total += sum(event_weights(request)[first:last])
    return total


def event_weights(request: RequestRecord) -> Sequence[float]:
    """Tokens of each event: the server's own count scaled to N; else f in the first, N − f evenly over the others."""
    events = len(request.token_ns)
    total = float(request.output_tokens or events)
    if request.event_tokens is not None and sum(request.event_tokens) > 0:
        scale = total / sum(request.event_tokens)
        return [tokens * scale for tokens in request.event_tokens]
    if events < 2:
        return [total] * events
    first = first_tokens(request)
    return [float(first), *[(total - first) / (events - 1)] * (events - 1)]


def summarize(requests: Sequence[RequestRecord], *, window: tuple[int, int], open_loop: bool) -> tuple[Row, ...]:
    """The table: what was attempted, how fast it went, and how long things took (ms)."""
    measured = [request for request in requests if request.phase == "measured"]
    failed = sum(not request.ok for request in measured)
    rows = [
        Row("requests", "", {"value": float(len(measured))}),
        Row("failed", "", {"value": float(failed)}),
        _rate("output tokens per second", "tok/s", requests, window),
        _spread("TTFT", ordered(ttft_ns(request, open_loop=open_loop) for request in measured)),
        _spread("TPOT", ordered(map(tpot_ns, measured))),
        _spread("request latency", ordered(_latency(request, open_loop=open_loop) for request in measured)),
        _spread("gap between events", sorted(chain.from_iterable(map(gaps_ns, measured)))),
    ]
    return tuple(rows)


def _latency(request: RequestRecord, *, open_loop: bool) -> Value:
    begin = request.scheduled_ns if open_loop else request.sent_ns
    if not request.ok or begin is None or not request.token_ns:
        return Absent(absent=request.error or "never sent")
    return float(request.token_ns[-1] - begin)


def _rate(name: str, unit: str, requests: Sequence[RequestRecord], window: tuple[int, int]) -> Row:
    start_ns, end_ns = window
    if end_ns <= start_ns:
        return Row(name, unit, {"value": Absent(absent="too few requests for a steady window: raise --requests")})
    return Row(name, unit, {"value": tokens_in(requests, start_ns, end_ns) / ((end_ns - start_ns) / 1e9)})


def _spread(name: str, values: Sequence[float]) -> Row:
    columns = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return Row(name, "ms", {column: _in_ms(ranked(values, share)) for column, share in columns.items()})


def _in_ms(value: Value) -> Value:
    return value if isinstance(value, Absent) else value / 1e6
