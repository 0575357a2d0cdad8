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
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from servegate_action.analysis.levels import ALPHAS
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
    upper = _upper_tail(np.abs(t_), df_, _log_beta(df_ / 2.0))
    return np.where(t_ >= 0.0, upper, 1.0 - upper)


def _upper_tail(t: Floats, df: Floats, log_beta: Floats) -> Floats:
    """P(T > t) for t ≥ 0: ½·I_x(a, ½) with a = df/2, by the continued fraction at whichever end converges."""
    square = t * t
    a, half = df / 2.0, np.full_like(df, 0.5)
    x, y = df / (df + square), square / (df + square)
    direct = x < (a + 1.0) / (a + 2.5)
    first, second = np.where(direct, a, half), np.where(direct, half, a)
    with np.errstate(divide="ignore"):
        front = np.exp(a * np.log(x) + 0.5 * np.log(y) - log_beta) / first
    part = front * _beta_fraction(first, second, np.where(direct, x, y))
    return 0.5 * np.where(direct, part, 1.0 - part)


def _log_beta(a: Floats) -> Floats:
    """ln B(a, ½)."""
    return np.asarray(_LOG_GAMMA(a) - _LOG_GAMMA(a + 0.5) + math.lgamma(0.5), dtype=np.float64)


_LOG_GAMMA: Final = np.frompyfunc(math.lgamma, 1, 1)


def _beta_fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """The continued fraction of the incomplete beta function (A&S 26.5.8), by the modified Lentz method.

    The numerators are d₂ₖ = k(b−k)x / ((a+2k−1)(a+2k)) and d₂ₖ₊₁ = −(a+k)(a+b+k)x / ((a+2k)(a+2k+1)). For
    x < (a+1)/(a+b+2) a few steps suffice; the loop ends when no element moves any more.
    """
    tiny = 1e-300
    c = np.ones_like(x)
    d = 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    value, factor, k = d, np.zeros_like(x), 0
    while np.any(np.abs(factor - 1.0) > 1e-15) and k < 400:
        k += 1
        even = k * (b - k) * x / ((a + 2 * k - 1.0) * (a + 2.0 * k))
        d = 1.0 / _away_from_zero(1.0 + even * d, tiny)
        c = _away_from_zero(1.0 + even / c, tiny)
        value = value * d * c
        odd = -(a + k) * (a + b + k) * x / ((a + 2.0 * k) * (a + 2 * k + 1.0))
        d = 1.0 / _away_from_zero(1.0 + odd * d, tiny)
        c = _away_from_zero(1.0 + odd / c, tiny)
        factor = d * c
        value = value * factor
    return value


def _away_from_zero(values: Floats, tiny: float) -> Floats:
    return np.where(np.abs(values) < tiny, tiny, values)


def student_quantile(upper_tail: npt.ArrayLike, df: npt.ArrayLike) -> Floats:
    """The t with P(T > t) = `upper_tail`, elementwise, for 0 < upper_tail < ½ and real df > 0.

    Newton's method on ln P(T > eᵘ) = ln(upper_tail): that curve is concave and falling in u, so that from any start the
    second iterate lies right of the root and the rest fall monotonically to it. The start is the Cornish–Fisher
    expansion in 1/df (A&S 26.7.5).
    """
    p, df_ = np.broadcast_arrays(np.asarray(upper_tail, dtype=np.float64), np.asarray(df, dtype=np.float64))
    if not np.all((p > 0.0) & (p < 0.5)):
        raise ValueError("a quantile is asked for with an upper tail between 0 and 1/2")
    log_beta = _log_beta(df_ / 2.0)
    z = -np.asarray(_NORMAL_QUANTILE(p), dtype=np.float64)
    u = np.log(z + (z**3 + z) / (4.0 * df_) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * df_**2))
    step, iterations = np.ones_like(u), 0
    while np.any(np.abs(step) > 1e-13) and iterations < 100:
        t = np.exp(u)
        tail = _upper_tail(t, df_, log_beta)
        density = np.exp(-log_beta - 0.5 * (df_ + 1.0) * np.log1p(t * t / df_)) / np.sqrt(df_)
        step = tail / (t * density) * (np.log(tail) - np.log(p))
        u = u + step
        iterations += 1
    return np.asarray(np.exp(u), dtype=np.float64)


