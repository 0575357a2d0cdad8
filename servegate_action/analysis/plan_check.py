"""A recorded plan against the configuration that should have made it.

For a verdict about a recording that came from elsewhere: a plan that leaves a cell out, or gives it less weight, could
hide a regression. It refuses to build a plan (`workload` does), and to say what follows from a difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from servegate_action.config import workload as config
from servegate_action.records import CellPlan
from servegate_action.traces import TraceRow
from servegate_action.workload import cell_id, mean_rate, trace_due, trace_window


@dataclass(frozen=True, slots=True)
class _Between:
    """What a number of the plan may be: drawn numbers have a range, most have one value."""

    low: float
    high: float = math.inf

    @classmethod
    def only(cls, value: float) -> _Between:
        return cls(value, value)

    def holds(self, value: object) -> bool:
        """Whether the value is one of them, up to the last digits of a float."""
        return isinstance(value, int | float) and self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:g}"
        return f"{self.low:g} or more" if self.high == math.inf else f"{self.low:g} to {self.high:g}"


_Expected = dict[str, str | _Between | None]


def undeclared(
    declared: config.Workload, cells: Sequence[CellPlan], *, trace: Sequence[TraceRow] | None = None
) -> tuple[str, ...]:
    """Where a recorded plan is not what the configuration declares, a sentence for each cell; empty when it is.

    A verdict is about the cells of the plan: one that is left out, or weighs less, could hide a regression. Lengths that are
    drawn are held to their range, and the prompts' lengths to nothing: they are words, as the baseline counts. `trace` holds
    the rows of `declared.trace` where they are known.
    """
    expected = dict(_trace_expected(declared.trace, cells, trace) if declared.trace else _expected(declared.cells))
    planned = [cell.id for cell in cells]
    if planned != list(expected):
        found = f"cells {', '.join(planned)}" if planned else "no cells"
        return (f"{found}, declared {', '.join(expected)}",)
    findings = ((cell.id, _misfits(cell, expected[cell.id])) for cell in cells)
    return tuple(f"{identifier}: {'; '.join(wrong)}" for identifier, wrong in findings if wrong)


def _misfits(cell: CellPlan, expected: _Expected) -> list[str]:
    found = [(name, getattr(cell, name), allowed) for name, allowed in expected.items()]
    return [
        f"{name.replace('_', ' ')} {value}, declared {allowed}"
        for name, value, allowed in found
        if not (allowed.holds(value) if isinstance(allowed, _Between) else value == allowed)
    ]


def _expected(cells: Sequence[config.Cell]) -> Iterator[tuple[str, _Expected]]:
    for cell in cells:
        points = cell.concurrency or (None,)
        for concurrency in points:
            yield (
                cell_id(cell, concurrency),
                {
                    "name": cell.name,
                    "concurrency": None if concurrency is None else _Between.only(concurrency),
                    "rate_per_second": None if cell.rate_per_second is None else _Between.only(cell.rate_per_second),
                    "weight": _Between.only(cell.weight / len(points)),
                    "requests": _Between.only(cell.requests),
                    "warmup_requests": _Between.only(cell.warmup_requests) if cell.warmup_requests else _Between(1),
                    "output_tokens": _mean_of(cell.output_tokens),
                },
            )


def _mean_of(length: config.Length) -> _Between:
    if isinstance(length, config.Uniform):
        return _Between(length.low, length.high)
    return _Between(1) if isinstance(length, config.Lognormal) else _Between.only(length)


def _trace_expected(
    trace: config.Trace, cells: Sequence[CellPlan], rows: Sequence[TraceRow] | None
) -> Iterator[tuple[str, _Expected]]:
    window = None if rows is None else trace_window(trace, rows)
    count = cells[0].requests if window is None and cells else len(window or ())
    yield (
        "trace",
        {
            "name": "trace",
            "concurrency": None,
            "rate_per_second": _Between(0) if window is None else _Between.only(mean_rate(trace_due(trace, window))),
            "weight": _Between.only(1),
            "requests": _Between(2) if window is None else _Between.only(len(window)),
            "warmup_requests": _Between.only(min(trace.warmup_requests, count)),
            "output_tokens": _Between(1)
            if window is None
            else _Between.only(fmean(row.output_tokens for row in window)),
        },
    )
