"""Calibrations as files: kept, found again and read; and the limits that they suggest, as a configuration is written."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from servegate_action import calibrate, calibrations
from servegate_action.analysis.calibration import Calibration, MetricNoise, Runner
from servegate_action.analysis.judgement import Direction, MetricKey
from servegate_action.config import load as configuration
from servegate_action.config.limits import CellLimits, Limit, Limits, MetricName
from servegate_action.config.models import Config
from servegate_action.errors import UsageError
from servegate_action.progress import reporting
from servegate_action.world import World
from tests.support import recordings


def noise(metric: MetricName, cell: str | None, *, limit: Limit, suggested: Limit, gated: bool = True) -> MetricNoise:
    return MetricNoise(
        key=MetricKey(metric=metric, cell=cell),
        unit=limit.unit,
        direction=Direction.LOWER,
        sd=0.01,
        kind_sd=0.01,
        floor=0.03,
        detectable=0.05,
        limit=limit,
        suggested=suggested,
        gated=gated,
    )


def found(*metrics: MetricNoise) -> Calibration:
    return Calibration(
        date="2026-11-30T15:00:00Z",
        runner=Runner(accelerator="1x NVIDIA L4", driver="580.95", hostname="gpu-1", workload_sha256="aa"),
        rounds=8,
        looks=(4, 6, 8),
        noise_from="rounds",
        metrics=metrics,
        absent={},
    )


NOISY = found(
    noise(MetricName.TPOT_P95, None, limit=Limit(value=0.03), suggested=Limit(value=0.035)),
    noise(MetricName.TTFT_P95, None, limit=Limit(value=0.05), suggested=Limit(value=0.05)),
    noise(MetricName.COST_PER_1M_OUTPUT_TOKENS, None, limit=Limit(value=0.02), suggested=Limit(value=0.9), gated=False),
    noise(
        MetricName.GPU_UTILIZATION,
        None,
        limit=Limit(value=2.0, unit="points"),
        suggested=Limit(value=2.5, unit="points"),
    ),
    noise(MetricName.TTFT_P95, "chat/1", limit=Limit(value=0.1), suggested=Limit(value=0.12)),
    noise(MetricName.TTFT_P95, "chat/16", limit=Limit(value=0.1), suggested=Limit(value=0.4)),
)


def world(folder: Path, home: Path) -> World:
    console = Console(file=io.StringIO())
    return World({"XDG_DATA_HOME": str(home)}, folder, console, console)


def config() -> Config:
    return recordings.build(recordings.passing()).config


def test_the_limits_that_are_printed_can_be_pasted_into_the_configuration() -> None:
    declared = Limits(
        tpot_p95=Limit(value=0.02),
        failed_share=0.01,
        advisory=(MetricName.TOKENS_PER_GPU_HOUR, MetricName.DECODE_TOKENS_PER_SECOND),
    )
    first, block = calibrate.advice(NOISY, declared).split("\n", maxsplit=1)
    assert first == "limits that this runner can honour, for the configuration:"
    assert block.startswith("limits:\n  tpot_p95: 3.5%\n")
    rest = {key: value for key, value in json.loads(configuration.dump(config())).items() if key != "limits"}
    lines = [f"{key}: {json.dumps(value)}" for key, value in rest.items()]
    read = configuration.load("\n".join([*lines, block]), file="gate.yml")
    assert read.limits == declared.model_copy(
        update={
            "tpot_p95": Limit(value=0.035),
            "gpu_utilization": Limit(value=2.5, unit="points"),
            "cells": CellLimits(ttft_p95=Limit(value=0.4)),
        }
    )


def test_limits_that_can_be_honoured_need_no_block() -> None:
    said = calibrate.advice(found(NOISY.metrics[1]), Limits(default=Limit(value=0.2)))
    assert said == "this runner can honour every limit as it is"


def test_a_calibration_is_found_again_on_the_machine_that_kept_it(tmp_path: Path) -> None:
    outside = world(tmp_path, tmp_path / "data")
    assert calibrations.find(config(), outside) is None
    path = calibrations.keep(NOISY, gate=config().gate, environment=outside.environment)
    assert path.is_relative_to(tmp_path / "data" / "servegate")
    assert calibrations.find(config(), outside) == NOISY
    assert calibrations.find(config().model_copy(update={"gate": "another"}), outside) is None


def test_a_calibration_that_the_configuration_names_is_read_from_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "noise.json").write_text(NOISY.model_dump_json())
    named = config().model_copy(update={"calibration": "noise.json"})
    assert calibrations.find(named, world(tmp_path, tmp_path / "empty")) == NOISY


@pytest.mark.parametrize(("text", "says"), [(None, "does not exist"), ("{}", "cannot be read")])
def test_a_named_calibration_that_is_none_is_an_error_with_its_path(
    tmp_path: Path, text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "noise.json").write_text(text)
    named = config().model_copy(update={"calibration": "noise.json"})
    with pytest.raises(UsageError, match=rf"noise\.json {says}"):
        calibrations.find(named, world(tmp_path, tmp_path))


def test_a_phase_that_quotes_a_file_of_the_checkout_commands_no_runner() -> None:
    out = io.StringIO()
    with reporting(Console(file=out, width=200)) as reporter:
        reporter.phase("warning: the accelerator was\n::error::owned ##[error]owned, is 1x NVIDIA L4")
    assert "\n::" not in out.getvalue()
    assert "##[" not in out.getvalue()
