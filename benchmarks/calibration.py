"""Does the decision keep its promises? The shipped decision code on thousands of simulated runs.

Every scenario is a promise of docs/statistics.md with its bound: an unchanged build is rejected at most one time in
twenty, a candidate at its limit passes at most one time in twenty, known regressions are found. For each family of noise
the runs go through `stats.judge` at the scheduled looks, the very function that `decide` uses; a sample of them is also
put through `decide` itself and must give the same word after the same number of rounds. Prints a Markdown table with
95 % Monte-Carlo intervals. A bound is broken when the whole interval lies beyond it; then the exit status is 1.

    python -m benchmarks.calibration                      # 10,000 runs of each scenario, minutes
    python -m benchmarks.calibration --quick              # launch noise only, seconds
    python -m benchmarks.calibration --break-levels       # 5 % at each look: must fail
    python -m benchmarks.calibration --compare            # the earlier rule beside the shipped one
    python -m benchmarks.calibration --document           # and put the table into docs/statistics.md (also with --compare)
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import calibration_model as model
from benchmarks.calibration_model import Family, Simulation
from benchmarks.calibration_rules import RULES, Outcomes, RuleName, agrees_with_decide, play
from servegate_action.analysis import calibration as analysis
from servegate_action.analysis import stats

LOOKS: Final = (4, 6, 8)
NOISE: Final = (0.005, 0.01, 0.02)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated: noise, limits, and by how much one metric of the candidate is worse (a share of its value)."""

    simulation: Simulation
    limits: str = "class"
    column: int | None = None
    worse_by: float | None = None
    times_limit: float | None = None
    rule: RuleName = "shipped"
    levels: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts over the runs of one scenario."""

    scenario: Scenario
    runs: int
    passed: int
    rejected: int
    rejected_by_6: int
    rounds: int
    covered: int
    intervals: int


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the table: a share with its bound, on one scenario."""

    text: str
    scenario: Scenario
    count: Callable[[Measured], tuple[int, int]]
    least: float = 0.0
    most: float = 1.0
    rounds_at_most: float = math.inf


# ---------------------------------------------------------------- the promises


def promises(runs: int, families: Iterable[Family], noise: Iterable[float]) -> Iterator[Promise]:
    """All lines of the table, in order."""
    for family in families:
        for cv in noise:
            yield from _errors(Simulation(family, cv, runs, LOOKS[-1], seed=round(cv * 1000)))
        if 0.01 in noise:
            yield from _power(Simulation(family, 0.01, runs, LOOKS[-1], seed=77))


def _errors(simulation: Simulation) -> Iterator[Promise]:
    same = Scenario(simulation)
    yield Promise("unchanged, class limits: REJECT", same, _rejected, most=0.05)
    yield Promise("unchanged, 2 % limits: REJECT", replace(same, limits="flat"), _rejected, most=0.05)
    for column in (model.TOK_S, model.CELL_TPOT, model.CELL_TTFT):
        name = model.METRICS[column].name
        at = replace(same, column=column, times_limit=1.0)
        yield Promise(f"{name} at its limit: PASS", at, _passed, most=0.05)
        yield Promise(f"{name} at twice its limit: PASS", replace(at, times_limit=2.0), _passed, most=0.005)
    yield Promise("unchanged, class limits: PASS", same, _passed)
    quiet = simulation.family in (Family.LAUNCH, Family.DRIFT, Family.POSITION)
    floors = replace(same, limits="floor")
    yield Promise(
        "unchanged, limits at the floor: PASS",
        floors,
        _passed,
        least=0.9 if quiet else 0.0,
        rounds_at_most=6.0 if quiet else math.inf,
    )
    normal = simulation.family not in (Family.OUTLIERS, Family.MIXED, Family.BIMODAL, Family.QUEUE)
    span = (0.94, 0.98) if simulation.family is Family.LAUNCH else (0.94, 1.0) if normal else (0.0, 1.0)
    yield Promise("unchanged: intervals at stopping that cover", same, _covered, least=span[0], most=span[1])


