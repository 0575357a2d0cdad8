"""The money of a run: each round's cost, the line item of both sides, break-even, payback and the curve over traffic.

A round's cost and its p95 TTFT with cold starts use nothing but that round's launches, so that rounds stay independent;
the line item shows the means over all rounds. Both stacks meet the same arrivals. What the configuration does not
declare, or the machine does not tell, makes the money `Absent`: no price is ever assumed. Formulas: docs/cost.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from servegate_action.analysis.books import Books, Running, mean_running, open_books, running_of
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

    `duty`: share of the replicas' time that the declared traffic needs, per side; above 1 it cannot be served. Empty where
    only open-loop cells were measured, which do not show what could be served.
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
    runnings: dict[Side, list[Running]] = {side: [] for side in Side}
    for side in Side:
        for launch in evidence.of(side):
            running = running_of(books, launch)
            if isinstance(running, Absent):
                return _no_money(running, sleeps=sleeps)
            runnings[side].append(running)
    means = {side: mean_running(own) for side, own in runnings.items()}
    duty = {side: _duty(books, mean) for side, mean in means.items() if mean.operation.saturated}
    over = [side for side in duty if duty[side] > 1.0]
    if over:
        copies = f"{books.replicas} replica{'s' if books.replicas > 1 else ''}"
        why = Absent(absent=f"the declared traffic is more than {copies} of the {' and the '.join(over)} can serve")
        return _no_money(why, sleeps=sleeps, duty=duty)
    seen = {
        side: [_in_round(books, *one) for one in zip(runnings[side], evidence.of(side), strict=True)] for side in Side
    }
    return Economy(
        cost=_paired(seen, 0),
        cold_ttft=_paired(seen, 1) if sleeps else None,
        comparison=compare_costs(books, means[Side.BASELINE], means[Side.CANDIDATE]),
        duty=duty,
    )


def _duty(books: Books, running: Running) -> float:
    """λ·s / R: the share of its time that the side must serve."""
    if books.demand is None:
        return 1.0
    return books.demand.per_hour / SECONDS_PER_HOUR * running.operation.service_s / books.replicas


def _paired(
    seen: Mapping[Side, Sequence[tuple[MaybeFloat, MaybeFloat]]], which: Literal[0, 1]
) -> tuple[Pair, ...] | Absent:
    pairs: list[Pair] = []
    for number, both in enumerate(zip(seen[Side.BASELINE], seen[Side.CANDIDATE], strict=True), start=1):
        values: list[float] = []
        for side, readings in zip(Side, both, strict=True):
            value = readings[which]
            if isinstance(value, Absent):
                return Absent(absent=f"round {number}, {side}: {value.absent}")
            values.append(value)
        pairs.append((values[0], values[1]))
    return tuple(pairs)


def _in_round(books: Books, running: Running, launch: Launch) -> tuple[MaybeFloat, MaybeFloat]:
    """(USD per 1M output tokens, p95 TTFT with cold starts in ms) from one launch alone.

    A side that keeps warm has its warm p95.
    """
    use = running.use(books)
    cost = running.bill(books, use)
    price = cost if isinstance(cost, Absent) else cost.per_1m_output
    sample = launch.metrics.mix.latency_sample(lambda cell: cell.ttft)
    if isinstance(sample, Absent):
        return price, sample
    values, weights = sample
    return price, quantile_with_delays(values / NS_PER_S, weights, use.occupancy.delays, P95) * MS_PER_S
