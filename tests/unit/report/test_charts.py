from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.judgement import Change95, Direction, MetricKey, MetricVerdict, Outcome
from servegate_action.config.limits import Limit, MetricName
from servegate_action.records import Absent
from servegate_action.report.charts import axis, lines, strips
from servegate_action.report.charts.lines import Chart, Line, Rule
from servegate_action.report.charts.strips import Dots, Share
from servegate_action.report.numbers import Marks
from tests.support import html

EN = Marks(decimal=".", thousands=",", points="points")
POSITIVE = st.floats(min_value=1e-3, max_value=1e9)


def test_the_low_end_of_an_axis_stands_at_its_start_and_the_high_end_at_its_end() -> None:
    one = axis.Axis(low=0, high=10, start=100, end=300)
    assert [one.place(value) for value in (0, 5, 10, -3, 99)] == [100, 200, 300, 100, 300]
    upwards = axis.Axis(low=1, high=100, start=200, end=0, logarithmic=True)
    assert [upwards.place(value) for value in (1, 10, 100)] == [200, 100, 0]
    assert axis.Axis(low=3, high=3, start=0, end=10).place(3) == 5


@given(st.lists(POSITIVE, min_size=1, max_size=20))
def test_an_even_axis_holds_every_value_and_has_a_few_round_ticks(values: list[float]) -> None:
    one = axis.linear(values, start=0, end=100)
    assert one.low <= min(values)
    assert one.high >= max(values) * (1 - 1e-9)
    assert 2 <= len(one.ticks()) <= 8


@given(st.lists(POSITIVE, min_size=1, max_size=20))
def test_a_logarithmic_axis_holds_every_value(values: list[float]) -> None:
    one = axis.logarithmic(values, start=0, end=100)
    assert one.low < min(values)
    assert one.high > max(values)
    assert all(one.low <= tick <= one.high for tick in one.ticks())


def test_an_axis_of_zeros_does_not_fail() -> None:
    assert axis.linear([0.0, 0.0], start=0, end=10).ticks() == [0.0]


def test_ticks_are_written_as_short_as_they_are() -> None:
    assert [axis.tick_text(value, EN) for value in (0.0, 0.5, 1000.0, 0.001, 1 / 3)] == [
        "0",
        "0.5",
        "1,000",
        "0.001",
        "0.333333",
    ]
    assert axis.Axis(low=1, high=100, start=0, end=1, logarithmic=True).ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert axis.Axis(low=1, high=10000, start=0, end=1, logarithmic=True).ticks() == [1, 10, 100, 1000, 10000]


def chart(points: list[tuple[float, float]], **other: object) -> Chart:
    fields: dict[str, object] = {
        "title": "A <title>",
        "x_label": "x & y",
        "y_label": "tok/s",
        "lines": [Line(points, "base")],
        **other,
    }
    return Chart(**fields)  # type: ignore[arg-type]


def test_a_chart_is_well_formed_escapes_its_words_and_has_no_script() -> None:
    document = html.read(str(lines.draw(chart([(0, 1), (1, 3), (2, 2)]), EN)))
    assert document.complaints == []
    assert document.all("svg")[0].attributes["aria-label"] == "A <title>"
    assert "x & y" in [text.text for text in document.all("text")]
    assert {element.name for element in document.elements} == {"svg", "path", "text"}


def test_a_chart_of_one_point_is_not_drawn() -> None:
    assert lines.draw(chart([(0, 1)]), EN) == ""


def test_a_rule_stands_at_its_value_and_one_off_the_scale_is_left_out() -> None:
    drawn = str(lines.draw(chart([(0, 1), (10, 3)], rules=[Rule(2, "near"), Rule(9, "far"), Rule(99, "off")]), EN))
    assert "near" in drawn
    assert "far" in drawn
    assert ">off<" not in drawn
    wide = str(lines.draw(chart([(1, 1), (10, 3)], rules=[Rule(99, "off")], log_x=True, log_y=True), EN))
    assert ">off<" in wide


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    drawn = str(lines.draw(chart([(float(x), 1.0) for x in range(10_000)]), EN))
    path = next(d for d in re.findall(r'class="line base" d="([^"]+)"', drawn))
    assert path.count("L") <= lines.MOST_POINTS
    assert path.startswith("M64")
    assert f"L{720 - lines.RIGHT}.0 " in path or f"L{720 - lines.RIGHT} " in path


