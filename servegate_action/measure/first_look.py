"""What must be fixed before anything counts: learnt from one unmeasured launch of each stack.

The request body that both accept, how long the baseline finds the prompts, what the stacks are, whether they give the
same answers; then the load generator's own certificate at every operating point. A stack that does not start, or that
cannot be compared, costs one launch here and no round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from servegate_action import identity, load, telemetry
from servegate_action.measure import answers
from servegate_action.measure.job import Draft, Job
from servegate_action.measure.stack import Up, running, weights_path
from servegate_action.records import Dialect, Side, StackIdentity
from servegate_action.store import WORKLOAD
from servegate_action.workload import LengthFit, PlannedCell, Workload, calibration_texts, fit_lengths


@dataclass(frozen=True, slots=True)
class Common:
    """What both stacks of a run share."""

    backend: telemetry.Kind
    workload: Workload
    dialect: Dialect
    stream_rate: float
    """Output tokens per second of one stream alone, of the faster stack."""

    def streams(self, cell: PlannedCell) -> int:
        """How many requests of a cell are under way at once; in open loop, as many as arrive while one is answered."""
        seconds = _mean_output(cell) / self.stream_rate
        return cell.concurrency or max(1, math.ceil((cell.rate_per_second or 1.0) * seconds))


@dataclass(frozen=True, slots=True)
class Seen:
    """What the unmeasured launch of one stack showed."""

    dialect: Dialect
    token_counts: tuple[int, ...]
    target: load.Target


def first_look(job: Job, draft: Draft, backend: telemetry.Kind) -> Common:
    """Launch each stack once, ask it everything that is asked once, then freeze the workload."""
    texts = calibration_texts(job.plan(LengthFit()))
    with _checking(job, draft, Side.BASELINE, backend) as up:
        baseline = _look_at(job, draft, up, texts)
        workload = job.plan(fit_lengths(texts, baseline.token_counts))
        about = answers.questions(job.config.numerics, workload)
        ours, again = (answers.ask(baseline.target, about) for _ in range(2))
    with _checking(job, draft, Side.CANDIDATE, backend) as up:
        candidate = _look_at(job, draft, up, texts)
        theirs = answers.ask(candidate.target, about)
    if baseline.token_counts != candidate.token_counts:
        draft.note(
            "the two stacks count the tokens of the same prompts differently: "
            f"{list(baseline.token_counts)} and {list(candidate.token_counts)}"
        )
    job.directory.write_lines(WORKLOAD, workload.lines())
    dialect = load.agree(baseline.dialect, candidate.dialect)
    draft.set(dialect=dialect, numerics=answers.compared(about, ours, again, theirs))
    draft.side = None
    return Common(backend, workload, dialect, max(ours.stream_rate, theirs.stream_rate))


@contextmanager
def _checking(job: Job, draft: Draft, side: Side, backend: telemetry.Kind) -> Iterator[Up]:
    job.reporter.phase(f"checking the {side}")
    with running(job, draft, side, backend=backend, directory=f"rounds/00-{side}") as up:
        yield up


def certify(job: Job, draft: Draft, common: Common) -> None:
    """The load generator against itself at every operating point, while no stack runs."""
    points: dict[int, tuple[float, float]] = {}
    for cell in common.workload.cells:
        outputs, concurrency = _mean_output(cell), common.streams(cell)
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


def _mean_output(cell: PlannedCell) -> float:
    return sum(request.output_tokens for request in cell.measured) / len(cell.measured)


def load_limits(job: Job) -> load.LoadLimits:
    """The load generator's limits as configured."""
    given = job.config.load
    return load.LoadLimits(
        request_timeout_s=given.request_timeout_s, stall_timeout_s=given.stall_timeout_s, processes=given.processes
    )


def _look_at(job: Job, draft: Draft, up: Up, texts: tuple[str, ...]) -> Seen:
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
    return Seen(own, counts, target)


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
