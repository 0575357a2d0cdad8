"""Did both stacks do the same work, and could it be measured?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from servegate_action.analysis.findings import invalid_if, named
from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.rounds import gather
from servegate_action.analysis.validity import complete_check, validity_checks
from servegate_action.config.stacks import Stack
from servegate_action.config.workload import Workload
from servegate_action.records import Absent, DeviceSample, RequestRecord, TokenSource
from tests.support.recordings import CELLS, SERVER_PID, Built, SceneCell, build, killed, nothing_measured, passing

CANDIDATE = "rounds/02-candidate"


def found(built: Built) -> dict[str, HardCheck]:
    evidence = gather(built.config, built.recording, built.data)
    return {check.name: check for check in validity_checks(built.config, built.recording, evidence)}


def with_requests(built: Built, change: Callable[[RequestRecord], dict[str, Any]], name: str = CANDIDATE) -> Built:
    """The run with the requests of one launch changed."""
    old = built.data[name]
    requests = tuple(one.model_copy(update=change(one)) for one in old.requests)
    return Built(built.config, built.recording, {**built.data, name: LaunchData(requests, old.telemetry, old.samples)})


def with_telemetry(built: Built, **changes: object) -> Built:
    """The run with the static telemetry of every candidate launch changed."""
    data = dict(built.data)
    for name in [name for name in data if name.endswith("candidate")]:
        old = data[name]
        assert not isinstance(old.telemetry, Absent)
        data[name] = LaunchData(old.requests, old.telemetry.model_copy(update=changes), old.samples)
    return Built(built.config, built.recording, data)


def invalid(check: HardCheck) -> str:
    assert not check.ok
    assert check.kind == "invalid"
    assert check.advice
    return check.detail


# ---------------------------------------------------------------- sentences


def test_long_lists_of_findings_name_the_first_and_count_the_rest() -> None:
    assert named(["a", "b"]) == "a; b"
    assert named(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"


def test_a_check_without_findings_says_what_is_good() -> None:
    assert invalid_if("x", [], good="all is well", advice="none").detail == "all is well"
    assert invalid_if("x", ["bad"], good="all is well", advice="mend it").advice == "mend it"


# ---------------------------------------------------------------- the same work


def test_a_good_run_holds_every_check() -> None:
    checks = found(build(passing()))
    assert {name: check.ok for name, check in checks.items()} == dict.fromkeys(
        ("load_equal", "order", "hardware", "gpus_held", "telemetry", "client_certificate", "client", "prefix_cache"),
        True,
    )


def test_other_prompt_tokens_mean_another_tokenizer_or_template() -> None:
    detail = invalid(found(build(passing(extra_prompt_tokens=3)))["load_equal"])
    assert detail.startswith("round 1: 300 of 300 requests have other prompt_tokens on the two stacks")


def test_prompt_tokens_that_a_server_does_not_report_cannot_disagree() -> None:
    assert found(with_requests(build(passing()), lambda _: {"prompt_tokens": None}))["load_equal"].ok


def test_another_number_of_output_tokens_is_another_workload() -> None:
    built = with_requests(build(passing()), lambda one: {"output_tokens": 31 if one.ok else None})
    assert invalid(found(built)["load_equal"]) == (
        "round 2, candidate: 300 of 300 requests came back with another number of tokens than asked for"
    )


def test_an_answer_without_any_count_is_no_answer_to_compare() -> None:
    built = with_requests(build(passing()), lambda _: {"output_tokens": None})
    assert "another number of tokens" in invalid(found(built)["load_equal"])


def test_being_asked_for_other_lengths_is_another_workload() -> None:
    built = with_requests(build(passing()), lambda _: {"requested_output_tokens": 16, "output_tokens": 16})
    detail = invalid(found(built)["load_equal"])
    assert detail == "round 2: 300 of 300 requests were asked for another number of output tokens"


def test_requests_that_were_sent_to_one_stack_only_are_counted() -> None:
    built = with_requests(build(passing()), lambda one: {"id": one.id + "x"} if one.id.endswith("7") else {})
    assert invalid(found(built)["load_equal"]) == "round 2: 60 requests were sent to one stack only"


def test_requests_that_were_never_sent_are_missed() -> None:
    built = with_requests(build(passing()), lambda one: {"phase": "warmup"} if one.id.endswith("7") else {})
    assert invalid(found(built)["load_equal"]).startswith("round 2, candidate: 270 of 300 planned requests were sent")


def test_tokens_counted_in_different_ways_cannot_be_compared() -> None:
    built = with_requests(build(passing()), lambda _: {"token_source": TokenSource.EVENTS})
    assert invalid(found(built)["load_equal"]) == "round 2: output tokens are counted by usage against events"


def test_rounds_out_of_their_planned_order_are_invalid() -> None:
    built = build(passing())
    swapped = [
        one.model_copy(update={"position": 3 - one.position}) if one.round == 2 else one
        for one in built.recording.launches
    ]
    recording = built.recording.model_copy(update={"launches": tuple(swapped)})
    detail = invalid(found(Built(built.config, recording, built.data))["order"])
    assert detail == "round 2 was not run in the planned order"


def test_rounds_beyond_the_plan_have_no_planned_order() -> None:
    built = build(passing())
    short = built.recording.plan.model_copy(update={"order": built.recording.plan.order[:3]})
    recording = built.recording.model_copy(update={"plan": short})
    assert "round 4" in invalid(found(Built(built.config, recording, built.data))["order"])


# ---------------------------------------------------------------- hardware


def in_pools(built: Built, baseline: str | None, candidate: str | None) -> Built:
    """The run with these pools declared."""
    stacks = built.config.stacks
    declared = stacks.model_copy(
        update={
            "baseline": stacks.baseline.model_copy(update={"gpu_pool": baseline}),
            "candidate": stacks.candidate.model_copy(update={"gpu_pool": candidate}),
        }
    )
    return Built(built.config.model_copy(update={"stacks": declared}), built.recording, built.data)


def test_another_kind_of_accelerator_is_invalid_unless_declared_as_another_pool() -> None:
    built = build(passing())
    telemetry = built.data[CANDIDATE].telemetry
    assert not isinstance(telemetry, Absent)
    device = telemetry.devices[0].model_copy(update={"name": "NVIDIA H200"})
    moved = with_telemetry(built, devices=(device,))
    assert invalid(found(moved)["hardware"]) == (
        "baseline on NVIDIA H100 80GB HBM3 at 700 W, candidate on NVIDIA H200 at 700 W"
    )
    one, both, same = (in_pools(moved, *pools) for pools in ((None, "h200"), ("h100", "h200"), ("h100", "h100")))
    declared = found(both)["hardware"]
    assert declared.ok
    assert declared.detail == "the two stacks need different pools, as declared"
    assert not found(one)["hardware"].ok
    assert not found(same)["hardware"].ok


def at(built: Built, baseline: str, candidate: str, *, gpu_uuids: tuple[str, ...] = ()) -> Built:
    """The run of two endpoints at these addresses."""
    stacks = built.config.stacks

    def there(stack: Stack, url: str) -> Stack:
        assert stack.endpoint is not None
        endpoint = stack.endpoint.model_copy(update={"url": url})
        return stack.model_copy(update={"endpoint": endpoint, "gpu_uuids": gpu_uuids})

    moved = stacks.model_copy(
        update={"baseline": there(stacks.baseline, baseline), "candidate": there(stacks.candidate, candidate)}
    )
    return Built(built.config.model_copy(update={"stacks": moved}), built.recording, built.data)


def test_an_endpoint_that_cannot_be_seen_is_no_less_unknown_without_telemetry() -> None:
    check = found(without_telemetry(build(passing(endpoint=True, accelerator="cpu"))))["hardware"]
    assert (check.ok, check.kind) == (False, "inconclusive")


LOCAL = ("http://127.0.0.1:8000", "http://localhost:8001")


@pytest.mark.parametrize(
    ("urls", "accelerator", "gpu_uuids", "seen"),
    [
        (("http://10.0.0.6:8000", "http://10.0.0.7:8000"), "cpu", (), False),
        (("http://10.0.0.6:8000", "http://10.0.0.7:8000"), "nvidia", ("GPU-1",), False),
        (("http://127.0.0.1:8000", "http://a100.internal:8000"), "nvidia", (), False),
        (LOCAL, "cpu", (), True),
        (LOCAL, "nvidia", (), True),
    ],
)
def test_the_accelerator_of_an_endpoint_is_the_same_only_where_it_can_be_no_other(
    urls: tuple[str, str], accelerator: Literal["cpu", "nvidia"], gpu_uuids: tuple[str, ...], seen: bool
) -> None:
    built = at(build(passing(endpoint=True, accelerator=accelerator)), *urls, gpu_uuids=gpu_uuids)
    check = found(built)["hardware"]
    assert check.ok is seen
    if not seen:
        assert check.kind == "inconclusive"
        assert "cannot be seen" in check.detail
        declared = found(in_pools(built, "h100", "h100"))["hardware"]
        assert (declared.ok, declared.detail) == (True, "both stacks in the pool h100, as declared")
        assert found(in_pools(built, "a10g", "h100"))["hardware"].detail == (
            "the two stacks need different pools, as declared"
        )


def test_of_several_gpus_beside_a_local_endpoint_nobody_knows_which_one_serves() -> None:
    built = at(build(passing(endpoint=True)), *LOCAL)
    telemetry = built.data[CANDIDATE].telemetry
    assert not isinstance(telemetry, Absent)
    first = telemetry.devices[0]
    other = first.model_copy(update={"uuid": "GPU-2"})
    both = {"devices": (first, other)}
    data = {
        name: LaunchData(one.requests, telemetry.model_copy(update=both), one.samples)
        for name, one in built.data.items()
    }
    several = Built(built.config, built.recording, data)
    check = found(several)["hardware"]
    assert (check.ok, check.kind) == (False, "inconclusive")
    assert found(at(several, *LOCAL, gpu_uuids=(first.uuid,)))["hardware"].ok


def test_another_board_of_the_same_kind_is_another_accelerator() -> None:
    built = build(passing())
    telemetry = built.data[CANDIDATE].telemetry
    assert not isinstance(telemetry, Absent)
    first = telemetry.devices[0]
    other = first.model_copy(update={"uuid": "GPU-2"})
    moved = found(with_telemetry(built, devices=(other,)))["hardware"]
    assert invalid(moved) == "the two stacks ran on different accelerators of the same kind"
    assert found(with_telemetry(built, devices=(first, other)))["hardware"].ok


def test_another_power_limit_is_another_accelerator() -> None:
    built = build(passing())
    telemetry = built.data[CANDIDATE].telemetry
    assert not isinstance(telemetry, Absent)
    slow = telemetry.devices[0].model_copy(update={"power_limit_mw": 500_000})
    assert "at 500 W" in invalid(found(with_telemetry(built, devices=(slow,)))["hardware"])


def test_more_gpus_used_than_declared_are_found_by_their_memory() -> None:
    built = build(passing())
    assert built.recording.floor is not None
    bare = built.recording.floor.devices[0]
    floor = built.recording.floor.model_copy(
        update={"devices": (bare, bare.model_copy(update={"uuid": "GPU-2"}), bare.model_copy(update={"uuid": "GPU-3"}))}
    )
    data = dict(built.data)
    old = data[CANDIDATE]
    both = tuple(
        one.model_copy(
            update={
                "devices": (
                    one.devices[0],
                    one.devices[0].model_copy(update={"uuid": "GPU-2"}),
                    one.devices[0].model_copy(update={"uuid": "GPU-3", "memory_bytes": bare.memory_bytes}),
                )
            }
        )
        for one in old.samples
    )
    data[CANDIDATE] = LaunchData(old.requests, old.telemetry, both)
    two = Built(built.config, built.recording.model_copy(update={"floor": floor}), data)
    assert invalid(found(two)["gpus_held"]) == "the candidate used 2 GPUs and is declared to hold 1"
    candidate = built.config.stacks.candidate.model_copy(update={"gpu_count": 2})
    config = built.config.model_copy(update={"stacks": built.config.stacks.model_copy(update={"candidate": candidate})})
    assert found(Built(config, two.recording, data))["gpus_held"].ok


def test_good_counts_of_gpus_are_said_for_both() -> None:
    check = found(build(passing()))["gpus_held"]
    assert check.detail == "GPUs used: 1 by the baseline, 1 by the candidate, none more than declared"


def test_memory_that_was_not_read_is_no_gpu_less() -> None:
    built = build(passing())
    dark = found(without(built, memory_bytes=None, process_ids=None))["gpus_held"]
    assert (dark.ok, dark.kind) == (False, "inconclusive")
    assert dark.detail == "GPUs used: 1 by the baseline, not read for the candidate"
    assert dark.advice
    assert found(without(built, memory_bytes=None))["gpus_held"].ok


def test_without_a_floor_processes_tell_which_gpus_are_used() -> None:
    built = without(build(passing()), process_ids=None)
    bare = built.recording.model_copy(update={"floor": None})
    check = found(Built(built.config, bare, built.data))["gpus_held"]
    assert (check.ok, check.detail) == (False, "GPUs used: 1 by the baseline, not read for the candidate")


def test_of_a_stack_that_already_runs_nobody_knows_which_gpus_it_took() -> None:
    assert "gpus_held" not in found(build(passing(endpoint=True)))


SECOND = "GPU-2"
THEIRS = 99
UNTOUCHED = DeviceSample(uuid=SECOND, memory_bytes=0, process_ids=())


def beside(
    built: Built,
    *pids: int,
    told: tuple[int, ...] | None = None,
    bare: DeviceSample | None = UNTOUCHED,
    memory: int | None = 30 << 30,
    process_lists: bool = True,
    own: bool = True,
) -> Built:
    """The run on a machine with a second GPU that is nobody's by declaration.

    In the candidate's second launch these processes are on it. `told` are the stack's own as the sampler was told, `bare` is
    the second GPU before the first launch; without `own` the candidate leaves the GPU alone that it is declared to hold.
    """
    assert built.recording.floor is not None
    old, start = built.data[CANDIDATE], built.data[CANDIDATE].samples[0].t_ns
    second = DeviceSample(uuid=SECOND, memory_bytes=memory, process_ids=pids if process_lists else None)
    idle = {"memory_bytes": 0, "process_ids": ()}
    samples = tuple(
        one.model_copy(
            update={
                "others": (second,) if one.t_ns > start else None,
                "stack_processes": told,
                "devices": one.devices if own else tuple(device.model_copy(update=idle) for device in one.devices),
            }
        )
        for one in old.samples
    )
    floor = built.recording.floor.model_copy(update={"others": None if bare is None else (bare,)})
    data = {**built.data, CANDIDATE: LaunchData(old.requests, old.telemetry, samples)}
    return Built(built.config, built.recording.model_copy(update={"floor": floor}), data)


def doubts(built: Built) -> list[str]:
    evidence = gather(built.config, built.recording, built.data)
    return [text for launch in evidence.launches for text in launch.signals.notes if "cannot be told" in text]


UNTOLD = "whether the candidate used GPU-2, which it is not declared to hold, cannot be told"


@pytest.mark.parametrize(
    "pids, told",
    [
        ((SERVER_PID,), None),  # one process on both GPUs
        ((THEIRS, SERVER_PID), None),
        ((77,), (SERVER_PID, 77)),  # a worker of its own on the second one
    ],
)
def test_a_gpu_that_is_not_declared_and_has_a_process_of_the_stack_is_found(
    pids: tuple[int, ...], told: tuple[int, ...] | None
) -> None:
    built = beside(build(passing()), *pids, told=told)
    words = "the candidate had a process on GPU-2, which it is not declared to hold"
    assert invalid(found(built)["gpus_held"]) == words
    assert doubts(built) == []


def test_somebody_elses_job_on_another_gpu_is_not_the_stacks() -> None:
    built = beside(build(passing()), THEIRS, told=(SERVER_PID, 77))
    assert found(built)["gpus_held"].ok
    assert doubts(built) == []


@pytest.mark.parametrize("lists, pids, told", [(True, (THEIRS,), None), (True, (), (SERVER_PID,)), (False, (), None)])
def test_where_nobody_can_tell_whose_a_job_on_another_gpu_is_a_note_says_so(
    lists: bool, pids: tuple[int, ...], told: tuple[int, ...] | None
) -> None:
    built = beside(build(passing()), *pids, told=told, process_lists=lists)
    assert found(built)["gpus_held"].ok
    assert doubts(built) == [UNTOLD]


def test_another_gpu_that_nobody_touched_raises_no_doubt() -> None:
    assert doubts(beside(build(passing()), memory=100 << 20)) == []


def test_a_process_that_was_on_another_gpu_before_the_run_is_not_the_stacks() -> None:
    before = DeviceSample(uuid=SECOND, memory_bytes=30 << 30, process_ids=(SERVER_PID,))
    assert found(beside(build(passing()), SERVER_PID, bare=before))["gpus_held"].ok


def test_another_gpu_without_readings_is_a_doubt_and_no_finding() -> None:
    for built in (beside(build(passing()), memory=None), beside(build(passing()), bare=None)):
        assert found(built)["gpus_held"].ok
        assert doubts(built) == [UNTOLD]


def test_a_stack_that_left_its_own_gpu_alone_while_another_filled_up_is_not_passed() -> None:
    check = found(beside(build(passing()), THEIRS, own=False))["gpus_held"]
    assert (check.ok, check.kind) == (False, "inconclusive")
    assert check.detail == (
        "GPUs used: 1 by the baseline, none of its own by the candidate, and whether it used another one cannot be told"
    )


def test_what_was_on_another_gpu_before_the_launch_is_not_its_doing() -> None:
    """The stack before may still be there: only what is seen from the request to start on counts."""
    built = beside(build(passing()), SERVER_PID)
    old = built.data[CANDIDATE]
    first, second, *_ = old.samples
    lingering = first.model_copy(update={"t_ns": first.t_ns - 1, "others": second.others})
    late = tuple(one.model_copy(update={"others": None}) for one in old.samples)
    data = {**built.data, CANDIDATE: LaunchData(old.requests, old.telemetry, (lingering, *late))}
    assert found(Built(built.config, built.recording, data))["gpus_held"].ok


# ---------------------------------------------------------------- the servers' own counters


def counted(built: Built, *, tokens: float, name: str = "vllm:generation_tokens_total") -> Built:
    """Every cell of every launch with a server that counted so many output tokens in it."""
    launches = tuple(
        one.model_copy(
            update={
                "cells": tuple(
                    run.model_copy(
                        update={"server_metrics_before": {name: 7.0}, "server_metrics_after": {name: 7.0 + tokens}}
                    )
                    for run in one.cells
                )
            }
        )
        for one in built.recording.launches
    )
    return Built(built.config, built.recording.model_copy(update={"launches": launches}), built.data)


ONE_CELL = CELLS[:1]
"""102 requests of 32 tokens, warm-up included."""


def test_servers_that_agree_with_the_client_are_a_second_opinion() -> None:
    check = found(counted(build(passing(cells=ONE_CELL)), tokens=102 * 32))["server_counts"]
    assert check.ok
    assert check.detail == "the servers' own counters agree with the output tokens of 8 measured cells"


@pytest.mark.parametrize("tokens", [102 * 24, 102 * 48])
def test_a_server_that_counted_another_number_of_tokens_makes_the_run_invalid(tokens: int) -> None:
    detail = invalid(found(counted(build(passing(cells=ONE_CELL)), tokens=tokens))["server_counts"])
    assert detail.startswith(
        f"round 1, baseline, chat/1: the server counted {tokens:,} output tokens (vllm:generation_tokens_total), "
        "the client was told 3,264"
    )


def unanswered(built: Built, key: str, directories: Sequence[str]) -> Built:
    """The run in which these launches did not answer the request for their counters, before or after."""
    launches = tuple(
        one.model_copy(update={"cells": tuple(run.model_copy(update={key: {}}) for run in one.cells)})
        if one.directory in directories
        else one
        for one in built.recording.launches
    )
    return Built(built.config, built.recording.model_copy(update={"launches": launches}), built.data)


@pytest.mark.parametrize("key", ["server_metrics_before", "server_metrics_after"])
def test_one_unanswered_reading_of_the_counters_leaves_its_cell_out(key: str) -> None:
    built = counted(build(passing(cells=ONE_CELL)), tokens=102 * 32)
    check = found(unanswered(built, key, [CANDIDATE]))["server_counts"]
    assert check.ok
    assert check.detail == (
        "the servers' own counters agree with the output tokens of 7 measured cells; "
        "1 cell was not checked, because a reading of its server's counters was not answered"
    )
    everywhere = [one.directory for one in built.recording.launches]
    none = found(unanswered(built, key, everywhere))["server_counts"]
    assert none.detail == (
        "the servers' own counters were held against no cell; "
        "8 cells were not checked, because a reading of their server's counters was not answered"
    )


# ---------------------------------------------------------------- telemetry


def test_slowed_clocks_make_a_run_invalid() -> None:
    detail = invalid(found(build(passing(throttle_reasons=0x20)))["telemetry"])
    assert detail.startswith("round 1, baseline: chat/1: the clocks of GPU-")
    assert "software thermal slowdown" in detail


def without(built: Built, **changes: object) -> Built:
    """The run in which these counters of the candidate's second launch were not read."""
    old = built.data[CANDIDATE]
    dark = tuple(
        one.model_copy(update={"devices": tuple(device.model_copy(update=changes) for device in one.devices)})
        for one in old.samples
    )
    data = {**built.data, CANDIDATE: LaunchData(old.requests, old.telemetry, dark)}
    return Built(built.config, built.recording, data)


