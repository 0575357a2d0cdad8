"""One cell of one launch: the definitions, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.cells import CellMeasures, Latencies, measure_cell, token_trace
from servegate_action.config.limits import Slo
from servegate_action.records import Absent, RequestRecord, TokenSource
from tests.support.making import MS, S, failed, plan, request, run

NO_SLO = Slo()


def measured(*requests: RequestRecord, start: int = 0, end: int = 10 * S, rate: float | None = None) -> CellMeasures:
    return measure_cell(plan(rate=rate), run(start=start, end=end), requests, slo=NO_SLO)


def paced(first_ms: int, gap_ms: int, count: int) -> tuple[int, ...]:
    return tuple((first_ms + gap_ms * index) * MS for index in range(count))


# ---------------------------------------------------------------- TTFT


def test_ttft_counts_from_the_real_send_in_closed_loop() -> None:
    cell = measured(request(paced(100, 10, 4), scheduled_ns=5 * MS, sent_ns=20 * MS))
    assert cell.ttft.p95_ms == 80.0


def test_ttft_counts_from_the_schedule_in_open_loop_and_both_are_kept() -> None:
    cell = measured(request(paced(100, 10, 4), scheduled_ns=5 * MS, sent_ns=20 * MS, slot=None), rate=1.0)
    assert cell.ttft.p95_ms == 95.0
    assert cell.ttft_from_sent.p95_ms == 80.0


def test_an_answer_in_a_single_event_has_no_ttft_of_its_own() -> None:
    cell = measured(request((100 * MS,), output_tokens=8))
    assert cell.ttft.p95_ms == Absent(
        absent="1 of 1 requests have none of their own: the whole answer came in a single event"
    )
    assert isinstance(cell.tpot.p95_ms, Absent)


def test_an_answer_whose_events_share_one_moment_is_a_single_event_too() -> None:
    assert isinstance(measured(request((100 * MS, 100 * MS, 100 * MS))).ttft.p95_ms, Absent)


def test_an_answer_of_one_token_has_a_ttft_and_no_tpot() -> None:
    cell = measured(request((100 * MS,), requested=1))
    assert cell.ttft.p95_ms == 100.0
    assert cell.tpot.p95_ms == Absent(absent="no request of this cell can have one")


def test_a_request_that_was_never_sent_but_answered_has_no_ttft() -> None:
    assert isinstance(measured(request(paced(100, 10, 4), sent_ns=None)).ttft.p95_ms, Absent)


def test_few_unmeasured_answers_are_left_out_and_many_take_the_p95_away() -> None:
    own = [request(paced(100, 10, 4), name=str(index)) for index in range(99)]
    joined = request((100 * MS,), output_tokens=8)
    assert measured(*own, joined).ttft.p95_ms == 100.0
    assert isinstance(measured(*own[:98], joined, joined).ttft.p95_ms, Absent)


def test_failed_requests_count_as_infinite_beside_the_value_of_the_successes() -> None:
    cell = measured(*[request(paced(100, 10, 4)) for _ in range(94)], *[failed() for _ in range(6)])
    assert cell.ttft.p95_ms == np.inf
    assert cell.tpot.p95_ms == np.inf
    assert cell.ttft.p95_ok_ms == 100.0
    assert cell.failed_share == 0.06
    assert cell.failures == (("HTTP 503", 6),)


def test_nothing_but_failures_leaves_no_value_of_the_successes() -> None:
    cell = measured(failed(error=None))
    assert cell.ttft.p95_ok_ms == Absent(absent="no request succeeded")
    assert cell.failures == (("no reason given", 1),)


def test_time_to_first_answer_token_leaves_reasoning_out() -> None:
    cell = measured(request(paced(100, 10, 4), first_answer_ns=130 * MS), failed())
    assert cell.ttfo.p95_ok_ms == 130.0
    silent = request(paced(100, 10, 4)).model_copy(update={"first_answer_ns": None})
    assert measured(silent).ttfo.unmeasured == 1


def test_warmup_requests_are_in_no_latency() -> None:
    cell = measured(request(paced(900, 10, 4), phase="warmup"), request(paced(100, 10, 4)))
    assert cell.attempted == 1
    assert cell.ttft.p95_ms == 100.0


# ---------------------------------------------------------------- TPOT


def test_tpot_is_the_time_after_the_first_event_per_token_after_it() -> None:
    # 5 tokens, 4 after the first, 60 ms: 15 ms each.
    assert measured(request((100 * MS, 110 * MS, 160 * MS), output_tokens=5)).tpot.p95_ms == 15.0


def test_tpot_takes_the_tokens_of_the_first_event_off_when_the_server_tells_them() -> None:
    # 3 + 1 + 4 tokens: 5 after the first event, 60 ms.
    assert measured(request((100 * MS, 110 * MS, 160 * MS), event_tokens=(3, 1, 4))).tpot.p95_ms == 12.0


def test_tpot_is_absent_and_never_zero_when_all_tokens_were_in_the_first_event() -> None:
    cell = measured(request((100 * MS, 120 * MS), event_tokens=(4, 0)))
    assert isinstance(cell.tpot.p95_ms, Absent)


def test_an_ok_request_without_any_event_has_neither_latency() -> None:
    cell = measured(request((), requested=4, output_tokens=4))
    assert isinstance(cell.ttft.p95_ms, Absent)
    assert isinstance(cell.tpot.p95_ms, Absent)


# ---------------------------------------------------------------- rates


def test_output_rate_counts_tokens_by_event_inside_the_steady_window() -> None:
    # Events at 0.5, 1.5, 2.5, 3.5 s; the window [1 s, 3 s) holds two of them.
    cell = measured(request(paced(500, 1000, 4)), start=1 * S, end=3 * S)
    assert cell.output_tokens_per_second == 1.0


def test_tokens_of_requests_in_flight_at_the_edges_count_warmup_included() -> None:
    edge = request(paced(500, 1000, 4), phase="warmup")
    cell = measured(edge, request(paced(1600, 1000, 4)), start=1 * S, end=3 * S)
    assert cell.output_tokens_per_second == 2.0


def test_tokens_of_failed_requests_are_in_no_rate() -> None:
    broken = request(paced(500, 1000, 4), ok=False, error="cut off", requested=9)
    cell = measured(broken, request(paced(500, 1000, 4)), start=1 * S, end=3 * S)
    assert cell.output_tokens_per_second == 1.0


def test_events_of_several_tokens_share_n_evenly_after_the_first() -> None:
    # N = 9: first event 1 token, each of the other four 2.
    cell = measured(request(paced(500, 1000, 5), output_tokens=9), start=1 * S, end=3 * S)
    assert cell.output_tokens_per_second == 2.0
    assert not cell.single_token_events


def test_a_first_event_of_several_tokens_does_not_make_the_rest_look_faster() -> None:
    """32 tokens, five of them let out together: 27 steps of 100 ms, whatever the first event holds."""
    counted = request(paced(500, 100, 28), output_tokens=32)
    together = counted.model_copy(update={"first_event_tokens": 5})
    cell = measured(together, start=500 * MS, end=4 * S)
    assert cell.tpot.ns.tolist() == [100 * MS]
    assert cell.output_tokens_per_second == 32 / 3.5


def test_per_event_usage_places_tokens_and_is_scaled_to_n() -> None:
    # 2 + 4 + 2 = 8 said, N = 16: the middle event holds 8.
    counted = request((500 * MS, 1500 * MS, 3500 * MS), event_tokens=(2, 4, 2), output_tokens=16)
    assert measured(counted, start=1 * S, end=3 * S).output_tokens_per_second == 4.0


def test_usage_of_zero_tokens_in_every_event_is_no_usage() -> None:
    silent = request((500 * MS, 1500 * MS), event_tokens=(0, 0), output_tokens=3)
    assert measured(silent, start=1 * S, end=3 * S).output_tokens_per_second == 1.0


def test_a_single_event_holds_all_its_tokens() -> None:
    cell = measured(request((1500 * MS,), output_tokens=8), start=1 * S, end=3 * S)
    assert cell.output_tokens_per_second == 4.0


@given(
    st.lists(
        st.tuples(st.integers(2, 12), st.integers(0, 30), st.one_of(st.none(), st.integers(1, 5))),
        min_size=1,
        max_size=20,
    )
)
def test_the_tokens_of_all_events_add_up_to_n(shapes: list[tuple[int, int, int | None]]) -> None:
    requests = [
        request(
            paced(100, 7, events),
            output_tokens=events + more,
            event_tokens=None if each is None else [each] * events,
            requested=events + more,
        )
        for events, more, each in shapes
    ]
    total = sum(events + more for events, more, _ in shapes)
    cell = measured(*requests, end=10 * S)
    assert cell.output_tokens_per_second == pytest.approx(total / 10.0)
    assert sum(cell.trace) == pytest.approx(total)


def test_input_rate_counts_a_prompt_at_its_first_token() -> None:
    inside, before = request(paced(1500, 1000, 4)), request(paced(500, 1000, 4))
    assert measured(inside, before, start=1 * S, end=3 * S).input_tokens_per_second == 50.0


def test_input_rate_is_absent_when_the_server_does_not_count_prompts() -> None:
    cell = measured(request(paced(1500, 1000, 4), prompt_tokens=None))
    assert cell.input_tokens_per_second == Absent(absent="the server does not report prompt_tokens")
    assert cell.mean_prompt_tokens == Absent(absent="the server does not report prompt_tokens")


def test_a_cell_that_never_got_steady_has_no_rate() -> None:
    cell = measured(request(paced(500, 1000, 4)), start=3 * S, end=3 * S)
    assert cell.output_tokens_per_second == Absent(absent="the cell never reached a steady state")


def test_a_window_without_tokens_has_no_rate_rather_than_zero() -> None:
    cell = measured(request(paced(5000, 1000, 4)), start=1 * S, end=3 * S)
    assert cell.output_tokens_per_second == Absent(absent="no token arrived inside the steady window")


# ---------------------------------------------------------------- decode


def test_server_decode_divides_by_the_time_with_a_decode_in_flight() -> None:
    # Two decodes overlap from 1 to 4 s and from 2 to 5 s, a third runs from 7 to 8 s: 5 s of 10. Tokens 3 + 3 + 1.
    cell = measured(
        request(paced(1000, 1000, 4)), request(paced(2000, 1000, 4)), request(paced(7000, 1000, 2)), end=10 * S
    )
    assert cell.decode_tokens_per_second == pytest.approx(7 / 5)


def test_prefill_is_not_in_the_decode_rate() -> None:
    # The same decode after a prefill of 1 s and of 5 s.
    fast, slow = measured(request(paced(1000, 500, 5))), measured(request(paced(5000, 500, 5)))
    assert fast.decode_tokens_per_second == slow.decode_tokens_per_second == pytest.approx(2.0)


def test_without_a_decode_in_flight_there_is_no_decode_rate() -> None:
    cell = measured(request((1500 * MS,), requested=1))
    assert cell.decode_tokens_per_second == Absent(absent="no decode was in flight inside the steady window")
    assert cell.decode_user_median == Absent(absent="no request has a TPOT")
    assert cell.decode_user_p5 == Absent(absent="no request has a TPOT")


def test_a_decode_without_a_token_in_the_window_has_no_rate() -> None:
    cell = measured(request((500 * MS, 9500 * MS)), start=1 * S, end=3 * S)
    assert cell.decode_tokens_per_second == Absent(absent="no token was decoded inside the steady window")


def test_decode_per_user_is_the_inverse_of_tpot() -> None:
    cell = measured(*[request(paced(100, gap, 4)) for gap in (10, 20, 40)])
    assert cell.decode_user_median == pytest.approx(50.0)
    assert cell.decode_user_p5 == pytest.approx(25.0)


# ---------------------------------------------------------------- goodput, trace, the rest


def test_goodput_is_the_share_of_attempted_requests_that_meet_every_slo() -> None:
    requests = [
        request(paced(100, 10, 4)),
        request(paced(300, 10, 4)),
        request(paced(100, 40, 4)),
        request((90 * MS,), requested=1),
        failed(),
    ]
    slo = Slo(ttft_p95_ms=200, tpot_p95_ms=20)
    assert measure_cell(plan(), run(), requests, slo=slo).goodput == pytest.approx(2 / 5)
    only_first = Slo(ttft_p95_ms=200)
    assert measure_cell(plan(), run(), requests, slo=only_first).goodput == pytest.approx(3 / 5)
    only_pace = Slo(tpot_p95_ms=20)
    assert measure_cell(plan(), run(), requests, slo=only_pace).goodput == pytest.approx(3 / 5)


def test_goodput_is_absent_without_a_slo() -> None:
    assert measured(request(paced(100, 10, 4))).goodput == Absent(absent="no slo is declared")


def test_the_trace_holds_the_tokens_of_each_second_failed_requests_included() -> None:
    requests = [request(paced(500, 1000, 4)), request((700 * MS,), ok=False, error="cut off")]
    assert token_trace(requests, run(end=4 * S)) == (2.0, 1.0, 1.0, 1.0)


def test_a_trace_without_any_event_is_zeros_for_as_long_as_the_cell_ran() -> None:
    assert token_trace([failed()], run(end=2 * S)) == (0.0, 0.0)


def test_the_way_in_which_tokens_were_counted_is_kept() -> None:
    cell = measured(request(paced(100, 10, 4)), request(paced(100, 10, 4), source=TokenSource.EVENTS), failed())
    assert set(cell.token_sources) == {TokenSource.USAGE, TokenSource.EVENTS}


def test_latencies_say_how_many_are_missing_and_why() -> None:
    sample = Latencies(np.zeros(0), 3, "no stamps")
    assert sample.known == Absent(absent="3 of 3 requests have none of their own: no stamps")
