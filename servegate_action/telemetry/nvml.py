"""NVIDIA GPUs through NVML: devices found by UUID, every counter optional, with the reason where it is missing.

Which counters exist is tried once when the backend is opened. Energy is the board's own counter (mJ since the driver was
loaded); power is field 186 (`NVML_FI_DEV_POWER_INSTANT`) where there is one, else `nvmlDeviceGetPowerUsage`, which some
GPUs average over a second; utilization is GPM's SM_UTIL on Hopper and newer when *every* device has it, else
`nvmlDeviceGetUtilizationRates().gpu`. Memory is the v2 call, because v1's `used` contains the driver's reserve.
Process ids are those of the host, even inside a container: they are never compared with ids of another namespace.

GPUs that are visible and were not asked for are looked at, too, memory and processes only: a stack may take more than it
is declared to hold. Who uses them is thought's business; one of them that is lost ends nothing. The stack's
own processes are written beside them only where this process sees the pids of the host.

On MIG, power and energy belong to the whole board: they are absent unless the instances listed fill the board, in which
case the board is one more device that carries them. This module refuses to change any setting of a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pynvml

from servegate_action.errors import AcceleratorLost
from servegate_action.records import Absent, DeviceSample, MaybeStr, TelemetrySample, TelemetryStatic
from servegate_action.telemetry.nvml_calls import attempt, field_milliwatts, process_ids, uncorrected_errors
from servegate_action.telemetry.nvml_devices import Device, describe, find, others
from servegate_action.telemetry.nvml_errors import Failure, Fate, lost, unavailable
from servegate_action.telemetry.nvml_gpm import Gpm

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
POWER_INSTANT = "NVML_FI_DEV_POWER_INSTANT (field 186)"
POWER_USAGE = "nvmlDeviceGetPowerUsage"
UTILIZATION_RATES = "nvmlDeviceGetUtilizationRates().gpu (share of time in which any kernel ran)"
UTILIZATION_GPM = "nvmlGpmMetricsGet SM_UTIL (share of SMs busy)"
MEMORY = "nvmlDeviceGetMemoryInfo v2"
MEMORY_V1 = "nvmlDeviceGetMemoryInfo v1 (used contains the driver's reserve)"
REASONS = "nvmlDeviceGetCurrentClocksEventReasons"
REASONS_OLD = "nvmlDeviceGetCurrentClocksThrottleReasons"
CLOCK = "nvmlDeviceGetClockInfo"
TEMPERATURE = "nvmlDeviceGetTemperature"
ECC = "nvmlDeviceGetTotalEccErrors"
PROCESSES = "nvmlDeviceGetComputeRunningProcesses"

EVERY = {CLOCK: (5, 0), TEMPERATURE: (10, 0), ECC: (10, 0), PROCESSES: (50, 0), UTILIZATION_GPM: (2, 1)}
"""(period, phase) in ticks of the counters that need not be read on every one, at 10 ticks a second. GPM skips the first
tick, because its two samples must lie 100 ms apart. A tick that a slow driver made the loop skip is made up for by the next."""
OTHERS_EVERY = 10
AGAIN = 10
"""Ticks after which a counter that failed is asked again at the latest, however seldom it is read."""
HOST_NAMESPACE = "pid:[4026531836]"
"""The kernel's name of the first pid namespace (PROC_PID_INIT_INO), in which NVML counts."""


