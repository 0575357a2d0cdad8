"""The bill: the worked example of docs/cost.md to its digits, by formula and by replay, and each rule by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.cost import (
    BreakEven,
    MigrationCharge,
    Operation,
    Power,
    Prices,
    Use,
    bill,
    break_even,
    busy_only,
    payback_tokens,
    tokens_per_joule,
)
from servegate_action.analysis.judgement import SideCost
from servegate_action.analysis.traffic import Lifecycle, Occupancy, poisson_arrivals, poisson_form, replay
from servegate_action.records import Absent

A = Operation(
    output_tokens_per_second=2400,
    output_tokens=512,
    prompt_tokens=1024,
    served_share=1.0,
    gpus=1,
    power=Power(busy_w=610.0, idle_w=118.0, loading_w=200.0, off_w=72.0),
)
B = replace(A, output_tokens_per_second=2100, power=replace(A.power, busy_w=600.0))
PRICES_A = Prices(usd_per_gpu_hour=2.50, electricity_usd_per_kwh=0.10, efficiency=0.60)
PRICES_B = replace(PRICES_A, usd_per_gpu_hour=3.60)
KEEP = Lifecycle(service_s=A.service_s)
SLEEP = Lifecycle(service_s=B.service_s, idle_timeout_s=60.0, cold_starts_s=(45.0,))
HOURS = 730.0
ABSENT = Absent(absent="no power counter")


def form_use(gap: float, life: Lifecycle) -> Use:
    return Use(rate=1 / gap, replicas=1, occupancy=poisson_form(1 / gap, life), policy="as declared")


def replay_use(gap: float, life: Lifecycle) -> Use:
    drawn = poisson_arrivals(1 / gap, count=200_000, random=np.random.default_rng(5))
    shares = replay(drawn, life, random=np.random.default_rng(6))
    return Use(rate=1 / gap, replicas=1, occupancy=shares, policy="as declared")


def known(cost: SideCost | Absent) -> SideCost:
    assert isinstance(cost, SideCost)
    return cost


def busy(*, busy: float = 0.0, warm_idle: float = 0.0, off: float = 0.0, billed: float = 1.0) -> Use:
    shares = Occupancy(busy=busy, warm_idle=warm_idle, loading=0.0, off=off, billed=billed, starts=0.0)
    return Use(rate=1.0, replicas=1, occupancy=shares, policy="made up")


def found_break_even(gap: Callable[[float], float], *, declared: float, low: float, high: float) -> BreakEven:
    rates = np.geomspace(low, high, 25).tolist()
    return break_even(gap, [(rate, gap(rate)) for rate in rates], declared=declared)


# ---------------------------------------------------------------- the worked example


@pytest.mark.parametrize(
    "gap, cost_a, cost_b, off, kwh_a, kwh_b",
    [
        (500, "683.5", "178.4", "82", "0.118", "0.087"),
        (100, "136.7", "110.4", "44", "0.119", "0.115"),
        (50, "68.4", "75.1", "24", "0.120", "0.127"),
        (20, "27.35", "37.55", "4.5", "0.123", "0.130"),
    ],
)
def test_the_worked_example_by_formula(gap: float, cost_a: str, cost_b: str, off: str, kwh_a: str, kwh_b: str) -> None:
    ours, theirs = known(bill(A, form_use(gap, KEEP), PRICES_A)), known(bill(B, form_use(gap, SLEEP), PRICES_B))
    assert _digits(ours.per_1m_output, cost_a) == cost_a
    assert _digits(theirs.per_1m_output, cost_b) == cost_b
    assert _digits(100 * theirs.share_off, off) == off
    assert isinstance(ours.kwh_per_month_board, float)
    assert isinstance(theirs.kwh_per_month_board, float)
    assert _digits(ours.kwh_per_month_board / HOURS, kwh_a) == kwh_a
    assert _digits(theirs.kwh_per_month_board / HOURS, kwh_b) == kwh_b


@pytest.mark.parametrize(
    "gap, cost_a, cost_b", [(500, 683.5, 178.4), (100, 136.7, 110.4), (50, 68.4, 75.1), (20, 27.35, 37.55)]
)
def test_the_worked_example_by_replay(gap: float, cost_a: float, cost_b: float) -> None:
    """The replay draws its arrivals, so that its digits are those of 200,000 of them: 0.6 %."""
    assert known(bill(A, replay_use(gap, KEEP), PRICES_A)).per_1m_output == pytest.approx(cost_a, abs=0.06)
    assert known(bill(B, replay_use(gap, SLEEP), PRICES_B)).per_1m_output == pytest.approx(cost_b, rel=0.006)


def test_the_worked_example_busy_only() -> None:
    assert _digits(busy_only(A, PRICES_A), "0.289") == "0.289"
    assert _digits(busy_only(B, PRICES_B), "0.476") == "0.476"


def test_the_worked_example_breaks_even_at_one_request_per_63_7_s() -> None:
    def gap(per_hour: float) -> float:
        ours = known(bill(A, form_use(3600 / per_hour, KEEP), PRICES_A)).per_1m_output
        theirs = known(bill(B, form_use(3600 / per_hour, SLEEP), PRICES_B)).per_1m_output
        return math.log(ours / theirs)

    found = found_break_even(gap, declared=36.0, low=1.0, high=10_000.0)
    assert isinstance(found.requests_per_hour, float)
    assert round(3600 / found.requests_per_hour, 1) == 63.7
    assert found.sentence == (
        "the candidate is cheaper below one request per 63.7 s, the baseline above it; "
        "the declared one request per 100 s is 36% below that"
    )
    assert not found.fragile
    assert found_break_even(gap, declared=62.0, low=1.0, high=10_000.0).fragile


def test_sleeping_can_use_more_energy_than_staying_warm() -> None:
    asleep = known(bill(B, form_use(50, SLEEP), PRICES_B)).kwh_per_month_board
    warm = known(bill(B, form_use(50, replace(SLEEP, idle_timeout_s=None)), PRICES_B)).kwh_per_month_board
    assert isinstance(asleep, float)
    assert isinstance(warm, float)
    assert asleep > warm


def _digits(value: float, like: str) -> str:
    return f"{value:.{len(like.partition('.')[2])}f}"


# ---------------------------------------------------------------- items


def test_the_items_add_up_to_the_bill() -> None:
    cost = known(bill(B, form_use(50, SLEEP), PRICES_B, migration=MigrationCharge(usd=1200.0, horizon_months=12)))
    assert [item.name for item in cost.items] == ["busy", "warm idle", "loading", "power", "power penalty", "migration"]
    assert sum(item.usd_per_month for item in cost.items) == pytest.approx(cost.usd_per_month)
    assert sum(item.usd_per_1m_output for item in cost.items) == pytest.approx(cost.per_1m_output)
    assert cost.items[-1].usd_per_month == pytest.approx(100.0)


def test_keep_warm_costs_the_busy_price_over_the_duty() -> None:
    prices = Prices(usd_per_gpu_hour=2.50)
    cost = known(bill(A, form_use(10, KEEP), prices))
    duty = A.output_tokens / 10 / A.output_tokens_per_second
    assert cost.per_1m_output == pytest.approx(busy_only(A, prices) / duty)
    assert [item.name for item in cost.items] == ["busy", "warm idle"]


def test_the_power_penalty_is_what_lies_beyond_the_chip() -> None:
    cost = known(bill(A, form_use(10, KEEP), PRICES_A))
    items = {item.name: item.usd_per_month for item in cost.items}
    assert items["power penalty"] == pytest.approx(items["power"] * (1 / 0.6 - 1))
    assert isinstance(cost.kwh_per_month_grid, float)
    assert items["power"] + items["power penalty"] == pytest.approx(cost.kwh_per_month_grid * 0.10)


def test_a_perfect_grid_has_no_penalty() -> None:
    cost = known(bill(A, form_use(10, KEEP), replace(PRICES_A, efficiency=1.0)))
    assert "power penalty" not in {item.name for item in cost.items}


def test_the_server_around_the_board_is_a_factor_of_its_own() -> None:
    one, more = (known(bill(A, form_use(10, KEEP), replace(PRICES_A, board_to_server=f))) for f in (1.0, 1.5))
    assert isinstance(one.kwh_per_month_grid, float)
    assert more.kwh_per_month_grid == pytest.approx(one.kwh_per_month_grid * 1.5)
    assert more.kwh_per_month_board == one.kwh_per_month_board


def test_replicas_and_gpus_multiply_what_is_held() -> None:
    single = known(bill(A, form_use(10, KEEP), PRICES_A))
    use = replace(form_use(10, KEEP), replicas=3)
    triple = known(bill(replace(A, gpus=2), use, PRICES_A))
    held = {item.name: item.usd_per_month for item in single.items}
    more = {item.name: item.usd_per_month for item in triple.items}
    assert more["warm idle"] == pytest.approx(6 * held["warm idle"])
    # Power is that of the whole replica: three of them draw three times as much.
    assert more["power"] == pytest.approx(3 * held["power"])
    assert triple.effective_tokens_per_gpu_hour == pytest.approx(single.effective_tokens_per_gpu_hour / 6)


def test_billing_steps_are_an_item_of_their_own() -> None:
    cost = known(bill(A, busy(busy=0.2, warm_idle=0.1, off=0.7, billed=0.5), Prices(usd_per_gpu_hour=1.0)))
    items = {item.name: item.usd_per_month for item in cost.items}
    assert items["billing steps"] == pytest.approx(0.2 * HOURS)
    assert cost.usd_per_month == pytest.approx(0.5 * HOURS)


def test_failed_requests_leave_the_denominator_and_stay_in_the_numerator() -> None:
    half = replace(A, served_share=0.5)
    assert half.service_s == pytest.approx(A.service_s / 2)
    use = busy(busy=1.0)
    assert known(bill(half, use, PRICES_A)).per_1m_output == pytest.approx(
        2 * known(bill(A, use, PRICES_A)).per_1m_output
    )


def test_total_tokens_count_prompts_too() -> None:
    cost = known(bill(A, form_use(10, KEEP), PRICES_A))
    assert cost.per_1m_total == pytest.approx(cost.per_1m_output / 3)


def test_scale_to_zero_that_is_not_real_is_priced_and_powered_as_warm() -> None:
    asleep = form_use(100, SLEEP)
    claimed = replace(asleep, kept_warm_because="41 GiB still held")
    cost = known(bill(B, claimed, PRICES_B))
    items = {item.name: item.usd_per_month for item in cost.items}
    assert cost.share_off == 0.0
    assert cost.share_warm_idle == pytest.approx(asleep.occupancy.warm_idle + asleep.occupancy.off)
    assert items["busy"] + items["warm idle"] + items["loading"] == pytest.approx(HOURS * 3.60)
    assert cost.per_1m_output > known(bill(B, asleep, PRICES_B)).per_1m_output
    assert cost.effective_tokens_per_gpu_hour == pytest.approx(512 * 36)


# ---------------------------------------------------------------- what cannot be priced


def test_without_tokens_a_cost_per_token_is_undefined() -> None:
    assert bill(replace(A, served_share=0.0), busy(busy=1.0), PRICES_A) == Absent(
        absent="no tokens are served, so that a cost per token is undefined"
    )


@pytest.mark.parametrize("state", ["busy_w", "idle_w", "loading_w", "off_w"])
def test_priced_power_must_be_known_in_every_state_that_takes_time(state: str) -> None:
    dark = replace(B, power=replace(B.power, **{state: ABSENT}))
    cost = bill(dark, form_use(100, SLEEP), PRICES_B)
    assert cost == Absent(absent="electricity has a price, but the power drawn is not known: no power counter")


def test_power_need_not_be_known_where_the_gpu_price_contains_it() -> None:
    dark = replace(A, power=Power(ABSENT, ABSENT, ABSENT, ABSENT))
    cost = known(bill(dark, form_use(10, KEEP), Prices(usd_per_gpu_hour=2.5)))
    assert cost.kwh_per_month_board == ABSENT
    assert cost.kwh_per_month_grid == ABSENT
    assert cost.tokens_per_joule_board == ABSENT
    assert cost.tokens_per_joule_grid == ABSENT


def test_power_need_not_be_known_in_a_state_that_never_happens() -> None:
    never_off = replace(A, power=replace(A.power, loading_w=ABSENT, off_w=ABSENT))
    assert isinstance(bill(never_off, form_use(10, KEEP), PRICES_A), SideCost)


def test_tokens_per_joule_are_those_of_serving() -> None:
    assert tokens_per_joule(A) == pytest.approx(2400 / 610)
    assert tokens_per_joule(A, grid_factor=0.6) == pytest.approx(2400 / 610 * 0.6)
    zero = replace(A, power=replace(A.power, busy_w=0.0))
    assert tokens_per_joule(zero) == Absent(absent="the power reading was zero while tokens were made")


def test_capacity_is_the_inverse_of_the_service_time() -> None:
    assert A.capacity_per_hour == pytest.approx(3600 * 2400 / 512)


# ---------------------------------------------------------------- break-even and payback


def test_a_side_that_is_always_cheaper_has_no_break_even() -> None:
    for sign, side in ((1.0, "candidate"), (-1.0, "baseline")):
        found = found_break_even(lambda _, sign=sign: sign, declared=10, low=1, high=200)  # type: ignore[misc]
        assert isinstance(found.requests_per_hour, Absent)
        assert (
            found.sentence == f"the {side} is cheaper at every traffic from one request per 3.6e+03 s to 200 requests/h"
        )
        assert not found.fragile


def test_equal_costs_have_no_break_even() -> None:
    found = found_break_even(lambda _: 1e-12, declared=10, low=1, high=100)
    assert found == BreakEven(
        Absent(absent="both cost the same at every traffic"), "both cost the same at every traffic", fragile=False
    )


def test_of_several_crossings_the_nearest_to_the_declared_traffic_counts() -> None:
    def gap(rate: float) -> float:
        return math.sin(math.log(rate / 10) * 2.0)

    near = found_break_even(gap, declared=40.0, low=2.0, high=2000.0).requests_per_hour
    far = found_break_even(gap, declared=300.0, low=2.0, high=2000.0).requests_per_hour
    assert near == pytest.approx(10 * math.exp(math.pi / 2), rel=1e-4)
    assert far == pytest.approx(10 * math.exp(math.pi), rel=1e-4)


def test_the_sentence_names_who_is_cheaper_where() -> None:
    found = found_break_even(lambda rate: math.log(rate / 500), declared=560, low=10, high=10_000)
    assert found.sentence == (
        "the baseline is cheaper below 500 requests/h, the candidate above it; "
        "the declared 560 requests/h is 12% above that, within 20%: the saving is fragile"
    )
    assert found.fragile


@given(st.floats(2.0, 5000.0), st.booleans(), st.floats(1.0, 10_000.0))
def test_break_even_is_found_wherever_it_is(point: float, rising: bool, declared: float) -> None:
    sign = 1.0 if rising else -1.0
    found = found_break_even(lambda rate: sign * math.log(rate / point), declared=declared, low=1.0, high=10_000.0)
    assert found.requests_per_hour == pytest.approx(point, rel=1e-4)
    assert found.fragile == (abs(declared / point - 1) <= 0.2) or abs(abs(declared / point - 1) - 0.2) < 1e-4


def test_payback_is_the_cost_of_moving_over_the_saving_per_token() -> None:
    assert payback_tokens(migration_usd=4800, baseline_per_1m=0.50, candidate_per_1m=0.42) == pytest.approx(6e10)
    assert payback_tokens(migration_usd=0, baseline_per_1m=1, candidate_per_1m=0.5) == Absent(
        absent="moving costs nothing"
    )
    assert payback_tokens(migration_usd=1, baseline_per_1m=1, candidate_per_1m=1.0) == Absent(
        absent="the candidate saves nothing, so that moving never pays"
    )
