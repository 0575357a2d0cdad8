"""Student's t, Holm, the two estimates of noise and the forecasts, against independent sources."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from servegate_action.analysis import stats
from servegate_action.analysis.levels import ALPHAS
from servegate_action.errors import UsageError

LOOKS = (4, 6, 8)


def rule(metrics: int, *, margin: float = 0.05, floor: float = 0.0005) -> stats.Rule:
    return stats.Rule(
        margin=np.full(metrics, margin),
        sd_floor=np.full(metrics, floor),
        family=np.arange(metrics),
        may_pass=np.ones(metrics, dtype=np.bool_),
    )


# ---------------------------------------------------------------- Student's t


@pytest.mark.parametrize("df", [*range(1, 31), 0.7, 2.5, 6.44, 120.0])
def test_the_tail_of_student_t_is_that_of_scipy(df: float) -> None:
    t = np.linspace(-40.0, 60.0, 1001)
    ours, theirs = stats.student_tail(t, df), scipy.stats.t.sf(t, df)
    assert np.max(np.abs(ours - theirs)) < 1e-12
    assert np.max(np.abs(ours / theirs - 1.0)) < 1e-8


@pytest.mark.parametrize("df", [*range(1, 31), 0.7, 2.5, 6.44, 120.0])
def test_the_quantile_of_student_t_is_that_of_scipy(df: float) -> None:
    tails = np.array([0.499, 0.3, 0.1, 0.05, 0.0225, 0.001, 1e-6, 1e-10])
    assert np.allclose(stats.student_quantile(tails, df), scipy.stats.t.isf(tails, df), rtol=1e-8, atol=0.0)


def test_the_quantiles_that_reviewers_know() -> None:
    assert stats.student_quantile(0.0225, [3, 5, 7]) == pytest.approx([3.322, 2.658, 2.436], abs=1e-3)
    assert stats.student_quantile(0.0185, [3, 5, 7, 9]) == pytest.approx([3.591, 2.822, 2.570, 2.446], abs=1e-3)


@pytest.mark.parametrize("tail", [0.0, 0.5, 0.9, 1.0, -0.1, math.nan])
def test_a_quantile_outside_the_upper_half_is_refused(tail: float) -> None:
    with pytest.raises(ValueError, match="upper tail"):
        stats.student_quantile(tail, 3.0)


@given(t=st.floats(-1e6, 1e6), df=st.floats(0.5, 200.0))
def test_both_tails_make_a_whole(t: float, df: float) -> None:
    assert float(stats.student_tail(t, df) + stats.student_tail(-t, df)) == pytest.approx(1.0, abs=1e-12)


# ---------------------------------------------------------------- Holm


@given(p=arrays(np.float64, st.integers(1, 12), elements=st.floats(0.0, 1.0)))
def test_holm_is_the_step_down_procedure(p: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    level = 0.05
    rejected = np.zeros(len(p), dtype=np.bool_)
    for i, index in enumerate(np.argsort(p, kind="stable")):
        if p[index] > level / (len(p) - i):
            break
        rejected[index] = True
    adjusted = stats.holm(p, np.arange(len(p)))
    near = np.abs(adjusted - level) < 1e-12
    assert np.array_equal((adjusted <= level)[~near], rejected[~near])


def test_holm_counts_copies_once_and_ungated_metrics_never() -> None:
    p = np.array([0.01, 0.01, 0.2, 0.0001])
    assert stats.holm(p, np.array([0, 0, 1, -1])).tolist() == pytest.approx([0.02, 0.02, 0.2, 1.0])


def test_holm_without_any_gated_metric_rejects_nothing() -> None:
    assert stats.holm(np.array([1e-9, 1e-9]), np.array([-1, -1])).tolist() == [1.0, 1.0]


# ---------------------------------------------------------------- looks


def test_levels_rise_from_look_to_look() -> None:
    first, second, third = stats.levels_for(LOOKS)
    assert second == pytest.approx(2 * first)
    assert third == pytest.approx(3 * first)


@pytest.mark.parametrize("least", [2, 4, 6, 8, 10])
def test_every_schedule_that_a_configuration_can_ask_for_has_levels(least: int) -> None:
    for most in range(least, stats.MOST_ROUNDS + 1, 2):
        levels = stats.levels_for(range(least, most + 1, 2))
        assert 0.0 < sum(levels[-1:]) <= 0.05
        assert sum(levels) >= 0.038  # looks share data, so that their levels may add up to more than the total


def test_the_levels_in_the_documentation_are_those_of_the_code() -> None:
    text = (Path(__file__).parents[3] / "docs" / "statistics.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (?:looks|one look at) ([\d, ]+?)  +a = ([.\d, ]+)$", text, flags=re.MULTILINE)
    assert len(lines) == 6
    for looks, levels in lines:
        found = stats.levels_for([int(look) for look in looks.split(", ")])
        assert [float(level) for level in levels.split(", ")] == pytest.approx(found, abs=1e-9)


def test_more_looks_mean_a_stricter_level_at_each() -> None:
    for schedule, alpha in ALPHAS.items():
        if len(schedule) > 1 and schedule[:-1] in ALPHAS:
            assert alpha < ALPHAS[schedule[:-1]]


@pytest.mark.parametrize("looks", [(), (3,), (4, 5), (4, 7, 8), (8, 6), (4, 10), (2, 42)])
def test_a_schedule_without_a_proven_level_is_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="no level is known") as refusal:
        stats.levels_for(looks)
    assert "rounds.min" in refusal.value.next_step


def test_a_metric_at_its_limit_crosses_at_any_look_one_time_in_twenty() -> None:
    """The table's promise where it is hardest: one metric alone, equal launches, nothing shared."""
    random = np.random.default_rng(4)
    a, b = random.standard_normal((2, 40_000, 8, 1))
    crossed = np.zeros(len(a), dtype=np.bool_)
    for look, level in zip(LOOKS, stats.levels_for(LOOKS), strict=True):
        crossed |= stats.judge(a[:, :look], b[:, :look], rule(1, margin=0.0, floor=0.0), level).passed[:, 0]
    assert crossed.mean() == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / len(a)))


