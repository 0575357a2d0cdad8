"""Numbers as people read them: with unit, sign and equal digits; never more digits than the measurement bears.

A pair of values that is compared is written with the same number of decimals. Changes carry their real sign: a loss of
throughput is negative, a gain of latency positive. No arithmetic beyond scaling to percent and rounding happens here,
and rounding never hides on which side of a limit a bound lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from servegate_action.analysis.judgement import Change95, Direction, Quantity
from servegate_action.config.limits import Limit
from servegate_action.records import Absent

MINUS = "\u2212"
SIGNIFICANT = 3
MOST_DECIMALS = 6
MOST_CHANGE_DECIMALS = 3
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Marks:
    """How a language writes numbers."""

    decimal: str
    thousands: str
    points: str
    range: str = " … "


def decimals_for(values: Sequence[float]) -> int:
    """Decimals that give the smallest non-zero value three significant digits, and the largest at most six."""
    sizes = [abs(value) for value in values if value != 0]
    if not sizes:
        return 0
    wanted = SIGNIFICANT - 1 - math.floor(math.log10(min(sizes)))
    bearable = 2 * SIGNIFICANT - 1 - math.floor(math.log10(max(sizes)))
    return max(0, min(wanted, bearable, MOST_DECIMALS))


def figure(value: float, decimals: int, marks: Marks, *, signed: bool = False) -> str:
    """One number: true minus, thousands apart; what rounds to zero has no minus (`±0.0` where signs are asked for)."""
    text = f"{abs(value):,.{decimals}f}"
    whole, _, fraction = text.partition(".")
    number = whole.replace(",", marks.thousands) + (marks.decimal + fraction if fraction else "")
    if not any(char in "123456789" for char in number):
        return f"±{number}" if signed else number
    return (MINUS if value < 0 else "+" if signed else "") + number


def figures(values: Sequence[float], marks: Marks, *, least: int = 0) -> tuple[str, ...]:
    """All with the same number of decimals."""
    decimals = max(least, decimals_for(values))
    return tuple(figure(value, decimals, marks) for value in values)


def with_unit(number: str, unit: str) -> str:
    """`12.3 ms`; a bare number where there is no unit."""
    return f"{number} {unit}" if unit else number


def least_decimals(unit: str) -> int:
    """Money is written with cents, shares with one decimal."""
    return 2 if unit.startswith("USD") else 1 if unit == "%" else 0


def measures(values: Sequence[float], unit: str, marks: Marks) -> tuple[str, ...]:
    """Values of one unit, written with equal digits; from a million on in millions, with four digits."""
    if any(abs(value) >= MILLION for value in values):
        smallest = min(abs(value) for value in values if value != 0) / MILLION
        decimals = max(0, min(SIGNIFICANT - math.floor(math.log10(smallest)), SIGNIFICANT))
        return tuple(with_unit(figure(value / MILLION, decimals, marks), f"M {unit}".strip()) for value in values)
    return tuple(with_unit(text, unit) for text in figures(values, marks, least=least_decimals(unit)))


def measure(value: float, unit: str, marks: Marks) -> str:
    """One value with its unit."""
    return measures([value], unit, marks)[0]


def pair(values: tuple[float, float], unit: str, marks: Marks) -> tuple[str, str]:
    """Two values of one unit, written with equal digits."""
    first, second = measures(values, unit, marks)
    return first, second


def pair_of_quantities(first: Quantity, second: Quantity, marks: Marks) -> tuple[str, str]:
    """Two quantities; equal digits where the units are the same."""
    if first.unit != second.unit:
        return measure(first.value, first.unit, marks), measure(second.value, second.unit, marks)
    return pair((first.value, second.value), first.unit, marks)


def percent(share: float, marks: Marks, *, decimals: int = 1, signed: bool = False) -> str:
    """A share (0.123) as `12.3 %`."""
    return f"{figure(100 * share, decimals, marks, signed=signed)} %"


def short_percent(share: float, marks: Marks) -> str:
    """A share as `5 %`, `2.5 %`, `97.5 %`: no zeros at the end."""
    value = 100 * share
    decimals = next((d for d in range(4) if math.isclose(round(value, d), value, abs_tol=1e-9)), 3)
    return f"{figure(value, decimals, marks)} %"


def bound(limit: Limit, direction: Direction) -> float:
    """The allowed change with its real sign, exactly: ratio 1 + limit for costs and times, 1/(1 + limit) for rates."""
    if limit.unit == "points":
        return -limit.value if direction is Direction.HIGHER else limit.value
    return 1 / (1 + limit.value) - 1 if direction is Direction.HIGHER else limit.value


@dataclass(frozen=True, slots=True)
class ChangeText:
    """A change in words: `+6.3 %`, its interval `+4.1 … +8.8`, and what was allowed `+2 %`."""

    point: str
    interval: str
    allowed: str

    @property
    def whole(self) -> str:
        """Point and interval: `+6.3 % (+4.1 … +8.8)`."""
        return f"{self.point} ({self.interval})"


def change(value: Change95, limit: Limit | None, direction: Direction | None, marks: Marks) -> ChangeText:
    """A change and its limit, written with as many decimals as it takes to see on which side of the limit it lies."""
    scale = 100.0 if value.unit == "ratio" else 1.0
    unit = "%" if value.unit == "ratio" else marks.points
    parts = [scale * value.point, scale * value.low, scale * value.high]
    edge = None if limit is None or direction is None else scale * bound(limit, direction)
    decimals = _change_decimals(parts, edge)
    point, low, high = (figure(part, decimals, marks, signed=True) for part in parts)
    text = "" if limit is None or direction is None else allowed(limit, direction, marks, near=parts)
    return ChangeText(point=f"{point} {unit}", interval=f"{low}{marks.range}{high}", allowed=text)


def _change_decimals(parts: Sequence[float], edge: float | None) -> int:
    """One decimal; none when huge; more when all is tiny, or when rounding would put a part on the limit's other side."""
    sizes = [abs(part) for part in parts]
    start = 0 if max(sizes) >= 100 else 2 if max(sizes) < 0.1 else 1
    apart = [part for part in parts if edge is not None and part != edge]
    for decimals in range(start, MOST_CHANGE_DECIMALS):
        if all(round(part, decimals) != round(edge or 0.0, decimals) for part in apart):
            return decimals
    return MOST_CHANGE_DECIMALS


