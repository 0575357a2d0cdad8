"""The frozen workload: same seed, same bytes; nothing shared between launches but what is declared."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action import traces, workload
from servegate_action.config.workload import Cell, Lognormal, Trace, Uniform, Workload
from servegate_action.errors import ConfigError
from servegate_action.records import Side
from servegate_action.traces import TraceRow
from servegate_action.workload import LengthFit


def one_cell(**changes: object) -> Workload:
    shape: dict[str, object] = {
        "name": "chat",
        "prompt_tokens": 50,
        "output_tokens": 9,
        "concurrency": (2,),
        "requests": 20,
    }
    return Workload(seed=7, cells=(Cell.model_validate(shape | changes),))


def test_the_same_seed_gives_the_same_digest_and_another_seed_another() -> None:
    first, again = workload.build(one_cell()), workload.build(one_cell())
    other = workload.build(one_cell().model_copy(update={"seed": 8}))
    assert first.digest == again.digest
    assert first.digest != other.digest


def test_prompts_have_the_planned_length_with_their_nonce() -> None:
    (cell,) = workload.build(one_cell()).for_launch(1)
    assert {len(request.prompt.split()) for request in cell.measured} == {50}
    assert workload.build(one_cell()).cells[0].plan().prompt_tokens == 50


def test_both_stacks_of_a_round_send_the_same_and_the_next_round_sends_other_nonces() -> None:
    built = workload.build(one_cell())
    assert built.for_launch(1) == built.for_launch(1)
    first, second = built.for_launch(1)[0].measured[0].prompt, built.for_launch(2)[0].measured[0].prompt
    assert first.split()[workload.NONCE_WORDS :] == second.split()[workload.NONCE_WORDS :]
    assert first.split()[: workload.NONCE_WORDS] != second.split()[: workload.NONCE_WORDS]


def test_another_run_and_another_attempt_send_other_nonces_in_the_same_order_before_the_same_words() -> None:
    built = workload.build(one_cell(concurrency=(1, 2, 3, 4)))
    one, other = (built.for_launch(1, once=once) for once in ("run-1/1", "run-1/2"))
    assert [cell.id for cell in one] == [cell.id for cell in other]
    for mine, theirs in zip(one[0].measured, other[0].measured, strict=True):
        ours, its = mine.prompt.split(), theirs.prompt.split()
        assert ours[workload.NONCE_WORDS :] == its[workload.NONCE_WORDS :]
        assert ours[: workload.NONCE_WORDS] != its[: workload.NONCE_WORDS]


def test_no_two_requests_of_a_launch_begin_alike() -> None:
    (cell,) = workload.build(one_cell(requests=300)).for_launch(1)
    starts = [tuple(request.prompt.split()[: workload.NONCE_WORDS]) for request in (*cell.warmup, *cell.measured)]
    assert len(set(starts)) == len(starts)


def test_a_declared_prefix_is_shared_within_a_launch_and_not_between_launches() -> None:
    built = workload.build(one_cell(shared_prefix_tokens=20))
    first, second = (built.for_launch(number)[0].measured for number in (1, 2))
    heads = {tuple(request.prompt.split()[:20]) for request in first}
    assert len(heads) == 1
    assert heads != {tuple(request.prompt.split()[:20]) for request in second}
    assert {len(request.prompt.split()) for request in first} == {50}


def test_warm_up_never_uses_a_measured_prompt() -> None:
    (cell,) = workload.build(one_cell()).cells
    assert not {request.prompt for request in cell.warmup} & {request.prompt for request in cell.measured}
    assert len(cell.warmup) == 4


def test_a_list_of_concurrencies_shares_the_weight() -> None:
    built = workload.build(one_cell(concurrency=(1, 4), weight=6))
    assert [(cell.id, cell.weight) for cell in built.cells] == [("chat/1", 3), ("chat/4", 3)]


def test_the_order_of_cells_changes_from_round_to_round_by_the_seed() -> None:
    built = workload.build(one_cell(concurrency=(1, 2, 3, 4, 5)))
    orders = {tuple(cell.id for cell in built.for_launch(number)) for number in range(1, 9)}
    assert len(orders) > 4


def test_rounds_alternate_who_goes_first() -> None:
    orders = [workload.round_order(number) for number in (1, 2, 3)]
    assert [order[0] for order in orders] == [Side.BASELINE, Side.CANDIDATE, Side.BASELINE]
    assert all(first is second.other for first, second in orders)


@given(low=st.integers(1, 50), spread=st.integers(0, 50))
def test_uniform_lengths_stay_in_their_range(low: int, spread: int) -> None:
    built = workload.build(one_cell(output_tokens=Uniform(low=low, high=low + spread)))
    assert {low <= request.output_tokens <= low + spread for request in built.cells[0].measured} == {True}


def test_lognormal_lengths_have_the_declared_mean() -> None:
    built = workload.build(one_cell(output_tokens=Lognormal(mean=400, sigma=0.5), requests=4000))
    lengths = [request.output_tokens for request in built.cells[0].measured]
    assert fmean(lengths) == pytest.approx(400, rel=0.05)
    assert min(lengths) >= 1


@given(rate=st.floats(0.1, 1000), count=st.integers(1, 300))
def test_poisson_arrivals_have_exactly_the_declared_mean_rate(rate: float, count: int) -> None:
    times = workload.poisson_arrivals(7, "c", count, rate)
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx(count / rate * 1e9, abs=2)


def test_open_loop_requests_carry_absolute_times() -> None:
    (cell,) = workload.build(one_cell(concurrency=(), rate_per_second=4.0)).cells
    assert cell.id == "chat@4"
    assert [request.due_ns for request in cell.measured] == sorted(request.due_ns or -1 for request in cell.measured)
    assert cell.measured[-1].due_ns == 5_000_000_000


def test_a_length_fit_is_learnt_from_the_baselines_count() -> None:
    texts = workload.calibration_texts(workload.build(one_cell(prompt_tokens=Uniform(low=20, high=400))))
    fit = workload.fit_lengths(texts, [10 + 2 * len(text.split()) for text in texts])
    assert fit == LengthFit(offset=10.0, per_word=2.0)
    (cell,) = workload.build(one_cell(), fit=fit).for_launch(1)
    assert {len(request.prompt.split()) for request in cell.measured} == {20}


def test_one_length_alone_fixes_the_slope_through_zero() -> None:
    assert workload.fit_lengths(["a b", "c d"], [3, 3]) == LengthFit(0.0, 1.5)


def test_a_server_that_counts_every_prompt_the_same_teaches_nothing() -> None:
    assert workload.fit_lengths(["a b c", "a b c d e f"], [5, 5]) == LengthFit()


def test_the_digest_covers_prompts_times_and_fit() -> None:
    plain = workload.build(one_cell())
    assert plain.digest != workload.build(one_cell(), fit=LengthFit(1.0, 1.0)).digest
    assert plain.digest != workload.build(one_cell(output_tokens=10)).digest
    open_loop = one_cell(concurrency=(), rate_per_second=4.0)
    assert workload.build(open_loop).digest != workload.build(one_cell(concurrency=(), rate_per_second=4.1)).digest


# ---------------------------------------------------------------- traces

MOONCAKE = """\
{"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}

{"timestamp": 0, "input_length": 700, "output_length": 6, "hash_ids": [1, 9]}
{"timestamp": 2500, "input_length": 12, "output_length": 7}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
"""


def traced(**changes: object) -> Workload:
    return Workload(seed=7, trace=Trace.model_validate({"path": "t.jsonl", "warmup_requests": 2} | changes))


def test_a_mooncake_trace_is_read_in_order_of_arrival() -> None:
    rows = traces.parse_trace(MOONCAKE, name="t.jsonl")
    assert [row.t_ns for row in rows] == [0, 1_000_000_000, 2_500_000_000]
    assert rows[0] == TraceRow(0, 700, 6, (1, 9))


def test_an_azure_trace_keeps_its_fractions_of_a_second() -> None:
    rows = traces.parse_trace(AZURE, name="t.csv")
    assert rows[1] == TraceRow(52_000_000, 3180, 8)


def test_a_csv_may_count_plain_seconds() -> None:
    rows = traces.parse_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n1.5,3,4\n2,5,6\n", name="t.csv")
    assert [row.t_ns for row in rows] == [0, 500_000_000]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.jsonl", "{\n", "t.jsonl:1: not a trace row"),
        ("t.jsonl", "[]\n", "t.jsonl:1: not a trace row"),
        ("t.jsonl", '{"timestamp": 1, "input_length": 3}\n', "output_length is missing"),
        ("t.jsonl", '{"timestamp": 1, "input_length": 0, "output_length": 1}\n', "0 is not a whole number"),
        ("t.jsonl", '{"timestamp": 1, "input_length": 1.5, "output_length": 1}\n', "1.5"),
        ("t.jsonl", '{"timestamp": 1e999, "input_length": 1, "output_length": 1}\n', "not a trace row"),
        ("t.jsonl", "\n", "the trace has no rows"),
        ("t.csv", "a,b\n1,2\n", "TIMESTAMP is missing"),
        ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,2,3\n", "t.csv:2: not a trace row"),
    ],
)
def test_a_bad_row_is_named_at_its_line(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        traces.parse_trace(text, name=name)
    assert says in str(caught.value)


def test_a_trace_is_replayed_with_its_own_times() -> None:
    (cell,) = workload.build(traced(speedup=2.0), trace=traces.parse_trace(MOONCAKE, name="t")).cells
    assert [request.due_ns for request in cell.measured] == [0, 500_000_000, 1_250_000_000]
    assert [request.output_tokens for request in cell.measured] == [6, 5, 7]
    assert cell.rate_per_second == pytest.approx(2 / 1.25)
    assert len(cell.warmup) == 2


def test_a_trace_shorter_than_its_warm_up_warms_up_with_what_there_is() -> None:
    (cell,) = workload.build(traced(warmup_requests=8), trace=traces.parse_trace(MOONCAKE, name="t")).cells
    assert (len(cell.warmup), len(cell.measured)) == (3, 3)
    assert cell.warmup[0].prompt != cell.measured[0].prompt


def test_a_window_of_a_trace_starts_its_own_clock() -> None:
    rows = traces.parse_trace(MOONCAKE, name="t")
    (cell,) = workload.build(traced(start_s=0.5, duration_s=3), trace=rows).cells
    assert [request.due_ns for request in cell.measured] == [0, 1_500_000_000]


def test_equal_hash_ids_give_equal_blocks_in_front() -> None:
    rows = traces.parse_trace(MOONCAKE, name="t")
    (cell,) = workload.build(traced(), trace=rows).for_launch(1)
    first, second = (request.prompt.split() for request in cell.measured[:2])
    shared = workload.HASH_BLOCK_TOKENS + workload.NONCE_WORDS
    assert first[:shared] == second[:shared]
    assert first[shared:] != second[shared : len(first)]


def test_arrivals_at_one_moment_are_still_a_trace() -> None:
    rows = (TraceRow(0, 9, 1), TraceRow(0, 9, 1))
    assert workload.build(traced(), trace=rows).cells[0].rate_per_second == 2.0


def test_a_window_without_arrivals_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="fewer than two arrivals"):
        workload.build(traced(start_s=99.0), trace=traces.parse_trace(MOONCAKE, name="t"))


def test_a_missing_trace_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="fewer than two arrivals"):
        workload.build(traced())
