"""The decision, case by case: words, looks, checks, what is missing, and what is counted once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from servegate_action.analysis.judgement import Change95, Direction, HardCheck, MetricKey, MetricVerdict, Outcome, Word
from servegate_action.analysis.series import MetricSeries
from servegate_action.analysis.verdict import Decision, decide
from servegate_action.config.limits import Limit, MetricName
from servegate_action.errors import UsageError
from servegate_action.records import Absent, Side

LOOKS = (4, 6, 8)
TTFT, TPOT, TOK_S = MetricName.TTFT_P95, MetricName.TPOT_P95, MetricName.TOKENS_PER_SECOND
Pairs = tuple[tuple[float, float], ...]


def pairs(rounds: int, *, ratio: float = 1.0, sd: float = 0.005, seed: int = 0, base: float = 100.0) -> Pairs:
    """Values of independent launches; the candidate's are `ratio` times as large."""
    random = np.random.default_rng(seed)
    a = base * np.exp(sd * random.standard_normal(rounds))
    b = base * ratio * np.exp(sd * random.standard_normal(rounds))
    return tuple(zip(a.tolist(), b.tolist(), strict=True))


def latency(
    data: Pairs | Absent, *, cell: str | None = "chat/16", limit: float = 0.05, requests: int | None = 200
) -> MetricSeries:
    return MetricSeries(
        key=MetricKey(metric=TTFT, cell=cell),
        direction=Direction.LOWER,
        unit="ms",
        pairs=data,
        limit=Limit(value=limit),
        requests=requests,
    )


def throughput(data: Pairs | Absent, *, cell: str | None = "chat/16", limit: float = 0.03) -> MetricSeries:
    return MetricSeries(
        key=MetricKey(metric=TOK_S, cell=cell),
        direction=Direction.HIGHER,
        unit="tok/s",
        pairs=data,
        limit=Limit(value=limit),
    )


def several(rounds: int, *, metrics: int = 6, ratio: float = 1.0, sd: float = 0.005) -> list[MetricSeries]:
    """Independent latencies, of which the first is `ratio` times as large on the candidate."""
    return [
        latency(pairs(rounds, ratio=ratio if index == 0 else 1.0, sd=sd, seed=index), cell=f"cell/{index}")
        for index in range(metrics)
    ]


def check(kind: Literal["reject", "invalid", "inconclusive"], *, ok: bool = False) -> HardCheck:
    return HardCheck(
        name=kind,
        kind=kind,
        ok=ok,
        cell="chat/16",
        side=Side.CANDIDATE,
        detail=f"the {kind} check",
        advice=f"mend {kind}",
    )


def judged(series: Sequence[MetricSeries], rounds: int, *checks: HardCheck, stopped: str | None = None) -> Decision:
    return decide(series, checks, rounds=rounds, looks=LOOKS, stopped=stopped)


def only(decision: Decision) -> MetricVerdict:
    (metric,) = decision.metrics
    return metric


def change(metric: MetricVerdict) -> Change95:
    assert isinstance(metric.change, Change95)
    return metric.change


# ---------------------------------------------------------------- the words


def test_an_unchanged_build_passes_at_the_first_look() -> None:
    decision = judged(several(4), 4)
    assert decision.word is Word.PASS
    assert decision.next_look is None
    assert {metric.outcome for metric in decision.metrics} == {Outcome.PASS}
    assert decision.distinct == 6
    assert decision.rejected == ()


def test_a_clear_regression_is_rejected_whatever_else_is_better() -> None:
    series = [*several(4, ratio=1.2), throughput(pairs(4, ratio=1.5, seed=9))]
    decision = judged(series, 4)
    assert decision.word is Word.REJECT
    assert [metric.outcome for metric in decision.metrics[:2]] == [Outcome.REJECT, Outcome.PASS]
    assert decision.metrics[-1].better
    assert len(decision.rejected) == 1
    assert "p95 TTFT cell/0" in decision.rejected[0]


