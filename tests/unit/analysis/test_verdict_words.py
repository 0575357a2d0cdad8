"""The sentences of a decision: they name what decided, with its numbers, and are stable enough to be translated."""

from __future__ import annotations

import pytest

from servegate_action.analysis import headline
from servegate_action.analysis.judgement import Change95, Direction, HardCheck, MetricKey, MetricVerdict, Outcome, Word
from servegate_action.config.limits import Limit, MetricName
from servegate_action.records import Absent, Side


def metric(
    name: MetricName = MetricName.TPOT_P95,
    *,
    cell: str | None = "long/4",
    change: tuple[float, float, float] | str = (0.011, -0.012, 0.034),
    limit: Limit | None = None,
    outcome: Outcome = Outcome.PASS,
    **others: object,
) -> MetricVerdict:
    limit = limit or Limit(value=0.05)
    higher = name in (MetricName.DECODE_TOKENS_PER_SECOND, MetricName.GPU_UTILIZATION)
    values: dict[str, object] = {
        "key": MetricKey(metric=name, cell=cell),
        "unit": "ms",
        "direction": Direction.HIGHER if higher else Direction.LOWER,
        "baseline": 1.0,
        "candidate": 1.0,
        "per_round": (),
        "requests": 200,
        "change": Absent(absent=change)
        if isinstance(change, str)
        else Change95(point=change[0], low=change[1], high=change[2], level=0.9532, rounds=6, unit=limit.unit),
        "limit": limit,
        "gated": True,
        "why_not_gated": None,
        "outcome": outcome,
        "p_value": 0.0003,
        "p_adjusted": 0.007,
        "counted_with": None,
        "worse_within_allowance": False,
        "better": False,
        "noise_sd": 0.01,
        "detectable": 0.06,
        "projected_rounds": None,
    }
    return MetricVerdict.model_validate(values | others)


def facts(word: Word, *metrics: MetricVerdict, checks: tuple[HardCheck, ...] = (), **others: object) -> headline.Facts:
    values: dict[str, object] = {
        "word": word,
        "metrics": metrics,
        "checks": checks,
        "distinct": 20,
        "rounds_used": 8,
        "rounds_measured": 8,
        "rounds_planned": 8,
        "next_look": None,
        "stopped": None,
    }
    return headline.Facts(**(values | others))  # type: ignore[arg-type]


def broken(kind: str, *, cell: str | None = None, side: Side | None = None, detail: str = "it broke") -> HardCheck:
    return HardCheck.model_validate(
        {
            "name": kind,
            "kind": kind,
            "ok": False,
            "cell": cell,
            "side": side,
            "detail": detail,
            "advice": f"mend {kind}",
        }
    )


def test_a_rejection_names_metric_change_interval_limit_and_certainty() -> None:
    bad = metric(change=(0.064, 0.041, 0.088), limit=Limit(value=0.02), outcome=Outcome.REJECT)
    assert headline.sentence(facts(Word.REJECT, bad)) == (
        "REJECT: p95 TPOT long/4: +6.4 % (95 % interval +4.1 … +8.8, 6 rounds), allowed +2 % "
        "(Holm-adjusted p = 0.007 over 20 metrics)"
    )


def test_the_metric_furthest_beyond_its_limit_leads_and_the_rest_are_counted() -> None:
    mild = metric(change=(0.06, 0.05, 0.07), outcome=Outcome.REJECT, cell="a/1")
    bad = metric(change=(0.6, 0.5, 0.7), outcome=Outcome.REJECT, cell="b/1", p_adjusted=1e-9)
    found = facts(Word.REJECT, mild, bad, checks=(broken("reject", cell="c/1", side=Side.CANDIDATE),))
    assert headline.sentence(found).startswith("REJECT: p95 TPOT b/1: +60.0 %")
    assert "p < 0.001" in headline.sentence(found)
    assert headline.sentence(found).endswith("(and 2 more)")
    assert [line.split(":")[0] for line in headline.rejected(found)] == [
        "p95 TPOT b/1",
        "p95 TPOT a/1",
        "candidate, c/1",
    ]


def test_a_rejection_without_numbers_is_a_contradiction() -> None:
    with pytest.raises(ValueError, match="without a measured change"):
        headline.sentence(facts(Word.REJECT, metric(change="gone", outcome=Outcome.REJECT)))


def test_a_broken_level_of_service_rejects_with_its_own_sentence() -> None:
    check = broken("reject", cell="chat/16", side=Side.CANDIDATE, detail="p95 TTFT 612 ms, SLO 500 ms")
    assert headline.sentence(facts(Word.REJECT, metric(), checks=(check,))) == (
        "REJECT: candidate, chat/16: p95 TTFT 612 ms, SLO 500 ms"
    )


def test_invalid_says_which_check_and_how_many_more() -> None:
    checks = (broken("invalid", detail="models differ"), broken("invalid", detail="x"))
    assert headline.sentence(facts(Word.INVALID, checks=checks)) == "INVALID: models differ (and 1 more)"
    assert headline.advice(facts(Word.INVALID, checks=checks)) == ("mend invalid",)


