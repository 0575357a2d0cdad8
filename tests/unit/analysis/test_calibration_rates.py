"""The error rates that documentation promises, on few simulated runs; `benchmarks/calibration.py` does it on many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import calibration, calibration_model
from benchmarks.calibration import LOOKS, Line, Promise, Scenario
from benchmarks.calibration_model import Family, Simulation
from benchmarks.calibration_rules import agrees_with_decide, play
from servegate_action.analysis import stats

AT_ITS_LIMIT = Scenario(
    Simulation(Family.LAUNCH, 0.005, 2_000, LOOKS[-1], seed=5), column=calibration_model.CELL_TPOT, times_limit=1.0
)


def wrong_passes(scenario: Scenario) -> Line:
    promise = Promise("at its limit: PASS", scenario, lambda found: (found.passed, found.runs), most=0.05)
    return calibration.line(promise, calibration.measure(scenario))


def test_every_promise_holds_under_launch_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert calibration.main(["--quick"]) == 0
    printed = capsys.readouterr()
    assert "| unchanged, class limits: REJECT | launch | ≤ 5 % |" in printed.out
    assert "0 broken" in printed.err


def test_looking_at_five_per_cent_each_time_is_found_out() -> None:
    honest, greedy = wrong_passes(AT_ITS_LIMIT), wrong_passes(replace(AT_ITS_LIMIT, levels=(0.05,) * len(LOOKS)))
    assert not honest.broken
    assert greedy.broken
    assert 0.07 < greedy.share < 0.11


@pytest.mark.parametrize("family", [Family.LAUNCH, Family.SHARED, Family.NOISIER])
def test_the_simulation_decides_as_the_gate_does(family: Family) -> None:
    for cv in (0.005, 0.02):
        baseline, candidate = calibration_model.draw(Simulation(family, cv, 8, LOOKS[-1], seed=3))
        candidate[:4, :, calibration_model.CELL_TPOT] += 0.12
        limits = calibration_model.CLASS_LIMITS
        outcomes = play("shipped", baseline, candidate, limits, (LOOKS, stats.levels_for(LOOKS)))
        agrees_with_decide(outcomes, baseline, candidate, limits, LOOKS, sample=8)


def test_a_simulation_that_decided_otherwise_would_be_found_out() -> None:
    baseline, candidate = calibration_model.draw(Simulation(Family.LAUNCH, 0.005, 3, LOOKS[-1], seed=3))
    limits = calibration_model.CLASS_LIMITS
    outcomes = play("shipped", baseline, candidate, limits, (LOOKS, stats.levels_for(LOOKS)))
    turned = replace(outcomes, passed=~outcomes.passed)
    with pytest.raises(AssertionError, match="decide says"):
        agrees_with_decide(turned, baseline, candidate, limits, LOOKS)


@pytest.mark.parametrize("family", list(Family))
def test_every_family_of_noise_is_that_of_an_unchanged_build(family: Family) -> None:
    baseline, candidate = calibration_model.draw(Simulation(family, 0.01, 4_000, 4, seed=1))
    difference = (candidate - baseline).mean(axis=(0, 1))
    assert np.all(np.abs(difference) < 0.002 * calibration_model.LOAD + 0.001)
