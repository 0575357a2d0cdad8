"""One run of the action: who asks, where, with what rights; and what every mode does in the end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, cast

from servegate_action.artifacts import open_to_all
from servegate_action.errors import UsageError
from servegate_action.github import outputs
from servegate_action.github.api import Api, Server
from servegate_action.github.artifact import read_json
from servegate_action.github.degrade import Lost
from servegate_action.github.event import Event, Surroundings, parse
from servegate_action.github.inputs import ActionsEnvironment, Inputs, read_environment
from servegate_action.world import World


@dataclass(frozen=True, slots=True)
class Step:
    """What the runner, the workflow's author and the event say."""

    world: World
    inputs: Inputs
    job: ActionsEnvironment
    job_log: outputs.JobLog
    api: Api | None

    @classmethod
    def begin(cls, world: World, inputs: Inputs) -> Step:
        """Read the job's surroundings; the token is masked before anything else is printed."""
        job = read_environment(world.environment)
        log = outputs.JobLog(cast("TextIO", world.out.file), commands=world.environment.get("GITHUB_ACTIONS") == "true")
        if inputs.token:
            log.mask(inputs.token)
        server = Server(api_url=job.api_url, token=inputs.token, ca_bundle=job.ca_bundle)
        return cls(world, inputs, job, log, Api(server, repository=job.repository) if inputs.token else None)

    def hurried(self) -> Step:
        """The same for a job that is being cancelled, and has seconds."""
        return replace(self, api=self.api.hurried() if self.api else None)

    @property
    def root(self) -> Path:
        """Where the evidence is."""
        return self.job.workspace / self.inputs.output_dir

    def event(self) -> Event:
        """The event that started the job, with the inputs that add to it."""
        path = self.job.event_path
        if path is None or not path.exists():
            raise UsageError("there is no event payload", why="GITHUB_EVENT_PATH is not set or names no file")
        payload = read_json(path)
        if not isinstance(payload, dict):
            raise UsageError("the event payload is no JSON object")
        around = Surroundings(
            repository=self.job.repository,
            sha=self.job.sha,
            ref=self.job.ref,
            asked_sha=self.inputs.sha,
            asked_number=self.inputs.number,
        )
        return parse(self.job.event_name, payload, around=around)

    def warn(self, losses: Iterable[Lost]) -> None:
        """Say what could not be done, and how to mend it."""
        for lost in losses:
            self.job_log.warning(lost.title, lost.text)

    def output(self, **values: str) -> None:
        """The step's outputs; underscores stand for hyphens."""
        if self.job.output_path is not None:
            pairs = {name.replace("_", "-"): value for name, value in values.items()}
            outputs.write_pairs(self.job.output_path, pairs)

    def state(self, **values: str) -> None:
        """What the post step must know."""
        if self.job.state_path is not None:
            outputs.write_pairs(self.job.state_path, values)

    def summary(self, markdown: str) -> None:
        """Add to the job's summary."""
        if self.job.summary_path is not None and not outputs.append_summary(self.job.summary_path, markdown):
            self.job_log.notice("The job summary was shortened", "It would have been larger than GitHub shows.")

    def hand_over(self) -> None:
        """Give the evidence to whoever owns the workspace: files of root would stop the runner's next checkout."""
        if self.root.exists():
            open_to_all(self.root, like=self.job.workspace)


def relative(path: Path, to: Path) -> str:
    """A path as the next step of the workflow names it."""
    return os.path.relpath(path, to)
