"""Made-up samples of a steady GPU, ten times a second, for tests that read windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from servegate_action.records import DeviceSample, DeviceStatic, TelemetrySample, TelemetryStatic

S = 1_000_000_000
TICK = S // 10
A, B = "GPU-a", "GPU-b"
MIB = 2**20


def device(uuid: str, mig: str = "disabled") -> DeviceStatic:
    return DeviceStatic(uuid=uuid, name="H100", memory_bytes=1, power_limit_mw=1, max_sm_clock_mhz=1, mig=mig, ecc="on")


def static(*devices: DeviceStatic, **changes: object) -> TelemetryStatic:
    counters = TelemetryStatic(
        backend="nvidia",
        devices=devices or (device(A),),
        driver="1",
        cuda="1",
        energy_counter="energy",
        power_counter="power",
        utilization_counter="utilization",
        memory_counter="memory",
        throttle_counter="reasons",
        interval_ns=TICK,
    )
    return counters.model_copy(update=changes)


def steady(uuid: str, t_ns: int, *, watts: float = 500.0) -> DeviceSample:
    return DeviceSample(
        uuid=uuid,
        power_mw=round(watts * 1000),
        energy_mj=7_000 + round(watts * t_ns / 1e6),
        utilization_percent=80.0,
        memory_bytes=100 * MIB,
        throttle_reasons=0,
        ecc_uncorrected=3,
        process_ids=(11, 12),
    )


def samples(
    of: Callable[[int], Sequence[DeviceSample]], *, seconds: float = 60.0, skip: Callable[[int], bool] = lambda _: False
) -> list[TelemetrySample]:
    ticks = range(0, round(seconds * S) + 1, TICK)
    return [TelemetrySample(t_ns=t, devices=tuple(of(t))) for t in ticks if not skip(t)]


def one(t: int) -> list[DeviceSample]:
    return [steady(A, t)]


STEADY = samples(one)


def changed(t: int, **changes: object) -> list[DeviceSample]:
    return [steady(A, t).model_copy(update=changes)]
