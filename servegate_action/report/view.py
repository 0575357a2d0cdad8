"""What a judgement says, as plain text in one language: shared by the comment, the summary and the page.

Everything in here is unescaped text ready to be placed; whoever places it escapes the whole of it, our words and foreign
words alike. Choosing words and digits happens here; no value is computed and nothing is decided.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from servegate_action.analysis import headline as words
from servegate_action.analysis.judgement import (
    Direction,
    HardCheck,
    Judgement,
    Mark,
    MetricKey,
    MetricVerdict,
    Outcome,
    Quantity,
    Row,
    RowLine,
    Shown,
    Word,
)
from servegate_action.config.limits import Limit
from servegate_action.records import Absent, Evidence
from servegate_action.report import numbers
from servegate_action.report.wording import Wording
from servegate_action.report.wording.en import WORDING as ENGLISH

SYMBOLS = {Mark.OK: "✅", Mark.BAD: "❌", Mark.OPEN: "⚠️", Mark.INFO: "ℹ️"}
WORD_SYMBOLS = {Word.PASS: "✅", Word.REJECT: "❌", Word.INCONCLUSIVE: "⚠️", Word.INVALID: "⛔"}
CHECK_SYMBOLS = {True: "✅", False: "❌"}
SHORT_SHA = 7
LONG_TEXT = 24
SHORT_DIGEST = 12


@dataclass(frozen=True, slots=True)
class LineText:
    """One line of the checklist in words. Empty strings are shown as a dash."""

    number: int
    label: str
    note: str
    cell: str
    baseline: str
    candidate: str
    change: str
    interval: str
    allowed: str
    verdict: str
    mark: Mark
    reasons: tuple[str, ...]
    numeric: bool

    @property
    def what(self) -> str:
        """The label, and what qualifies both numbers: `GPU utilization (NVML utilization.gpu)`."""
        return f"{self.label} ({self.note})" if self.note else self.label

    @property
    def symbol(self) -> str:
        """The line's mark as a sign; the verdict says the same in words."""
        return SYMBOLS[self.mark]

    @property
    def whole_change(self) -> str:
        """Point and interval in one."""
        return f"{self.change} ({self.interval})" if self.interval else self.change


@dataclass(frozen=True, slots=True)
class RowText:
    """One of the eight rows."""

    number: int
    title: str
    symbol: str
    mark: Mark
    mark_word: str
    first: LineText
    lines: tuple[LineText, ...]
    notes: tuple[str, ...]

    @property
    def shown(self) -> str:
        """What the first line is about, unless the title says it already."""
        titles = {self.title.lower(), self.title.lower().removeprefix("same ")}
        return self.first.note if self.first.label.lower() in titles else self.first.what


@dataclass(frozen=True, slots=True)
class MetricText:
    """One metric in words."""

    name: str
    cell: str
    baseline: str
    candidate: str
    change: str
    interval: str
    allowed: str
    outcome: str
    mark: Mark
    requests: str
    rounds: str
    spread: str
    caught: str
    p: str
    reason: str

    @property
    def place(self) -> str:
        """`p95 TPOT long/4`."""
        return f"{self.name} {self.cell}" if self.cell else self.name

    @property
    def whole_change(self) -> str:
        """Point and interval in one."""
        return f"{self.change} ({self.interval})" if self.interval else self.change


def short(digest: str | None, length: int = SHORT_SHA) -> str:
    """The first characters of a hash."""
    return (digest or "")[:length]


def level(share: float, w: Wording) -> str:
    """A confidence in whole percent, rounded down: never more than what was reached."""
    return numbers.percent(int(100 * share + 1e-9) / 100, w.marks, decimals=0)


def interval_level(j: Judgement, w: Wording) -> str:
    """The confidence of all intervals of this judgement."""
    return level(1 - 2 * j.level, w)


def change_title(j: Judgement, w: Wording) -> str:
    """The head of the column of changes."""
    return w.change_interval.format(level=interval_level(j, w).replace(" ", "\u00a0"))


def metric_name(key: MetricKey, w: Wording) -> str:
    """The metric's name in this language, without its cell."""
    return w.metrics[key.metric]


def limit(value: Limit, direction: Direction | None, w: Wording) -> str:
    """What is allowed, with its real sign where the direction is known."""
    if direction is not None:
        return numbers.allowed(value, direction, w.marks)
    text = numbers.allowed(value, Direction.LOWER, w.marks)
    return text.removeprefix("+")


# ---------------------------------------------------------------- metrics