def _power(simulation: Simulation) -> Iterator[Promise]:
    strict = simulation.family in (Family.LAUNCH, Family.SHARED, Family.DRIFT, Family.POSITION)
    struck = simulation.family in (Family.OUTLIERS, Family.MIXED)
    by_6, by_8 = (0.90, 0.95) if strict else (0.85, 0.90) if struck else (0.0, 0.0)
    slow = Scenario(simulation, column=model.CELL_TPOT, worse_by=0.10)
    yield Promise("cell p95 TPOT +10 %, limit 5 %: REJECT by 6 rounds", slow, _rejected_by_6, least=by_6)
    yield Promise("cell p95 TPOT +10 %, limit 5 %: REJECT by 8 rounds", slow, _rejected, least=by_8)
    decode = Scenario(simulation, column=model.DECODE, worse_by=0.05)
    least = 0.90 if strict else 0.0
    yield Promise("decode tok/s 5 % worse, limit 2 %: REJECT by 8 rounds", decode, _rejected, least=least)


def _rejected(measured: Measured) -> tuple[int, int]:
    return measured.rejected, measured.runs


def _rejected_by_6(measured: Measured) -> tuple[int, int]:
    return measured.rejected_by_6, measured.runs


def _passed(measured: Measured) -> tuple[int, int]:
    return measured.passed, measured.runs


def _covered(measured: Measured) -> tuple[int, int]:
    return measured.covered, measured.intervals


# ---------------------------------------------------------------- playing


BLOCK: Final = 2_500


def measure(scenario: Scenario) -> Measured:
    """Play all runs of one scenario, in blocks that fit a cache."""
    whole = scenario.simulation
    counts = np.zeros(6, dtype=np.int64)
    for number, start in enumerate(range(0, whole.runs, BLOCK)):
        block = replace(whole, runs=min(BLOCK, whole.runs - start), seed=whole.seed * 1000 + number)
        counts += _block(replace(scenario, simulation=block))
    passed, rejected, by_6, rounds, covered, intervals = counts.tolist()
    return Measured(scenario, whole.runs, passed, rejected, by_6, rounds, covered, intervals)


def _block(scenario: Scenario) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    baseline, candidate = model.draw(scenario.simulation)
    limits = _limits(scenario)
    true_change = np.zeros(len(model.METRICS))
    if scenario.column is not None:
        amount = scenario.worse_by if scenario.worse_by is not None else _times_limit(scenario, limits)
        true_change[scenario.column] = math.log1p(amount)
    candidate = candidate + true_change
    levels = scenario.levels or stats.levels_for(LOOKS)
    calibrated = _calibrated(scenario.simulation) if "moderated" in scenario.rule else None
    outcomes = play(scenario.rule, baseline, candidate, limits, (LOOKS, levels), calibrated)
    if scenario.rule == "shipped" and not scenario.levels and limits.ndim == 1:
        agrees_with_decide(outcomes, baseline, candidate, limits, LOOKS)
    return _counts(outcomes, true_change)


def _times_limit(scenario: Scenario, limits: stats.Floats) -> float:
    return float(limits[scenario.column]) * (scenario.times_limit or 0.0) if scenario.column is not None else 0.0


def _limits(scenario: Scenario) -> stats.Floats:
    """Limits per metric; at the floor they differ from run to run, each having had a calibration of its own."""
    if scenario.limits == "flat":
        return model.FLAT_LIMITS
    if scenario.limits == "class":
        return model.CLASS_LIMITS
    floor = analysis.floor_of(1.0, LOOKS[-1])
    return np.asarray(np.expm1(floor * np.sqrt(_calibrated(scenario.simulation))))


