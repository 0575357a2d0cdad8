"""One metric over the rounds of a run, and what of it can be compared.

A `MetricSeries` is what the metrics room hands to the verdict. `scores` turns it into numbers in which + is worse,
or says in one sentence why that is not possible. A missing round, a failed p95 or a value that cannot be a measurement
is never skipped over: the metric is then undecidable, because a comparison over the rounds that happen to be good would
be a choice made by the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from servegate_action.analysis.judgement import Direction, MetricKey
from servegate_action.analysis.stats import SD_FLOOR_POINTS, SD_FLOOR_RATIO, Floats
from servegate_action.config.limits import Limit
from servegate_action.records import Absent

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One metric, measured once per stack and round.

    `pairs` are (baseline, candidate) of each complete round, in order, in `unit`; a p95 that failed requests reach is
    +inf. A metric that could not be had is `Absent`. `requests` is the smallest number of requests behind one value,
    for percentiles; None where it does not matter. `copy_of` names the metric that this one is computed from without
    any further measurement: both are shown, and counted once.
    """

    key: MetricKey
    direction: Direction
    unit: str
    pairs: tuple[Pair, ...] | Absent
    limit: Limit
    gated: bool = True
    why_not_gated: str | None = None
    requests: int | None = None
    copy_of: MetricKey | None = None

    @property
    def in_points(self) -> bool:
        """Whether it is compared in percentage points rather than as a ratio."""
        return self.limit.unit == "points"

    @property
    def margin(self) -> float:
        """D, the worsening that is allowed, in the unit of d: ln(1 + limit), or points."""
        return self.limit.value if self.in_points else math.log1p(self.limit.value)

    @property
    def sd_floor(self) -> float:
        """The smallest SD of d that is believed."""
        return SD_FLOOR_POINTS if self.in_points else SD_FLOOR_RATIO


@dataclass(frozen=True, slots=True)
class Undecidable:
    """Why a series cannot be tested. `worse`: what is known speaks against the candidate."""

    reason: str
    worse: bool = False


def scores(series: MetricSeries, *, rounds: int, used: int) -> tuple[Floats, Floats] | Undecidable:
    """Baseline and candidate of the first `used` of `rounds` rounds as scores, so that + is worse and d = B − A.

    ln(value) for latency and cost, −ln(value) for throughput; the plain value, or its negative, in percentage points.
    Needs every one of the used rounds.
    """
    pairs = series.pairs
    if isinstance(pairs, Absent):
        return Undecidable(pairs.absent)
    if len(pairs) != rounds:
        return Undecidable(f"measured in {len(pairs)} of {rounds} rounds")
    trouble = _trouble(series, pairs[:used])
    if trouble is not None:
        return trouble
    values = np.array(pairs[:used], dtype=np.float64).reshape(used, 2)
    upward = values if series.in_points else np.log(values)
    worse = upward if series.direction is Direction.LOWER else -upward
    return worse[:, 0], worse[:, 1]


def _trouble(series: MetricSeries, pairs: tuple[Pair, ...]) -> Undecidable | None:
    lowest = -math.inf if series.in_points else 0.0
    for number, (baseline, candidate) in enumerate(pairs, start=1):
        for side, value in (("baseline", baseline), ("candidate", candidate)):
            if math.isnan(value) or value <= lowest:
                return Undecidable(f"{side} of round {number} has no usable value ({value:g} {series.unit})")
    failed_candidate = [number for number, (_, value) in enumerate(pairs, start=1) if math.isinf(value)]
    failed_baseline = [number for number, (value, _) in enumerate(pairs, start=1) if math.isinf(value)]
    if failed_candidate:
        worse = set(failed_candidate) - set(failed_baseline)
        return Undecidable(f"candidate unbounded in {_rounds(failed_candidate)}: failed requests reach it", bool(worse))
    if failed_baseline:
        return Undecidable(f"baseline unbounded in {_rounds(failed_baseline)}: failed requests reach it")
    return None


def _rounds(numbers: list[int]) -> str:
    return f"round{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def typical(series: MetricSeries, *, used: int) -> tuple[float | Absent, float | Absent]:
    """Mean baseline and candidate over the used rounds: geometric for ratios, arithmetic for points."""
    return _mean(series, side=0, used=used), _mean(series, side=1, used=used)


def _mean(series: MetricSeries, *, side: int, used: int) -> float | Absent:
    if isinstance(series.pairs, Absent):
        return series.pairs
    values = [pair[side] for pair in series.pairs[:used]]
    if not values:
        return Absent(absent="no complete round")
    if not all(math.isfinite(value) and (series.in_points or value > 0.0) for value in values):
        return Absent(absent="unbounded or unusable in at least one round")
    if series.in_points:
        return math.fsum(values) / len(values)
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def finite_pairs(series: MetricSeries, *, used: int) -> tuple[Pair, ...]:
    """The used rounds in which both sides have a finite value, for tables and charts."""
    if isinstance(series.pairs, Absent):
        return ()
    return tuple(pair for pair in series.pairs[:used] if math.isfinite(pair[0]) and math.isfinite(pair[1]))
