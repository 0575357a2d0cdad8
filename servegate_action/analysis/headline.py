"""The sentence that names what decided, with its numbers, and what to do about it.

English, no Markdown, one sentence; renderings repeat it as it is. Numbers carry sign, unit, interval and what is allowed.
This module words a decision that has been made; it makes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from servegate_action.analysis.judgement import (
    Change95,
    Direction,
    HardCheck,
    MetricKey,
    MetricVerdict,
    Outcome,
    Word,
)
from servegate_action.analysis.stats import LEAST_REQUESTS_FOR_P95
from servegate_action.config.limits import Limit, MetricName
from servegate_action.records import Absent

WORDS: Final[dict[MetricName, str]] = {
    MetricName.TOKENS_PER_GPU_HOUR: "tokens per GPU-hour",
    MetricName.DECODE_TOKENS_PER_SECOND: "decode tok/s",
    MetricName.TTFT_P95: "p95 TTFT",
    MetricName.TPOT_P95: "p95 TPOT",
    MetricName.TTFT_P95_WITH_COLD_STARTS: "p95 TTFT with cold starts",
    MetricName.GPU_UTILIZATION: "GPU utilization",
    MetricName.COST_PER_1M_OUTPUT_TOKENS: "cost per 1M output tokens",
    MetricName.TOKENS_PER_SECOND: "tok/s",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What has been decided, for wording."""

    word: Word
    metrics: tuple[MetricVerdict, ...]
    checks: tuple[HardCheck, ...]
    distinct: int
    rounds_used: int
    rounds_measured: int
    rounds_planned: int
    next_look: int | None
    stopped: str | None

    @property
    def gated(self) -> list[MetricVerdict]:
        """The metrics that count."""
        return [metric for metric in self.metrics if metric.gated]

    def failed(self, kind: str) -> list[HardCheck]:
        """The checks of one kind that failed."""
        return [check for check in self.checks if check.kind == kind and not check.ok]


# ---------------------------------------------------------------- numbers


def name(key: MetricKey) -> str:
    """`p95 TTFT chat/16`."""
    return WORDS[key.metric] if key.cell is None else f"{WORDS[key.metric]} {key.cell}"


def signed(value: float, *, digits: int = 1) -> str:
    """`+1.1` or `−1.2`, with a real minus sign; what rounds to zero is `±0.0`."""
    text = f"{abs(value):.{digits}f}"
    if not text.strip("0."):
        return f"±{text}"
    return ("+" if value > 0 else "−") + text


def change(value: Change95) -> str:
    """`+1.1 %`, or `−1.1 points`."""
    scale, unit = _scale(value.unit)
    return f"{signed(value.point * scale)} {unit}"


def interval(value: Change95) -> str:
    """`−1.2 … +3.4`."""
    scale, _ = _scale(value.unit)
    return f"{signed(value.low * scale)} … {signed(value.high * scale)}"


def allowed(limit: Limit, direction: Direction) -> str:
    """`+5 %` for a latency, `−2 %` for a throughput."""
    scale, unit = _scale(limit.unit)
    number = f"{limit.value * scale:.2f}".rstrip("0").rstrip(".")
    return f"{'+' if direction is Direction.LOWER else '−'}{number} {unit}"


def _scale(unit: str) -> tuple[float, str]:
    return (1.0, "points") if unit == "points" else (100.0, "%")


def measured(metric: MetricVerdict) -> str:
    """`+1.1 % (−1.2 … +3.4), allowed +5 %`, or why there is no number."""
    if isinstance(metric.change, Absent):
        return f"not testable, {metric.change.absent}"
    return f"{change(metric.change)} ({interval(metric.change)}), allowed {allowed(metric.limit, metric.direction)}"


# ---------------------------------------------------------------- sentences


def sentence(facts: Facts) -> str:
    """The headline of a decision."""
    if facts.word is Word.INVALID:
        return f"INVALID: {_first(facts.failed('invalid'))}"
    if facts.word is Word.REJECT:
        return f"REJECT: {_and_more(_rejections(facts))}"
    if facts.word is Word.PASS:
        return _pass(facts)
    if (broken := _broken_off(facts)) is not None:
        return f"INCONCLUSIVE: {_used(facts)}, {broken.detail}"
    return f"INCONCLUSIVE: {_rounds(facts)}. {_open_point(facts)}"


def rejected(facts: Facts) -> tuple[str, ...]:
    """Each metric or check that rejects, as printed. Empty unless the gate's word is REJECT."""
    return tuple(_rejections(facts)) if facts.word is Word.REJECT else ()


def _rejections(facts: Facts) -> list[str]:
    """Metrics first, the one furthest beyond its limit leading, then checks."""
    bad = [metric for metric in facts.gated if metric.outcome is Outcome.REJECT]
    bad.sort(key=_excess, reverse=True)
    return [_rejection(metric, facts) for metric in bad] + [_place(check) for check in facts.failed("reject")]


def _rejection(metric: MetricVerdict, facts: Facts) -> str:
    value = metric.change
    if isinstance(value, Absent) or metric.p_adjusted is None:
        raise ValueError(f"{metric.key} is rejected without a measured change")
    adjusted = "< 0.001" if metric.p_adjusted < 0.001 else f"= {metric.p_adjusted:.3f}"
    return (
        f"{name(metric.key)}: {change(value)} ({int(value.level * 100)} % interval {interval(value)}, {value.rounds} rounds), "
        f"allowed {allowed(metric.limit, metric.direction)} (Holm-adjusted p {adjusted} over {facts.distinct} metrics)"
    )