_NORMAL_QUANTILE: Final = np.frompyfunc(NormalDist().inv_cdf, 1, 1)


# ---------------------------------------------------------------- looks and levels


def levels_for(looks: Sequence[int]) -> tuple[float, ...]:
    """The level a of each look of a schedule, so that all looks together stay within 5 %.

    The i-th look is tested at a = i·α: strict while there are few rounds, generous at the end. α is the largest for
    which a metric exactly at its limit crosses at *any* look with probability .05, in the worst case over how noisy the
    candidate is and how much noise the two launches of a round share (`benchmarks/calibration_levels.py` computes the
    table). Raises `UsageError` for a schedule that is not in it.
    """
    key = tuple(looks)
    if key not in ALPHAS:
        raise UsageError(
            f"no level is known for looks after {', '.join(map(str, key)) or 'no'} rounds",
            why="each schedule of looks needs a level of its own, computed and proven by simulation beforehand",
            next_step="choose rounds.min and rounds.max between 2 and 40; looks are then the even numbers between them",
        )
    return tuple(ALPHAS[key] * number for number in range(1, len(key) + 1))


# ---------------------------------------------------------------- noise


@dataclass(frozen=True, slots=True)
class Noise:
    """How uncertain d̄ is: `variance` of one d_r (so that se = √(variance/n)) and its degrees of freedom, per metric.

    `paired`: per run, whether it comes from the differences within rounds (True) or from the launches (False).
    """

    variance: Floats
    df: Floats
    paired: Bools


def noise(baseline: Floats, candidate: Floats, rule: Rule) -> Noise:
    """The variance of the worsening, from scores of shape (…, n, m), by the estimate that this run's noise calls for.

    Two honest estimates exist. *Within rounds*: the variance of the differences d_r, n − 1 degrees of freedom; whatever
    the two launches of a round share cancels. *From launches*: the variances of both stacks' launches added, after a
    linear drift over the slots A B | B A | … is taken out; nothing shared cancels, but there are up to 2n − 3 degrees of
    freedom (Satterthwaite). When pairing takes away at least half of the variance, in the geometric mean over all
    distinct gated metrics, the first is used for every metric, else the second. d̄ is the same in both. With fewer than
    four rounds only the first exists. The price of choosing by the data is in the levels.
    """
    n = baseline.shape[-2]
    difference = candidate - baseline
    within = difference.var(axis=-2, ddof=1)
    pairs = np.full_like(within, n - 1.0)
    if n < 4:
        return Noise(within, pairs, np.ones(within.shape[:-1], dtype=np.bool_))
    across, freedom = _launch_variance(baseline, candidate)
    paired = _pairing_helps(within, across, rule)
    chosen = paired[..., None]
    return Noise(np.where(chosen, within, across), np.where(chosen, pairs, freedom), paired)


def _launch_variance(baseline: Floats, candidate: Floats) -> tuple[Floats, Floats]:
    """The summed variances of both stacks' launches about their means and a common linear drift, and their df.

    With slots numbered through in order of time and centred, the drift b is the least-squares slope within stacks; in
    A B | B A | … with even n the slots of both stacks have the same mean, so that b leaves d̄ alone. Each stack is charged
    half of the degree of freedom that b costs, which makes the sum unbiased however unequal the stacks are.
    """
    n = baseline.shape[-2]
    first, second = slots(n)
    a, b = (scores - scores.mean(axis=-2, keepdims=True) for scores in (baseline, candidate))
    at_first, at_second = first[:, None], second[:, None]
    slope = ((a * at_first).sum(axis=-2) + (b * at_second).sum(axis=-2)) / float((first**2).sum() + (second**2).sum())
    left_a = ((a - slope[..., None, :] * at_first) ** 2).sum(axis=-2) / (n - 1.5)
    left_b = ((b - slope[..., None, :] * at_second) ** 2).sum(axis=-2) / (n - 1.5)
    total = left_a + left_b
    squares = np.maximum(left_a**2 + left_b**2, np.finfo(np.float64).tiny)
    freedom = np.maximum((n - 1.5) * total**2 / squares, 1.0)
    return np.asarray(total, dtype=np.float64), np.asarray(freedom, dtype=np.float64)