def test_noise_as_large_as_the_limit_goes_on_to_the_next_look_and_ends_inconclusive() -> None:
    for rounds, following in ((4, 6), (6, 8), (8, None)):
        decision = judged(several(rounds, sd=0.05), rounds)
        assert decision.word is Word.INCONCLUSIVE
        assert decision.next_look == following


def test_an_estimate_beyond_the_limit_without_proof_is_suspect() -> None:
    noisy = several(4, ratio=1.06, sd=0.06)
    assert judged(noisy, 4).metrics[0].outcome is Outcome.SUSPECT


def test_an_estimate_within_the_limit_without_proof_is_uncertain() -> None:
    assert only(judged([latency(pairs(4, sd=0.05, seed=3))], 4)).outcome is Outcome.UNCERTAIN


def test_a_broken_check_of_each_kind_makes_its_word() -> None:
    assert judged(several(4), 4, check("invalid")).word is Word.INVALID
    assert judged(several(4), 4, check("reject")).word is Word.REJECT
    assert judged(several(4), 4, check("inconclusive")).word is Word.INCONCLUSIVE
    assert (
        judged(several(4), 4, *(check(kind, ok=True) for kind in ("invalid", "reject", "inconclusive"))).word
        is Word.PASS
    )


def test_not_comparable_comes_before_regressed_and_regressed_before_capped() -> None:
    bad = several(4, ratio=1.3)
    assert judged(bad, 4, check("invalid"), check("reject")).word is Word.INVALID
    assert judged(bad, 4, check("inconclusive")).word is Word.REJECT


def test_nothing_gated_is_never_a_pass() -> None:
    for series in ([], [replace(several(4)[0], gated=False, why_not_gated="advisory")]):
        decision = judged(series, 4)
        assert decision.word is Word.INCONCLUSIVE
        assert decision.next_look is None
        assert "No metric is gated" in decision.headline


# ---------------------------------------------------------------- looks


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_before_the_first_look_nothing_is_decided(rounds: int) -> None:
    for ratio in (1.0, 2.0):
        decision = judged(several(rounds, ratio=ratio), rounds, check("reject"))
        assert decision.word is Word.INCONCLUSIVE
        assert decision.next_look == 4
        assert not any(metric.outcome in (Outcome.PASS, Outcome.REJECT) for metric in decision.metrics)


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_a_run_that_was_killed_before_its_first_look_is_inconclusive_with_what_it_has(rounds: int) -> None:
    decision = judged(several(rounds), rounds, stopped="cancelled")
    assert decision.word is Word.INCONCLUSIVE
    assert decision.next_look is None
    assert f"{rounds - rounds % 2 if rounds > 1 else rounds} of 8 rounds used" in decision.headline
    assert "cancelled" in decision.headline
    assert all(isinstance(metric.change, Change95) == (rounds >= 2) for metric in decision.metrics)


def test_a_run_that_is_not_comparable_is_invalid_before_any_look() -> None:
    assert judged([], 0, check("invalid")).word is Word.INVALID


def test_rounds_after_a_look_do_not_count_until_the_next() -> None:
    spoiled = [latency((*pairs(6, seed=index, sd=0.05), (100.0, 900.0)), cell=f"cell/{index}") for index in range(6)]
    at_six, at_seven = (
        judged([latency(pairs(6, seed=i, sd=0.05), cell=f"cell/{i}") for i in range(6)], 6),
        judged(spoiled, 7),
    )
    assert at_seven.rounds_used == 6
    assert at_seven.metrics == at_six.metrics
    assert at_seven.next_look == 8


def test_a_budget_that_ends_between_looks_keeps_the_verdict_of_the_last_look() -> None:
    decision = judged(several(5), 5, stopped="budget of 90 minutes spent")
    assert decision.word is Word.PASS
    assert decision.rounds_used == 4


