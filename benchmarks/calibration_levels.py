"""Computes the levels of `servegate_action/analysis/levels.py`: what each look of a schedule may spend.

For a single metric that lies exactly at its limit, a wrong PASS happens when the test crosses at any look. With the
i-th look tested at i·α, that is min over looks of p_i / i < α, so α is the 5 % quantile of that minimum. It is taken in
the worst case over a grid of situations: a candidate up to five times as noisy as the baseline, and shared round noise
from none to twice that of a launch. One metric alone is the hardest case for the choice between the two variance
estimates, since with many metrics it hardly depends on the one in question. The estimate of noise is the shipped one.

    python -m benchmarks.calibration_levels --runs 2000000 --write
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from servegate_action.analysis import stats

MOST = stats.MOST_ROUNDS
LOOKS = tuple(range(2, MOST + 1, 2))
EXTRA = ((4, 8),)
SCHEDULES = tuple(tuple(range(first, last + 1, 2)) for first in LOOKS for last in LOOKS if last >= first) + EXTRA
CANDIDATE_SD = (1.0, 1.5, 2.5, 5.0)
SHARED_SD = (0.0, 0.5, 1.0, 2.0)
BINS = 20_000
TOP = 0.06
CHUNK = 25_000

ONE_METRIC = stats.Rule(
    margin=np.zeros(1), sd_floor=np.zeros(1), family=np.zeros(1, dtype=np.intp), may_pass=np.ones(1, dtype=np.bool_)
)


@dataclass(frozen=True, slots=True)
class Situation:
    """How noisy the candidate is and how much noise a round shares, in SDs of a baseline launch."""

    candidate_sd: float
    shared_sd: float


SITUATIONS = tuple(Situation(candidate, shared) for candidate in CANDIDATE_SD for shared in SHARED_SD)


def histograms(task: tuple[Situation, int, int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Per schedule the histogram of min p_i / i over `runs` simulated runs of one metric at its limit."""
    situation, runs, seed = task
    random = np.random.default_rng([seed, SITUATIONS.index(situation)])
    shape = (runs, MOST, 1)
    shared = situation.shared_sd * random.standard_normal(shape)
    baseline = random.standard_normal(shape) + shared
    candidate = situation.candidate_sd * random.standard_normal(shape) + shared
    tails = {n: _tail(baseline[:, :n], candidate[:, :n]) for n in LOOKS}
    counts = np.zeros((len(SCHEDULES), BINS + 1), dtype=np.int64)
    smallest: dict[tuple[int, ...], stats.Floats] = {}
    for index, schedule in enumerate(SCHEDULES):
        spent = tails[schedule[-1]] / len(schedule)
        before = smallest.get(schedule[:-1])
        smallest[schedule] = spent if before is None else np.minimum(before, spent)
        place = np.minimum(smallest[schedule] / (TOP / BINS), BINS).astype(np.int64)
        counts[index] = np.bincount(place, minlength=BINS + 1)
    return counts


def _tail(baseline: stats.Floats, candidate: stats.Floats) -> stats.Floats:
    """P(T < d̄/se): the p-value of "worse than the limit", which is at zero here."""
    estimate = stats.noise(baseline, candidate, ONE_METRIC)
    error = np.sqrt(estimate.variance / baseline.shape[-2])
    return np.asarray(stdtr(estimate.df, (candidate - baseline).mean(axis=-2) / error), dtype=np.float64)[:, 0]


def alphas(runs: int) -> dict[tuple[int, ...], float]:
    """α of every schedule: the smallest over the situations, rounded down to five digits."""
    chunks = max(runs // CHUNK, 1)
    worst = np.full(len(SCHEDULES), math.inf)
    with ProcessPoolExecutor() as pool:
        for situation in SITUATIONS:
            tasks = [(situation, min(runs, CHUNK), seed) for seed in range(chunks)]
            total = sum(pool.map(histograms, tasks), start=np.zeros((len(SCHEDULES), BINS + 1), dtype=np.int64))
            below = np.cumsum(total, axis=1)
            quantile = np.array([np.searchsorted(row, 0.05 * row[-1]) for row in below]) * (TOP / BINS)
            worst = np.minimum(worst, quantile)
            print(f"{situation}: 4, 6, 8 -> {quantile[SCHEDULES.index((4, 6, 8))]:.5f}", file=sys.stderr, flush=True)
    return {schedule: math.floor(alpha * 1e5) / 1e5 for schedule, alpha in zip(SCHEDULES, worst.tolist(), strict=True)}


def module(table: dict[tuple[int, ...], float], runs: int) -> str:
    """The text of `levels.py`."""
    rows = "\n".join(_row(first, table) for first in LOOKS)
    extra = "\n".join(f"    {schedule}: {table[schedule]:.5f}," for schedule in EXTRA)
    return f'''"""The level that each look of a schedule may spend: a = i·α at the i-th look.

α is such that a metric exactly at its limit crosses at any of the looks with probability .05, in the worst of
{len(SITUATIONS)} situations (a candidate up to five times as noisy as the baseline, shared round noise up to twice that of a launch).
Made by `python -m benchmarks.calibration_levels`, which simulated {runs:,} runs of each; `benchmarks/calibration.py`
proves what follows from it. Only numbers live here.
"""

from __future__ import annotations

from typing import Final

# fmt: off
# First look: α of the schedules with all even numbers from it to it, to it + 2, it + 4, ... up to {MOST}.
_BY_FIRST_LOOK: Final[dict[int, tuple[float, ...]]] = {{
{rows}
}}
# fmt: on

ALPHAS: Final[dict[tuple[int, ...], float]] = {{
    **{{
        tuple(range(first, first + 2 * steps + 1, 2)): alpha
        for first, row in _BY_FIRST_LOOK.items()
        for steps, alpha in enumerate(row)
    }},
{extra}
}}
"""α by schedule of looks: all even numbers from the first to the last look, and a few with gaps."""
'''


def _row(first: int, table: dict[tuple[int, ...], float]) -> str:
    numbers = [f"{table[tuple(range(first, last + 1, 2))]:.5f}" for last in LOOKS if last >= first]
    lines = [", ".join(numbers[start : start + 10]) + "," for start in range(0, len(numbers), 10)]
    return f"    {first}: (\n" + "\n".join(f"        {line}" for line in lines) + "\n    ),"


def main(arguments: Iterable[str] | None = None) -> int:
    """Compute, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200_000, help="simulated runs of each situation")
    parser.add_argument("--write", action="store_true", help="replace servegate_action/analysis/levels.py")
    options = parser.parse_args(None if arguments is None else list(arguments))
    text = module(alphas(options.runs), options.runs)
    if options.write:
        Path(stats.__file__).with_name("levels.py").write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
