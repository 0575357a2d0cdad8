"""The folded sections of a comment and a summary, in Markdown: each a title and parts that may be left out one by one.

`drop` gives the order in which parts go when a text must become shorter: the smallest first. The order is fixed, so that
two reports of one run never differ by more than their length. Cost, identity and method have modules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from servegate_action.analysis.judgement import HardCheck, Judgement, Mark, MetricVerdict, Outcome
from servegate_action.report import cost_section, run_sections, view
from servegate_action.report import markdown as md
from servegate_action.report.escape import code, inline
from servegate_action.report.markdown import Column, Part, Section
from servegate_action.report.run_sections import EarlierRun
from servegate_action.report.wording import Wording

SENTENCE = 600
CELL = 90
MOST_ROWS = 400


def sections(j: Judgement, w: Wording, earlier: Sequence[EarlierRun] = ()) -> tuple[Section, ...]:
    """All sections in the order in which they are read; empty ones are left out."""
    made = (
        Section(w.why, (Part(_why(j, w), drop=99), Part(_steps(j, w), drop=90))),
        Section(w.every_cell, (Part(_every_line(j, w), drop=80), Part(_row_notes(j, w), drop=35))),
        Section(w.cost, cost_section.parts(j, w)),
        Section(w.identity, run_sections.identity(j, w)),
        Section(w.over_time, run_sections.trace(j, w)),
        Section(w.method, run_sections.method(j, w)),
        Section(w.earlier, run_sections.earlier_runs(earlier, w)),
    )
    full = (Section(one.title, tuple(part for part in one.parts if part.text)) for one in made)
    return tuple(one for one in full if one.parts)


def _number(text: str) -> str:
    return md.unbroken(inline(text, max_chars=CELL))


def value(line: view.LineText, text: str) -> str:
    """One side of a line for a table cell: a number stays on its line, a text may be broken."""
    return _number(text) if line.numeric else inline(text, max_chars=CELL)


def moved(change: str, interval: str) -> str:
    """`+6.3 % (+4.1 … +8.8)` for a table cell."""
    return _number(change) + (f" ({_number(interval)})" if interval else "")


# ---------------------------------------------------------------- why


def _why(j: Judgement, w: Wording) -> str:
    failed = [check for check in j.checks if not check.ok]
    slower = [one for one in j.metrics if one.worse_within_allowance and one.gated]
    better = [one for one in j.metrics if one.better and one.gated]
    return md.paragraphs(
        w.word_meaning[j.word],
        _titled(w.failed_checks, [check_text(check, w) for check in failed]),
        md.bullets([*(_explained(j, one, w) for one in view.undecided_or_bad(j)), *_absent(j, w)]),
        _listed(w.why_slower, slower, w),
        _listed(w.why_better, better, w),
    )


def _absent(j: Judgement, w: Wording) -> list[str]:
    return [
        f"{md.bold(inline(', '.join(places), max_chars=SENTENCE))} ({w.outcomes[Outcome.ABSENT]}): {inline(reason, max_chars=SENTENCE)}"
        for reason, places in view.absent_by_reason(j, w).items()
    ]


def _titled(title: str, items: Sequence[str]) -> str:
    return f"{title}:\n{md.bullets(items)}" if items else ""


def place(text: view.MetricText) -> str:
    """A metric's name, its cell as code."""
    return f"{inline(text.name)} {code(text.cell)}" if text.cell else inline(text.name)


def _explained(j: Judgement, one: MetricVerdict, w: Wording) -> str:
    said = view.explained(j, one, w)
    return f"{md.bold(place(view.metric(one, w)))}: {inline(said.rest, max_chars=SENTENCE)}"


def _listed(title: str, metrics: Sequence[MetricVerdict], w: Wording) -> str:
    """Metrics with their changes, in one paragraph."""
    texts = [view.metric(one, w) for one in metrics]
    said = " · ".join(f"{place(text)} {moved(text.change, text.interval)}" for text in texts)
    return f"{title}: {said}" if said else ""


def check_text(check: HardCheck, w: Wording) -> str:
    """A hard check in one line."""
    where = [w.sides[check.side]] if check.side else []
    where += [code(check.cell)] if check.cell else []
    name = md.bold(inline(view.check_name(check, w)))
    start = f"{name} ({', '.join(where)})" if where else name
    return f"{start}: {inline(w.say(check.detail), max_chars=SENTENCE)}"


def _steps(j: Judgement, w: Wording) -> str:
    return _titled(w.next_step, [inline(w.say(text), max_chars=SENTENCE) for text in view.advice(j)])


# ---------------------------------------------------------------- every line


def _every_line(j: Judgement, w: Wording) -> str:
    columns = (
        Column("#"),
        Column(w.what),
        Column(w.cell),
        Column(w.baseline, right=True),
        Column(w.candidate, right=True),
        Column(view.change_title(j, w), right=True),
        Column(w.allowed, right=True),
        Column(w.verdict),
    )
    lines = [line for row in view.rows(j, w) for line in row.lines][:MOST_ROWS]
    return md.table(columns, (line_cells(line, w) for line in lines))


def line_cells(line: view.LineText, w: Wording) -> list[str]:
    """One checklist line as table cells."""
    return [
        f"{line.number}{md.NBSP}{line.symbol}",
        inline(line.what, max_chars=CELL),
        code(line.cell) if line.cell else w.none,
        value(line, line.baseline) or w.none,
        value(line, line.candidate) or w.none,
        moved(line.change, line.interval),
        _number(line.allowed) or w.none,
        verdict(line.mark, line.verdict),
    ]


def verdict(mark: Mark, word: str) -> str:
    """A verdict in a table cell; what fails stands out."""
    text = inline(word, max_chars=CELL)
    return md.bold(text) if mark is Mark.BAD else text


def _row_notes(j: Judgement, w: Wording) -> str:
    notes = []
    for row in view.rows(j, w):
        notes += [f"{row.number}: {inline(text, max_chars=SENTENCE)}" for text in (*row.notes, *_reasons(row))]
    return md.bullets(notes)


def _reasons(row: view.RowText) -> list[str]:
    """Why lines of a row have no number or do not count, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for line in row.lines:
        for reason in line.reasons:
            by_reason.setdefault(reason, []).append(f"{line.what} {line.cell}".strip())
    return [f"{' · '.join(dict.fromkeys(lines))}: {reason}" for reason, lines in by_reason.items()]
