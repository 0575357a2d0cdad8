"""Do two stacks give the same answers? A comparison of greedy answers to fixed prompts.

The baseline is asked twice, which gives the scale: how often it agrees with itself. Two measures are taken per prompt,
both on the text: an exact match, and the share of leading characters that agree. The candidate fails when either falls
below the baseline's own by more than max(1 point, 3σ):

- exact match: σ of the baseline's rate, √(p(1 − p)/n) with p = (x + 1)/(n + 2) (Agresti and Coull, "Approximate is
  better than exact", 1998), because the plain estimate is 0 for a baseline that always agrees with itself;
- leading agreement: σ of the mean of the per-prompt differences, their sample standard deviation / √n.

Where both servers report log-probabilities, those of the same token after the same text are compared too, up to the first
token that differs: after it the texts differ, and numbers have nothing in common. That is shown, never gated: engines do
not all mean the same by it (before or after the temperature, rounded or not).

Different kernels may flip a token where two are equally likely, so a few answers may differ; forced sampling, another
template, other weights make most of them differ. It refuses to ask anybody: the answers come in.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from servegate_action.records import Absent, AnswersCompared, LogprobComparison
from servegate_action.words import VOCABULARY

TokenLogprobs = Sequence[tuple[str, float]]
"""The tokens of one answer with their log-probabilities, in order."""

KEY_STEP, FIRST_NUMBER, NUMBER_STEP, FILLER_STEP = 17, 4127, 773, 41
SMALLEST_MARGIN = 0.01
SIGMAS = 3.0

_STARTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "The three primary colours are",
    "Dear hiring manager,\n\n",
    "In 1969, the first humans",
    "To make a simple tomato soup, you need",
    "The derivative of x squared is",
    "SELECT name, COUNT(*) FROM orders",
    "El perro corre por",
    "A list of the planets, from the sun outwards:\n1.",
    "Photosynthesis is the process by which",
    "The difference between a stack and a queue is",
    "Roses are red, violets are",
    "import json\n\nwith open('data.json') as f:\n    ",
    "The largest ocean on Earth is",
    "Q: What is 17 + 25?\nA:",
    "The first law of thermodynamics states that",
    "She opened the door and saw",
)


def probe_prompts(count: int) -> tuple[str, ...]:
    """Fixed prompts of prose, code, arithmetic and lists; beyond twenty, the same ones as numbered variants."""
    return tuple(
        start if number == 0 else f"Example {number + 1}.\n{start}"
        for number in range(-(-count // len(_STARTS)))
        for start in _STARTS
    )[:count]


def long_prompts(count: int, *, words: int) -> tuple[str, ...]:
    """Prompts of about so many words, each with a fact somewhere between its beginning and its end, and asked for at the end."""
    return tuple(_long_prompt(number, place=number / count, words=words) for number in range(count))


def _long_prompt(number: int, *, place: float, words: int) -> str:
    key = VOCABULARY[(KEY_STEP * number) % len(VOCABULARY)]
    fact = f"The number of the {key} box is {FIRST_NUMBER + NUMBER_STEP * number}."
    question = f"The number of the {key} box is"
    room = max(1, words - len(fact.split()) - len(question.split()))
    filler = [VOCABULARY[(FILLER_STEP * (number + 1) + step * (number + 2)) % len(VOCABULARY)] for step in range(room)]
    before = round(place * room)
    return " ".join([*filler[:before], fact, *filler[before:], question])


def compare_answers(baseline: Sequence[str], again: Sequence[str], candidate: Sequence[str]) -> AnswersCompared:
    """Compare answers to the same prompts, in the same order: the baseline's, its second ones, the candidate's."""
    count = len(baseline)
    if not count or not count == len(again) == len(candidate):
        raise ValueError(f"answers to the same prompts are needed: {count}, {len(again)}, {len(candidate)} were given")
    own = [_agreement(first, second) for first, second in zip(baseline, again, strict=True)]
    cross = [_agreement(first, second) for first, second in zip(baseline, candidate, strict=True)]
    self_match = sum(share == 1.0 for share in own) / count
    cross_match = sum(share == 1.0 for share in cross) / count
    differing = [_first_difference(a, b) for a, b in zip(baseline, candidate, strict=True) if a != b]
    reasons = (
        *_silent(baseline),
        *_match_reasons(self_match, cross_match, count),
        *_agreement_reasons(own, cross),
    )
    return AnswersCompared(
        prompts=count,
        self_match=self_match,
        cross_match=cross_match,
        self_agreement=statistics.fmean(own),
        cross_agreement=statistics.fmean(cross),
        first_divergence_median=round(statistics.median(differing))
        if differing
        else Absent(absent="no answer differs"),
        passed=not reasons,
        reason="; ".join(reasons)
        or f"{cross_match:.0%} of {count} answers are the same, {self_match:.0%} of the baseline's own when asked twice",
    )


def compare_logprobs(
    baseline: Sequence[TokenLogprobs], again: Sequence[TokenLogprobs], candidate: Sequence[TokenLogprobs]
) -> LogprobComparison | Absent:
    """The same three, as tokens with log-probabilities. Absent when not one token is the same."""
    same, tokens = _differences(baseline, candidate)
    own, _ = _differences(baseline, again)
    if not same or not own:
        return Absent(absent="no answer begins with the same token")
    return LogprobComparison(
        tokens=tokens,
        same_tokens=len(same),
        mean_difference=statistics.fmean(same),
        own_mean_difference=statistics.fmean(own),
    )


def _differences(ones: Sequence[TokenLogprobs], others: Sequence[TokenLogprobs]) -> tuple[list[float], int]:
    """Absolute differences over the tokens that both chose, and how many tokens were compared for that."""
    found: list[float] = []
    compared = 0
    for one, other in zip(ones, others, strict=True):
        for (token, logprob), (its, theirs) in zip(one, other, strict=False):
            compared += 1
            if token != its:
                break
            found.append(abs(logprob - theirs))
    return found, compared


def _silent(baseline: Sequence[str]) -> tuple[str, ...]:
    """Empty answers agree with anything."""
    silent = sum(not answer for answer in baseline)
    return (
        (f"the baseline gave {silent} of {len(baseline)} answers without text",) if 2 * silent > len(baseline) else ()
    )


def _match_reasons(self_match: float, cross_match: float, count: int) -> tuple[str, ...]:
    shrunk = (self_match * count + 1) / (count + 2)
    margin = max(SMALLEST_MARGIN, SIGMAS * math.sqrt(shrunk * (1 - shrunk) / count))
    if cross_match >= self_match - margin:
        return ()
    needed = max(0.0, self_match - margin)
    found = f"{cross_match:.0%} of {count} are the same"
    return (f"{found}, the baseline agrees with itself in {self_match:.0%}, and at least {needed:.0%} are needed",)


def _agreement_reasons(own: Sequence[float], cross: Sequence[float]) -> tuple[str, ...]:
    losses = [mine - theirs for mine, theirs in zip(own, cross, strict=True)]
    spread = statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0
    margin = max(SMALLEST_MARGIN, SIGMAS * spread)
    loss = statistics.fmean(losses)
    if loss <= margin:
        return ()
    found = f"on average {statistics.fmean(cross):.0%} of a text is the same from its beginning"
    return (
        f"{found}, {statistics.fmean(own):.0%} for the baseline asked twice (at most {margin:.1%} less is allowed)",
    )


def _agreement(one: str, other: str) -> float:
    """Leading characters that agree / length of the longer text; 1 for two equal texts, empty ones included."""
    longest = max(len(one), len(other))
    return 1.0 if one == other else _first_difference(one, other) / longest


def _first_difference(one: str, other: str) -> int:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))
