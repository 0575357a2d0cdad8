"""The arithmetic of the decision: paired worsenings, Student's t, looks and levels, Holm.

Everything here is pure and works on whole arrays, so that the code which judges one run is the very code that
`benchmarks/calibration.py` runs on thousands of simulated runs. docs/statistics.md says why each formula is used. This
module knows no metric by name, makes no verdict and prints nothing; it refuses schedules of looks whose level has not
been computed and proven (`benchmarks/calibration_levels.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from servegate_action.analysis.levels import LEVELS, ONE_LOOK_LEVEL
from servegate_action.errors import UsageError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.intp]

SD_FLOOR_RATIO: Final = 0.0005
"""Smallest SD of a per-round log-ratio that is believed: constant data must not give an infinite t."""

SD_FLOOR_POINTS: Final = 0.05
"""The same for metrics compared in percentage points: 0.0005 of 100."""

LEAST_REQUESTS_FOR_P95: Final = 72
"""Below this many requests a p95 has no finite 97.5 % upper bound: 1 − 0.95⁷¹ < 0.975 ≤ 1 − 0.95⁷²."""

POWER: Final = 0.9
"""Of the power forecast: nine times out of ten."""


# ---------------------------------------------------------------- Student's t


def student_tail(t: npt.ArrayLike, df: npt.ArrayLike) -> Floats:
    """P(T > t) for Student's t with `df` > 0 degrees of freedom (any real), elementwise.

    P(T > t) = ½·I_x(df/2, ½) with x = df / (df + t²) for t ≥ 0, and 1 − P(T > −t) otherwise; I is the regularized
    incomplete beta function (Abramowitz & Stegun 26.5.27, 26.7.1). Small tails keep their relative accuracy.
    """
    t_, df_ = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(df, dtype=np.float64))
    square = t_ * t_
    upper = 0.5 * _regularized_beta(df_ / 2.0, df_ / (df_ + square), square / (df_ + square))
    return np.where(t_ >= 0.0, upper, 1.0 - upper)


def _regularized_beta(a: Floats, x: Floats, y: Floats) -> Floats:
    """I_x(a, ½), with y = 1 − x given apart so that neither end loses digits."""
    half = np.full_like(a, 0.5)
    log_beta = np.asarray(_LOG_GAMMA(a) + math.lgamma(0.5) - _LOG_GAMMA(a + 0.5), dtype=np.float64)
    direct = x < (a + 1.0) / (a + 2.5)
    first, second = np.where(direct, a, half), np.where(direct, half, a)
    argument = np.where(direct, x, y)
    with np.errstate(divide="ignore"):
        front = np.exp(a * np.log(x) + 0.5 * np.log(y) - log_beta) / first
    part = front * _beta_fraction(first, second, argument)
    return np.where(direct, part, 1.0 - part)


_LOG_GAMMA: Final = np.frompyfunc(math.lgamma, 1, 1)


def _beta_fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """The continued fraction of the incomplete beta function (A&S 26.5.8), by the modified Lentz method.

    The numerators are d₂ₖ = k(b−k)x / ((a+2k−1)(a+2k)) and d₂ₖ₊₁ = −(a+k)(a+b+k)x / ((a+2k)(a+2k+1)). For
    x < (a+1)/(a+b+2) a few steps suffice; the loop ends when no element moves any more.
    """
    tiny = 1e-300
    c = np.ones_like(x)
    d = 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for k in range(1, 400):
        even = k * (b - k) * x / ((a + 2 * k - 1.0) * (a + 2.0 * k))
        d = 1.0 / _away_from_zero(1.0 + even * d, tiny)
        c = _away_from_zero(1.0 + even / c, tiny)
        value = value * d * c
        odd = -(a + k) * (a + b + k) * x / ((a + 2.0 * k) * (a + 2 * k + 1.0))
        d = 1.0 / _away_from_zero(1.0 + odd * d, tiny)
        c = _away_from_zero(1.0 + odd / c, tiny)
        value = value * d * c
        if np.all(np.abs(d * c - 1.0) < 1e-15):
            break
    return value


def _away_from_zero(values: Floats, tiny: float) -> Floats:
    return np.where(np.abs(values) < tiny, tiny, values)


@lru_cache(maxsize=1024)
def student_quantile(upper_tail: float, df: float) -> float:
    """The t with P(T > t) = `upper_tail`, 0 < upper_tail < 1, by bisection of `student_tail` to the last bit."""
    if not 0.0 < upper_tail < 1.0:
        raise ValueError(f"a tail probability lies between 0 and 1, got {upper_tail}")
    if upper_tail > 0.5:
        return -student_quantile(1.0 - upper_tail, df)
    low, high = 0.0, 1.0
    while float(student_tail(high, df)) > upper_tail:
        low, high = high, high * 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(student_tail(middle, df)) > upper_tail else (low, middle)
    return 0.5 * (low + high)


# ---------------------------------------------------------------- looks and levels


def level_for(looks: Sequence[int]) -> float:
    """The level a that each look of a schedule is tested at, so that all looks together stay within 5 %.

    The level of one look alone is .05. For more looks it is the a for which a paired t-test at the limit crosses at
    *any* of them with probability .05, less a reserve of about a twentieth for noise that is not normal
    (`benchmarks/calibration_levels.py` computes the table). Raises `UsageError` for a schedule that is not in it.
    """
    key = tuple(looks)
    if len(key) == 1 and key[0] >= 2 and key[0] % 2 == 0:
        return ONE_LOOK_LEVEL
    try:
        return LEVELS[key]
    except KeyError:
        raise UsageError(
            f"no level is known for looks after {', '.join(map(str, key)) or 'no'} rounds",
            why="each schedule of looks needs a level of its own, computed and proven by simulation beforehand",
            next_step="choose rounds.min and rounds.max between 2 and 40; looks are then the even numbers between them",
        ) from None


# ---------------------------------------------------------------- many metrics at once


@dataclass(frozen=True, slots=True)
class Rule:
    """What is fixed before the data are seen, one entry per metric (column).

    `margin`: D, the worsening still allowed: ln(1 + limit), or points. `sd_floor`: smallest SD believed. `family`: for
    gated metrics the number of the hypothesis that Holm counts (copies share it), −1 for metrics that are only shown.
    `may_pass`: False where no data can show the metric good (too few requests for a p95).
    """

    margin: Floats
    sd_floor: Floats
    family: Integers
    may_pass: Bools
    level: float


@dataclass(frozen=True, slots=True)
class Judged:
    """One look at all metrics. Shapes are those of the input without its round axis: (…, m).

    `mean` (d̄) and `half` (c·se) are in the unit of d, + is worse. `p` is one-sided, for "no worse"; `p_adjusted` is
    Holm's over the distinct gated metrics (1 for the others). `worse` and `better`: shown to differ from zero, each
    corrected for the number of metrics in the same way.
    """

    mean: Floats
    sd: Floats
    half: Floats
    p: Floats
    p_adjusted: Floats
    passed: Bools
    rejected: Bools
    beyond: Bools
    worse: Bools
    better: Bools


def judge(d: Floats, rule: Rule) -> Judged:
    """Judge worsenings `d` of shape (…, n rounds, m metrics) at one look. n must be even, or 2 at least.

    d̄ = mean, s = max(SD with n − 1, floor), se = s/√n, c = t-quantile(1 − a, n − 1); metric good if d̄ + c·se < D;
    bad if Holm rejects p = P(T > d̄/se) at level a and d̄ > D. docs/statistics.md.
    """
    n = d.shape[-2]
    mean = d.mean(axis=-2)
    sd = np.maximum(d.std(axis=-2, ddof=1), rule.sd_floor)
    error = sd / math.sqrt(n)
    half = student_quantile(rule.level, n - 1) * error
    p = student_tail(mean / error, n - 1)
    adjusted = holm(p, rule.family)
    beyond = mean > rule.margin
    return Judged(
        mean=mean,
        sd=sd,
        half=half,
        p=p,
        p_adjusted=adjusted,
        passed=(mean + half < rule.margin) & rule.may_pass,
        rejected=(adjusted <= rule.level) & beyond,
        beyond=beyond,
        worse=adjusted <= rule.level,
        better=holm(1.0 - p, rule.family) <= rule.level,
    )


def holm(p: Floats, family: Integers) -> Floats:
    """Holm's adjusted p-values along the last axis, over the distinct families; 1 where the family is −1.

    With p₍₀₎ ≤ p₍₁₎ ≤ … of m families the adjusted value is the running maximum of (m − i)·p₍ᵢ₎, capped at 1:
    adjusted ≤ a is the same as Holm's step-down at level a (Holm 1979). Copies have one p; should they differ in the
    last bits, the largest counts.
    """
    numbers = [number for number in dict.fromkeys(family.tolist()) if number >= 0]
    adjusted = np.ones_like(p)
    if not numbers:
        return adjusted
    distinct = np.stack([p[..., family == number].max(axis=-1) for number in numbers], axis=-1)
    order = np.argsort(distinct, axis=-1, kind="stable")
    remaining = np.arange(len(numbers), 0, -1)
    running = np.maximum.accumulate(np.take_along_axis(distinct, order, axis=-1) * remaining, axis=-1)
    back = np.empty_like(running)
    np.put_along_axis(back, order, np.minimum(running, 1.0), axis=-1)
    for position, number in enumerate(numbers):
        adjusted[..., family == number] = back[..., position, None]
    return adjusted


# ---------------------------------------------------------------- forecasts


def detectable(*, margin: float, sd: float, rounds: int, level: float, families: int) -> float:
    """The smallest true worsening that is REJECTed nine times out of ten, in the unit of d.

    Two things must happen: d̄ > D, which needs D + t₀.₉·se; and the t-test at Holm's first step a/m must reject, which
    needs a noncentrality λ with P(T' > c) = 0.9, where c is the quantile of a/m. λ ≈ c + z₀.₉·√(1 + c²/2df), Johnson &
    Welch's normal approximation of the noncentral t, good to a few per cent from 3 degrees of freedom on.
    """
    df = rounds - 1
    error = sd / math.sqrt(rounds)
    critical = student_quantile(level / max(families, 1), df)
    noncentrality = critical + _NORMAL_90 * math.sqrt(1.0 + critical * critical / (2.0 * df))
    return max(noncentrality * error, margin + student_quantile(1.0 - POWER, df) * error)


_NORMAL_90: Final = 1.2815515655446004


def rounds_to_decide(
    *, mean: float, sd: float, margin: float, rounds: int, looks: Sequence[int], families: int
) -> int | None:
    """The smallest even number of rounds above `rounds` that would decide if d̄ and s stayed as they are.

    A metric within its limit needs c·s/√n < D − d̄, one beyond it needs d̄·√n/s above Holm's first quantile. The level is
    that of the schedule, extended by further looks where n lies behind its end. None when 40 rounds would not do.
    """
    for n in range(rounds + 2 - rounds % 2, MOST_ROUNDS + 1, 2):
        level = level_for(looks if n <= looks[-1] else range(looks[0], n + 1, 2))
        error = sd / math.sqrt(n)
        good = mean + student_quantile(level, n - 1) * error < margin
        bad = mean > margin and mean >= student_quantile(level / max(families, 1), n - 1) * error
        if good or bad:
            return n
    return None


MOST_ROUNDS: Final = 40
"""The longest schedule that a level is known for."""