# ---------------------------------------------------------------- intervals


def metric(
    change: Change95 | Absent,
    *,
    direction: Direction = Direction.LOWER,
    outcome: Outcome = Outcome.PASS,
    limit: Limit | None = None,
) -> MetricVerdict:
    return MetricVerdict(
        key=MetricKey(metric=MetricName.TPOT_P95),
        unit="ms",
        direction=direction,
        baseline=10.0,
        candidate=10.0,
        per_round=(),
        requests=200,
        change=change,
        limit=limit or Limit(value=0.02),
        gated=True,
        why_not_gated=None,
        outcome=outcome,
        p_value=None,
        p_adjusted=None,
        counted_with=None,
        worse_within_allowance=False,
        better=False,
        noise_sd=None,
        detectable=None,
        projected_rounds=None,
    )


def ratio(point: float, low: float, high: float) -> Change95:
    return Change95(point=point, low=low, high=high, level=0.95, rounds=4, unit="ratio")


@given(
    st.floats(min_value=-0.3, max_value=0.3),
    st.floats(min_value=0, max_value=0.3),
    st.sampled_from(Direction),
    st.sampled_from([0.01, 0.02, 0.1]),
)
def test_an_interval_lies_left_of_the_limit_exactly_when_the_rule_lets_it_pass(
    low: float, width: float, direction: Direction, limit: float
) -> None:
    change = ratio(low + width / 2, low, low + width)
    _, better, worse = strips.worsening(change, Limit(value=limit), direction)
    bad_end = (1 + change.high) if direction is Direction.LOWER else 1 / (1 + change.low)
    assert (worse < 1) == (bad_end < 1 + limit) or abs(worse - 1) < 1e-9
    assert better <= worse


def test_points_are_compared_as_points() -> None:
    change = Change95(point=-1.0, low=-3.0, high=1.0, level=0.95, rounds=4, unit="points")
    assert strips.worsening(change, Limit(value=2, unit="points"), Direction.HIGHER) == (0.5, -0.5, 1.5)


def test_a_metric_that_rejects_is_a_square_and_one_that_passes_a_circle() -> None:
    rejected = str(strips.forest(metric(ratio(0.06, 0.04, 0.08), outcome=Outcome.REJECT)))
    passed = str(strips.forest(metric(ratio(0.0, -0.01, 0.01))))
    undecided = str(strips.forest(metric(ratio(0.0, -0.01, 0.03), outcome=Outcome.UNCERTAIN)))
    assert "<rect" in rejected
    assert "forest bad" in rejected
    assert "<circle" in passed
    assert "forest ok" in passed
    assert "forest open" in undecided


def test_an_interval_beyond_the_scale_ends_in_an_arrow() -> None:
    assert 'class="tip"' not in str(strips.forest(metric(ratio(0.0, -0.01, 0.01))))
    assert str(strips.forest(metric(ratio(0.3, 0.2, 0.4)))).count('class="tip"') == 2
    assert str(strips.forest(metric(ratio(0.0, -0.4, 0.01)))).count('class="tip"') == 1


def test_an_absent_change_leaves_empty_axes() -> None:
    drawn = str(strips.forest(metric(Absent(absent="no rounds"), outcome=Outcome.ABSENT)))
    assert 'class="bar"' not in drawn
    assert 'class="limit"' in drawn


# ---------------------------------------------------------------- dots and shares


def test_dots_show_every_value_in_two_shapes() -> None:
    rows = [Dots("Baseline", [1.0, 2.0], "base"), Dots("Candidate", [3.0], "cand")]
    drawn = str(strips.dots(rows, x_label="s", title="t", marks=EN))
    assert drawn.count("<circle") == 2
    assert drawn.count("point cand") == 1
    assert html.read(drawn).complaints == []
    assert strips.dots([Dots("Baseline", [], "base")], x_label="s", title="t", marks=EN) == ""


def test_shares_fill_the_bar_and_only_wide_ones_carry_their_number() -> None:
    parts = [Share(0.98, "busy", "98 %"), Share(0.02, "off", "2 %")]
    drawn = str(strips.shares(parts, title="t", width=400))
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', drawn)]
    assert sum(widths) == pytest.approx(400)
    assert "98 %" in drawn
    assert ">2 %<" not in drawn
    assert "<rect" in str(strips.shares([Share(0.0, "busy", "0 %")], title="t"))
