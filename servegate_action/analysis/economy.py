"""The money of a run: each round's cost, the line item of both sides, break-even, payback and the curve over traffic.

A round's cost and its p95 TTFT with cold starts use nothing but that round's launches, so that rounds stay independent;
the line item shows the means over all rounds. Both stacks meet the same arrivals. What the configuration does not
declare, or the machine does not tell, makes the money `Absent`: no price is ever assumed. Formulas: docs/cost.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from servegate_action.analysis.cells import NS_PER_S, P95
from servegate_action.analysis.cost import (
    NO_MIGRATION,
    SECONDS_PER_HOUR,
    BreakEven,
    MigrationCharge,
    Operation,
    Power,
    Prices,
    Use,
    bill,
    break_even,
    no_break_even,
    payback_tokens,
)
from servegate_action.analysis.judgement import CostComparison, CurvePoint, SideCost
from servegate_action.analysis.metrics import MaybeFloat
from servegate_action.analysis.rounds import Evidence, Launch
from servegate_action.analysis.signals import bare_power_w, mixed_power
from servegate_action.analysis.traffic import Demand, Lifecycle, Occupancy, poisson_form, quantile_with_delays
from servegate_action.config.models import Config, Cost
from servegate_action.records import Absent, Recording, Side

Pair = tuple[float, float]
MS_PER_S = 1e3
CURVE_POINTS = 21
# The curve and the search for a break-even reach this far below and above the declared traffic, within capacity.
REACH = 100.0
# Fewer launches than this never bound a p95: 1 − 0.95⁵⁸ < 0.95 ≤ 1 − 0.95⁵⁹.
LEAST_FOR_P95 = 59
ALWAYS_BUSY = Occupancy(busy=1.0, warm_idle=0.0, loading=0.0, off=0.0, billed=1.0, starts=0.0)


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
    books = _open_books(config, config.cost, recording, evidence, migrates=migrates, recorded=recorded_arrivals_s)
    if not evidence.rounds:
        return _no_money(Absent(absent="no complete round"), sleeps=bool(books.sleeping))
    if books.demand is not None and books.demand.problem is not None:
        return _no_money(Absent(absent=books.demand.problem), sleeps=bool(books.sleeping))
    return _read(books, evidence)


def _no_money(why: Absent, *, sleeps: bool, duty: Mapping[Side, float] | None = None) -> Economy:
    return Economy(cost=why, cold_ttft=why if sleeps else None, comparison=why, duty=duty or {})


# ---------------------------------------------------------------- what is declared


@dataclass(frozen=True, slots=True)
class _Books:
    """Prices and traffic as declared, with what the launches say about sleeping.

    `sleeping`: the sides that scale to zero, each with why its idle time is priced warm after all (empty when it is real).
    """

    cost: Cost
    demand: Demand | None
    bare_w: MaybeFloat
    gpus: Mapping[Side, int]
    planned_prompt_tokens: float
    sleeping: Mapping[Side, str]
    migration_usd: float

    def prices(self, side: Side) -> Prices:
        return Prices(
            usd_per_gpu_hour=self.cost.price(side),
            electricity_usd_per_kwh=self.cost.electricity_usd_per_kwh,
            efficiency=self.cost.efficiency,
            board_to_server=self.cost.board_to_server,
        )

    def migration(self, side: Side) -> MigrationCharge:
        """Charged to the candidate, and only where traffic says over how many tokens it is spread."""
        declared = self.cost.migration
        if side is Side.BASELINE or declared is None or self.demand is None:
            return NO_MIGRATION
        return MigrationCharge(self.migration_usd, declared.horizon_months)

    @property
    def replicas(self) -> int:
        return self.demand.declared.replicas if self.demand is not None else 1


def _open_books(
    config: Config, cost: Cost, recording: Recording, evidence: Evidence, *, migrates: bool, recorded: Sequence[float]
) -> _Books:
    weights = sum(cell.weight for cell in recording.plan.cells)
    declared = cost.migration
    moving = 0.0
    if migrates and declared is not None:
        moving = declared.hours * declared.hourly_usd + declared.dual_run_gpu_hours * cost.price(Side.CANDIDATE)
    return _Books(
        cost=cost,
        demand=Demand(cost.traffic, config.workload.seed, tuple(recorded)) if cost.traffic is not None else None,
        bare_w=bare_power_w(recording.floor),
        gpus={side: config.stacks.of(side).gpu_count for side in Side},
        planned_prompt_tokens=sum(cell.weight * cell.prompt_tokens for cell in recording.plan.cells)
        / max(weights, 1e-12),
        sleeping={side: _not_real(evidence.of(side)) for side in Side if not cost.idle.of(side).keep_warm},
        migration_usd=moving,
    )


def _not_real(launches: Sequence[Launch]) -> str:
    """Why scale-to-zero cannot be believed; empty when every launch was seen to give everything back."""
    releases = [launch.record.release for launch in launches]
    seen = [release for release in releases if release is not None]
    held = [release for release in seen if not release.real]
    if held:
        return f"scale-to-zero: not real in {len(held)} of {len(releases)} launches ({held[0].reason})"
    if len(seen) < len(releases):
        return f"scale-to-zero: not shown, the release was not observed in {len(releases) - len(seen)} launches"
    return ""


# ---------------------------------------------------------------- one side in operation


@dataclass(frozen=True, slots=True)
class _Running:
    """One side in operation: one launch, or the means over several. Cold starts in s, one of each launch."""

    side: Side
    operation: Operation
    cold_starts_s: tuple[float, ...]

    def life(self, books: _Books) -> Lifecycle:
        idle = books.cost.idle.of(self.side)
        return Lifecycle(
            service_s=self.operation.service_s,
            replicas=books.replicas,
            idle_timeout_s=idle.scale_to_zero.after_s if idle.scale_to_zero is not None else None,
            cold_starts_s=self.cold_starts_s,
            billing_step_s=books.cost.billing_granularity_s,
        )

    def use(self, books: _Books, *, per_hour: float | None = None, quick: bool = False, check: str = "") -> Use:
        """How its time is spent under the declared traffic, or another rate of it."""
        demand = books.demand
        if demand is None:
            return Use(rate=1.0 / self.operation.service_s, replicas=1, occupancy=ALWAYS_BUSY, policy="always busy")
        rate = per_hour or demand.per_hour
        life = self.life(books)
        occupancy = demand.quick_occupancy(rate, life) if quick else demand.occupancy(rate, life)
        return Use(
            rate=rate / SECONDS_PER_HOUR,
            replicas=books.replicas,
            occupancy=occupancy,
            policy="keep warm" if life.idle_timeout_s is None else f"scale to zero after {life.idle_timeout_s:g} s",
            kept_warm_because=books.sleeping.get(self.side, ""),
            poisson_check=check,
        )

    def bill(self, books: _Books, use: Use) -> SideCost | Absent:
        return bill(self.operation, use, books.prices(self.side), migration=books.migration(self.side))


def _running(books: _Books, launches: Sequence[Launch]) -> _Running | Absent:
    """One side from one launch or several: geometric mean of the rate, plain means of the rest."""
    side = launches[0].record.side
    rates: list[float] = []
    cold: list[float] = []
    for launch in launches:
        rate = launch.metrics.mix.output_tokens_per_second
        if isinstance(rate, Absent):
            return Absent(absent=f"{side}, round {launch.record.round}: {rate.absent}")
        rates.append(rate)
        start = seconds_to_first_token(launch)
        if not isinstance(start, Absent):
            cold.append(start)
        elif side in books.sleeping:
            return Absent(absent=f"{side}, round {launch.record.round}: {start.absent}")
    mixes = [launch.metrics.mix for launch in launches]
    prompts = [mix.mean_prompt_tokens for mix in mixes]
    known = [tokens for tokens in prompts if not isinstance(tokens, Absent)]
    powers = [mixed_power(one.signals, one.metrics.mix.time_shares(), off_w=books.bare_w) for one in launches]
    operation = Operation(
        output_tokens_per_second=math.exp(math.fsum(map(math.log, rates)) / len(rates)),
        output_tokens=float(np.mean([mix.mean_output_tokens for mix in mixes])),
        prompt_tokens=float(np.mean(known)) if len(known) == len(prompts) else books.planned_prompt_tokens,
        served_share=float(np.mean([1.0 - mix.failed_share for mix in mixes])),
        gpus=books.gpus[side],
        power=Power(
            busy_w=_mean([power.busy_w for power in powers]),
            idle_w=_mean([power.idle_w for power in powers]),
            loading_w=_mean([power.loading_w for power in powers]),
            off_w=books.bare_w,
        ),
    )
    return _Running(side, operation, tuple(cold))


def seconds_to_first_token(launch: Launch) -> MaybeFloat:
    """L of one launch: from the request to start it to its first token, in s."""
    start = launch.record.cold_start
    if start is None:
        return Absent(absent="servegate did not start this stack")
    if isinstance(start.first_token_ns, Absent):
        return start.first_token_ns
    return (start.first_token_ns - start.requested_ns) / NS_PER_S


def _mean(values: Sequence[MaybeFloat]) -> MaybeFloat:
    """The plain mean, absent as soon as one value is."""
    total = 0.0
    for value in values:
        if isinstance(value, Absent):
            return value
        total += value
    return total / len(values)


# ---------------------------------------------------------------- rounds


def _read(books: _Books, evidence: Evidence) -> Economy:
    sleeps = bool(books.sleeping)
    baseline = _running(books, evidence.of(Side.BASELINE))
    candidate = _running(books, evidence.of(Side.CANDIDATE))
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
        comparison=_comparison(books, baseline, candidate),
        duty=duty,
    )


def _duty(books: _Books, running: _Running) -> float:
    """λ·s / R: the share of its time that the side must serve."""
    if books.demand is None:
        return 1.0
    return books.demand.per_hour / SECONDS_PER_HOUR * running.operation.service_s / books.replicas


def _cost_pairs(books: _Books, evidence: Evidence) -> tuple[Pair, ...] | Absent:
    """USD per 1M output tokens of each round, from that round's launches alone."""
    pairs: list[Pair] = []
    for one in evidence.rounds:
        values: list[float] = []
        for launch in one.launches:
            running = _running(books, (launch,))
            cost = running if isinstance(running, Absent) else running.bill(books, running.use(books))
            if isinstance(cost, Absent):
                return Absent(absent=f"round {one.number}, {launch.record.side}: {cost.absent}")
            values.append(cost.per_1m_output)
        pairs.append((values[0], values[1]))
    return tuple(pairs)


