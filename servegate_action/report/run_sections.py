"""The sections of a comment about the run itself: identity, differences, tokens over time, checks, noise, earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servegate_action.analysis.judgement import IdentitySummary, Judgement, TraceSeries
from servegate_action.records import Side
from servegate_action.report import markdown as md
from servegate_action.report import view
from servegate_action.report.cost_section import thinned
from servegate_action.report.escape import chart_label, code, inline, link
from servegate_action.report.markdown import Column, Part
from servegate_action.report.wording import Wording

SENTENCE = 600
CELL = 160
TRACE_POINTS = 40


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What an earlier run told of the same change, of this head or of one before it."""

    head: str
    verdict: str
    run: str
    url: str | None = None


def identity(j: Judgement, w: Wording) -> tuple[Part, ...]:
    """Who the two stacks are, and what differs."""
    return (
        Part(_identities(j, w), drop=70),
        Part(_differences(j, w), drop=60),
        Part(_identity_details(j, w), drop=25),
    )


def _identities(j: Judgement, w: Wording) -> str:
    if not j.identities:
        return ""
    by_side = {one.side: one for one in j.identities}
    rows = []
    for name, fact, evidence in identity_parts(w):
        cells = [_known(by_side.get(side), fact, evidence, w) for side in Side]
        rows.append([name, *cells])
    return md.table((Column(w.part), Column(w.baseline), Column(w.candidate)), rows)


def identity_parts(w: Wording) -> tuple[tuple[str, str, str], ...]:
    """The parts of row 1 and the engine: title, field, field of its evidence."""
    return (
        (w.say("model"), "model", "model_evidence"),
        (w.say("quantization"), "quantization", "quantization_evidence"),
        (w.say("batch size"), "batch", "batch_evidence"),
        (w.say("engine"), "engine", ""),
    )


def _known(one: IdentitySummary | None, fact: str, evidence: str, w: Wording) -> str:
    if one is None:
        return w.none
    text = inline(str(getattr(one, fact)), max_chars=CELL)
    return f"{text} ({w.evidence[getattr(one, evidence)]})" if evidence else text


def _differences(j: Judgement, w: Wording) -> str:
    if not j.differences:
        return w.no_differences if j.identities else ""
    columns = (Column(w.differences), Column(w.baseline), Column(w.candidate), Column(w.migration))
    rows = [
        [
            inline(w.say(one.what)),
            code(one.baseline, max_chars=CELL),
            code(one.candidate, max_chars=CELL),
            w.yes if one.migration else w.no,
        ]
        for one in j.differences
    ]
    return md.table(columns, rows)


def _identity_details(j: Judgement, w: Wording) -> str:
    said = [
        f"{w.sides[one.side]}: {inline(w.say(detail), max_chars=SENTENCE)}"
        for one in j.identities
        for detail in one.details
    ]
    return md.bullets(said)


# ---------------------------------------------------------------- tokens over time


def trace(j: Judgement, w: Wording) -> tuple[Part, ...]:
    """One cell and round as a chart. Its cell is named beside it: no foreign text stands in a chart."""
    return (Part(_trace_chart(j, w), drop=10),)


def _trace_chart(j: Judgement, w: Wording) -> str:
    pair = trace_pair(j)
    if pair is None:
        return ""
    first, second = pair
    seconds = min(len(first.tokens_per_second), len(second.tokens_per_second))
    if seconds < 2:
        return ""
    lines = [thinned(one.tokens_per_second[:seconds], TRACE_POINTS) for one in pair]
    chart = md.xychart(
        chart_label(w.chart_trace),
        x_axis=f'"{chart_label(w.chart_trace_x)}" 0 --> {seconds - 1}',
        y_axis=chart_label(w.chart_trace_y),
        lines=lines,
    )
    which = w.chart_trace_which.format(cell=code(first.cell), round=first.round)
    return md.paragraphs(which, chart, w.chart_trace_lines)


def trace_pair(j: Judgement) -> tuple[TraceSeries, TraceSeries] | None:
    """Both sides of the latest round, in the cell that the headline names, else in the first cell there is."""
    named = view.named_metric(j)
    cells = [named.key.cell] if named is not None and named.key.cell else []
    cells += [one.cell for one in j.traces]
    by_key = {(one.cell, one.round, one.side): one for one in j.traces}
    for cell in cells:
        for number in sorted({one.round for one in j.traces}, reverse=True):
            sides = [by_key.get((cell, number, side)) for side in Side]
            if sides[0] is not None and sides[1] is not None:
                return sides[0], sides[1]
    return None


# ---------------------------------------------------------------- noise, method, checks


def method(j: Judgement, w: Wording) -> tuple[Part, ...]:
    """How it was decided, how noisy it was, what else was checked."""
    return (
        Part(md.paragraphs(*(inline(text, max_chars=1200) for text in view.method(j, w))), drop=85),
        Part(_checks(j, w), drop=40),
        Part(_notes(j, w), drop=45),
        Part(_statistics(j, w), drop=20),
    )


def _checks(j: Judgement, w: Wording) -> str:
    if not j.checks:
        return ""
    held = sum(check.ok for check in j.checks)
    said = w.passed_checks.format(passed=held, total=len(j.checks))
    columns = (Column(w.checks), Column(w.cell), Column(w.side), Column(w.detail), Column(w.verdict))
    rows = [
        [
            inline(view.check_name(check, w)),
            code(check.cell) if check.cell else w.none,
            w.sides[check.side] if check.side else w.none,
            inline(w.say(check.detail), max_chars=SENTENCE),
            f"{view.CHECK_SYMBOLS[check.ok]} {w.holds if check.ok else w.fails}",
        ]
        for check in j.checks
    ]
    return md.paragraphs(said, md.table(columns, rows))


def _statistics(j: Judgement, w: Wording) -> str:
    columns = (
        Column(w.metric),
        Column(w.cell),
        Column(w.requests, right=True),
        Column(w.rounds, right=True),
        Column(w.spread, right=True),
        Column(w.caught, right=True),
        Column(w.p_value, right=True),
        Column(w.verdict),
    )
    rows = [
        [
            inline(one.name),
            code(one.cell) if one.cell else w.whole_mix,
            one.requests,
            one.rounds,
            md.unbroken(one.spread),
            md.unbroken(one.caught),
            md.unbroken(inline(one.p)),
            inline(one.outcome),
        ]
        for one in view.metrics(j, w)
    ]
    return md.table(columns, rows) if rows else ""


def _notes(j: Judgement, w: Wording) -> str:
    voided = [f"{w.voided}: {inline(w.say(text), max_chars=SENTENCE)}" for text in j.voided]
    notes = [inline(w.say(text), max_chars=SENTENCE) for text in j.notes]
    policy = [w.policy_from.format(policy=inline(j.change.policy_from))] if j.change else []
    return md.bullets([*voided, *notes, *policy])


# ---------------------------------------------------------------- earlier runs


def earlier_runs(earlier: Sequence[EarlierRun], w: Wording) -> tuple[Part, ...]:
    """What was said about earlier runs, newest first as given."""
    columns = (Column(w.commit), Column(w.verdict), Column(w.run_id))
    rows = [[code(view.short(one.head)), inline(one.verdict, max_chars=20), link(one.run, one.url)] for one in earlier]
    return (Part(md.table(columns, rows) if rows else "", drop=5),)
