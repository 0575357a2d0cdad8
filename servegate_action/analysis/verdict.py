"""The only place that says PASS, REJECT, INCONCLUSIVE or INVALID.

`decide` takes the paired per-round values of every metric and the hard checks beside them, and returns one `Decision`:
the gate's word, each metric's outcome, and whether another look would help. docs/statistics.md explains the rule. It is
sequential: a verdict is taken at the scheduled looks and at no other number of rounds. What is missing, infinite or
senseless makes a metric undecidable, never good. Pure: no clock, no file, no randomness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from servegate_action.analysis import headline, stats
from servegate_action.analysis.judgement import Change95, Direction, HardCheck, MetricVerdict, Outcome, Word
from servegate_action.analysis.series import MetricSeries, Undecidable, finite_pairs, scores, typical
from servegate_action.records import Absent

NoiseSource = Literal["rounds", "launches"]
"""The differences within rounds, or the launches of both stacks with a linear drift taken out."""

__all__ = ["Decision", "MetricSeries", "decide"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be said after `rounds_used` rounds.

    `next_look` is the round count to go on to; None ends the run. `level` is a of the look that was reached. `noise` is
    the median SD of d over gated ratios, `noise_from` what all SDs were estimated from (docs/statistics.md).
    """

    word: Word
    headline: str
    advice: tuple[str, ...]
    metrics: tuple[MetricVerdict, ...]
    rejected: tuple[str, ...]
    next_look: int | None
    rounds_used: int
    level: float
    distinct: int
    noise: float | Absent
    noise_from: NoiseSource


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where in its schedule a run stands. `used`: rounds that count; `at_look`: whether they may decide anything."""

    rounds: int
    used: int
    at_look: bool
    looks: tuple[int, ...]
    stopped: str | None

    @property
    def level(self) -> float:
        """a of the look that was reached; before the first look, of the first."""
        levels = stats.levels_for(self.looks)
        return next(a for look, a in zip(self.looks, levels, strict=True) if look >= self.used)

    @property
    def next_look(self) -> int | None:
        """The next look, when the run may go on."""
        later = [look for look in self.looks if look > self.rounds]
        return later[0] if later and self.stopped is None else None

    @property
    def horizon(self) -> int:
        """The round count that the power forecast speaks of: where an undecided metric would have been looked at last."""
        return self.looks[-1] if self.stopped is None else max(self.used, 2)


def decide(
    series: Sequence[MetricSeries],
    checks: Sequence[HardCheck],
    *,
    rounds: int,
    looks: Sequence[int],
    stopped: str | None = None,
) -> Decision:
    """Judge `rounds` complete rounds, in the order in which they were measured.

    `looks` is the schedule fixed before the run (`UsageError` when its level is not known). `stopped` says why no further
    round will come (budget spent, a stack died, cancelled); None while the run may go on. Data count up to the last look
    that was reached: later rounds are not used, and before the first look nothing can pass or be rejected.
    """
    stage = _stage(rounds, tuple(looks), stopped)
    family = _families(series)
    verdicts = _judge(series, family, stage)
    metrics = verdicts.metrics
    word = _word(metrics, checks, stage)
    facts = headline.Facts(
        word=word,
        metrics=metrics,
        checks=tuple(checks),
        distinct=len(set(family) - {-1}),
        rounds_used=stage.used,
        rounds_measured=rounds,
        rounds_planned=stage.looks[-1],
        next_look=_next_look(word, metrics, checks, stage),
        stopped=stopped,
    )
    return Decision(
        word=word,
        headline=headline.sentence(facts),
        advice=headline.advice(facts),
        metrics=metrics,
        rejected=headline.rejected(facts),
        next_look=facts.next_look,
        rounds_used=stage.used,
        level=stage.level,
        distinct=facts.distinct,
        noise=_noise(metrics),
        noise_from=verdicts.noise_from,
    )


def _stage(rounds: int, looks: tuple[int, ...], stopped: str | None) -> _Stage:
    stats.levels_for(looks)
    reached = [look for look in looks if look <= rounds]
    used = reached[-1] if reached else max(rounds - rounds % 2, min(rounds, 1))
    return _Stage(rounds=rounds, used=used, at_look=bool(reached), looks=looks, stopped=stopped)


def _families(series: Sequence[MetricSeries]) -> list[int]:
    """The number of the hypothesis that each series stands for; gated copies share one, −1 is not counted."""
    keys = [one.copy_of or one.key for one in series]
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return [number[key] if one.gated else -1 for key, one in zip(keys, series, strict=True)]


# ---------------------------------------------------------------- each metric


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """All metrics at one look, and where their noise was estimated from."""

    metrics: tuple[MetricVerdict, ...]
    noise_from: NoiseSource


def _judge(series: Sequence[MetricSeries], family: list[int], stage: _Stage) -> _Verdicts:
    """All metrics at one look. Fewer than two rounds have no spread: every metric is then undecided."""
    if stage.used < 2 or not series:
        early = Undecidable("one round has no spread" if stage.used else "no complete round")
        return _Verdicts(tuple(_undecided(one, early, stage) for one in series), "rounds")
    columns = [scores(one, rounds=stage.rounds, used=stage.used) for one in series]
    blank = np.zeros(stage.used)
    pairs = [(blank, blank) if isinstance(column, Undecidable) else column for column in columns]
    baseline, candidate = (np.stack([pair[side] for pair in pairs], axis=-1) for side in (0, 1))
    judged = stats.judge(baseline, candidate, _rule(series, family), stage.level)
    families = len(set(family) - {-1})
    return _Verdicts(
        tuple(
            _undecided(one, column, stage)
            if isinstance(column, Undecidable)
            else _decided(one, _Cell.of(judged, index), stage, families)
            for index, (one, column) in enumerate(zip(series, columns, strict=True))
        ),
        "rounds" if bool(judged.paired) else "launches",
    )


def _rule(series: Sequence[MetricSeries], family: list[int]) -> stats.Rule:
    return stats.Rule(
        margin=np.array([one.margin for one in series]),
        sd_floor=np.array([one.sd_floor for one in series]),
        family=np.array(family, dtype=np.intp),
        may_pass=np.array([_enough(one) for one in series]),
    )


def _enough(series: MetricSeries) -> bool:
    return series.requests is None or series.requests >= stats.LEAST_REQUESTS_FOR_P95


@dataclass(frozen=True, slots=True)
class _Cell:
    """One metric's column of `stats.Judged`, as plain numbers."""

    mean: float
    sd: float
    df: float
    half: float
    p: float
    p_adjusted: float
    passed: bool
    rejected: bool
    beyond: bool
    worse: bool
    better: bool

    @classmethod
    def of(cls, judged: stats.Judged, index: int) -> _Cell:
        return cls(
            mean=float(judged.mean[index]),
            sd=float(judged.sd[index]),
            df=float(judged.df[index]),
            half=float(judged.half[index]),
            p=float(judged.p[index]),
            p_adjusted=float(judged.p_adjusted[index]),
            passed=bool(judged.passed[index]),
            rejected=bool(judged.rejected[index]),
            beyond=bool(judged.beyond[index]),
            worse=bool(judged.worse[index]),
            better=bool(judged.better[index]),
        )