def _cold_pairs(books: _Books, evidence: Evidence) -> tuple[Pair, ...] | Absent:
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


def _cold_ttft_ms(books: _Books, launch: Launch) -> MaybeFloat:
    sample = launch.metrics.mix.latency_sample(lambda cell: cell.ttft)
    running = _running(books, (launch,))
    if isinstance(sample, Absent):
        return sample
    if isinstance(running, Absent):
        return running
    values, weights = sample
    delays = running.use(books).occupancy.delays
    return quantile_with_delays(values / NS_PER_S, weights, delays, P95) * MS_PER_S


# ---------------------------------------------------------------- the line item


def _comparison(books: _Books, baseline: _Running, candidate: _Running) -> CostComparison | Absent:
    """Row 6 in full."""
    bills = [one.bill(books, one.use(books, check=_poisson_check(books, one))) for one in (baseline, candidate)]
    ours, theirs = bills
    if isinstance(ours, Absent):
        return Absent(absent=f"{Side.BASELINE}: {ours.absent}")
    if isinstance(theirs, Absent):
        return Absent(absent=f"{Side.CANDIDATE}: {theirs.absent}")
    meeting = _meeting(books, baseline, candidate)
    moving = next((item.usd_per_1m_output for item in theirs.items if item.name == "migration"), 0.0)
    return CostComparison(
        baseline=ours,
        candidate=theirs,
        requests_per_hour=books.demand.per_hour if books.demand is not None else baseline.operation.capacity_per_hour,
        traffic=books.demand.text if books.demand is not None else "none declared: priced as if always busy",
        break_even_requests_per_hour=meeting.requests_per_hour,
        break_even_sentence=meeting.sentence,
        fragile=meeting.fragile,
        payback_tokens=payback_tokens(
            migration_usd=books.migration_usd,
            baseline_per_1m=ours.per_1m_output,
            candidate_per_1m=theirs.per_1m_output - moving,
        ),
        migration_usd=books.migration_usd,
        curve=_curve(books, baseline, candidate),
        notes=_notes(books, baseline, candidate),
    )