def sees_host_pids(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether a pid here is the same number in NVML; False where it cannot be known."""
    try:
        return os.readlink(namespace) == HOST_NAMESPACE
    except OSError:
        return False


class NvmlBackend:
    """Samples the GPUs with the given UUIDs (all that are visible when none is given)."""

    def __init__(self, uuids: Sequence[str] = (), *, host_pids: bool = False) -> None:
        started = attempt(pynvml.nvmlInit)
        if isinstance(started, Failure):
            raise unavailable(started)
        self._notes: list[str] = []
        self._gpm: dict[str, Gpm] = {}
        self._devices = find(uuids)
        for device in self._devices:
            self._open(device)
        self._utilization = self._choose_utilization()
        self._others = others(self._devices) if uuids else []
        self._others_due = 0
        for device in self._others:
            self._open_other(device)
        self._host_pids = host_pids
        self._news: tuple[int, ...] | None = None

    # ------------------------------------------------------------ which counters exist

    def _open(self, device: Device) -> None:
        """Try every counter once, best variant first; what fails for good is absent with the reason."""
        handle = device.handle
        if device.kind == "instance":
            reason = Absent(absent=f"MIG: power and energy belong to the whole board, of which {device.uuid} is a part")
            device.counters |= {"energy": reason, "power": reason}
        else:
            self._try(device, "energy", {ENERGY: lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)})
            self._try(
                device,
                "power",
                {
                    POWER_INSTANT: lambda: field_milliwatts(handle),
                    POWER_USAGE: lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
                },
            )
        if device.kind != "board":
            self._try(
                device, "utilization", {UTILIZATION_RATES: lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu}
            )
            self._open_gpm(device)
            self._open_tenancy(device)
        self._try(
            device,
            "throttle",
            {
                REASONS: lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
                REASONS_OLD: lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            },
        )
        self._try(device, "clock", {CLOCK: lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)})
        self._try(
            device,
            "temperature",
            {TEMPERATURE: lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)},
        )
        self._try(device, "ecc", {ECC: lambda: uncorrected_errors(handle)})

    def _open_tenancy(self, device: Device) -> None:
        """Memory and processes: who is on a device, and with how much."""
        handle = device.handle
        self._try(
            device,
            "memory",
            {
                MEMORY: lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used,
                MEMORY_V1: lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used,
            },
        )
        self._try(device, "processes", {PROCESSES: lambda: process_ids(handle)})

    def _open_other(self, device: Device) -> None:
        """What cannot be read of somebody else's GPU is said once and ends nothing."""
        try:
            self._open_tenancy(device)
        except AcceleratorLost as error:
            device.gone = True
            self._notes.append(f"not the stack's own: {error.what}")

    def _try(self, device: Device, what: str, variants: dict[str, Callable[[], Any]]) -> None:
        reasons: list[str] = []
        for name, call in variants.items():
            value = attempt(call)
            if isinstance(value, Failure):
                if value.fate is Fate.LOST:
                    raise lost(device.uuid, value)
                if value.fate is Fate.ABSENT:
                    reasons.append(value.about(name))
                    continue
            device.counters[what] = name
            device.reads[what] = call
            return
        device.counters[what] = Absent(absent="; ".join(reasons))

    def _open_gpm(self, device: Device) -> None:
        gpm = attempt(Gpm, device.handle, device.board)
        if isinstance(gpm, Failure):
            if gpm.fate is Fate.LOST:
                raise lost(device.uuid, gpm)
            self._notes.append(
                f"{device.uuid}: {gpm.about('nvmlGpmSampleGet')}; utilization comes from the older counter"
            )
            return
        if gpm.supported:
            self._gpm[device.uuid] = gpm
        else:
            self._notes.append(
                f"{device.uuid}: no GPM (Hopper and newer have it); utilization comes from the older counter"
            )

    def _choose_utilization(self) -> MaybeStr:
        """One counter for all devices: two different ones cannot be averaged."""
        measured = [device for device in self._devices if device.kind != "board"]
        if all(device.uuid in self._gpm for device in measured):
            for device in measured:
                device.reads["utilization"] = self._gpm[device.uuid].percent
                device.counters["utilization"] = UTILIZATION_GPM
        return _common(device.counters["utilization"] for device in measured)

    # ------------------------------------------------------------ what the sampler asks

    def static(self, interval_ns: int) -> TelemetryStatic:
        """Names of counters are given when all devices have the same; else the first reason why not."""

        def counter(what: str) -> MaybeStr:
            return _common(device.counters[what] for device in self._devices if what in device.counters)

        def energy_like(what: str) -> MaybeStr:
            boards = {device.kind for device in self._devices}
            kinds = ("gpu", "board") if "board" in boards else ("gpu", "instance")
            return _common(device.counters[what] for device in self._devices if device.kind in kinds)

        driver = attempt(pynvml.nvmlSystemGetDriverVersion)
        cuda = attempt(pynvml.nvmlSystemGetCudaDriverVersion)
        return TelemetryStatic(
            backend="nvidia",
            devices=tuple(describe(device) for device in self._devices),
            driver=Absent(absent=driver.about("nvmlSystemGetDriverVersion")) if isinstance(driver, Failure) else driver,
            cuda=Absent(absent=cuda.about("nvmlSystemGetCudaDriverVersion"))
            if isinstance(cuda, Failure)
            else f"{cuda // 1000}.{cuda % 1000 // 10}",
            energy_counter=energy_like("energy"),
            power_counter=energy_like("power"),
            utilization_counter=self._utilization,
            memory_counter=counter("memory"),
            throttle_counter=counter("throttle"),
            interval_ns=interval_ns,
            notes=tuple(self._notes) + self._absences(),
        )

    def _absences(self) -> tuple[str, ...]:
        """Counters without a place of their own in the static record: said once here."""
        return tuple(
            f"{device.uuid}: {value.absent}"
            for device in (*self._devices, *self._others)
            for what in ("clock", "temperature", "ecc", "processes")
            if isinstance(value := device.counters.get(what), Absent)
        )

    def follow(self, roots: Sequence[int]) -> None:
        """The stack's processes, as they are known here; written only where these are the numbers that NVML gives."""
        if self._host_pids:
            self._news = tuple(roots)

    def sample(self, *, t_ns: int, tick: int) -> TelemetrySample:
        """A lost device is missing from `devices` from then on; `error` says why, once. So with any other first failure."""
        errors: list[str] = []
        samples = [sample for device in self._devices if (sample := self._read(device, tick, errors)) is not None]
        news, self._news = self._news, None
        return TelemetrySample(
            t_ns=t_ns,
            devices=tuple(samples),
            others=self._look_around(tick, errors) if self._others and tick >= self._others_due else None,
            stack_processes=news,
            error="; ".join(errors) or None,
        )

    def _look_around(self, tick: int, errors: list[str]) -> tuple[DeviceSample, ...]:
        """The GPUs that are not the stack's: one that is lost is left out from then on, as among its own."""
        self._others_due = tick + OTHERS_EVERY
        return tuple(sample for device in self._others if (sample := self._read(device, tick, errors)) is not None)

    def _read(self, device: Device, tick: int, errors: list[str]) -> DeviceSample | None:
        if device.gone:
            return None
        values: dict[str, Any] = {}
        for what, call in list(device.reads.items()):
            name = str(device.counters[what])
            period, phase = EVERY.get(name, (1, 0))
            if tick < device.due.get(what, phase):
                continue
            value = attempt(call)
            device.due[what] = tick + (min(period, AGAIN) if isinstance(value, Failure) else period)
            if not isinstance(value, Failure):
                values[what] = value
                continue
            if value.fate is Fate.LOST:
                device.gone = True
                errors.append(str(lost(device.uuid, value).what))
                return None
            if value.fate is Fate.ABSENT:
                del device.reads[what]
            errors.append(f"{device.uuid}: {value.about(name)}")
        return DeviceSample(
            uuid=device.uuid,
            power_mw=values.get("power"),
            energy_mj=values.get("energy"),
            utilization_percent=values.get("utilization"),
            memory_bytes=values.get("memory"),
            sm_clock_mhz=values.get("clock"),
            temperature_c=values.get("temperature"),
            throttle_reasons=values.get("throttle"),
            ecc_uncorrected=values.get("ecc"),
            process_ids=values.get("processes"),
        )

    def close(self) -> None:
        """Give back the profiling samples and NVML itself."""
        for gpm in self._gpm.values():
            gpm.close()
        attempt(pynvml.nvmlShutdown)


def _common(counters: Iterable[MaybeStr]) -> MaybeStr:
    """The one name that all devices share, else why there is none."""
    listed = list(counters)
    for value in listed:
        if isinstance(value, Absent):
            return value
    names = {str(value) for value in listed}
    if len(names) == 1:
        return names.pop()
    return Absent(absent=f"the devices have different counters: {', '.join(sorted(names))}")
