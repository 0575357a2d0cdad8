"""Which metrics are compared, and whether each is gated."""

from __future__ import annotations

import pytest

from servegate_action.analysis.compared import all_series, mean_utilization, saturating_cells
from servegate_action.analysis.economy import economy
from servegate_action.analysis.judgement import Direction, MetricKey
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.rounds import gather
from servegate_action.analysis.series import MetricSeries
from servegate_action.config.cost import Cost
from servegate_action.config.limits import Limit, MetricName
from servegate_action.records import Absent, Side
from tests.support.recordings import CELLS, Built, Scene, SceneCell, build, passing

OPEN = SceneCell("chat@2", None, rate=5.0, requests=80)


def series(built: Built) -> dict[str, MetricSeries]:
    evidence = gather(built.config, built.recording, built.data)
    money = economy(built.config, built.recording, evidence, migrates=False)
    return {str(one.key): one for one in all_series(built.config, built.recording, evidence, money)}


def with_cost(built: Built, **changes: object) -> Built:
    raw = {"gpu_hour_usd": 2.5, **changes}
    return Built(built.config.model_copy(update={"cost": Cost.model_validate(raw)}), built.recording, built.data)


def test_the_mix_comes_first_and_every_cell_follows() -> None:
    found = list(series(build(passing())))
    assert found[:6] == [
        "tokens_per_gpu_hour",
        "decode_tokens_per_second",
        "ttft_p95",
        "tpot_p95",
        "gpu_utilization",
        "cost_per_1m_output_tokens",
    ]
    assert found[6:9] == ["tokens_per_second chat/1", "ttft_p95 chat/1", "tpot_p95 chat/1"]
    assert len(found) == 6 + 3 * 3


def test_directions_units_and_limits_are_those_of_the_metric() -> None:
    found = series(build(passing(limits={"ttft_p95": "4%", "cells": {"ttft_p95": "20%"}})))
    assert found["tokens_per_gpu_hour"].direction is Direction.HIGHER
    assert found["ttft_p95"].direction is Direction.LOWER
    assert found["ttft_p95"].unit == "ms"
    assert found["ttft_p95"].limit == Limit(value=0.04)
    assert found["ttft_p95 long/2"].limit == Limit(value=0.2)
    assert found["gpu_utilization"].limit.unit == "points"


def test_values_come_in_pairs_of_each_round_with_the_fewest_requests() -> None:
    found = series(build(passing()))
    pairs = found["ttft_p95 long/2"].pairs
    assert not isinstance(pairs, Absent)
    assert len(pairs) == 4
    assert all(theirs < ours for ours, theirs in pairs)
    assert found["ttft_p95 long/2"].requests == 100
    assert found["tokens_per_second long/2"].requests is None


def test_one_round_without_a_value_takes_the_metric_away() -> None:
    built = build(passing())
    old = built.data["rounds/03-candidate"]
    joined = tuple(one.model_copy(update={"token_ns": (one.token_ns[0],) * len(one.token_ns)}) for one in old.requests)
    data = {**built.data, "rounds/03-candidate": LaunchData(joined, old.telemetry, old.samples)}
    found = series(Built(built.config, built.recording, data))["tpot_p95 chat/1"]
    assert isinstance(found.pairs, Absent)
    assert found.pairs.absent.startswith("round 3, candidate: 100 of 100 requests")
    assert found.gated
    assert found.requests is None


def test_without_a_round_every_metric_is_absent() -> None:
    found = series(build(Scene(rounds=0)))
    assert len(found) == 15
    assert all(one.pairs == Absent(absent="no complete round") for one in found.values())


def test_advisory_metrics_are_shown_and_not_gated() -> None:
    found = series(build(passing(limits={"advisory": ["tpot_p95"]})))
    assert not found["tpot_p95"].gated
    assert not found["tpot_p95 chat/4"].gated
    assert found["tpot_p95"].why_not_gated == "advisory: listed under limits.advisory"
    assert found["ttft_p95"].gated


def test_in_a_workload_of_one_cell_its_metrics_are_copies_of_the_mix() -> None:
    found = series(build(passing(cells=CELLS[:1])))
    assert found["ttft_p95 chat/1"].copy_of == MetricKey(metric=MetricName.TTFT_P95)
    assert found["tokens_per_second chat/1"].copy_of == MetricKey(metric=MetricName.TOKENS_PER_GPU_HOUR)
    assert found["ttft_p95 chat/1"].pairs == found["ttft_p95"].pairs
    assert series(build(passing()))["ttft_p95 chat/1"].copy_of is None


def test_answers_of_one_token_have_no_decode_to_gate() -> None:
    cells = (CELLS[0], SceneCell("class/1", 1, requests=80, output_tokens=1))
    found = series(build(passing(cells=cells)))
    assert found["tpot_p95 class/1"].why_not_gated == "answers of one token have no decode"
    assert found["tpot_p95 chat/1"].gated
    assert found["decode_tokens_per_second"].gated
    only = series(build(passing(cells=cells[1:])))
    assert not only["decode_tokens_per_second"].gated
    assert not only["tpot_p95"].gated
    assert only["ttft_p95"].gated


# ---------------------------------------------------------------- utilization


