"""Which GPUs there are: by UUID, never by index; MIG instances, and the board that carries their power.

Power and energy of a MIG instance belong to the whole board. When the instances listed fill the board (their slices add
up to as many as it can have), the board joins as one more device; unallocated and hidden instances cannot be told apart,
so anything less proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pynvml

from servegate_action.errors import TelemetryUnavailable
from servegate_action.records import Absent, DeviceStatic, MaybeInt, MaybeStr
from servegate_action.telemetry.nvml_calls import attempt, instances, mig_enabled, total_memory
from servegate_action.telemetry.nvml_errors import HOW_TO_GIVE_A_GPU, NOT_FOUND, Failure, Fate, lost


@dataclass(slots=True)
class Device:
    """One GPU, MIG instance or MIG board, the calls that still make sense on it, and from which tick on each is due."""

    uuid: str
    handle: Any
    kind: str  # "gpu", "instance", "board", "other"
    board: Any = None
    reads: dict[str, Callable[[], Any]] = field(default_factory=dict)
    counters: dict[str, MaybeStr] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    gone: bool = False


def find(uuids: Sequence[str]) -> list[Device]:
    """The devices asked for (all that are visible when none is), then the boards that are wholly theirs."""
    found: list[Device] = []
    for uuid in uuids or visible():
        handle = attempt(pynvml.nvmlDeviceGetHandleByUUID, uuid.encode())
        if isinstance(handle, Failure):
            if handle.fate is Fate.LOST:
                raise lost(uuid, handle)
            raise _unknown(uuid, handle)
        found.append(_device(uuid, handle))
    if not found:
        raise TelemetryUnavailable(
            "NVML works, but shows no GPU",
            why="this container was given the driver library without a device",
            next_step=HOW_TO_GIVE_A_GPU,
        )
    return found + _boards(found)


def visible() -> tuple[str, ...]:
    """UUIDs of every GPU that NVML shows, MIG-enabled ones as their instances."""
    uuids: list[str] = []
    count = attempt(pynvml.nvmlDeviceGetCount)
    for index in range(0 if isinstance(count, Failure) else count):
        handle = attempt(pynvml.nvmlDeviceGetHandleByIndex, index)
        if isinstance(handle, Failure):
            if handle.fate is Fate.LOST:
                raise lost(f"number {index}", handle)
            continue
        parts = instances(handle) if mig_enabled(handle) else ()
        for one in parts or (handle,):
            uuid = attempt(pynvml.nvmlDeviceGetUUID, one)
            if not isinstance(uuid, Failure):
                uuids.append(uuid)
    return tuple(uuids)


def others(own: Sequence[Device]) -> list[Device]:
    """Every visible GPU or instance that is none of these, and no part or whole of one. A lost one is passed over."""
    taken = {device.uuid for device in own}
    for device in own:
        taken |= {uuid for handle in (device.handle, device.board) if handle is not None and (uuid := _uuid(handle))}
    found: list[Device] = []
    count = attempt(pynvml.nvmlDeviceGetCount)
    for index in range(0 if isinstance(count, Failure) else count):
        board = attempt(pynvml.nvmlDeviceGetHandleByIndex, index)
        if isinstance(board, Failure):
            continue
        parts = instances(board) if mig_enabled(board) else ()
        whole = any(device.kind == "gpu" and _uuid(device.handle) == _uuid(board) for device in own)
        for one in () if whole else parts or (board,):
            uuid = _uuid(one)
            if uuid is not None and uuid not in taken:
                found.append(Device(uuid=uuid, handle=one, kind="other"))
    return found


def _uuid(handle: Any) -> str | None:  # noqa: ANN401 - pynvml has no types
    uuid = attempt(pynvml.nvmlDeviceGetUUID, handle)
    return None if isinstance(uuid, Failure) else str(uuid)


def _unknown(uuid: str, failure: Failure) -> TelemetryUnavailable:
    if failure.code != NOT_FOUND:
        return TelemetryUnavailable(f"GPU {uuid} cannot be opened: {failure.text} (NVML error {failure.code})")
    return TelemetryUnavailable(
        f"there is no GPU {uuid} here",
        why=f"visible from here: {', '.join(visible()) or 'none'}",
        next_step="correct gpu_uuids in the configuration (`nvidia-smi -L` lists them)",
    )


def _device(uuid: str, handle: Any) -> Device:  # noqa: ANN401 - pynvml has no types
    if not uuid.startswith("MIG-"):
        return Device(uuid=uuid, handle=handle, kind="gpu")
    board = attempt(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
    return Device(uuid=uuid, handle=handle, kind="instance", board=None if isinstance(board, Failure) else board)


def _boards(devices: Sequence[Device]) -> list[Device]:
    """Boards whose instances are all ours: their slices add up to as many as the board can have."""
    slices: dict[str, int] = {}
    handles: dict[str, Any] = {}
    for device in devices:
        if device.board is None:
            continue
        uuid = attempt(pynvml.nvmlDeviceGetUUID, device.board)
        attributes = attempt(pynvml.nvmlDeviceGetAttributes_v2, device.handle)
        if isinstance(uuid, Failure) or isinstance(attributes, Failure):
            continue
        slices[uuid] = slices.get(uuid, 0) + int(attributes.gpuInstanceSliceCount)
        handles[uuid] = device.board
    whole: list[Device] = []
    for uuid, handle in handles.items():
        most = attempt(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)
        if not isinstance(most, Failure) and slices[uuid] >= most > 0:
            whole.append(Device(uuid=uuid, handle=handle, kind="board"))
    return whole


def describe(device: Device) -> DeviceStatic:
    """What does not change about one device."""
    handle = device.handle

    def number(name: str, call: Callable[[], int]) -> MaybeInt:
        value = attempt(call)
        return Absent(absent=value.about(name)) if isinstance(value, Failure) else int(value)

    name = attempt(pynvml.nvmlDeviceGetName, handle)
    ecc = attempt(lambda: pynvml.nvmlDeviceGetEccMode(handle)[0])
    mig: MaybeStr = {"instance": "instance", "board": "board of all instances"}.get(device.kind) or (
        "enabled" if mig_enabled(handle) else "disabled"
    )
    return DeviceStatic(
        uuid=device.uuid,
        name="unknown" if isinstance(name, Failure) else name,
        memory_bytes=number("nvmlDeviceGetMemoryInfo", lambda: total_memory(handle)),
        power_limit_mw=number(
            "nvmlDeviceGetEnforcedPowerLimit", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
        ),
        max_sm_clock_mhz=number(
            "nvmlDeviceGetMaxClockInfo", lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
        ),
        mig=mig,
        ecc=Absent(absent=ecc.about("nvmlDeviceGetEccMode")) if isinstance(ecc, Failure) else ("on" if ecc else "off"),
    )
