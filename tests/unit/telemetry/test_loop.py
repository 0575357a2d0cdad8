"""Ticks on an absolute schedule; a slow reading skips ticks and never bunches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from servegate_action.records import TelemetrySample, TelemetryStatic
from servegate_action.telemetry.loop import Orders, run

TICK = 100


class Backend:
    """Takes as long as it is told, and remembers what it was asked."""

    def __init__(self, world: World, takes: Callable[[int], int] = lambda _: 10) -> None:
        self.world = world
        self.takes = takes
        self.asked: list[tuple[int, int]] = []
        self.roots: list[tuple[int, ...]] = []

    def static(self, interval_ns: int) -> TelemetryStatic:
        raise NotImplementedError

    def sample(self, *, t_ns: int, tick: int) -> TelemetrySample:
        self.asked.append((tick, t_ns))
        self.world.now += self.takes(tick)
        return TelemetrySample(t_ns=t_ns, devices=())

    def follow(self, roots: Sequence[int]) -> None:
        self.roots.append(tuple(roots))

    def close(self) -> None:
        return


class World:
    """Waits by jumping; hands out orders at their times."""

    def __init__(self, orders: Sequence[tuple[int, Orders]]) -> None:
        self.now = 1000
        self.orders = list(orders)

    def now_ns(self) -> int:
        return self.now

    def wait_until(self, deadline_ns: int) -> Orders:
        if self.orders and self.orders[0][0] <= deadline_ns:
            at, order = self.orders.pop(0)
            self.now = max(self.now, at)
            return order
        self.now = max(self.now, deadline_ns)
        return Orders()


def ticks(world: World, backend: Backend) -> list[tuple[int, int]]:
    emitted: list[TelemetrySample] = []
    run(backend, world, interval_ns=TICK, emit=emitted.append)
    assert [sample.t_ns for sample in emitted] == [t for _, t in backend.asked]
    return backend.asked


def test_ticks_keep_the_schedule_whatever_a_reading_takes() -> None:
    world = World([(1350, Orders(stop=True))])
    assert ticks(world, Backend(world)) == [(0, 1000), (1, 1100), (2, 1200), (3, 1300)]


def test_a_slow_reading_skips_ticks_and_their_numbers() -> None:
    world = World([(1650, Orders(stop=True))])
    backend = Backend(world, takes=lambda tick: 250 if tick == 1 else 10)
    assert ticks(world, backend) == [(0, 1000), (1, 1100), (4, 1400), (5, 1500), (6, 1600)]


def test_new_roots_are_followed_at_once_and_the_tick_stays_where_it_is() -> None:
    world = World([(1050, Orders(roots=(7, 8))), (1250, Orders(stop=True))])
    backend = Backend(world)
    assert ticks(world, backend) == [(0, 1000), (1, 1100), (2, 1200)]
    assert backend.roots == [(7, 8)]
