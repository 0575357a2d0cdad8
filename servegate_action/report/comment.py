"""The comment on the pull request (or on the issue that serves as change request), in GitHub's Markdown.

The first lines are what people read: the verdict, the sentence that decided it, the checklist with its eight rows, always
all of them. Everything else is folded. A comment that would be too long loses folded parts in a fixed order and says so;
marker, headline and checklist are never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from servegate_action.analysis.judgement import Judgement
from servegate_action.records import Failure
from servegate_action.report import markdown as md
from servegate_action.report import view
from servegate_action.report.escape import code, inline, link
from servegate_action.report.markdown import Column, Section
from servegate_action.report.run_sections import EarlierRun
from servegate_action.report.sections import moved, sections, value, verdict
from servegate_action.report.wording import Language, Wording, wording

COMMENT_CHARS = 60_000
LABEL = 80
SENTENCE = 600
LOG_LINES = 5
LOG_LINE = 160
CELL = 90


@dataclass(frozen=True, slots=True)
class Marker:
    """What lets a later run find this comment again, in its first line. Characters that could end it are left out."""

    gate: str
    head: str
    run: str
    verdict: str

    def __str__(self) -> str:
        fields = {
            "gate": _token(self.gate),
            "head": _token(re.sub(r"[^0-9a-f]", "", self.head)),
            "run": _token(re.sub(r"(?<!\d)\.|\.(?!\d)", "", self.run)),
            "verdict": _token(self.verdict.lower()),
        }
        return f"<!-- servegate:v1 {' '.join(f'{name}={value}' for name, value in fields.items())} -->"


def _token(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "", value)[:100].rstrip("-") or "-"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report will stand, as far as it is known: addresses of its surroundings, and whether the head has moved on."""

    artifacts_url: str | None = None
    artifacts_until: str | None = None
    newer_head: str | None = None
    directory: str = "servegate-report"


def marker_of(j: Judgement) -> Marker:
    """The marker that follows from the judgement alone."""
    return Marker(
        gate=j.gate, head=view.short(j.change.head_sha if j.change else None), run=j.run_id, verdict=j.word.value
    )


def comment(
    j: Judgement,
    *,
    language: Language = "en",
    place: Place | None = None,
    earlier: Sequence[EarlierRun] = (),
    max_chars: int = COMMENT_CHARS,
) -> str:
    """The whole comment, at most `max_chars` characters unless marker, headline and checklist alone are longer."""
    w = wording(language)
    core = md.paragraphs(f"{marker_of(j)}\n{first_lines(j, w, place or Place())}", checklist(j, w))
    return fitted(core, sections(j, w, earlier), w, lambda text: len(text) < max_chars) + "\n"


# ---------------------------------------------------------------- first lines


def first_lines(j: Judgement, w: Wording, place: Place) -> str:
    """Heading, callouts, the deciding sentence, and what was compared on what."""
    heading = f"### {view.WORD_SYMBOLS[j.word]} {w.title.format(gate=code(j.gate), word=w.words[j.word])}"
    said = view.headline(j, w)
    count, total = view.rows_that_hold(j)
    holds = w.rows_hold.format(count=count, total=total)
    sentence = f"{md.bold(inline(said.lead, max_chars=SENTENCE))}{_rest(said.rest)}"
    return md.paragraphs(
        heading,
        *_callouts(j, w, place),
        f"{_ended(sentence)} {holds}",
        f"{_compared(j, w)}\n{_links(j, w, place)}",
    )


def _rest(text: str) -> str:
    return f" {inline(text, max_chars=SENTENCE)}" if text else ""


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", ".**")) else f"{sentence}."


def _callouts(j: Judgement, w: Wording, place: Place) -> list[str]:
    made = []
    if place.newer_head and j.change:
        measured, head = code(view.short(j.change.head_sha)), code(view.short(place.newer_head))
        made.append(md.callout("WARNING", w.outdated.format(measured=measured, head=head)))
    if j.change and j.change.policy_edits:
        keys = ", ".join(code(key, max_chars=60) for key in j.change.policy_edits[:20])
        made.append(md.callout("IMPORTANT", w.policy_edited.format(keys=keys, policy=inline(j.change.policy_from))))
    if j.failure:
        made.append(md.callout("CAUTION", *_stopped(j.failure, w)))
    return made