def metrics(j: Judgement, w: Wording) -> tuple[MetricText, ...]:
    """Every metric in the judgement's own order."""
    return tuple(metric(one, w) for one in j.metrics)


def metric(one: MetricVerdict, w: Wording) -> MetricText:
    """One metric in words."""
    baseline, candidate = _sides(one, w)
    moved, interval, allowed_text = _moved(one, w)
    return MetricText(
        name=metric_name(one.key, w),
        cell=one.key.cell or "",
        baseline=baseline,
        candidate=candidate,
        change=moved,
        interval=interval,
        allowed=allowed_text,
        outcome=outcome(one, w),
        mark=metric_mark(one),
        requests=w.none if one.requests is None else numbers.count(one.requests, w.marks),
        rounds=str(len(one.per_round)),
        spread=_size(one.noise_sd, one.limit, w, least="±"),
        caught=_size(one.detectable, one.limit, w, least="≥ "),
        p=w.none if one.p_adjusted is None else numbers.probability(one.p_adjusted, w.marks),
        reason=_metric_reason(one, w),
    )


def outcome(one: MetricVerdict, w: Wording) -> str:
    """The verdict of one metric in words."""
    if not one.gated:
        return w.not_gated
    if one.worse_within_allowance:
        return f"{w.outcomes[one.outcome]}, {w.why_slower[0].lower()}{w.why_slower[1:]}"
    return w.outcomes[one.outcome]


def metric_mark(one: MetricVerdict) -> Mark:
    """How a metric stands, as a checklist mark."""
    if not one.gated:
        return Mark.INFO
    return {Outcome.PASS: Mark.OK, Outcome.REJECT: Mark.BAD}.get(one.outcome, Mark.OPEN)


def _sides(one: MetricVerdict, w: Wording) -> tuple[str, str]:
    if isinstance(one.baseline, Absent) or isinstance(one.candidate, Absent):
        return (
            numbers.maybe(one.baseline, one.unit, w.marks, none=w.none),
            numbers.maybe(one.candidate, one.unit, w.marks, none=w.none),
        )
    return numbers.pair((one.baseline, one.candidate), one.unit, w.marks)


def _moved(one: MetricVerdict, w: Wording) -> tuple[str, str, str]:
    """Change, interval, allowed."""
    if isinstance(one.change, Absent):
        return w.none, "", limit(one.limit, one.direction, w)
    text = numbers.change(one.change, one.limit, one.direction, w.marks)
    return text.point, text.interval, text.allowed


def _size(value: float | None, of: Limit, w: Wording, *, least: str) -> str:
    """A spread or a detectable change, in the unit of the metric's limit."""
    if value is None:
        return w.none
    if of.unit == "points":
        return f"{least}{numbers.figure(value, 1, w.marks)} {w.marks.points}"
    return least + numbers.percent(value, w.marks)


def _metric_reason(one: MetricVerdict, w: Wording) -> str:
    """Why there is no number, or why it does not count."""
    if isinstance(one.change, Absent):
        return w.say(one.change.absent)
    return w.say(one.why_not_gated) if one.why_not_gated else ""


# ---------------------------------------------------------------- rows


def rows(j: Judgement, w: Wording) -> tuple[RowText, ...]:
    """The eight rows."""
    return tuple(_row(row, w, headline=j.headline) for row in j.rows)


def _row(row: Row, w: Wording, *, headline: str) -> RowText:
    lines = tuple(_line(row.number, line, w) for line in row.lines)
    return RowText(
        number=row.number,
        title=w.row_titles[row.number - 1],
        symbol=SYMBOLS[row.mark],
        mark=row.mark,
        mark_word=w.mark_words[row.mark],
        first=lines[0],
        lines=lines,
        notes=tuple(w.say(note) for note in row.notes if note != headline),
    )


def _line(number: int, line: RowLine, w: Wording) -> LineText:
    baseline, candidate = _shown_pair(line.baseline, line.candidate, w)
    moved, interval, allowed_text = w.none, "", _allowed(line, w)
    if not isinstance(line.change, Absent):
        text = numbers.change(
            line.change, line.allowed if isinstance(line.allowed, Limit) else None, line.direction, w.marks
        )
        moved, interval = text.point, text.interval
        allowed_text = text.allowed or allowed_text
    return LineText(
        number=number,
        label=_metric_label(line.label, w) or w.say(line.label),
        note=_note(line, w),
        cell=line.cell or "",
        baseline=baseline,
        candidate=candidate,
        change=moved,
        interval=interval,
        allowed=allowed_text,
        verdict=verdict_word(line.verdict, w),
        mark=line.mark,
        reasons=_reasons(line, w),
        numeric=any(isinstance(side, Quantity) for side in (line.baseline, line.candidate)),
    )