def test_what_was_not_read_of_an_accelerator_is_not_said_to_be_good() -> None:
    built = build(passing())
    assert found(built)["telemetry"].detail == "no throttling, no memory error, no foreign process was seen"
    one = found(without(built, ecc_uncorrected=None))["telemetry"]
    assert one.ok
    assert one.detail == "no throttling, no foreign process was seen; not read: memory errors"
    none = found(without(built, throttle_reasons=None, ecc_uncorrected=None, process_ids=None))["telemetry"]
    assert (none.ok, none.kind) == (False, "inconclusive")
    assert none.detail == "not read: clocks held down, memory errors, other processes"


def test_the_power_limit_is_normal_under_load() -> None:
    assert found(build(passing(throttle_reasons=0x04)))["telemetry"].ok


def without_samples(built: Built) -> Built:
    data = {name: LaunchData(one.requests, one.telemetry, ()) for name, one in built.data.items()}
    return Built(built.config, built.recording, data)


def without_telemetry(built: Built) -> Built:
    gone = Absent(absent="the sampler died")
    data = {name: LaunchData(one.requests, gone, ()) for name, one in built.data.items()}
    return Built(built.config, built.recording, data)


def test_a_gpu_that_nobody_watched_makes_a_run_invalid() -> None:
    assert "chat/1: no telemetry sample" in invalid(found(without_samples(build(passing())))["telemetry"])
    checks = found(without_telemetry(build(passing())))
    assert "no telemetry: the sampler died" in invalid(checks["telemetry"])
    assert "hardware" not in checks


