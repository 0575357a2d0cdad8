"""Times, windows, tables, frames and metrics: the parts that need no socket."""

from __future__ import annotations

import io
from array import array
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.cells import measure_cell
from servegate_action.config.limits import Slo
from servegate_action.load.cell import Target, due_times, process_count, request_head, steady_window
from servegate_action.load.clock import OffsetTracker, sample_offset_ns
from servegate_action.load.exchange import Exchange
from servegate_action.load.job import PROGRESS, Entry, FrameReader, pack_entries, unpack_entries, write_frame
from servegate_action.load.pause import pause_s
from servegate_action.load.spill import Spill
from servegate_action.load.summary import gaps_ns, ordered, ranked, summarize, tokens_in, tpot_ns, ttft_ns
from servegate_action.records import (
    Absent,
    CellPlan,
    CellRun,
    ClientHealth,
    Dialect,
    RequestRecord,
    StampSource,
    TokenSource,
)
from servegate_action.workload import PlannedCell, PlannedRequest

DIALECT = Dialect(
    api="chat",
    served_model="m",
    stream_options=True,
    ignore_eos=True,
    min_tokens=True,
    max_tokens_field="max_tokens",
)


def record(**changes: object) -> RequestRecord:
    """Four tokens, 100 ns after sending, 10 ns apart."""
    told: dict[str, object] = {
        "id": "r",
        "cell": "c",
        "phase": "measured",
        "scheduled_ns": 900,
        "sent_ns": 1000,
        "first_byte_ns": 1050,
        "token_ns": (1100, 1110, 1120, 1130),
        "event_tokens": None,
        "first_answer_ns": 1100,
        "end_ns": 1140,
        "requested_output_tokens": 4,
        "prompt_tokens": 3,
        "output_tokens": 4,
        "token_source": TokenSource.USAGE,
        "cached_tokens": 0,
        "finish_reason": "length",
        "events": 6,
        "coalesced_reads": 0,
        "slot": 0,
        "connection_reused": False,
        "ok": True,
        "error": None,
        "text_sha256": None,
    }
    return RequestRecord.model_validate(told | changes)


def cell(*, rate: float | None, warmup: list[int | None], measured: list[int | None]) -> PlannedCell:
    """Requests with these times."""
    plans = [PlannedRequest(str(n), "p", 4, due) for n, due in enumerate([*warmup, *measured])]
    concurrency = 2 if rate is None and measured[0] is None else None
    return PlannedCell("c", "c", concurrency, rate, 1.0, tuple(plans[: len(warmup)]), tuple(plans[len(warmup) :]))


def test_closed_loop_has_no_times() -> None:
    assert due_times(cell(rate=None, warmup=[None], measured=[None, None])) == [-1, -1, -1]


def test_an_open_loops_warm_up_comes_before_it_at_its_rate() -> None:
    found = due_times(cell(rate=10.0, warmup=[None, None], measured=[5, 7]))
    assert found == [0, 100_000_000, 200_000_005, 200_000_007]


def test_a_warm_up_with_its_own_times_keeps_them() -> None:
    assert due_times(cell(rate=10.0, warmup=[1, 2], measured=[5, 7])) == [1, 2, 5, 7]


def test_a_trace_warms_up_at_its_mean_rate() -> None:
    found = due_times(cell(rate=None, warmup=[None], measured=[0, 500_000_000, 1_000_000_000]))
    assert found == [0, 500_000_000, 1_000_000_000, 1_500_000_000]


def test_processes_follow_the_streams_and_never_exceed_them() -> None:
    assert process_count(1, "auto") == process_count(512, "auto") == 1
    assert process_count(2, 8) == 2
    assert process_count(10, 3) == 3


def test_the_head_is_httpx_own_without_compression_or_length() -> None:
    head = request_head(Target("http://127.0.0.1:8000/prefix/v1", DIALECT, {"authorization": "Bearer x"}))
    assert head.startswith(b"POST /prefix/v1/chat/completions HTTP/1.1\r\n")
    assert b"\r\nHost: 127.0.0.1:8000\r\n" in head
    assert b"\r\nauthorization: Bearer x\r\n" in head
    assert b"\r\naccept-encoding: identity\r\n" in head
    assert b"content-length" not in head.lower()
    assert head.endswith(b"\r\n")


