"""Nearest rank, plain and weighted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.quantiles import effective_size, nearest_rank, weighted_nearest_rank

values = st.lists(st.floats(0, 1e9), min_size=1, max_size=60)
shares = st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.99, 1.0])


@pytest.mark.parametrize(
    "count, rank",
    [(1, 1), (19, 19), (20, 19), (21, 20), (100, 95), (101, 96), (200, 190), (1000, 950), (5000, 4750)],
)
def test_p95_is_the_value_at_the_rank_of_the_definition(count: int, rank: int) -> None:
    sample = np.arange(1.0, count + 1)
    assert nearest_rank(sample, 0.95) == rank
    assert weighted_nearest_rank(sample, np.full(count, 0.1), 0.95) == rank


def test_share_zero_is_the_smallest_value() -> None:
    assert nearest_rank(np.array([3.0, 1.0, 2.0]), 0.0) == 1.0


def test_failed_requests_are_the_largest_values() -> None:
    sample = np.array([1.0] * 95 + [np.inf] * 5)
    assert nearest_rank(sample, 0.95) == 1.0
    assert math.isinf(nearest_rank(np.array([1.0] * 94 + [np.inf] * 6), 0.95))


@given(values, shares)
def test_equal_weights_give_the_plain_quantile(sample: list[float], share: float) -> None:
    array = np.array(sample)
    assert weighted_nearest_rank(array, np.full(array.size, 1 / 7), share) == nearest_rank(array, share)


@given(values, shares)
def test_a_quantile_is_an_observed_value_with_enough_of_the_sample_below(sample: list[float], share: float) -> None:
    array = np.array(sample)
    value = nearest_rank(array, share)
    assert value in sample
    assert (array <= value).mean() >= share - 1e-9
    assert (array < value).mean() < share or value == array.min()


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 9)), min_size=1, max_size=30), shares)
def test_a_whole_weight_stands_for_as_many_equal_requests(sample: list[tuple[float, int]], share: float) -> None:
    weighted = weighted_nearest_rank(
        np.array([value for value, _ in sample]), np.array([float(weight) for _, weight in sample]), share
    )
    repeated = np.array([value for value, weight in sample for _ in range(weight)])
    assert weighted == nearest_rank(repeated, share)


def test_a_cell_weighs_by_its_traffic_not_by_its_number_of_requests() -> None:
    # 10 slow requests stand for 10 % of the traffic, 990 fast ones for the rest: the p95 is slow.
    slow, fast = np.full(10, 9.0), np.full(990, 1.0)
    weights = np.concatenate([np.full(10, 0.10 / 10), np.full(990, 0.90 / 990)])
    assert weighted_nearest_rank(np.concatenate([slow, fast]), weights, 0.95) == 9.0


def test_effective_size_of_equal_weights_is_their_number() -> None:
    assert effective_size(np.full(137, 0.3)) == 137


def test_effective_size_shrinks_when_few_requests_carry_the_weight() -> None:
    # (1 + 0.1·10)² / (1 + 10·0.01) = 4 / 1.1
    assert effective_size(np.array([1.0, *[0.1] * 10])) == 3
