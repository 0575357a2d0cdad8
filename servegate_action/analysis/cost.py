"""From what a stack makes and draws to the bill: per 1M tokens, per month, item by item, and where the two bills meet.

Busy, warm idle, loading, power at the grid and migration are priced apart, each item with its own reason to exist.
Formulas, units and a worked example: docs/cost.md. Nothing here measures, reads prices from anywhere but its arguments,
or decides; a bill that cannot be drawn up is `Absent` with what is missing, and never a partial sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from servegate_action.analysis.judgement import CostItem, SideCost
from servegate_action.analysis.traffic import Occupancy
from servegate_action.records import Absent

MaybeFloat = float | Absent
SECONDS_PER_HOUR = 3600.0
HOURS_PER_MONTH = 730.0
MILLION = 1e6
# Traffic this near to the break-even makes the saving fragile.
FRAGILE_SHARE = 0.20
# Costs nearer than this, as a log-ratio, are the same.
SAME_COST = 1e-9
# What a stack draws at one rate of arrivals stands for another one this near to it.
SAME_RATE_SHARE = 0.25
NOT_SATURATED = Absent(
    absent="how much a stack can serve shows in closed loop only: add a cell with a `concurrency` to the workload"
)


@dataclass(frozen=True, slots=True)
class Power:
    """Board power of one replica, all its accelerators together, in W: while serving, ready, loading, and without it."""

    busy_w: MaybeFloat
    idle_w: MaybeFloat
    loading_w: MaybeFloat
    off_w: MaybeFloat


@dataclass(frozen=True, slots=True)
class Operation:
    """What one replica of a stack does for the declared mix.

    `output_tokens_per_second`: X over the mix. Tokens are those of a mean request of the traffic. `served_share`: share
    of the requests that succeed; the tokens of the others are not in any denominator, their time is in the numerator.
    `saturated`: X was measured in closed loop. In open loop X is what arrived, and says nothing about what could be served.
    """

    output_tokens_per_second: float
    output_tokens: float
    prompt_tokens: float
    served_share: float
    gpus: int
    power: Power
    saturated: bool = True

    @property
    def served_tokens(self) -> float:
        """Output tokens that a mean request of the traffic really yields."""
        return self.output_tokens * self.served_share

    @property
    def service_s(self) -> float:
        """Seconds of the replica that a mean request takes: the inverse of its throughput in requests.

        Not `saturated`: the mean time between two that arrived.
        """
        return self.served_tokens / self.output_tokens_per_second

    @property
    def capacity_per_hour(self) -> float:
        """Requests per hour that one replica can serve, never idle."""
        return SECONDS_PER_HOUR / self.service_s


@dataclass(frozen=True, slots=True)
class Prices:
    """What things cost. `electricity_usd_per_kwh` is None where the GPU's price contains power.

    `efficiency`: share of grid electricity that reaches the chip. `board_to_server`: server energy over board energy.
    """

    usd_per_gpu_hour: float
    electricity_usd_per_kwh: float | None = None
    efficiency: float = 1.0
    board_to_server: float = 1.0


@dataclass(frozen=True, slots=True)
class Use:
    """How the replicas spend their time under a traffic of `rate` requests/s.

    `kept_warm_because`: set where the stack claims to release the GPU and was seen not to; off time is then billed, and
    drawn, as warm idle.
    """

    rate: float
    replicas: int
    occupancy: Occupancy
    policy: str
    kept_warm_because: str = ""
    poisson_check: str = ""


@dataclass(frozen=True, slots=True)
class MigrationCharge:
    """What moving to this stack costs once, and over how many months it is spread."""

    usd: float
    horizon_months: float

    @property
    def usd_per_month(self) -> float:
        return self.usd / self.horizon_months


NO_MIGRATION = MigrationCharge(0.0, 1.0)


def bill(
    operation: Operation, use: Use, prices: Prices, *, migration: MigrationCharge = NO_MIGRATION
) -> SideCost | Absent:
    """The bill of one side.

    Per month of 730 h: GPU = n·R·P·(billed share); power = E_grid·price with E_grid = E_IT/efficiency and
    E_IT = R·Σ share·W·board_to_server; migration = M/months. Per 1M tokens: 10⁶·USD/tokens of the same month. Absent when
    power has its own price and cannot be known, or when no tokens are made.
    """
    tokens = use.rate * operation.served_tokens * SECONDS_PER_HOUR * HOURS_PER_MONTH
    if tokens <= 0:
        return Absent(absent="no tokens are served, so that a cost per token is undefined")
    board_kwh = _board_kwh_per_month(operation, use) if operation.saturated else _board_kwh_as_seen(operation, use)
    power = _power_items(board_kwh, prices)
    if isinstance(power, Absent):
        return power
    items = [*_gpu_items(operation, use, prices), *power]
    if migration.usd > 0:
        items.append(("migration", migration.usd_per_month))
    total = sum(usd for _, usd in items)
    prompts = use.rate * operation.prompt_tokens * operation.served_share * SECONDS_PER_HOUR * HOURS_PER_MONTH
    held = _held(use)
    return SideCost(
        busy_only_per_1m_output=busy_only(operation, prices) if operation.saturated else NOT_SATURATED,
        per_1m_output=MILLION * total / tokens,
        per_1m_total=MILLION * total / (tokens + prompts),
        usd_per_month=total,
        items=tuple(
            CostItem(name=name, usd_per_month=usd, usd_per_1m_output=MILLION * usd / tokens) for name, usd in items
        ),
        effective_tokens_per_gpu_hour=tokens / (HOURS_PER_MONTH * operation.gpus * use.replicas * held.billed),
        share_busy=held.busy if operation.saturated else NOT_SATURATED,
        share_warm_idle=held.warm_idle if operation.saturated else NOT_SATURATED,
        share_loading=held.loading,
        share_off=held.off,
        idle_policy=use.policy,
        tokens_per_joule_board=tokens_per_joule(operation),
        tokens_per_joule_grid=tokens_per_joule(operation, grid_factor=prices.efficiency / prices.board_to_server),
        kwh_per_month_board=board_kwh,
        kwh_per_month_grid=_scaled(board_kwh, prices.board_to_server / prices.efficiency),
        poisson_check=use.poisson_check,
    )


def busy_only(operation: Operation, prices: Prices) -> float:
    """10⁶·n·P / (3600·X): USD per 1M output tokens if the GPU never idled; nothing but GPU money."""
    return MILLION * operation.gpus * prices.usd_per_gpu_hour / (SECONDS_PER_HOUR * operation.output_tokens_per_second)


def tokens_per_joule(operation: Operation, *, grid_factor: float = 1.0) -> MaybeFloat:
    """X / P while busy (= tok/s per W). × efficiency / board_to_server gives it at the grid."""
    busy = operation.power.busy_w
    if isinstance(busy, Absent):
        return busy
    if busy <= 0:
        return Absent(absent="the power reading was zero while tokens were made")
    return operation.output_tokens_per_second / busy * grid_factor


def _held(use: Use) -> Occupancy:
    """The occupancy that is billed: off counts as warm idle where the GPU is not really given back."""
    own = use.occupancy
    if not use.kept_warm_because:
        return own
    return Occupancy(
        busy=own.busy,
        warm_idle=own.warm_idle + own.off,
        loading=own.loading,
        off=0.0,
        billed=max(1.0, own.billed),
        starts=own.starts,
        delays=own.delays,
    )


def _gpu_items(operation: Operation, use: Use, prices: Prices) -> list[tuple[str, float]]:
    """GPU money per month by what the GPU was held for; what billing steps add is an item of its own."""
    held = _held(use)
    whole = HOURS_PER_MONTH * use.replicas * operation.gpus * prices.usd_per_gpu_hour
    if not operation.saturated:
        return [("kept warm", whole)]
    items = [("busy", held.busy * whole), ("warm idle", held.warm_idle * whole)]
    if held.loading > 0:
        items.append(("loading", held.loading * whole))
    rounding = held.billed - held.busy - held.warm_idle - held.loading
    if rounding > 1e-12:
        items.append(("billing steps", rounding * whole))
    return items


def _board_kwh_per_month(operation: Operation, use: Use) -> MaybeFloat:
    """Σ share·W over the month of all replicas, at the boards. A state without any time needs no power reading."""
    held, power = _held(use), operation.power
    watts = 0.0
    for share, reading in (
        (held.busy, power.busy_w),
        (held.warm_idle, power.idle_w),
        (held.loading, power.loading_w),
        (held.off, power.off_w),
    ):
        if share <= 0:
            continue
        if isinstance(reading, Absent):
            return reading
        watts += share * reading
    return watts * use.replicas * HOURS_PER_MONTH / 1000.0


def _board_kwh_as_seen(operation: Operation, use: Use) -> MaybeFloat:
    """Over the month of all replicas, at the boards, where each is kept warm and gets as many requests as in the measurement."""
    busy_w, apart = operation.power.busy_w, use.rate / use.replicas * operation.service_s - 1.0
    if isinstance(busy_w, Absent):
        return busy_w
    if abs(apart) > SAME_RATE_SHARE:
        return Absent(absent=f"it was measured at another rate of arrivals; {NOT_SATURATED.absent}")
    return busy_w * use.replicas * HOURS_PER_MONTH / 1000.0


def _power_items(board_kwh: MaybeFloat, prices: Prices) -> list[tuple[str, float]] | Absent:
    """Power as the server drew it, and the penalty: what the way from the grid to the server costs beyond it."""
    price = prices.electricity_usd_per_kwh
    if price is None:
        return []
    if isinstance(board_kwh, Absent):
        return Absent(absent=f"electricity has a price, but the power drawn is not known: {board_kwh.absent}")
    server_kwh = board_kwh * prices.board_to_server
    items = [("power", server_kwh * price)]
    if prices.efficiency < 1.0:
        items.append(("power penalty", server_kwh * (1.0 / prices.efficiency - 1.0) * price))
    return items


def _scaled(value: MaybeFloat, factor: float) -> MaybeFloat:
    return value if isinstance(value, Absent) else value * factor


# ---------------------------------------------------------------- where the bills meet


@dataclass(frozen=True, slots=True)
class BreakEven:
    """λ* in requests per hour, or why there is none, with one sentence for the reader."""

    requests_per_hour: MaybeFloat
    sentence: str
    fragile: bool


Gap = Callable[[float], float]


def break_even(gap: Gap, scanned: Sequence[tuple[float, float]], *, declared: float) -> BreakEven:
    """The traffic at which both line items are equal, by bisection on a log scale.

    `gap(rate)` is ln(baseline/candidate): positive where the candidate is cheaper. `scanned` holds (rate, gap) at rising
    rates, because the two curves may cross more than once; the crossing nearest to the declared traffic counts. `fragile`
    when the declared traffic is within 20 % of it.
    """
    if all(abs(value) < SAME_COST for _, value in scanned):
        return no_break_even("both cost the same at every traffic")
    crossings = [(one, two) for one, two in pairwise(scanned) if (one[1] > 0) != (two[1] > 0)]
    if not crossings:
        cheaper = "candidate" if scanned[-1][1] > 0 else "baseline"
        ends = f"from {_per_hour(scanned[0][0])} to {_per_hour(scanned[-1][0])}"
        return no_break_even(f"the {cheaper} is cheaper at every traffic {ends}")
    points = [(_bisect(gap, one[0], two[0], positive=one[1] > 0), one[1] > 0) for one, two in crossings]
    point, candidate_below = min(points, key=lambda found: abs(math.log(found[0] / declared)))
    away = declared / point - 1.0
    fragile = abs(away) <= FRAGILE_SHARE
    below, above = ("candidate", "baseline") if candidate_below else ("baseline", "candidate")
    sentence = (
        f"the {below} is cheaper below {_per_hour(point)}, the {above} above it; "
        f"the declared {_per_hour(declared)} is {abs(away):.0%} {'above' if away >= 0 else 'below'} that"
    )
    if fragile:
        sentence += f", within {FRAGILE_SHARE:.0%}: the saving is fragile"
    return BreakEven(point, sentence, fragile)


def no_break_even(why: str) -> BreakEven:
    """There is none, and why."""
    return BreakEven(Absent(absent=why), why, fragile=False)


def _bisect(gap: Gap, low: float, high: float, *, positive: bool) -> float:
    """The zero of `gap` in [low, high]; `positive`: its sign at `low`. To 10⁻⁵ of the rate."""
    while high / low > 1.0 + 1e-5:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if (gap(middle) > 0) == positive else (low, middle)
    return math.sqrt(low * high)


def _per_hour(rate: float) -> str:
    """A rate as people say it: `900 requests/h`, or `one request per 63.7 s` when they are rare."""
    return f"{rate:,.0f} requests/h" if rate >= 120 else f"one request per {SECONDS_PER_HOUR / rate:.3g} s"


def payback_tokens(*, migration_usd: float, baseline_per_1m: float, candidate_per_1m: float) -> MaybeFloat:
    """10⁶·M / (c_A − c_B): output tokens after which the move has paid for itself; `candidate_per_1m` without migration."""
    if migration_usd <= 0:
        return Absent(absent="moving costs nothing")
    saving = baseline_per_1m - candidate_per_1m
    if saving <= 0:
        return Absent(absent="the candidate saves nothing, so that moving never pays")
    return MILLION * migration_usd / saving
