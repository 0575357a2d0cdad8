"""What one stretch of samples says, and when it says nothing. Samples are made up, every number is exact."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.telemetry_window import TelemetryWindow, window
from servegate_action.records import Absent, DeviceSample, TelemetrySample
from tests.support.samples import MIB, STEADY, TICK, A, B, S, changed, device, one, samples, static, steady


def read(found: Sequence[TelemetrySample], *, start: float = 10.0, end: float = 50.0) -> TelemetryWindow:
    return window(static(), found, start_ns=round(start * S), end_ns=round(end * S))


def reason(value: object) -> str:
    assert isinstance(value, Absent)
    return value.absent


def test_a_steady_load_comes_out_as_it_went_in() -> None:
    found = read(samples(one))
    assert found == TelemetryWindow(
        energy_mj=20_000_000,
        power_w=500.0,
        utilization=80.0,
        utilization_lowest=80.0,
        memory_bytes=float(100 * MIB),
        power_capped_share=0.0,
        samples=401,
        notes=(),
    )


def test_energy_is_interpolated_between_the_samples_next_to_the_edges() -> None:
    assert read(samples(one), start=10.03, end=12.57).energy_mj == 1_270_000


@given(st.integers(5 * S, 25 * S), st.integers(TICK, 15 * S), st.integers(TICK, 15 * S))
def test_energies_of_adjacent_windows_add_up(first: int, one_length: int, other_length: int) -> None:
    middle, last = first + one_length, first + one_length + other_length
    found = STEADY
    left, right, whole = (
        window(static(), found, start_ns=start, end_ns=end).energy_mj
        for start, end in ((first, middle), (middle, last), (first, last))
    )
    assert isinstance(left, int)
    assert isinstance(right, int)
    assert isinstance(whole, int)
    assert abs(left + right - whole) <= 1


def test_without_telemetry_everything_is_absent_for_the_same_reason() -> None:
    nothing = Absent(absent="no telemetry on this machine")
    found = window(nothing, samples(one), start_ns=0, end_ns=S)
    assert (found.energy_mj, found.power_w, found.utilization, found.memory_bytes) == (nothing,) * 4
    assert found.samples == 0


def test_a_window_without_length_or_without_samples_says_so() -> None:
    assert reason(read(samples(one), start=10, end=10).energy_mj) == "the window has no length"
    assert reason(read(samples(one), start=70, end=80).power_w) == "no sample in the 10.0 s of the window"


def test_a_gap_of_more_than_three_seconds_makes_values_absent() -> None:
    found = read(samples(one, skip=lambda t: 20 * S < t < 23.5 * S))
    for value in (found.energy_mj, found.utilization):
        assert reason(value).endswith("a gap of 3.5 s between two readings")
    assert "gap" in reason(found.power_w)


def test_a_gap_of_three_seconds_is_borne() -> None:
    assert read(samples(one, skip=lambda t: 20 * S < t < 23 * S)).energy_mj == 20_000_000


def test_a_counter_that_runs_backwards_is_absent_and_power_comes_from_its_readings() -> None:
    found = read(samples(lambda t: changed(t, energy_mj=t // S if t > 30 * S else 10**9 + t // S)))
    assert (
        reason(found.energy_mj)
        == "energy of GPU-a: the counter ran backwards: the driver was reloaded or the GPU reset"
    )
    assert found.power_w == pytest.approx(500.0)


def test_energy_needs_a_reading_on_both_sides() -> None:
    late = read(samples(one, skip=lambda t: t < 11 * S))
    early = read(samples(one, skip=lambda t: t > 49 * S))
    assert reason(late.energy_mj) == "energy of GPU-a: no reading before the window's start"
    assert reason(early.energy_mj) == "energy of GPU-a: no reading after the window's end"
    assert late.utilization == early.utilization == pytest.approx(80.0)


def test_counters_that_do_not_exist_keep_their_reason() -> None:
    missing = Absent(absent="not supported by this GPU (NVML error 3)")
    found = window(
        static(
            energy_counter=missing,
            power_counter=missing,
            utilization_counter=missing,
            memory_counter=missing,
            throttle_counter=missing,
        ),
        samples(one),
        start_ns=10 * S,
        end_ns=50 * S,
    )
    assert (found.energy_mj, found.power_w, found.utilization) == (missing,) * 3
    assert (found.memory_bytes, found.power_capped_share) == (missing, missing)


def test_power_without_either_counter_gives_both_reasons() -> None:
    found = window(
        static(energy_counter=Absent(absent="no counter")),
        samples(lambda t: changed(t, power_mw=None)),
        start_ns=10 * S,
        end_ns=50 * S,
    )
    assert reason(found.power_w) == "no counter; power of GPU-a: no reading"


def test_readings_that_never_came_are_absent_not_zero() -> None:
    found = read(samples(lambda t: changed(t, memory_bytes=None, throttle_reasons=None)))
    assert reason(found.memory_bytes) == "memory was not read on all devices at one moment"
    assert reason(found.power_capped_share) == "the reasons of the clocks were not read"


def test_a_stack_that_is_out_of_sight_holds_no_known_memory() -> None:
    """A sibling container, seen from inside the action's: 0 bytes would be a lie."""
    found = read(samples(lambda t: changed(t, memory_bytes=0, process_ids=())))
    assert reason(found.memory_bytes) == "no process of the stack was in sight"


