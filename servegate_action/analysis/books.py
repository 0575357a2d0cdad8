"""The books of a run: prices and traffic as declared, and each side in operation as it was measured.

One side is seen in one launch (a round's cost) or as the mean of all of them (the line item). What is declared but was
never seen, as a stack that says it scales to zero, is not believed. Nothing is added up here: that is `cost.bill`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from servegate_action.analysis.cells import NS_PER_S
from servegate_action.analysis.cost import (
    NO_MIGRATION,
    NOT_SATURATED,
    MigrationCharge,
    Operation,
    Power,
    Prices,
    Use,
    bill,
)
from servegate_action.analysis.demand import Demand, demand_of
from servegate_action.analysis.judgement import Phase, SideCost
from servegate_action.analysis.metrics import MaybeFloat
from servegate_action.analysis.rounds import Evidence, Launch
from servegate_action.analysis.signals import bare_power_w, busy_power_w
from servegate_action.analysis.traffic import SECONDS_PER_HOUR, Lifecycle, Occupancy
from servegate_action.config.cost import Cost
from servegate_action.config.models import Config
from servegate_action.records import Absent, Recording, Side

ALWAYS_BUSY = Occupancy(busy=1.0, warm_idle=0.0, loading=0.0, off=0.0, billed=1.0, starts=0.0)


@dataclass(frozen=True, slots=True)
class Books:
    """Prices and traffic as declared, with what the launches say about sleeping.

    `sleeping`: the sides that scale to zero, each with why its idle time is priced warm after all (empty when it is real).
    """

    cost: Cost
    demand: Demand | None
    bare_w: Mapping[Side, MaybeFloat]
    idle_w: Mapping[Side, MaybeFloat]
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


def open_books(
    config: Config, cost: Cost, recording: Recording, evidence: Evidence, *, migrates: bool, recorded: Sequence[float]
) -> Books:
    weights = sum(cell.weight for cell in recording.plan.cells)
    declared = cost.migration
    moving = 0.0
    if migrates and declared is not None:
        moving = declared.hours * declared.hourly_usd + declared.dual_run_gpu_hours * cost.price(Side.CANDIDATE)
    return Books(
        cost=cost,
        demand=demand_of(cost.traffic, seed=config.workload.seed, recorded_s=recorded)
        if cost.traffic is not None
        else None,
        bare_w={
            side: bare_power_w(recording.floor, [launch.telemetry for launch in evidence.of(side)]) for side in Side
        },
        idle_w={side: _idle_power(evidence.of(side)) for side in Side},
        gpus={side: config.stacks.of(side).gpu_count for side in Side},
        planned_prompt_tokens=sum(cell.weight * cell.prompt_tokens for cell in recording.plan.cells) / weights,
        sleeping={side: _not_real(evidence.of(side)) for side in Side if not cost.idle.of(side).keep_warm},
        migration_usd=moving,
    )


def _not_real(launches: Sequence[Launch]) -> str:
    """Why scale-to-zero cannot be believed; empty when each release that was watched gave everything back."""
    seen = [launch.record.release for launch in launches if launch.record.release is not None]
    held = [release for release in seen if not release.real]
    if held:
        return f"scale-to-zero: not real, {held[0].reason}"
    return "" if seen else "scale-to-zero: not shown, nobody watched a release"


def _idle_power(launches: Sequence[Launch]) -> MaybeFloat:
    """Mean over the idle blocks of a side. One block is enough: idle power is a property of the loaded stack."""
    blocks = [launch.signals.idle_power_w for launch in launches if launch.record.idle is not None]
    return mean_of(blocks) if blocks else Absent(absent="the stack was not watched while ready and idle")


# ---------------------------------------------------------------- one side in operation


@dataclass(frozen=True, slots=True)
class Running:
    """One side in operation: one launch, or the means over several. Cold starts in s, one of each launch."""

    side: Side
    operation: Operation
    cold_starts_s: tuple[float, ...]

    def life(self, books: Books) -> Lifecycle:
        idle = books.cost.idle.of(self.side)
        return Lifecycle(
            service_s=self.operation.service_s,
            replicas=books.replicas,
            idle_timeout_s=idle.scale_to_zero.after_s if idle.scale_to_zero is not None else None,
            cold_starts_s=self.cold_starts_s,
            billing_step_s=books.cost.billing_granularity_s,
        )

    def use(self, books: Books, *, per_hour: float | None = None, quick: bool = False) -> Use:
        """How its time is spent under the declared traffic, or another rate of it."""
        demand = books.demand
        if demand is None:
            policy = "always busy" if self.operation.saturated else "kept warm, at the rate of arrivals of the workload"
            return Use(rate=1.0 / self.operation.service_s, replicas=1, occupancy=ALWAYS_BUSY, policy=policy)
        rate = per_hour or demand.per_hour
        if not self.operation.saturated:
            return Use(rate=rate / SECONDS_PER_HOUR, replicas=books.replicas, occupancy=ALWAYS_BUSY, policy="keep warm")
        life = self.life(books)
        occupancy = demand.quick_occupancy(rate, life) if quick else demand.occupancy(rate, life)
        return Use(
            rate=rate / SECONDS_PER_HOUR,
            replicas=books.replicas,
            occupancy=occupancy,
            policy="keep warm" if life.idle_timeout_s is None else f"scale to zero after {life.idle_timeout_s:g} s",
            kept_warm_because=books.sleeping.get(self.side, ""),
        )

    def bill(self, books: Books, use: Use) -> SideCost | Absent:
        return bill(self.operation, use, books.prices(self.side), migration=books.migration(self.side))


def running_of(books: Books, launch: Launch) -> Running | Absent:
    """One side as one launch shows it, by its closed-loop cells where there are any.

    A side that sleeps needs an observed cold start, and a closed-loop cell: how long it sleeps depends on what it can serve.
    """
    side, closed = launch.record.side, launch.metrics.mix.closed_loop
    mix = closed or launch.metrics.mix
    where = f"{side}, round {launch.record.round}"
    if closed is None and side in books.sleeping:
        return Absent(absent=f"{where}: scale-to-zero cannot be priced: {NOT_SATURATED.absent}")
    rate, start = mix.output_tokens_per_second, seconds_to_first_token(launch)
    if isinstance(rate, Absent):
        return Absent(absent=f"{where}: {rate.absent}")
    if isinstance(start, Absent) and side in books.sleeping:
        return Absent(absent=f"{where}: {start.absent}")
    prompts = mix.mean_prompt_tokens
    operation = Operation(
        output_tokens_per_second=rate,
        output_tokens=mix.mean_output_tokens,
        prompt_tokens=books.planned_prompt_tokens if isinstance(prompts, Absent) else prompts,
        served_share=1.0 - mix.failed_share,
        gpus=books.gpus[side],
        power=Power(
            busy_w=busy_power_w(replace(launch.metrics, mix=mix), launch.signals),
            idle_w=books.idle_w[side],
            loading_w=launch.signals.loading_power_w,
            off_w=books.bare_w[side],
        ),
        saturated=closed is not None,
    )
    return Running(side, operation, () if isinstance(start, Absent) else (start,))


def mean_running(runnings: Sequence[Running]) -> Running:
    """One side over several launches: geometric mean of the rate, plain means of the rest, every cold start."""
    first = runnings[0]
    operations = [one.operation for one in runnings]
    rates = [one.output_tokens_per_second for one in operations]
    operation = replace(
        first.operation,
        output_tokens_per_second=math.exp(math.fsum(map(math.log, rates)) / len(rates)),
        prompt_tokens=math.fsum(one.prompt_tokens for one in operations) / len(rates),
        served_share=math.fsum(one.served_share for one in operations) / len(rates),
        power=replace(
            first.operation.power,
            busy_w=mean_of([one.power.busy_w for one in operations]),
            loading_w=mean_of([one.power.loading_w for one in operations]),
        ),
    )
    return Running(first.side, operation, tuple(start for one in runnings for start in one.cold_starts_s))


def seconds_to_first_token(launch: Launch) -> MaybeFloat:
    """L of one launch: from the request to start it to its first token, in s."""
    start = launch.record.cold_start
    if start is None:
        return Absent(absent="servegate did not start this stack")
    if isinstance(start.first_token_ns, Absent):
        return start.first_token_ns
    return (start.first_token_ns - start.requested_ns) / NS_PER_S


def phases(launch: Launch) -> tuple[Phase, ...]:
    """The cold start of one launch, phase by phase, as far as each was seen."""
    start = launch.record.cold_start
    if start is None:
        return ()
    ends = (
        ("image", start.image_ready_ns),
        ("process", start.process_up_ns),
        ("port", start.port_open_ns),
        ("healthy", start.healthy_ns),
        ("first token", start.first_token_ns),
    )
    return tuple(
        Phase(name=name, until_s=(end - start.requested_ns) / NS_PER_S)
        for name, end in ends
        if not isinstance(end, Absent)
    )


def mean_of(values: Sequence[MaybeFloat]) -> MaybeFloat:
    """The plain mean, absent as soon as one value is."""
    total = 0.0
    for value in values:
        if isinstance(value, Absent):
            return value
        total += value
    return total / len(values)
