"""One stack under measurement: launched fresh, sampled from before its start to its end, spoken to, and stopped."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from servegate_action import client, launch, load, telemetry
from servegate_action.config.base import belongs_to_the_job
from servegate_action.config.models import Config
from servegate_action.config.stacks import Stack
from servegate_action.errors import UsageError
from servegate_action.launch.ports import is_open
from servegate_action.measure.job import Draft, Job
from servegate_action.records import ColdStart, Dialect, Side
from servegate_action.store import LaunchFiles

SETTLE_S = 30.0
"""The driver lists a process for up to a second after its end, and clocks and power come down over some more."""
SETTLE_STEP_S = 0.1


@dataclass(frozen=True, slots=True)
class Up:
    """A stack that is up, its sampler, and its files."""

    side: Side
    stack: Stack
    running: launch.Running
    sampler: telemetry.Sampler
    files: LaunchFiles
    cold_start: ColdStart
    headers: Mapping[str, str]

    @property
    def base_url(self) -> str:
        """Where it answers."""
        return self.running.ready.base_url

    def port_open(self) -> bool:
        """Whether something still listens where it answered."""
        parts = urlsplit(self.base_url)
        return is_open(parts.hostname or "127.0.0.1", parts.port or 80)

    def target(self, dialect: Dialect, config: Config) -> load.Target:
        """The stack as the load generator sees it: the agreed request body, its own name of the model."""
        own = dialect.model_copy(update={"served_model": served_model(self.stack, config)})
        return load.Target(base_url=self.base_url, dialect=own, headers=self.headers)

    def check(self) -> None:
        """Raise when the stack died or the accelerator was lost: that, and not the client's view of it, is the cause."""
        self.running.alive()
        self.sampler.check()


@contextmanager
def running(job: Job, draft: Draft, side: Side, *, backend: telemetry.Kind, directory: str) -> Iterator[Up]:
    """Launch one stack of the job with a sampler beside it; both are gone when the block ends, however it ends."""
    stack = job.config.stacks.of(side)
    draft.side = side
    files = job.directory.launch(directory)
    dropped = telemetry.drop_page_cache(_weights(job, stack))
    doubt = f"{side}: weights may have been in the page cache when it started, "
    if dropped.files and dropped.condition != "dropped" and not any(doubt in note for note in draft.recording.notes):
        draft.note(f"{doubt}first at {directory}: {dropped.reason}")
    current: list[launch.Running] = []
    with telemetry.sampling(
        backend=backend,
        uuids=stack.gpu_uuids,
        pids=lambda: current[0].pids() if current else (),
        path=files.telemetry,
        gpu_count=stack.gpu_count if stack.endpoint is None else None,
        host=draft.sampler_host,
    ) as sampler:
        if stack.endpoint is None:
            _await_free(job, draft, sampler)
        with launch.launch(
            stack,
            side=side,
            run_id=job.origin.run_id,
            log_path=files.log,
            environment=job.environment,
            workspace=job.workspace,
            first_token=functools.partial(
                client.one_token,
                api=job.config.workload.api,
                served_model=served_model(stack, job.config),
                headers=headers(stack, job.environment),
            ),
            progress=job.reporter.phase,
            docker=draft.docker,
        ) as started:
            current.append(started)
            cold_start = started.ready.cold_start.model_copy(update={"page_cache": dropped.condition})
            draft.set(telemetry=sampler.static)
            yield Up(side, stack, started, sampler, files, cold_start, headers(stack, job.environment))


def _await_free(job: Job, draft: Draft, sampler: telemetry.Sampler) -> None:
    """A GPU needs a moment to settle after the stack before. What is still on it after that is in the samples, and judged."""
    floor = draft.recording.floor
    deadline = time.monotonic() + SETTLE_S
    said = False
    while floor is not None and time.monotonic() < deadline:
        now = sampler.latest()
        if now is not None and not job.thinking.occupied(now, floor=floor):
            return
        if now is not None and not said:
            job.reporter.phase(f"waiting for the accelerator to settle, {SETTLE_S:g} s at most")
            said = True
        sampler.check()
        time.sleep(SETTLE_STEP_S)


def served_model(stack: Stack, config: Config) -> str:
    """The model's name in requests to this stack."""
    return stack.served_model or config.model.name


def headers(stack: Stack, environment: Mapping[str, str]) -> dict[str, str]:
    """Authorization for an endpoint that wants it; the key is read by name and stays in memory.

    Raises UsageError for a variable that is not set, or that holds what belongs to the job: a change chooses the address.
    """
    name = stack.endpoint.api_key_env if stack.endpoint else None
    if name is None:
        return {}
    if not environment.get(name):
        raise UsageError(
            f"the variable {name}, which holds the key of the endpoint {stack.label!r}, is not set",
            next_step=f"pass it in the workflow: `env: {{{name}: ${{{{ secrets.{name} }}}}}}`",
        )
    if environment[name] in {value for other, value in environment.items() if belongs_to_the_job(other)}:
        raise UsageError(
            f"the variable {name} holds the same as a variable that belongs to the job",
            why="it would be sent to an address that the change under test can choose",
            next_step="give the endpoint a key of its own, and name its variable as api_key_env",
        )
    return {"Authorization": f"Bearer {environment[name]}"}


def weights_path(job: Job) -> Path | None:
    """The weights on this machine, when the configuration names them."""
    path = job.config.model.path
    return (job.workspace / path).resolve() if path else None


def _weights(job: Job, stack: Stack) -> tuple[Path, ...]:
    path = weights_path(job)
    return (path,) if path is not None and stack.endpoint is None and path.exists() else ()