def slots(n: int) -> tuple[Floats, Floats]:
    """When, in launches from the middle of the run, baseline and candidate of each round ran: A B | B A | A B | …"""
    rounds = np.arange(n, dtype=np.float64)
    late = rounds % 2.0
    middle = n - 0.5
    return np.asarray(2.0 * rounds + late - middle), np.asarray(2.0 * rounds + 1.0 - late - middle)


def _pairing_helps(within: Floats, across: Floats, rule: Rule) -> Bools:
    """Whether the variance within rounds is at most half of that of launches, in the geometric mean over metrics.

    Each distinct gated metric counts once; those without any noise (below the floor) say nothing. Without any to go by,
    pairing is taken: it assumes less.
    """
    members = [int(np.flatnonzero(rule.family == number)[0]) for number in _numbers(rule.family)]
    w, x = within[..., members], across[..., members]
    floor = rule.sd_floor[members] ** 2
    counts = (w > floor) & (x > floor)
    ratio = np.where(counts, np.log(np.where(counts, w, 1.0)) - np.log(np.where(counts, x, 1.0)), 0.0)
    return np.asarray(ratio.sum(axis=-1) <= math.log(PAIRING_GAIN) * counts.sum(axis=-1), dtype=np.bool_)


PAIRING_GAIN: Final = 0.5
"""Pairing must bring the variance down to this share to be worth the degrees of freedom that it costs."""


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


@dataclass(frozen=True, slots=True)
class Judged:
    """One look at all metrics. Shapes are those of the input without its round axis: (…, m).

    `mean` (d̄), `sd` (s) and `half` (c·se) are in the unit of d, + is worse. `p` is one-sided, for "no worse";
    `p_adjusted` is Holm's over the distinct gated metrics (1 for the others). `worse` and `better`: shown to differ from
    zero, corrected for the number of metrics in the same way. `paired` as in `Noise`.
    """

    mean: Floats
    sd: Floats
    df: Floats
    half: Floats
    p: Floats
    p_adjusted: Floats
    passed: Bools
    rejected: Bools
    beyond: Bools
    worse: Bools
    better: Bools
    paired: Bools


def judge(baseline: Floats, candidate: Floats, rule: Rule, level: float) -> Judged:
    """Judge scores (+ is worse) of shape (…, n rounds, m metrics) at one look, n ≥ 2.

    d̄ = mean(candidate − baseline), s² from `noise`, never below the floor, se = s/√n, c = t-quantile(1 − a, df). A metric
    is good if d̄ + c·se < D; bad if Holm rejects p = P(T > d̄/se) at level a and d̄ > D. docs/statistics.md says why.
    """
    n = baseline.shape[-2]
    mean = (candidate - baseline).mean(axis=-2)
    estimate = noise(baseline, candidate, rule)
    sd = np.maximum(np.sqrt(estimate.variance), rule.sd_floor)
    error = sd / math.sqrt(n)
    half = student_quantile(level, estimate.df) * error
    p = student_tail(mean / error, estimate.df)
    adjusted = holm(p, rule.family)
    beyond = mean > rule.margin
    return Judged(
        mean=mean,
        sd=sd,
        df=estimate.df,
        half=half,
        p=p,
        p_adjusted=adjusted,
        passed=(mean + half < rule.margin) & rule.may_pass,
        rejected=(adjusted <= level) & beyond,
        beyond=beyond,
        worse=adjusted <= level,
        better=holm(1.0 - p, rule.family) <= level,
        paired=estimate.paired,
    )


