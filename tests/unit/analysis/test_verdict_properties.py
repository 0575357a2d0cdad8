"""What must hold of every decision, whatever the data: found by Hypothesis, not by us."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from servegate_action.analysis.judgement import Direction, MetricKey, Outcome, Word
from servegate_action.analysis.series import MetricSeries
from servegate_action.analysis.verdict import Decision, decide
from servegate_action.config.limits import Limit, MetricName
from servegate_action.records import Absent

LOOKS = (4, 6, 8)
some = settings(max_examples=40)

value = st.floats(1e-3, 1e6)
wild = st.one_of(value, st.sampled_from([0.0, -1.0, float("inf"), float("nan")]))


def run(values: st.SearchStrategy[float], rounds: st.SearchStrategy[int]) -> st.SearchStrategy[list[MetricSeries]]:
    """One to three latencies over the same number of rounds."""

    def of(count: int) -> st.SearchStrategy[list[MetricSeries]]:
        pair = st.tuples(values, values)
        columns = st.lists(st.lists(pair, min_size=count, max_size=count), min_size=1, max_size=3)
        return columns.map(lambda data: [metric(index, tuple(column)) for index, column in enumerate(data)])

    return rounds.flatmap(of)


def metric(index: int, pairs: tuple[tuple[float, float], ...], *, limit: float = 0.05) -> MetricSeries:
    return MetricSeries(
        key=MetricKey(metric=MetricName.TPOT_P95, cell=str(index)),
        direction=Direction.LOWER,
        unit="ms",
        pairs=pairs,
        limit=Limit(value=limit),
    )


def rounds_of(series: list[MetricSeries]) -> int:
    assert not isinstance(series[0].pairs, Absent)
    return len(series[0].pairs)


def judged(series: list[MetricSeries]) -> Decision:
    return decide(series, (), rounds=rounds_of(series), looks=LOOKS)


def swapped(series: MetricSeries) -> MetricSeries:
    assert not isinstance(series.pairs, Absent)
    return replace(series, pairs=tuple((b, a) for a, b in series.pairs))


def in_unit(series: MetricSeries, factor: float) -> MetricSeries:
    assert not isinstance(series.pairs, Absent)
    return replace(series, pairs=tuple((a * factor, b * factor) for a, b in series.pairs))


@some
@given(run(wild, st.integers(0, 9)))
def test_no_data_crash_it_and_what_cannot_be_tested_never_passes(series: list[MetricSeries]) -> None:
    decision = judged(series)
    gone = [one for one in decision.metrics if isinstance(one.change, Absent)]
    assert decision.word is not Word.INVALID
    assert not (decision.word is Word.PASS and gone)
    assert all(one.outcome in (Outcome.ABSENT, Outcome.SUSPECT) for one in gone)
    assert decision.headline.startswith(decision.word)


@some
@given(run(value, st.sampled_from(LOOKS)))
def test_the_gate_passes_exactly_when_every_metric_does(series: list[MetricSeries]) -> None:
    decision = judged(series)
    outcomes = {one.outcome for one in decision.metrics}
    assert (decision.word is Word.PASS) == (outcomes == {Outcome.PASS})
    assert (decision.word is Word.REJECT) == (Outcome.REJECT in outcomes)
    assert bool(decision.rejected) == (decision.word is Word.REJECT)


@some
@given(run(value, st.integers(0, 9)))
def test_a_verdict_stands_only_at_a_look(series: list[MetricSeries]) -> None:
    decision = judged(series)
    if decision.word in (Word.PASS, Word.REJECT):
        assert decision.rounds_used in LOOKS
        assert decision.next_look is None
    elif decision.next_look is not None:
        assert decision.next_look in LOOKS
        assert decision.next_look > rounds_of(series)


@some
@given(run(value, st.sampled_from(LOOKS)))
def test_an_interval_holds_its_estimate(series: list[MetricSeries]) -> None:
    for one in judged(series).metrics:
        assert not isinstance(one.change, Absent)
        assert one.change.low <= one.change.point <= one.change.high
        assert one.detectable is not None
        assert one.detectable > 0.0


@some
@given(run(value, st.sampled_from(LOOKS)))
def test_swapping_the_stacks_turns_the_change_over(series: list[MetricSeries]) -> None:
    for ours, theirs in zip(judged(series).metrics, judged([*map(swapped, series)]).metrics, strict=True):
        assert not isinstance(ours.change, Absent)
        assert not isinstance(theirs.change, Absent)
        assert abs((1 + ours.change.point) * (1 + theirs.change.point) - 1) < 1e-6


@some
@given(run(st.floats(1.0, 2.0), st.sampled_from(LOOKS)), st.sampled_from([0.5, 2.0, 1024.0]))
def test_the_unit_does_not_matter(series: list[MetricSeries], factor: float) -> None:
    ours, other = judged(series), judged([in_unit(one, factor) for one in series])
    for first, second in zip(ours.metrics, other.metrics, strict=True):
        assert not isinstance(first.change, Absent)
        assert not isinstance(second.change, Absent)
        assert abs(first.change.point - second.change.point) < 1e-9


@some
@given(run(value, st.sampled_from(LOOKS)), st.floats(0.05, 5.0))
def test_widening_limits_never_turns_a_pass_into_a_reject(series: list[MetricSeries], wide: float) -> None:
    before, after = judged(series), judged([replace(one, limit=Limit(value=wide)) for one in series])
    if before.word is Word.PASS:
        assert after.word is Word.PASS
    if before.word is not Word.REJECT:
        assert after.word is not Word.REJECT


@some
@given(run(value, st.sampled_from(LOOKS)), st.integers(0, 1))
def test_the_order_of_the_metrics_does_not_matter(series: list[MetricSeries], turn: int) -> None:
    other = [*series[turn:], *series[:turn]]
    assert judged(series).word is judged(other).word
