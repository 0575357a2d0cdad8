"""The line item: both bills side by side, where they meet, what moving costs, and the curve over traffic.

Searches over many rates use the closed form where it holds and the replay elsewhere. The sentences say what the numbers
teach: that sleeping can be dearer than staying warm, use more energy, or save money only by making people wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from servegate_action.analysis.books import Books, Running
from servegate_action.analysis.cost import NOT_SATURATED, BreakEven, Use, break_even, no_break_even, payback_tokens
from servegate_action.analysis.judgement import CostComparison, CurvePoint, SideCost
from servegate_action.analysis.traffic import poisson_form
from servegate_action.records import Absent, Side

CURVE_POINTS = 25
# The curve and the search for a break-even reach this far below and above the declared traffic, within capacity.
REACH = 100.0
# Fewer launches than this never bound a p95: 1 − 0.95⁵⁸ < 0.95 ≤ 1 − 0.95⁵⁹.
LEAST_FOR_P95 = 59
Pair = tuple[float, float]


def compare_costs(books: Books, baseline: Running, candidate: Running) -> CostComparison | Absent:
    """Row 6 in full."""
    sides: list[tuple[Running, Use, SideCost]] = []
    for running in (baseline, candidate):
        use = running.use(books)
        cost = running.bill(books, replace(use, poisson_check=_poisson_check(books, running, use)))
        if isinstance(cost, Absent):
            return Absent(absent=f"{running.side}: {cost.absent}")
        sides.append((running, use, cost))
    (_, baseline_use, ours), (_, _, theirs) = sides
    declared = books.demand.per_hour if books.demand is not None else baseline.operation.capacity_per_hour
    curve = _curve(books, baseline, candidate)
    meeting = (
        no_break_even(curve.absent)
        if isinstance(curve, Absent)
        else _meeting(books, baseline, candidate, curve, declared=declared)
    )
    moving = next((item.usd_per_1m_output for item in theirs.items if item.name == "migration"), 0.0)
    return CostComparison(
        baseline=ours,
        candidate=theirs,
        requests_per_hour=declared,
        traffic=books.demand.text if books.demand is not None else f"none declared: priced as if {baseline_use.policy}",
        break_even_requests_per_hour=meeting.requests_per_hour,
        break_even_sentence=meeting.sentence,
        fragile=meeting.fragile,
        payback_tokens=payback_tokens(
            migration_usd=books.migration_usd,
            baseline_per_1m=ours.per_1m_output,
            candidate_per_1m=theirs.per_1m_output - moving,
        ),
        migration_usd=books.migration_usd,
        curve=() if isinstance(curve, Absent) else curve,
        notes=_notes(books, sides),
    )


def _poisson_check(books: Books, running: Running, use: Use) -> str:
    """What the closed form says at the same mean rate, beside the replay; empty where it says nothing new."""
    life = running.life(books)
    if books.demand is None or life.idle_timeout_s is None or life.replicas > 1:
        return ""
    form = poisson_form(use.rate, life)
    cost = running.bill(books, replace(use, occupancy=form))
    priced = f"{cost.per_1m_output:.4g} USD per 1M output tokens, " if isinstance(cost, SideCost) else ""
    return (
        f"closed form for Poisson arrivals at this mean rate: {priced}"
        f"off {form.off:.1%}, {form.delays.share:.1%} of the requests wait"
    )


def _range(books: Books, baseline: Running, candidate: Running) -> tuple[float, float] | None:
    """Requests per hour over which both sides are drawn: around the declared traffic, below what both can serve."""
    if books.demand is None:
        return None
    capacity = books.replicas * min(one.operation.capacity_per_hour for one in (baseline, candidate))
    declared = books.demand.per_hour
    return declared / REACH, max(declared, min(declared * REACH, 0.98 * capacity, books.demand.most_per_hour))


def _costs(books: Books, baseline: Running, candidate: Running, rates: Sequence[float]) -> list[Pair] | Absent:
    """USD per 1M output tokens of both sides at each rate; absent as soon as one cannot be told."""
    pairs: list[Pair] = []
    for rate in rates:
        costs: list[float] = []
        for one in (baseline, candidate):
            cost = one.bill(books, one.use(books, per_hour=rate, quick=True))
            if isinstance(cost, Absent):
                return cost
            costs.append(cost.per_1m_output)
        pairs.append((costs[0], costs[1]))
    return pairs


def _curve(books: Books, baseline: Running, candidate: Running) -> tuple[CurvePoint, ...] | Absent:
    """Both costs over the traffic, at rates on a log scale."""
    ends = _range(books, baseline, candidate)
    if ends is None:
        return Absent(absent="without declared traffic there is no break-even")
    if not (baseline.operation.saturated and candidate.operation.saturated):
        return NOT_SATURATED
    rates = np.geomspace(*ends, CURVE_POINTS).tolist()
    pairs = _costs(books, baseline, candidate, rates)
    if isinstance(pairs, Absent):
        return pairs
    return tuple(
        CurvePoint(requests_per_hour=rate, baseline_per_1m_output=ours, candidate_per_1m_output=theirs)
        for rate, (ours, theirs) in zip(rates, pairs, strict=True)
    )


def _meeting(
    books: Books, baseline: Running, candidate: Running, curve: Sequence[CurvePoint], *, declared: float
) -> BreakEven:
    """Where the two line items meet."""
    scanned = [
        (one.requests_per_hour, math.log(one.baseline_per_1m_output / one.candidate_per_1m_output)) for one in curve
    ]

    # Every state has its share of time at the lowest rate of the curve: what is priced there is priced everywhere.
    def gap(per_hour: float) -> float:
        pairs = _costs(books, baseline, candidate, (per_hour,))
        return 0.0 if isinstance(pairs, Absent) else math.log(pairs[0][0] / pairs[0][1])

    return break_even(gap, scanned, declared=declared)


def _notes(books: Books, sides: Sequence[tuple[Running, Use, SideCost]]) -> tuple[str, ...]:
    """What the numbers teach, in sentences."""
    notes = [
        text
        for running, use, cost in sides
        if running.side in books.sleeping
        for text in _sleeping_notes(books, running, use, cost)
    ]
    if books.demand is not None and not all(running.operation.saturated for running, _, _ in sides):
        notes.append(f"whether the declared traffic can be served was not checked: {NOT_SATURATED.absent}")
    if books.migration_usd > 0 and books.demand is None:
        notes.append(
            f"moving costs {books.migration_usd:,.0f} USD once; without declared traffic it is in no price per token"
        )
    return tuple(notes)


def _sleeping_notes(books: Books, running: Running, use: Use, asleep: SideCost) -> list[str]:
    """How many wait, how long a start takes, and whether sleeping saves anything against staying warm."""
    starts = running.cold_starts_s
    notes = [
        f"{running.side}: {use.occupancy.delays.share:.1%} of the requests wait for a cold start "
        f"({use.occupancy.starts:.1%} trigger one); it took {max(starts):.1f} s at most in {len(starts)} launches"
        + ("" if len(starts) >= LEAST_FOR_P95 else f", too few to bound its p95 ({LEAST_FOR_P95} would)")
    ]
    if use.kept_warm_because:
        notes.append(f"{running.side}: {use.kept_warm_because}; its idle time is priced as if it kept warm")
    warm_form = poisson_form(use.rate / use.replicas, replace(running.life(books), idle_timeout_s=None))
    warm = running.bill(books, replace(use, occupancy=warm_form, kept_warm_because=""))
    return notes + _against_warm(running.side, asleep, warm)


def _against_warm(side: Side, asleep: SideCost, warm: SideCost | Absent) -> list[str]:
    notes: list[str] = []
    if isinstance(warm, SideCost) and asleep.per_1m_output > warm.per_1m_output:
        notes.append(
            f"{side}: scaling to zero is dearer than staying warm at this traffic "
            f"({asleep.per_1m_output:.4g} against {warm.per_1m_output:.4g} USD per 1M output tokens)"
        )
    energy = asleep.kwh_per_month_board
    kept = warm.kwh_per_month_board if isinstance(warm, SideCost) else warm
    if not isinstance(energy, Absent) and not isinstance(kept, Absent) and energy > kept:
        notes.append(
            f"{side}: scaling to zero uses more energy than staying warm ({energy:.1f} against {kept:.1f} kWh a month)"
        )
    return notes
