"""What spoils a launch, and what nobody would have seen. Samples are made up, ten a second unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from servegate_action.analysis.checklist import judge, void_reason
from servegate_action.analysis.disturbances import (
    PROCESSES,
    SIGNS,
    Disturbances,
    disturbances,
    disturbed,
    holes,
    strangers,
    unread,
)
from servegate_action.analysis.judgement import HardCheck, Judgement, Word
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.telemetry_window import Span
from servegate_action.records import Absent, DeviceSample, LaunchRecord, Side, TelemetrySample
from servegate_action.telemetry.nvml import ECC, EVERY
from servegate_action.telemetry.nvml import PROCESSES as PROCESS_LISTS
from tests.support.making import launch, request, run
from tests.support.recordings import SERVER_PID, UUID, Built, build, passing
from tests.support.samples import A, B, S, changed, device, one, samples, static, steady

STRANGER = 666
DATA = LaunchData((), static(), samples(one))


def span(found: Sequence[TelemetrySample], *, start: float = 10.0, end: float = 50.0) -> Span:
    return Span.of(static(), found, round(start * S), round(end * S))


def found_in(found: Sequence[TelemetrySample], **window: float) -> tuple[str, ...]:
    return disturbed(span(found, **window))


# ---------------------------------------------------------------- disturbed


UNTOLD = (
    "which processes are the baseline's own was not told: one that came before its first cell is taken for its own",
)


def test_a_steady_load_is_not_disturbed() -> None:
    assert disturbances(launch(run(start=10 * S, end=50 * S)), DATA) == Disturbances(notes=UNTOLD)
    known = [sample.model_copy(update={"stack_processes": (11, 12)}) for sample in samples(one)]
    assert disturbances(launch(run(start=10 * S, end=50 * S)), LaunchData((), static(), known)) == Disturbances()


def test_a_lost_device_is_named() -> None:
    lost = samples(lambda t: [steady(A, t), steady(B, t)] if t < 30 * S else [steady(A, t)])
    two = Span.of(static(device(A), device(B)), lost, 10 * S, 50 * S)
    assert disturbed(two) == ("GPU-b was lost during the measurement",)


@pytest.mark.parametrize(
    "bit, name",
    [
        (0x08, "hardware slowdown"),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "hardware power brake"),
    ],
)
def test_slowed_clocks_are_named_with_their_share(bit: int, name: str) -> None:
    found = found_in(samples(lambda t: changed(t, throttle_reasons=bit | 4 if t == 30 * S else 0)))
    assert found == (f"the clocks of GPU-a were slowed down ({name}) in 0.2% of the readings",)


def test_the_power_cap_disturbs_nothing() -> None:
    assert found_in(samples(lambda t: changed(t, throttle_reasons=4))) == ()


def test_slowed_clocks_outside_of_the_span_do_not_matter() -> None:
    assert found_in(samples(lambda t: changed(t, throttle_reasons=8 if t > 50 * S else 0))) == ()


def test_new_memory_errors_are_counted() -> None:
    found = found_in(samples(lambda t: changed(t, ecc_uncorrected=5 if t > 30 * S else 3)))
    assert found == ("2 uncorrected memory errors (ECC) on GPU-a",)


def test_a_device_without_ecc_has_no_errors() -> None:
    assert found_in(samples(lambda t: changed(t, ecc_uncorrected=None))) == ()


def test_disturbances_count_from_the_first_measured_request_to_the_last_answer() -> None:
    """The drain's requests are in p95, and so is what was sent before the window was steady."""
    record = launch(run(start=20 * S, end=30 * S, ended=40 * S))
    measured = (
        request((16 * S,), sent_ns=15 * S),
        request((19 * S,), sent_ns=18 * S),
        request((11 * S,), sent_ns=10 * S, phase="warmup"),
    )

    def slowed(at: float) -> tuple[str, ...]:
        found = samples(lambda t: changed(t, throttle_reasons=0x40 if t == round(at * S) else 0))
        return disturbances(record, LaunchData(measured, static(), found)).spoiled

    assert [bool(slowed(at)) for at in (14.9, 15.0, 25.0, 40.0, 40.1)] == [False, True, True, True, False]
    assert slowed(40.0)[0].startswith("chat/1: the clocks of GPU-a were slowed down (hardware thermal slowdown)")


# ---------------------------------------------------------------- strangers


