"""What the accelerator said during one launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servegate_action.analysis.metrics import LaunchData, launch_metrics
from servegate_action.analysis.signals import bare_power_w, busy_power_w, launch_signals
from servegate_action.config.limits import Slo
from servegate_action.records import (
    Absent,
    ColdStart,
    DeviceSample,
    IdleBlock,
    LaunchRecord,
    TelemetrySample,
    TelemetryStatic,
)
from tests.support.making import S, launch, plan, request, run
from tests.support.recordings import TICK, UUID, Scene, build, passing, telemetry_static


def samples(power_mw: int, *, until_s: int, utilization: float = 90.0) -> tuple[TelemetrySample, ...]:
    """Steady power, with an energy counter that agrees."""
    return tuple(
        TelemetrySample(
            t_ns=moment,
            devices=(
                DeviceSample(
                    uuid=UUID,
                    power_mw=power_mw,
                    energy_mj=power_mw * moment // S,
                    utilization_percent=utilization,
                    memory_bytes=1 << 30,
                    throttle_reasons=0,
                ),
            ),
        )
        for moment in range(0, until_s * S + 1, TICK)
    )


DATA = LaunchData(requests=(), telemetry=telemetry_static("nvidia"), samples=samples(300_000, until_s=30))


def started(*, first_token_ns: int | Absent = 10 * S, requested_ns: int = 0, up_ns: int | None = None) -> LaunchRecord:
    nothing = Absent(absent="not seen")
    start = ColdStart(
        requested_ns=requested_ns,
        image_ready_ns=nothing,
        process_up_ns=nothing if up_ns is None else up_ns,
        port_open_ns=nothing,
        healthy_ns=nothing,
        first_token_ns=first_token_ns,
        page_cache="unknown",
    )
    return launch(run(start=10 * S, end=20 * S)).model_copy(update={"cold_start": start})


def test_each_state_has_the_power_of_its_own_window() -> None:
    record = started().model_copy(update={"idle": IdleBlock(started_ns=20 * S, ended_ns=25 * S)})
    loading = samples(200_000, until_s=10)
    rest = [
        one.model_copy(
            update={
                "devices": tuple(
                    device.model_copy(update={"energy_mj": (device.energy_mj or 0) - 1_000_000})
                    for device in one.devices
                )
            }
        )
        for one in samples(300_000, until_s=30)
        if one.t_ns > 10 * S
    ]
    signals = launch_signals(record, replace(DATA, samples=(*loading, *rest)), None)
    assert signals.loading_power_w == pytest.approx(200.0)
    assert signals.loading_energy_j == pytest.approx(2000.0)
    assert signals.idle_power_w == pytest.approx(300.0)
    assert signals.busy_power_w["chat/1"] == pytest.approx(300.0)
    assert signals.utilization["chat/1"] == pytest.approx(90.0)
    assert signals.memory_bytes == 1 << 30
    assert signals.unwatched == ()


def test_loading_power_comes_from_readings_where_no_energy_was_counted() -> None:
    facts = telemetry_static("nvidia").model_copy(update={"energy_counter": Absent(absent="no counter")})
    signals = launch_signals(started(), replace(DATA, telemetry=facts), None)
    assert signals.loading_power_w == pytest.approx(300.0)
    assert signals.loading_energy_j == Absent(absent="no counter")


def test_what_was_on_the_accelerator_right_before_a_launch_spoils_it() -> None:
    floor = TelemetrySample(t_ns=0, devices=(DeviceSample(uuid=UUID, power_mw=90_000),))
    told = "before the launch GPU-a drew 300.0 W, 210.0 W above its bare 90.0 W".replace("GPU-a", UUID)
    assert launch_signals(started(requested_ns=S, up_ns=2 * S), DATA, floor).spoiled == (told,)
    assert launch_signals(started(requested_ns=S, up_ns=2 * S), DATA, None).spoiled == ()


def test_a_stack_that_already_ran_is_on_the_accelerator_by_right() -> None:
    floor = TelemetrySample(t_ns=0, devices=(DeviceSample(uuid=UUID, power_mw=90_000),))
    assert launch_signals(started(requested_ns=S), DATA, floor).spoiled == ()
    assert launch_signals(launch(run(start=10 * S, end=20 * S)), DATA, floor).spoiled == ()
    early = replace(DATA, samples=tuple(one for one in DATA.samples if one.t_ns > S))
    assert launch_signals(started(requested_ns=S, up_ns=2 * S), early, floor).spoiled == ()


def test_what_was_not_observed_is_absent_with_the_reason() -> None:
    signals = launch_signals(launch(run(start=10 * S, end=20 * S)), DATA, None)
    assert signals.loading_power_w == Absent(absent="the cold start was not observed")
    assert signals.idle_power_w == Absent(absent="the idle block was not run")
    unfinished = launch_signals(started(first_token_ns=Absent(absent="it died")), DATA, None)
    assert unfinished.loading_power_w == Absent(absent="the cold start was not observed")


def test_a_launch_without_cells_has_no_memory_reading() -> None:
    signals = launch_signals(launch(), DATA, None)
    assert signals.memory_bytes == Absent(absent="no cell was measured")
    assert signals.power_capped_share == Absent(absent="no cell was measured")


def test_a_cell_without_a_sample_was_not_watched() -> None:
    signals = launch_signals(launch(run(start=100 * S, end=120 * S)), DATA, None)
    assert signals.unwatched == ("chat/1: no telemetry sample",)
    assert isinstance(signals.memory_bytes, Absent)


def test_slowed_clocks_spoil_the_cells_in_which_they_were_seen() -> None:
    built = build(passing(throttle_reasons=0x40))
    record = built.recording.launches[0]
    spoiled = launch_signals(record, built.data[record.directory], None).spoiled
    assert len(spoiled) == 3
    assert all("hardware thermal slowdown" in text for text in spoiled)


STATIC = telemetry_static("nvidia")
DARK = Absent(absent="no driver")


def floor(**power_mw: int | None) -> TelemetrySample:
    """By a GPU's name, which is its UUID with a dash."""
    devices = (DeviceSample(uuid=name.replace("_", "-"), power_mw=power) for name, power in power_mw.items())
    return TelemetrySample(t_ns=0, devices=tuple(devices))


