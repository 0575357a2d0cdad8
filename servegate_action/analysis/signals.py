"""What the accelerator said during one launch: utilization by cell, power by state, and what spoils the launch.

One launch has three states that cost differently (loading, ready but idle, serving), and each is a window of telemetry.
Windows are read by `telemetry_window`; here they are put to the launch's own moments. Nothing is compared or decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servegate_action.analysis.disturbances import disturbances
from servegate_action.analysis.metrics import LaunchData, LaunchMetrics, MaybeFloat
from servegate_action.analysis.telemetry_window import (
    TelemetryWindow,
    boards_of,
    devices_of,
    nothing_seen,
    window,
)
from servegate_action.analysis.tenants import tenants
from servegate_action.records import Absent, DeviceSample, LaunchRecord, TelemetrySample, TelemetryStatic

# Less than a CUDA context with nothing in it, more than what a driver moves by itself.
USED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class LaunchSignals:
    """Utilization in percent; power in W and energy in J of all the stack's accelerators together.

    `spoiled`: what makes the launch worthless. `unwatched`: where nobody would have seen it. `unread`: what would spoil it
    and was never read, from the first cell to the last.
    """

    utilization: Mapping[str, MaybeFloat]
    utilization_lowest: Mapping[str, MaybeFloat]
    busy_power_w: Mapping[str, MaybeFloat]
    idle_power_w: MaybeFloat
    loading_power_w: MaybeFloat
    loading_energy_j: MaybeFloat
    memory_bytes: MaybeFloat
    power_capped_share: MaybeFloat
    spoiled: tuple[str, ...]
    unwatched: tuple[str, ...]
    unread: tuple[str, ...]
    gpus: GpuUse
    notes: tuple[str, ...]


def bare_power_w(floor: TelemetrySample | None, telemetry: Sequence[TelemetryStatic | Absent]) -> MaybeFloat:
    """P0 of one stack: power of its own accelerators, by its launches, before any launch; in W."""
    seen = [static for static in telemetry if not isinstance(static, Absent)]
    known = {} if floor is None else {device.uuid: device.power_mw for device in floor.devices}
    own = [known.get(uuid) for uuid in {uuid for static in seen for uuid in devices_of(static, carry_power=True)}]
    readings = [power for power in own if power is not None]
    if not readings or len(readings) < len(own):
        return Absent(absent="the bare power before the first launch was not read")
    return sum(readings) / 1000.0


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Which GPUs one launch used. UUIDs, except `used`: on how many of the watched ones memory rose.

    `unread`: nothing tells of one of them. `undeclared`: GPUs that are not the stack's, and its process was there. `untold`:
    such GPUs on which something happened, or that could not be read, and nobody can say whose doing it was.
    """

    used: int
    unread: bool
    undeclared: tuple[str, ...]
    untold: tuple[str, ...]


