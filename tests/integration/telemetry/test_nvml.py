"""The NVML backend under the unmodified pynvml and a library of our own that plays scenarios on a virtual clock.

Every scenario shows the value or the message that a user gets. Real hardware is not proven here: benchmarks/gpu_check.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate_action.analysis.disturbances import disturbances
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.signals import gpu_use
from servegate_action.analysis.telemetry_window import window
from servegate_action.analysis.tenants import tenants
from servegate_action.records import Absent, DeviceSample
from servegate_action.telemetry.nvml import sees_host_pids
from servegate_action.telemetry.sampler import summarize
from tests.integration.telemetry.conftest import Play, Played
from tests.support.making import launch, run

S = 1_000_000_000
H100 = """
clock manual
gpu GPU-a NVIDIA H100 80GB HBM3
gpm 1
energy_start 5000000
at 0 power 90000
at 0 memory 500000000
at 0 clock 345
at 0 temperature 31
at 0 processes none
at 0 sm_util 0
at 0 utilization 0
"""
A100 = H100.replace("gpm 1", "gpm 0").replace("H100 80GB HBM3", "A100-SXM4-80GB")
BUSY = """
at 10000 power 650000
at 10000 sm_util 72.5
at 10000 utilization 100
at 10000 memory 60000000000
at 10000 clock 1755
at 10000 reasons 4
"""


def spoiled(found: Played) -> tuple[str, ...]:
    """What spoils a launch with one cell, from 12 s to 48 s."""
    record = launch(run(start=12 * S, end=48 * S))
    return disturbances(record, LaunchData((), found.facts, found.samples)).spoiled


def absent(value: object) -> str:
    assert isinstance(value, Absent), value
    return value.absent


# ---------------------------------------------------------------- values


def test_a_load_curve_comes_out_exactly(play: Play) -> None:
    found = play(H100 + BUSY, ticks=501)
    busy = window(found.facts, found.samples, start_ns=12 * S, end_ns=48 * S)
    assert busy.energy_mj == 650_000 * 36
    assert busy.power_w == 650.0
    assert busy.utilization == pytest.approx(72.5)
    assert busy.memory_bytes == 60e9
    assert busy.power_capped_share == 1.0
    assert busy.notes == ()
    assert spoiled(found) == ()


def test_every_counter_is_named(play: Play) -> None:
    facts = play(H100).facts
    assert facts.energy_counter == "nvmlDeviceGetTotalEnergyConsumption"
    assert facts.power_counter == "NVML_FI_DEV_POWER_INSTANT (field 186)"
    assert facts.utilization_counter == "nvmlGpmMetricsGet SM_UTIL (share of SMs busy)"
    assert facts.memory_counter == "nvmlDeviceGetMemoryInfo v2"
    assert facts.throttle_counter == "nvmlDeviceGetCurrentClocksEventReasons"
    assert (facts.driver, facts.cuda, facts.interval_ns) == ("575.51.03", "12.9", S // 10)
    assert facts.notes == ()
    device = facts.devices[0]
    assert (device.name, device.mig, device.ecc) == ("NVIDIA H100 80GB HBM3", "disabled", "on")
    assert (device.power_limit_mw, device.max_sm_clock_mhz, device.memory_bytes) == (700_000, 1980, 80 * 2**30)


def test_counters_are_read_as_often_as_they_need(play: Play) -> None:
    seconds = play(H100, ticks=100).of("GPU-a")
    assert sum(one.power_mw is not None for one in seconds) == 100
    assert sum(one.utilization_percent is not None for one in seconds) == 50
    assert sum(one.sm_clock_mhz is not None for one in seconds) == 20
    assert sum(one.temperature_c is not None for one in seconds) == 10
    assert sum(one.process_ids is not None for one in seconds) == 2


def test_without_gpm_the_older_utilization_is_used_and_named(play: Play) -> None:
    found = play(A100 + BUSY, ticks=301)
    assert "nvmlDeviceGetUtilizationRates" in str(found.facts.utilization_counter)
    assert found.facts.notes == ("GPU-a: no GPM (Hopper and newer have it); utilization comes from the older counter",)
    assert window(found.facts, found.samples, start_ns=12 * S, end_ns=28 * S).utilization == pytest.approx(100.0)


def test_one_device_without_gpm_puts_all_on_the_same_counter(play: Play) -> None:
    second = A100.replace("clock manual", "").replace("GPU-a", "GPU-b")
    found = play(H100 + second, ticks=20)
    assert "nvmlDeviceGetUtilizationRates" in str(found.facts.utilization_counter)
    assert {one.utilization_percent for one in found.of("GPU-a")} == {0.0}


def test_an_energy_counter_with_coarse_steps_is_right_over_a_long_window(play: Play) -> None:
    found = play(H100 + BUSY + "energy_refresh_ms 100\n", ticks=501)
    energy = window(found.facts, found.samples, start_ns=12 * S, end_ns=48 * S).energy_mj
    assert energy == pytest.approx(650_000 * 36, rel=0.005)


def test_a_counter_that_disagrees_with_the_power_readings_is_noted(play: Play) -> None:
    found = play(H100 + BUSY + "energy_scale 1.08\n", ticks=501)
    notes = window(found.facts, found.samples, start_ns=12 * S, end_ns=48 * S).notes
    assert notes == ("the energy counter and the power readings are -7.4% apart (25272 J and 23400 J)",)


def test_a_counter_reset_is_absent_with_the_reason(play: Play) -> None:
    found = play(H100 + BUSY + "energy_reset_ms 30000\n", ticks=501)
    energy = window(found.facts, found.samples, start_ns=12 * S, end_ns=48 * S).energy_mj
    assert absent(energy) == "energy of GPU-a: the counter ran backwards: the driver was reloaded or the GPU reset"


def test_slowed_clocks_and_memory_errors_spoil_the_window(play: Play) -> None:
    found = play(H100 + BUSY + "at 30000 reasons 68\nat 31000 reasons 4\nat 20000 ecc 2\n", ticks=501)
    assert spoiled(found) == (
        "chat/1: the clocks of GPU-a were slowed down (hardware thermal slowdown) in 2.8% of the readings",
        "chat/1: 2 uncorrected memory errors (ECC) on GPU-a",
    )


def test_a_strangers_process_is_seen_before_and_during(play: Play) -> None:
    found = play(H100 + BUSY + "at 0 processes 4242\nat 30000 processes 4242,99\n", ticks=501)
    assert tenants(found.samples[0], bare=found.samples[0]) == (
        "before the launch GPU-a was used by another process (host pid 4242)",
    )
    assert spoiled(found) == ("another process used GPU-a (host pid 99)",)


# ---------------------------------------------------------------- which device


def test_devices_are_found_by_uuid_whatever_their_order(play: Play) -> None:
    second = H100.replace("clock manual", "").replace("GPU-a", "GPU-b").replace("power 90000", "power 70000")
    found = play(H100 + second, uuids=["GPU-b"], ticks=5)
    assert [device.uuid for device in found.facts.devices] == ["GPU-b"]
    assert {one.power_mw for one in found.of("GPU-b")} == {70_000}


def test_an_unknown_uuid_is_answered_with_the_visible_ones(play: Play) -> None:
    found = play(H100, uuids=["GPU-z"])
    assert found.problem == {
        "kind": "TelemetryUnavailable",
        "what": "there is no GPU GPU-z here",
        "why": "visible from here: GPU-a",
        "next": "correct gpu_uuids in the configuration (`nvidia-smi -L` lists them)",
    }


def test_a_driver_without_a_device_is_an_early_error(play: Play) -> None:
    found = play("clock manual\n")
    assert found.problem["what"] == "NVML works, but shows no GPU"
    assert "make nvidia the runner's default container runtime" in found.problem["next"]


def test_one_of_two_devices_lost_in_the_middle_is_named_and_the_other_goes_on(play: Play) -> None:
    second = H100.replace("clock manual", "").replace("GPU-a", "GPU-b")
    found = play(H100 + second + "at 20000 lost 1\n", ticks=501)
    assert found.errors == [(20 * S, "GPU GPU-b is gone: GPU is lost (NVML error 15)")]
    assert len(found.samples) == len(found.of("GPU-a")) == 501
    assert len(found.of("GPU-b")) == 200
    read = window(found.facts, found.samples, start_ns=12 * S, end_ns=48 * S)
    assert spoiled(found) == ("chat/1: GPU-b was lost during the measurement",)
    assert absent(read.energy_mj) == "energy of GPU-b: a gap of 28.1 s between two readings"


def test_a_device_that_is_lost_from_the_start_is_an_error_with_its_uuid(play: Play) -> None:
    found = play(H100 + "at 0 lost 1\n", uuids=["GPU-a"])
    assert found.problem["kind"] == "AcceleratorLost"
    assert found.problem["what"] == "GPU GPU-a is gone: GPU is lost (NVML error 15)"


def test_a_device_that_needs_a_reset_is_lost_as_well(play: Play) -> None:
    found = play(H100 + "error nvmlDeviceGetTotalEnergyConsumption 16 2000 9999999\n", ticks=40)
    assert found.errors == [(2 * S, "GPU GPU-a is gone: GPU requires restart (NVML error 16)")]


# ---------------------------------------------------------------- MIG

MIG = """
clock manual
gpu GPU-a NVIDIA H100 80GB HBM3
gpm 1
max_instances 7
at 0 power 400000
at 0 clock 1755
mig MIG-1
slices 4
gpm 1
at 0 sm_util 50
at 0 memory 1000
mig MIG-2
slices 3
gpm 1
at 0 sm_util 30
at 0 memory 2000
"""


def test_a_mig_instance_has_no_power_of_its_own(play: Play) -> None:
    found = play(MIG, uuids=["MIG-1"], ticks=401)
    why = "MIG: power and energy belong to the whole board, of which MIG-1 is a part"
    assert (absent(found.facts.energy_counter), absent(found.facts.power_counter)) == (why, why)
    read = window(found.facts, found.samples, start_ns=2 * S, end_ns=38 * S)
    assert (absent(read.energy_mj), absent(read.power_w)) == (why, why)
    assert read.utilization == pytest.approx(50.0)
    assert read.memory_bytes == 1000.0


def test_all_instances_of_a_board_bring_its_power(play: Play) -> None:
    found = play(MIG, ticks=401)
    assert [(device.uuid, device.mig) for device in found.facts.devices] == [
        ("MIG-1", "instance"),
        ("MIG-2", "instance"),
        ("GPU-a", "board of all instances"),
    ]
    read = window(found.facts, found.samples, start_ns=2 * S, end_ns=38 * S)
    assert read.energy_mj == 400_000 * 36
    assert read.utilization == pytest.approx(40.0)
    assert read.memory_bytes == 3000.0


def test_a_board_with_room_left_is_not_wholly_ours(play: Play) -> None:
    found = play(MIG.replace("slices 4", "slices 3"), ticks=5)
    assert [device.uuid for device in found.facts.devices] == ["MIG-1", "MIG-2"]
    assert "MIG: power and energy belong to the whole board" in absent(found.facts.energy_counter)


def test_the_parent_of_instances_has_no_utilization(play: Play) -> None:
    found = play(MIG.replace("gpm 1\nmax", "gpm 0\nmax"), uuids=["GPU-a"], ticks=5)
    assert found.facts.devices[0].mig == "enabled"
    assert "is not supported by this GPU (NVML error 3)" in absent(found.facts.utilization_counter)


# ---------------------------------------------------------------- errors per call

CALLS = {
    "nvmlDeviceGetTotalEnergyConsumption": "energy_counter",
    "nvmlDeviceGetMemoryInfo_v2": "memory_counter",
    "nvmlDeviceGetUtilizationRates": "utilization_counter",
    "nvmlDeviceGetCurrentClocksEventReasons": "throttle_counter",
}


@pytest.mark.parametrize("code,words", [(3, "is not supported by this GPU"), (4, "needs a privilege")])
def test_a_counter_that_will_never_answer_is_absent_with_the_reason(play: Play, code: int, words: str) -> None:
    alone = {"nvmlDeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo"}
    both = {"nvmlDeviceGetCurrentClocksEventReasons": "nvmlDeviceGetCurrentClocksThrottleReasons"}
    errors = "".join(f"error {call} {code}\n" for call in [*CALLS, *alone.values(), *both.values()])
    found = play(A100 + errors + f"error field186 {code}\nerror nvmlDeviceGetPowerUsage {code}\n", ticks=20)
    for counter in (*CALLS.values(), "power_counter"):
        assert words in absent(getattr(found.facts, counter))
    assert found.errors == []
    sample = found.of("GPU-a")[0]
    assert (sample.energy_mj, sample.power_mw, sample.memory_bytes, sample.utilization_percent) == (None,) * 4


def test_counters_without_a_place_of_their_own_are_noted(play: Play) -> None:
    names = ("nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetComputeRunningProcesses_v3")
    found = play(H100 + "ecc_mode 0\n" + "".join(f"error {name} 4\n" for name in names), ticks=5)
    assert [note.split(" needs")[0].split(" is not")[0] for note in found.facts.notes] == [
        "GPU-a: nvmlDeviceGetClockInfo",
        "GPU-a: nvmlDeviceGetTemperature",
        "GPU-a: nvmlDeviceGetTotalEccErrors",
        "GPU-a: nvmlDeviceGetComputeRunningProcesses",
    ]


def test_power_falls_back_when_the_field_is_not_supported(play: Play) -> None:
    found = play(H100 + "error field186 3\n", ticks=5)
    assert found.facts.power_counter == "nvmlDeviceGetPowerUsage"
    assert {one.power_mw for one in found.of("GPU-a")} == {90_000}


def test_profiling_that_is_restricted_says_how_to_allow_it(play: Play) -> None:
    found = play(H100 + "error nvmlGpmSampleGet 4\n", ticks=5)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.facts.notes[0]
    assert "nvmlDeviceGetUtilizationRates" in str(found.facts.utilization_counter)


def list_times(found: Played) -> list[int]:
    return [sample.t_ns for sample in found.samples if sample.devices[0].process_ids is not None]


def test_a_slow_driver_makes_no_counter_rarer(play: Play) -> None:
    """With calls of 250 ms every third tick is kept, and of every 50th only each 150th is."""
    found = play(H100 + SECOND, ticks=40, uuids=["GPU-a"], busy_ms=250)
    assert list_times(found) == [0, 5_100_000_000, 10_200_000_000]
    around = [sample.t_ns for sample in found.samples if sample.others is not None]
    assert around[:3] == [0, 1_200_000_000, 2_400_000_000]


def test_a_process_list_that_failed_is_asked_again_within_a_second(play: Play) -> None:
    found = play(H100 + "error nvmlDeviceGetComputeRunningProcesses_v3 999 4900 5200\n", ticks=120)
    assert list_times(found) == [0, 6 * S, 11 * S]


@pytest.mark.parametrize("code", [10, 27, 999])
def test_a_hiccup_leaves_a_hole_and_the_next_tick_asks_again(play: Play, code: int) -> None:
    found = play(H100 + f"error nvmlDeviceGetTotalEnergyConsumption {code} 1000 1200\n", ticks=30)
    holes = [sample.t_ns for sample in found.samples if sample.devices[0].energy_mj is None]
    assert holes == [1 * S, S + S // 10]
    assert [t for t, _ in found.errors] == holes
    assert f"(NVML error {code})" in found.errors[0][1]


def test_a_privilege_taken_away_in_the_middle_is_said_once(play: Play) -> None:
    found = play(H100 + "error nvmlDeviceGetTotalEnergyConsumption 4 1000 9999999\n", ticks=30)
    assert [t for t, _ in found.errors] == [S]
    assert "needs a privilege" in found.errors[0][1]


# ---------------------------------------------------------------- no telemetry at all


@pytest.mark.parametrize(
    "code,what,next_step",
    [
        (4, "NVML may not be used by this user (NVML error 4)", "run as a user of the group that owns /dev/nvidia*"),
        (9, "the NVIDIA driver is not loaded (NVML error 9)", "check `nvidia-smi` on the host"),
        (18, "the NVIDIA library and the loaded kernel module are of different versions (NVML error 18)", "reboot"),
        (15, "NVML could not be started: GPU is lost (NVML error 15)", "check `nvidia-smi` on the host"),
    ],
)
def test_an_init_error_is_early_and_helpful(play: Play, code: int, what: str, next_step: str) -> None:
    found = play(f"init {code}\n")
    assert found.static is None
    assert found.problem["kind"] == "TelemetryUnavailable"
    assert found.problem["what"] == what
    assert found.problem["next"].startswith(next_step)


def test_an_old_driver_keeps_what_it_has(play_old: Play) -> None:
    found = play_old(A100 + "at 0 processes 4242\nat 0 reasons 4\n", ticks=20)
    facts = found.facts
    assert facts.memory_counter == "nvmlDeviceGetMemoryInfo v1 (used contains the driver's reserve)"
    assert facts.throttle_counter == "nvmlDeviceGetCurrentClocksThrottleReasons"
    assert "does not exist in this driver, which is older than the call" in facts.notes[0]
    first = found.of("GPU-a")[0]
    assert first.process_ids == (4242,)
    assert first.throttle_reasons == 4
    assert first.memory_bytes == 500_000_000 + 600 * 2**20


# ---------------------------------------------------------------- GPUs that are not the stack's


SECOND_UUID = "GPU-b"
SECOND = """
gpu GPU-b NVIDIA H100 80GB HBM3
at 0 power 90000
at 0 memory 500000000
at 0 processes none
"""


def test_a_gpu_that_was_not_asked_for_is_looked_at_for_memory_and_processes_only(play: Play) -> None:
    taken = "at 5000 memory 40000000000\nat 5000 processes 77\n"
    found = play(H100 + SECOND + taken, ticks=100, uuids=["GPU-a"])
    assert [device.uuid for device in found.facts.devices] == ["GPU-a"]
    assert {device.uuid for sample in found.samples for device in sample.devices} == {"GPU-a"}
    looks = [sample.others for sample in found.samples if sample.others is not None]
    assert len(looks) == 10
    assert looks[0] == (DeviceSample(uuid="GPU-b", memory_bytes=500_000_000, process_ids=()),)
    assert looks[5] == (DeviceSample(uuid="GPU-b", memory_bytes=40_000_000_000, process_ids=(77,)),)
    assert looks[6] == (DeviceSample(uuid="GPU-b", memory_bytes=40_000_000_000),)


def test_where_no_gpu_is_named_all_are_the_stacks(play: Play) -> None:
    assert all(sample.others is None for sample in play(H100 + SECOND, ticks=20).samples)


@pytest.mark.parametrize("lost", ["at 0 lost 1\n", "at 1500 lost 1\n"])
def test_somebody_elses_gpu_that_is_lost_ends_nothing(play: Play, lost: str) -> None:
    found = play(H100 + SECOND + lost, ticks=40, uuids=["GPU-a"])
    assert all([device.uuid for device in sample.devices] == ["GPU-a"] for sample in found.samples)
    assert found.samples[-10].others in ((), None)


def test_somebody_elses_gpu_that_is_lost_as_its_counters_are_tried_is_said_once(play: Play) -> None:
    found = play(H100 + SECOND + "error nvmlDeviceGetMemoryInfo_v2 15\n", ticks=20, uuids=["GPU-a"])
    assert found.facts.notes == (
        "not the stack's own: GPU GPU-b is gone: GPU is lost (NVML error 15)",
        *play(H100, ticks=1).facts.notes,
    )
    assert found.samples[0].others == ()


def test_process_lists_that_somebody_elses_gpu_does_not_give_are_absent(play: Play) -> None:
    found = play(H100 + SECOND + "error nvmlDeviceGetComputeRunningProcesses_v3 3\n", ticks=20, uuids=["GPU-a"])
    assert found.samples[0].others == (DeviceSample(uuid="GPU-b", memory_bytes=500_000_000),)
    assert found.facts.notes[-1].startswith("GPU-b: nvmlDeviceGetComputeRunningProcesses")


def test_parts_of_a_board_are_no_other_gpus_and_its_other_parts_are(play: Play) -> None:
    board = "clock manual\ngpu GPU-a\nmax_instances 7\nmig MIG-1\nslices 3\nmig MIG-2\nslices 4\n"
    whole = play(board, ticks=1, uuids=["GPU-a"]).samples[0]
    assert whole.others is None
    part = play(board, ticks=1, uuids=["MIG-1"]).samples[0]
    assert [device.uuid for device in part.others or ()] == ["MIG-2"]


def test_the_stacks_own_processes_are_written_when_they_are_news(play: Play) -> None:
    found = play(H100, ticks=5, uuids=["GPU-a"], roots=[4242, 77])
    assert [sample.stack_processes for sample in found.samples] == [None, (4242, 77), None, None, None]


def test_process_ids_of_another_namespace_are_never_written(play: Play) -> None:
    found = play(H100, ticks=5, uuids=["GPU-a"], roots=[4242, 77], host_pids=False)
    assert all(sample.stack_processes is None for sample in found.samples)


def test_the_hosts_process_ids_are_seen_only_in_its_own_namespace(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.symlink_to("pid:[4026531836]")
    other.symlink_to("pid:[4026532177]")
    assert [sees_host_pids(link) for link in (own, other, tmp_path / "none")] == [True, False, False]


@pytest.mark.parametrize(
    "on_b, roots, held",
    [
        ("77", [4242, 77], ((SECOND_UUID,), ())),  # its second worker
        ("4242", None, ((SECOND_UUID,), ())),  # one process on both, whoever launched it
        ("99", [4242, 77], ((), ())),  # somebody else's job
        ("99", None, ((), (SECOND_UUID,))),  # nobody can tell
    ],
)
def test_a_stack_that_takes_a_gpu_that_it_does_not_declare_is_told_from_somebody_elses_job(
    play: Play, on_b: str, roots: list[int] | None, held: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    machine = H100 + "at 1000 memory 30000000000\nat 1000 processes 4242\n" + SECOND
    floor = summarize(play(machine, ticks=9, uuids=["GPU-a"]).samples)
    busy = machine + f"at 1000 memory 30000000000\nat 1000 processes {on_b}\n"
    found = play(busy, ticks=101, uuids=["GPU-a"], roots=roots)
    gpus = gpu_use(launch(), LaunchData((), found.facts, found.samples), floor)
    assert (gpus.used, gpus.unread) == (1, False)
    assert (gpus.undeclared, gpus.untold) == held
