"""Where a value stands on a chart, and which round values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from servegate_action.report.numbers import Marks, figure

STEPS = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values on a length of pixels; `start` is where `low` stands (the end for an axis that grows upwards)."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """The pixel of a value; values outside of the range stand at its edge."""
        low, high, at = (self._scaled(v) for v in (self.low, self.high, min(max(value, self.low), self.high)))
        share = (at - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def ticks(self, about: int = 5) -> list[float]:
        """Round values within the range."""
        return _decades(self.low, self.high) if self.logarithmic else _even(self.low, self.high, about)


def linear(values: Sequence[float], *, start: float, end: float, from_zero: bool = True) -> Axis:
    """An axis from zero (or from the smallest value) to a round value at or above the largest."""
    low = 0.0 if from_zero else min(values)
    high = max(values, default=1.0)
    step = _step(high - low, 5)
    return Axis(low=math.floor(low / step) * step, high=math.ceil(high / step - 1e-9) * step, start=start, end=end)


def logarithmic(values: Sequence[float], *, start: float, end: float) -> Axis:
    """An axis over positive values, a little wider than they are."""
    return Axis(low=min(values) / 1.05, high=max(values) * 1.05, start=start, end=end, logarithmic=True)


def _step(span: float, about: int) -> float:
    """The smallest step of 1, 2 or 5 times a power of ten that makes at most `about` parts of the span."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / about))
    return power * next((step for step in STEPS if span <= about * step * power * (1 + 1e-9)), 10)


def _even(low: float, high: float, about: int) -> list[float]:
    step = _step(high - low, about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten; with their 2 and 5 in between where few powers fit."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    return [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high]


def tick_text(value: float, marks: Marks) -> str:
    """A round value as short as it is."""
    decimals = next((d for d in range(7) if math.isclose(round(value, d), value, rel_tol=1e-9, abs_tol=1e-12)), 6)
    return figure(value, decimals, marks)
