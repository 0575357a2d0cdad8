"""Playing whole runs: the shipped rule and, to compare with, the one that it replaced.

`play` takes the scores of many runs through the looks of a schedule, as `decide` does for one. Nothing about the shipped
rule is written again in here: each look is `stats.judge`, and `agrees_with_decide` holds the walk through the looks
against `decide` itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np

from benchmarks import calibration_model as model
from servegate_action.analysis import stats
from servegate_action.analysis.judgement import Direction, MetricKey, Word
from servegate_action.analysis.series import MetricSeries
from servegate_action.analysis.stats import Bools, Floats
from servegate_action.analysis.verdict import decide
from servegate_action.config.limits import Limit, MetricName

RuleName = Literal[
    "differences, equal levels",
    "differences, rising levels",
    "shipped",
    "shipped, PASS kept from earlier looks",
    "shipped, SD moderated by a calibration",
]
RULES: Final[tuple[RuleName, ...]] = get_args(RuleName)
Schedule = tuple[tuple[int, ...], tuple[float, ...]]

EQUAL_LEVEL: Final = 0.0225
"""Of paired t-tests at 4, 6, 8 rounds with one level for all looks."""

RISING_LEVELS: Final = (0.0110, 0.0220, 0.0330)
"""Of the same, rising from look to look."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How each run ended; the interval of each metric where it stopped, + is worse."""

    passed: Bools
    rejected: Bools
    rounds: np.ndarray[tuple[int], np.dtype[np.intp]]
    lower: Floats
    upper: Floats


def play(
    rule: RuleName,
    baseline: Floats,
    candidate: Floats,
    limits: Floats,
    schedule: Schedule,
    calibrated: Floats | None = None,
) -> Outcomes:
    """Take many runs through their looks; each stops at the first that decides. `limits` per metric, or per run too.

    `calibrated`: variance of d of each run and metric from a calibration, for the rule that uses one.
    """
    looks, levels = schedule
    runs, _, metrics = baseline.shape
    fixed = stats.Rule(
        margin=np.log1p(limits),
        sd_floor=np.full(metrics, stats.SD_FLOOR_RATIO),
        family=np.arange(metrics),
        may_pass=np.ones(metrics, dtype=np.bool_),
    )
    passed, rejected = np.zeros(runs, dtype=np.bool_), np.zeros(runs, dtype=np.bool_)
    rounds = np.full(runs, looks[-1], dtype=np.intp)
    lower, upper = np.zeros((runs, metrics)), np.zeros((runs, metrics))
    kept = np.zeros((runs, metrics), dtype=np.bool_)
    going = np.arange(runs)
    for look, level in zip(looks, _levels(rule, levels), strict=True):
        own = fixed if limits.ndim == 1 else replace(fixed, margin=fixed.margin[going])
        before = None if calibrated is None else calibrated[going]
        judged = _look(rule, baseline[going, :look], candidate[going, :look], own, level, before)
        kept[going] = (kept[going] & (judged.mean < own.margin) if "kept" in rule else False) | judged.passed
        bad = judged.rejected.any(axis=-1)
        good = kept[going].all(axis=-1) & ~bad
        lower[going], upper[going] = judged.mean - judged.half, judged.mean + judged.half
        passed[going], rejected[going] = good, bad
        rounds[going[bad | good]] = look
        going = going[~(bad | good)]
    return Outcomes(passed, rejected, rounds, lower, upper)


def _levels(rule: RuleName, levels: tuple[float, ...]) -> tuple[float, ...]:
    if rule == "differences, equal levels":
        return (EQUAL_LEVEL,) * len(levels)
    return RISING_LEVELS if rule == "differences, rising levels" else levels


def _look(
    rule: RuleName,
    baseline: Floats,
    candidate: Floats,
    fixed: stats.Rule,
    level: float,
    calibrated: Floats | None,
) -> Look:
    if "moderated" in rule and calibrated is not None:
        return _moderated(baseline, candidate, fixed, level, calibrated)
    if rule.startswith("shipped"):
        judged = stats.judge(baseline, candidate, fixed, level)
        return Look(judged.mean, judged.half, judged.passed, judged.rejected)
    n = baseline.shape[-2]
    d = candidate - baseline
    return _test(d.mean(axis=-2), d.var(axis=-2, ddof=1), np.full(d.shape[::2], n - 1.0), fixed, level, n)


def _moderated(baseline: Floats, candidate: Floats, fixed: stats.Rule, level: float, calibrated: Floats) -> Look:
    """The shipped estimate, averaged with that of a calibration that counts as eight degrees of freedom."""
    found = stats.noise(baseline, candidate, fixed)
    variance = (found.df * found.variance + 8.0 * calibrated) / (found.df + 8.0)
    mean = (candidate - baseline).mean(axis=-2)
    return _test(mean, variance, found.df + 8.0, fixed, level, baseline.shape[-2])


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found, per run and metric."""

    mean: Floats
    half: Floats
    passed: Bools
    rejected: Bools


def _test(mean: Floats, variance: Floats, df: Floats, fixed: stats.Rule, level: float, n: int) -> Look:
    """The shipped test, on a variance of other origin."""
    error = np.maximum(np.sqrt(variance), fixed.sd_floor) / math.sqrt(n)
    half = stats.student_quantile(level, df) * error
    adjusted = stats.holm(stats.student_tail(mean / error, df), fixed.family)
    return Look(mean, half, mean + half < fixed.margin, (adjusted <= level) & (mean > fixed.margin))


def agrees_with_decide(
    outcomes: Outcomes, baseline: Floats, candidate: Floats, limits: Floats, looks: Sequence[int], sample: int = 1
) -> None:
    """Hold the first few runs against `decide`; raises `AssertionError` with the run's number when they differ."""
    for run in range(min(sample, len(outcomes.rounds))):
        word, rounds = _decided(baseline[run], candidate[run], limits, looks)
        expected = Word.PASS if outcomes.passed[run] else Word.REJECT if outcomes.rejected[run] else Word.INCONCLUSIVE
        if (word, rounds) != (expected, outcomes.rounds[run]):
            raise AssertionError(f"run {run}: decide says {word} after {rounds}, the benchmark {expected}")


def _decided(baseline: Floats, candidate: Floats, limits: Floats, looks: Sequence[int]) -> tuple[Word, int]:
    """`decide` after each look, as a run would ask it, from values rather than scores."""
    values_a, values_b = np.exp(baseline), np.exp(candidate)
    for look in looks:
        series = [
            MetricSeries(
                key=MetricKey(metric=MetricName.TPOT_P95, cell=str(column)),
                direction=Direction.LOWER,
                unit="ms",
                pairs=tuple(zip(values_a[:look, column].tolist(), values_b[:look, column].tolist(), strict=True)),
                limit=Limit(value=float(limits[column])),
            )
            for column in range(len(model.METRICS))
        ]
        decision = decide(series, (), rounds=look, looks=looks)
        if decision.next_look is None:
            return decision.word, look
    raise AssertionError("a run ends at its last look at the latest")
