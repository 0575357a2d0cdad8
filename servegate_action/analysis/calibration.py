"""What a run of the baseline against itself says about this runner: its noise, and the limits that it can honour.

`calibrate` takes the paired values of A/A rounds and returns, per metric, the SD of a round's log-ratio, the noise floor
(the smallest limit under which an unchanged build passes reliably), the smallest regression that is caught nine times
out of ten, and a suggested limit. `warnings` compares a later configuration with it before GPU time is spent. Nothing in
here changes a limit: suggestions are printed, never applied. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from pydantic import Field

from servegate_action.analysis import headline, stats
from servegate_action.analysis.judgement import Direction, MetricKey
from servegate_action.analysis.series import MetricSeries, Undecidable, scores
from servegate_action.config.limits import Limit, Limits
from servegate_action.records import Record

CALIBRATION_ROUNDS: Final = 8
FLOOR_IN_SD: Final = 3.0
"""Floor = 3·s at eight rounds: twenty metrics pass together in more than nine of ten runs, in six rounds on average."""

LEAST_ROUNDS: Final = 4


class Runner(Record):
    """What a calibration depends on. Another accelerator is another machine; anything else that differs is a doubt."""

    accelerator: str = Field(description="`1x NVIDIA H100 80GB HBM3`, or the CPU's name")
    driver: str
    hostname: str
    workload_sha256: str


class MetricNoise(Record):
    """The noise of one metric between launches of the same stack, as relative changes (0.02 = 2 %) or points.

    `sd` is of this metric alone; `kind_sd` pools the metrics of its kind (all cells), which is steadier and what `floor`,
    `detectable` and `suggested` are computed from.
    """

    key: MetricKey
    unit: Literal["ratio", "points"]
    direction: Direction
    sd: float
    kind_sd: float
    floor: float
    detectable: float
    limit: Limit
    suggested: Limit
    gated: bool


class Calibration(Record):
    """`calibration.json`: what one runner was found able to show, and when."""

    schema_version: Literal[1] = 1
    date: str = Field(description="UTC, ISO 8601")
    runner: Runner
    rounds: int
    looks: tuple[int, ...]
    noise_from: Literal["rounds", "launches"]
    metrics: tuple[MetricNoise, ...]
    absent: dict[str, str] = Field(description="metrics that could not be calibrated, with the reason")


@dataclass(frozen=True, slots=True)
class _Measured:
    """One metric that has an SD."""

    series: MetricSeries
    sd: float

    @property
    def kind(self) -> tuple[str, bool, str]:
        """Metrics of one kind: the same name and unit, over the mix or in a cell."""
        return (self.series.key.metric.value, self.series.key.cell is None, self.series.limit.unit)


def calibrate(
    series: Sequence[MetricSeries], *, rounds: int, looks: Sequence[int], date: str, runner: Runner
) -> Calibration:
    """Evaluate `rounds` A/A rounds for the schedule `looks` that later runs will use. Needs four rounds at least.

    s is the RMS over the metrics of one kind, from the same estimate of noise as the verdict's. Raises `ValueError` with
    fewer rounds: two launches have no spread worth the name.
    """
    if rounds < LEAST_ROUNDS:
        raise ValueError(f"a calibration needs {LEAST_ROUNDS} rounds at least, got {rounds}")
    used = rounds - rounds % 2
    columns = [(one, scores(one, rounds=rounds, used=used)) for one in series]
    usable = [(one, column) for one, column in columns if not isinstance(column, Undecidable)]
    measured, noise_from = _measure(usable)
    pooled = _pool(measured)
    families = len({one.series.copy_of or one.series.key for one in measured if one.series.gated})
    return Calibration(
        date=date,
        runner=runner,
        rounds=used,
        looks=tuple(looks),
        noise_from=noise_from,
        metrics=tuple(_noise(one, pooled[one.kind], looks, families) for one in measured),
        absent={str(one.key): column.reason for one, column in columns if isinstance(column, Undecidable)},
    )


def _measure(
    usable: Sequence[tuple[MetricSeries, tuple[stats.Floats, stats.Floats]]],
) -> tuple[list[_Measured], Literal["rounds", "launches"]]:
    """The SD of each usable metric. The choice of the estimate is made by the gated ones, as in the verdict."""
    if not usable:
        return [], "rounds"
    baseline = np.stack([column[0] for _, column in usable], axis=-1)
    candidate = np.stack([column[1] for _, column in usable], axis=-1)
    keys = [one.copy_of or one.key for one, _ in usable]
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    rule = stats.Rule(
        margin=np.array([one.margin for one, _ in usable]),
        sd_floor=np.array([one.sd_floor for one, _ in usable]),
        family=np.array([number[key] if one.gated else -1 for key, (one, _) in zip(keys, usable, strict=True)]),
        may_pass=np.ones(len(usable), dtype=np.bool_),
    )
    noise = stats.noise(baseline, candidate, rule)
    sds = np.maximum(np.sqrt(noise.variance), rule.sd_floor).tolist()
    measured = [_Measured(one, sd) for (one, _), sd in zip(usable, sds, strict=True)]
    return measured, "rounds" if bool(noise.paired) else "launches"


def _pool(measured: Sequence[_Measured]) -> Mapping[tuple[str, bool, str], float]:
    """RMS of the SDs of each kind."""
    kinds: dict[tuple[str, bool, str], list[float]] = {}
    for one in measured:
        kinds.setdefault(one.kind, []).append(one.sd)
    return {kind: math.sqrt(math.fsum(sd * sd for sd in sds) / len(sds)) for kind, sds in kinds.items()}


def _noise(measured: _Measured, pooled: float, looks: Sequence[int], families: int) -> MetricNoise:
    series, last = measured.series, looks[-1]
    spread = stats.Spread(sd=np.array([pooled]), df=np.array([last - 1.0]), rounds=last)
    margin = np.array([series.margin])
    seen = stats.detectable(spread, margin=margin, looks=looks, rounds=last, families=families)
    floor = floor_of(pooled, last)
    unit = series.limit.unit
    return MetricNoise(
        key=series.key,
        unit=unit,
        direction=series.direction,
        sd=_shown(measured.sd, unit),
        kind_sd=_shown(pooled, unit),
        floor=_shown(floor, unit),
        detectable=_shown(float(seen[0]), unit),
        limit=series.limit,
        suggested=_suggested(series.limit, _shown(floor, unit)),
        gated=series.gated,
    )


def floor_of(sd: float, last_look: int) -> float:
    """The noise floor in the unit of d: 3·s at eight rounds, and with 1/√n otherwise."""
    return FLOOR_IN_SD * sd * math.sqrt(CALIBRATION_ROUNDS / last_look)


def _shown(value: float, unit: str) -> float:
    return value if unit == "points" else math.expm1(value)


def _suggested(limit: Limit, floor: float) -> Limit:
    """The configured limit where the runner can honour it, else the floor rounded up to half a per cent or point."""
    if floor <= limit.value:
        return limit
    step = 0.5 if limit.unit == "points" else 0.005
    return Limit(value=round(math.ceil(floor / step - 1e-9) * step, 6), unit=limit.unit)


# ---------------------------------------------------------------- a later run


def warnings(
    calibration: Calibration,
    gated: Sequence[tuple[MetricKey, Limit]],
    *,
    runner: Runner,
    looks: Sequence[int],
) -> tuple[str, ...]:
    """What to tell the user before a run: limits below this runner's floor, and what makes the calibration doubtful.

    Empty when every limit can be honoured. A calibration of another accelerator (of another CPU, where the CPU is the
    accelerator) says nothing and is reported as such.
    """
    then, day = calibration.runner, calibration.date[:10]
    if then.accelerator != runner.accelerator:
        return (
            f"the calibration of {day} is not used: the accelerator was {then.accelerator}, is {runner.accelerator}",
        )
    known = {metric.key: metric for metric in calibration.metrics}
    doubts = "; ".join(_doubts(then, runner))
    notes = [f"the calibration of {day} may be out of date: {doubts}"] if doubts else []
    low = [_too_low(known[key], limit, looks) for key, limit in gated if key in known]
    tight = [sentence for sentence in low if sentence is not None]
    return (*notes, *tight, *((WAYS_OUT,) if tight else ()))


WAYS_OUT: Final = (
    "under such limits an unchanged build is likely INCONCLUSIVE. Ways out: more rounds (rounds.max), more requests or less "
    "load per cell, a larger declared limit, or the metric under limits.advisory"
)


def _doubts(then: Runner, now: Runner) -> Iterator[str]:
    """What may have changed the noise. A host's name is no more than a doubt: each container has another one."""
    if then.hostname != now.hostname:
        yield f"the host was {then.hostname}, is {now.hostname}"
    if then.driver != now.driver:
        yield f"the driver was {then.driver}, is {now.driver}"
    if then.workload_sha256 != now.workload_sha256:
        yield "it was made with another workload"