def test_only_the_highest_concurrency_of_each_closed_loop_saturates() -> None:
    recording = build(Scene(rounds=0, cells=(*CELLS, OPEN))).recording
    assert [cell.id for cell in saturating_cells(recording)] == ["chat/4", "long/2"]


def test_utilization_is_gated_where_the_baseline_saturates_the_gpu() -> None:
    found = series(build(passing()))["gpu_utilization"]
    assert found.gated
    assert not isinstance(found.pairs, Absent)
    assert found.pairs[0][0] == pytest.approx(96.0, abs=0.5)


def test_utilization_below_saturation_is_shown_only() -> None:
    found = series(build(passing(utilization={Side.BASELINE: 60.0, Side.CANDIDATE: 95.0})))["gpu_utilization"]
    assert found.why_not_gated == "the baseline keeps the GPU 60 % at work, below the 80 % of a saturated one"


def test_a_candidate_cannot_lift_the_gate_by_falling_further() -> None:
    found = series(build(passing(utilization={Side.BASELINE: 96.0, Side.CANDIDATE: 30.0})))["gpu_utilization"]
    assert found.gated


def test_at_a_fixed_arrival_rate_utilization_is_shown_only() -> None:
    found = series(build(passing(cells=(OPEN,))))["gpu_utilization"]
    assert found.why_not_gated == "no closed-loop cell: at a fixed arrival rate a faster stack should idle more"
    assert not isinstance(found.pairs, Absent)


def test_cpu_utilization_is_shown_only() -> None:
    found = series(build(passing(accelerator="cpu", cost=False)))["gpu_utilization"]
    assert found.why_not_gated is not None
    assert found.why_not_gated.startswith("CPU utilization: ")


def test_a_gpu_without_a_utilization_counter_leaves_the_gate_open_not_passed() -> None:
    built = build(passing())
    data = {}
    for name, one in built.data.items():
        assert not isinstance(one.telemetry, Absent)
        static = one.telemetry.model_copy(update={"utilization_counter": Absent(absent="not supported under MIG")})
        data[name] = LaunchData(one.requests, static, one.samples)
    found = series(Built(built.config, built.recording, data))["gpu_utilization"]
    assert found.gated
    assert found.pairs == Absent(absent="round 1, baseline: chat/4: not supported under MIG")


def test_utilization_needs_the_time_that_the_mix_spends_in_each_cell() -> None:
    built = build(passing(rounds=1))
    launches = tuple(
        one.model_copy(
            update={"cells": tuple(run.model_copy(update={"steady_end_ns": run.steady_start_ns}) for run in one.cells)}
        )
        for one in built.recording.launches
    )
    recording = built.recording.model_copy(update={"launches": launches})
    launch = gather(built.config, recording, built.data).rounds[0].baseline
    assert mean_utilization(launch, recording.plan.cells) == Absent(absent="the cell never reached a steady state")


# ---------------------------------------------------------------- cost


def test_without_prices_cost_is_gpu_seconds_and_a_copy() -> None:
    found = series(build(passing(cost=False)))["cost_per_1m_output_tokens"]
    assert found.unit == "GPU-s/1M tok"
    assert not found.gated
    assert found.copy_of == MetricKey(metric=MetricName.TOKENS_PER_GPU_HOUR)
    tokens = series(build(passing(cost=False)))["tokens_per_gpu_hour"]
    assert not isinstance(found.pairs, Absent)
    assert not isinstance(tokens.pairs, Absent)
    assert found.pairs[0][0] * tokens.pairs[0][0] == pytest.approx(3600 * 1e6)


def test_gpu_seconds_are_absent_with_the_rate() -> None:
    built = build(passing(rounds=1, cost=False))
    launches = tuple(one.model_copy(update={"cells": one.cells}) for one in built.recording.launches)
    late = launches[0].model_copy(
        update={
            "cells": tuple(run.model_copy(update={"steady_end_ns": run.steady_start_ns}) for run in launches[0].cells)
        }
    )
    recording = built.recording.model_copy(update={"launches": (late, *launches[1:])})
    assert isinstance(series(Built(built.config, recording, built.data))["cost_per_1m_output_tokens"].pairs, Absent)


def test_gpu_money_at_one_price_is_tokens_per_gpu_hour_turned_over() -> None:
    found = series(with_cost(build(passing())))
    assert found["cost_per_1m_output_tokens"].copy_of == MetricKey(metric=MetricName.TOKENS_PER_GPU_HOUR)
    assert found["cost_per_1m_output_tokens"].gated


@pytest.mark.parametrize(
    "changes",
    [
        {"traffic": {"requests_per_hour": 900}},
        {"electricity_usd_per_kwh": 0.1},
        {"gpu_hour_usd": {"baseline": 2.5, "candidate": 3.6}},
    ],
)
def test_any_other_cost_is_a_test_of_its_own(changes: dict[str, object]) -> None:
    assert series(with_cost(build(passing()), **changes))["cost_per_1m_output_tokens"].copy_of is None


def test_ttft_with_cold_starts_is_a_metric_where_a_side_sleeps() -> None:
    found = series(build(passing(scale_to_zero=True)))
    assert list(found)[4] == "ttft_p95_with_cold_starts"
    assert found["ttft_p95_with_cold_starts"].gated
    assert found["ttft_p95_with_cold_starts"].requests == found["ttft_p95"].requests
    assert "ttft_p95_with_cold_starts" not in series(build(passing()))
