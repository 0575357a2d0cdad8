"""Did a stopped (or idle) stack give everything back? Watched, not believed.

Released means: within 30 s of the trigger, and from then on for 10 s on end, the process tree is gone, the port is
closed, memory is at most M0 + 64 MiB and power at most P0 + max(5 W, 5 %) on every device, where M0 and P0 are the
floor before any launch. A counter that cannot be read is absent with the reason; without a memory reading nothing
is called real, because a process that is gone proves nothing about the accelerator (NVML's process lists may be empty).
It refuses to stop anything: the caller does that, or the engine's own idle timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from servegate_action.records import Absent, DeviceSample, Release, TelemetrySample

Trigger = Literal["stop", "idle timeout"]

WITHIN_NS = 30_000_000_000
HOLD_NS = 10_000_000_000
POLL_NS = 250_000_000
MEMORY_SLACK_BYTES = 64 * 2**20
POWER_SLACK_MW, POWER_SLACK_SHARE = 5_000, 0.05
STALE_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class ReleaseProbes:
    """How to look at what should be gone: the process tree, the port, the stack's own devices (their latest sample)."""

    process_gone: Callable[[], bool]
    port_open: Callable[[], bool]
    devices: Sequence[str]
    sample: Callable[[], TelemetrySample | None]


class Clock(Protocol):
    """Time, and letting it pass."""

    def now_ns(self) -> int:
        """The clock of the samples."""

    def wait(self, nanoseconds: int) -> None:
        """Let time pass."""


class Monotonic:
    """CLOCK_MONOTONIC."""

    def now_ns(self) -> int:
        """The clock of the samples."""
        return time.monotonic_ns()

    def wait(self, nanoseconds: int) -> None:
        """Let time pass."""
        time.sleep(nanoseconds / 1e9)


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at all four conditions."""

    process_gone: bool
    port_closed: bool
    memory: bool | Absent
    power: bool | Absent
    why_not: tuple[str, ...]


def watch(*, trigger: Trigger, floor: TelemetrySample, probes: ReleaseProbes, clock: Clock | None = None) -> Release:
    """Look four times a second until everything has been released for 10 s on end, or 30 s have passed in vain."""
    clock = clock or Monotonic()
    floor = _of_devices(floor, probes.devices)
    start = clock.now_ns()
    since: int | None = None
    while True:
        now = clock.now_ns()
        look = _look(floor, probes, now)
        if not _released(look):
            since = None
        elif since is None:
            since = now
        if since is not None and now - since >= HOLD_NS:
            return _verdict(trigger, look, waited_ns=since - start, real=True)
        if since is None and now - start > WITHIN_NS:
            return _verdict(trigger, look, waited_ns=now - start, real=False)
        clock.wait(POLL_NS)


def _of_devices(floor: TelemetrySample, uuids: Sequence[str]) -> TelemetrySample:
    """What is on the other stack's devices is not this one's to give back. One that the floor lacks was not read."""
    known = {device.uuid: device for device in floor.devices}
    own = tuple(known.get(uuid, DeviceSample(uuid=uuid)) for uuid in uuids)
    return floor.model_copy(update={"devices": own})


def _released(look: _Look) -> bool:
    return look.process_gone and look.port_closed and look.memory is True and look.power is not False


def _verdict(trigger: Trigger, look: _Look, *, waited_ns: int, real: bool) -> Release:
    seconds = waited_ns / 1e9
    if real:
        reason = (
            f"everything was given back {seconds:.1f} s after the {trigger}, and stayed so for {HOLD_NS / 1e9:.0f} s"
        )
        unseen = [value.absent for value in (look.power,) if isinstance(value, Absent)]
        reason += f" (power was not seen: {unseen[0]})" if unseen else ""
    else:
        reason = f"{seconds:.0f} s after the {trigger}: {'; '.join(look.why_not)}"
    return Release(
        trigger=trigger,
        waited_ns=waited_ns,
        process_gone=look.process_gone,
        port_closed=look.port_closed,
        memory_released=look.memory,
        power_released=look.power,
        real=real,
        reason=reason,
    )


def _look(floor: TelemetrySample, probes: ReleaseProbes, now_ns: int) -> _Look:
    gone, closed = probes.process_gone(), not probes.port_open()
    sample = probes.sample()
    if sample is not None and now_ns - sample.t_ns > STALE_NS:
        sample = None
    memory, memory_why = _compare(floor, sample, "memory_bytes", _memory_limit)
    power, power_why = _compare(floor, sample, "power_mw", _power_limit)
    why = [] if gone else ["its processes are still there"]
    why += [] if closed else ["its port still accepts connections"]
    return _Look(gone, closed, memory, power, (*why, *memory_why, *power_why))


def _memory_limit(bare: int) -> int:
    return bare + MEMORY_SLACK_BYTES


def _power_limit(bare: int) -> int:
    return bare + max(POWER_SLACK_MW, round(POWER_SLACK_SHARE * bare))


def _compare(
    floor: TelemetrySample, sample: TelemetrySample | None, counter: str, limit: Callable[[int], int]
) -> tuple[bool | Absent, tuple[str, ...]]:
    """Whether every device is back at its floor, else which one is not and by how much."""
    name = counter.rpartition("_")[0]
    bare = {device.uuid: _value(device, counter) for device in floor.devices}
    if not bare or None in bare.values():
        absent = f"the floor before the launch has no {name} reading"
        return Absent(absent=absent), (absent,) if name == "memory" else ()
    now = {} if sample is None else {device.uuid: _value(device, counter) for device in sample.devices}
    high: list[str] = []
    for uuid, before in bare.items():
        value = now.get(uuid)
        if value is None:
            absent = f"no fresh {name} reading of {uuid}"
            return Absent(absent=absent), (absent,) if name == "memory" else ()
        if before is not None and value > limit(before):
            high.append(f"{name} of {uuid} is {_text(value, counter)}, with {_text(before, counter)} before the launch")
    return not high, tuple(high)


def _value(device: DeviceSample, counter: str) -> int | None:
    return device.memory_bytes if counter == "memory_bytes" else device.power_mw


def _text(value: int, counter: str) -> str:
    return f"{value / 2**20:.0f} MiB" if counter == "memory_bytes" else f"{value / 1000:.1f} W"
