"""What the accelerator's samples say about one stretch of time, and whether they can be trusted there.

A window is a cell's steady part, an idle block or a cold start. Energy is the counter at the end minus the counter at the
start, each interpolated between its two neighbouring samples; power is energy over time, or the mean of the power
readings where there is no counter; utilization is the mean over time and devices, beside the device with the lowest one.
Readings stand for the time since the reading before them. What makes a number untrue makes it absent, with the reason: a
counter that ran backwards, readings more than 3 s apart, a device without readings. `notes` are worth knowing and change nothing. What makes a launch
worthless is in `disturbances`. Definitions and sources: docs/telemetry.md. Nothing is compared with another stack here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servegate_action.records import Absent, DeviceSample, MaybeInt, TelemetrySample, TelemetryStatic

LONGEST_GAP_NS = 3_000_000_000
CROSS_CHECK = 0.05
"""Largest relative difference between the energy counter and the integrated power readings that raises no note."""
SHORTEST_CROSS_CHECK_NS = 30_000_000_000
"""On A100 and H100 a power reading covers 25 % of the time (arXiv 2312.02741), so that shorter windows alias."""

POWER_CAP = 0x04
INSTANCE = "instance"

MaybeFloat = float | Absent
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TelemetryWindow:
    """All devices of the stack over one window. Power in W, memory in bytes (both summed), utilization in percent."""

    energy_mj: MaybeInt
    power_w: MaybeFloat
    utilization: MaybeFloat
    utilization_lowest: MaybeFloat
    memory_bytes: MaybeFloat
    power_capped_share: MaybeFloat
    samples: int
    notes: tuple[str, ...]


def boards_of(static: TelemetryStatic) -> frozenset[str]:
    """MIG boards that stand beside their instances: they carry power and energy, and do not compute."""
    return frozenset(device.uuid for device in static.devices if str(device.mig).startswith("board"))


def devices_of(static: TelemetryStatic, *, carry_power: bool) -> Iterator[str]:
    """Devices that carry power and energy (boards and whole GPUs), or that compute (instances and whole GPUs)."""
    boards = boards_of(static)
    for device in static.devices:
        if not boards or (device.mig != INSTANCE if carry_power else device.uuid not in boards):
            yield device.uuid


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, and the samples in it with one gap's length on either side."""

    start_ns: int
    end_ns: int
    static: TelemetryStatic
    around: Sequence[TelemetrySample]

    @staticmethod
    def of(static: TelemetryStatic, samples: Sequence[TelemetrySample], start_ns: int, end_ns: int) -> Span:
        """[start_ns, end_ns] of a launch's samples, which ascend in time."""
        first = bisect_left(samples, start_ns - LONGEST_GAP_NS, key=lambda sample: sample.t_ns)
        last = bisect_right(samples, end_ns + LONGEST_GAP_NS, key=lambda sample: sample.t_ns)
        return Span(start_ns, end_ns, static, samples[first:last])

    @property
    def inside(self) -> Sequence[TelemetrySample]:
        return [sample for sample in self.around if self.start_ns <= sample.t_ns <= self.end_ns]

    @property
    def reasons(self) -> Sequence[tuple[str, int]]:
        """Each reading of why the clocks are held down, with its device."""
        return [
            (device.uuid, device.throttle_reasons)
            for sample in self.inside
            for device in sample.devices
            if device.throttle_reasons is not None
        ]

    @property
    def process_lists(self) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Each list of host pids, with its device."""
        return [
            (device.uuid, device.process_ids)
            for sample in self.inside
            for device in sample.devices
            if device.process_ids is not None
        ]

    def readings(self, uuid: str, of: Callable[[DeviceSample], float | None]) -> tuple[Int64, Float64]:
        """(times in ns, values) of one counter of one device, shapes (n,), (n,)."""
        found = [
            (sample.t_ns, value)
            for sample in self.around
            for device in sample.devices
            if device.uuid == uuid and (value := of(device)) is not None
        ]
        return np.array([t for t, _ in found], dtype=np.int64), np.array([v for _, v in found], dtype=np.float64)

    def uncovered(self, times: Int64) -> str | None:
        """Why readings at these times do not cover the window; None when no stretch of 3 s is without one."""
        if not times.size:
            return "no reading"
        longest = self.longest_gap_ns(times)
        return f"a gap of {longest / 1e9:.1f} s between two readings" if longest > LONGEST_GAP_NS else None

    def longest_gap_ns(self, times: Int64) -> int:
        """The longest stretch of the span without a reading; all of it when there is none."""
        edges = np.concatenate(([self.start_ns], np.clip(times, self.start_ns, self.end_ns), [self.end_ns]))
        return int(np.diff(np.sort(edges)).max())


def window(
    static: TelemetryStatic | Absent, samples: Sequence[TelemetrySample], *, start_ns: int, end_ns: int
) -> TelemetryWindow:
    """Read one window [start_ns, end_ns] out of a launch's samples (ascending in time)."""
    if isinstance(static, Absent):
        return nothing_seen(static)
    if end_ns <= start_ns:
        return nothing_seen(Absent(absent="the window has no length"))
    span = Span.of(static, samples, start_ns, end_ns)
    if not span.inside:
        return nothing_seen(Absent(absent=f"no sample in the {(end_ns - start_ns) / 1e9:.1f} s of the window"))
    energy, mean_mw = _energy(span), _mean_power(span)
    utilization, lowest = _utilization(span)
    return TelemetryWindow(
        energy_mj=energy,
        power_w=_power(energy, mean_mw, end_ns - start_ns),
        utilization=utilization,
        utilization_lowest=lowest,
        memory_bytes=_memory(span),
        power_capped_share=_capped(span),
        samples=len(span.inside),
        notes=(*_cross_check(span, energy, mean_mw), *_errors(span)),
    )


