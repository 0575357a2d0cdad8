"""Arrivals through the life of a replica: the closed form, the replay, and what they must agree on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate_action.analysis.traffic import (
    DELAY_SAMPLES,
    NO_DELAYS,
    Arrivals,
    Delays,
    Lifecycle,
    Occupancy,
    poisson_arrivals,
    poisson_form,
    profile_arrivals,
    quantile_with_delays,
    recorded_arrivals,
    replay,
)

WORKED = Lifecycle(service_s=512 / 2100, idle_timeout_s=60.0, cold_starts_s=(45.0,))


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def arrivals(*seconds: float, period: float) -> Arrivals:
    return Arrivals(np.array(seconds), period)


def played(life: Lifecycle, *seconds: float, period: float) -> Occupancy:
    return replay(arrivals(*seconds, period=period), life, random=rng())


# ---------------------------------------------------------------- arrivals


def test_poisson_arrivals_have_the_exact_mean_gap() -> None:
    drawn = poisson_arrivals(0.25, count=1000, random=rng())
    assert drawn.rate == pytest.approx(0.25)
    assert drawn.seconds[-1] == pytest.approx(4000.0)
    assert np.all(np.diff(drawn.seconds) > 0)


def test_the_same_seed_gives_the_same_gaps_at_any_rate() -> None:
    slow, fast = (poisson_arrivals(rate, count=100, random=rng()) for rate in (1.0, 10.0))
    assert np.allclose(slow.seconds, fast.seconds * 10)


def test_a_profile_puts_each_hour_its_share_of_the_requests() -> None:
    profile = [0.0] * 6 + [1000.0] * 6 + [0.0] * 6 + [3000.0] * 6
    drawn = profile_arrivals(profile, days=2, random=rng())
    hours, _ = np.histogram(drawn.seconds % 86_400 / 3600, bins=24, range=(0, 24))
    assert drawn.seconds.size == 2 * sum(profile)
    assert drawn.period_s == 2 * 86_400
    assert np.all(hours[np.array(profile) == 0] == 0)
    assert hours[6:12].sum() == pytest.approx(12_000, rel=0.05)
    assert hours[18:].sum() == pytest.approx(36_000, rel=0.05)


def test_a_profile_of_less_than_a_request_has_one() -> None:
    assert profile_arrivals([0.001] * 24, days=1, random=rng()).seconds.size == 1


def test_a_recorded_trace_starts_at_zero_and_lasts_one_mean_gap_longer() -> None:
    drawn = recorded_arrivals([130.0, 100.0, 110.0])
    assert drawn.seconds.tolist() == [0.0, 10.0, 30.0]
    assert drawn.period_s == 45.0


def test_a_pattern_can_be_played_faster() -> None:
    faster = arrivals(0.0, 10.0, 30.0, period=40.0).at_rate(0.75)
    assert faster.seconds.tolist() == pytest.approx([0.0, 1.0, 3.0])
    assert faster.rate == pytest.approx(0.75)


# ---------------------------------------------------------------- the closed form


@pytest.mark.parametrize(
    "gap, off, waiting",
    [(500, 0.82, 0.90), (100, 0.44, 0.64), (50, 0.24, 0.45), (20, 0.045, 0.15), (10, 0.0025, 0.014)],
)
def test_the_closed_form_gives_the_worked_example(gap: float, off: float, waiting: float) -> None:
    form = poisson_form(1 / gap, WORKED)
    assert form.off == pytest.approx(off, rel=0.02)
    assert form.delays.share == pytest.approx(waiting, rel=0.04)


def test_the_shares_of_the_closed_form_add_up_to_one() -> None:
    form = poisson_form(1 / 50, WORKED)
    assert form.busy + form.warm_idle + form.loading + form.off == pytest.approx(1.0)
    assert form.billed == pytest.approx(1.0 - form.off)


def test_keeping_warm_is_never_off_and_nobody_waits() -> None:
    form = poisson_form(1 / 50, Lifecycle(service_s=5.0))
    assert form.busy == pytest.approx(0.1)
    assert form.warm_idle == pytest.approx(0.9)
    assert form.loading == form.off == 0.0
    assert form.delays == NO_DELAYS


def test_delays_of_the_closed_form_are_whole_starts_and_residual_waits() -> None:
    # One start of 40 s with 1 arrival expected in it: half the waits are 40 s, the others even over (0, 40).
    form = poisson_form(1 / 40, Lifecycle(service_s=0.0, idle_timeout_s=10.0, cold_starts_s=(40.0,)))
    seconds = form.delays.seconds
    assert (seconds == 40.0).mean() == pytest.approx(0.5, abs=0.001)
    assert seconds[seconds < 40].mean() == pytest.approx(20.0, abs=0.1)


def test_several_measured_starts_weigh_by_those_whom_they_keep_waiting() -> None:
    # At one request per 10 s a start of 10 s makes 2 wait, one of 50 s makes 6.
    form = poisson_form(1 / 10, Lifecycle(service_s=0.0, idle_timeout_s=1.0, cold_starts_s=(10.0, 50.0)))
    long = (form.delays.seconds > 10.0).mean()
    # All 1 + of the 5 followers of the long start 4/5 wait more than 10 s.
    assert long == pytest.approx((1 + 4) / 8, abs=0.01)
    assert form.starts == pytest.approx(math.exp(-0.1) / (1 + math.exp(-0.1) * 3.0))


# ---------------------------------------------------------------- the replay, by hand


def test_a_replay_by_hand() -> None:
    # T = 10, L = 5, s = 1. Starts at 0: loads to 5, serves to 6, idles to 16, off. 30: loads to 35, serves to 36;
    # 33 waits to 36, serves to 37; idles to 47, off to 60.
    life = Lifecycle(service_s=1.0, idle_timeout_s=10.0, cold_starts_s=(5.0,))
    shares = played(life, 0.0, 30.0, 33.0, period=60.0)
    assert shares.busy == pytest.approx(3 / 60)
    assert shares.loading == pytest.approx(10 / 60)
    assert shares.warm_idle == pytest.approx(20 / 60)
    assert shares.off == pytest.approx(27 / 60)
    assert shares.billed == pytest.approx(33 / 60)
    assert shares.starts == pytest.approx(2 / 3)
    assert shares.delays.share == 1.0
    assert shares.delays.seconds.tolist() == pytest.approx([3.0, 5.0, 5.0])


def test_billing_in_steps_rounds_each_time_held_up() -> None:
    life = Lifecycle(service_s=1.0, idle_timeout_s=10.0, cold_starts_s=(5.0,), billing_step_s=20.0)
    # Held 16 s and 17 s: 20 s each.
    assert played(life, 0.0, 30.0, 33.0, period=60.0).billed == pytest.approx(40 / 60)


def test_work_beyond_the_period_lengthens_it() -> None:
    life = Lifecycle(service_s=50.0, idle_timeout_s=10.0, cold_starts_s=(5.0,))
    shares = played(life, 0.0, 1.0, period=60.0)
    assert shares.busy == pytest.approx(100 / 105)
    assert shares.off == 0.0


def test_a_delay_that_a_start_causes_can_save_the_next_one() -> None:
    # Warm, the gap from 1 to 15 would exceed T = 10; the start keeps the replica at work until 31.
    life = Lifecycle(service_s=1.0, idle_timeout_s=10.0, cold_starts_s=(30.0,))
    assert played(life, 0.0, 15.0, period=60.0).starts == pytest.approx(1 / 2)


def test_replicas_share_the_traffic_and_sleep_one_by_one() -> None:
    # Two at once: the second would wait 4 s for the first replica's slot, or 5 for a start of its own, so it waits.
    life = Lifecycle(service_s=4.0, replicas=2, idle_timeout_s=10.0, cold_starts_s=(5.0,))
    shares = played(life, 0.0, 0.0, period=40.0)
    assert shares.starts == pytest.approx(2 / 2)
    # Both replicas are off at first: each request starts one rather than wait for the first one's load and service.
    assert shares.busy == pytest.approx(8 / 80)
    assert shares.loading == pytest.approx(10 / 80)
    assert shares.delays.seconds.tolist() == pytest.approx([5.0, 5.0])


def test_a_third_replica_stays_off_while_two_are_enough() -> None:
    life = Lifecycle(service_s=1.0, replicas=3, idle_timeout_s=100.0, cold_starts_s=(5.0,))
    shares = played(life, 0.0, 20.0, 40.0, 60.0, period=80.0)
    assert shares.starts == pytest.approx(1 / 4)
    assert shares.off == pytest.approx(2 / 3)


def test_replicas_that_went_off_start_again() -> None:
    life = Lifecycle(service_s=1.0, replicas=2, idle_timeout_s=5.0, cold_starts_s=(2.0,))
    shares = played(life, 0.0, 50.0, period=100.0)
    assert shares.starts == pytest.approx(1.0)
    # Two times held of 2 + 1 + 5 s.
    assert shares.billed == pytest.approx(16 / 200)


def test_keep_warm_needs_no_replay() -> None:
    shares = played(Lifecycle(service_s=1.0, replicas=2), 0.0, 1.0, period=10.0)
    assert shares.busy == pytest.approx(0.1)
    assert shares.off == 0.0


def test_cold_starts_are_drawn_from_the_measured_ones() -> None:
    life = Lifecycle(service_s=0.0, idle_timeout_s=1.0, cold_starts_s=(2.0, 4.0))
    shares = replay(arrivals(*np.arange(0.0, 4000.0, 10.0), period=4000.0), life, random=rng())
    assert set(np.round(shares.delays.seconds, 9)) == {2.0, 4.0}
    assert shares.loading == pytest.approx(0.3, abs=0.02)


def test_a_replay_is_the_same_for_the_same_seed() -> None:
    drawn = poisson_arrivals(1 / 50, count=500, random=rng())
    life = Lifecycle(service_s=0.2, idle_timeout_s=60.0, cold_starts_s=(40.0, 50.0))
    first, second = (replay(drawn, life, random=rng(3)) for _ in range(2))
    assert first.loading == second.loading
    assert np.array_equal(first.delays.seconds, second.delays.seconds)


def test_many_delays_are_carried_by_their_order_statistics() -> None:
    drawn = poisson_arrivals(1 / 100, count=3 * DELAY_SAMPLES, random=rng())
    shares = replay(drawn, WORKED, random=rng())
    assert shares.delays.seconds.size == DELAY_SAMPLES
    assert shares.delays.seconds[-1] == pytest.approx(45.0, abs=1.0)


# ---------------------------------------------------------------- closed form against replay


@pytest.mark.parametrize("gap", [500, 200, 100, 50, 20, 10])
def test_replay_and_closed_form_agree_within_half_a_point(gap: float) -> None:
    form = poisson_form(1 / gap, WORKED)
    played_ = replay(poisson_arrivals(1 / gap, count=60_000, random=rng(8)), WORKED, random=rng(9))
    for name in ("busy", "warm_idle", "loading", "off", "billed", "starts"):
        assert getattr(played_, name) == pytest.approx(getattr(form, name), abs=0.005), name
    # Requests that arrive while the backlog of a start is worked off wait a little too: service is short, not zero.
    assert played_.delays.share == pytest.approx(form.delays.share, abs=0.005)


poisson_lives = st.tuples(st.floats(0.2, 5.0), st.floats(0.1, 4.0), st.floats(0.05, 2.0))


@settings(max_examples=40, deadline=None)
@given(poisson_lives, st.integers(0, 2**32 - 1))
def test_poisson_arrivals_see_time_averages(shape: tuple[float, float, float], seed: int) -> None:
    """PASTA: the share of arrivals that find the replica off is the share of time that it is off (Wolff 1982)."""
    rate, timeout_gaps, load_gaps = shape
    life = Lifecycle(service_s=0.0, idle_timeout_s=timeout_gaps / rate, cold_starts_s=(load_gaps / rate,))
    random = rng(seed)
    shares = replay(poisson_arrivals(rate, count=20_000, random=random), life, random=random)
    # A start happens about once in 1/p arrivals: 5 standard errors of a share over 20,000 correlated arrivals.
    assert shares.starts == pytest.approx(shares.off, abs=0.03)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=60),
    st.floats(0.0, 20.0),
    st.floats(0.5, 50.0),
    st.lists(st.floats(0.1, 60.0), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_shares_always_add_up_and_delays_are_never_negative(
    times: list[float], service: float, timeout: float, starts: list[float], replicas: int
) -> None:
    life = Lifecycle(service_s=service, replicas=replicas, idle_timeout_s=timeout, cold_starts_s=tuple(starts))
    shares = played(life, *sorted(times), period=1000.0)
    assert shares.busy + shares.warm_idle + shares.loading + shares.off == pytest.approx(1.0)
    assert 0.0 < shares.starts <= 1.0
    assert shares.delays.share >= shares.starts - 1e-9
    assert np.all(shares.delays.seconds > 0)
    assert shares.billed == pytest.approx(1.0 - shares.off)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.0, 500.0), min_size=1, max_size=40),
    st.floats(0.0, 10.0),
    st.floats(0.5, 50.0),
    st.floats(0.1, 30.0),
)
def test_the_vectorised_replay_is_the_plain_loop(
    times: list[float], service: float, timeout: float, load: float
) -> None:
    """The same story, told request by request."""
    order = sorted(times)
    free, starts, loading, delay = -math.inf, 0, 0.0, []
    warm_free, closest = -math.inf, math.inf
    for time in order:
        closest = min(closest, abs(time - free - timeout))
        begin = time + load if time - free > timeout else max(time, free)
        starts += time - free > timeout
        loading += load if time - free > timeout else 0.0
        warm = max(time, warm_free)
        delay.append(begin - warm)
        free, warm_free = begin + service, warm + service
    life = Lifecycle(service_s=service, idle_timeout_s=timeout, cold_starts_s=(load,))
    shares = played(life, *order, period=500.0)
    period = max(500.0, free)
    if closest > 1e-6:
        assert shares.starts * len(order) == pytest.approx(starts)
        assert shares.loading * period == pytest.approx(loading)
        assert shares.delays.seconds.sum() == pytest.approx(sum(one for one in delay if one > 1e-6), abs=1e-4)


# ---------------------------------------------------------------- TTFT with cold starts


def test_without_delays_the_quantile_is_the_warm_one() -> None:
    warm = np.arange(1.0, 101.0)
    assert quantile_with_delays(warm, np.ones(100), NO_DELAYS, 0.95) == 95.0


def test_the_quantile_of_a_mixture_is_not_a_mean_of_two_quantiles() -> None:
    # 20 % wait exactly 40 s: the p95 is the 75 % point of those who wait.
    warm = np.full(100, 0.3)
    value = quantile_with_delays(warm, np.ones(100), Delays(0.2, np.full(10, 40.0)), 0.95)
    assert value == pytest.approx(40.3)


def test_few_waits_only_move_the_warm_quantile_up() -> None:
    # 1 % wait: the p95 is the warm quantile at 0.95 / 0.99.
    warm = np.arange(1.0, 1001.0) / 1000
    value = quantile_with_delays(warm, np.ones(1000), Delays(0.01, np.array([40.0])), 0.95)
    assert value == pytest.approx(0.960)


def test_failed_requests_stay_infinite_with_cold_starts() -> None:
    warm = np.array([0.3] * 9 + [np.inf])
    delays = Delays(0.5, np.array([40.0]))
    assert math.isinf(quantile_with_delays(warm, np.ones(10), delays, 0.95))
    assert quantile_with_delays(warm, np.ones(10), delays, 0.8) == pytest.approx(40.3)
    assert math.isinf(quantile_with_delays(np.array([np.inf]), np.ones(1), delays, 0.5))


def test_the_worked_example_s_latencies() -> None:
    # A warm sample with p95 = 0.32 s and a tail: 0.30 s for 94 %, then rising.
    share = (np.arange(10_000) + 0.5) / 10_000
    warm = np.where(share <= 0.94, 0.30, 0.30 + (share - 0.94) * 2.0)
    weights = np.ones(warm.size)
    assert quantile_with_delays(warm, weights, NO_DELAYS, 0.95) == pytest.approx(0.32, abs=0.001)
    seconds = {
        gap: quantile_with_delays(warm, weights, poisson_form(1 / gap, WORKED).delays, 0.95)
        for gap in (500, 100, 50, 20, 10)
    }
    assert seconds[500] == seconds[100] == seconds[50] == pytest.approx(45.3, abs=0.1)
    assert seconds[20] == pytest.approx(43.0, abs=0.05)
    assert seconds[10] == pytest.approx(0.34, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.01, 5.0), min_size=1, max_size=30),
    st.lists(st.floats(0.1, 60.0), min_size=1, max_size=10),
    st.integers(1, 9),
)
def test_the_mixture_quantile_is_that_of_the_drawn_out_mixture(
    warm: list[float], waits: list[float], tenths: int
) -> None:
    """Spell the mixture out: every pair of warm value and wait, and the warm values alone, in their proportions."""
    alone = [value for value in warm for _ in waits] * (10 - tenths)
    waited = [value + wait for value in warm for wait in waits] * tenths
    whole = np.sort(np.array(alone + waited))
    value = quantile_with_delays(np.array(warm), np.ones(len(warm)), Delays(tenths / 10, np.sort(waits)), 0.95)
    rank = math.ceil(0.95 * whole.size - 1e-6) - 1
    assert value == pytest.approx(whole[rank], rel=1e-6)
