"""Do both stacks give the same answers? What is asked of each, in three ways, and how it becomes one record.

Short prompts one at a time, prompts as long as the workload's longest, and both kinds together at the workload's
concurrency: an engine that loses the beginning of a long context, or mixes up what it runs in one batch, answers a short
question as it should. The baseline is asked everything twice, which gives the scale. It refuses to compare (`identity`
does) and to decide what may differ.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from servegate_action import identity, load
from servegate_action.config.models import LONG_PROMPT_WORDS, Also, Numerics
from servegate_action.records import Absent, AnswersCompared, LogprobComparison, NumericsProbe
from servegate_action.workload import Workload

CHECK_TOKENS = 32
"""Output tokens of the request that shows a stream's pace when the numerics probe is switched off."""
LOGPROB_PROMPTS = 8
"""How many of the prompts are asked once more for log-probabilities: some 250 tokens are plenty for a mean."""
LEAST_LONG_PROMPTS = 4
LONG_SHARE = 0.4
MOST_AT_ONCE = 64
OPEN_LOOP_AT_ONCE = 16
OFF = Absent(absent="switched off: numerics.enabled is false")
NOT_NAMED = Absent(absent="switched off: numerics.also does not name it")

Logprobs = tuple[tuple[tuple[str, float], ...], ...] | Absent
"""Of each answer, its tokens with their log-probabilities."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The prompts of each way to ask; absent where the workload, or the configuration, does not want it."""

    short: tuple[str, ...]
    long: tuple[str, ...] | Absent
    together: tuple[str, ...] | Absent
    for_logprobs: tuple[str, ...] | Absent
    at_once: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Answers:
    """The texts, in the order of the prompts, and the pace of one stream alone (output tokens per second)."""

    short: tuple[str, ...]
    long: tuple[str, ...]
    together: tuple[str, ...]
    logprobs: Logprobs
    stream_rate: float


def questions(numerics: Numerics, workload: Workload) -> Questions:
    """What to ask for this workload. The same for both stacks."""
    if not numerics.enabled:
        return Questions(identity.probe_prompts(1), OFF, OFF, OFF, at_once=1, output_tokens=CHECK_TOKENS)
    short, long, at_once = identity.probe_prompts(numerics.prompts), _long(numerics, workload), _at_once(workload)
    return Questions(
        short=short,
        long=long,
        together=_together(numerics, long, at_once=at_once),
        for_logprobs=short[:LOGPROB_PROMPTS],
        at_once=at_once,
        output_tokens=numerics.output_tokens,
    )


def ask(target: load.Target, about: Questions) -> Answers:
    """All of it, once, greedily. Raises CannotMeasure when a request is not answered."""
    length = about.output_tokens
    started = time.monotonic()
    short = [load.complete(target, prompt, output_tokens=length) for prompt in about.short]
    tokens = sum(answer.output_tokens or length for answer in short)
    rate = tokens / (time.monotonic() - started)
    long = () if isinstance(about.long, Absent) else about.long
    together = () if isinstance(about.together, Absent) else about.together
    crowd = load.complete_together(target, together, output_tokens=length, at_once=about.at_once)
    return Answers(
        short=tuple(answer.text for answer in short),
        long=tuple(load.complete(target, prompt, output_tokens=length).text for prompt in long),
        together=tuple(answer.text for answer in crowd),
        logprobs=_logprobs(target, about),
        stream_rate=rate,
    )


def compared(about: Questions, baseline: Answers, again: Answers, candidate: Answers) -> NumericsProbe | Absent:
    """The record of the probe; absent when it is switched off."""
    if about.for_logprobs is OFF:
        return OFF

    def over(asked: tuple[str, ...] | Absent, name: str) -> AnswersCompared | Absent:
        if isinstance(asked, Absent):
            return asked
        return identity.compare_answers(*(getattr(one, name) for one in (baseline, again, candidate)))

    return NumericsProbe(
        alone=identity.compare_answers(baseline.short, again.short, candidate.short),
        long=over(about.long, "long"),
        together=over(about.together, "together"),
        logprobs=_logprobs_compared(baseline.logprobs, again.logprobs, candidate.logprobs),
    )


def _long(numerics: Numerics, workload: Workload) -> tuple[str, ...] | Absent:
    """Prompts as long as the longest of the workload, less the room for an answer."""
    if Also.LONG not in numerics.also:
        return NOT_NAMED
    longest = max(len(request.prompt.split()) for cell in workload.for_launch(1) for request in cell.measured)
    if longest < LONG_PROMPT_WORDS:
        return Absent(absent=f"the workload's longest prompt has {longest} words")
    count = max(LEAST_LONG_PROMPTS, round(LONG_SHARE * numerics.prompts))
    return identity.long_prompts(count, words=max(LONG_PROMPT_WORDS // 2, longest - numerics.output_tokens))


def _together(numerics: Numerics, long: tuple[str, ...] | Absent, *, at_once: int) -> tuple[str, ...] | Absent:
    """Enough short prompts to keep so many under way, and the long ones among them."""
    if Also.TOGETHER not in numerics.also:
        return NOT_NAMED
    if at_once < 2:
        return Absent(absent="the workload asks one request at a time")
    short = identity.probe_prompts(max(numerics.prompts, at_once))
    return short if isinstance(long, Absent) else _mixed(short, long)


def _at_once(workload: Workload) -> int:
    return max(min(cell.concurrency or OPEN_LOOP_AT_ONCE, MOST_AT_ONCE) for cell in workload.cells)


def _mixed(short: tuple[str, ...], long: tuple[str, ...]) -> tuple[str, ...]:
    """Long prompts spread evenly among the short ones, so that they run beside each other."""
    step = len(short) / len(long)
    placed = [(index + 0.5, text) for index, text in enumerate(short)]
    placed += [(index * step, text) for index, text in enumerate(long)]
    return tuple(text for _, text in sorted(placed))


def _logprobs(target: load.Target, about: Questions) -> Logprobs:
    """Asked for apart from the answers, so that neither these nor the pace can depend on it. The first refusal ends it."""
    if isinstance(about.for_logprobs, Absent):
        return about.for_logprobs
    found = []
    for prompt in about.for_logprobs:
        told = load.complete_with_logprobs(target, prompt, output_tokens=about.output_tokens)
        if isinstance(told, Absent):
            return told
        found.append(told)
    return tuple(found)


def _logprobs_compared(once: Logprobs, again: Logprobs, theirs: Logprobs) -> LogprobComparison | Absent:
    if isinstance(once, Absent):
        return Absent(absent=f"the baseline: {once.absent}")
    if isinstance(again, Absent):
        return Absent(absent=f"the baseline, asked twice: {again.absent}")
    if isinstance(theirs, Absent):
        return Absent(absent=f"the candidate: {theirs.absent}")
    return identity.compare_logprobs(once, again, theirs)
