"""What must be fixed before anything counts: learnt from one unmeasured launch of each stack.

The request body that both accept, how long the baseline finds the prompts, what the stacks are, whether they give the
same answers; then the load generator's own certificate at every operating point. A stack that does not start, or that
cannot be compared, costs one launch here and no round.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from servegate_action import identity, load, telemetry
from servegate_action.measure.job import Draft, Job
from servegate_action.measure.stack import Up, running, weights_path
from servegate_action.records import Absent, Dialect, LogprobComparison, NumericsProbe, Side, StackIdentity
from servegate_action.store import WORKLOAD
from servegate_action.workload import LengthFit, Workload, calibration_texts, fit_lengths

CHECK_TOKENS = 32
"""Output tokens of the requests that show a stream's pace when the numerics probe is switched off."""


LOGPROB_PROMPTS = 8
"""How many of the probe's prompts are asked once more for log-probabilities: some 250 tokens are plenty for a mean."""

Logprobs = tuple[tuple[tuple[str, float], ...], ...] | Absent
"""Of each answer, its tokens with their log-probabilities."""


@dataclass(frozen=True, slots=True)
class Common:
    """What both stacks of a run share."""

    backend: telemetry.Kind
    workload: Workload
    dialect: Dialect
    stream_rate: float
    """Output tokens per second of one stream alone, of the faster stack."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the unmeasured launch of one stack showed."""

    dialect: Dialect
    answers: tuple[str, ...]
    again: tuple[str, ...]
    logprobs: Logprobs
    logprobs_again: Logprobs
    token_counts: tuple[int, ...]
    stream_rate: float


def first_look(job: Job, draft: Draft, backend: telemetry.Kind) -> Common:
    """Launch each stack once, ask it everything that is asked once, then freeze the workload."""
    texts = calibration_texts(job.plan(LengthFit()))
    seen: dict[Side, Seen] = {}
    for side in Side:
        job.reporter.phase(f"checking the {side}")
        with running(job, draft, side, backend=backend, directory=f"rounds/00-{side}") as up:
            seen[side] = _ask(job, draft, up, texts)
    baseline, candidate = seen[Side.BASELINE], seen[Side.CANDIDATE]
    if baseline.token_counts != candidate.token_counts:
        draft.note(
            "the two stacks count the tokens of the same prompts differently: "
            f"{list(baseline.token_counts)} and {list(candidate.token_counts)}"
        )
    workload = job.plan(fit_lengths(texts, baseline.token_counts))
    job.directory.write_lines(WORKLOAD, workload.lines())
    dialect = load.agree(baseline.dialect, candidate.dialect)
    draft.set(dialect=dialect, numerics=_numerics(job, baseline, candidate))
    draft.side = None
    return Common(backend, workload, dialect, max(baseline.stream_rate, candidate.stream_rate))


def certify(job: Job, draft: Draft, common: Common) -> None:
    """The load generator against itself at every operating point, while no stack runs."""
    points: dict[int, tuple[float, float]] = {}
    for cell in common.workload.cells:
        outputs = sum(request.output_tokens for request in cell.measured) / len(cell.measured)
        seconds = outputs / common.stream_rate
        concurrency = cell.concurrency or max(1, math.ceil((cell.rate_per_second or 1.0) * seconds))
        points[concurrency] = max(points.get(concurrency, (0.0, 0.0)), (concurrency * common.stream_rate, outputs))
    for concurrency, (rate, outputs) in sorted(points.items()):
        job.reporter.phase(f"certifying the load generator: {concurrency} at once, {rate:.0f} tokens/s")
        certificate = load.certify(
            concurrency=concurrency,
            events_per_second=rate,
            output_tokens=max(2, round(outputs)),
            limits=load_limits(job),
        )
        draft.set(certificates=(*draft.recording.certificates, certificate))


def load_limits(job: Job) -> load.LoadLimits:
    """The load generator's limits as configured."""
    given = job.config.load
    return load.LoadLimits(
        request_timeout_s=given.request_timeout_s, stall_timeout_s=given.stall_timeout_s, processes=given.processes
    )


def _ask(job: Job, draft: Draft, up: Up, texts: tuple[str, ...]) -> Seen:
    own = load.negotiate(
        up.base_url,
        api=job.config.workload.api,
        served_model=up.stack.served_model or job.config.model.name,
        headers=up.headers,
        timeout_s=job.config.load.request_timeout_s,
    )
    target = up.target(own, job.config)
    counts = tuple(load.probe_tokens(target, texts))
    draft.set(identities={**draft.recording.identities, up.side: _identity(job, draft, up)})
    answers, rate = _answers(job, target)
    logprobs = _logprobs(job, target)
    if up.side is not Side.BASELINE:
        return Seen(own, answers, (), logprobs, (), counts, rate)
    return Seen(own, answers, _answers(job, target)[0], logprobs, _logprobs(job, target), counts, rate)


def _identity(job: Job, draft: Draft, up: Up) -> StackIdentity:
    ready = up.running.ready
    subject = identity.Subject(
        stack=up.stack,
        model=job.config.model,
        base_url=up.base_url,
        command=ready.command,
        container_digest=ready.container_digest,
        headers=up.headers,
        configured=weights_path(job),
        workspace=job.workspace,
        sees_host=draft.docker is None or draft.docker.me is None,
        volume=up.running.volume,
        cache_dir=job.cache,
        progress=job.reporter.phase,
    )
    return identity.identify(subject)


def _answers(job: Job, target: load.Target) -> tuple[tuple[str, ...], float]:
    """Greedy answers to the fixed prompts, one at a time, and the pace of that one stream."""
    enabled = job.config.numerics.enabled
    prompts = identity.probe_prompts(job.config.numerics.prompts if enabled else 1)
    length = job.config.numerics.output_tokens if enabled else CHECK_TOKENS
    started = time.monotonic()
    answers = [load.complete(target, text, output_tokens=length) for text in prompts]
    tokens = sum(answer.output_tokens or length for answer in answers)
    return tuple(answer.text for answer in answers), tokens / (time.monotonic() - started)


def _logprobs(job: Job, target: load.Target) -> Logprobs:
    """Asked for apart from the answers, so that neither these nor the pace can depend on it. The first refusal ends it."""
    if not job.config.numerics.enabled:
        return Absent(absent="switched off: numerics.enabled is false")
    found = []
    for text in identity.probe_prompts(min(LOGPROB_PROMPTS, job.config.numerics.prompts)):
        told = load.complete_with_logprobs(target, text, output_tokens=job.config.numerics.output_tokens)
        if isinstance(told, Absent):
            return told
        found.append(told)
    return tuple(found)


def _numerics(job: Job, baseline: Seen, candidate: Seen) -> NumericsProbe | Absent:
    if not job.config.numerics.enabled:
        return Absent(absent="switched off: numerics.enabled is false")
    compared = _compared(baseline, candidate)
    return identity.numerics(baseline.answers, baseline.again, candidate.answers, logprobs=compared)


def _compared(baseline: Seen, candidate: Seen) -> LogprobComparison | Absent:
    once, again, theirs = baseline.logprobs, baseline.logprobs_again, candidate.logprobs
    if isinstance(once, Absent):
        return Absent(absent=f"the baseline: {once.absent}")
    if isinstance(again, Absent):
        return Absent(absent=f"the baseline, asked twice: {again.absent}")
    if isinstance(theirs, Absent):
        return Absent(absent=f"the candidate: {theirs.absent}")
    return identity.compare_logprobs(once, again, theirs)
