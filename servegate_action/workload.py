"""From a seed and cells (or a trace) to planned requests and a digest: the same bytes for both stacks.

Everything random comes from the configured seed; the same configuration and the same length fit give the same requests,
order and send times on any machine. Each launch puts a nonce in front of its prompts, the same for both stacks of a
round and new in the next and in every run, so that no server answers from a cache by accident; a declared shared prefix (or a
trace's hash ids) is the only way to hit one on purpose.

This room sends nothing and reads no file: a trace comes in as text.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import NormalDist, fmean, linear_regression

from servegate_action.config import workload as config
from servegate_action.draws import Draws
from servegate_action.errors import ConfigError, Problem
from servegate_action.records import CellPlan, Side
from servegate_action.traces import TraceRow
from servegate_action.words import VOCABULARY

NONCE_WORDS = 4
HASH_BLOCK_TOKENS = 512
"""Tokens that one `hash_ids` entry of a Mooncake trace stands for (its README)."""

LEAST_TOKENS_PER_WORD = 0.1
"""Below this a server's count of tokens does not follow the text: common words are one token or more."""

# ---------------------------------------------------------------- planned requests


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request as planned. `id` is unique in the workload. `due_ns` counts from the start of the cell in open loop; None in closed loop.

    `prefix` is the part of the prompt that may hit a prefix cache on purpose; `prompt` is this request's own text after it.
    """

    id: str
    prompt: str
    output_tokens: int
    due_ns: int | None
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One operating point with its requests, warm-up apart. Exactly one of concurrency and rate is set."""

    id: str
    name: str
    concurrency: int | None
    rate_per_second: float | None
    weight: float
    warmup: tuple[PlannedRequest, ...]
    measured: tuple[PlannedRequest, ...]

    def plan(self) -> CellPlan:
        """What the recording says of it. Lengths are means, in words of the vocabulary ≈ tokens after the fit."""
        words = [len(request.prefix.split()) + len(request.prompt.split()) + NONCE_WORDS for request in self.measured]
        return CellPlan(
            id=self.id,
            name=self.name,
            prompt_tokens=fmean(words),
            output_tokens=fmean(request.output_tokens for request in self.measured),
            concurrency=self.concurrency,
            rate_per_second=self.rate_per_second,
            weight=self.weight,
            requests=len(self.measured),
            warmup_requests=len(self.warmup),
        )


@dataclass(frozen=True, slots=True)
class LengthFit:
    """How the baseline counts: tokens ≈ offset + per_word × words. Learnt once, then fixed for both stacks."""

    offset: float = 0.0
    per_word: float = 1.0

    def words(self, tokens: float) -> int:
        """Words of a prompt that has about that many tokens; at least one beyond the nonce."""
        return max(NONCE_WORDS + 1, round((tokens - self.offset) / self.per_word))


@dataclass(frozen=True, slots=True)
class Workload:
    """The frozen workload. `lines` is its canonical form, and `digest` the sha256 over those lines."""

    seed: int
    api: str
    fit: LengthFit
    cells: tuple[PlannedCell, ...]

    def lines(self) -> Iterator[str]:
        """Canonical JSON lines: a header, then every request in planned order."""
        yield _canonical({"seed": self.seed, "api": self.api, "offset": self.fit.offset, "per_word": self.fit.per_word})
        for cell in self.cells:
            yield _canonical(
                {"cell": cell.id, "concurrency": cell.concurrency, "rate": cell.rate_per_second, "weight": cell.weight}
            )
            for phase, requests in (("warmup", cell.warmup), ("measured", cell.measured)):
                for request in requests:
                    yield _canonical(
                        {
                            "id": request.id,
                            "phase": phase,
                            "due_ns": request.due_ns,
                            "output_tokens": request.output_tokens,
                            "prefix": request.prefix,
                            "prompt": request.prompt,
                        }
                    )

    @property
    def digest(self) -> str:
        """Sha256 of the canonical lines: two runs with equal digests did the same work."""
        digest = hashlib.sha256()
        for line in self.lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()

    def for_launch(self, round_number: int, *, once: str = "") -> tuple[PlannedCell, ...]:
        """The cells of one round in its shuffled order, nonces in place. Equal for both stacks of the round.

        `once` names the run and the attempt: a cache that outlives a launch (an endpoint's, or one on disk) must not meet
        the same prompts in another run.
        """
        order = _draws(self.seed, "order", str(round_number)).order(len(self.cells))
        return tuple(_with_nonces(self.cells[index], f"{self.seed}/{once}/{round_number}") for index in order)


