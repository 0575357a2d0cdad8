"""The money of a run: each round's cost, the line item of both sides, break-even, payback and the curve over traffic.

A round's cost and its p95 TTFT with cold starts use nothing but that round's launches, so that rounds stay independent;
the line item shows the means over all rounds. Both stacks meet the same arrivals. What the configuration does not
declare, or the machine does not tell, makes the money `Absent`: no price is ever assumed. Formulas: docs/cost.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servegate_action.analysis.books import Books, Running, open_books, running_side
from servegate_action.analysis.cells import NS_PER_S, P95
from servegate_action.analysis.judgement import CostComparison
from servegate_action.analysis.line_item import compare_costs
from servegate_action.analysis.metrics import MaybeFloat
from servegate_action.analysis.rounds import Evidence, Launch
from servegate_action.analysis.traffic import SECONDS_PER_HOUR, quantile_with_delays
from servegate_action.config.models import Config
from servegate_action.records import Absent, Recording, Side

Pair = tuple[float, float]
MS_PER_S = 1e3


@dataclass(frozen=True, slots=True)
class Economy:
    """What the money says. Pairs are (baseline, candidate) per round; `cold_ttft` (ms) is None when neither side sleeps.

    `duty`: share of the replicas' time that the declared traffic needs, per side; above 1 it cannot be served.
    """

    cost: tuple[Pair, ...] | Absent
    cold_ttft: tuple[Pair, ...] | Absent | None
    comparison: CostComparison | Absent
    duty: Mapping[Side, float]


def economy(
    config: Config,
    recording: Recording,
    evidence: Evidence,
    *,
    migrates: bool,
    recorded_arrivals_s: Sequence[float] = (),
) -> Economy:
    """Everything about money that a run and its configuration tell. `migrates`: moving brings the migration cost."""
    if config.cost is None:
        return _no_money(Absent(absent="no prices are declared: the configuration has no `cost` block"), sleeps=False)
    books = open_books(config, config.cost, recording, evidence, migrates=migrates, recorded=recorded_arrivals_s)
    if not evidence.rounds:
        return _no_money(Absent(absent="no complete round"), sleeps=bool(books.sleeping))
    if books.demand is not None and books.demand.problem is not None:
        return _no_money(Absent(absent=books.demand.problem), sleeps=bool(books.sleeping))
    return _read(books, evidence)


def _no_money(why: Absent, *, sleeps: bool, duty: Mapping[Side, float] | None = None) -> Economy:
    return Economy(cost=why, cold_ttft=why if sleeps else None, comparison=why, duty=duty or {})


# ---------------------------------------------------------------- rounds


def _read(books: Books, evidence: Evidence) -> Economy:
    sleeps = bool(books.sleeping)
    baseline = running_side(books, evidence.of(Side.BASELINE))
    candidate = running_side(books, evidence.of(Side.CANDIDATE))
    if isinstance(baseline, Absent):
        return _no_money(baseline, sleeps=sleeps)
    if isinstance(candidate, Absent):
        return _no_money(candidate, sleeps=sleeps)
    duty = {one.side: _duty(books, one) for one in (baseline, candidate)}
    over = [side for side in Side if duty[side] > 1.0]
    if over:
        copies = f"{books.replicas} replica{'s' if books.replicas > 1 else ''}"
        why = Absent(absent=f"the declared traffic is more than {copies} of the {' and the '.join(over)} can serve")
        return _no_money(why, sleeps=sleeps, duty=duty)
    return Economy(
        cost=_cost_pairs(books, evidence),
        cold_ttft=_cold_pairs(books, evidence) if sleeps else None,
        comparison=compare_costs(books, baseline, candidate),
        duty=duty,
    )


def _duty(books: Books, running: Running) -> float:
    """λ·s / R: the share of its time that the side must serve."""
    if books.demand is None:
        return 1.0
    return books.demand.per_hour / SECONDS_PER_HOUR * running.operation.service_s / books.replicas


def _cost_pairs(books: Books, evidence: Evidence) -> tuple[Pair, ...] | Absent:
    """USD per 1M output tokens of each round, from that round's launches alone."""
    pairs: list[Pair] = []
    for one in evidence.rounds:
        values: list[float] = []
        for launch in one.launches:
            running = running_side(books, (launch,))
            cost = running if isinstance(running, Absent) else running.bill(books, running.use(books))
            if isinstance(cost, Absent):
                return Absent(absent=f"round {one.number}, {launch.record.side}: {cost.absent}")
            values.append(cost.per_1m_output)
        pairs.append((values[0], values[1]))
    return tuple(pairs)


def _cold_pairs(books: Books, evidence: Evidence) -> tuple[Pair, ...] | Absent:
    """p95 TTFT in ms of each round under the declared arrivals; a side that keeps warm has its warm p95."""
    pairs: list[Pair] = []
    for one in evidence.rounds:
        values: list[float] = []
        for launch in one.launches:
            value = _cold_ttft_ms(books, launch)
            if isinstance(value, Absent):
                return Absent(absent=f"round {one.number}, {launch.record.side}: {value.absent}")
            values.append(value)
        pairs.append((values[0], values[1]))
    return tuple(pairs)


def _cold_ttft_ms(books: Books, launch: Launch) -> MaybeFloat:
    sample = launch.metrics.mix.latency_sample(lambda cell: cell.ttft)
    running = running_side(books, (launch,))
    if isinstance(sample, Absent):
        return sample
    if isinstance(running, Absent):
        return running
    values, weights = sample
    delays = running.use(books).occupancy.delays
    return quantile_with_delays(values / NS_PER_S, weights, delays, P95) * MS_PER_S