# ---------------------------------------------------------------- noise


def test_slots_alternate_and_are_balanced_at_even_rounds() -> None:
    first, second = stats.slots(4)
    assert (first + 3.5).tolist() == [0, 3, 4, 7]
    assert (second + 3.5).tolist() == [1, 2, 5, 6]
    assert first.sum() == second.sum() == 0


def test_shared_noise_makes_the_differences_the_estimate() -> None:
    random = np.random.default_rng(1)
    shared = 3.0 * random.standard_normal((6, 20))
    a, b = random.standard_normal((2, 6, 20))
    found = stats.noise(a + shared, b + shared, rule(20))
    assert bool(found.paired)
    assert np.allclose(found.variance, (b - a).var(axis=0, ddof=1))
    assert np.all(found.df == 5.0)


def test_independent_launches_are_the_estimate_where_pairing_does_not_help() -> None:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((2, 6, 20))
    found = stats.noise(a, b, rule(20))
    assert not bool(found.paired)
    assert np.all((found.df >= 4.5) & (found.df <= 9.0))
    assert float(found.variance.mean()) == pytest.approx(2.0, rel=0.3)


def test_linear_drift_changes_neither_the_difference_nor_the_noise_of_launches() -> None:
    random = np.random.default_rng(2)
    a, b = random.standard_normal((2, 8, 5))
    first, second = stats.slots(8)
    still = stats.judge(a, b, rule(5), 0.02)
    drifting = stats.judge(a + 7.0 * first[:, None], b + 7.0 * second[:, None], rule(5), 0.02)
    assert np.allclose(still.mean, drifting.mean)
    assert np.allclose(still.half, drifting.half)
    assert bool(still.paired) == bool(drifting.paired) is False


def test_the_variance_of_launches_is_unbiased_however_unequal_the_stacks_are() -> None:
    random = np.random.default_rng(3)
    a, b = random.standard_normal((2, 20_000, 6, 1))
    b = 4.0 * b
    variance, _ = stats._launch_variance(a, b)  # the estimate before any choice between estimates
    assert float(variance.mean()) == pytest.approx(17.0, rel=0.02)


def test_fewer_than_four_rounds_know_only_differences() -> None:
    a, b = np.random.default_rng(1).standard_normal((2, 2, 3))
    assert bool(stats.noise(a, b, rule(3)).paired)


def test_metrics_without_any_noise_have_no_say_in_the_choice() -> None:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((2, 6, 4))
    a[:, 2:] = b[:, 2:] = 1.0
    assert bool(stats.noise(a, b, rule(4)).paired) == bool(stats.noise(a[:, :2], b[:, :2], rule(2)).paired)
    assert bool(stats.noise(a[:, 2:], b[:, 2:], rule(2)).paired)


# ---------------------------------------------------------------- properties of a look

values = arrays(np.float64, (4, 3), elements=st.floats(-1.0, 1.0))
Values = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@given(a=values, b=values)
def test_swapping_the_stacks_negates_the_difference(a: Values, b: Values) -> None:
    ours, swapped = stats.judge(a, b, rule(3), 0.02), stats.judge(b, a, rule(3), 0.02)
    assert np.allclose(ours.mean, -swapped.mean)
    if bool(ours.paired) and bool(swapped.paired):
        assert np.allclose(ours.half, swapped.half)
        assert np.allclose(ours.p, 1.0 - swapped.p)


def test_time_read_backwards_with_the_stacks_swapped_says_the_same() -> None:
    """A B | B A read from its end is again A B | B A: the launches' estimate has no preferred direction."""
    a, b = np.random.default_rng(1).standard_normal((2, 4, 3))
    ours, mirrored = stats.judge(a, b, rule(3), 0.02), stats.judge(a[::-1], b[::-1], rule(3), 0.02)
    assert np.allclose(ours.mean, mirrored.mean)
    assert np.allclose(ours.half, mirrored.half)


