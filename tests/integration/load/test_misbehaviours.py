"""Every misbehaviour of a server gives the right TTFT, TPOT, N and outcome: the server's own stamps are the truth."""

from __future__ import annotations

from statistics import median

import pytest

from servegate_action.load.summary import tpot_ns, ttft_ns
from servegate_action.records import Absent, TokenSource
from tests.integration.load.measuring import Seen, measure
from tests.integration.load.misbehaviours import COALESCED, FAILURES, FINE, FIRST, GAP, HEAVY, SINGLE, UNCOUNTED, N

TRIES = 6
RECUT = ("cut in odd places", "multi-byte characters cut")
"""Pieces 2 ms apart, whatever the tokens' gap."""


def key(name: str) -> str:
    """A script's name as it may stand in a prompt."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


@pytest.fixture(scope="module")
def seen() -> Seen:
    """All scripts at once, each on its own connection.

    Measured again when the machine kept the client from its turn for longer than a gap, which the client itself tells:
    tokens shared a read that were sent apart, or reads came without a stamp.
    """
    failing = {name: script for name, (script, _) in FAILURES.items()}
    scripts = {key(name): script for name, script in (FINE | UNCOUNTED | SINGLE | COALESCED | failing).items()}
    for _ in range(TRIES):
        found = measure(scripts)
        shared = sum(found.by_name[key(name)].coalesced_reads for name in FINE if name not in RECUT)
        if not shared and not found.result.run.client.reads_without_kernel_stamp:
            return found
    pytest.fail(f"{TRIES} times this machine kept the client from reading within {GAP / 1e6:g} ms")


@pytest.mark.parametrize("name", FINE)
def test_odd_but_well_formed_streams_are_read_exactly(seen: Seen, name: str) -> None:
    request = seen.by_name[key(name)]
    truth = seen.truth(key(name))
    assert (request.ok, request.error) == (True, None)
    assert (request.output_tokens, request.prompt_tokens, request.token_source) == (N, 5, TokenSource.USAGE)
    assert len(request.token_ns) == len(truth)
    assert all(stamp >= sent for stamp, sent in zip(request.token_ns, truth, strict=True))
    assert median(stamp - sent for stamp, sent in zip(request.token_ns, truth, strict=True)) < GAP


def test_floods_of_bytes_are_read_exactly() -> None:
    seen = measure({key(name): script for name, script in HEAVY.items()})
    for request in seen.result.requests:
        truth = seen.truth(request.id)
        assert (request.ok, request.error) == (True, None)
        assert (request.output_tokens, len(request.token_ns)) == (N, len(truth))
        assert all(stamp >= sent for stamp, sent in zip(request.token_ns, truth, strict=True))


@pytest.mark.parametrize("name", [name for name in FINE if name not in RECUT])
def test_time_per_output_token_is_the_servers_own(seen: Seen, name: str) -> None:
    request = seen.by_name[key(name)]
    truth = seen.truth(key(name))
    first = request.event_tokens[0] if request.event_tokens else 1
    found = tpot_ns(request)
    assert isinstance(found, float)
    assert found == pytest.approx((truth[-1] - truth[0]) / (N - first), abs=GAP / 4)


def test_an_empty_or_role_event_is_no_first_token(seen: Seen) -> None:
    for name in ("empty event first", "chat, role first", "comments"):
        found = ttft_ns(seen.by_name[key(name)], open_loop=False)
        assert isinstance(found, float)
        assert found >= FIRST


def test_a_late_empty_finish_event_does_not_slow_the_tokens(seen: Seen) -> None:
    request = seen.by_name[key("late empty finish event")]
    assert request.end_ns - request.token_ns[-1] > 5 * GAP
    assert request.token_ns[-1] - request.token_ns[0] < 3 * (N - 1) * GAP


def test_reasoning_counts_as_token_and_the_answer_has_its_own_first_time(seen: Seen) -> None:
    request = seen.by_name[key("reasoning first")]
    assert request.first_answer_ns == request.token_ns[3]
    assert seen.by_name[key("both reasoning fields")].first_answer_ns is None
    assert seen.by_name["ordinary"].first_answer_ns == seen.by_name["ordinary"].token_ns[0]


def test_usage_on_every_event_tells_the_tokens_of_each(seen: Seen) -> None:
    assert seen.by_name[key("two tokens an event, usage on each")].event_tokens == (2, 2, 2, 2)
    assert seen.by_name[key("usage on every event")].event_tokens == (1,) * N
    assert seen.by_name[key("two tokens an event")].event_tokens is None


def test_without_usage_events_are_counted_and_it_says_so(seen: Seen) -> None:
    request = seen.by_name[key("no usage at all")]
    assert (request.ok, request.output_tokens, request.token_source) == (True, N, TokenSource.EVENTS)


def test_an_answer_in_a_single_event_has_no_first_token_time(seen: Seen) -> None:
    request = seen.by_name[key("one event for all")]
    assert (request.ok, request.output_tokens) == (True, N)
    assert isinstance(ttft_ns(request, open_loop=False), Absent)
    assert isinstance(tpot_ns(request), Absent)


def test_several_events_in_one_read_are_counted_as_lost_stamps(seen: Seen) -> None:
    request = seen.by_name[key("several events in one read")]
    assert (request.ok, len(request.token_ns), request.coalesced_reads) == (True, N, 2)

    assert seen.result.run.client.coalesced_reads >= 2


@pytest.mark.parametrize("name", FAILURES)
def test_what_is_no_whole_answer_is_a_failed_request(seen: Seen, name: str) -> None:
    request = seen.by_name[key(name)]
    assert not request.ok
    assert FAILURES[name][1] in str(request.error)
    assert isinstance(ttft_ns(request, open_loop=False), Absent)
    assert isinstance(tpot_ns(request), Absent)


def test_a_failed_request_keeps_the_tokens_that_had_arrived(seen: Seen) -> None:
    assert len(seen.by_name[key("closed in the middle")].token_ns) == 3
    assert len(seen.by_name[key("error inside the stream")].token_ns) == 3


def test_a_refused_request_is_not_sent_again(seen: Seen) -> None:
    names = [truth["name"] for truth in seen.server.truth]
    assert names.count("429") == names.count("503") == 1


def test_odd_answers_of_one_server_leave_no_connection_open(seen: Seen) -> None:
    assert seen.server.open == 0
