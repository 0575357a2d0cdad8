"""Did the load generator keep up?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from servegate_action.analysis.checklist import void_reason
from servegate_action.analysis.client_check import certificate_check, client_check
from servegate_action.analysis.client_trouble import client_trouble, thinning
from servegate_action.analysis.rounds import gather
from servegate_action.records import RequestRecord
from tests.support.making import MS, S, client, failed, request, run
from tests.support.recordings import Built, build, passing

ANSWER = request((100 * MS, 400 * MS), sent_ns=20 * MS, scheduled_ns=0, end_ns=420 * MS)
PROMPT = ANSWER.model_copy(update={"sent_ns": 1 * MS})
OPEN = ANSWER.model_copy(update={"slot": None})


def test_in_closed_loop_lag_is_the_share_of_time_in_which_slots_are_empty() -> None:
    assert thinning([ANSWER]) == 20 / 420
    assert thinning([ANSWER.model_copy(update={"sent_ns": None})]) == 0.0
    at_once = request((0, 0), scheduled_ns=0, sent_ns=0, end_ns=0)
    assert thinning([at_once]) == 0.0


def test_a_few_late_requests_among_many_do_not_thin_a_closed_loop() -> None:
    worst = client(lag_ns=20 * MS)
    assert client_trouble(run(health=worst), [ANSWER, *[PROMPT] * 9]) == ()
    assert client_trouble(run(health=worst), [ANSWER]) == (
        "chat/1: requests were sent late: slots were empty for 4.8% of the time, allowed 2%",
    )


@pytest.mark.parametrize(
    ("answered", "allowed"),
    [([OPEN], 5), ([request((900 * MS, 901 * MS), slot=None)], 10)],
    ids=["5 % of the median TTFT", "10 ms"],
)
def test_in_open_loop_lag_is_held_against_ttft_and_10_ms(answered: list[RequestRecord], allowed: int) -> None:
    assert client_trouble(run(health=client(lag_ns=allowed * MS)), answered) == ()
    assert client_trouble(run(health=client(lag_ns=allowed * MS + MS)), answered) == (
        f"chat/1: requests were sent late, dispatch lag p99 {allowed + 1}.00 ms, allowed {allowed}.00 ms",
    )


def test_where_nothing_was_answered_no_lateness_is_to_blame() -> None:
    assert client_trouble(run(health=client(lag_ns=12 * MS)), [failed()]) == ()


def test_each_trouble_is_a_sentence() -> None:
    bad = client(lag_ns=21 * MS, cpu_ns=950 * MS, wall_ns=S, drift_ns=2 * MS)
    assert client_trouble(run(health=bad), [ANSWER]) == (
        "chat/1: requests were sent late: slots were empty for 4.8% of the time, allowed 2%",
        "chat/1: the client used 95% of its cores",
        "chat/1: the clock was stepped by 2.00 ms",
    )


def test_a_client_that_kept_up_has_no_trouble() -> None:
    assert client_trouble(run(health=client(lag_ns=1, cpu_ns=800 * MS, wall_ns=S)), [PROMPT]) == ()


def test_cpu_time_without_any_wall_time_is_a_saturated_client() -> None:
    assert client_trouble(run(health=client(cpu_ns=1, wall_ns=0)), [PROMPT]) == (
        "chat/1: the client used 100% of its cores",
    )


def late(built: Built, *, launch: int) -> Built:
    """The same run, but each slot of one launch waited 80 ms before it sent again."""
    record = built.recording.launches[launch]
    cells = tuple(
        one.model_copy(update={"client": one.client.model_copy(update={"dispatch_lag_p99_ns": 80 * MS})})
        for one in record.cells
    )
    launches = list(built.recording.launches)
    launches[launch] = record.model_copy(update={"cells": cells})
    own = built.data[record.directory]
    waited = [
        one.model_copy(update={"scheduled_ns": (one.sent_ns or one.scheduled_ns) - 80 * MS}) for one in own.requests
    ]
    data = {**built.data, record.directory: replace(own, requests=waited)}
    return Built(built.config, built.recording.model_copy(update={"launches": tuple(launches)}), data)


def test_a_late_client_in_a_launch_that_counts_makes_the_run_invalid() -> None:
    built = late(build(passing()), launch=2)
    check = client_check(gather(built.config, built.recording, built.data))
    assert not check.ok
    assert check.kind == "invalid"
    assert check.detail.startswith("round 2, candidate, chat/1: requests were sent late: slots were empty for ")


def test_a_good_client_says_how_late_it_was_at_most() -> None:
    built = build(passing())
    check = client_check(gather(built.config, built.recording, built.data))
    assert check.ok
    assert check.detail == "the load generator kept up; dispatch lag p99 0.30 ms at most"


def test_a_late_client_voids_the_launch() -> None:
    built = late(build(passing()), launch=0)
    record = built.recording.launches[0]
    reason = void_reason(record, built.data[record.directory], floor=None)
    assert reason is not None
    assert reason.startswith("chat/1: requests were sent late")
    good = built.recording.launches[1]
    assert void_reason(good, built.data[good.directory], floor=None) is None


def test_slowed_clocks_void_the_launch() -> None:
    built = build(passing(throttle_reasons=0x08))
    record = built.recording.launches[0]
    reason = void_reason(record, built.data[record.directory], floor=None)
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