def _too_low(metric: MetricNoise, limit: Limit, looks: Sequence[int]) -> str | None:
    if limit.unit != metric.unit:
        return None
    in_d = metric.kind_sd if metric.unit == "points" else math.log1p(metric.kind_sd)
    floor = _shown(floor_of(in_d, looks[-1]), metric.unit)
    if limit.value >= floor:
        return None
    scale, unit = (1.0, " points") if limit.unit == "points" else (100.0, " %")
    return (
        f"{headline.name(metric.key)}: limit {limit.value * scale:.3g}{unit} is below this runner's floor "
        f"{floor * scale:.{0 if floor * scale >= 10.0 else 1}f}{unit} at {looks[-1]} rounds"
    )


# ---------------------------------------------------------------- what is said of it


def suggested_limits(calibration: Calibration, limits: Limits) -> Limits:
    """`limits` with the suggestions in their places: of gated metrics, and over the cells the largest of each kind."""
    mix: dict[str, Limit] = {}
    cells: dict[str, Limit] = {}
    for metric in calibration.metrics:
        if not metric.gated or metric.suggested == metric.limit:
            continue
        place, name = (mix if metric.key.cell is None else cells), metric.key.metric.value
        place[name] = max(metric.suggested, place.get(name, metric.suggested), key=lambda limit: limit.value)
    return limits.model_copy(update={**mix, "cells": limits.cells.model_copy(update=cells)})


def table(calibration: Calibration) -> tuple[tuple[str, ...], ...]:
    """Rows of text for a terminal: metric, SD, floor, caught 9 of 10, limit, suggested. Absent metrics say why."""

    def number(value: float, unit: str) -> str:
        return f"{value:.2f} points" if unit == "points" else f"{100.0 * value:.2f} %"

    def suggestion(metric: MetricNoise) -> str:
        if not metric.gated:
            return "not gated"
        return number(metric.suggested.value, metric.unit) if metric.suggested != metric.limit else "keep"

    rows = [
        (
            headline.name(metric.key),
            number(metric.sd, metric.unit),
            number(metric.floor, metric.unit),
            number(metric.detectable, metric.unit),
            number(metric.limit.value, metric.unit),
            suggestion(metric),
        )
        for metric in calibration.metrics
    ]
    gone = [(key, *("-",) * 4, reason) for key, reason in calibration.absent.items()]
    return (("metric", "SD of a round", "floor", "caught 9 of 10", "limit", "suggested"), *rows, *gone)