def on(*uuids: str, mig: str = "disabled") -> TelemetryStatic:
    devices = [STATIC.devices[0].model_copy(update={"uuid": uuid, "mig": mig}) for uuid in uuids]
    return STATIC.model_copy(update={"devices": tuple(devices)})


def test_bare_power_is_that_before_any_launch() -> None:
    assert bare_power_w(build(Scene(rounds=0)).recording.floor, [STATIC, DARK, STATIC]) == pytest.approx(72.0)


def test_bare_power_is_that_of_the_stacks_own_accelerators() -> None:
    both = floor(GPU_a=72_000, GPU_b=70_000)
    assert bare_power_w(both, [on("GPU-b")]) == pytest.approx(70.0)
    assert bare_power_w(both, [on("GPU-a", "GPU-b")]) == pytest.approx(142.0)


def test_bare_power_of_instances_is_their_boards() -> None:
    parts = on("MIG-1", mig="instance")
    whole = parts.model_copy(update={"devices": (*parts.devices, *on("GPU-a", mig="board of all instances").devices)})
    assert bare_power_w(floor(MIG_1=None, GPU_a=90_000), [whole]) == pytest.approx(90.0)


@pytest.mark.parametrize(
    "before, telemetry",
    [
        (None, [on("GPU-a")]),
        (floor(), [on("GPU-a")]),
        (floor(GPU_a=None), [on("GPU-a")]),
        (floor(GPU_a=1, GPU_b=None), [on("GPU-a", "GPU-b")]),
        (floor(GPU_a=1), [on("GPU-a", "GPU-b")]),
        (floor(GPU_a=1), [DARK]),
        (floor(GPU_a=1), []),
    ],
)
def test_bare_power_is_absent_unless_every_device_was_read(
    before: TelemetrySample | None, telemetry: list[TelemetryStatic | Absent]
) -> None:
    assert bare_power_w(before, telemetry) == Absent(absent="the bare power before the first launch was not read")


def test_busy_power_of_the_mix_weighs_cells_by_their_time() -> None:
    record = launch(run("chat/1", start=0, end=10 * S), run("long/1", start=10 * S, end=20 * S))
    low, high = samples(100_000, until_s=10), samples(400_000, until_s=30)
    jump = [one.devices[0].energy_mj or 0 for one in (low[-1], high[20])]
    later = tuple(
        one.model_copy(
            update={
                "devices": (
                    one.devices[0].model_copy(
                        update={"energy_mj": (one.devices[0].energy_mj or 0) + jump[0] - jump[1]}
                    ),
                )
            }
        )
        for one in high[21:]
    )
    data = LaunchData(requests=(), telemetry=telemetry_static("nvidia"), samples=(*low, *later))
    # 10 tokens at 1 tok/s against 5 at 0.5 tok/s, weights 1 and 3: 10 s and 30 s.
    requests = [
        request([S + index * S // 2 for index in range(10)], cell="chat/1"),
        request([11 * S + index * S for index in range(5)], cell="long/1"),
    ]
    plans = [plan("chat/1", weight=1.0), plan("long/1", weight=3.0)]
    metrics = launch_metrics(record, requests, plan=plans, slo=Slo(), gpus=1)
    assert busy_power_w(metrics, launch_signals(record, data, None)) == pytest.approx(0.25 * 100 + 0.75 * 400, rel=0.03)


def test_busy_power_is_absent_with_a_rate_or_a_reading() -> None:
    record = launch(run("chat/1", start=0, end=10 * S))
    fast = launch_metrics(record, [request([S, 2 * S])], plan=[plan("chat/1")], slo=Slo(), gpus=1)
    dark = LaunchData(requests=(), telemetry=Absent(absent="no driver"), samples=())
    assert busy_power_w(fast, launch_signals(record, dark, None)) == Absent(absent="chat/1: no driver")
    silent = launch_metrics(record, [request([20 * S, 21 * S])], plan=[plan("chat/1")], slo=Slo(), gpus=1)
    assert isinstance(busy_power_w(silent, launch_signals(record, DATA, None)), Absent)
