"""The words of a report, one complete set per language.

`Wording` names every phrase, so that a language with a phrase missing does not type-check. Placeholders are filled by
`str.format`; a test holds that both languages use the same ones. Sentences that the analysis wrote (a headline, an
advice, the detail of a check) are English; `Wording.sentences` renders the known ones, and a sentence it does not know
stays as it is, marked as English where the medium allows it. No phrase decides anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from servegate_action.analysis.judgement import Mark, Outcome, Word
from servegate_action.config.limits import MetricName
from servegate_action.records import Evidence, Side
from servegate_action.report.numbers import Marks

Language = Literal["en", "es"]
LONGEST_SENTENCE = 1000
"""Longer texts are nobody's sentence; looking for one in them would only take time."""
PLACE = re.compile(r"(?=\S)(round \d+)?(, attempt \d+)?((, |^)(baseline|candidate))?((, |^)[\w.-]+[/@][\d.]+)?")
"""Where a finding was made, in front of it."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A known English sentence of the analysis, its variable parts in braces, and how this language says it."""

    english: re.Pattern[str]
    landmark: str
    here: str

    @classmethod
    def of(cls, english: str, here: str) -> Sentence:
        """From `{count} of {all} requests failed` and the same with the words of this language."""
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(english))
        return cls(english=re.compile(pattern), landmark=max(re.split(r"\{\w+\}", english), key=len), here=here)

    def match(self, text: str) -> re.Match[str] | None:
        """The text's variable parts, if it is this sentence. Its longest fixed part is looked for first: that is cheap."""
        return self.english.fullmatch(text) if self.landmark in text else None


@dataclass(frozen=True, slots=True)
class Wording:
    """One language."""

    code: Language
    marks: Marks
    words: Mapping[Word, str]
    word_meaning: Mapping[Word, str]
    outcomes: Mapping[Outcome, str]
    evidence: Mapping[Evidence, str]
    mark_words: Mapping[Mark, str]
    sides: Mapping[Side, str]
    metrics: Mapping[MetricName, str]
    row_titles: tuple[str, ...]
    terms: Mapping[str, str]
    sentences: tuple[Sentence, ...]

    none: str
    the_same: str
    yes: str
    no: str
    not_gated: str
    whole_mix: str

    # first lines
    title: str
    page_title: str
    interval_rounds: str
    limit_allowed: str
    all_within: str
    tightest: str
    and_more: str
    rounds_used: str
    rows_hold: str
    from_to: str
    workload: str
    rounds_alternating: str
    noise: str
    noise_title: str
    run: str
    artifacts: str
    artifacts_until: str
    reproduce: str
    outdated: str
    policy_edited: str
    policy_from: str
    stopped_early: str
    log_tail: str

    # tables
    check: str
    metric: str
    cell: str
    baseline: str
    candidate: str
    change: str
    change_interval: str
    allowed: str
    verdict: str
    requests: str
    rounds: str
    round: str
    spread: str
    caught: str
    p_value: str
    side: str
    detail: str
    item: str
    per_month: str
    per_1m: str
    what: str
    migration: str
    part: str
    more_lines: str
    left_out: str

    # sections
    why: str
    every_cell: str
    cost: str
    identity: str
    over_time: str
    method: str
    earlier: str
    checks: str
    checklist: str
    metrics_heading: str
    per_round: str
    cold_starts: str
    launches: str
    evidence_heading: str
    differences: str
    contents: str
    notes: str
    voided: str

    # sentences of sections
    why_metric: str
    why_holm: str
    why_projected: str
    why_slower: str
    why_better: str
    why_nothing: str
    next_step: str
    failed_checks: str
    passed_checks: str
    no_differences: str
    no_cost: str
    no_traces: str
    traffic: str
    break_even: str
    payback: str
    migration_cost: str
    chart_cost: str
    chart_cost_x: str
    chart_cost_y: str
    chart_cost_lines: str
    chart_trace: str
    chart_trace_which: str
    chart_trace_x: str
    chart_trace_y: str
    chart_trace_lines: str
    would_have_caught: str
    method_replayed: str
    noise_absent: str
    total: str
    busy_only: str
    per_1m_total: str
    effective: str
    share_of_time: str
    shares: str
    idle_policy: str
    joule_board: str
    joule_grid: str
    kwh_board: str
    kwh_grid: str
    poisson: str
    holds: str
    fails: str
    fragile: str
    fewer_than_59: str
    cost_name: str

    # the page
    declared: str
    skip: str
    worse: str
    better: str
    no_change: str
    at_limit: str
    forest_caption: str
    forest_help: str
    cold_caption: str
    trace_caption: str
    cost_caption: str
    first_answer: str
    page_cache: str
    loading_energy: str
    tokens_per_second: str
    seconds: str
    position: str
    no_values: str
    sha_workload: str
    sha_config: str
    tool: str
    operator: str
    date: str
    run_id: str
    commit: str
    base_commit: str
    pull_request: str
    accelerator: str
    read_more: str

    def say(self, sentence: str) -> str:
        """An English sentence of the analysis in this language, or unchanged where it is not known."""
        return self.translated(sentence) or sentence

    def translated(self, sentence: str) -> str | None:
        """The sentence in this language; None where it is not known. English is always known.

        Variable parts may be known sentences themselves (`check failed: …`), several sentences may stand in a row, and one
        may begin with its place (`round 2, candidate: …`): known when each sentence is.
        """
        if self.code == "en":
            return sentence
        if sentence in self.terms:
            return self.terms[sentence]
        if len(sentence) > LONGEST_SENTENCE:
            return None
        # Before the sentences, whose variable parts would take in the place as well.
        together = self._put_together(sentence)
        if together is not None:
            return together
        for known in self.sentences:
            found = known.match(sentence)
            if found is not None:
                return known.here.format(**{name: self.say(text) for name, text in found.groupdict().items()})
        return None

    def _put_together(self, sentence: str) -> str | None:
        """Several sentences in a row, or one with its place."""
        parts = sentence.split("; ")
        known = [said for part in parts if (said := self.translated(part)) is not None] if len(parts) > 1 else []
        if known and len(known) == len(parts):
            return "; ".join(known)
        place, _, rest = sentence.partition(": ")
        said = self.translated(rest) if PLACE.fullmatch(place) and rest else None
        return f"{', '.join(map(self._place, place.split(', ')))}: {said}" if said is not None else None

    def _place(self, word: str) -> str:
        """`round 2`, `candidate` or `chat/1`."""
        return re.sub(r"\w+", lambda found: self.terms.get(found[0], found[0]), word, count=1)


def wording(language: Language) -> Wording:
    """The words of one language."""
    from servegate_action.report.wording import en, es

    return {"en": en.WORDING, "es": es.WORDING}[language]
