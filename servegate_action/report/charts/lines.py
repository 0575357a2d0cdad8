"""Curves over a common x axis: cost against traffic, tokens per second over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from servegate_action.report.charts.axis import Axis, linear, logarithmic, tick_text
from servegate_action.report.numbers import Marks

MOST_POINTS = 240
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 44

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One curve. `kind` is the style class: `base` (solid) or `cand` (dashed)."""

    points: Sequence[Point]
    kind: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A vertical line at a value of x, with a word beside it."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What to draw, and what a screen reader says instead."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    rules: Sequence[Rule] = ()
    log_x: bool = False
    log_y: bool = False
    width: int = 720
    height: int = 300


def draw(chart: Chart, marks: Marks) -> Markup:
    """The chart as SVG; nothing when there is no curve of two points."""
    points = [point for line in chart.lines for point in line.points]
    if len(points) < 2:
        return Markup("")
    x, y = _axes(chart, points)
    body = Markup("").join(
        [
            *_grid(chart, x, y, marks),
            *(_rule(rule, x, chart, index) for index, rule in enumerate(chart.rules) if x.low <= rule.x <= x.high),
            *(_curve(line, x, y) for line in chart.lines),
        ]
    )
    return Markup('<svg class="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{title}">{body}</svg>').format(
        w=chart.width, h=chart.height, title=chart.title, body=body
    )


def _axes(chart: Chart, points: Sequence[Point]) -> tuple[Axis, Axis]:
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    right, bottom = chart.width - RIGHT, chart.height - BOTTOM
    x = (
        logarithmic([*xs, *(rule.x for rule in chart.rules)], start=LEFT, end=right)
        if chart.log_x
        else Axis(low=min(xs), high=max(xs), start=LEFT, end=right)
    )
    y = logarithmic(ys, start=bottom, end=TOP) if chart.log_y else linear(ys, start=bottom, end=TOP)
    return x, y


_ROW = Markup(
    '<path class="grid" d="M{left} {at}H{right}"/><text class="tick" x="{x}" y="{y}" text-anchor="end">{text}</text>'
)
_TICK = Markup(
    '<path class="mark" d="M{at} {bottom}v5"/><text class="tick" x="{at}" y="{y}" text-anchor="middle">{text}</text>'
)
_FRAME = Markup('<path class="frame" d="M{left} {top}V{bottom}H{right}"/>')
_X_LABEL = Markup('<text class="axis" x="{x}" y="{y}" text-anchor="middle">{text}</text>')
_Y_LABEL = Markup('<text class="axis" transform="rotate(-90)" x="{x}" y="14" text-anchor="middle">{text}</text>')


def _grid(chart: Chart, x: Axis, y: Axis, marks: Marks) -> list[Markup]:
    """Both axes with their labels, and a faint line at each tick of y."""
    bottom, right = chart.height - BOTTOM, chart.width - RIGHT
    heights = [(value, y.place(value)) for value in y.ticks()]
    return [
        *(
            _ROW.format(left=LEFT, at=at, right=right, x=LEFT - 7, y=at + 4, text=tick_text(value, marks))
            for value, at in heights
        ),
        *(
            _TICK.format(at=x.place(value), bottom=bottom, y=bottom + 18, text=tick_text(value, marks))
            for value in x.ticks(8)
        ),
        _FRAME.format(left=LEFT, top=TOP, bottom=bottom, right=right),
        _X_LABEL.format(x=(LEFT + right) / 2, y=chart.height - 6, text=chart.x_label),
        _Y_LABEL.format(x=-(TOP + bottom) / 2, text=chart.y_label),
    ]


def _rule(rule: Rule, x: Axis, chart: Chart, index: int) -> Markup:
    at, right = x.place(rule.x), chart.width - RIGHT
    turned = at > (LEFT + right) / 2
    return Markup(
        '<path class="rule" d="M{at} {t}V{b}"/><text class="note" x="{x}" y="{y}" text-anchor="{a}">{label}</text>'
    ).format(
        at=at,
        t=TOP,
        b=chart.height - BOTTOM,
        x=at - 6 if turned else at + 6,
        y=TOP + 12 + 16 * index,
        a="end" if turned else "start",
        label=rule.label,
    )


def _curve(line: Line, x: Axis, y: Axis) -> Markup:
    stride = max(1, -(-len(line.points) // MOST_POINTS))
    kept = [*line.points[:-1:stride], line.points[-1]]
    path = "M" + "L".join(f"{x.place(px)} {y.place(py)}" for px, py in kept)
    return Markup('<path class="line {kind}" d="{path}"/>').format(kind=line.kind, path=path)
