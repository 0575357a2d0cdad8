"""What A/A rounds say about a runner, and the warnings that follow for a later configuration."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from servegate_action.analysis import calibration
from servegate_action.analysis.calibration import (
    Calibration,
    MetricNoise,
    Runner,
    calibrate,
    suggested_limits,
    warnings,
)
from servegate_action.analysis.judgement import Direction, MetricKey
from servegate_action.analysis.series import MetricSeries
from servegate_action.config.limits import CellLimits, Limit, Limits, MetricName
from servegate_action.records import Absent

LOOKS = (4, 6, 8)
RUNNER = Runner(accelerator="1x NVIDIA L4", driver="580.95", hostname="gpu-1", workload_sha256="aa")
TTFT = MetricName.TTFT_P95


def aa(cell: str | None, *, sd: float, seed: int = 0, rounds: int = 8, limit: Limit | None = None) -> MetricSeries:
    a, b = 100.0 * np.exp(sd * np.random.default_rng(seed).standard_normal((2, rounds)))
    return MetricSeries(
        key=MetricKey(metric=TTFT, cell=cell),
        direction=Direction.LOWER,
        unit="ms",
        pairs=tuple(zip(a.tolist(), b.tolist(), strict=True)),
        limit=limit or Limit(value=0.02),
    )


def cells(*, sd: float, rounds: int = 8) -> list[MetricSeries]:
    return [aa(f"cell/{index}", sd=sd, seed=index, rounds=rounds) for index in range(6)]


def made(series: list[MetricSeries], *, rounds: int = 8) -> Calibration:
    return calibrate(series, rounds=rounds, looks=LOOKS, date="2026-11-30T15:00:00Z", runner=RUNNER)


def by_key(found: Calibration) -> dict[str, MetricNoise]:
    return {str(metric.key): metric for metric in found.metrics}


def test_metrics_of_one_kind_share_their_noise() -> None:
    found = made([*cells(sd=0.02), aa(None, sd=0.005, seed=9)])
    pooled = {metric.kind_sd for metric in found.metrics if metric.key.cell}
    assert len(pooled) == 1
    assert pooled.pop() == pytest.approx(0.02 * math.sqrt(2), rel=0.25)
    of_mix = by_key(found)["ttft_p95"]
    assert of_mix.kind_sd == of_mix.sd < 0.015
    assert found.noise_from == "launches"


def test_the_floor_is_three_sd_at_eight_rounds_and_falls_with_more() -> None:
    metric = made(cells(sd=0.02)).metrics[0]
    assert math.log1p(metric.floor) == pytest.approx(3 * math.log1p(metric.kind_sd))
    assert calibration.floor_of(1.0, 8) == 3.0
    assert calibration.floor_of(1.0, 32) == pytest.approx(1.5)


def test_the_smallest_regression_that_is_caught_lies_above_limit_and_noise() -> None:
    metric = made(cells(sd=0.02)).metrics[0]
    assert metric.detectable > metric.limit.value
    assert 1.7 < math.log1p(metric.detectable) / math.log1p(metric.kind_sd) < 3.0


def test_a_limit_that_the_runner_honours_is_kept_and_another_gets_a_suggestion() -> None:
    quiet, noisy = made(cells(sd=0.001)).metrics[0], made(cells(sd=0.02)).metrics[0]
    assert quiet.suggested == quiet.limit
    assert noisy.suggested.value >= noisy.floor > noisy.suggested.value - 0.005
    assert noisy.limit.value == 0.02, "nothing is changed, only suggested"


def test_points_stay_points() -> None:
    values = tuple((90.0 + index, 90.5 + index) for index in range(8))
    series = MetricSeries(
        key=MetricKey(metric=MetricName.GPU_UTILIZATION),
        direction=Direction.HIGHER,
        unit="%",
        pairs=values,
        limit=Limit(value=0.1, unit="points"),
    )
    (metric,) = made([series]).metrics
    assert metric.unit == "points"
    assert metric.sd == pytest.approx(0.05)
    assert metric.suggested == Limit(value=0.5, unit="points")


def test_what_could_not_be_had_is_listed_with_its_reason() -> None:
    found = made([*cells(sd=0.01), replace(aa("gone/1", sd=0.01), pairs=Absent(absent="no usage"))])
    assert found.absent == {"ttft_p95 gone/1": "no usage"}
    assert ("ttft_p95 gone/1", "-", "-", "-", "-", "no usage") in calibration.table(found)


def test_nothing_to_calibrate_is_an_empty_result_not_a_crash() -> None:
    found = made([replace(aa("gone/1", sd=0.01), pairs=Absent(absent="no usage"))])
    assert found.metrics == ()
    assert len(calibration.table(found)) == 2


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_too_few_rounds_are_refused(rounds: int) -> None:
    with pytest.raises(ValueError, match="4 rounds at least"):
        made(cells(sd=0.01, rounds=rounds), rounds=rounds)


def test_an_odd_last_round_is_left_out() -> None:
    assert made(cells(sd=0.01, rounds=7), rounds=7).rounds == 6


def test_a_calibration_survives_its_file() -> None:
    found = made(cells(sd=0.01))
    assert Calibration.model_validate_json(found.model_dump_json()) == found


def test_a_copy_counts_once_towards_what_can_be_caught() -> None:
    two = cells(sd=0.02)[:2]
    copy = replace(two[0], key=MetricKey(metric=TTFT, cell="copy/1"), copy_of=two[0].key)
    assert made([two[0], copy]).metrics[0].detectable < made(two).metrics[0].detectable * 1.1
    shown = replace(two[1], gated=False)
    assert made([two[0], shown]).metrics[1].gated is False


# ---------------------------------------------------------------- a later run


def test_a_limit_below_the_floor_is_warned_of_before_measuring() -> None:
    found = made(cells(sd=0.02))
    tight = [(MetricKey(metric=TTFT, cell="cell/1"), Limit(value=0.02))]
    first, ways_out = warnings(found, tight, runner=RUNNER, looks=LOOKS)
    assert first.startswith("p95 TTFT cell/1: limit 2 % is below this runner's floor ")
    assert first.endswith(" % at 8 rounds")
    assert ways_out == calibration.WAYS_OUT


def test_a_floor_beyond_all_limits_is_written_as_people_write_it() -> None:
    tight = [(MetricKey(metric=TTFT, cell="cell/1"), Limit(value=0.02))]
    first, _ = warnings(made(cells(sd=0.2)), tight, runner=RUNNER, looks=LOOKS)
    assert re.search(r"floor 1\d\d % at 8 rounds$", first)


def test_limits_above_the_floor_cause_no_word() -> None:
    wide = [(MetricKey(metric=TTFT, cell="cell/1"), Limit(value=0.5)), (MetricKey(metric=TTFT), Limit(value=0.001))]
    assert warnings(made(cells(sd=0.02)), wide, runner=RUNNER, looks=LOOKS) == ()


def test_more_rounds_lower_the_floor_that_a_limit_is_held_to() -> None:
    found = made(cells(sd=0.02))
    near = [(MetricKey(metric=TTFT, cell="cell/1"), Limit(value=found.metrics[0].floor * 0.8))]
    assert warnings(found, near, runner=RUNNER, looks=LOOKS)
    assert warnings(found, near, runner=RUNNER, looks=tuple(range(4, 21, 2))) == ()


def test_a_limit_in_another_unit_is_not_compared() -> None:
    points = [(MetricKey(metric=TTFT, cell="cell/1"), Limit(value=0.001, unit="points"))]
    assert warnings(made(cells(sd=0.02)), points, runner=RUNNER, looks=LOOKS) == ()


def test_points_are_warned_of_in_points() -> None:
    values = tuple((90.0, 90.0 + (-1) ** index) for index in range(8))
    series = MetricSeries(
        key=MetricKey(metric=MetricName.GPU_UTILIZATION),
        direction=Direction.HIGHER,
        unit="%",
        pairs=values,
        limit=Limit(value=2.0, unit="points"),
    )
    tight = [(series.key, Limit(value=1.0, unit="points"))]
    first, _ = warnings(made([series]), tight, runner=RUNNER, looks=LOOKS)
    assert first.startswith("GPU utilization: limit 1 points is below this runner's floor ")


def test_a_calibration_of_another_accelerator_is_not_used() -> None:
    tight = [(MetricKey(metric=TTFT, cell="cell/1"), Limit(value=0.001))]
    other = RUNNER.model_copy(update={"accelerator": "1x NVIDIA H100"})
    (only,) = warnings(made(cells(sd=0.02)), tight, runner=other, looks=LOOKS)
    assert only == ("the calibration of 2026-11-30 is not used: the accelerator was 1x NVIDIA L4, is 1x NVIDIA H100")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"driver": "590.1"}, "the driver was 580.95, is 590.1"),
        ({"workload_sha256": "bb"}, "another workload"),
        ({"hostname": "3f9a1c"}, "the host was gpu-1, is 3f9a1c"),  # as in a container of the same machine
    ],
)
def test_a_calibration_under_other_circumstances_is_used_with_a_word_of_doubt(
    changed: dict[str, str], why: str
) -> None:
    tight = [(MetricKey(metric=TTFT, cell="cell/1"), Limit(value=0.001))]
    doubt, first, _ = warnings(made(cells(sd=0.02)), tight, runner=RUNNER.model_copy(update=changed), looks=LOOKS)
    assert "may be out of date" in doubt
    assert why in doubt
    assert first.startswith("p95 TTFT cell/1")


def test_suggestions_stand_where_the_configuration_has_its_limits() -> None:
    noisy, noisier = aa("long/4", sd=0.02, seed=1), aa("chat/1", sd=0.02, seed=2, limit=Limit(value=0.3))
    quiet, shown = aa(None, sd=0.0001), replace(aa(None, sd=0.02), gated=False)
    found = made([noisy, noisier, quiet])
    declared = Limits(default=Limit(value=0.04), failed_share=0.01)
    suggested = suggested_limits(found, declared)
    by_cell = by_key(found)
    assert suggested.cells.ttft_p95 == by_cell["ttft_p95 long/4"].suggested
    assert suggested == declared.model_copy(update={"cells": CellLimits(ttft_p95=suggested.cells.ttft_p95)})
    assert suggested_limits(made([shown]), declared) == declared
    assert calibration.table(made([shown]))[1][-1] == "not gated"


def test_the_table_has_a_row_per_metric() -> None:
    head, *rows = calibration.table(made(cells(sd=0.02)))
    assert head[0] == "metric"
    assert len(rows) == 6
    assert all(len(row) == len(head) for row in rows)
    assert rows[0][-1].endswith(" %")
    assert calibration.table(made(cells(sd=0.001)))[1][-1] == "keep"