def _decided(series: MetricSeries, cell: _Cell, stage: _Stage, families: int) -> MetricVerdict:
    outcome = _outcome(cell, at_look=stage.at_look)
    baseline, candidate = typical(series, used=stage.used)
    open_still = stage.at_look and outcome not in (Outcome.PASS, Outcome.REJECT) and _enough(series)
    spread = stats.Spread(sd=cell.sd, df=cell.df, rounds=stage.used)
    seen = stats.detectable(spread, margin=series.margin, looks=stage.looks, rounds=stage.horizon, families=families)
    return MetricVerdict(
        key=series.key,
        unit=series.unit,
        direction=series.direction,
        baseline=baseline,
        candidate=candidate,
        per_round=finite_pairs(series, used=stage.used),
        requests=series.requests,
        change=_change(series, cell, stage),
        limit=series.limit,
        gated=series.gated,
        why_not_gated=series.why_not_gated,
        outcome=outcome,
        p_value=cell.p,
        p_adjusted=cell.p_adjusted if series.gated else None,
        counted_with=series.copy_of,
        worse_within_allowance=outcome is Outcome.PASS and cell.worse,
        better=stage.at_look and cell.better,
        noise_sd=cell.sd,
        detectable=seen if series.in_points else _relative(seen),
        projected_rounds=_projected(series, spread, cell.mean, stage, families) if open_still else None,
    )