def holm(p: Floats, family: Integers) -> Floats:
    """Holm's adjusted p-values along the last axis, over the distinct families; 1 where the family is −1.

    With p₍₀₎ ≤ p₍₁₎ ≤ … of m families the adjusted value is the running maximum of (m − i)·p₍ᵢ₎, capped at 1:
    adjusted ≤ a is the same as Holm's step-down at level a (Holm 1979). Copies have one p; should they differ in the
    last bits, the largest counts.
    """
    numbers = _numbers(family)
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


def _numbers(family: Integers) -> list[int]:
    return [number for number in dict.fromkeys(family.tolist()) if number >= 0]


# ---------------------------------------------------------------- forecasts


@dataclass(frozen=True, slots=True)
class Spread:
    """The noise of metrics, seen over `rounds` rounds: s of d_r and its degrees of freedom, one entry per metric."""

    sd: Floats
    df: Floats
    rounds: int

    def error(self, rounds: npt.ArrayLike) -> Floats:
        """se of d̄ after that many rounds, the noise staying as it is."""
        return np.asarray(self.sd / np.sqrt(rounds), dtype=np.float64)

    def df_after(self, rounds: npt.ArrayLike) -> Floats:
        """The degrees of freedom that as many rounds would give: they grow with n − 1."""
        return np.asarray(self.df * (np.asarray(rounds) - 1) / (self.rounds - 1), dtype=np.float64)


def detectable(spread: Spread, *, margin: Floats, looks: Sequence[int], rounds: int, families: int) -> Floats:
    """The smallest true worsenings that are REJECTed nine times out of ten after `rounds` rounds, in the unit of d.

    Two things must happen: d̄ > D, which needs D + t₀.₉·se; and the t-test at Holm's first step a/m must reject, which
    needs a noncentrality λ with P(T' > c) = 0.9, where c is the quantile of a/m. λ ≈ c + z₀.₉·√(1 + c²/2df), the normal
    approximation of the noncentral t, errs by less than a tenth of the power from 3 degrees of freedom on.
    """
    df, error = spread.df_after(rounds), spread.error(rounds)
    tails = np.array([[_level_at(looks, rounds) / max(families, 1)], [1.0 - POWER]])
    critical, estimate_too_low = student_quantile(tails, df)
    noncentrality = critical + _NORMAL_90 * np.sqrt(1.0 + critical * critical / (2.0 * df))
    return np.asarray(np.maximum(noncentrality * error, margin + estimate_too_low * error), dtype=np.float64)


_NORMAL_90: Final = 1.2815515655446004


def rounds_to_decide(
    spread: Spread, *, mean: Floats, margin: Floats, looks: Sequence[int], rounds: int, families: int
) -> list[int | None]:
    """The smallest even numbers of rounds above `rounds` that would decide if d̄ and s stayed as they are.

    A metric within its limit needs c·s/√n < D − d̄, one beyond it needs d̄·√n/s above Holm's first quantile. None when 40
    rounds would not do.
    """
    later = range(rounds + 2 - rounds % 2, MOST_ROUNDS + 1, 2)
    if not later:
        return [None] * len(mean)
    column = np.array(later, dtype=np.float64)[:, None]
    levels = np.array([_level_at(looks, n) for n in later])[:, None]
    tails = np.where(mean <= margin, levels, levels / max(families, 1))
    needed = student_quantile(tails, spread.df_after(column)) * spread.error(column)
    decided = np.where(mean <= margin, mean + needed < margin, mean >= needed)
    return [next((n for n, enough in zip(later, one, strict=True) if enough), None) for one in decided.T.tolist()]


def _level_at(looks: Sequence[int], rounds: int) -> float:
    """The level of the look at or after `rounds`, in the schedule prolonged by further looks if it ends before."""
    schedule = tuple(looks) if rounds <= looks[-1] else tuple(range(looks[0], rounds + 1, 2))
    return next(level for look, level in zip(schedule, levels_for(schedule), strict=True) if look >= rounds)


MOST_ROUNDS: Final = 40
"""The longest schedule that a level is known for."""
