"""A GPU that somebody else uses before a launch spoils it; what cannot be told is no check."""

from __future__ import annotations

from typing import Literal

from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.rounds import gather
from servegate_action.analysis.tenants import tenant_check, tenants
from servegate_action.analysis.validity import validity_checks
from servegate_action.config.stacks import EndpointStack, Stack
from servegate_action.records import DeviceSample, TelemetrySample
from tests.support.recordings import Built, build, passing

BUILT = build(passing(rounds=2))


def floor(*pids: tuple[int, ...] | None) -> TelemetrySample:
    devices = tuple(DeviceSample(uuid=f"GPU-{index}", process_ids=one) for index, one in enumerate(pids))
    return TelemetrySample(t_ns=0, devices=devices)


def checked(
    found: TelemetrySample | None, *, accelerator: Literal["nvidia", "cpu"] = "nvidia", built: Built = BUILT
) -> list[HardCheck]:
    recording = built.recording.model_copy(update={"floor": found, "accelerator": accelerator})
    return tenant_check(built.config, recording)


def sample(power_mw: int | None = 70_000, pids: tuple[int, ...] | None = (), uuid: str = "GPU-a") -> TelemetrySample:
    device = DeviceSample(uuid=uuid, power_mw=power_mw, process_ids=pids, memory_bytes=1000)
    return TelemetrySample(t_ns=1, devices=(device,))


def test_an_idle_accelerator_has_no_tenant() -> None:
    assert tenants(sample(), bare=sample()) == ()
    assert tenants(sample(pids=None), bare=sample()) == ()


def test_a_strangers_process_is_named_with_its_pid() -> None:
    assert tenants(sample(pids=(4242,)), bare=sample()) == (
        "before the launch GPU-a was used by another process (host pid 4242)",
    )


def test_power_well_above_the_floor_is_somebody_even_without_a_list() -> None:
    assert tenants(sample(power_mw=80_001, pids=None), bare=sample()) == (
        "before the launch GPU-a drew 80.0 W, 10.0 W above its bare 70.0 W",
    )
    assert tenants(sample(power_mw=80_000), bare=sample()) == ()
    assert tenants(sample(power_mw=None), bare=sample()) == ()
    assert tenants(sample(power_mw=200_000), bare=sample(uuid="GPU-b")) == ()


def test_a_cpu_is_never_free_of_others() -> None:
    assert tenants(sample(pids=(1, 2), uuid="cpu"), bare=sample(uuid="cpu")) == ()


def test_a_free_accelerator_is_said_to_be_free() -> None:
    (check,) = checked(floor((), ()))
    assert check.ok
    assert check.detail == "no other process was on the accelerators before the first launch"


def test_a_process_before_the_first_launch_is_invalid_with_its_pid() -> None:
    (check,) = checked(floor((), (77, 4242)))
    assert (check.kind, check.ok) == ("invalid", False)
    assert check.detail == "GPU-1 was used by another process before the first launch (host pid 77, 4242)"


def test_what_was_not_read_is_no_check() -> None:
    assert checked(None) == []
    assert checked(floor(None)) == []


def test_a_cpu_always_has_other_processes() -> None:
    assert checked(floor((1, 2)), accelerator="cpu") == []


def test_the_process_of_an_endpoint_that_runs_is_the_stacks_own() -> None:
    endpoint = Stack(label="x", endpoint=EndpointStack(url="http://127.0.0.1:8000"))
    stacks = BUILT.config.stacks.model_copy(update={"baseline": endpoint})
    config = BUILT.config.model_copy(update={"stacks": stacks})
    assert checked(floor((1, 2)), built=Built(config, BUILT.recording, BUILT.data)) == []


def test_it_is_one_of_the_checks_of_a_run() -> None:
    recording = BUILT.recording.model_copy(update={"floor": floor((9,)), "accelerator": "nvidia"})
    names = [
        check.name for check in validity_checks(BUILT.config, recording, gather(BUILT.config, recording, BUILT.data))
    ]
    assert "tenants" in names
