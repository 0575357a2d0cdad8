"""Messages of the telemetry: each error class says what it means, and an idle accelerator is one sample."""

from __future__ import annotations

import pytest

from servegate_action.records import DeviceSample, TelemetrySample
from servegate_action.telemetry.nvml_errors import Failure, Fate, unavailable
from servegate_action.telemetry.sampler import summarize


@pytest.mark.parametrize(
    "codes,fate",
    [((3, 4, 13, -1), Fate.ABSENT), ((15, 16), Fate.LOST), ((1, 2, 6, 7, 10, 25, 27, 999), Fate.TRANSIENT)],
)
def test_a_code_means_the_same_everywhere(codes: tuple[int, ...], fate: Fate) -> None:
    assert {Failure(code, "").fate for code in codes} == {fate}


@pytest.mark.parametrize("code", [4, 9, 12, 18, 999])
def test_every_start_error_has_a_next_step(code: int) -> None:
    error = unavailable(Failure(code, "Unknown Error"))
    assert f"NVML error {code}" in error.what
    assert error.next_step


def sample(power_mw: int | None = 70_000, pids: tuple[int, ...] | None = (), uuid: str = "GPU-a") -> TelemetrySample:
    device = DeviceSample(uuid=uuid, power_mw=power_mw, process_ids=pids, memory_bytes=1000)
    return TelemetrySample(t_ns=1, devices=(device,))


def test_the_floor_is_the_median_power_and_the_largest_memory() -> None:
    seen = [sample(power_mw=power, pids=pids) for power, pids in ((70_000, None), (90_000, (5,)), (71_000, (6,)))]
    device = summarize(seen).devices[0]
    assert (device.power_mw, device.memory_bytes, device.process_ids) == (71_000, 1000, (5, 6))


def test_a_floor_without_readings_has_none() -> None:
    device = summarize([TelemetrySample(t_ns=1, devices=(DeviceSample(uuid="GPU-a"),), error="timeout")])
    assert device.devices[0] == DeviceSample(uuid="GPU-a")
    assert device.error == "timeout"