@given(a=values, b=values, shift=st.floats(-20.0, 20.0))
def test_the_unit_of_a_metric_changes_nothing(a: Values, b: Values, shift: float) -> None:
    """A change of unit multiplies values, hence shifts scores."""
    ours, scaled = stats.judge(a, b, rule(3), 0.02), stats.judge(a + shift, b + shift, rule(3), 0.02)
    assert np.allclose(ours.mean, scaled.mean)
    if bool(ours.paired) == bool(scaled.paired):  # rounding may tip a choice that stands on the edge
        assert np.allclose(ours.half, scaled.half, rtol=1e-6, atol=1e-9)


@given(a=values, b=values, limits=st.tuples(st.floats(1e-4, 1.0), st.floats(1e-4, 1.0)))
def test_widening_a_limit_never_turns_good_into_bad(a: Values, b: Values, limits: tuple[float, float]) -> None:
    narrow, wide = sorted(limits)
    before, after = stats.judge(a, b, rule(3, margin=narrow), 0.02), stats.judge(a, b, rule(3, margin=wide), 0.02)
    assert not np.any(before.passed & ~after.passed)
    assert not np.any(~before.rejected & after.rejected)


@given(a=values, b=values)
def test_nothing_is_good_and_bad_at_once(a: Values, b: Values) -> None:
    judged = stats.judge(a, b, rule(3), 0.02)
    assert not np.any(judged.passed & judged.rejected)
    assert not np.any(judged.worse & judged.better)


@given(level=st.floats(-1.0, 1.0), change=st.floats(-0.5, 0.5))
def test_constant_data_neither_crash_nor_claim_certainty(level: float, change: float) -> None:
    a, b = np.full((4, 2), level), np.full((4, 2), level + change)
    judged = stats.judge(a, b, rule(2), 0.02)
    assert np.all(np.isfinite(judged.half))
    assert np.all(judged.half > 0.0)
    assert np.all(np.isfinite(judged.p))
    assert np.all(np.isfinite(judged.df))


def test_a_percentile_with_too_few_requests_cannot_be_good() -> None:
    few = stats.Rule(
        margin=np.full(2, 0.05),
        sd_floor=np.full(2, 0.0005),
        family=np.arange(2),
        may_pass=np.array([True, False]),
    )
    assert stats.judge(np.zeros((4, 2)), np.zeros((4, 2)), few, 0.02).passed.tolist() == [True, False]


# ---------------------------------------------------------------- forecasts


def spread(sd: float, *, rounds: int) -> stats.Spread:
    return stats.Spread(sd=np.array([sd]), df=np.array([rounds - 1.0]), rounds=rounds)


def projected(sd: float, *, rounds: int, mean: float, margin: float = 0.05) -> int | None:
    (found,) = stats.rounds_to_decide(
        spread(sd, rounds=rounds),
        mean=np.array([mean]),
        margin=np.array([margin]),
        looks=LOOKS,
        rounds=rounds,
        families=20,
    )
    return found


@pytest.mark.parametrize("rounds", [4, 6, 8])
def test_what_is_called_detectable_is_found_nine_times_out_of_ten(rounds: int) -> None:
    """By the exact noncentral t of scipy, for one of twenty metrics."""
    noise = spread(1.0, rounds=rounds)
    (seen,) = stats.detectable(noise, margin=np.array([0.1]), looks=LOOKS, rounds=rounds, families=20)
    level = stats.levels_for(LOOKS)[LOOKS.index(rounds)]
    critical = scipy.stats.t.isf(level / 20, rounds - 1)
    assert 0.89 < scipy.stats.nct.sf(critical, rounds - 1, seen / noise.error(rounds)[0]) < 0.94


def test_a_wide_limit_is_what_bounds_the_detectable() -> None:
    noise = spread(0.01, rounds=8)
    (seen,) = stats.detectable(noise, margin=np.array([1.0]), looks=LOOKS, rounds=8, families=20)
    assert seen == pytest.approx(1.0 + scipy.stats.t.isf(0.1, 7) * 0.01 / math.sqrt(8))


def test_the_projection_is_the_first_even_count_whose_interval_fits() -> None:
    found = projected(0.05, rounds=8, mean=0.01)
    assert found is not None

    def fits(n: int) -> bool:
        level = stats.levels_for(range(4, n + 1, 2))[-1]
        return bool(0.01 + scipy.stats.t.isf(level, n - 1) * 0.05 / math.sqrt(n) < 0.05)

    assert fits(found)
    assert not fits(found - 2)


def test_a_suspect_metric_is_projected_to_its_rejection() -> None:
    assert projected(0.05, rounds=4, mean=0.10) == 8


@pytest.mark.parametrize(("mean", "rounds"), [(0.0499, 8), (0.0501, 8), (0.01, 40)])
def test_what_forty_rounds_cannot_decide_has_no_projection(mean: float, rounds: int) -> None:
    assert projected(0.5, rounds=rounds, mean=mean) is None
