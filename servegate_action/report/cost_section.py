"""The cost section of a comment: the bill, the facts beside it, and cost against traffic as a chart and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from servegate_action.analysis.judgement import CostComparison, CurvePoint, Judgement
from servegate_action.records import Absent
from servegate_action.report import bill, numbers
from servegate_action.report import markdown as md
from servegate_action.report.escape import chart_label, inline
from servegate_action.report.markdown import Column, Part
from servegate_action.report.wording import Wording

SENTENCE = 600
CURVE_POINTS = 9

Item = TypeVar("Item")


def parts(j: Judgement, w: Wording) -> tuple[Part, ...]:
    """What the section is made of."""
    if isinstance(j.cost, Absent):
        return (Part(w.no_cost.format(reason=inline(w.say(j.cost.absent), max_chars=SENTENCE)), drop=75),)
    return (
        Part(md.paragraphs(md.bullets(_said(bill.sentences(j.cost, w))), _bill(j.cost, w)), drop=75),
        Part(_facts(j.cost, w), drop=50),
        Part(_chart(j.cost, w), drop=30),
        Part(md.bullets(_said([w.say(note) for note in j.cost.notes])), drop=36),
    )


def _said(texts: Sequence[str]) -> list[str]:
    return [inline(text, max_chars=SENTENCE) for text in texts]


def _bill(cost: CostComparison, w: Wording) -> str:
    sides = (w.baseline, w.candidate)
    columns = [Column(w.item)]
    columns += [Column(w.per_month.format(side=side), right=True) for side in sides]
    columns += [Column(w.per_1m.format(side=side), right=True) for side in sides]
    rows = [[inline(line.name), *line.months, *line.tokens] for line in bill.lines(cost, w)]
    rows[-1] = [md.bold(cell) for cell in rows[-1]]
    return md.table(columns, rows)


def _facts(cost: CostComparison, w: Wording) -> str:
    columns = (Column(w.what), Column(w.baseline, right=True), Column(w.candidate, right=True))
    return md.table(columns, (_said([fact.name, fact.baseline, fact.candidate]) for fact in bill.facts(cost, w)))


def _chart(cost: CostComparison, w: Wording) -> str:
    """Around the declared traffic and the break-even: the curve, and its numbers for whoever cannot see it."""
    points = thinned(_near(cost), CURVE_POINTS)
    if len(points) < 2:
        return ""
    labels = ", ".join(f'"{md.bare_number(point.requests_per_hour, digits=3)}"' for point in points)
    chart = md.xychart(
        chart_label(w.chart_cost),
        x_axis=f'"{chart_label(w.chart_cost_x)}" [{labels}]',
        y_axis=chart_label(w.chart_cost_y),
        lines=([point.baseline_per_1m_output for point in points], [point.candidate_per_1m_output for point in points]),
    )
    columns = (Column(w.chart_cost_x, right=True), Column(w.baseline, right=True), Column(w.candidate, right=True))
    return md.paragraphs(chart, w.chart_cost_lines, md.table(columns, (_curve_row(point, w) for point in points)))


def _curve_row(point: CurvePoint, w: Wording) -> list[str]:
    sides = numbers.pair((point.baseline_per_1m_output, point.candidate_per_1m_output), "USD", w.marks)
    return [numbers.measure(point.requests_per_hour, "", w.marks), *sides]


def _near(cost: CostComparison) -> Sequence[CurvePoint]:
    """The points within a factor of four of what matters, or all when that leaves no line."""
    marks = [cost.requests_per_hour]
    if not isinstance(cost.break_even_requests_per_hour, Absent):
        marks.append(cost.break_even_requests_per_hour)
    near = [point for point in cost.curve if min(marks) / 4 <= point.requests_per_hour <= 4 * max(marks)]
    return near if len(near) > 1 else cost.curve


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly chosen, first and last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]
