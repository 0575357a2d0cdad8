"""Draws: the same for ever, even, and their own per name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servegate_action.draws import Draws


def test_the_numbers_are_these_on_every_machine() -> None:
    """Computed once with another implementation of FIPS 202 (`openssl dgst -shake256`): a change here changes every workload."""
    assert Draws("7", "requests", "chat/2").below(1000, 6) == [977, 413, 490, 318, 53, 750]
    assert Draws("7", "requests", "chat/2").below(2**64, 1) == [18023840578272204931]


def test_a_stream_goes_on_where_it_ended_and_another_name_is_another_stream() -> None:
    one, other = Draws("1", "a"), Draws("1", "b")
    first, second = one.below(2**64, 4), one.below(2**64, 4)
    assert len({*first, *second, *other.below(2**64, 4)}) == 12
    again = Draws("1", "a")
    assert (again.below(2**64, 4), again.below(2**64, 4)) == (first, second)


@given(st.integers(1, 2**40), st.integers(0, 50))
def test_whole_numbers_stay_below_their_limit(limit: int, count: int) -> None:
    drawn = Draws("bounds").below(limit, count)
    assert len(drawn) == count
    assert all(0 <= number < limit for number in drawn)


def test_whole_numbers_are_even() -> None:
    """Chi-square over 319 values, 100,000 draws: 318 ± 25; five sigma away would be no chance."""
    counts = [0] * 319
    for number in Draws("even").below(319, 100_000):
        counts[number] += 1
    expected = 100_000 / 319
    assert 190 < sum((count - expected) ** 2 / expected for count in counts) < 446


def test_shares_lie_strictly_between_0_and_1_with_the_moments_of_an_even_spread() -> None:
    shares = Draws("shares").unit(100_000)
    assert 0 < min(shares) < 1e-3
    assert 1 - 1e-3 < max(shares) < 1
    assert abs(sum(shares) / 100_000 - 1 / 2) < 5e-3
    assert abs(sum(share * share for share in shares) / 100_000 - 1 / 3) < 5e-3


def test_an_order_holds_everything_once_and_all_orders_occur() -> None:
    assert sorted(Draws("order").order(50)) == list(range(50))
    assert len({tuple(Draws("order", str(number)).order(3)) for number in range(200)}) == 6