def _outcome(cell: _Cell, *, at_look: bool) -> Outcome:
    if at_look and cell.rejected:
        return Outcome.REJECT
    if at_look and cell.passed:
        return Outcome.PASS
    return Outcome.SUSPECT if cell.beyond else Outcome.UNCERTAIN


def _projected(series: MetricSeries, spread: stats.Spread, mean: float, stage: _Stage, families: int) -> int | None:
    return stats.rounds_to_decide(
        spread, mean=mean, margin=series.margin, looks=stage.looks, rounds=stage.rounds, families=families
    )


def _change(series: MetricSeries, cell: _Cell, stage: _Stage) -> Change95:
    """Candidate against baseline with its real sign: for higher-is-better the sign of d is turned back."""
    lower, upper = cell.mean - cell.half, cell.mean + cell.half
    ends = (cell.mean, lower, upper) if series.direction is Direction.LOWER else (-cell.mean, -upper, -lower)
    point, low, high = ends if series.in_points else map(_relative, ends)
    unit = series.limit.unit
    return Change95(point=point, low=low, high=high, level=1.0 - 2.0 * stage.level, rounds=stage.used, unit=unit)


def _relative(log_ratio: float) -> float:
    """exp(x) − 1, kept finite: beyond e^700 no measurement can tell the difference."""
    return math.expm1(min(log_ratio, 700.0))


def _undecided(series: MetricSeries, why: Undecidable, stage: _Stage) -> MetricVerdict:
    """A metric that cannot be tested: ABSENT, or SUSPECT when what is known speaks against the candidate."""
    baseline, candidate = typical(series, used=stage.used)
    return MetricVerdict(
        key=series.key,
        unit=series.unit,
        direction=series.direction,
        baseline=baseline,
        candidate=candidate,
        per_round=finite_pairs(series, used=stage.used),
        requests=series.requests,
        change=Absent(absent=why.reason),
        limit=series.limit,
        gated=series.gated,
        why_not_gated=series.why_not_gated,
        outcome=Outcome.SUSPECT if why.worse else Outcome.ABSENT,
        p_value=None,
        p_adjusted=None,
        counted_with=series.copy_of,
        worse_within_allowance=False,
        better=False,
        noise_sd=None,
        detectable=None,
        projected_rounds=None,
    )


# ---------------------------------------------------------------- the gate


def _word(metrics: Sequence[MetricVerdict], checks: Sequence[HardCheck], stage: _Stage) -> Word:
    """INVALID before all else, then REJECT, then PASS; REJECT and PASS at a look only."""
    failed = {check.kind for check in checks if not check.ok}
    outcomes = {metric.outcome for metric in metrics if metric.gated}
    if "invalid" in failed:
        return Word.INVALID
    if not stage.at_look:
        return Word.INCONCLUSIVE
    if "reject" in failed or Outcome.REJECT in outcomes:
        return Word.REJECT
    if outcomes == {Outcome.PASS} and "inconclusive" not in failed:
        return Word.PASS
    return Word.INCONCLUSIVE


def _next_look(word: Word, metrics: Sequence[MetricVerdict], checks: Sequence[HardCheck], stage: _Stage) -> int | None:
    """Where to go on to. None when decided, when rounds are spent, or when no number of rounds can bring a PASS.

    A PASS is out of reach once a look has found a gated metric that cannot be tested, has too few requests for its
    percentile, or fails a check that only allows INCONCLUSIVE: going on would cost GPU time and change nothing.
    """
    if word is not Word.INCONCLUSIVE:
        return None
    gated = [metric for metric in metrics if metric.gated]
    hopeless = (
        not gated
        or any(isinstance(metric.change, Absent) or _too_few(metric) for metric in gated)
        or any(check.kind == "inconclusive" and not check.ok for check in checks)
    )
    return None if stage.at_look and hopeless else stage.next_look


def _too_few(metric: MetricVerdict) -> bool:
    return metric.requests is not None and metric.requests < stats.LEAST_REQUESTS_FOR_P95


def _noise(metrics: Sequence[MetricVerdict]) -> float | Absent:
    """The median SD of d over the gated metrics that are compared as ratios."""
    known = [m.noise_sd for m in metrics if m.gated and m.noise_sd is not None and m.limit.unit == "ratio"]
    return median(known) if known else Absent(absent="no gated metric was measured in two rounds")
