"""The whole gate on a real engine: what makes two stacks incomparable is found before a round is paid for.

llama.cpp with the demo's model on both sides; the candidate is the same stack, or differs in one thing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from servegate_action import demo, store
from servegate_action.analysis.judgement import HardCheck, Judgement
from servegate_action.errors import ExitCode
from servegate_action.records import LaunchState, Recording
from servegate_action.store import RunDirectory
from tests.support import requantize

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def model() -> Path:
    path = demo.model_path()
    if path is None:
        pytest.skip("the demo set is not installed: scripts/bootstrap demo")
    return path


def engine(model: Path, *flags: str, port: str = "{port}") -> list[str]:
    command = [sys.executable, "-m", "servegate_action.demo.server", "--model", str(model), "--alias", "m"]
    return [*command, "--port", port, "--threads", "1", "--parallel", "2", "--ctx", "256", *flags]


def gate_of(baseline: list[str], candidate: list[str]) -> dict[str, object]:
    def stack(label: str, command: list[str]) -> dict[str, object]:
        return {
            "label": label,
            "engine": "llama.cpp",
            "process": {"command": command},
            "env": [f"PYTHONPATH={ROOT}"],
            "ready_timeout_s": 120,
            "stop_timeout_s": 5,
        }

    return {
        "version": 1,
        "gate": "real-engine",
        "model": {"name": "m"},
        "stacks": {"baseline": stack("as it is", baseline), "candidate": stack("changed", candidate)},
        "workload": {
            "cells": [{"name": "chat", "prompt_tokens": 8, "output_tokens": 8, "concurrency": 2, "requests": 74}]
        },
        "rounds": {"min": 2, "max": 2},
        "numerics": {"prompts": 6, "output_tokens": 6},
        "accelerator": "cpu",
    }


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one run."""

    code: int
    said: str
    recording: Recording
    judgement: Judgement

    def check(self, name: str) -> HardCheck:
        (found,) = [check for check in self.judgement.checks if check.name == name]
        return found

    @property
    def rounds_paid_for(self) -> int:
        return sum(one.state is LaunchState.COMPLETE for one in self.recording.launches)


def run(folder: Path, config: dict[str, object], *, stop_at: str | None = None) -> Ran:
    """`servegate run`; `stop_at` is a line at which it is cancelled, as by Ctrl-C."""
    (folder / "gate.yml").write_text(json.dumps(config))
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "XDG_DATA_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "servegate_action", "run", "-c", "gate.yml", "-o", "out"]
    said: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line)
                if stop_at is not None and line.startswith(stop_at):
                    process.send_signal(signal.SIGINT)
            code = process.wait(LIMIT_S)
        except BaseException:
            process.kill()
            raise
    directory = RunDirectory(folder / "out")
    if stop_at is not None:
        judge = [sys.executable, "-m", "servegate_action", "judge", "out"]
        subprocess.run(judge, cwd=folder, env=environment, check=False, capture_output=True)
    assert directory.has(store.VERDICT), "".join(said)
    judgement = Judgement.model_validate_json(directory.read_text(store.VERDICT))
    return Ran(code, "".join(said), directory.recording(), judgement)


def test_the_same_stack_is_proven_the_same_and_answers_alike(model: Path, tmp_path: Path) -> None:
    ran = run(tmp_path, gate_of(engine(model), engine(model)), stop_at="round 1: ")
    assert ran.code == 128 + signal.SIGINT, ran.said
    for name in ("identity_model", "identity_quantization", "identity_batch"):
        assert ran.check(name).ok
        assert ", proven: " in ran.check(name).detail
    assert ran.check("numerics").ok, ran.check("numerics").detail


def test_a_requantized_model_is_not_comparable_and_both_tuples_are_named(model: Path, tmp_path: Path) -> None:
    other = requantize.to_q8_0(model, tmp_path / "SmolLM2-135M-Instruct.Q8_0.gguf")
    ran = run(tmp_path, gate_of(engine(model), engine(other)))
    assert ran.code == ExitCode.INVALID, ran.said
    detail = ran.check("identity_quantization").detail
    assert "baseline weights q4_1" in detail
    assert "candidate weights q8_0" in detail
    assert ran.rounds_paid_for == 0


def test_another_type_of_the_kv_cache_is_not_comparable(model: Path, tmp_path: Path) -> None:
    ran = run(tmp_path, gate_of(engine(model), engine(model, "--cache-type-k", "q8_0")))
    assert ran.code == ExitCode.INVALID, ran.said
    detail = ran.check("identity_quantization").detail
    assert "kv cache fp16" in detail
    assert "kv cache k=q8_0,v=fp16" in detail
    assert ran.rounds_paid_for == 0


def test_another_number_of_slots_is_not_comparable(model: Path, tmp_path: Path) -> None:
    ran = run(tmp_path, gate_of(engine(model), engine(model, "--parallel", "4")))
    assert ran.code == ExitCode.INVALID, ran.said
    assert ran.check("identity_batch").detail.startswith("the batch size differs: baseline 2, candidate 4 (proven)")
    assert ran.rounds_paid_for == 0


def test_a_front_end_that_forces_sampling_is_not_comparable(model: Path, tmp_path: Path) -> None:
    proxy = [sys.executable, "-m", "benchmarks.controls.proxy", "--port", "{port}", "--set", "temperature=2.0"]
    forced = [*proxy, "--set", "seed=7", "--", *engine(model, port="{inner}")]
    ran = run(tmp_path, gate_of(engine(model), forced))
    assert ran.code == ExitCode.INVALID, ran.said
    assert ran.check("identity_model").ok
    assert not ran.check("numerics").ok
    assert ran.check("numerics").detail.startswith("the answers differ: ")
    assert ran.rounds_paid_for == 0
