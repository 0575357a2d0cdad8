"""What one measurement is given, and the recording as it grows.

`Job` carries every collaborator in; `Draft` has each change on disk before the next thing happens. What facts mean is
asked of `Thinking`, which the caller brings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from servegate_action.config.models import Config
from servegate_action.errors import Cancelled, CannotMeasure, LaunchFailed
from servegate_action.launch import DockerWorld
from servegate_action.progress import Reporter
from servegate_action.records import Change, Failure, Host, LaunchRecord, LaunchState, Recording, Side, TelemetrySample
from servegate_action.store import LaunchData, RunDirectory
from servegate_action.telemetry import Host as SamplerHost
from servegate_action.workload import LengthFit, Workload


class Thinking(Protocol):
    """What measuring asks of judging. Each answer follows from facts on disk."""

    def incomparable(self, recording: Recording) -> bool:
        """The two stacks cannot be compared whatever the numbers: stop before GPU time is spent."""

    def warnings(self, recording: Recording) -> tuple[str, ...]:
        """What a user should know before GPU time is spent: limits that this runner's noise cannot show."""

    def decided(self, recording: Recording) -> bool:
        """At a look: no further round is needed."""

    def void_reason(self, record: LaunchRecord, data: LaunchData, *, floor: TelemetrySample | None) -> str | None:
        """The environment spoiled this launch (throttling, a foreign tenant …): why, or None."""

    def occupied(self, now: TelemetrySample, *, floor: TelemetrySample) -> bool:
        """The accelerator is not (or not yet) as free as it was before the first launch."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who measures, in which run, and for which change."""

    run_id: str
    tool_version: str
    operator: str
    run_url: str | None = None
    change: Change | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one measurement needs."""

    config: Config
    config_sha256: str
    plan: Callable[[LengthFit], Workload]
    directory: RunDirectory
    environment: Mapping[str, str]
    workspace: Path
    cache: Path
    origin: Origin
    host: Host
    thinking: Thinking
    reporter: Reporter


@dataclass(slots=True)
class Draft:
    """The recording as it grows; every change is on disk at once."""

    directory: RunDirectory
    recording: Recording
    docker: DockerWorld | None = None
    sampler_host: SamplerHost | None = None
    side: Side | None = None
    voids: int = 0

    def set(self, **changes: object) -> None:
        """Replace fields and store."""
        self.recording = self.recording.model_copy(update=changes)
        self.directory.write_recording(self.recording)

    def note(self, text: str) -> None:
        """Add a note that the report shows."""
        self.set(notes=(*self.recording.notes, text))

    def put(self, record: LaunchRecord) -> None:
        """Add a launch, or replace the record of the same directory."""
        others = tuple(known for known in self.recording.launches if known.directory != record.directory)
        self.set(launches=(*others, record))

    def close(self, state: Literal["failed", "cancelled"], error: CannotMeasure | Cancelled) -> None:
        """Write down why the run ended early. A launch in progress keeps its finished cells."""
        failure = Failure(
            kind="cancelled" if state == "cancelled" else "could not measure",
            what=error.what,
            why=error.why,
            next_step=error.next_step,
            side=self.side,
            log_tail=error.log_tail if isinstance(error, LaunchFailed) else (),
        )
        launches = tuple(
            record.model_copy(update={"state": LaunchState.FAILED, "reason": error.what})
            if record.state is LaunchState.RUNNING
            else record
            for record in self.recording.launches
        )
        self.set(state=state, failure=failure, launches=launches, finished_ns=time.monotonic_ns())


@dataclass(slots=True)
class Pace:
    """How long rounds take, for the forecast and the budget."""

    started_ns: int
    budget_ns: int | None
    rounds: list[int] = field(default_factory=list)

    def forecast_ns(self) -> int:
        """The longest round so far: what the next one may take."""
        return max(self.rounds, default=0)

    def allows(self, rounds: int, *, now_ns: int) -> bool:
        """Whether `rounds` more rounds fit the budget."""
        return self.budget_ns is None or now_ns - self.started_ns + rounds * self.forecast_ns() <= self.budget_ns