def _note(line: RowLine, w: Wording) -> str:
    """What qualifies the numbers of a line, such as the counter that they come from."""
    notes = [side.note for side in (line.baseline, line.candidate) if isinstance(side, Quantity) and side.note]
    return " / ".join(dict.fromkeys(w.say(note) for note in notes))


def _metric_label(label: str, w: Wording) -> str | None:
    """A label that is a metric's English name, in this language."""
    return next((w.metrics[metric] for metric, name in ENGLISH.metrics.items() if name == label), None)


def _shown_pair(baseline: Shown, candidate: Shown, w: Wording) -> tuple[str, str]:
    """Both sides; a long text that holds for both is written once."""
    if isinstance(baseline, Quantity) and isinstance(candidate, Quantity):
        return numbers.pair_of_quantities(baseline, candidate, w.marks)
    first, second = _shown(baseline, w), _shown(candidate, w)
    return first, w.the_same if first == second and len(first) > LONG_TEXT else second


def _shown(value: Shown, w: Wording) -> str:
    if isinstance(value, Quantity):
        return numbers.measure(value.value, value.unit, w.marks)
    return w.none if isinstance(value, Absent) else w.say(value)


def _allowed(line: RowLine, w: Wording) -> str:
    """What is allowed; nothing where the line is only shown."""
    if isinstance(line.allowed, Limit):
        return limit(line.allowed, line.direction, w)
    return w.none if line.allowed is None or line.mark is Mark.INFO else w.say(line.allowed)


def verdict_word(verdict: str, w: Wording) -> str:
    """A verdict of the analysis in this language."""
    known: dict[str, str] = {outcome.value: text for outcome, text in w.outcomes.items()}
    known |= {evidence.value: w.evidence[evidence] for evidence in Evidence}
    known |= {"shown": w.not_gated}
    return known.get(verdict) or w.say(verdict)


def _reasons(line: RowLine, w: Wording) -> tuple[str, ...]:
    """Why a side of the line has no number, or why the line is only shown. A sentence about one side needs no reason."""
    sides = (line.baseline, line.candidate)
    absent = (
        [side.absent for side in sides if isinstance(side, Absent)]
        if not any(isinstance(side, str) for side in sides)
        else []
    )
    not_gated = [line.allowed] if isinstance(line.allowed, str) and line.mark is Mark.INFO else []
    return tuple(dict.fromkeys(w.say(reason) for reason in (*absent, *not_gated)))


def rows_that_hold(j: Judgement) -> tuple[int, int]:
    """How many rows hold, and how many can: a row that is only shown does neither."""
    marks = [row.mark for row in j.rows if row.mark is not Mark.INFO]
    return marks.count(Mark.OK), len(marks)


# ---------------------------------------------------------------- first sentence


@dataclass(frozen=True, slots=True)
class Headline:
    """The sentence that people read first: what decided, and the rest of it."""

    lead: str
    rest: str

    @property
    def whole(self) -> str:
        """Both."""
        return f"{self.lead}{self.rest}"


def headline(j: Judgement, w: Wording) -> Headline:
    """The judgement's own sentence without its first word (which the title says), in this language."""
    text = j.headline.removeprefix(f"{j.word.value}: ").removeprefix(f"{j.word.value}, ")
    if w.code != "en":
        text = _headline_in(j, text, w)
    lead, bracket, rest = text.partition(" (")
    first_word = lead.partition(" ")[0]
    return Headline(
        lead=lead[:1].upper() + lead[1:] if first_word.rstrip(":,").isalpha() else lead, rest=bracket + rest
    )


def _headline_in(j: Judgement, english: str, w: Wording) -> str:
    """The same statement about the same metric in this language; a sentence about anything else as far as it is known."""
    one = named_metric(j)
    if one is None or isinstance(one.change, Absent):
        return w.say(english)
    text = metric(one, w)
    interval = w.interval_rounds.format(level=interval_level(j, w), interval=text.interval, rounds=one.change.rounds)
    whole = (
        f"{text.place}: {text.change} ({interval}), {w.limit_allowed.format(limit=text.allowed)}{_and_more(english, w)}"
    )
    if j.word is Word.REJECT:
        return whole
    if j.word is Word.PASS:
        if one.worse_within_allowance:
            return f"{w.why_slower}: {whole}"
        return f"{w.all_within.format(count=j.distinct_metrics)}. {w.tightest.format(metric=whole)}"
    rounds = w.rounds_used.format(used=j.rounds_used, planned=j.rounds_planned)
    decides = f"; {w.why_projected.format(rounds=one.projected_rounds)}" if one.projected_rounds else ""
    return f"{rounds}. {whole}{decides}"


