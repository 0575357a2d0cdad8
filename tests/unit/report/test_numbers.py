from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.judgement import Change95, Direction, Quantity
from servegate_action.config.limits import Limit
from servegate_action.records import Absent
from servegate_action.report import numbers
from servegate_action.report.numbers import Marks

EN = Marks(decimal=".", thousands=",", points="points")
ES = Marks(decimal=",", thousands="\u202f", points="puntos")
FINITE = st.floats(min_value=1e-6, max_value=1e12)


def ratio(point: float, low: float, high: float) -> Change95:
    return Change95(point=point, low=low, high=high, level=0.95, rounds=4, unit="ratio")


@given(FINITE, FINITE)
def test_two_values_that_are_compared_have_equal_digits(first: float, second: float) -> None:
    shown = numbers.pair((first, second), "ms", EN)
    decimals = {len(text.removesuffix(" ms").removesuffix(" M").partition(".")[2]) for text in shown}
    assert len(decimals) == 1


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0321, "s", "0.0321 s"),
        (8.28, "ms", "8.28 ms"),
        (31.26, "ms", "31.3 ms"),
        (1472.4, "ms", "1,472 ms"),
        (8_636_112, "tok/GPU-h", "8.636 M tok/GPU-h"),
        (42_000_000_000, "", "42,000 M"),
        (0.4, "USD", "0.400 USD"),
        (1843.3, "USD", "1,843.30 USD"),
        (91.0, "%", "91.0 %"),
        (0.0, "ms", "0 ms"),
    ],
)
def test_a_value_has_a_unit_and_about_three_significant_digits(value: float, unit: str, shown: str) -> None:
    assert numbers.measure(value, unit, EN) == shown


def test_spanish_writes_a_decimal_comma_and_thin_spaces() -> None:
    assert numbers.measure(1234567.0, "", ES) == "1,235 M"
    assert numbers.measure(12345.0, "ms", ES) == "12\u202f345 ms"
    assert numbers.measure(8.28, "ms", ES) == "8,28 ms"


def test_quantities_of_different_units_keep_their_own_digits() -> None:
    first, second = Quantity(value=31.26, unit="ms"), Quantity(value=1.6, unit="s")
    assert numbers.pair_of_quantities(first, second, EN) == ("31.3 ms", "1.60 s")
    assert numbers.pair_of_quantities(first, first, EN) == ("31.3 ms", "31.3 ms")


def test_a_negative_number_has_a_true_minus_and_a_zero_has_none() -> None:
    assert numbers.figure(-1.25, 1, EN) == "−1.2"
    assert numbers.figure(-0.001, 1, EN) == "0.0"
    assert numbers.figure(-0.001, 1, EN, signed=True) == "±0.0"
    assert numbers.figure(0.5, 1, EN, signed=True) == "+0.5"


def test_a_change_has_its_real_sign_its_interval_and_its_limit() -> None:
    text = numbers.change(ratio(0.063, 0.041, 0.088), Limit(value=0.02), Direction.LOWER, EN)
    assert (text.point, text.interval, text.allowed) == ("+6.3 %", "+4.1 … +8.8", "+2 %")
    assert text.whole == "+6.3 % (+4.1 … +8.8)"
    text = numbers.change(ratio(-0.008, -0.013, -0.003), Limit(value=0.02), Direction.HIGHER, EN)
    assert (text.point, text.allowed) == ("−0.8 %", "−2 %")


def test_a_change_in_points_is_not_scaled() -> None:
    change = Change95(point=-1.2, low=-2.4, high=0.1, level=0.95, rounds=4, unit="points")
    text = numbers.change(change, Limit(value=2.0, unit="points"), Direction.HIGHER, EN)
    assert (text.point, text.interval, text.allowed) == ("−1.2 points", "−2.4 … +0.1", "−2 points")
    assert numbers.allowed(Limit(value=2.5, unit="points"), Direction.LOWER, ES) == "+2,5 puntos"


@pytest.mark.parametrize(
    ("low", "high", "interval"),
    [
        (0.0201, 0.04, "+2.01 … +4.00"),
        (0.004, 0.01999, "+0.400 … +1.999"),
        (0.0, 0.02, "±0.0 … +2.0"),
        (0.01, 0.0200000001, "+1.000 … +2.000"),
    ],
)
def test_rounding_never_puts_a_bound_onto_the_limit_unless_it_takes_more_than_three_decimals(
    low: float, high: float, interval: str
) -> None:
    assert (
        numbers.change(ratio((low + high) / 2, low, high), Limit(value=0.02), Direction.LOWER, EN).interval == interval
    )


@given(
    st.floats(min_value=-0.5, max_value=0.5),
    st.floats(min_value=0, max_value=0.5),
    st.sampled_from([0.01, 0.02, 0.05, 0.1]),
    st.sampled_from(Direction),
)
def test_a_shown_bound_is_on_the_side_of_the_limit_on_which_it_was_measured(
    low: float, width: float, value: float, direction: Direction
) -> None:
    change = ratio(low + width / 2, low, low + width)
    limit = Limit(value=value)
    text = numbers.change(change, limit, direction, EN)
    edge = 100 * numbers.bound(limit, direction)
    for part, shown in zip((change.low, change.high), text.interval.split(" … "), strict=True):
        number = float(shown.replace("−", "-").replace("±", ""))
        decimals = len(shown.partition(".")[2])
        if abs(100 * part - edge) > 0.002:
            assert (100 * part < edge) == (number < round(edge, decimals))


def test_a_tiny_change_shows_more_digits_and_a_huge_one_fewer() -> None:
    assert numbers.change(ratio(0.0002, -0.0004, 0.0008), None, None, EN).whole == "+0.02 % (−0.04 … +0.08)"
    assert numbers.change(ratio(1.5, 0.9, 2.2), None, None, EN).whole == "+150 % (+90 … +220)"


def test_a_limit_on_a_rate_is_a_ratio_and_its_exact_bound_is_shown_where_it_matters() -> None:
    limit = Limit(value=0.10)
    assert math.isclose(numbers.bound(limit, Direction.HIGHER), 1 / 1.1 - 1)
    assert numbers.allowed(limit, Direction.HIGHER, EN) == "−10 %"
    assert numbers.change(ratio(-0.05, -0.095, -0.01), limit, Direction.HIGHER, EN).allowed == "−10 % (= −9.09 %)"
    assert numbers.change(ratio(0.05, 0.01, 0.095), limit, Direction.LOWER, EN).allowed == "+10 %"
    assert numbers.bound(Limit(value=2, unit="points"), Direction.HIGHER) == -2
    assert numbers.bound(Limit(value=2, unit="points"), Direction.LOWER) == 2


def test_percentages_have_no_zeros_at_their_end() -> None:
    assert numbers.short_percent(0.05, EN) == "5 %"
    assert numbers.short_percent(0.0225, EN) == "2.25 %"
    assert numbers.short_percent(1 / 3, EN) == "33.333 %"
    assert numbers.percent(0.1234, EN) == "12.3 %"


def test_a_tiny_p_value_is_a_bound() -> None:
    assert numbers.probability(0.0004, EN) == "< 0.001"
    assert numbers.probability(0.0072, ES) == "= 0,007"


def test_an_absent_value_is_a_word_and_never_a_number() -> None:
    assert numbers.maybe(Absent(absent="no counter"), "W", EN, none="–") == "–"
    assert numbers.maybe(12.5, "W", EN, none="–") == "12.5 W"


def test_a_count_has_its_thousands_apart() -> None:
    assert numbers.count(8000, EN) == "8,000"