def test_a_budget_that_ends_undecided_is_inconclusive_and_says_so() -> None:
    decision = judged(several(5, sd=0.05), 5, stopped="budget of 90 minutes spent")
    assert decision.word is Word.INCONCLUSIVE
    assert decision.next_look is None
    assert "4 of 8 rounds used (5 measured), budget of 90 minutes spent" in decision.headline
    assert any("budget" in way for way in decision.advice)


def test_a_schedule_without_a_level_is_refused() -> None:
    with pytest.raises(UsageError):
        decide(several(4), (), rounds=4, looks=(4, 5))


def test_early_looks_are_stricter_and_their_intervals_wider() -> None:
    first, last = judged(several(4), 4), judged(several(8), 8)
    assert first.level < last.level
    assert change(first.metrics[0]).level == pytest.approx(1 - 2 * first.level)


# ---------------------------------------------------------------- missing and senseless values


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Absent(absent="answers came in one event"), "answers came in one event"),
        (pairs(3), "measured in 3 of 4 rounds"),
        ((*pairs(3), (math.nan, 1.0)), "baseline of round 4 has no usable value"),
        ((*pairs(3), (1.0, 0.0)), "candidate of round 4 has no usable value"),
        ((*pairs(3), (1.0, -2.0)), "candidate of round 4 has no usable value"),
        ((*pairs(3), (math.inf, 1.0)), "baseline unbounded in round 4"),
        (((math.inf, math.inf), *pairs(2), (math.inf, math.inf)), "candidate unbounded in rounds 1, 4"),
    ],
)
def test_a_gated_metric_that_cannot_be_tested_never_lets_the_gate_pass(data: Pairs | Absent, reason: str) -> None:
    decision = judged([*several(4), latency(data, cell="odd/1")], 4)
    odd = decision.metrics[-1]
    assert odd.outcome is Outcome.ABSENT
    assert isinstance(odd.change, Absent)
    assert reason in odd.change.absent
    assert decision.word is Word.INCONCLUSIVE
    assert decision.next_look is None, "more rounds cannot mend it"
    assert reason in decision.headline
    assert any("odd/1" in way for way in decision.advice)


def test_a_p95_that_only_the_candidates_failures_reach_is_suspect_never_good() -> None:
    decision = judged([*several(4), latency((*pairs(3), (100.0, math.inf)), cell="odd/1")], 4)
    odd = decision.metrics[-1]
    assert odd.outcome is Outcome.SUSPECT
    assert isinstance(odd.candidate, Absent)
    assert not isinstance(odd.baseline, Absent)
    assert odd.per_round == pairs(3)
    assert decision.word is Word.INCONCLUSIVE


def test_a_metric_that_cannot_be_tested_does_not_keep_others_from_rejecting() -> None:
    assert judged([*several(4, ratio=1.3), latency(Absent(absent="gone"), cell="odd/1")], 4).word is Word.REJECT


def test_a_metric_that_cannot_be_tested_still_counts_in_holm() -> None:
    assert judged([*several(4), latency(Absent(absent="gone"), cell="odd/1")], 4).distinct == 7


def test_an_ungated_metric_that_is_absent_harms_nothing() -> None:
    shown = replace(latency(Absent(absent="gone"), cell="odd/1"), gated=False)
    decision = judged([*several(4), shown], 4)
    assert decision.word is Word.PASS
    assert decision.metrics[-1].outcome is Outcome.ABSENT


@pytest.mark.parametrize(("requests", "word"), [(71, Word.INCONCLUSIVE), (72, Word.PASS)])
def test_a_p95_of_fewer_than_72_requests_cannot_pass(requests: int, word: Word) -> None:
    decision = judged([*several(4), latency(pairs(4, seed=9), cell="few/1", requests=requests)], 4)
    assert decision.word is word
    if word is Word.INCONCLUSIVE:
        assert decision.next_look is None
        assert decision.metrics[-1].projected_rounds is None
        assert "71 requests per launch, a p95 needs 72 at least" in decision.headline


def test_a_p95_of_few_requests_can_still_be_rejected() -> None:
    assert judged([*several(4), latency(pairs(4, seed=9, ratio=1.5), requests=20)], 4).word is Word.REJECT