def test_a_cpu_need_not_be_watched() -> None:
    built = build(passing(accelerator="cpu"))
    assert found(without_samples(built))["telemetry"].ok
    assert found(without_telemetry(built))["telemetry"].detail == "a CPU has no counters that would tell"


# ---------------------------------------------------------------- caches, endpoints, the end


def cached(share: float) -> Built:
    return with_requests(build(passing()), lambda one: {"cached_tokens": int((one.prompt_tokens or 0) * share)})


def test_prompts_from_a_cache_by_accident_make_a_run_invalid() -> None:
    detail = invalid(found(cached(0.5))["prefix_cache"])
    assert detail.startswith("candidate, chat/1: 50% of the prompt tokens came from a cache, meant 8%")


def test_a_common_beginning_is_no_accident() -> None:
    assert found(cached(0.03))["prefix_cache"].ok


@pytest.mark.parametrize(("offset", "ok"), [(30.0, True), (0.0, False)])
def test_the_chat_template_that_begins_every_prompt_may_be_cached(offset: float, ok: bool) -> None:
    cell = SceneCell("chat/4", 4, prompt_tokens=256, requests=100)
    built = build(passing(cells=(cell,), prompt_offset=offset))
    assert found(with_requests(built, lambda _: {"cached_tokens": 48}))["prefix_cache"].ok is ok


