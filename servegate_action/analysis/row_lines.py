"""The lines that rows are made of: metrics, checks, and numbers that are only shown, each with how it stands."""

from __future__ import annotations

from dataclasses import dataclass

from servegate_action.analysis.economy import Economy
from servegate_action.analysis.identity_check import Sameness
from servegate_action.analysis.judgement import (
    Difference,
    HardCheck,
    Mark,
    MetricKey,
    MetricVerdict,
    Outcome,
    Quantity,
    RowLine,
    Shown,
)
from servegate_action.analysis.metrics import MaybeFloat
from servegate_action.analysis.verdict import Decision
from servegate_action.config.limits import MetricName
from servegate_action.config.models import Config
from servegate_action.records import Absent, Recording, Side

SHOWN = "shown"
EQUALITY = Absent(absent="compared for equality")
ONLY_SHOWN = Absent(absent="shown, not compared")
WORST_FIRST = (Mark.BAD, Mark.OPEN, Mark.OK, Mark.INFO)


@dataclass(frozen=True, slots=True)
class Sight:
    """A number of both sides that is shown beside the metrics, ready for a line."""

    label: str
    unit: str
    baseline: MaybeFloat
    candidate: MaybeFloat
    cell: str | None = None
    note: str = ""

    def line(self) -> RowLine:
        return RowLine(
            label=self.label,
            cell=self.cell,
            baseline=quantity(self.baseline, self.unit, self.note),
            candidate=quantity(self.candidate, self.unit, self.note),
            change=ONLY_SHOWN,
            allowed=None,
            verdict=SHOWN,
            mark=Mark.INFO,
        )


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that the rows are made of. `sights`: what is shown beside the metrics, by row number."""

    config: Config
    recording: Recording
    decision: Decision
    checks: tuple[HardCheck, ...]
    parts: tuple[Sameness, Sameness, Sameness] | Absent
    money: Economy
    differences: tuple[Difference, ...]
    sights: dict[int, tuple[Sight, ...]]
    rounds: int

    def metric(self, name: MetricName) -> MetricVerdict | None:
        """A metric of the mix."""
        return next((one for one in self.decision.metrics if one.key == MetricKey(metric=name)), None)

    def in_cells(self, *names: MetricName) -> list[MetricVerdict]:
        """Metrics of the cells, cell by cell."""
        return [one for one in self.decision.metrics if one.key.cell is not None and one.key.metric in names]


def quantity(value: MaybeFloat, unit: str, note: str = "") -> Shown:
    return value if isinstance(value, Absent) else Quantity(value=value, unit=unit, note=note)


def metric_lines(
    findings: Findings, *names: MetricName, labels: dict[MetricName, str], note: str = ""
) -> list[RowLine]:
    """Metrics of the mix in the order given, then those of the cells. `note` stands beside each number."""
    of_mix = [one for name in names if (one := findings.metric(name)) is not None]
    return [metric_line(one, labels[one.key.metric], note) for one in [*of_mix, *findings.in_cells(*names)]]


def metric_line(metric: MetricVerdict, label: str, note: str = "") -> RowLine:
    count = f"n = {metric.requests}" if metric.requests is not None else ""
    remark = ", ".join(part for part in (note, count) if part)
    return RowLine(
        label=label,
        cell=metric.key.cell,
        baseline=quantity(metric.baseline, metric.unit, remark),
        candidate=quantity(metric.candidate, metric.unit, remark),
        change=metric.change,
        allowed=metric.limit if metric.gated else metric.why_not_gated,
        direction=metric.direction,
        verdict=metric.outcome.value if metric.gated else SHOWN,
        mark=_mark(metric),
    )


def _mark(metric: MetricVerdict) -> Mark:
    if not metric.gated:
        return Mark.INFO
    return {Outcome.PASS: Mark.OK, Outcome.REJECT: Mark.BAD}.get(metric.outcome, Mark.OPEN)


def check_line(check: HardCheck, label: str) -> RowLine:
    """A check as a line: its sentence stands on the side that it is about."""
    text: Shown = check.detail
    aside: Shown = Absent(absent="about the other side")
    return RowLine(
        label=label,
        cell=check.cell,
        baseline=aside if check.side is Side.CANDIDATE else text,
        candidate=aside if check.side is Side.BASELINE else text,
        change=EQUALITY,
        allowed=None,
        verdict="ok" if check.ok else check.kind.upper(),
        mark=check_mark(check),
    )


def check_mark(check: HardCheck) -> Mark:
    if check.ok:
        return Mark.OK
    return Mark.OPEN if check.kind == "inconclusive" else Mark.BAD


def check_lines(findings: Findings, labels: dict[str, str]) -> list[RowLine]:
    """The checks of some names; those that hold in every cell make one line, those that fail one each."""
    lines: list[RowLine] = []
    for name, label in labels.items():
        own = [check for check in findings.checks if check.name == name]
        failed = [check for check in own if not check.ok]
        lines += [check_line(check, label) for check in failed or own[:1]]
    return lines