def _poisson_check(books: _Books, running: _Running) -> str:
    """What the closed form says at the same mean rate, beside the replay; empty where it says nothing new."""
    life = running.life(books)
    if books.demand is None or life.idle_timeout_s is None or life.replicas > 1:
        return ""
    form = poisson_form(books.demand.per_hour / SECONDS_PER_HOUR, life)
    cost = running.bill(books, replace(running.use(books), occupancy=form))
    if isinstance(cost, Absent):
        return ""
    return (
        f"closed form for Poisson arrivals at this mean rate: {cost.per_1m_output:.4g} USD per 1M output tokens, "
        f"off {form.off:.1%}, {form.delays.share:.1%} of the requests wait"
    )


def _range(books: _Books, baseline: _Running, candidate: _Running) -> tuple[float, float] | None:
    """Requests per hour over which both sides are drawn: around the declared traffic, below what both can serve."""
    if books.demand is None:
        return None
    capacity = books.replicas * min(one.operation.capacity_per_hour for one in (baseline, candidate))
    declared = books.demand.per_hour
    return declared / REACH, max(declared, min(declared * REACH, 0.98 * capacity))


def _costs(books: _Books, baseline: _Running, candidate: _Running, rates: Sequence[float]) -> list[Pair] | Absent:
    """USD per 1M output tokens of both sides at each rate; absent as soon as one cannot be told."""
    pairs: list[Pair] = []
    for rate in rates:
        costs = [one.bill(books, one.use(books, per_hour=rate, quick=True)) for one in (baseline, candidate)]
        ours, theirs = costs
        if isinstance(ours, Absent):
            return ours
        if isinstance(theirs, Absent):
            return theirs
        pairs.append((ours.per_1m_output, theirs.per_1m_output))
    return pairs