def _with_nonces(cell: PlannedCell, launch: str) -> PlannedCell:
    def final(request: PlannedRequest) -> PlannedRequest:
        own = nonce(launch, request.id)
        if not request.prefix:
            return replace(request, prompt=f"{own} {request.prompt}")
        shared = nonce(launch, cell.name)
        return replace(request, prefix="", prompt=f"{shared} {request.prefix} {own} {request.prompt}")

    return replace(cell, warmup=tuple(map(final, cell.warmup)), measured=tuple(map(final, cell.measured)))


def nonce(launch: str, name: str) -> str:
    """Four vocabulary words that no other (launch, request) shares: about 34 bits."""
    digest = hashlib.sha256(f"{launch}/{name}".encode()).digest()
    return " ".join(
        VOCABULARY[int.from_bytes(digest[4 * i : 4 * i + 4], "big") % len(VOCABULARY)] for i in range(NONCE_WORDS)
    )


def round_order(round_number: int) -> tuple[Side, Side]:
    """Who goes first in round 1, 2, …: A B, B A, A B, … so that a linear drift cancels over an even number of rounds."""
    first = Side.BASELINE if round_number % 2 else Side.CANDIDATE
    return first, first.other


# ---------------------------------------------------------------- building


def build(
    workload: config.Workload, *, fit: LengthFit | None = None, trace: Sequence[TraceRow] | None = None
) -> Workload:
    """Plan every request of the workload. `trace` holds the rows of `workload.trace` when the file names one."""
    fit = fit or LengthFit()
    if workload.trace is not None:
        cells: tuple[PlannedCell, ...] = (_trace_cell(workload.trace, workload.seed, trace or (), fit),)
    else:
        cells = tuple(planned for cell in workload.cells for planned in _cell_points(workload.seed, cell, fit))
    return Workload(seed=workload.seed, api=workload.api, fit=fit, cells=cells)


def calibration_texts(workload: Workload) -> tuple[str, ...]:
    """A few prompts over the workload's range of lengths, to learn how the baseline counts tokens. Never measured."""
    lengths = sorted(len(request.prompt.split()) + NONCE_WORDS for cell in workload.cells for request in cell.measured)
    picks = sorted({max(8, lengths[int(share * (len(lengths) - 1))]) for share in (0.0, 0.5, 1.0)} | {16, 64})
    draws = _draws(workload.seed, "calibration")
    return tuple(_text(draws, words) for words in picks)


def fit_lengths(texts: Sequence[str], tokens: Sequence[int]) -> LengthFit:
    """Least-squares line through (words, tokens). One text alone, or equal lengths, fix the offset at 0.

    A server whose count does not grow with the text (it counts nothing, or always the same) teaches nothing: one token a
    word is assumed, and the recorded counts show it.
    """
    words = [len(text.split()) for text in texts]
    if len(set(words)) < 2:
        return LengthFit(0.0, round(fmean(tokens) / fmean(words), 6))
    slope, offset = linear_regression(words, tokens)
    if slope < LEAST_TOKENS_PER_WORD:
        return LengthFit()
    return LengthFit(round(offset, 3), round(slope, 6))


def _cell_points(seed: int, cell: config.Cell, fit: LengthFit) -> Iterator[PlannedCell]:
    """One planned cell per concurrency (or the one rate); they share nothing but their shape."""
    points = cell.concurrency or (None,)
    for concurrency in points:
        identifier = cell_id(cell, concurrency)
        warmup = cell.warmup_requests or max(2, 2 * (concurrency or 4))
        requests = _requests(seed, identifier, cell, count=warmup + cell.requests, fit=fit)
        measured = requests[warmup:]
        if cell.rate_per_second is not None:
            measured = _with_arrivals(measured, poisson_arrivals(seed, identifier, len(measured), cell.rate_per_second))
        yield PlannedCell(
            id=identifier,
            name=cell.name,
            concurrency=concurrency,
            rate_per_second=cell.rate_per_second,
            weight=cell.weight / len(points),
            warmup=requests[:warmup],
            measured=measured,
        )


def cell_id(cell: config.Cell, concurrency: int | None) -> str:
    """`chat/16`, or `chat@2.5` in open loop: how an operating point is called everywhere."""
    return f"{cell.name}/{concurrency}" if concurrency else f"{cell.name}@{cell.rate_per_second:g}"


def _requests(
    seed: int, identifier: str, cell: config.Cell, *, count: int, fit: LengthFit
) -> tuple[PlannedRequest, ...]:
    draws = _draws(seed, "requests", identifier)
    prompts = _lengths(cell.prompt_tokens, count, draws)
    outputs = _lengths(cell.output_tokens, count, draws)
    prefix = ""
    if cell.shared_prefix_tokens:
        prefix = _text(_draws(seed, "prefix", cell.name), fit.words(cell.shared_prefix_tokens) - NONCE_WORDS)
    taken = NONCE_WORDS + (len(prefix.split()) + NONCE_WORDS if prefix else 0)
    return tuple(
        PlannedRequest(
            id=f"{identifier}:{index:05d}",
            prompt=_text(draws, max(1, fit.words(prompt) - taken)),
            output_tokens=int(output),
            due_ns=None,
            prefix=prefix,
        )
        for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    )