def test_constant_data_pass_without_infinite_certainty() -> None:
    decision = judged([latency(((100.0, 100.0),) * 4)], 4)
    assert decision.word is Word.PASS
    assert change(only(decision)).high > 0.0


def test_values_beyond_all_sense_stay_finite() -> None:
    wild = latency(((1e-300, 1e300), (1e300, 1e-300)) * 2)
    assert math.isfinite(change(only(judged([wild], 4))).high)


# ---------------------------------------------------------------- counted once, shown only, points


def copied(series: MetricSeries, limit: float) -> MetricSeries:
    """Cost per token: tokens per GPU-hour turned over."""
    assert not isinstance(series.pairs, Absent)
    return MetricSeries(
        key=MetricKey(metric=MetricName.COST_PER_1M_OUTPUT_TOKENS),
        direction=Direction.LOWER,
        unit="USD/1M tok",
        pairs=tuple((1.0 / a, 1.0 / b) for a, b in series.pairs),
        limit=Limit(value=limit),
        copy_of=series.key,
    )


def test_a_copy_is_shown_with_its_original_and_counted_once() -> None:
    original = throughput(pairs(4), cell=None)
    decision = judged([original, copied(original, 0.03), latency(pairs(4, seed=1))], 4)
    first, second, _ = decision.metrics
    assert decision.distinct == 2
    assert second.counted_with == original.key
    assert first.p_value == pytest.approx(second.p_value)
    assert first.p_adjusted == second.p_adjusted
    assert change(second).point == pytest.approx(1 / (1 + change(first).point) - 1)


def test_a_copy_is_held_to_its_own_limit() -> None:
    original = throughput(pairs(4, ratio=0.96), cell=None, limit=0.10)
    decision = judged([original, copied(original, 0.001)], 4)
    assert [metric.outcome for metric in decision.metrics] == [Outcome.PASS, Outcome.REJECT]


def test_a_metric_that_is_only_shown_never_rejects_and_is_not_counted() -> None:
    shown = replace(latency(pairs(4, ratio=2.0), cell="odd/1"), gated=False, why_not_gated="advisory")
    decision = judged([*several(4), shown], 4)
    assert decision.word is Word.PASS
    assert decision.metrics[-1].outcome is Outcome.SUSPECT
    assert decision.metrics[-1].p_adjusted is None
    assert decision.distinct == 6


def utilization(data: Pairs) -> MetricSeries:
    return MetricSeries(
        key=MetricKey(metric=MetricName.GPU_UTILIZATION),
        direction=Direction.HIGHER,
        unit="%",
        pairs=data,
        limit=Limit(value=2.0, unit="points"),
    )


def test_utilization_is_compared_in_points() -> None:
    metric = only(judged([utilization(((97.0, 96.5), (97.2, 96.6), (97.1, 96.7), (96.9, 96.4)))], 4))
    assert metric.outcome is Outcome.PASS
    assert change(metric).unit == "points"
    assert change(metric).point == pytest.approx(-0.5)
    assert metric.baseline == pytest.approx(97.05)
    assert metric.detectable is not None
    assert 2.0 < metric.detectable < 10.0


def test_an_idle_accelerator_may_read_zero_percent() -> None:
    assert only(judged([utilization(((0.0, 0.0),) * 4)], 4)).outcome is Outcome.PASS
    unread = only(judged([utilization(((math.nan, 0.0),) * 4)], 4))
    assert unread.outcome is Outcome.ABSENT
    assert isinstance(unread.baseline, Absent)


def test_a_drop_of_utilization_in_points_is_rejected() -> None:
    assert judged([utilization(((97.0, 80.0), (97.2, 80.4), (97.1, 80.2), (96.9, 80.1)))], 4).word is Word.REJECT


# ---------------------------------------------------------------- signs and sizes


