"""The money of a run: rounds, line item, break-even, and what the numbers teach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from servegate_action.analysis.books import Running, open_books, running_of
from servegate_action.analysis.economy import Economy, economy
from servegate_action.analysis.judgement import CostComparison, Word
from servegate_action.analysis.rounds import gather
from servegate_action.config.cost import Cost
from servegate_action.records import Absent, Recording, Side
from tests.support.recordings import Built, SceneCell, build, judged, passing

SLEEPING = {"scale_to_zero": True, "requests_per_hour": 36.0}


def money(built: Built, *, migrates: bool = False, arrivals_s: tuple[float, ...] = ()) -> Economy:
    evidence = gather(built.config, built.recording, built.data)
    return economy(built.config, built.recording, evidence, migrates=migrates, recorded_arrivals_s=arrivals_s)


def compared(found: Economy) -> CostComparison:
    assert isinstance(found.comparison, CostComparison)
    return found.comparison


def priced(built: Built, **changes: object) -> Built:
    """The run with other declarations in its `cost` block."""
    assert built.config.cost is not None
    raw = {**built.config.cost.model_dump(exclude_none=True), **changes}
    cost = Cost.model_validate({key: value for key, value in raw.items() if value is not None})
    return Built(built.config.model_copy(update={"cost": cost}), built.recording, built.data)


def with_records(built: Built, side: Side, **changes: Any) -> Built:  # noqa: ANN401
    """The run with every launch record of one side changed."""
    launches = tuple(one.model_copy(update=changes) if one.side is side else one for one in built.recording.launches)
    return Built(built.config, built.recording.model_copy(update={"launches": launches}), built.data)


# ---------------------------------------------------------------- what is missing


def test_without_prices_there_is_no_money_and_nothing_is_assumed() -> None:
    found = money(build(passing(cost=False)))
    assert (
        found.cost == found.comparison == Absent(absent="no prices are declared: the configuration has no `cost` block")
    )
    assert found.cold_ttft is None
    assert found.duty == {}


def test_without_a_round_there_is_no_money() -> None:
    found = money(build(passing(rounds=0, **SLEEPING)))
    assert found.cost == found.cold_ttft == Absent(absent="no complete round")
    assert money(build(passing(rounds=0))).cold_ttft is None


def test_a_traffic_trace_that_was_not_recorded_is_missed() -> None:
    built = priced(build(passing()), traffic={"trace": "day.jsonl"})
    assert isinstance(money(built).cost, Absent)
    assert "day.jsonl" in str(money(built).comparison)
    assert isinstance(money(built, arrivals_s=tuple(range(0, 86_400, 40))).cost, tuple)


def test_traffic_beyond_capacity_has_no_price_and_says_whose() -> None:
    found = money(build(passing(requests_per_hour=17_500)))
    assert found.comparison == Absent(absent="the declared traffic is more than 1 replica of the baseline can serve")
    assert found.duty[Side.BASELINE] > 1 > found.duty[Side.CANDIDATE]
    both = money(build(passing(requests_per_hour=50_000, scale_to_zero=True)))
    assert "1 replica of the baseline and the candidate" in str(both.comparison)
    assert isinstance(both.cold_ttft, Absent)
    traffic = {"requests_per_hour": 50_000, "replicas": 2}
    assert "2 replicas of" in str(money(priced(build(passing()), traffic=traffic)).comparison)


@pytest.mark.parametrize("side", list(Side))
def test_a_side_without_a_rate_has_no_price(side: Side) -> None:
    built = build(passing(**SLEEPING))
    cells = built.recording.launches[0].cells
    late = tuple(one.model_copy(update={"steady_start_ns": 10**15, "steady_end_ns": 10**15 + 1}) for one in cells)
    found = money(with_records(built, side, cells=late))
    assert found.comparison == Absent(absent=f"{side}, round 1: no token arrived inside the steady window")
    assert isinstance(found.cold_ttft, Absent)


def test_a_sleeping_side_without_an_observed_cold_start_has_no_price() -> None:
    built = build(passing(**SLEEPING))
    found = money(with_records(built, Side.CANDIDATE, cold_start=None))
    assert found.comparison == Absent(absent="candidate, round 1: servegate did not start this stack")
    # A side that keeps warm needs none.
    assert isinstance(money(with_records(built, Side.BASELINE, cold_start=None)).comparison, CostComparison)
    start = built.recording.launches[0].cold_start
    assert start is not None
    died = start.model_copy(update={"first_token_ns": Absent(absent="it died first")})
    found = money(with_records(built, Side.CANDIDATE, cold_start=died))
    assert found.comparison == Absent(absent="candidate, round 1: it died first")


@pytest.mark.parametrize("side", list(Side))
def test_priced_electricity_needs_the_power_of_both_sides(side: Side) -> None:
    found = money(with_records(build(passing()), side, idle=None))
    assert found.comparison == Absent(
        absent=f"{side}: electricity has a price, but the power drawn is not known: "
        "the stack was not watched while ready and idle"
    )
    assert isinstance(found.cost, Absent)
    assert found.cost.absent.startswith(f"round 1, {side}: electricity has a price")


def test_one_idle_block_per_side_is_enough() -> None:
    built = build(passing())
    launches = tuple(
        one if one.round == 1 else one.model_copy(update={"idle": None}) for one in built.recording.launches
    )
    recording = built.recording.model_copy(update={"launches": launches})
    assert isinstance(money(Built(built.config, recording, built.data)).cost, tuple)


def test_without_a_bare_floor_a_sleeping_side_cannot_be_priced_with_power() -> None:
    built = build(passing(**SLEEPING))
    recording = built.recording.model_copy(update={"floor": None})
    found = money(Built(built.config, recording, built.data))
    assert "bare power" in str(found.comparison)
    free = priced(Built(built.config, recording, built.data), electricity_usd_per_kwh=None, grid_efficiency=None)
    assert isinstance(money(free).comparison, CostComparison)


def test_the_other_stacks_gpu_is_on_nobody_elses_bill() -> None:
    built = build(passing(**SLEEPING))
    floor = built.recording.floor
    assert floor is not None
    other = floor.devices[0].model_copy(update={"uuid": "GPU-other", "power_mw": 300_000})
    recording = built.recording.model_copy(
        update={"floor": floor.model_copy(update={"devices": (*floor.devices, other)})}
    )
    assert money(Built(built.config, recording, built.data)) == money(built)


# ---------------------------------------------------------------- rounds


def test_keep_warm_at_fixed_traffic_costs_the_same_whatever_the_speed() -> None:
    found = money(build(passing(electricity=False)))
    assert isinstance(found.cost, tuple)
    assert len(found.cost) == 4
    for ours, theirs in found.cost:
        assert ours == pytest.approx(theirs)
        assert ours == pytest.approx(1e6 * 2.50 / (900 * 32))


def test_without_traffic_the_gpu_is_priced_as_always_busy() -> None:
    built = priced(build(passing(electricity=False)), traffic=None)
    found = money(built, migrates=True)
    assert isinstance(found.cost, tuple)
    for ours, theirs in found.cost:
        assert theirs == pytest.approx(ours * 0.9, rel=0.02)
    comparison = compared(found)
    assert comparison.traffic == "none declared: priced as if always busy"
    assert comparison.baseline.share_busy == 1.0
    assert comparison.baseline.idle_policy == "always busy"
    assert comparison.break_even_sentence == "without declared traffic there is no break-even"
    assert comparison.curve == ()
    assert comparison.requests_per_hour == pytest.approx(16_528, rel=0.01)
    assert found.duty == {Side.BASELINE: 1.0, Side.CANDIDATE: 1.0}


def test_each_round_is_priced_by_its_own_launches() -> None:
    found = money(build(passing(noise=0.05, electricity=False, scale_to_zero=True, requests_per_hour=36)))
    assert isinstance(found.cost, tuple)
    assert len({round(theirs, 3) for _, theirs in found.cost}) == 4
    assert len({round(ours, 6) for ours, _ in found.cost}) == 1


def test_cold_starts_are_mixed_into_the_ttft_of_the_side_that_sleeps() -> None:
    found = money(build(passing(**SLEEPING)))
    assert isinstance(found.cold_ttft, tuple)
    for ours, theirs in found.cold_ttft:
        # The gap of 100 s is below the timeout of 300 s: q = e⁻³, p_w = 6.3 %, so that the p95 lies in the waits.
        assert ours == pytest.approx(318, rel=0.05)
        assert theirs == pytest.approx(36_000, rel=0.2)


def test_cold_starts_need_a_ttft() -> None:
    built = build(passing(**SLEEPING))
    data = dict(built.data)
    old = data["rounds/01-candidate"]
    joined = tuple(one.model_copy(update={"token_ns": (one.token_ns[0],) * len(one.token_ns)}) for one in old.requests)
    data["rounds/01-candidate"] = type(old)(joined, old.telemetry, old.samples)
    found = money(Built(built.config, built.recording, data))
    assert isinstance(found.cold_ttft, Absent)
    assert found.cold_ttft.absent.startswith("round 1, candidate: chat/1: ")


# ---------------------------------------------------------------- the line item


def test_the_line_item_is_the_mean_of_the_rounds() -> None:
    found = money(build(passing()))
    comparison = compared(found)
    assert isinstance(found.cost, tuple)
    mean = sum(ours for ours, _ in found.cost) / len(found.cost)
    assert comparison.baseline.per_1m_output == pytest.approx(mean, rel=1e-4)
    assert comparison.requests_per_hour == 900
    assert comparison.traffic == "Poisson arrivals, 900 requests/h"
    assert comparison.baseline.idle_policy == "keep warm"
    assert comparison.notes == ()


def test_the_curve_covers_the_declared_traffic_and_falls() -> None:
    comparison = compared(money(build(passing(**SLEEPING))))
    rates = [point.requests_per_hour for point in comparison.curve]
    costs = [point.baseline_per_1m_output for point in comparison.curve]
    assert len(rates) == 25
    assert rates[0] < 36 < rates[-1]
    assert costs == sorted(costs, reverse=True)


def test_the_break_even_is_where_the_curves_cross() -> None:
    dearer = priced(build(passing(**SLEEPING)), gpu_hour_usd={"baseline": 2.5, "candidate": 3.6})
    comparison = compared(money(dearer))
    point = comparison.break_even_requests_per_hour
    assert isinstance(point, float)
    below = [one for one in comparison.curve if one.requests_per_hour < point]
    above = [one for one in comparison.curve if one.requests_per_hour > point]
    assert all(one.candidate_per_1m_output < one.baseline_per_1m_output for one in below)
    assert below
    assert above


def test_a_state_that_the_declared_traffic_never_meets_may_be_unpriced_until_the_curve_reaches_it() -> None:
    # One request every 10 s never leaves the timeout of 300 s to run out; at a hundredth of that each one does.
    built = priced(build(passing(scale_to_zero=True)), traffic={"trace": "day.jsonl"})
    recording = built.recording.model_copy(update={"floor": None})
    found = money(Built(built.config, recording, built.data), arrivals_s=tuple(range(0, 20_000, 10)))
    comparison = compared(found)
    assert comparison.candidate.share_off == 0.0
    assert comparison.curve == ()
    assert "bare power" in comparison.break_even_sentence
    assert "USD" not in comparison.candidate.poisson_check


def test_traffic_near_capacity_still_has_a_curve() -> None:
    comparison = compared(money(build(passing(requests_per_hour=16_400))))
    assert comparison.curve[-1].requests_per_hour == pytest.approx(16_400)


def test_migration_is_an_item_of_the_candidate_spread_over_its_horizon() -> None:
    built = build(passing(migration=True))
    moved, stayed = compared(money(built, migrates=True)), compared(money(built))
    assert moved.migration_usd == 4800.0
    assert moved.candidate.items[-1].name == "migration"
    assert moved.candidate.items[-1].usd_per_month == pytest.approx(400.0)
    assert moved.baseline == stayed.baseline
    assert stayed.migration_usd == 0.0
    assert stayed.payback_tokens == Absent(absent="moving costs nothing")
    # What the candidate saves in power pays for the move in the end.
    saving = moved.baseline.per_1m_output - stayed.candidate.per_1m_output
    assert moved.payback_tokens == pytest.approx(1e6 * 4800 / saving)


def test_running_both_stacks_for_a_while_belongs_to_the_migration() -> None:
    built = priced(build(passing()), migration={"hours": 0, "hourly_usd": 0, "dual_run_gpu_hours": 48})
    assert compared(money(built, migrates=True)).migration_usd == pytest.approx(120.0)


def test_migration_without_traffic_is_told_and_in_no_price() -> None:
    built = priced(build(passing(migration=True)), traffic=None)
    comparison = compared(money(built, migrates=True))
    assert "migration" not in {item.name for item in comparison.candidate.items}
    assert comparison.notes == ("moving costs 4,800 USD once; without declared traffic it is in no price per token",)


def test_without_reported_prompt_tokens_the_planned_ones_are_priced() -> None:
    built = build(passing())
    data = {
        name: type(one)(
            tuple(request.model_copy(update={"prompt_tokens": None}) for request in one.requests),
            one.telemetry,
            one.samples,
        )
        for name, one in built.data.items()
    }
    planned = compared(money(Built(built.config, built.recording, data))).baseline.per_1m_total
    assert planned == pytest.approx(compared(money(built)).baseline.per_1m_total, rel=0.01)


# ---------------------------------------------------------------- what sleeping teaches


def test_sleeping_says_how_many_wait_and_how_little_is_known_of_starts() -> None:
    notes = compared(money(build(passing(**SLEEPING)))).notes
    assert notes[0].startswith("candidate: 6.")
    assert "45.2 s at most in 4 launches, too few to bound its p95 (59 would)" in notes[0]


def test_the_closed_form_is_printed_beside_the_replay() -> None:
    comparison = compared(money(build(passing(**SLEEPING))))
    assert comparison.baseline.poisson_check == ""
    assert comparison.candidate.poisson_check.startswith("closed form for Poisson arrivals at this mean rate: ")
    stated = float(comparison.candidate.poisson_check.split(": ")[1].split(" USD")[0])
    assert stated == pytest.approx(comparison.candidate.per_1m_output, rel=0.01)


def test_several_replicas_have_no_closed_form() -> None:
    built = priced(build(passing(**SLEEPING)), traffic={"requests_per_hour": 36, "replicas": 2})
    comparison = compared(money(built))
    assert comparison.candidate.poisson_check == ""
    assert comparison.candidate.share_off > 0.4


def test_scale_to_zero_that_is_not_real_is_priced_as_warm_and_says_why() -> None:
    real, claimed = (compared(money(build(passing(release_real=real, **SLEEPING)))) for real in (True, False))
    assert claimed.candidate.per_1m_output > real.candidate.per_1m_output
    assert claimed.candidate.share_off == 0.0
    assert any("scale-to-zero: not real, 41.2 GiB" in note for note in claimed.notes)
    assert any("priced as if it kept warm" in note for note in claimed.notes)


def test_scale_to_zero_that_nobody_watched_is_not_believed() -> None:
    comparison = compared(money(with_records(build(passing(**SLEEPING)), Side.CANDIDATE, release=None)))
    assert any("not shown, nobody watched a release" in note for note in comparison.notes)
    assert comparison.candidate.share_off == 0.0


def test_one_watched_release_per_side_is_enough() -> None:
    built = build(passing(**SLEEPING))
    launches = tuple(
        one if one.round == 1 else one.model_copy(update={"release": None}) for one in built.recording.launches
    )
    recording: Recording = built.recording.model_copy(update={"launches": launches})
    assert compared(money(Built(built.config, recording, built.data))).candidate.share_off > 0


def dear_starts(**changes: object) -> Built:
    """Starts that cost more than they save: slow, often, at a power above that of idling."""
    slow = {Side.BASELINE: 38.0, Side.CANDIDATE: 200.0}
    built = build(passing(cold_start_s=slow, requests_per_hour=60.0, scale_to_zero=True, **changes))
    return priced(built, idle={"candidate": {"scale_to_zero": {"after_s": 30.0}}}, billing_granularity_s=600.0)


def test_sleeping_that_is_dearer_than_staying_warm_is_told() -> None:
    notes = compared(money(dear_starts())).notes
    assert any("scaling to zero is dearer than staying warm" in note for note in notes)
    assert any("scaling to zero uses more energy than staying warm" in note for note in notes)


def test_without_power_readings_nothing_is_said_of_energy() -> None:
    built = dear_starts(accelerator="cpu", electricity=False)
    floorless = Built(built.config, built.recording.model_copy(update={"floor": None}), built.data)
    notes = compared(money(floorless)).notes
    assert any("dearer" in note for note in notes)
    assert not any("energy" in note for note in notes)


def test_sleeping_through_long_gaps_is_neither_dearer_nor_hungrier() -> None:
    notes = compared(money(build(passing(scale_to_zero=True, requests_per_hour=1.0)))).notes
    assert len(notes) == 1


# ---------------------------------------------------------------- open loop: what arrived is not what could be served

OPEN = SceneCell("chat@2", None, rate=2.0)
CLOSED = SceneCell("chat/4", 4)


def test_in_open_loop_a_stack_that_is_kept_warm_is_priced_by_the_declared_traffic_and_its_capacity_is_not_checked() -> (
    None
):
    found = money(build(passing(cells=(OPEN,), electricity=False, requests_per_hour=7200.0)))
    assert isinstance(found.cost, tuple)
    for ours, theirs in found.cost:
        assert ours == theirs == pytest.approx(1e6 * 2.50 / (7200 * 32))
    assert found.duty == {}
    comparison = compared(found)
    assert [(item.name, item.usd_per_month) for item in comparison.candidate.items] == [("kept warm", 730 * 2.50)]
    for unknown in (
        comparison.baseline.share_busy,
        comparison.baseline.share_warm_idle,
        comparison.baseline.busy_only_per_1m_output,
        comparison.break_even_requests_per_hour,
    ):
        assert isinstance(unknown, Absent)
        assert "closed loop" in unknown.absent
    assert comparison.curve == ()
    assert comparison.notes[0].startswith("whether the declared traffic can be served was not checked: ")


def test_an_unchanged_open_loop_at_its_own_traffic_passes() -> None:
    words = {
        judged(passing(cells=(OPEN,), electricity=False, requests_per_hour=7200.0, seed=seed)).word for seed in range(4)
    }
    assert words == {Word.PASS}


def test_without_traffic_an_open_loop_is_priced_at_its_own_rate_of_arrivals() -> None:
    comparison = compared(money(priced(build(passing(cells=(OPEN,))), traffic=None)))
    assert comparison.traffic == "none declared: priced as if kept warm, at the rate of arrivals of the workload"
    assert comparison.baseline.per_1m_output == pytest.approx(comparison.candidate.per_1m_output, rel=0.1)
    assert comparison.requests_per_hour == pytest.approx(7200, rel=0.15)


@pytest.mark.parametrize(("per_hour", "known"), [(7200.0, True), (3600.0, False), (14400.0, False)])
def test_in_open_loop_power_is_known_at_the_rate_that_was_measured_only(per_hour: float, known: bool) -> None:
    found = money(build(passing(cells=(OPEN,), requests_per_hour=per_hour)))
    if known:
        names = [item.name for item in compared(found).baseline.items]
        assert names[:2] == ["kept warm", "power"]
    else:
        assert isinstance(found.cost, Absent)
        assert "it was measured at another rate of arrivals" in found.cost.absent


def test_in_open_loop_unread_power_has_no_price() -> None:
    built = build(passing(cells=(OPEN,), requests_per_hour=7200.0))
    silent = {
        name: replace(
            data,
            samples=tuple(
                sample.model_copy(
                    update={
                        "devices": tuple(
                            d.model_copy(update={"power_mw": None, "energy_mj": None}) for d in sample.devices
                        )
                    }
                )
                for sample in data.samples
            ),
        )
        for name, data in built.data.items()
    }
    found = money(Built(built.config, built.recording, silent))
    assert isinstance(found.cost, Absent)
    assert "the power drawn is not known" in found.cost.absent


def test_scale_to_zero_has_no_price_in_open_loop() -> None:
    found = money(build(passing(cells=(OPEN,), **SLEEPING)))
    assert isinstance(found.cost, Absent)
    assert "scale-to-zero cannot be priced: how much a stack can serve shows in closed loop only" in found.cost.absent


def test_beside_closed_loop_cells_those_in_open_loop_do_not_say_how_much_can_be_served() -> None:
    shape = {"electricity": False, "requests_per_hour": 3600.0}
    alone, beside = (money(build(passing(cells=cells, **shape))) for cells in ((CLOSED,), (CLOSED, OPEN)))
    assert beside.duty == pytest.approx(alone.duty, rel=0.02)
    assert compared(beside).baseline.share_busy == pytest.approx(compared(alone).baseline.share_busy, rel=0.02)


def test_beside_closed_loop_cells_power_while_busy_is_that_of_those_cells() -> None:
    built = build(passing(cells=(CLOSED, OPEN), requests_per_hour=3600.0))
    evidence = gather(built.config, built.recording, built.data)
    assert built.config.cost is not None
    books = open_books(built.config, built.config.cost, built.recording, evidence, migrates=False, recorded=())
    launch = evidence.of(Side.BASELINE)[0]
    signals = replace(launch.signals, busy_power_w={"chat/4": 600.0, "chat@2": 200.0})
    running = running_of(books, replace(launch, signals=signals))
    assert isinstance(running, Running)
    assert running.operation.power.busy_w == 600.0