def _meeting(books: _Books, baseline: _Running, candidate: _Running) -> BreakEven:
    """Where the two line items meet."""
    ends = _range(books, baseline, candidate)
    if ends is None or books.demand is None:
        return no_break_even("without declared traffic there is no break-even")
    lowest = _costs(books, baseline, candidate, ends[:1])
    if isinstance(lowest, Absent):
        return no_break_even(lowest.absent)

    # At the lowest rate every state has its share of time: what can be priced there can be priced everywhere.
    def gap(per_hour: float) -> float:
        pairs = _costs(books, baseline, candidate, (per_hour,))
        return 0.0 if isinstance(pairs, Absent) else math.log(pairs[0][0] / pairs[0][1])

    return break_even(gap, declared=books.demand.per_hour, low=ends[0], high=ends[1])


def _curve(books: _Books, baseline: _Running, candidate: _Running) -> tuple[CurvePoint, ...]:
    ends = _range(books, baseline, candidate)
    if ends is None:
        return ()
    rates = np.geomspace(*ends, CURVE_POINTS).tolist()
    pairs = _costs(books, baseline, candidate, rates)
    if isinstance(pairs, Absent):
        return ()
    return tuple(
        CurvePoint(requests_per_hour=rate, baseline_per_1m_output=ours, candidate_per_1m_output=theirs)
        for rate, (ours, theirs) in zip(rates, pairs, strict=True)
    )


def _notes(books: _Books, baseline: _Running, candidate: _Running) -> tuple[str, ...]:
    """What the numbers teach, in sentences."""
    notes = [
        text
        for running in (baseline, candidate)
        if running.side in books.sleeping
        for text in _sleeping_notes(books, running)
    ]
    if books.migration_usd > 0 and books.demand is None:
        notes.append(
            f"moving costs {books.migration_usd:,.0f} USD once; without declared traffic it is in no price per token"
        )
    return tuple(notes)


def _sleeping_notes(books: _Books, running: _Running) -> list[str]:
    """How many wait, how long a start takes, and whether sleeping saves anything against staying warm."""
    use = running.use(books)
    starts = running.cold_starts_s
    notes = [
        f"{running.side}: {use.occupancy.delays.share:.1%} of the requests wait for a cold start "
        f"({use.occupancy.starts:.1%} trigger one); it took {max(starts):.1f} s at most in {len(starts)} launches"
        + ("" if len(starts) >= LEAST_FOR_P95 else f", too few to bound its p95 ({LEAST_FOR_P95} would)")
    ]
    if use.kept_warm_because:
        notes.append(f"{running.side}: {use.kept_warm_because}; its idle time is priced as if it kept warm")
    asleep = running.bill(books, use)
    warm_form = poisson_form(use.rate / use.replicas, replace(running.life(books), idle_timeout_s=None))
    warm = running.bill(books, replace(use, occupancy=warm_form, kept_warm_because=""))
    if not isinstance(asleep, Absent) and not isinstance(warm, Absent):
        notes += _against_warm(running.side, asleep, warm)
    return notes


def _against_warm(side: Side, asleep: SideCost, warm: SideCost) -> list[str]:
    notes: list[str] = []
    if asleep.per_1m_output > warm.per_1m_output:
        notes.append(
            f"{side}: scaling to zero is dearer than staying warm at this traffic "
            f"({asleep.per_1m_output:.4g} against {warm.per_1m_output:.4g} USD per 1M output tokens)"
        )
    energy, kept = asleep.kwh_per_month_board, warm.kwh_per_month_board
    if not isinstance(energy, Absent) and not isinstance(kept, Absent) and energy > kept:
        notes.append(
            f"{side}: scaling to zero uses more energy than staying warm ({energy:.1f} against {kept:.1f} kWh a month)"
        )
    return notes