def test_a_process_that_is_not_the_stacks_is_named_once_a_device() -> None:
    found = span(samples(lambda t: changed(t, process_ids=(11, 12, 99) if t > 30 * S else (11, 12))))
    assert list(strangers(found, own=frozenset({11, 12}))) == ["another process used GPU-a (host pid 99)"]
    assert list(strangers(found, own=frozenset({11}))) == ["another process used GPU-a (host pid 12, 99)"]
    assert list(strangers(found, own=frozenset({11, 12, 99}))) == []


def test_without_process_lists_nothing_is_said_about_strangers() -> None:
    assert list(strangers(span(samples(lambda t: changed(t, process_ids=None))), own=frozenset())) == []


def launched(
    lists: Callable[[int], tuple[int, ...] | None], *cells: tuple[int, int], told: tuple[int, ...] | None = None
) -> tuple[str, ...]:
    """What spoils a launch that was asked for at 1 s, with cells from and to these seconds; lists as on a GPU, every 5 s."""
    record = build(passing()).recording.launches[0]
    assert record.cold_start is not None
    start = record.cold_start.model_copy(update={"requested_ns": S})
    runs = tuple(run(f"cell/{begin}", start=begin * S, end=end * S) for begin, end in cells)
    found = tuple(
        sample.model_copy(update={"stack_processes": told if sample.t_ns == 2 * S else None})
        for sample in samples(lambda t: changed(t, process_ids=lists(t // S) if t % (5 * S) == 0 else None))
    )
    data = LaunchData((), static(), found)
    return disturbances(launch(*runs).model_copy(update={"cold_start": start}), data).spoiled


CELLS = ((20, 30), (31, 55))
FOREIGN = "another process used GPU-a (host pid 666)"


def from_s(second: int, until: int = 99) -> Callable[[int], tuple[int, ...]]:
    return lambda s: () if s < 5 else (11, STRANGER) if second <= s < until else (11,)


def test_a_stranger_that_comes_between_two_cells_and_stays_is_seen() -> None:
    assert launched(from_s(31), *CELLS) == (FOREIGN,)
    assert launched(from_s(31), *CELLS, told=(11,)) == (FOREIGN,)


def test_a_stranger_that_comes_while_the_stack_starts_and_stays_is_seen_where_its_own_are_told() -> None:
    assert launched(from_s(10), *CELLS, told=(11,)) == (f"before the first cell {FOREIGN}", FOREIGN)


def test_who_came_while_the_stack_started_cannot_be_told_where_its_own_are_not() -> None:
    """Its own workers come then, too."""
    assert launched(from_s(10), *CELLS) == ()
    assert launched(from_s(10), *CELLS, told=()) == ()


def test_a_stranger_that_goes_before_the_first_cell_spoils_the_cold_start() -> None:
    assert launched(from_s(10, 20), *CELLS, told=(11,)) == (f"before the first cell {FOREIGN}",)


def test_a_process_in_a_single_list_of_the_start_may_be_the_stacks_own_and_never_told() -> None:
    assert launched(from_s(10, 15), *CELLS, told=(11,)) == ()


def test_a_stacks_own_new_worker_is_no_stranger_where_it_is_told() -> None:
    assert launched(from_s(40), *CELLS, told=(11, STRANGER)) == ()


def test_a_told_process_that_never_used_the_device_does_not_make_the_server_a_stranger() -> None:
    """The command asked an engine for containers to start it."""
    assert launched(from_s(99), *CELLS, told=(4000,)) == ()
    assert launched(from_s(40), *CELLS, told=(4000,)) == (FOREIGN,)


def test_a_first_cell_that_is_too_short_for_a_process_list_knows_the_next_one() -> None:
    assert launched(from_s(10), (21, 23), (31, 50)) == ()


def test_what_is_told_of_a_stack_that_servegate_did_not_start_counts_in_its_cells() -> None:
    found = [sample.model_copy(update={"stack_processes": (11,)}) for sample in samples(one)]
    data = LaunchData((), static(), found)
    assert disturbances(launch(run(start=10 * S, end=50 * S)), data).spoiled == (
        "another process used GPU-a (host pid 12)",
    )


# ---------------------------------------------------------------- never read


@pytest.mark.parametrize(
    "changes, named",
    [
        ({}, ()),
        ({"throttle_reasons": None}, ("clocks held down",)),
        ({"ecc_uncorrected": None}, ("memory errors",)),
        ({"process_ids": None}, ("other processes",)),
        (
            {"throttle_reasons": None, "ecc_uncorrected": None, "process_ids": None},
            ("clocks held down", "memory errors", "other processes"),
        ),
    ],
)
def test_what_was_never_read_is_named(changes: dict[str, object], named: tuple[str, ...]) -> None:
    found = samples(lambda t: changed(t, **changes))
    assert unread(static(), found, start_ns=10 * S, end_ns=50 * S) == named
    told_of = disturbances(launch(run(start=10 * S, end=50 * S)), LaunchData((), static(), found))
    assert told_of == Disturbances(unread=named, notes=() if PROCESSES in named else UNTOLD)


def test_a_counter_that_fails_before_the_first_cell_was_not_read_there() -> None:
    found = samples(lambda t: changed(t, ecc_uncorrected=3 if t < 5 * S else None))
    assert unread(static(), found, start_ns=10 * S, end_ns=50 * S) == ("memory errors",)


def test_one_reading_of_a_slow_counter_beside_a_short_window_will_do() -> None:
    found = samples(lambda t: changed(t, process_ids=(11,) if t % (5 * S) == 0 else None))
    assert unread(static(), found, start_ns=11 * S, end_ns=12 * S) == ()


def test_one_device_without_a_reading_is_enough_to_say_so() -> None:
    found = samples(lambda t: [steady(A, t), DeviceSample(uuid=B, throttle_reasons=0, process_ids=())])
    assert unread(static(device(A), device(B)), found, start_ns=10 * S, end_ns=50 * S) == ("memory errors",)


def test_of_instances_the_board_tells_clocks_and_errors_and_each_instance_its_processes() -> None:
    parts = [device("MIG-1", "instance"), device(A, "board of all instances")]
    whole = samples(lambda t: [DeviceSample(uuid="MIG-1", process_ids=()), steady(A, t)])
    assert unread(static(*parts), whole, start_ns=10 * S, end_ns=50 * S) == ()
    assert unread(static(parts[0]), whole, start_ns=10 * S, end_ns=50 * S) == ("clocks held down", "memory errors")
    assert list(holes(Span.of(static(*parts), whole, 10 * S, 50 * S))) == []


# ---------------------------------------------------------------- not watched for a while


def test_how_often_each_sign_is_read_is_what_the_sampler_does() -> None:
    periods = [EVERY.get(name, (1, 0))[0] for name in ("clocks", ECC, PROCESS_LISTS)]
    assert [sign.every for sign in SIGNS] == periods


def silent(begin: float, end: float, *names: str) -> list[TelemetrySample]:
    """Nothing of these (or no sample at all) between two seconds."""
    if not names:
        return samples(one, skip=lambda t: begin * S < t < end * S)
    return samples(lambda t: changed(t, **dict.fromkeys(names)) if begin * S < t < end * S else one(t))


def test_a_silent_sampler_is_a_hole_in_every_sign_that_should_have_been_read() -> None:
    assert list(holes(span(silent(20, 30)))) == [
        "clocks held down of GPU-a: not read for 10.0 s",
        "memory errors of GPU-a: not read for 10.0 s",
        "other processes of GPU-a: not read for 10.0 s",
    ]
    assert list(holes(span(silent(12, 60)))) == list(holes(span(silent(12, 50.1))))
    assert list(holes(span(silent(0, 20)))) == list(holes(span(silent(20, 30))))


@pytest.mark.parametrize(
    "name, borne, missed",
    [("throttle_reasons", 3.1, 3.2), ("ecc_uncorrected", 4.0, 4.1), ("process_ids", 8.0, 8.1)],
)
def test_a_hole_is_three_seconds_more_than_the_time_between_two_readings(
    name: str, borne: float, missed: float
) -> None:
    assert list(holes(span(silent(20, 20 + borne, name)))) == []
    assert len(list(holes(span(silent(20, 20 + missed, name))))) == 1


def test_a_slower_sampler_may_be_silent_for_longer() -> None:
    slow = static(interval_ns=2 * S)
    found = [sample for sample in samples(one) if sample.t_ns % (2 * S) == 0]
    assert list(holes(Span.of(slow, found, 10 * S, 50 * S))) == []
    gone = [sample for sample in found if not 20 * S < sample.t_ns < 26 * S]
    assert [text[:16] for text in holes(Span.of(slow, gone, 10 * S, 50 * S))] == ["clocks held down"]


def test_a_short_cell_between_two_process_lists_was_watched() -> None:
    found = samples(lambda t: changed(t, process_ids=(11,) if t % (5 * S) == 0 else None))
    assert list(holes(span(found, start=11, end=14))) == []


def test_a_sampler_that_starts_a_little_late_is_borne() -> None:
    assert list(holes(span(silent(0, 12)))) == []


def test_a_cell_without_a_single_sample_was_not_watched() -> None:
    found = disturbances(launch(run(start=100 * S, end=102 * S)), DATA)
    assert found.unwatched == ("chat/1: no telemetry sample",)


def test_what_is_never_read_makes_no_hole() -> None:
    found = samples(lambda t: changed(t, ecc_uncorrected=None), skip=lambda t: 20 * S < t < 26 * S)
    seen = disturbances(launch(run(start=10 * S, end=50 * S)), LaunchData((), static(), found))
    assert seen.unwatched == ("chat/1: clocks held down of GPU-a: not read for 6.0 s",)
    assert seen.unread == ("memory errors",)


def test_of_a_cpu_nothing_is_asked() -> None:
    data = LaunchData((), static(backend="cpu"), samples(lambda t: changed(t, process_ids=(t // S,))))
    assert disturbances(launch(run(start=10 * S, end=50 * S)), data) == Disturbances()
    assert disturbances(launch(run(start=100 * S, end=200 * S)), data) == Disturbances()


def test_without_telemetry_or_without_cells_there_is_nothing_to_disturb() -> None:
    assert disturbances(launch(run()), LaunchData((), Absent(absent="no driver"), ())) == Disturbances()
    assert disturbances(launch(), DATA) == Disturbances()


# ---------------------------------------------------------------- what follows


def with_samples(
    built: Built, change: Callable[[LaunchRecord, TelemetrySample], TelemetrySample | None], *sides: Side
) -> Built:
    data = dict(built.data)
    for record in built.recording.launches:
        if record.side in sides:
            old = data[record.directory]
            kept = tuple(new for sample in old.samples if (new := change(record, sample)) is not None)
            data[record.directory] = LaunchData(old.requests, old.telemetry, kept)
    return Built(built.config, built.recording, data)


def every(sample: TelemetrySample, **changes: object) -> TelemetrySample:
    return sample.model_copy(update={"devices": tuple(one.model_copy(update=changes) for one in sample.devices)})


def telemetry_of(judgement: Judgement) -> HardCheck:
    return next(check for check in judgement.checks if check.name == "telemetry")


def judged(built: Built) -> Judgement:
    return judge(built.config, built.recording, built.data)


def void(built: Built, side: Side) -> str | None:
    record = next(one for one in built.recording.launches if one.side is side)
    return void_reason(record, built.data[record.directory], floor=built.recording.floor)


@pytest.mark.parametrize("side", list(Side))
def test_a_stranger_on_one_side_since_the_start_makes_the_run_invalid(side: Side) -> None:
    def come(record: LaunchRecord, sample: TelemetrySample) -> TelemetrySample:
        assert record.cold_start is not None
        late = sample.t_ns >= record.cold_start.requested_ns + 10 * S
        return every(sample, process_ids=(SERVER_PID, STRANGER)) if late else sample

    built = with_samples(build(passing()), come, side)
    assert judged(built).word is Word.INVALID
    assert f"another process used {UUID} (host pid 666)" in telemetry_of(judged(built)).detail
    assert "another process" in (void(built, side) or "")


def test_slowed_clocks_while_the_last_requests_end_make_the_run_invalid() -> None:
    def slow(record: LaunchRecord, sample: TelemetrySample) -> TelemetrySample:
        drained = any(cell.steady_end_ns < sample.t_ns <= cell.ended_ns for cell in record.cells)
        return every(sample, throttle_reasons=0x40) if drained else sample

    built = with_samples(build(passing()), slow, *Side)
    assert judged(built).word is Word.INVALID
    assert "hardware thermal slowdown" in telemetry_of(judged(built)).detail


def test_a_sampler_that_is_silent_for_most_of_a_cell_makes_the_launch_void_and_the_run_invalid() -> None:
    def hush(record: LaunchRecord, sample: TelemetrySample) -> TelemetrySample | None:
        within = any(cell.steady_start_ns + 2 * S < sample.t_ns < cell.ended_ns for cell in record.cells)
        return None if within else sample

    built = with_samples(build(passing(limits={"advisory": ["gpu_utilization"]}, electricity=False)), hush, *Side)
    assert judged(built).word is Word.INVALID
    assert "clocks held down of" in telemetry_of(judged(built)).detail
    assert "not read for" in (void(built, Side.CANDIDATE) or "")


def test_the_process_lists_that_are_not_read_anywhere_leave_the_rest_good() -> None:
    built = with_samples(build(passing()), lambda _, sample: every(sample, process_ids=None), *Side)
    check = telemetry_of(judged(built))
    assert check.ok
    assert PROCESSES in check.detail