def _lengths(length: config.Length, count: int, draws: Draws) -> list[int]:
    """`count` whole lengths of at least 1. Lognormal: `mean` is that of the length, so mu = ln(mean) − sigma²/2."""
    if isinstance(length, config.Uniform):
        return [length.low + above for above in draws.below(length.high - length.low + 1, count)]
    if isinstance(length, config.Lognormal):
        logarithm = NormalDist(math.log(length.mean) - length.sigma**2 / 2, length.sigma)
        return [max(1, round(math.exp(logarithm.inv_cdf(share)))) for share in draws.unit(count)]
    return [length] * count


def poisson_arrivals(seed: int, name: str, count: int, rate_per_second: float) -> tuple[int, ...]:
    """Absolute arrival times (ns) of a Poisson process, scaled so that the mean gap is exactly 1/rate."""
    times = list(accumulate(-math.log(share) for share in _draws(seed, "arrivals", name).unit(count)))
    scale = count / rate_per_second / times[-1] if times else 0.0
    return tuple(round(time * scale * 1e9) for time in times)


def _with_arrivals(requests: Sequence[PlannedRequest], due: Iterable[int]) -> tuple[PlannedRequest, ...]:
    return tuple(replace(request, due_ns=when) for request, when in zip(requests, due, strict=True))


def _text(draws: Draws, words: int) -> str:
    return " ".join([VOCABULARY[pick] for pick in draws.below(len(VOCABULARY), max(0, words))])


def _draws(seed: int, *names: str) -> Draws:
    """An own stream per purpose, so that a change in one cell leaves the others' prompts as they were."""
    return Draws(str(seed), *names)


def _canonical(value: dict[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


# ---------------------------------------------------------------- from a trace


def _trace_cell(trace: config.Trace, seed: int, rows: Sequence[TraceRow], fit: LengthFit) -> PlannedCell:
    window = trace_window(trace, rows)
    draws = _draws(seed, "trace")
    requests = tuple(
        _trace_request(f"trace:{index:05d}", row, draws, seed, fit)
        for index, row in enumerate(window[: trace.warmup_requests] + window)
    )
    warmup, measured = requests[: -len(window)], requests[-len(window) :]
    due = trace_due(trace, window)
    return PlannedCell(
        id="trace",
        name="trace",
        concurrency=None,
        rate_per_second=mean_rate(due),
        weight=1.0,
        warmup=warmup,
        measured=_with_arrivals(measured, due),
    )


def trace_window(trace: config.Trace, rows: Sequence[TraceRow]) -> list[TraceRow]:
    """The declared part of a trace. Raises ConfigError when fewer than two requests arrive in it."""
    start, end = trace.start_s * 1e9, (trace.start_s + trace.duration_s) * 1e9 if trace.duration_s else float("inf")
    window = [row for row in rows if start <= row.t_ns < end]
    if len(window) < 2:
        raise ConfigError([Problem(trace.path, 1, "workload.trace", "fewer than two arrivals in the chosen window")])
    return window


def trace_due(trace: config.Trace, window: Sequence[TraceRow]) -> list[int]:
    """When each request of the window is due, ns after the first, at the declared speed."""
    return [round((row.t_ns - window[0].t_ns) / trace.speedup) for row in window]


def mean_rate(due: Sequence[int]) -> float:
    """Requests per second, the mean over the gaps; all that arrive at one moment arrive within a second."""
    seconds = max(due) / 1e9
    return (len(due) - 1) / seconds if seconds else float(len(due))


def _trace_request(identifier: str, row: TraceRow, draws: Draws, seed: int, fit: LengthFit) -> PlannedRequest:
    """Text of one trace row; equal hash ids give equal blocks, so that a prefix cache hits as often as in the trace."""
    words = max(1, fit.words(row.prompt_tokens) - NONCE_WORDS)
    block_words = max(1, round(HASH_BLOCK_TOKENS / fit.per_word))
    shared = row.hash_ids[: (words - 1) // block_words]
    blocks = [_text(_draws(seed, "block", str(block)), block_words) for block in shared]
    own = _text(draws, max(1, words - block_words * len(blocks)))
    return PlannedRequest(
        id=identifier, prompt=own, output_tokens=row.output_tokens, due_ns=None, prefix=" ".join(blocks)
    )