def _and_more(english: str, w: Wording) -> str:
    """` (and 2 more)`, as the sentence has it."""
    found = re.search(r" \(and (\d+) more\)$", english)
    return f" ({w.and_more.format(count=found[1])})" if found else ""


def named_metric(j: Judgement) -> MetricVerdict | None:
    """The metric that the headline names with its change; None when it names none."""

    def named(one: MetricVerdict) -> bool:
        if isinstance(one.change, Absent):
            return False
        name, change = words.name(one.key), words.change(one.change)
        return f"{name}: {change} (" in j.headline or f"{name} {change} (" in j.headline

    return next((one for one in j.metrics if named(one)), None)


# ---------------------------------------------------------------- checks, noise, method


def check_name(check: HardCheck, w: Wording) -> str:
    """What a hard check is called."""
    words = check.name.replace("_", " ")
    return w.say(words)


def noise(j: Judgement, w: Wording) -> str:
    """`noise ±0.9 %`, or nothing."""
    return "" if isinstance(j.noise, Absent) else w.noise.format(noise=noise_size(j, w))


def noise_size(j: Judgement, w: Wording) -> str:
    """`±0.9 %`, or a dash."""
    return w.none if isinstance(j.noise, Absent) else f"±{numbers.percent(j.noise, w.marks)}"


def method(j: Judgement, w: Wording) -> list[str]:
    """The rule in words, what was replayed, and what the run could have caught."""
    said = [w.say(j.method)]
    said.append(
        w.method_replayed.format(
            requests=numbers.count(j.requests_replayed, w.marks), rounds=j.rounds_used, planned=j.rounds_planned
        )
    )
    if isinstance(j.noise, Absent):
        said.append(w.noise_absent.format(reason=w.say(j.noise.absent)))
    forecast = power_forecast(j, w)
    return [*said, forecast] if forecast else said


def power_forecast(j: Judgement, w: Wording) -> str:
    """What this run would have caught nine times out of ten: from its most to its least sensitive gated metric."""
    known = [one for one in j.metrics if one.gated and one.detectable is not None and one.limit.unit == "ratio"]
    if not known:
        return ""
    ordered = sorted(known, key=lambda one: one.detectable or 0.0)
    best, worst = metric(ordered[0], w), metric(ordered[-1], w)
    return w.would_have_caught.format(
        best=best.caught.removeprefix("≥ "), worst=worst.caught.removeprefix("≥ "), metric=worst.place
    )


# ---------------------------------------------------------------- why


def undecided_or_bad(j: Judgement) -> list[MetricVerdict]:
    """The gated metrics with numbers that are not shown to be within their limits, rejected ones first."""
    order = {Outcome.REJECT: 0, Outcome.SUSPECT: 1, Outcome.UNCERTAIN: 2}
    found = [one for one in j.metrics if one.gated and one.outcome in order and not isinstance(one.change, Absent)]
    return sorted(found, key=lambda one: order[one.outcome])


def absent_by_reason(j: Judgement, w: Wording) -> dict[str, list[str]]:
    """The gated metrics without numbers, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for one in j.metrics:
        if one.gated and isinstance(one.change, Absent) and one.outcome is not Outcome.PASS:
            by_reason.setdefault(w.say(one.change.absent), []).append(metric(one, w).place)
    return by_reason


def explained(j: Judgement, one: MetricVerdict, w: Wording) -> Headline:
    """One metric: its name, and the change, what was allowed, how sure that is."""
    text = metric(one, w)
    said = w.why_metric.format(change=text.whole_change, allowed=text.allowed, rounds=len(one.per_round))
    extra = [w.why_holm.format(p=text.p, count=j.distinct_metrics)] if one.outcome is Outcome.REJECT else [text.outcome]
    extra += [w.why_projected.format(rounds=one.projected_rounds)] if one.projected_rounds else []
    return Headline(text.place, f"{said} ({'; '.join(extra)})")


def moved(one: MetricVerdict, w: Wording) -> str:
    """A metric with its change, in short."""
    text = metric(one, w)
    return f"{text.place} {text.whole_change}"


def advice(j: Judgement) -> list[str]:
    """What to do, each thing once."""
    return list(dict.fromkeys([*j.advice, *(check.advice for check in j.checks if not check.ok and check.advice)]))