def _stopped(failure: Failure, w: Wording) -> Iterator[str]:
    """What stopped the run, why, what to do, and the end of the log of the stack that did it."""
    yield w.stopped_early.format(failure=inline(w.say(failure.what), max_chars=SENTENCE))
    if failure.why:
        yield inline(w.say(failure.why), max_chars=SENTENCE)
    if failure.next_step:
        yield f"{w.next_step}: {inline(w.say(failure.next_step), max_chars=SENTENCE)}"
    if failure.log_tail:
        lines = [code(line, max_chars=LOG_LINE) for line in failure.log_tail[-LOG_LINES:] if line.strip()]
        yield f"{w.log_tail}:\n\n{md.bullets(lines)}"


def _compared(j: Judgement, w: Wording) -> str:
    baseline, candidate = (
        md.bold(inline(label, max_chars=LABEL)) or w.none for label in (j.baseline_label, j.candidate_label)
    )
    facts = [
        w.from_to.format(baseline=baseline, candidate=candidate),
        w.workload.format(digest=code(view.short(j.workload_sha256, view.SHORT_DIGEST))),
        inline(j.accelerator, max_chars=LABEL),
        w.rounds_alternating.format(rounds=j.rounds_used),
        view.noise(j, w),
    ]
    return " · ".join(fact for fact in facts if fact)


def _links(j: Judgement, w: Wording, place: Place) -> str:
    artifacts = w.artifacts_until.format(date=place.artifacts_until) if place.artifacts_until else w.artifacts
    facts = [link(w.run.format(run=j.run_id), j.run_url)]
    facts += [link(artifacts, place.artifacts_url)] if place.artifacts_url else []
    facts += [w.reproduce.format(command=code(f"servegate judge {place.directory}"))]
    return " · ".join(facts)


# ---------------------------------------------------------------- the checklist


def checklist(j: Judgement, w: Wording) -> str:
    """The eight rows, one line each; more lines of a row are counted, and stand in the folded sections."""
    columns = (
        Column(""),
        Column(w.check),
        Column(w.baseline, right=True),
        Column(w.candidate, right=True),
        Column(view.change_title(j, w), right=True),
        Column(w.allowed, right=True),
        Column(w.verdict),
    )
    return md.table(columns, (_row(row, w) for row in view.rows(j, w)))


def _row(row: view.RowText, w: Wording) -> list[str]:
    line = row.first
    told = f": {inline(row.shown, max_chars=CELL)}" if row.shown else ""
    cell = f" {code(line.cell)}" if line.cell else ""
    more = f" ({w.more_lines.format(count=len(row.lines) - 1)})" if len(row.lines) > 1 else ""
    return [
        f"{row.number}{md.NBSP}{row.symbol}",
        f"{md.bold(inline(row.title))}{told}{cell}{more}",
        value(line, line.baseline) or w.none,
        value(line, line.candidate) or w.none,
        moved(line.change, line.interval),
        md.unbroken(inline(line.allowed, max_chars=CELL)) or w.none,
        verdict(row.mark, line.verdict),
    ]


# ---------------------------------------------------------------- the size ladder


def fitted(core: str, parts: Sequence[Section], w: Wording, fits: Callable[[str], bool]) -> str:
    """The core and as many folded parts as fit, the least needed ones left out first; what was left out is named."""
    order = sorted({part.drop for section in parts for part in section.parts})
    for least in (0, *(drop + 1 for drop in order)):
        text = _assembled(core, parts, w, least)
        if fits(text):
            return text
    return core


def _assembled(core: str, parts: Sequence[Section], w: Wording, least: int) -> str:
    folded, shortened = [], []
    for section in parts:
        kept = [part.text for part in section.parts if part.drop >= least]
        if len(kept) < len(section.parts):
            shortened.append(section.title)
        if kept:
            folded.append(md.details(section.title, md.paragraphs(*kept)))
    notice = w.left_out.format(sections=", ".join(shortened)) if shortened else ""
    return md.paragraphs(core, *folded, notice)
