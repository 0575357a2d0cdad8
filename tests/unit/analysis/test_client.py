"""Did the load generator keep up?"""

from __future__ import annotations

from servegate_action.analysis.checklist import void_reason
from servegate_action.analysis.client_check import certificate_check, client_check
from servegate_action.analysis.client_trouble import client_trouble, most_lag_ns
from servegate_action.analysis.rounds import gather
from tests.support.making import MS, S, client, failed, request, run
from tests.support.recordings import Built, build, passing

ANSWER = request((100 * MS, 400 * MS), sent_ns=20 * MS, scheduled_ns=0, end_ns=420 * MS)
OPEN = ANSWER.model_copy(update={"slot": None})


def test_in_closed_loop_lag_is_held_against_the_duration_of_a_request() -> None:
    assert most_lag_ns([ANSWER]) == 0.05 * 400 * MS
    never_sent = ANSWER.model_copy(update={"sent_ns": None})
    assert most_lag_ns([never_sent]) == 0.05 * 420 * MS


def test_in_open_loop_lag_is_held_against_ttft_and_10_ms() -> None:
    assert most_lag_ns([OPEN]) == 0.05 * 100 * MS
    slow = request((900 * MS, 901 * MS), slot=None)
    assert most_lag_ns([slow]) == 10 * MS


def test_without_an_answer_10_ms_are_allowed() -> None:
    assert most_lag_ns([failed()]) == 10 * MS


def test_each_trouble_is_a_sentence() -> None:
    bad = client(lag_ns=21 * MS, cpu_ns=950 * MS, wall_ns=S, drift_ns=2 * MS)
    assert client_trouble(run(health=bad), [ANSWER]) == (
        "chat/1: requests were sent late, dispatch lag p99 21.00 ms, allowed 20.00 ms",
        "chat/1: the client used 95% of its cores",
        "chat/1: the clock was stepped by 2.00 ms",
    )


def test_a_client_that_kept_up_has_no_trouble() -> None:
    assert client_trouble(run(health=client(lag_ns=19 * MS, cpu_ns=800 * MS, wall_ns=S)), [ANSWER]) == ()


def test_cpu_time_without_any_wall_time_is_a_saturated_client() -> None:
    assert client_trouble(run(health=client(cpu_ns=1, wall_ns=0)), [ANSWER]) == (
        "chat/1: the client used 100% of its cores",
    )


def late(built: Built, *, launch: int) -> Built:
    """The same run, but one launch's requests left 80 ms late."""
    records = list(built.recording.launches)
    cells = tuple(
        one.model_copy(update={"client": one.client.model_copy(update={"dispatch_lag_p99_ns": 80 * MS})})
        for one in records[launch].cells
    )
    records[launch] = records[launch].model_copy(update={"cells": cells})
    return Built(built.config, built.recording.model_copy(update={"launches": tuple(records)}), built.data)


def test_a_late_client_in_a_launch_that_counts_makes_the_run_invalid() -> None:
    built = late(build(passing()), launch=2)
    check = client_check(gather(built.config, built.recording, built.data))
    assert not check.ok
    assert check.kind == "invalid"
    assert check.detail.startswith("round 2, candidate, chat/1: requests were sent late, dispatch lag p99 80.00 ms")


def test_a_good_client_says_how_late_it_was_at_most() -> None:
    built = build(passing())
    check = client_check(gather(built.config, built.recording, built.data))
    assert check.ok
    assert check.detail == "the load generator kept up; dispatch lag p99 0.30 ms at most"


def test_a_late_client_voids_the_launch() -> None:
    built = late(build(passing()), launch=0)
    record = built.recording.launches[0]
    reason = void_reason(record, built.data[record.directory])
    assert reason is not None
    assert reason.startswith("chat/1: requests were sent late")
    good = built.recording.launches[1]
    assert void_reason(good, built.data[good.directory]) is None


def test_slowed_clocks_void_the_launch() -> None:
    built = build(passing(throttle_reasons=0x08))
    record = built.recording.launches[0]
    reason = void_reason(record, built.data[record.directory])
    assert reason is not None
    assert "hardware slowdown" in reason


def test_a_failed_certificate_makes_the_run_invalid_and_gives_the_advice() -> None:
    built = build(passing(certificate_passed=False))
    (check,) = certificate_check(built.recording, gather(built.config, built.recording, built.data))
    assert not check.ok
    assert "97% of a core per process" in check.detail
    assert check.advice == "use more client processes: load.processes: 4"


def test_a_run_without_a_certificate_is_invalid() -> None:
    built = build(passing())
    bare = built.recording.model_copy(update={"certificates": ()})
    (check,) = certificate_check(bare, gather(built.config, bare, built.data))
    assert not check.ok
    assert check.detail == "the load generator was not certified"


def test_before_the_first_launch_a_missing_certificate_says_nothing() -> None:
    built = build(passing(rounds=0))
    bare = built.recording.model_copy(update={"certificates": ()})
    assert certificate_check(bare, gather(built.config, bare, built.data)) == []
    assert certificate_check(built.recording, gather(built.config, built.recording, {}))[0].ok
