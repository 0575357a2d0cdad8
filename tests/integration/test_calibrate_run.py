"""`servegate calibrate` as a user runs it, on a stack of exact speed, and the run after it that is warned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from servegate_action.analysis.calibration import Calibration
from servegate_action.errors import ExitCode
from servegate_action.store import RunDirectory
from tests.integration.test_gate_run import FAST, LIMIT_S, ROOT, gate_of, stack

FEW = {
    "seed": 7,
    "cells": [{"name": "chat", "prompt_tokens": 16, "output_tokens": 8, "concurrency": 2, "requests": 20}],
}


def servegate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "servegate_action", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_a_calibration_measures_the_baseline_alone_is_kept_and_warns_the_next_run(tmp_path: Path) -> None:
    config = gate_of(stack("old", *FAST), stack("never started", "--refuse"), workload=FEW)
    (tmp_path / "gate.yml").write_text(json.dumps(config))
    done = servegate(tmp_path, "calibrate", "-c", "gate.yml", "-o", "noise", "--rounds", "4")
    assert done.returncode == ExitCode.PASS, done.stdout + done.stderr
    assert "noise of " in done.stdout
    for name in ("GPU utilization", "cost per 1M output tokens"):  # on a CPU, and without prices
        assert next(line for line in done.stdout.splitlines() if line.startswith(name)).endswith("not gated")
    assert "this runner can honour" in done.stdout

    directory = RunDirectory(tmp_path / "noise")
    found = Calibration.model_validate_json(directory.read_text("calibration.json"))
    assert directory.check_manifest() == []
    assert found.rounds == 4
    assert {"ttft_p95", "tpot_p95 chat/2", "tokens_per_second chat/2"} <= {str(one.key) for one in found.metrics}
    assert all(0.0 < one.sd < one.detectable for one in found.metrics if one.gated)
    (kept,) = (tmp_path / "data" / "servegate" / "calibrations").glob("*-exact.json")
    assert Calibration.model_validate_json(kept.read_text()) == found

    short, limits = {"min": 2, "max": 2, "budget_minutes": 0.01}, {"default": "0.001%", "cells": {"default": "0.001%"}}
    tight = gate_of(stack("old", *FAST), stack("new", *FAST), workload=FEW, rounds=short, limits=limits)
    (tmp_path / "gate.yml").write_text(json.dumps(tight))
    later = servegate(tmp_path, "run", "-c", "gate.yml", "-o", "out")
    assert later.returncode in {ExitCode.INCONCLUSIVE, ExitCode.INVALID}, later.stderr  # one round decides nothing
    warned = [line for line in later.stderr.splitlines() if line.startswith("warning: ")]
    assert any("p95 TPOT chat/2: limit 0.001 % is below this runner's floor " in line for line in warned), later.stderr
    assert warned[-1].startswith("warning: under such limits an unchanged build is likely INCONCLUSIVE")
    assert all(line.removeprefix("warning: ") in RunDirectory(tmp_path / "out").recording().notes for line in warned)