def _pass(facts: Facts) -> str:
    slower = [metric for metric in facts.gated if metric.worse_within_allowance]
    if slower:
        shown = max(slower, key=_excess)
        more = f" (and {len(slower) - 1} more)" if len(slower) > 1 else ""
        return f"PASS, slower within allowance: {name(shown.key)} {measured(shown)}{more}"
    tightest = max(facts.gated, key=_excess)
    return (
        f"PASS: all {facts.distinct} metrics within their limits. Tightest: {name(tightest.key)} {measured(tightest)}"
    )


def _broken_off(facts: Facts) -> HardCheck | None:
    """The check that says why the run did not come to its end, where it did not: nothing else matters as much."""
    return next((check for check in facts.failed("inconclusive") if check.name == "complete"), None)


def _used(facts: Facts) -> str:
    used = f"{facts.rounds_used} of {facts.rounds_planned} rounds used"
    more = facts.rounds_measured > facts.rounds_used
    return f"{used} ({facts.rounds_measured} measured)" if more else used


def _rounds(facts: Facts) -> str:
    used = _used(facts)
    if facts.next_look is not None:
        return f"{used} so far, the next look is after {facts.next_look}"
    return f"{used}, {facts.stopped}" if facts.stopped else used


def _open_point(facts: Facts) -> str:
    """What keeps the gate from a PASS, most serious first."""
    if facts.failed("inconclusive"):
        return _first(facts.failed("inconclusive"))
    if not facts.gated:
        return "No metric is gated, so nothing can be shown"
    undecided = undecided_metrics(facts.metrics)
    if not undecided:
        return "Every metric is within its limit so far"
    worst = undecided[0]
    tail = f"; about {worst.projected_rounds} rounds would decide" if worst.projected_rounds else ""
    if _few(worst):
        tail = f"; {worst.requests} requests per launch, a p95 needs {LEAST_REQUESTS_FOR_P95} at least"
    return f"{name(worst.key)}: {measured(worst)}{tail}"


def undecided_metrics(metrics: Sequence[MetricVerdict]) -> list[MetricVerdict]:
    """Gated metrics without PASS or REJECT: untestable ones first, then those furthest beyond their limit."""
    open_ones = [m for m in metrics if m.gated and m.outcome not in (Outcome.PASS, Outcome.REJECT)]
    return sorted(open_ones, key=lambda m: (isinstance(m.change, Absent), _few(m), _excess(m)), reverse=True)


def _few(metric: MetricVerdict) -> bool:
    return metric.requests is not None and metric.requests < LEAST_REQUESTS_FOR_P95


def _excess(metric: MetricVerdict) -> float:
    """How far the bad end of the interval reaches, as a multiple of the limit."""
    if isinstance(metric.change, Absent):
        return 0.0
    bad = metric.change.high if metric.direction is Direction.LOWER else -metric.change.low
    return bad / metric.limit.value


def _first(checks: Sequence[HardCheck]) -> str:
    return _and_more([_place(check) for check in checks])


def _and_more(sentences: Sequence[str]) -> str:
    more = len(sentences) - 1
    return sentences[0] + (f" (and {more} more)" if more else "")


def _place(check: HardCheck) -> str:
    where = ", ".join(part for part in (check.side, check.cell) if part)
    return f"{where}: {check.detail}" if where else check.detail


# ---------------------------------------------------------------- advice

REGRESSED = (
    "mend what regressed; where it is meant, raise its limit in a change of its own: limits are read from the base, so "
    "that no change can loosen those that it is judged by"
)


def advice(facts: Facts) -> tuple[str, ...]:
    """What to do about it; empty for a PASS and while the run goes on."""
    if facts.word is Word.PASS or facts.next_look is not None:
        return ()
    own = [check.advice for check in facts.checks if not check.ok and check.advice]
    if facts.word is Word.REJECT and any(metric.gated and metric.outcome is Outcome.REJECT for metric in facts.metrics):
        own.append(REGRESSED)
    if facts.word is not Word.INCONCLUSIVE:
        return tuple(dict.fromkeys(own))
    return tuple(dict.fromkeys([*own, *_ways_out(facts)]))


def _ways_out(facts: Facts) -> list[str]:
    undecided = undecided_metrics(facts.metrics)
    untestable = [m for m in undecided if isinstance(m.change, Absent)]
    ways: list[str] = []
    if facts.stopped is not None and _broken_off(facts) is None:
        ways.append("run it again; with a larger rounds.budget_minutes if the budget ended it")
    if facts.rounds_used >= 2 and untestable:
        names = ", ".join(name(m.key) for m in untestable)
        ways.append(f"make {names} measurable, or list the metric under limits.advisory: it is shown then, not gated")
    if any(_few(m) for m in undecided):
        ways.append(f"give every cell at least {LEAST_REQUESTS_FOR_P95} requests per launch (200 is the default)")
    projected = max((m.projected_rounds or 0 for m in undecided), default=0)
    if projected > facts.rounds_planned:
        ways.append(f"set rounds.max to {projected}: at this noise about that many rounds would decide")
    if facts.stopped is None and len(undecided) > len(untestable):
        ways.append("replay more requests, lower the load, or declare a larger limit for the undecided metrics")
    return ways
