"""Cells weighted into the mix of traffic, and the metrics of a launch."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.analysis.metrics import LaunchMetrics, Measured, launch_metrics, mix_rate
from servegate_action.config.limits import MetricName, Slo
from servegate_action.records import Absent, LaunchState, RequestRecord
from tests.support.making import MS, failed, launch, plan, request, run

PLAN = (plan("chat/1", weight=3.0), plan("long/1", weight=1.0))
RUNS = (run("chat/1"), run("long/1"))


def paced(first_ms: int, gap_ms: int, count: int) -> tuple[int, ...]:
    return tuple((first_ms + gap_ms * index) * MS for index in range(count))


def answer(cell: str, first_ms: int = 100, gap_ms: int = 10, count: int = 5) -> RequestRecord:
    return request(paced(first_ms, gap_ms, count), cell=cell)


def of(*requests: RequestRecord, slo: Slo | None = None, gpus: int = 1) -> LaunchMetrics:
    return launch_metrics(launch(*RUNS), requests, plan=PLAN, slo=slo or Slo(), gpus=gpus)


# ---------------------------------------------------------------- the rate of a mix


def test_the_rate_of_a_mix_is_its_tokens_over_the_time_that_they_take() -> None:
    # 3 requests of 100 tokens at 300 tok/s (1 s), 1 of 500 at 100 tok/s (5 s): 800 tokens in 6 s.
    assert mix_rate([(3.0, 100.0, 300.0), (1.0, 500.0, 100.0)]) == pytest.approx(800 / 6)


def test_a_fast_short_cell_cannot_pay_for_a_slow_long_one() -> None:
    before = mix_rate([(3.0, 100.0, 300.0), (1.0, 500.0, 100.0)])
    after = mix_rate([(3.0, 100.0, 1e9), (1.0, 500.0, 80.0)])
    assert isinstance(before, float)
    assert isinstance(after, float)
    assert after < before


def test_cells_without_tokens_of_a_kind_take_no_time() -> None:
    assert mix_rate([(1.0, 0.0, Absent(absent="nothing to decode")), (1.0, 10.0, 5.0)]) == pytest.approx(5.0)


def test_the_rate_of_a_mix_is_absent_with_one_of_its_cells() -> None:
    gone = Absent(absent="no token arrived")
    assert mix_rate([(1.0, 10.0, gone), (1.0, 10.0, 5.0)]) == gone
    assert mix_rate([(1.0, 0.0, 5.0)]) == Absent(absent="no tokens of this kind in any cell")


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(1, 1e4), st.floats(1, 1e5)), min_size=1, max_size=6),
    st.floats(0.1, 10),
)
def test_the_rate_of_a_mix_lies_between_its_cells_and_scales_with_them(
    parts: list[tuple[float, float, float]], factor: float
) -> None:
    rate = mix_rate(parts)
    faster = mix_rate([(weight, tokens, own * factor) for weight, tokens, own in parts])
    assert isinstance(rate, float)
    assert min(own for _, _, own in parts) * (1 - 1e-9) <= rate <= max(own for _, _, own in parts) * (1 + 1e-9)
    assert faster == pytest.approx(rate * factor)


# ---------------------------------------------------------------- a launch


def test_tokens_per_gpu_hour_are_those_of_the_gpus_held() -> None:
    one, four = (of(answer("chat/1"), answer("long/1"), gpus=gpus) for gpus in (1, 4))
    # Both cells: 5 tokens in a window of 10 s.
    assert one.of(MetricName.TOKENS_PER_GPU_HOUR).value == pytest.approx(1800.0)
    assert four.of(MetricName.TOKENS_PER_GPU_HOUR).value == pytest.approx(450.0)


def test_tokens_per_gpu_hour_are_absent_with_the_rate() -> None:
    late = request(paced(20_000, 10, 4), cell="long/1")
    assert of(answer("chat/1"), late).of(MetricName.TOKENS_PER_GPU_HOUR).value == Absent(
        absent="no token arrived inside the steady window"
    )


def test_p95_over_the_mix_gives_each_cell_its_share_of_the_traffic() -> None:
    # `long` is a quarter of the traffic with 1 request, `chat` three quarters with 50: the p95 is that of `long`.
    metrics = of(*[answer("chat/1") for _ in range(50)], answer("long/1", first_ms=900))
    # (3 + 1)² / (50·0.06² + 1²) = 16 / 1.18
    assert metrics.of(MetricName.TTFT_P95) == Measured(900.0, 13)
    assert metrics.of(MetricName.TTFT_P95, "chat/1") == Measured(100.0, 50)


def test_p95_over_the_mix_is_infinite_when_enough_of_the_traffic_failed() -> None:
    metrics = of(*[answer("chat/1") for _ in range(10)], answer("long/1"), failed(cell="long/1"))
    assert math.isinf(metrics.of(MetricName.TTFT_P95).value)  # type: ignore[arg-type]
    assert metrics.mix.failed_share == pytest.approx(0.125)


def test_a_cell_whose_latency_cannot_be_told_takes_it_from_the_mix() -> None:
    joined = request((100 * MS,), output_tokens=8, cell="long/1")
    value = of(answer("chat/1"), joined).of(MetricName.TTFT_P95).value
    assert isinstance(value, Absent)
    assert value.absent.startswith("long/1: 1 of 1 requests")


def test_a_cell_of_one_token_answers_is_not_in_the_tpot_of_the_mix() -> None:
    single = request((100 * MS,), requested=1, cell="long/1")
    assert of(answer("chat/1"), single).of(MetricName.TPOT_P95) == Measured(10.0, 1)
    both = of(request((100 * MS,), requested=1), single)
    assert both.of(MetricName.TPOT_P95).value == Absent(absent="no request of any cell can have one")


def test_decode_over_the_mix_weighs_by_decode_tokens() -> None:
    # chat: 4 tokens after the first in 40 ms, long: 4 in 80 ms; 3 to 1 in requests: 16 tokens in 0.2 s.
    metrics = of(answer("chat/1"), answer("long/1", gap_ms=20))
    assert metrics.of(MetricName.DECODE_TOKENS_PER_SECOND).value == pytest.approx(16 / 0.2)


def test_a_mean_request_of_the_traffic_weighs_its_cells() -> None:
    metrics = of(answer("chat/1", count=4), answer("long/1", count=8).model_copy(update={"prompt_tokens": 500}))
    assert metrics.mix.mean_output_tokens == pytest.approx(5.0)
    assert metrics.mix.mean_prompt_tokens == pytest.approx(200.0)


def test_prompt_tokens_of_the_mix_are_absent_when_one_cell_has_none() -> None:
    metrics = of(answer("chat/1"), answer("long/1").model_copy(update={"prompt_tokens": None}))
    assert isinstance(metrics.mix.mean_prompt_tokens, Absent)


def test_goodput_of_the_mix_weighs_its_cells() -> None:
    metrics = of(answer("chat/1"), answer("long/1", first_ms=900), slo=Slo(ttft_p95_ms=200))
    assert metrics.mix.goodput == pytest.approx(0.75)
    assert of(answer("chat/1"), answer("long/1")).mix.goodput == Absent(absent="no slo is declared")


def test_time_shares_are_those_of_the_mix_in_time() -> None:
    # chat: 3 requests of 5 tokens at 0.5 tok/s, long: 1 of 10 at 1 tok/s: 30 s and 10 s.
    metrics = of(answer("chat/1"), answer("long/1", count=10))
    shares = metrics.mix.time_shares()
    assert not isinstance(shares, Absent)
    assert shares["chat/1"] == pytest.approx(0.75)
    assert shares["long/1"] == pytest.approx(0.25)
    late = request(paced(20_000, 10, 4), cell="long/1")
    assert isinstance(of(answer("chat/1"), late).mix.time_shares(), Absent)


def test_metrics_of_cells_are_read_by_their_name() -> None:
    metrics = of(answer("chat/1"), answer("long/1"))
    assert metrics.of(MetricName.TOKENS_PER_SECOND, "chat/1").value == pytest.approx(0.5)
    assert metrics.of(MetricName.TPOT_P95, "long/1") == Measured(10.0, 1)
    assert metrics.of(MetricName.TTFT_P95, "absent/1").value == Absent(
        absent="this cell was not measured in this launch"
    )


def test_what_requests_do_not_tell_is_a_programming_error() -> None:
    metrics = of(answer("chat/1"), answer("long/1"))
    with pytest.raises(ValueError, match="does not follow from requests alone"):
        metrics.of(MetricName.GPU_UTILIZATION)
    with pytest.raises(ValueError, match="is not a metric of a cell"):
        metrics.of(MetricName.GPU_UTILIZATION, "chat/1")


# ---------------------------------------------------------------- completeness


def test_a_launch_with_every_cell_is_complete() -> None:
    assert of(answer("chat/1"), answer("long/1")).incomplete is None


def test_a_launch_without_a_measured_request_in_a_cell_is_incomplete() -> None:
    warm = answer("long/1").model_copy(update={"phase": "warmup"})
    assert of(answer("chat/1"), warm).incomplete == "not measured in this launch: long/1"


def test_a_launch_that_did_not_run_a_cell_is_incomplete() -> None:
    metrics = launch_metrics(launch(run("chat/1")), [answer("chat/1"), answer("long/1")], plan=PLAN, slo=Slo(), gpus=1)
    assert metrics.incomplete == "not measured in this launch: long/1"


@pytest.mark.parametrize("reason, said", [("the server exited", "the server exited"), (None, "the launch is failed")])
def test_a_launch_that_did_not_end_well_is_incomplete(reason: str | None, said: str) -> None:
    record = launch(*RUNS, state=LaunchState.FAILED, reason=reason)
    assert launch_metrics(record, [answer("chat/1"), answer("long/1")], plan=PLAN, slo=Slo(), gpus=1).incomplete == said
