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

__all__ = ["Decision", "MetricSeries", "NoiseSource", "decide"]

NoiseSource = Literal["rounds", "launches"]
"""The differences within rounds, or the launches of both stacks with a linear drift taken out."""


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
    findings, noise_from = _findings(series, family, stage)
    word = _word(findings, checks, stage)
    next_look = None if word is not Word.INCONCLUSIVE or _hopeless(findings, checks, stage) else stage.next_look
    horizon = stage.used if word is Word.INCONCLUSIVE and next_look is None else stage.looks[-1]
    forecasts = _forecasts(findings, stage, horizon, _count(family))
    metrics = tuple(_verdict(*pair, stage) for pair in zip(findings, forecasts, strict=True))
    facts = headline.Facts(
        word=word,
        metrics=metrics,
        checks=tuple(checks),
        distinct=_count(family),
        rounds_used=stage.used,
        rounds_measured=rounds,
        rounds_planned=stage.looks[-1],
        next_look=next_look,
        stopped=stopped,
    )
    return Decision(
        word=word,
        headline=headline.sentence(facts),
        advice=headline.advice(facts),
        metrics=metrics,
        rejected=headline.rejected(facts),
        next_look=next_look,
        rounds_used=stage.used,
        level=stage.level,
        distinct=facts.distinct,
        noise=_median_noise(metrics),
        noise_from=noise_from,
    )


# ---------------------------------------------------------------- where a run stands


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where in its schedule a run stands. `used`: rounds that count; `at_look`: whether they may decide anything."""

    rounds: int
    used: int
    at_look: bool
    looks: tuple[int, ...]
    level: float
    stopped: str | None

    @property
    def next_look(self) -> int | None:
        """The next look, when the run may go on."""
        later = [look for look in self.looks if look > self.rounds]
        return later[0] if later and self.stopped is None else None


def _stage(rounds: int, looks: tuple[int, ...], stopped: str | None) -> _Stage:
    """Before the first look the largest even number of rounds is shown, and the single one if there is no more."""
    levels = stats.levels_for(looks)
    reached = [look for look in looks if look <= rounds]
    used = reached[-1] if reached else max(rounds - rounds % 2, min(rounds, 1))
    level = levels[max(len(reached) - 1, 0)]
    return _Stage(rounds=rounds, used=used, at_look=bool(reached), looks=looks, level=level, stopped=stopped)


def _families(series: Sequence[MetricSeries]) -> list[int]:
    """The number of the hypothesis that each series stands for; gated copies share one, −1 is not counted."""
    keys = [one.copy_of or one.key for one in series]
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    return [number[key] if one.gated else -1 for key, one in zip(keys, series, strict=True)]


def _count(family: Sequence[int]) -> int:
    """m: the distinct gated metrics."""
    return len(set(family) - {-1})


# ---------------------------------------------------------------- each metric


@dataclass(frozen=True, slots=True)
class _Test:
    """One metric's column of `stats.Judged`, as plain numbers."""

    mean: float
    sd: float
    df: float
    half: float
    p: float
    p_adjusted: float
    worse: bool
    better: bool


@dataclass(frozen=True, slots=True)
class _Finding:
    """What a look found of one metric: its outcome, and the test behind it or why there is none."""

    series: MetricSeries
    outcome: Outcome
    test: _Test | Undecidable

    @property
    def can_pass(self) -> bool:
        """Whether more rounds could show it to be good."""
        return isinstance(self.test, _Test) and _enough(self.series)


def _findings(
    series: Sequence[MetricSeries], family: list[int], stage: _Stage
) -> tuple[tuple[_Finding, ...], NoiseSource]:
    """All metrics at one look. Fewer than two rounds have no spread: every metric is then undecided."""
    if stage.used < 2 or not series:
        early = Undecidable("one round has no spread" if stage.used else "no complete round")
        return tuple(_Finding(one, Outcome.ABSENT, early) for one in series), "rounds"
    columns = [scores(one, rounds=stage.rounds, used=stage.used) for one in series]
    blank = np.zeros(stage.used)
    pairs = [(blank, blank) if isinstance(column, Undecidable) else column for column in columns]
    baseline, candidate = (np.stack([pair[side] for pair in pairs], axis=-1) for side in (0, 1))
    judged = stats.judge(baseline, candidate, _rule(series, family), stage.level)
    findings = tuple(
        _Finding(one, Outcome.SUSPECT if column.worse else Outcome.ABSENT, column)
        if isinstance(column, Undecidable)
        else _Finding(one, _outcome(judged, index, at_look=stage.at_look), _test(judged, index))
        for index, (one, column) in enumerate(zip(series, columns, strict=True))
    )
    return findings, "rounds" if bool(judged.paired) else "launches"


def _rule(series: Sequence[MetricSeries], family: list[int]) -> stats.Rule:
    return stats.Rule(
        margin=np.array([one.margin for one in series]),
        sd_floor=np.array([one.sd_floor for one in series]),
        family=np.array(family, dtype=np.intp),
        may_pass=np.array([_enough(one) for one in series]),
    )


def _enough(series: MetricSeries) -> bool:
    return series.requests is None or series.requests >= stats.LEAST_REQUESTS_FOR_P95


def _outcome(judged: stats.Judged, index: int, *, at_look: bool) -> Outcome:
    if at_look and judged.rejected[index]:
        return Outcome.REJECT
    if at_look and judged.passed[index]:
        return Outcome.PASS
    return Outcome.SUSPECT if judged.beyond[index] else Outcome.UNCERTAIN


