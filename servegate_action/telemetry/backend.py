"""The one shape that both kinds of accelerator have for the sampler: static facts, a sample, and the end.

A backend is opened in the sampler process and lives there. It reads and never writes. Whatever it cannot read is
`Absent` in the static record, `None` in a sample, and said in words once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from servegate_action.records import TelemetrySample, TelemetryStatic


class Backend(Protocol):
    """A source of samples."""

    def static(self, interval_ns: int) -> TelemetryStatic:
        """The counters that exist here, by name, and the devices."""

    def sample(self, *, t_ns: int, tick: int) -> TelemetrySample:
        """All devices now. `tick` counts from 0; slow counters are read on some ticks only."""

    def follow(self, roots: Sequence[int]) -> None:
        """From now on the stack is these processes. A CPU finds their descendants; a GPU writes down the ids that it is told."""

    def close(self) -> None:
        """Give back whatever was opened."""