def test_an_impossible_length_of_the_prompts_allows_no_cache() -> None:
    built = cached(0.5)
    plan = built.recording.plan.model_copy(update={"prompt_offset": -1e6})
    broken = Built(built.config, built.recording.model_copy(update={"plan": plan}), built.data)
    assert "meant 5%" in invalid(found(broken)["prefix_cache"])


def test_a_declared_shared_prefix_may_be_cached() -> None:
    built = cached(0.5)
    cells = tuple(cell.model_copy(update={"shared_prefix_tokens": 2500}) for cell in built.config.workload.cells)
    workload = built.config.workload.model_copy(update={"cells": cells})
    config = built.config.model_copy(update={"workload": workload})
    assert found(Built(config, built.recording, built.data))["prefix_cache"].ok


def test_a_trace_says_itself_which_prefixes_are_shared() -> None:
    built = cached(0.9)
    workload = Workload.model_validate({"trace": {"path": "day.jsonl"}})
    config = built.config.model_copy(update={"workload": workload})
    assert found(Built(config, built.recording, built.data))["prefix_cache"].ok


def test_endpoints_that_servegate_does_not_start_allow_no_pass_unless_declared_fixed() -> None:
    built = build(passing(endpoint=True, cost=False))
    check = found(built)["launches"]
    assert not check.ok
    assert check.kind == "inconclusive"
    assert "the baseline and the candidate" in check.detail
    stacks = built.config.stacks
    for name in ("baseline", "candidate"):
        stack = getattr(stacks, name)
        fixed = stack.endpoint.model_copy(update={"launches": "fixed"})
        stacks = stacks.model_copy(update={name: stack.model_copy(update={"endpoint": fixed})})
    config = built.config.model_copy(update={"stacks": stacks})
    assert "launches" not in found(Built(config, built.recording, built.data))


def test_without_a_round_only_what_is_known_before_is_checked() -> None:
    assert set(found(build(passing(rounds=0)))) == {"client_certificate"}


def test_a_stranger_on_the_gpu_is_found_before_any_round_is_measured() -> None:
    built = build(passing(rounds=0))
    assert built.recording.floor is not None
    busy = built.recording.floor.devices[0].model_copy(update={"process_ids": (4242,)})
    floor = built.recording.floor.model_copy(update={"devices": (busy,)})
    before = Built(built.config, built.recording.model_copy(update={"floor": floor}), {})
    assert "host pid 4242" in invalid(found(before)["tenants"])


@pytest.mark.parametrize(
    "built, words",
    [
        (build(killed()), "the run did not come to its end: its state is `running`"),
        (build(nothing_measured()), "the run did not come to its end: the candidate exited with code 1 in round 2"),
    ],
)
def test_a_run_that_broke_off_never_passes(built: Built, words: str) -> None:
    check = complete_check(built.recording)
    assert not check.ok
    assert check.kind == "inconclusive"
    assert check.detail == words


def test_a_run_that_came_to_its_end_is_complete() -> None:
    assert complete_check(build(passing(rounds=0)).recording).ok
