"""The sampler's inner loop: one sample per tick, on an absolute schedule, until told to stop.

A tick that could not be kept is skipped, never caught up: two samples in quick succession would say nothing new. Time
and waiting come in as arguments, so that the loop runs on a virtual clock in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from servegate_action.records import TelemetrySample
from servegate_action.telemetry.backend import Backend


@dataclass(frozen=True, slots=True)
class Orders:
    """What came in while waiting: new root processes, or the order to stop."""

    roots: tuple[int, ...] | None = None
    stop: bool = False


class World(Protocol):
    """The clock and the outside of the loop."""

    def now_ns(self) -> int:
        """Monotonic."""

    def wait_until(self, deadline_ns: int) -> Orders:
        """Return at the deadline, or earlier with orders."""


def run(backend: Backend, world: World, *, interval_ns: int, emit: Callable[[TelemetrySample], None]) -> None:
    """Sample until ordered to stop. Ticks are numbered by the schedule, so a skipped one leaves a gap in the numbers."""
    start = world.now_ns()
    tick = 0
    while True:
        emit(backend.sample(t_ns=world.now_ns(), tick=tick))
        tick = max(tick + 1, -(-(world.now_ns() - start) // interval_ns))
        deadline = start + tick * interval_ns
        while True:
            orders = world.wait_until(deadline)
            if orders.stop:
                return
            _obey(backend, orders.roots)
            if world.now_ns() >= deadline:
                break


def _obey(backend: Backend, roots: Sequence[int] | None) -> None:
    if roots is not None:
        backend.follow(roots)
