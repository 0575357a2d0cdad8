"""Rounds of launches become a recording: the only hand that knows the other hands.

Measuring never judges. It writes down what happened as it happens, and asks `Thinking`, which the caller brings, whether
to go on. A run that fails or is cancelled leaves a closed recording of what was finished.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

from servegate_action import launch, telemetry
from servegate_action.config.models import Config
from servegate_action.errors import Cancelled, CannotMeasure, TelemetryUnavailable
from servegate_action.measure.first_look import certify, first_look
from servegate_action.measure.job import Draft, Job, Origin, Thinking
from servegate_action.measure.rounds import run_rounds
from servegate_action.records import Absent, ClockAnchor, Plan, Recording, Side
from servegate_action.workload import LengthFit, Workload, round_order

__all__ = ["Job", "Origin", "Thinking", "measure"]


def measure(job: Job) -> Recording:
    """Measure both stacks and return the finished recording.

    Raises CannotMeasure or Cancelled after the recording has been closed with the reason, so that what was finished can
    be judged.
    """
    with _engine(job) as docker:
        host = _sampler_host(job, docker)
        backend = telemetry.choose(job.config.accelerator, gpu_expected=_expects_gpu(job), host=host)
        draft = Draft(job.directory, _opening(job, backend, host), docker, host)
        draft.set()
        try:
            _measure(job, draft, backend)
        except Cancelled as error:
            draft.close("cancelled", error)
            raise
        except CannotMeasure as error:
            draft.close("failed", error)
            raise
        draft.set(state="finished", finished_ns=time.monotonic_ns())
        return draft.recording


def _measure(job: Job, draft: Draft, backend: telemetry.Kind) -> None:
    common = first_look(job, draft, backend)
    draft.set(plan=_plan(job, common.workload))
    if job.thinking.incomparable(draft.recording):
        draft.note("no round was run, because the two stacks cannot be compared")
        return
    _warn(job, draft)
    certify(job, draft, common)
    run_rounds(job, draft, common)


def _engine(job: Job) -> AbstractContextManager[launch.DockerWorld | None]:
    """The container engine with this run's own network, when a stack is a container."""
    if any(job.config.stacks.of(side).container is not None for side in Side):
        return launch.docker_world(job.environment, job.origin.run_id)
    return nullcontext()


def _sampler_host(job: Job, docker: launch.DockerWorld | None) -> telemetry.Host | None:
    """Where to read a GPU's counters: here, or, from a container that was given no GPU, in a sibling that asks for one."""
    if docker is None or docker.me is None or job.config.accelerator == "cpu" or not _expects_gpu(job):
        return None
    try:
        telemetry.choose("nvidia")
    except TelemetryUnavailable:
        job.reporter.phase("this container has no GPU of its own: the sampler runs in a sibling that has")
        return telemetry.RemoteHost(
            lambda arguments: launch.start_beside(docker, "servegate_action.telemetry", arguments)
        )
    return None


def _warn(job: Job, draft: Draft) -> None:
    for warning in job.thinking.warnings(draft.recording):
        job.reporter.phase(f"warning: {warning}")
        draft.note(warning)


def _expects_gpu(job: Job) -> bool:
    stacks = (job.config.stacks.of(side) for side in Side)
    return any(stack.gpu_uuids or (stack.container and stack.container.gpus != "none") for stack in stacks)


def _opening(job: Job, backend: telemetry.Kind, host: telemetry.Host | None) -> Recording:
    """The recording before the first launch, with the accelerator's floor."""
    return Recording(
        tool_version=job.origin.tool_version,
        run_id=job.origin.run_id,
        gate=job.config.gate,
        anchor=_anchor(),
        finished_ns=None,
        operator=job.origin.operator,
        run_url=job.origin.run_url,
        change=job.origin.change,
        host=job.host,
        accelerator=backend,
        floor=telemetry.floor(backend, floor_uuids(job.config), host=host),
        telemetry=Absent(absent="nothing was launched"),
        plan=_plan(job, job.plan(LengthFit())),
        dialect=None,
        identities={},
        numerics=Absent(absent="not probed"),
        certificates=(),
        launches=(),
        notes=job.origin.notes,
        state="running",
        failure=None,
    )


def floor_uuids(config: Config) -> tuple[str, ...]:
    """Whose floor is read: that of both stacks' GPUs; of all that are visible as soon as one stack names none."""
    named = [config.stacks.of(side).gpu_uuids for side in Side]
    return tuple(sorted({uuid for uuids in named for uuid in uuids})) if all(named) else ()


def _plan(job: Job, workload: Workload) -> Plan:
    looks = job.config.rounds.looks
    return Plan(
        cells=tuple(cell.plan() for cell in workload.cells),
        looks=looks,
        order=tuple(round_order(number) for number in range(1, looks[-1] + 1)),
        prompt_offset=workload.fit.offset,
        tokens_per_word=workload.fit.per_word,
        workload_sha256=workload.digest,
        config_sha256=job.config_sha256,
    )


def _anchor() -> ClockAnchor:
    monotonic, wall = time.monotonic_ns(), time.time_ns()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall // 10**9))
    return ClockAnchor(monotonic_ns=monotonic, wall_ns=wall, wall_iso=stamp)