def gpu_use(record: LaunchRecord, data: LaunchData, floor: TelemetrySample | None) -> GpuUse:
    """Who used what, from the request to start on. Memory above the bare floor, and processes that were not there before."""
    start = record.cold_start.requested_ns if record.cold_start is not None else 0
    samples = [sample for sample in data.samples if sample.t_ns >= start]
    bare = {} if floor is None else {device.uuid: device for device in (*floor.devices, *(floor.others or ()))}
    seen = [_used(_presence([one.devices for one in samples], uuid, bare)) for uuid in _watched(data, samples)]
    told = {pid for sample in samples for pid in sample.stack_processes or ()}
    beside = [_presence([one.others or () for one in samples], uuid, bare) for uuid in _beside(samples)]
    known = told | {pid for sample in samples for device in sample.devices for pid in device.process_ids or ()}
    undeclared = tuple(one.uuid for one in beside if one.came & known)
    return GpuUse(
        used=sum(one is True for one in seen),
        unread=not seen or None in seen,
        undeclared=undeclared,
        untold=tuple(
            one.uuid
            for one in beside
            if one.uuid not in undeclared and one.rose is not False and not (told and one.listed)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Presence:
    """One GPU during a launch. `rose`: its memory did; None where it was not read. `came`: processes not there before."""

    uuid: str
    rose: bool | None
    listed: bool
    came: frozenset[int]


def _presence(moments: Sequence[Sequence[DeviceSample]], uuid: str, bare: Mapping[str, DeviceSample]) -> _Presence:
    own = [device for devices in moments for device in devices if device.uuid == uuid]
    memory = [device.memory_bytes for device in own if device.memory_bytes is not None]
    listed = {pid for device in own for pid in device.process_ids or ()}
    before = bare.get(uuid, DeviceSample(uuid=uuid))
    rose = max(memory) - before.memory_bytes > USED_BYTES if memory and before.memory_bytes is not None else None
    return _Presence(uuid, rose, bool(listed), frozenset(listed) - frozenset(before.process_ids or ()))


def _used(one: _Presence) -> bool | None:
    """By its memory; where that was not read, by a process that came. No process proves nothing: lists may be empty."""
    return one.rose if one.rose is not None else True if one.came else None


def _watched(data: LaunchData, samples: Sequence[TelemetrySample]) -> list[str]:
    """The devices that compute: a MIG board carries power, and no memory of its own."""
    boards = frozenset() if isinstance(data.telemetry, Absent) else boards_of(data.telemetry)
    found = dict.fromkeys(device.uuid for sample in samples for device in sample.devices)
    return [uuid for uuid in found if uuid not in boards]


def _beside(samples: Sequence[TelemetrySample]) -> list[str]:
    return list(dict.fromkeys(device.uuid for sample in samples for device in sample.others or ()))


def launch_signals(record: LaunchRecord, data: LaunchData, floor: TelemetrySample | None) -> LaunchSignals:
    """The windows of one launch: before it, cold start, idle block, and the steady part of each cell."""
    loading, gpus, found = _loading(record, data), gpu_use(record, data, floor), disturbances(record, data)
    cells = {run.cell: _read(data, run.steady_start_ns, run.steady_end_ns) for run in record.cells}
    nothing = Absent(absent="no cell was measured")
    return LaunchSignals(
        utilization={name: one.utilization for name, one in cells.items()},
        utilization_lowest={name: one.utilization_lowest for name, one in cells.items()},
        busy_power_w={name: one.power_w for name, one in cells.items()},
        idle_power_w=_idle_power(record, data),
        loading_power_w=loading.power_w,
        loading_energy_j=loading.energy_mj if isinstance(loading.energy_mj, Absent) else loading.energy_mj / 1000.0,
        memory_bytes=_largest([one.memory_bytes for one in cells.values()]) if cells else nothing,
        power_capped_share=_largest([one.power_capped_share for one in cells.values()]) if cells else nothing,
        spoiled=(*_occupied(record, data, floor), *found.spoiled),
        unwatched=found.unwatched,
        unread=found.unread,
        gpus=gpus,
        notes=(
            *dict.fromkeys(text for one in cells.values() for text in one.notes),
            *_untold(record, gpus),
            *found.notes,
        ),
    )


def _read(data: LaunchData, start_ns: int, end_ns: int) -> TelemetryWindow:
    return window(data.telemetry, data.samples, start_ns=start_ns, end_ns=end_ns)


def _untold(record: LaunchRecord, gpus: GpuUse) -> list[str]:
    return [
        f"whether the {record.side} used {uuid}, which it is not declared to hold, cannot be told"
        for uuid in gpus.untold
    ]


def _idle_power(record: LaunchRecord, data: LaunchData) -> MaybeFloat:
    if record.idle is None:
        return Absent(absent="the idle block was not run")
    return _read(data, record.idle.started_ns, record.idle.ended_ns).power_w


def _loading(record: LaunchRecord, data: LaunchData) -> TelemetryWindow:
    """From the request to start to the first token."""
    start = record.cold_start
    if start is None or isinstance(start.first_token_ns, Absent):
        return nothing_seen(Absent(absent="the cold start was not observed"))
    return _read(data, start.requested_ns, start.first_token_ns)


def _occupied(record: LaunchRecord, data: LaunchData, floor: TelemetrySample | None) -> tuple[str, ...]:
    """What was on the accelerators right before the launch. Nobody knows of a stack that was already running."""
    start = record.cold_start
    if floor is None or start is None or isinstance(start.process_up_ns, Absent):
        return ()
    before = [sample for sample in data.samples if sample.t_ns <= start.requested_ns]
    return tenants(before[-1], bare=floor) if before else ()


def _largest(values: list[MaybeFloat]) -> MaybeFloat:
    known = [value for value in values if not isinstance(value, Absent)]
    return max(known) if known else values[0]


def busy_power_w(metrics: LaunchMetrics, signals: LaunchSignals) -> MaybeFloat:
    """Power while serving as the mix draws it: each cell by its share of the mix's serving time."""
    return _weighted(signals.busy_power_w, metrics.mix.time_shares())


def _weighted(values: Mapping[str, MaybeFloat], shares: Mapping[str, float] | Absent) -> MaybeFloat:
    if isinstance(shares, Absent):
        return shares
    total = 0.0
    for name, share in shares.items():
        value = values[name]
        if isinstance(value, Absent):
            return Absent(absent=f"{name}: {value.absent}")
        total += share * value
    return total