def test_a_reading_stands_for_the_time_since_the_one_before() -> None:
    found = read(samples(lambda t: changed(t, utilization_percent=100.0 if t > 20 * S else 0.0), seconds=60))
    assert found.utilization == pytest.approx(75.0)


def test_counters_that_are_read_less_often_weigh_by_time() -> None:
    def at(t: int) -> list[DeviceSample]:
        busy = t > 20 * S
        often = t % (2 * S) == 0 if busy else True
        return changed(t, utilization_percent=(100.0 if busy else 0.0) if often else None)

    assert read(samples(at)).utilization == pytest.approx(75.0)


def test_two_devices_energy_adds_up_and_the_lowest_utilization_is_shown() -> None:
    def at(t: int) -> list[DeviceSample]:
        return [steady(A, t), steady(B, t, watts=300.0).model_copy(update={"utilization_percent": 20.0})]

    found = window(static(device(A), device(B)), samples(at), start_ns=10 * S, end_ns=50 * S)
    assert found.energy_mj == 32_000_000
    assert found.power_w == 800.0
    assert found.utilization == pytest.approx(50.0)
    assert found.utilization_lowest == pytest.approx(20.0)
    assert found.memory_bytes == float(200 * MIB)


def test_one_of_two_devices_lost_leaves_no_sum_and_no_mean() -> None:
    def at(t: int) -> list[DeviceSample]:
        return [steady(A, t), steady(B, t)] if t < 30 * S else [steady(A, t)]

    found = window(static(device(A), device(B)), samples(at), start_ns=10 * S, end_ns=50 * S)
    assert reason(found.energy_mj) == "energy of GPU-b: a gap of 20.1 s between two readings"
    assert reason(found.utilization) == "utilization of GPU-b: a gap of 20.1 s between two readings"


def test_power_of_a_device_without_readings_is_not_that_of_the_others() -> None:
    def at(t: int) -> list[DeviceSample]:
        return [steady(A, t), DeviceSample(uuid=B)]

    found = window(static(device(A), device(B)), samples(at), start_ns=10 * S, end_ns=50 * S)
    assert reason(found.power_w) == "energy of GPU-b: no reading; power of GPU-b: no reading"


def test_mig_instances_compute_and_their_board_carries_the_power() -> None:
    def at(t: int) -> list[DeviceSample]:
        parts = [DeviceSample(uuid=uuid, utilization_percent=60.0, memory_bytes=MIB) for uuid in ("MIG-1", "MIG-2")]
        return [*parts, DeviceSample(uuid=A, power_mw=400_000, energy_mj=t // 2_500)]

    parts = (device("MIG-1", "instance"), device("MIG-2", "instance"), device(A, "board of all instances"))
    found = window(static(*parts), samples(at), start_ns=10 * S, end_ns=50 * S)
    assert found.energy_mj == 16_000_000
    assert found.utilization == pytest.approx(60.0)
    assert found.memory_bytes == float(2 * MIB)


def test_the_power_cap_is_a_share_and_not_a_finding() -> None:
    found = read(samples(lambda t: changed(t, throttle_reasons=4 if t >= 30 * S else 1)))
    assert found.power_capped_share == pytest.approx(0.5, abs=0.01)


def test_a_counter_that_is_far_from_the_readings_is_noted() -> None:
    found = read(samples(lambda t: changed(t, power_mw=530_000)))
    assert found.notes == ("the energy counter and the power readings are +6.0% apart (20000 J and 21200 J)",)
    assert found.power_w == 500.0


def test_the_cross_check_needs_thirty_seconds_and_both_counters() -> None:
    apart = samples(lambda t: changed(t, power_mw=900_000))
    assert read(apart, end=39.9).notes == ()
    assert read(apart, end=40.0).notes != ()
    assert read(samples(lambda t: changed(t, power_mw=None))).notes == ()
    assert read(samples(lambda t: changed(t, energy_mj=5))).notes == ()


def test_what_could_not_be_read_is_noted_once() -> None:
    found = [sample.model_copy(update={"error": "GPU-a: timeout"}) for sample in samples(one)]
    assert read(found).notes == ("GPU-a: timeout",)
