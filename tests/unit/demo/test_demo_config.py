"""The demo's gate is a configuration like any other, and says what is missing when it cannot run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servegate_action.config.load import load
from servegate_action.config.models import Config
from servegate_action.demo import demo_config, model_path

ROOT = Path(__file__).resolve().parents[3]

needs_engine = pytest.mark.skipif(model_path() is None, reason="the demo set is not installed: scripts/bootstrap demo")


def config(*, swap: bool = False, python: str = sys.executable) -> Config:
    return load(demo_config(swap=swap, python=python), file="demo")


def threads(gate: Config) -> tuple[str, str]:
    found = []
    for stack in (gate.stacks.baseline, gate.stacks.candidate):
        assert stack.process is not None
        found.append(stack.process.command[stack.process.command.index("--threads") + 1])
    return found[0], found[1]


@needs_engine
def test_the_candidate_has_two_threads_and_swapped_one() -> None:
    assert threads(config()) == ("1", "2")
    assert threads(config(swap=True)) == ("2", "1")
    assert config().stacks.baseline.label == config(swap=True).stacks.candidate.label


@needs_engine
def test_but_for_threads_and_labels_the_two_stacks_are_the_same() -> None:
    gate = config()
    baseline, candidate = gate.stacks.baseline, gate.stacks.candidate
    assert baseline.process is not None
    assert candidate.process is not None
    assert baseline.model_copy(update={"label": "", "process": None}) == candidate.model_copy(
        update={"label": "", "process": None}
    )
    differing = [
        pair for pair in zip(baseline.process.command, candidate.process.command, strict=True) if len({*pair}) > 1
    ]
    assert differing == [("1", "2")]


@needs_engine
def test_every_cell_has_enough_requests_for_a_p95() -> None:
    assert all(cell.requests >= 72 for cell in config().workload.cells)


@needs_engine
@pytest.mark.parametrize("python", ["/opt/my python/bin/python3", 'C:\\py "3"', "/a: b #c"])
def test_any_path_of_python_survives_the_yaml(python: str) -> None:
    process = config(python=python).stacks.baseline.process
    assert process is not None
    assert process.command[0] == python


def test_without_the_extra_the_message_says_what_to_install() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from servegate_action.demo import demo_config as d; d(swap=False, python='p')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert "the engine (module xllamacpp) and the model" in done.stderr
    assert "pip install 'servegate[demo]'" in done.stderr
