"""Small horizontal drawings: an interval against its limit, dots on a line, shares of a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from markupsafe import Markup

from servegate_action.analysis.judgement import Change95, Direction, MetricVerdict, Outcome
from servegate_action.config.limits import Limit
from servegate_action.records import Absent
from servegate_action.report.charts.axis import Axis, linear, tick_text
from servegate_action.report.numbers import Marks

FOREST_WIDTH, FOREST_HEIGHT = 240, 26
FOREST_REACH = 2.4
EDGE = 10


def forest_axis() -> Axis:
    """The common scale of all intervals: 0 is no change, 1 is the metric's limit, worse is to the right."""
    return Axis(low=-FOREST_REACH, high=FOREST_REACH, start=EDGE, end=FOREST_WIDTH - EDGE)


def worsening(change: Change95, limit: Limit, direction: Direction) -> tuple[float, float, float]:
    """Point, better end and worse end in multiples of the limit, on the scale on which the rule compares them.

    That scale is the logarithm of the ratio (points for points), so that an interval touches the limit in the drawing
    exactly when it does so in the decision.
    """
    points = limit.unit == "points"
    allowed = limit.value if points else math.log1p(limit.value)
    sign = -1.0 if direction is Direction.HIGHER else 1.0
    values = [
        sign * (part if points else math.log1p(max(part, -1 + 1e-9))) / allowed
        for part in (change.point, change.low, change.high)
    ]
    return values[0], min(values[1:]), max(values[1:])


def forest(one: MetricVerdict) -> Markup:
    """The interval of one metric against its limit; empty axes where there is no number."""
    axis = forest_axis()
    middle = FOREST_HEIGHT / 2
    parts = [
        Markup('<path class="zero" d="M{x} 0V{h}"/>').format(x=axis.place(0), h=FOREST_HEIGHT),
        Markup('<path class="limit" d="M{x} 0V{h}"/>').format(x=axis.place(1), h=FOREST_HEIGHT),
    ]
    if not isinstance(one.change, Absent):
        point, low, high = worsening(one.change, one.limit, one.direction)
        parts.append(
            Markup('<path class="bar" d="M{a} {m}H{b}"/>').format(a=axis.place(low), b=axis.place(high), m=middle)
        )
        parts += [_arrow(axis.place(end), middle, right=end > 0) for end in (low, high) if abs(end) > FOREST_REACH]
        parts.append(_sign(one, axis.place(point), middle))
    return Markup('<svg class="forest {kind}" viewBox="0 0 {w} {h}" aria-hidden="true">{body}</svg>').format(
        kind=forest_kind(one), w=FOREST_WIDTH, h=FOREST_HEIGHT, body=Markup("").join(parts)
    )


def forest_kind(one: MetricVerdict) -> str:
    """The style class of a metric's drawing."""
    if not one.gated:
        return "info"
    return {Outcome.PASS: "ok", Outcome.REJECT: "bad"}.get(one.outcome, "open")


def _arrow(x: float, y: float, *, right: bool) -> Markup:
    """The interval goes on beyond the scale."""
    tip = 6 if right else -6
    return Markup('<path class="tip" d="M{x} {a}l{t} 5l{back} 5z"/>').format(x=x, a=y - 5, t=tip, back=-tip)


def _sign(one: MetricVerdict, x: float, y: float) -> Markup:
    """Circle: passes (open when undecided). Square: rejects. The shape says what the colour says."""
    if one.gated and one.outcome is Outcome.REJECT:
        return Markup('<rect class="dot" x="{x}" y="{y}" width="9" height="9"/>').format(x=round(x - 4.5, 1), y=y - 4.5)
    return Markup('<circle class="dot" cx="{x}" cy="{y}" r="4"/>').format(x=x, y=y)


# ---------------------------------------------------------------- dots


@dataclass(frozen=True, slots=True)
class Dots:
    """Values of one side. `kind` is the style class: `base` (circles) or `cand` (diamonds)."""

    label: str
    values: Sequence[float]
    kind: str


def dots(rows: Sequence[Dots], *, x_label: str, title: str, marks: Marks, width: int = 720) -> Markup:
    """One row of dots for each side over a common axis from zero."""
    values = [value for row in rows for value in row.values]
    if not values:
        return Markup("")
    left, right, row_height, top = 110, width - 16, 38, 8
    bottom = top + row_height * len(rows)
    axis = linear(values, start=left, end=right)
    tick_mark = Markup(
        '<path class="grid" d="M{x} {t}V{b}"/><text class="tick" x="{x}" y="{y}" text-anchor="middle">{text}</text>'
    )
    parts = [
        tick_mark.format(x=axis.place(tick), t=top, b=bottom, y=bottom + 16, text=tick_text(tick, marks))
        for tick in axis.ticks(8)
    ]
    for index, row in enumerate(rows):
        y = top + row_height * (index + 0.5)
        parts.append(
            Markup('<text class="axis" x="{x}" y="{y}" text-anchor="end">{t}</text>').format(
                x=left - 12, y=y + 4, t=row.label
            )
        )
        parts += [_mark(row.kind, axis.place(value), y) for value in row.values]
    parts.append(
        Markup('<text class="axis" x="{x}" y="{y}" text-anchor="middle">{t}</text>').format(
            x=(left + right) / 2, y=bottom + 34, t=x_label
        )
    )
    return Markup('<svg class="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{title}">{body}</svg>').format(
        w=width, h=bottom + 42, title=title, body=Markup("").join(parts)
    )


def _mark(kind: str, x: float, y: float) -> Markup:
    if kind == "base":
        return Markup('<circle class="point base" cx="{x}" cy="{y}" r="6"/>').format(x=x, y=y)
    return Markup('<path class="point cand" d="M{x} {top}l7 7l-7 7l-7 -7z"/>').format(x=x, top=y - 7)


# ---------------------------------------------------------------- shares


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole. `kind` is the style class, `text` stands in the bar where it fits."""

    value: float
    kind: str
    text: str


def shares(parts: Sequence[Share], *, title: str, width: int = 420, height: int = 30) -> Markup:
    """One bar, divided."""
    ends = list(accumulate((part.value for part in parts), initial=0.0))
    whole = ends[-1] or 1.0
    body = []
    for start, end, part in zip(ends, ends[1:], parts, strict=False):
        x, w = width * start / whole, width * (end - start) / whole
        body.append(
            Markup('<rect class="share {kind}" x="{x}" y="0" width="{w}" height="{h}"/>').format(
                kind=part.kind, x=round(x, 1), w=round(w, 1), h=height
            )
        )
        if w > 8 * len(part.text):
            body.append(
                Markup('<text class="share-text {kind}" x="{x}" y="{y}" text-anchor="middle">{t}</text>').format(
                    kind=part.kind, x=round(x + w / 2, 1), y=height / 2 + 5, t=part.text
                )
            )
    return Markup('<svg class="chart bar" viewBox="0 0 {w} {h}" role="img" aria-label="{title}">{body}</svg>').format(
        w=width, h=height, title=title, body=Markup("").join(body)
    )
