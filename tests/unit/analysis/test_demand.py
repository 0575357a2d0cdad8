"""The declared traffic as arrivals."""

from __future__ import annotations

import numpy as np
import pytest

from servegate_action.analysis.demand import POISSON_COUNT, Demand, demand_of
from servegate_action.analysis.traffic import Lifecycle, poisson_form
from servegate_action.config.cost import Traffic

SLEEP = Lifecycle(service_s=0.2, idle_timeout_s=60.0, cold_starts_s=(40.0,))


def poisson(per_hour: float = 72.0, replicas: int = 1) -> Demand:
    return Demand(Traffic(requests_per_hour=per_hour, replicas=replicas), seed=7)


def profile(*rates: float) -> Demand:
    return Demand(Traffic(hourly_profile=rates), seed=7)


def trace(*seconds: float) -> Demand:
    return demand_of(Traffic(trace="day.jsonl"), seed=7, recorded_s=seconds)


def test_each_kind_says_what_it_is() -> None:
    assert poisson().text == "Poisson arrivals, 72 requests/h"
    assert poisson(72_000.5, replicas=4).text == "Poisson arrivals, 72,000.5 requests/h, 4 replicas"
    assert profile(*[60.0] * 12, *[120.0] * 12).text == "hourly profile, mean 90 requests/h"
    assert trace(0.0, 30.0, 60.0).text == "trace day.jsonl, mean 120 requests/h"


def test_a_trace_that_was_not_recorded_is_a_problem() -> None:
    assert trace().problem == (
        "the trace day.jsonl has fewer than two moments of arrival, or was not recorded with the run"
    )
    assert trace(5.0, 5.0).problem is not None
    assert trace(5.0, 6.0).problem is None
    assert poisson().problem is None
    assert trace().per_hour == 0.0


def test_arrival_times_without_a_declared_trace_are_no_traffic() -> None:
    assert demand_of(Traffic(requests_per_hour=5), seed=7, recorded_s=(0.0, 1.0)).recorded is None


def test_curves_of_a_profile_end_before_its_days_grow_endless() -> None:
    assert profile(*[60.0] * 24).most_per_hour == pytest.approx(200_000 / 24)
    assert poisson().most_per_hour == float("inf")


@pytest.mark.parametrize("demand", [poisson(), profile(*[60.0] * 24), trace(0.0, 10.0, 50.0)])
@pytest.mark.parametrize("per_hour", [30.0, 72.0, 3000.0])
def test_arrivals_come_at_the_mean_that_is_asked_for(demand: Demand, per_hour: float) -> None:
    assert demand.arrivals(per_hour).rate * 3600 == pytest.approx(per_hour, rel=1e-9)


def test_both_stacks_meet_the_same_arrivals() -> None:
    assert np.array_equal(poisson().arrivals(72.0).seconds, poisson().arrivals(72.0).seconds)
    assert poisson().arrivals(72.0).seconds.size == POISSON_COUNT


def test_a_thin_profile_is_played_for_many_days() -> None:
    drawn = profile(*[10.0] * 24).arrivals(10.0)
    assert drawn.period_s == 60 * 86_400
    dense = profile(*[40_000.0] * 24).arrivals(40_000.0)
    assert dense.period_s == 86_400


def test_a_keep_warm_stack_is_its_duty() -> None:
    shares = poisson(replicas=2).occupancy(72.0, Lifecycle(service_s=10.0, replicas=2))
    assert shares.busy == pytest.approx(0.1)
    assert shares.off == 0.0


def test_the_quick_way_is_the_closed_form_only_where_it_holds() -> None:
    form = poisson_form(72 / 3600, SLEEP)
    assert poisson().quick_occupancy(72.0, SLEEP).off == form.off
    stepped = Lifecycle(service_s=0.2, idle_timeout_s=60.0, cold_starts_s=(40.0,), billing_step_s=60.0)
    assert poisson().quick_occupancy(72.0, stepped).billed > form.billed
    assert poisson(replicas=2).quick_occupancy(72.0, SLEEP).off != form.off
    assert profile(*[72.0] * 24).quick_occupancy(72.0, SLEEP).off == pytest.approx(form.off, abs=0.02)


def test_bursts_change_what_the_mean_rate_alone_would_say() -> None:
    quiet_nights = profile(*[0.0] * 12, *[144.0] * 12).occupancy(72.0, SLEEP)
    assert quiet_nights.off > 0.5
    assert poisson_form(72 / 3600, SLEEP).off < 0.3