def test_a_pass_names_the_tightest_metric() -> None:
    loose, tight = metric(change=(0.0, -0.01, 0.01), cell="a/1"), metric(MetricName.TTFT_P95, cell="chat/16")
    assert headline.sentence(facts(Word.PASS, loose, tight)) == (
        "PASS: all 20 metrics within their limits. Tightest: p95 TTFT chat/16 +1.1 % (−1.2 … +3.4), allowed +5 %"
    )
    assert headline.advice(facts(Word.PASS, loose, tight)) == ()
    assert headline.rejected(facts(Word.PASS, loose, tight)) == ()


def test_a_pass_that_is_slower_says_so_with_the_real_sign() -> None:
    slow = metric(
        MetricName.DECODE_TOKENS_PER_SECOND,
        cell=None,
        change=(-0.008, -0.013, -0.003),
        limit=Limit(value=0.02),
        worse_within_allowance=True,
    )
    assert headline.sentence(facts(Word.PASS, metric(), slow)) == (
        "PASS, slower within allowance: decode tok/s −0.8 % (−1.3 … −0.3), allowed −2 %"
    )
    both = headline.sentence(facts(Word.PASS, slow, metric(worse_within_allowance=True)))
    assert both.endswith("(and 1 more)")


def test_inconclusive_names_the_worst_open_metric_and_what_would_decide_it() -> None:
    open_one = metric(
        MetricName.TTFT_P95,
        cell="long/32",
        change=(0.02, -0.014, 0.055),
        outcome=Outcome.UNCERTAIN,
        projected_rounds=10,
    )
    found = facts(Word.INCONCLUSIVE, metric(), open_one)
    assert headline.sentence(found) == (
        "INCONCLUSIVE: 8 of 8 rounds used. p95 TTFT long/32: +2.0 % (−1.4 … +5.5), allowed +5 %; "
        "about 10 rounds would decide"
    )
    assert headline.advice(found)[0].startswith("set rounds.max to 10")


def test_a_run_that_goes_on_says_when_it_looks_again() -> None:
    found = facts(Word.INCONCLUSIVE, metric(), rounds_used=4, rounds_measured=5, next_look=6)
    assert headline.sentence(found) == (
        "INCONCLUSIVE: 4 of 8 rounds used (5 measured) so far, the next look is after 6. "
        "Every metric is within its limit so far"
    )
    assert headline.advice(found) == ()


def test_a_check_that_caps_the_verdict_is_what_is_said_first() -> None:
    found = facts(Word.INCONCLUSIVE, metric(), checks=(broken("inconclusive", detail="launches are not ours"),))
    assert headline.sentence(found) == "INCONCLUSIVE: 8 of 8 rounds used. launches are not ours"
    assert headline.advice(found) == ("mend inconclusive",)


def test_a_metric_that_cannot_be_tested_comes_before_one_that_is_merely_open() -> None:
    gone = metric(change="no usage in the stream", outcome=Outcome.ABSENT, cell="a/1")
    wide = metric(change=(0.04, -1.0, 9.0), outcome=Outcome.UNCERTAIN, cell="b/1")
    found = facts(Word.INCONCLUSIVE, wide, gone)
    assert "p95 TPOT a/1: not testable, no usage in the stream" in headline.sentence(found)
    assert headline.advice(found)[0].startswith("make p95 TPOT a/1 measurable")
    assert headline.undecided_metrics(found.metrics) == [gone, wide]


def test_too_few_requests_are_said_with_what_is_needed() -> None:
    few = metric(outcome=Outcome.UNCERTAIN, requests=40)
    found = facts(Word.INCONCLUSIVE, few)
    assert headline.sentence(found).endswith("; 40 requests per launch, a p95 needs 72 at least")
    assert "72 requests per launch" in headline.advice(found)[0]


def test_a_run_that_was_stopped_is_told_to_run_again_rather_than_to_change_its_limits() -> None:
    found = facts(Word.INCONCLUSIVE, metric(outcome=Outcome.UNCERTAIN), stopped="cancelled", rounds_used=4)
    assert headline.advice(found) == ("run it again; with a larger rounds.budget_minutes if the budget ended it",)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.14, "+1.1"), (-1.15, "−1.1"), (0.04, "±0.0"), (-0.04, "±0.0"), (10.0, "+10.0"), (0.0, "±0.0")],
)
def test_numbers_carry_a_real_sign(value: float, text: str) -> None:
    assert headline.signed(value) == text


@pytest.mark.parametrize(
    ("limit", "direction", "text"),
    [
        (Limit(value=0.05), Direction.LOWER, "+5 %"),
        (Limit(value=0.025), Direction.HIGHER, "−2.5 %"),
        (Limit(value=2.0, unit="points"), Direction.HIGHER, "−2 points"),
        (Limit(value=0.1), Direction.LOWER, "+10 %"),
    ],
)
def test_limits_point_to_the_side_that_is_worse(limit: Limit, direction: Direction, text: str) -> None:
    assert headline.allowed(limit, direction) == text


def test_points_are_not_called_per_cent() -> None:
    used = metric(
        MetricName.GPU_UTILIZATION, cell=None, change=(-0.5, -1.0, 0.1), limit=Limit(value=2.0, unit="points")
    )
    assert headline.measured(used) == "−0.5 points (−1.0 … +0.1), allowed −2 points"


def test_every_metric_has_a_name() -> None:
    assert set(headline.WORDS) == set(MetricName)