def allowed(limit: Limit, direction: Direction, marks: Marks, *, near: Sequence[float] = ()) -> str:
    """The limit with its real sign, as declared: `+5 %`, `−2 %`, `−2 points`.

    A limit of 10 % on a rate is a ratio of 1/1.1, so −9.1 %. That is added where one of `near` (percent) lies between the two.
    """
    sign = MINUS if direction is Direction.HIGHER else "+"
    if limit.unit == "points":
        return f"{sign}{_trimmed(limit.value, marks)} {marks.points}"
    declared = f"{sign}{short_percent(limit.value, marks)}"
    exact = 100 * bound(limit, direction)
    if direction is Direction.HIGHER and any(-100 * limit.value <= part <= exact for part in near):
        return f"{declared} (= {figure(exact, 2, marks)} %)"
    return declared


def _trimmed(value: float, marks: Marks) -> str:
    decimals = next((d for d in range(4) if math.isclose(round(value, d), value, abs_tol=1e-9)), 3)
    return figure(value, decimals, marks)


def probability(value: float, marks: Marks) -> str:
    """A p-value as a relation: `= 0.007`, `< 0.001`."""
    return f"< {figure(0.001, 3, marks)}" if value < 0.001 else f"= {figure(value, 3, marks)}"


def count(value: float, marks: Marks) -> str:
    """A whole number with its thousands apart."""
    return figure(value, 0, marks)


def maybe(value: float | Absent, unit: str, marks: Marks, *, none: str) -> str:
    """A value with its unit, or the word for its absence (the reason is shown elsewhere)."""
    return none if isinstance(value, Absent) else measure(value, unit, marks)
