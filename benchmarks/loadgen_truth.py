"""The server that every client is measured against, and what it knows: one schedule, one core, its own stamps.

TTFT 100 ms plus a phase of 0–20 ms that differs from request to request, then 128 tokens 20 ms apart, each an event of
about 215 bytes in a segment of its own. Truth is what the server did, not what it intended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapreplace
from math import ceil

from tests.support.scripted_server import Answer, Part, Scripted, scripted, sse
from tests.support.scripted_server.script import MS, chat_event, completion_event, usage_event

FIRST_NS = 100 * MS
GAP_NS = 20 * MS
TOKENS = 128
PHASES = 64


@dataclass(frozen=True, slots=True)
class Point:
    """One operating point."""

    concurrency: int
    requests: int
    gap_ns: int = GAP_NS
    tokens: int = TOKENS

    @property
    def ideal_s(self) -> float:
        """Wall time of a client that loses none: each request leaves the moment that a stream is free."""
        free_ns = [0] * self.concurrency
        for number in range(self.requests):
            phase_ns = number % PHASES * GAP_NS // PHASES
            heapreplace(free_ns, free_ns[0] + FIRST_NS + phase_ns + self.gap_ns * (self.tokens - 1))
        return max(free_ns) / 1e9

    @property
    def total_tokens(self) -> int:
        """Tokens of all requests."""
        return self.requests * self.tokens


def answer(point: Point, *, chat: bool) -> Answer:
    """The answer that everybody gets."""
    gaps = [FIRST_NS, *[point.gap_ns] * (point.tokens - 1)]
    parts: list[Part] = []
    if chat:
        parts += [Part(gap, sse(chat_event({"content": " token"})), 1) for gap in gaps]
        parts.append(Part(0, sse(chat_event({}, finish="length"))))
    else:
        parts += [Part(gap, sse(completion_event(" token")), 1) for gap in gaps]
        parts.append(Part(0, sse(completion_event("", finish="length"))))
    parts += [Part(0, sse(usage_event(256, point.tokens, 0))), Part(0, sse("[DONE]"))]
    return Answer(tokens=point.tokens, first_ns=FIRST_NS, gap_ns=point.gap_ns, parts=tuple(parts))


@contextmanager
def serving(point: Point, *, chat: bool, cpu: int | None, undisturbed: bool = False) -> Iterator[Scripted]:
    """The server while the block runs."""
    pages = {"/health": (200, "text/plain", "ok"), "/ping": (200, "text/plain", "ok")}
    script = answer(point, chat=chat).script()
    place = {"cpu": cpu, "undisturbed": undisturbed}
    with scripted({"default": script}, phases=(PHASES, GAP_NS), keep_bodies=False, pages=pages, **place) as server:  # type: ignore[arg-type]
        yield server


@dataclass(frozen=True, slots=True)
class Truth:
    """What the server knows, over all whole answers."""

    ttft_p95_ms: float
    tpot_p95_ms: float
    requests: int
    late_p99_ms: float


def rank(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[ceil(share * len(values)) - 1]


def truth_of(server: Scripted, point: Point) -> Truth:
    """Percentiles of the server's own stamps; the first requests that are no part of the measurement are left out."""
    whole = [t for t in server.truth if len(t["sent_ns"]) == point.tokens][-point.requests :]
    ttft = [(t["sent_ns"][0] - t["arrived_ns"]) / 1e6 for t in whole]
    tpot = [(t["sent_ns"][-1] - t["sent_ns"][0]) / (point.tokens - 1) / 1e6 for t in whole]
    late = [
        abs(b - a - point.gap_ns) / 1e6 for t in whole for a, b in zip(t["sent_ns"], t["sent_ns"][1:], strict=False)
    ]
    return Truth(rank(ttft, 0.95), rank(tpot, 0.95), len(whole), rank(late, 0.99))