def test_the_window_waits_for_every_slot_and_for_the_first_measured_request() -> None:
    requests = (
        record(phase="warmup", slot=0, sent_ns=0, end_ns=10),
        record(phase="warmup", slot=1, sent_ns=0, end_ns=30),
        record(slot=0, sent_ns=10, end_ns=40),
        record(slot=1, sent_ns=50, end_ns=90),
    )
    assert steady_window(requests, closed_loop=True, start_ns=0) == (30, 50)
    assert steady_window(requests[2:], closed_loop=True, start_ns=0) == (90, 90)


def test_nothing_sent_is_an_empty_window() -> None:
    assert steady_window((record(sent_ns=None),), closed_loop=True, start_ns=7) == (7, 7)


def test_definitions_by_hand() -> None:
    assert ttft_ns(record(), open_loop=False) == 100
    assert ttft_ns(record(), open_loop=True) == 200
    assert tpot_ns(record()) == 10
    assert list(gaps_ns(record())) == [10, 10, 10]
    assert tpot_ns(record(event_tokens=(2, 2, 2, 2), output_tokens=8)) == 5
    assert isinstance(tpot_ns(record(token_ns=(1100,), output_tokens=1)), Absent)
    assert isinstance(tpot_ns(record(output_tokens=None)), Absent)
    assert isinstance(ttft_ns(record(ok=False, error="x"), open_loop=False), Absent)


def test_a_percentile_counts_failures_as_infinite() -> None:
    values: list[float | Absent] = [*map(float, range(1, 20)), Absent(absent="failed")]
    assert ranked(ordered(values), 0.95) == 19
    assert isinstance(ranked(ordered(values), 0.96), Absent)
    assert isinstance(ranked([], 0.5), Absent)


def test_tokens_count_by_event_inside_the_window() -> None:
    assert tokens_in([record()], 1105, 1130) == 2
    assert tokens_in([record(output_tokens=10)], 1105, 1130) == 6
    assert tokens_in([record(event_tokens=(1, 5, 1, 1), output_tokens=8)], 1105, 1115) == 5
    assert tokens_in([record(ok=False, error="x")], 0, 9999) == 0
    assert tokens_in([record(token_ns=())], 0, 9999) == 0


def records_of(times: list[list[int]], *, ok: list[bool], per_event: bool) -> list[RequestRecord]:
    """Requests whose token events come at these gaps."""
    made = []
    for number, gaps in enumerate(times):
        stamps = tuple(1000 + number + sum(gaps[: at + 1]) for at in range(len(gaps)))
        usage = tuple(1 + at % 2 for at in range(len(gaps))) if per_event else None
        tokens = sum(usage) if usage else 2 * len(gaps) - 1
        changes = {
            "token_ns": stamps,
            "event_tokens": usage,
            "output_tokens": tokens,
            "requested_output_tokens": tokens,
        }
        fine = ok[number % len(ok)]
        made.append(record(id=str(number), ok=fine, error=None if fine else "broken", slot=number, **changes))
    return made


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_the_table_says_what_verdicts_are_computed_from(
    times: list[list[int]], ok: list[bool], per_event: bool, open_loop: bool
) -> None:
    requests = records_of(times, ok=ok, per_event=per_event)
    window = (1010, 1200)
    plan = CellPlan(
        id="c",
        name="c",
        prompt_tokens=3,
        output_tokens=4,
        concurrency=None if open_loop else 2,
        rate_per_second=1.0 if open_loop else None,
        weight=1,
        requests=len(requests),
        warmup_requests=0,
    )
    health = ClientHealth(
        processes=1,
        stamp_source=StampSource.KERNEL,
        reads=1,
        reads_without_kernel_stamp=0,
        coalesced_reads=0,
        cpu_ns=1,
        parse_cpu_ns=1,
        wall_ns=1,
        dispatch_lag_p99_ns=0,
        clock_offset_drift_ns=0,
        peak_rss_bytes=1,
    )
    run = CellRun(
        cell="c",
        started_ns=0,
        steady_start_ns=window[0],
        steady_end_ns=window[1],
        ended_ns=5000,
        requests=len(requests),
        client=health,
    )
    judged = measure_cell(plan, run, requests, slo=Slo())
    mine = [ttft_ns(request, open_loop=open_loop) for request in requests if request.ok]
    theirs = [value for value in judged.ttft.ns.tolist() if value != float("inf")]
    assert [value for value in mine if not isinstance(value, Absent)] == theirs
    known = [value for value in map(tpot_ns, requests) if not isinstance(value, Absent)]
    assert known == pytest.approx([v for v in judged.tpot.ns.tolist() if v != float("inf")])
    rate = judged.output_tokens_per_second
    seconds = (window[1] - window[0]) / 1e9
    assert tokens_in(requests, *window) == pytest.approx(0.0 if isinstance(rate, Absent) else rate * seconds)


