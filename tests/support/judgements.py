"""Whole judgements, one per verdict and some more, for whoever renders, stores or publishes.

They are what the analysis says of the made-up runs of `recordings`: a report made from them is one that the product makes.
A test that needs an edge changes the part in question and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from servegate_action.analysis.checklist import judge
from servegate_action.analysis.judgement import CostComparison, Judgement, MetricKey, Row, RowLine, Word
from servegate_action.config.cost import Migration
from servegate_action.records import Side
from tests.support import recordings
from tests.support.recordings import CELLS, Scene, build, judged

LONG_IS_RARE = tuple(replace(cell, weight=1.0 if cell.name == "long" else 12.0) for cell in CELLS)


@cache
def passed() -> Judgement:
    """Faster everywhere, with service levels, and with all in the bill that a bill can have."""
    built = build(
        recordings.passing(scale_to_zero=True, requests_per_hour=48.0, slo_ttft_p95_ms=500.0, slo_tpot_p95_ms=50.0)
    )
    assert built.config.cost is not None
    prices = built.config.cost.model_copy(update={"migration": Migration(hours=0.5, hourly_usd=120)})
    return judge(built.config.model_copy(update={"cost": prices}), built.recording, built.data)


def rejected() -> Judgement:
    """A win on throughput, and a loss on the tail of long contexts, which are too rare to show in the mix."""
    return judged(recordings.rejecting(cells=LONG_IS_RARE, voided_round=2))


def inconclusive() -> Judgement:
    """Eight rounds, and the noise is still larger than the limits allow."""
    return judged(recordings.inconclusive(noise=0.02))


def invalid() -> Judgement:
    """Two quantizations."""
    return judged(recordings.invalid())


def slower() -> Judgement:
    """Within every limit, and shown to be a little slower all the same."""
    return judged(Scene(noise=0.0002, request_noise=0.0005, tpot_factor=1.01, ttft_factor=0.9))


def with_failures() -> Judgement:
    """Three requests of each of the candidate's launches failed, and so the gate."""
    return judged(recordings.passing(failed={Side.CANDIDATE: 3}))


def with_many_cells(count: int) -> Judgement:
    """A passed gate whose first cell stands there so many times, under other names."""
    j = passed()
    names = [f"cell-{number}/1" for number in range(count)]
    own = [one for one in j.metrics if one.key.cell == CELLS[0].id]
    metrics = [
        one.model_copy(update={"key": MetricKey(metric=one.key.metric, cell=name)}) for name in names for one in own
    ]
    rows = [row.model_copy(update={"lines": (*row.lines, *_lines(row, names))}) for row in j.rows]
    return j.model_copy(update={"metrics": (*j.metrics, *metrics), "rows": tuple(rows)})


def _lines(row: Row, names: list[str]) -> list[RowLine]:
    own = [line for line in row.lines if line.cell == CELLS[0].id]
    return [line.model_copy(update={"cell": name}) for name in names for line in own]


def on_cpu() -> Judgement:
    """No GPU, no counters of power, no prices."""
    return judged(recordings.on_cpu())


def without_power() -> Judgement:
    """No GPU and no counters of power, but prices: the bill has no energy in it."""
    return judged(recordings.on_cpu(cost=True, electricity=False))


def without_rounds() -> Judgement:
    """A stack died before anything was measured, on somebody's own machine: every number is absent, with its reason."""
    built = build(recordings.nothing_measured())
    recording = built.recording.model_copy(update={"change": None, "run_url": None})
    return judge(built.config, recording, built.data)


def cost() -> CostComparison:
    """A bill with idle time, cold starts, power and migration."""
    bill = passed().cost
    assert isinstance(bill, CostComparison)
    return bill


ALL: dict[Word, Callable[[], Judgement]] = {
    Word.PASS: passed,
    Word.REJECT: rejected,
    Word.INCONCLUSIVE: inconclusive,
    Word.INVALID: invalid,
}
