"""Order statistics by nearest rank, plain and weighted. Nothing is interpolated and nothing is averaged.

A quantile in here is always one of the observed values, failed requests included as +inf. The weighted form serves the
traffic mix, in which every cell carries its share of the traffic however many requests were sent in it. This module
refuses empty samples: a quantile of nothing is a caller's `Absent`, not a number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Sums of a million equal weights miss their exact value by far less than this; a whole request weighs far more.
RANK_TOLERANCE = 1e-9


def nearest_rank(values: FloatArray, share: float) -> float:
    """x[⌈share·n⌉] of the sorted values, counted from 1; the smallest value where share is 0.

    Source: docs/metrics.md, "p95". `values` must not be empty; +inf is a value like any other, and the largest.
    """
    rank = int(np.ceil(share * values.size - RANK_TOLERANCE * values.size))
    index = min(max(rank, 1), values.size) - 1
    return float(np.partition(values, index)[index])


def weighted_nearest_rank(values: FloatArray, weights: FloatArray, share: float) -> float:
    """The smallest value at which the cumulative weight reaches `share` of the total.

    With equal weights this is `nearest_rank`. Shapes: both (n,), n ≥ 1; weights > 0 in any unit.
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    index = int(np.searchsorted(reached, (share - RANK_TOLERANCE) * reached[-1], side="left"))
    return float(values[order[min(index, values.size - 1)]])


def effective_size(weights: FloatArray) -> int:
    """Kish's effective sample size (Σw)² / Σw², rounded down: how many equally weighted requests say as much.

    Source: L. Kish, Survey Sampling (1965), section 11.7. Equal weights give n itself.
    """
    return int(float(weights.sum()) ** 2 / float(np.square(weights).sum()) + RANK_TOLERANCE)