def test_a_table_without_a_window_says_why_there_is_no_rate() -> None:
    rows = {row.name: row for row in summarize([record()], window=(5, 5), open_loop=False)}
    assert isinstance(rows["output tokens per second"].values["value"], Absent)
    assert rows["TTFT"].values["p50"] == pytest.approx(100 / 1e6)
    assert rows["TTFT"].unit == "ms"


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(-1, 2**50)), max_size=20))
def test_entries_survive_packing(told: list[tuple[int, int, int]]) -> None:
    entries = [Entry(offset, length, due, 7, 1) for offset, length, due in told]
    assert unpack_entries(pack_entries(entries)) == entries


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=5), max_size=5), st.integers(1, 50))
def test_frames_survive_any_cutting(stamps: list[list[int]], size: int) -> None:
    pipe = io.BytesIO()
    for number, some in enumerate(stamps):
        write_frame(cast("BinaryIO", pipe), PROGRESS, {"n": number}, array("q", some))
    data, reader = pipe.getvalue(), FrameReader()
    frames = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
    assert [(kind, told["n"], list(some)) for kind, told, some in frames] == [
        (PROGRESS, number, some) for number, some in enumerate(stamps)
    ]


def test_a_spill_gives_everything_back_once_in_order() -> None:
    spill = Spill(memory_limit_bytes=4000)
    for number in range(10):
        exchange = Exchange(number, slot=None, due_ns=0)
        exchange.buffer += b"x" * 500
        exchange.stamps.append(number)
        spill.keep(exchange)
        spill.relieve(10**9)
    back = list(spill.drain())
    assert [exchange.index for exchange in back] == list(range(10))
    assert all(bytes(exchange.buffer) == b"x" * 500 and list(exchange.stamps) == [exchange.index] for exchange in back)
    assert list(spill.drain()) == []


def test_the_two_clocks_keep_their_distance() -> None:
    tracker = OffsetTracker()
    tracker.resample()
    assert tracker.drift_ns >= 0
    assert abs(sample_offset_ns() - tracker.offset_ns) <= 10 * max(tracker.drift_ns, 1_000_000)


@pytest.mark.parametrize(
    "reads_per_s, flowing, expected",
    [
        (2_000.0, 40, 0.0),  # few reads: every one wakes the loop
        (6_400.0, 128, 0.004),  # 20 ms apart: never longer than 4 ms
        (25_600.0, 512, 0.00125),  # until 32 reads have gathered
        (5_000.0, 15, 0.00075),  # 15 streams 3 ms apart, whatever else waits for its first token: a quarter of 3 ms
        (5_000.0, 2, 0.0),
    ],
)
def test_the_loop_never_sleeps_longer_than_a_quarter_of_the_gap_of_a_stream_that_flows(
    reads_per_s: float, flowing: int, expected: float
) -> None:
    assert pause_s(reads_per_s, flowing=flowing) == expected