def nothing_seen(reason: Absent) -> TelemetryWindow:
    """A window of which nothing is known."""
    return TelemetryWindow(reason, reason, reason, reason, reason, reason, 0, ())


# ---------------------------------------------------------------- numbers


def _energy(span: Span) -> MaybeInt:
    """Σ over devices of counter(end) − counter(start), in mJ."""
    if isinstance(span.static.energy_counter, Absent):
        return span.static.energy_counter
    total = 0.0
    for uuid in devices_of(span.static, carry_power=True):
        times, values = span.readings(uuid, lambda device: device.energy_mj)
        why = span.uncovered(times) or _edges(span, times) or _backwards(values)
        if why is not None:
            return Absent(absent=f"energy of {uuid}: {why}")
        start, end = np.interp([span.start_ns, span.end_ns], times, values)
        total += float(end - start)
    return round(total)


def _edges(span: Span, times: Int64) -> str | None:
    """The counter has to be known on both sides of the window, not only inside of it."""
    if times[0] > span.start_ns:
        return "no reading before the window's start"
    return "no reading after the window's end" if times[-1] < span.end_ns else None


def _backwards(values: Float64) -> str | None:
    return (
        "the counter ran backwards: the driver was reloaded or the GPU reset" if np.any(np.diff(values) < 0) else None
    )


def _mean_power(span: Span) -> MaybeFloat:
    """Σ over devices of the mean power reading, in mW."""
    if isinstance(span.static.power_counter, Absent):
        return span.static.power_counter
    return _sum_of_means(span, list(devices_of(span.static, carry_power=True)), lambda device: device.power_mw, "power")


def _power(energy: MaybeInt, mean_mw: MaybeFloat, length_ns: int) -> MaybeFloat:
    """W: the counter's energy over time, else the mean of the readings."""
    if not isinstance(energy, Absent):
        return energy / 1e3 / (length_ns / 1e9)
    if isinstance(mean_mw, Absent):
        return energy if energy == mean_mw else Absent(absent=f"{energy.absent}; {mean_mw.absent}")
    return mean_mw / 1000.0


def _utilization(span: Span) -> tuple[MaybeFloat, MaybeFloat]:
    """(mean over the devices, that of the device with the lowest mean) in percent."""
    if isinstance(span.static.utilization_counter, Absent):
        return span.static.utilization_counter, span.static.utilization_counter
    means: list[float] = []
    for uuid in devices_of(span.static, carry_power=False):
        mean = _mean(span, uuid, lambda device: device.utilization_percent, "utilization")
        if isinstance(mean, Absent):
            return mean, mean
        means.append(mean)
    return sum(means) / len(means), min(means)


def _sum_of_means(
    span: Span, uuids: Sequence[str], of: Callable[[DeviceSample], float | None], what: str
) -> MaybeFloat:
    total = 0.0
    for uuid in uuids:
        mean = _mean(span, uuid, of, what)
        if isinstance(mean, Absent):
            return mean
        total += mean
    return total


def _mean(span: Span, uuid: str, of: Callable[[DeviceSample], float | None], what: str) -> MaybeFloat:
    """Mean over time: each reading weighs as much as the time since the one before it, as far as it is in the window.

    The stretch after the last reading belongs to that reading.
    """
    times, values = span.readings(uuid, of)
    why = span.uncovered(times)
    if why is not None:
        return Absent(absent=f"{what} of {uuid}: {why}")
    edges = np.clip(np.concatenate(([span.start_ns], times)), span.start_ns, span.end_ns)
    weights = np.diff(edges).astype(np.float64)
    weights[-1] += span.end_ns - edges[-1]
    return float(np.average(values, weights=weights))


def _memory(span: Span) -> MaybeFloat:
    """The largest sum over the devices at one moment, in bytes."""
    if isinstance(span.static.memory_counter, Absent):
        return span.static.memory_counter
    uuids = set(devices_of(span.static, carry_power=False))
    sums = [
        sum(known)
        for sample in span.inside
        if len(known := [d.memory_bytes for d in sample.devices if d.uuid in uuids and d.memory_bytes is not None])
        == len(uuids)
    ]
    if not sums:
        return Absent(absent="memory was not read on all devices at one moment")
    return float(max(sums)) or Absent(absent="no process of the stack was in sight")


def _capped(span: Span) -> MaybeFloat:
    """Share of readings in which the power limit held the clocks down: normal under load, worth showing."""
    if isinstance(span.static.throttle_counter, Absent):
        return span.static.throttle_counter
    reasons = span.reasons
    if not reasons:
        return Absent(absent="the reasons of the clocks were not read")
    return sum(1 for _, bits in reasons if bits & POWER_CAP) / len(reasons)


# ---------------------------------------------------------------- notes


def _cross_check(span: Span, energy: MaybeInt, mean_mw: MaybeFloat) -> tuple[str, ...]:
    """Counter against integrated power. RAPL power is the counter's own difference, so that only GPUs are checked."""
    length_ns = span.end_ns - span.start_ns
    if span.static.backend == "cpu" or length_ns < SHORTEST_CROSS_CHECK_NS:
        return ()
    if isinstance(energy, Absent) or isinstance(mean_mw, Absent) or energy == 0:
        return ()
    integrated = mean_mw * length_ns / 1e9
    apart = integrated / energy - 1.0
    if abs(apart) <= CROSS_CHECK:
        return ()
    joules = f"({energy / 1000:.0f} J and {integrated / 1000:.0f} J)"
    return (f"the energy counter and the power readings are {apart:+.1%} apart {joules}",)


def _errors(span: Span) -> tuple[str, ...]:
    """What could not be read, each message once."""
    return tuple(dict.fromkeys(sample.error for sample in span.inside if sample.error is not None))
