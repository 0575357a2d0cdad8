"""Scale-to-zero is real or it is not: what a watched accelerator gives back, on a clock of our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from servegate_action.records import Absent, DeviceSample, Release, TelemetrySample
from servegate_action.telemetry.release import Monotonic, ReleaseProbes, watch

S = 1_000_000_000
MIB = 2**20
FLOOR = TelemetrySample(t_ns=0, devices=(DeviceSample(uuid="GPU-a", power_mw=70_000, memory_bytes=500 * MIB),))
START = 1000 * S


class Clock:
    """Time passes when it is waited for."""

    def __init__(self) -> None:
        self.now = START

    def now_ns(self) -> int:
        return self.now

    def wait(self, nanoseconds: int) -> None:
        self.now += nanoseconds


@dataclass(frozen=True, slots=True)
class World:
    """What is seen at a number of seconds after the trigger."""

    gone: Callable[[float], bool] = lambda _: True
    open: Callable[[float], bool] = lambda _: False
    memory: Callable[[float], int | None] = lambda _: 500 * MIB
    power: Callable[[float], int | None] = lambda _: 70_000
    age_s: float = 0.1
    floor: TelemetrySample = FLOOR
    devices: tuple[str, ...] = ("GPU-a",)

    def watch(self) -> Release:
        clock = Clock()

        def seconds() -> float:
            return (clock.now - START) / S

        def sample() -> TelemetrySample:
            device = DeviceSample(uuid="GPU-a", power_mw=self.power(seconds()), memory_bytes=self.memory(seconds()))
            return TelemetrySample(t_ns=clock.now - round(self.age_s * S), devices=(device,))

        return watch(
            trigger="stop",
            floor=self.floor,
            clock=clock,
            probes=ReleaseProbes(
                process_gone=lambda: self.gone(seconds()),
                port_open=lambda: self.open(seconds()),
                devices=self.devices,
                sample=sample,
            ),
        )


def test_a_stack_that_gives_everything_back_at_once_is_real() -> None:
    found = World().watch()
    assert found.real
    assert (found.process_gone, found.port_closed, found.memory_released, found.power_released) == (True,) * 4
    assert found.waited_ns == 0
    assert found.reason == "everything was given back 0.0 s after the stop, and stayed so for 10 s"


def test_it_may_take_up_to_thirty_seconds() -> None:
    found = World(power=lambda t: 70_000 if t >= 30 else 200_000).watch()
    assert (found.real, found.waited_ns) == (True, 30 * S)


def test_after_thirty_seconds_it_is_not_real() -> None:
    found = World(power=lambda t: 70_000 if t >= 31 else 200_000).watch()
    assert not found.real
    assert found.reason == "30 s after the stop: power of GPU-a is 200.0 W, with 70.0 W before the launch"


def test_it_must_stay_released_for_ten_seconds() -> None:
    found = World(memory=lambda t: 40_000 * MIB if t == 9.5 else 500 * MIB).watch()
    assert (found.real, found.waited_ns) == (True, round(9.75 * S))


def test_a_stack_that_comes_back_again_and_again_is_not_real() -> None:
    found = World(gone=lambda t: t % 8 > 1).watch()
    assert not found.real


@pytest.mark.parametrize(
    "world,words",
    [
        (World(gone=lambda _: False), "its processes are still there"),
        (World(open=lambda _: True), "its port still accepts connections"),
        (World(memory=lambda _: 565 * MIB), "memory of GPU-a is 565 MiB, with 500 MiB before the launch"),
        (World(power=lambda _: 75_001), "power of GPU-a is 75.0 W, with 70.0 W before the launch"),
    ],
)
def test_one_thing_kept_is_enough_to_be_not_real(world: World, words: str) -> None:
    found = world.watch()
    assert not found.real
    assert words in found.reason


def test_sixty_four_mebibytes_and_five_watts_are_borne() -> None:
    assert World(memory=lambda _: 564 * MIB, power=lambda _: 75_000).watch().real


def test_five_percent_are_borne_where_they_are_more_than_five_watts() -> None:
    hot = TelemetrySample(t_ns=0, devices=(DeviceSample(uuid="GPU-a", power_mw=200_000, memory_bytes=500 * MIB),))
    assert World(floor=hot, power=lambda _: 210_000).watch().real
    assert not World(floor=hot, power=lambda _: 210_001).watch().real


def test_power_that_cannot_be_read_is_absent_and_memory_decides() -> None:
    bare = TelemetrySample(t_ns=0, devices=(DeviceSample(uuid="GPU-a", memory_bytes=500 * MIB),))
    found = World(floor=bare, power=lambda _: None).watch()
    assert found.real
    assert found.power_released == Absent(absent="the floor before the launch has no power reading")
    assert "power was not seen" in found.reason


def test_without_a_memory_reading_nothing_is_called_real() -> None:
    found = World(memory=lambda _: None).watch()
    assert not found.real
    assert found.memory_released == Absent(absent="no fresh memory reading of GPU-a")


def test_old_samples_prove_nothing() -> None:
    found = World(age_s=3.0).watch()
    assert not found.real
    assert "no fresh memory reading of GPU-a" in found.reason


def test_a_floor_without_devices_proves_nothing() -> None:
    found = World(floor=TelemetrySample(t_ns=0, devices=())).watch()
    assert not found.real
    assert "the floor before the launch has no memory reading" in found.reason


def test_what_is_on_the_other_stacks_gpu_is_not_this_ones_to_give_back() -> None:
    other = DeviceSample(uuid="GPU-b", power_mw=70_000, memory_bytes=500 * MIB)
    both = FLOOR.model_copy(update={"devices": (*FLOOR.devices, other)})
    assert World(floor=both).watch().real
    kept = World(floor=both, devices=("GPU-a", "GPU-b")).watch()
    assert not kept.real
    assert "no fresh memory reading of GPU-b" in kept.reason


def test_a_device_that_the_floor_lacks_proves_nothing() -> None:
    found = World(devices=("GPU-a", "GPU-b")).watch()
    assert not found.real
    assert found.memory_released == Absent(absent="the floor before the launch has no memory reading")


def test_the_real_clock_moves() -> None:
    clock = Monotonic()
    before = clock.now_ns()
    clock.wait(1_000_000)
    assert clock.now_ns() - before >= 1_000_000