def _test(judged: stats.Judged, index: int) -> _Test:
    return _Test(
        mean=float(judged.mean[index]),
        sd=float(judged.sd[index]),
        df=float(judged.df[index]),
        half=float(judged.half[index]),
        p=float(judged.p[index]),
        p_adjusted=float(judged.p_adjusted[index]),
        worse=bool(judged.worse[index]),
        better=bool(judged.better[index]),
    )


# ---------------------------------------------------------------- the gate


def _word(findings: Sequence[_Finding], checks: Sequence[HardCheck], stage: _Stage) -> Word:
    """INVALID before all else, then REJECT, then PASS; REJECT and PASS at a look only. Nothing gated is no PASS."""
    failed = {check.kind for check in checks if not check.ok}
    outcomes = {finding.outcome for finding in findings if finding.series.gated}
    if "invalid" in failed:
        return Word.INVALID
    if not stage.at_look:
        return Word.INCONCLUSIVE
    if "reject" in failed or Outcome.REJECT in outcomes:
        return Word.REJECT
    if outcomes == {Outcome.PASS} and "inconclusive" not in failed:
        return Word.PASS
    return Word.INCONCLUSIVE


def _hopeless(findings: Sequence[_Finding], checks: Sequence[HardCheck], stage: _Stage) -> bool:
    """Whether a look has found that no number of rounds can bring a PASS, so that going on would waste GPU time.

    That is so when nothing is gated, when a gated metric cannot be tested or has too few requests for its percentile,
    and when a check failed that allows INCONCLUSIVE at best.
    """
    gated = [finding for finding in findings if finding.series.gated]
    capped = any(check.kind == "inconclusive" and not check.ok for check in checks)
    return stage.at_look and (capped or not gated or not all(finding.can_pass for finding in gated))


def _median_noise(metrics: Sequence[MetricVerdict]) -> float | Absent:
    known = [m.noise_sd for m in metrics if m.gated and m.noise_sd is not None and m.limit.unit == "ratio"]
    return median(known) if known else Absent(absent="no gated metric was measured in two rounds")


# ---------------------------------------------------------------- forecasts


@dataclass(frozen=True, slots=True)
class _Forecast:
    """What the run could have seen of a metric, in the unit of d, and how many rounds would decide it."""

    detectable: float | None
    projected_rounds: int | None


def _forecasts(findings: Sequence[_Finding], stage: _Stage, horizon: int, families: int) -> list[_Forecast]:
    """Of all metrics at once. `horizon` is the round count at which the run would have ended for an undecided metric."""
    tested = [(finding.series, finding.test) for finding in findings if isinstance(finding.test, _Test)]
    if not tested:
        return [_Forecast(None, None)] * len(findings)
    spread = stats.Spread(
        sd=np.array([test.sd for _, test in tested]), df=np.array([test.df for _, test in tested]), rounds=stage.used
    )
    mean = np.array([test.mean for _, test in tested])
    margin = np.array([series.margin for series, _ in tested])
    seen = stats.detectable(spread, margin=margin, looks=stage.looks, rounds=max(horizon, 2), families=families)
    needed = stats.rounds_to_decide(
        spread, mean=mean, margin=margin, looks=stage.looks, rounds=stage.rounds, families=families
    )
    rows = iter(zip(seen.tolist(), needed, strict=True))
    return [
        _Forecast(None, None) if isinstance(finding.test, Undecidable) else _forecast(finding, stage, *next(rows))
        for finding in findings
    ]


def _forecast(finding: _Finding, stage: _Stage, seen: float, needed: int | None) -> _Forecast:
    """Rounds are projected for undecided metrics only, not before the first look, and not where none would decide."""
    settled = finding.outcome in (Outcome.PASS, Outcome.REJECT)
    return _Forecast(seen, None if settled or not stage.at_look or not finding.can_pass else needed)


# ---------------------------------------------------------------- laying out


def _verdict(finding: _Finding, forecast: _Forecast, stage: _Stage) -> MetricVerdict:
    """A finding with its numbers turned back into the units and the sign that people read."""
    series, test = finding.series, finding.test
    baseline, candidate = typical(series, used=stage.used)
    tested = None if isinstance(test, Undecidable) else test
    seen = forecast.detectable
    return MetricVerdict(
        key=series.key,
        unit=series.unit,
        direction=series.direction,
        baseline=baseline,
        candidate=candidate,
        per_round=finite_pairs(series, used=stage.used),
        requests=series.requests,
        change=Absent(absent=test.reason) if isinstance(test, Undecidable) else _change(series, test, stage),
        limit=series.limit,
        gated=series.gated,
        why_not_gated=series.why_not_gated,
        outcome=finding.outcome,
        p_value=tested.p if tested else None,
        p_adjusted=tested.p_adjusted if tested and series.gated else None,
        counted_with=series.copy_of,
        worse_within_allowance=tested is not None and finding.outcome is Outcome.PASS and tested.worse,
        better=tested is not None and stage.at_look and tested.better,
        noise_sd=tested.sd if tested else None,
        detectable=seen if seen is None or series.in_points else _relative(seen),
        projected_rounds=forecast.projected_rounds,
    )


def _change(series: MetricSeries, test: _Test, stage: _Stage) -> Change95:
    """Candidate against baseline with its real sign: for higher-is-better the sign of d is turned back."""
    lower, upper = test.mean - test.half, test.mean + test.half
    ends = (test.mean, lower, upper) if series.direction is Direction.LOWER else (-test.mean, -upper, -lower)
    point, low, high = ends if series.in_points else map(_relative, ends)
    unit = series.limit.unit
    return Change95(point=point, low=low, high=high, level=1.0 - 2.0 * stage.level, rounds=stage.used, unit=unit)


def _relative(log_ratio: float) -> float:
    """exp(x) − 1, kept finite: beyond e^700 no measurement can tell the difference."""
    return math.expm1(min(log_ratio, 700.0))