def test_signs_are_those_of_the_values_whichever_way_is_better() -> None:
    slower = only(judged([throughput(pairs(4, ratio=0.9, sd=0.001))], 4))
    assert change(slower).point == pytest.approx(-0.1, abs=0.005)
    assert change(slower).low < change(slower).point < change(slower).high < 0.0
    assert slower.outcome is Outcome.REJECT
    longer = only(judged([latency(pairs(4, ratio=1.1, sd=0.001))], 4))
    assert 0.0 < change(longer).low < change(longer).point


def test_two_per_cent_worse_throughput_means_a_ratio_of_one_over_1_02() -> None:
    at = only(judged([throughput(tuple((100.0, 100.0 / 1.0199) for _ in range(4)), limit=0.02)], 4))
    assert at.outcome is Outcome.UNCERTAIN
    beyond = only(judged([throughput(tuple((100.0, 100.0 / 1.0201) for _ in range(4)), limit=0.02)], 4))
    assert beyond.outcome is Outcome.REJECT


def test_a_worsening_inside_the_limit_that_is_certain_passes_and_is_said() -> None:
    decision = judged([*several(4), throughput(pairs(4, ratio=0.99, sd=0.0005, seed=7))], 4)
    assert decision.word is Word.PASS
    assert decision.metrics[-1].worse_within_allowance
    assert "slower within allowance" in decision.headline


def test_an_improvement_is_said_to_be_one_only_where_it_is_shown() -> None:
    better, same = judged([*several(4, ratio=0.8), throughput(pairs(4, seed=8))], 4).metrics[::6]
    assert better.better
    assert not same.better


# ---------------------------------------------------------------- forecasts


def test_a_pass_says_what_the_run_would_have_caught_by_its_last_look() -> None:
    decision = judged(several(4), 4)
    finished = judged(several(4), 4, stopped="no further round was run")
    for metric, again in zip(decision.metrics, finished.metrics, strict=True):
        assert metric.detectable is not None
        assert metric.detectable > 0.05
        assert metric.detectable == again.detectable
        assert metric.projected_rounds is None


def test_a_run_cut_short_could_have_caught_less() -> None:
    going, cut = judged(several(4, sd=0.03), 4), judged(several(4, sd=0.03), 4, stopped="budget spent")
    assert going.word is cut.word is Word.INCONCLUSIVE
    for metric, less in zip(going.metrics, cut.metrics, strict=True):
        assert metric.detectable is not None
        assert less.detectable is not None
        assert metric.detectable < less.detectable


def test_an_undecided_metric_says_how_many_rounds_would_decide() -> None:
    decision = judged(several(8, sd=0.045), 8)
    projected = [metric.projected_rounds for metric in decision.metrics if metric.outcome is Outcome.UNCERTAIN]
    assert projected
    assert all(rounds is not None and rounds > 8 and rounds % 2 == 0 for rounds in projected)
    assert any("set rounds.max to" in way for way in decision.advice)


def test_the_noise_of_a_decision_is_the_median_sd_of_gated_ratios() -> None:
    decision = judged([*several(4), utilization(((97.0, 96.5),) * 4)], 4)
    sds = sorted(metric.noise_sd or 0.0 for metric in decision.metrics[:6])
    assert decision.noise == pytest.approx((sds[2] + sds[3]) / 2)
    assert isinstance(judged([], 0).noise, Absent)


def test_the_source_of_the_noise_is_named() -> None:
    random = np.random.default_rng(0)
    shared = np.exp(0.05 * random.standard_normal(6))

    def swinging(index: int) -> Pairs:
        return tuple((a * s, b * s) for (a, b), s in zip(pairs(6, seed=index), shared.tolist(), strict=True))

    together = [latency(swinging(index), cell=f"cell/{index}") for index in range(6)]
    assert judged(together, 6).noise_from == "rounds"
    assert judged(several(6), 6).noise_from == "launches"
    assert judged(several(1), 1).noise_from == "rounds"


def test_the_same_data_give_the_same_decision() -> None:
    assert judged(several(6, sd=0.03), 6) == judged(several(6, sd=0.03), 6)