def _calibrated(simulation: Simulation) -> stats.Floats:
    """The pooled variance of d from eight A/A rounds of each run's own: the baseline against itself, before the run."""
    family = Family.LAUNCH if simulation.family is Family.NOISIER else simulation.family
    a, b = model.draw(replace(simulation, family=family, seed=simulation.seed + 500_000))
    rule = stats.Rule(
        margin=np.zeros(len(model.METRICS)),
        sd_floor=np.full(len(model.METRICS), stats.SD_FLOOR_RATIO),
        family=np.arange(len(model.METRICS)),
        may_pass=np.ones(len(model.METRICS), dtype=np.bool_),
    )
    variance = stats.noise(a, b, rule).variance
    pooled = np.stack([variance[:, kind == model.KIND_OF].mean(axis=-1) for kind in range(len(model.KINDS))], axis=-1)
    return np.asarray(pooled[:, model.KIND_OF])


def _counts(outcomes: Outcomes, true_change: stats.Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    covered = (outcomes.lower <= true_change) & (true_change <= outcomes.upper)
    return np.array(
        [
            outcomes.passed.sum(),
            outcomes.rejected.sum(),
            (outcomes.rejected & (outcomes.rounds <= 6)).sum(),
            outcomes.rounds.sum(),
            covered.sum(),
            covered.size,
        ],
        dtype=np.int64,
    )


# ---------------------------------------------------------------- printing


@dataclass(frozen=True, slots=True)
class Line:
    """A promise with what was found."""

    promise: Promise
    share: float
    low: float
    high: float
    rounds: float

    @property
    def broken(self) -> bool:
        """Whether the whole Monte-Carlo interval lies beyond a bound."""
        return (
            self.high < self.promise.least or self.low > self.promise.most or self.rounds > self.promise.rounds_at_most
        )


def line(promise: Promise, measured: Measured) -> Line:
    """Put a share and Wilson's 95 % interval to a promise. Intervals of one run are counted as one draw."""
    successes, trials = promise.count(measured)
    share = successes / trials
    low, high = wilson(share, measured.runs)
    return Line(promise, share, low, high, measured.rounds / measured.runs)


def wilson(share: float, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z2 = 1.959963984540054**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = math.sqrt(z2 * (share * (1 - share) / trials + z2 / (4 * trials * trials))) / (1 + z2 / trials)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def render(lines: Iterable[Line]) -> str:
    """A Markdown table: one row per promise and family, one column per L."""
    cells: dict[tuple[str, str, str], dict[float, str]] = {}
    for one in lines:
        simulation = one.promise.scenario.simulation
        key = (one.promise.text, simulation.family.value, _bound(one.promise))
        rounds = f", {one.rounds:.1f} rounds" if "PASS" in one.promise.text and "unchanged" in one.promise.text else ""
        mark = " **broken**" if one.broken else ""
        text = f"{100 * one.share:.1f} ({100 * one.low:.1f} … {100 * one.high:.1f}){rounds}{mark}"
        cells.setdefault(key, {})[simulation.launch_cv] = text
    columns = sorted({cv for row in cells.values() for cv in row})
    head = "| promise | noise | bound | " + " | ".join(f"L = {100 * cv:g} %" for cv in columns) + " |"
    rule = "|---|---|---|" + "---|" * len(columns)
    texts = list(dict.fromkeys(key[0] for key in cells))
    body = [
        f"| {key[0]} | {key[1]} | {key[2]} | " + " | ".join(row.get(cv, "") for cv in columns) + " |"
        for text in texts
        for key, row in cells.items()
        if key[0] == text
    ]
    return "\n".join([head, rule, *body])


def _bound(promise: Promise) -> str:
    parts = []
    if promise.least > 0.0:
        parts.append(f"≥ {100 * promise.least:g} %")
    if promise.most < 1.0:
        parts.append(f"≤ {100 * promise.most:g} %")
    if promise.rounds_at_most < math.inf:
        parts.append(f"≤ {promise.rounds_at_most:g} rounds")
    return ", ".join(parts) or "shown"


def compare(runs: int, noise: Iterable[float]) -> str:
    """Each rule's PASS share and rounds of unchanged builds, and both error rates, per family and L."""
    head = "| noise | L | rule | unchanged: PASS | mean rounds | unchanged: REJECT | at the limit: PASS, worst metric |"
    rows = [head, "|---|---|---|---|---|---|---|"]
    columns = (model.TOK_S, model.CELL_TPOT)
    unchanged = [
        Scenario(Simulation(family, cv, runs, LOOKS[-1], seed=round(cv * 1000)), rule=rule)
        for cv in noise
        for family in Family
        for rule in RULES
    ]
    jobs = [*unchanged, *(_at_limit(same, column) for same in unchanged for column in columns)]
    results = dict(zip(jobs, _measure_all(jobs), strict=True))
    for job in unchanged:
        same = results[job]
        wrong = max(results[_at_limit(job, column)].passed for column in columns)
        rows.append(
            f"| {job.simulation.family} | {100 * job.simulation.launch_cv:g} % | {job.rule} | "
            f"{100 * same.passed / runs:.1f} % | {same.rounds / runs:.2f} | {100 * same.rejected / runs:.1f} % | "
            f"{100 * wrong / runs:.1f} % |"
        )
    return "\n".join(rows)


def _at_limit(scenario: Scenario, column: int) -> Scenario:
    return replace(scenario, column=column, times_limit=1.0)


def _measure_all(jobs: list[Scenario]) -> list[Measured]:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    with ProcessPoolExecutor() as pool:
        return list(pool.map(measure, jobs))


DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "statistics.md"


def publish(text: str, mark: str, document: Path = DOCUMENT) -> None:
    """Print a table, and put it between its marks in the documentation when there is a document."""
    print(text)
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, rest = document.read_text(encoding="utf-8").split(begin)
    document.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")


def _show(text: str, _mark: str) -> None:
    print(text)


def _said(table: str, runs: int) -> str:
    return f"{table}\n\n{runs:,} simulated runs of each line."


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the table; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="simulated runs of each scenario")
    parser.add_argument("--quick", action="store_true", help="launch noise at L = 0.5 and 1 %% only, 1,500 runs")
    parser.add_argument("--break-levels", action="store_true", help="test at 5 %% at each look, to see it fail")
    parser.add_argument("--compare", action="store_true", help="print the earlier rule beside the shipped one")
    parser.add_argument("--document", action="store_true", help="put the table into docs/statistics.md")
    parser.add_argument("--noise", type=float, action="append", help="L; default: 0.005, 0.01 and 0.02")
    options = parser.parse_args(None if arguments is None else list(arguments))
    began = time.monotonic()
    show = publish if options.document else _show
    if options.compare:
        show(_said(compare(options.runs, options.noise or NOISE), options.runs), "comparison")
        return 0
    runs = 1_500 if options.quick else options.runs
    families = (Family.LAUNCH,) if options.quick else tuple(Family)
    listed = list(promises(runs, families, NOISE[:2] if options.quick else options.noise or NOISE))
    if options.break_levels:
        listed = [replace(one, scenario=replace(one.scenario, levels=(0.05,) * len(LOOKS))) for one in listed]
    scenarios = list(dict.fromkeys(one.scenario for one in listed))
    results = dict(zip(scenarios, _measure_all(scenarios), strict=True))
    lines = [line(one, results[one.scenario]) for one in listed]
    show(_said(render(lines), runs), "promises")
    broken = [one for one in lines if one.broken]
    print(
        f"\n{len(lines)} promises, {runs:,} runs each, looks after {', '.join(map(str, LOOKS))} rounds: "
        f"{len(broken)} broken ({time.monotonic() - began:.0f} s)",
        file=sys.stderr,
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
