"""A model of what rounds look like, to try the decision on: twenty metrics, and ten families of noise.

Scores are logarithms with + as worse, as `servegate_action.analysis.stats` takes them, of shape (runs, rounds, metrics).
A launch has a common deviation (half of the variance) and one per metric; percentiles add the noise of their finite
number of requests. All sizes scale with L, the coefficient of variation of a launch's throughput. The model is assumed;
`servegate calibrate` replaces its SDs by those of a runner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from servegate_action.analysis import stats
from servegate_action.analysis.stats import Floats
from servegate_action.config.limits import DEFAULT_CELL_LIMITS, DEFAULT_MIX_LIMITS, MetricName


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of metric: how strongly launches move it, the SD that its own requests add, and its class limit."""

    name: str
    load: float
    own_sd: float
    limit: float


MIX: Final = (
    Kind("tokens per GPU-hour", 1.0, 0.001, DEFAULT_MIX_LIMITS[MetricName.TOKENS_PER_GPU_HOUR].value),
    Kind("decode tok/s", 1.0, 0.001, DEFAULT_MIX_LIMITS[MetricName.DECODE_TOKENS_PER_SECOND].value),
    Kind("p95 TPOT", 1.2, 0.002, DEFAULT_MIX_LIMITS[MetricName.TPOT_P95].value),
    Kind("p95 TTFT", 1.6, 0.008, DEFAULT_MIX_LIMITS[MetricName.TTFT_P95].value),
    Kind("GPU utilization", 0.5, 0.001, 0.02),
)
CELL: Final = (
    Kind("cell tok/s", 1.2, 0.002, DEFAULT_CELL_LIMITS[MetricName.TOKENS_PER_SECOND].value),
    Kind("cell p95 TPOT", 1.6, 0.004, DEFAULT_CELL_LIMITS[MetricName.TPOT_P95].value),
    Kind("cell p95 TTFT", 2.5, 0.020, DEFAULT_CELL_LIMITS[MetricName.TTFT_P95].value),
)
CELLS: Final = 5
METRICS: Final = MIX + CELL * CELLS
TOK_S, DECODE, CELL_TPOT, CELL_TTFT = 0, 1, 6, 7
"""Columns of the metrics that scenarios move."""

LOAD: Final = np.array([kind.load for kind in METRICS])
OWN_SD: Final = np.array([kind.own_sd for kind in METRICS])
TTFT: Final = np.array(["TTFT" in kind.name for kind in METRICS])
CLASS_LIMITS: Final = np.array([kind.limit for kind in METRICS])
FLAT_LIMITS: Final = np.full(len(METRICS), 0.02)
KINDS: Final = tuple(dict.fromkeys(kind.name for kind in METRICS))
KIND_OF: Final = np.array([KINDS.index(kind.name) for kind in METRICS])


class Family(StrEnum):
    """What the noise is made of, beside the launches' own normal deviations."""

    LAUNCH = "launch"
    SHARED = "shared round"
    DRIFT = "drift"
    WALK = "random walk"
    OUTLIERS = "outliers"
    BIMODAL = "bimodal"
    NOISIER = "candidate noisier"
    QUEUE = "heavy tails"
    POSITION = "second launch slower"
    MIXED = "shared + drift + outliers"


@dataclass(frozen=True, slots=True)
class Simulation:
    """Which runs to draw. `coupling`: share of a launch's variance that all metrics have in common."""

    family: Family
    launch_cv: float
    runs: int
    rounds: int
    seed: int
    coupling: float = 0.5


def draw(simulation: Simulation) -> tuple[Floats, Floats]:
    """Scores of baseline and candidate of an unchanged build."""
    random = np.random.default_rng([simulation.seed, list(Family).index(simulation.family)])
    noisier = 2.0 if simulation.family is Family.NOISIER else 1.0
    baseline, candidate = _launches(random, simulation, 1.0), _launches(random, simulation, noisier)
    for_baseline, for_candidate = _surroundings(random, simulation)
    return baseline + for_baseline, candidate + for_candidate


def _launches(random: np.random.Generator, simulation: Simulation, scale: float) -> Floats:
    shape = (simulation.runs, simulation.rounds, len(METRICS))
    common = random.standard_normal((*shape[:2], 1))
    if simulation.family is Family.BIMODAL:  # three launches in ten land in a mode three L slower
        slow = (random.random((*shape[:2], 1)) < 0.3) * 3.0 - 0.9
        common = math.sqrt(0.3) * common + 0.9 * slow
    own = random.standard_normal(shape)
    coupled = math.sqrt(simulation.coupling) * common + math.sqrt(1.0 - simulation.coupling) * own
    scores = simulation.launch_cv * scale * LOAD * coupled
    requests = random.standard_normal(shape)
    if simulation.family is Family.QUEUE:  # queueing: Student's t with 3 degrees of freedom, half as large again
        requests = np.where(TTFT, 1.5 * random.standard_t(3, shape) / math.sqrt(3.0), requests)
    scores = scores + OWN_SD * requests
    if simulation.family in (Family.OUTLIERS, Family.MIXED):  # one launch in a hundred is 5 to 25 % slow
        struck = random.random((*shape[:2], 1)) < 0.01
        scores = scores + struck * random.uniform(0.05, 0.25, (*shape[:2], 1)) * LOAD
    return np.asarray(scores)


def _surroundings(random: np.random.Generator, simulation: Simulation) -> tuple[Floats, Floats]:
    """What the machine does to both stacks, by the slot in which each ran (A B | B A | …)."""
    runs, rounds, family = simulation.runs, simulation.rounds, simulation.family
    size = simulation.launch_cv * LOAD
    zero = np.zeros((1, 1, len(METRICS)))
    first, second = stats.slots(rounds)
    parts = [(zero, zero)]
    if family in (Family.SHARED, Family.MIXED):  # a round's own deviation, twice that of a launch
        shared = 2.0 * random.standard_normal((runs, rounds, 1)) * size
        parts.append((shared, shared))
    if family in (Family.DRIFT, Family.MIXED):  # linear, 0.4 L from launch to launch
        parts.append((0.4 * first[:, None] * size, 0.4 * second[:, None] * size))
    if family is Family.WALK:  # steps of 0.7 L from launch to launch
        walk = 0.7 * np.cumsum(random.standard_normal((runs, 2 * rounds, 1)), axis=1) * size
        middle = rounds - 0.5
        at_first, at_second = (first + middle).astype(np.intp), (second + middle).astype(np.intp)
        parts.append((walk[:, at_first], walk[:, at_second]))
    if family is Family.POSITION:  # whichever stack runs second in a round is one L slower
        late = (first > second)[:, None] * size
        parts.append((late, size - late))
    return sum((part[0] for part in parts), start=zero), sum((part[1] for part in parts), start=zero)
