"""One family tree of errors: what happened, the likely cause, and what to do next.

Every error that a user can meet is one of these. The message is a small help page. Foreign exceptions are translated
into this family at the wall of the room that owns the foreign library; nothing else crosses a room's border. The door
(`__main__`) turns the class into an exit code. This module refuses to know anything about the rest of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells its caller. Anything but `PASS` blocks a merge."""

    PASS = 0
    REJECT = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INVALID = 4
    CANNOT_MEASURE = 5
    SIGINT = 130
    SIGTERM = 143


class ServegateError(Exception):
    """Root of the family.

    `what` happened in one sentence, `why` is the likely cause, `next_step` what to do about it. Either of the last two
    may be empty when nothing true can be said.
    """

    exit_code: ExitCode = ExitCode.CANNOT_MEASURE

    def __init__(self, what: str, *, why: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step

    def __str__(self) -> str:
        parts = [self.what]
        if self.why:
            parts.append(f"  why:  {self.why}")
        if self.next_step:
            parts.append(f"  next: {self.next_step}")
        return "\n".join(parts)


class UsageError(ServegateError):
    """The command line or the action's inputs make no sense; nothing was measured."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration file, at the place where it stands."""

    file: str
    line: int
    key: str
    what: str
    allowed: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: {self.key}: " if self.key else f"{self.file}:{self.line}: "
        return place + self.what + (f" (allowed: {self.allowed})" if self.allowed else "")


class ConfigError(ServegateError):
    """The configuration is wrong. Carries every problem, not only the first."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[Problem]) -> None:
        count = len(problems)
        what = f"{count} problem{'s' if count != 1 else ''} in the configuration; nothing was measured"
        super().__init__(what, next_step="fix the lines above; `servegate config schema` prints what is allowed")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([*(str(problem) for problem in self.problems), super().__str__()])


class CannotMeasure(ServegateError):
    """A measurement could not be made or finished. Never a verdict about the candidate's speed."""


class LaunchFailed(CannotMeasure):
    """A stack did not become ready. Carries the last lines of its log (foreign text: escape before showing)."""

    def __init__(self, what: str, *, why: str = "", next_step: str = "", log_tail: Sequence[str] = ()) -> None:
        super().__init__(what, why=why, next_step=next_step)
        self.log_tail = tuple(log_tail)

    def __str__(self) -> str:
        if not self.log_tail:
            return super().__str__()
        return "\n".join([super().__str__(), "  last lines of its log:", *(f"    | {line}" for line in self.log_tail)])


class StackDied(LaunchFailed):
    """A stack that had been ready died, or stopped answering, while it was being measured."""


class TelemetryUnavailable(CannotMeasure):
    """The accelerator's counters cannot be read at all."""


class AcceleratorLost(CannotMeasure):
    """A GPU fell off the bus, or its driver stopped answering, during the measurement."""


class StorageFailed(CannotMeasure):
    """The run directory cannot be written (full disk, no permission)."""


class RecordingUnreadable(ServegateError):
    """A run directory is missing, incomplete beyond use, altered, or written by a newer version."""

    exit_code = ExitCode.USAGE


class VerificationFailed(ServegateError):
    """The evidence does not hold: a file differs from the manifest, or the verdict does not follow from it."""

    exit_code = ExitCode.INVALID

    def __init__(self, findings: Sequence[str]) -> None:
        super().__init__(
            f"verification failed: {len(findings)} finding{'s' if len(findings) != 1 else ''}",
            why="the directory was changed after it was written, or by another version of servegate",
            next_step="do not trust this verdict; measure again",
        )
        self.findings = tuple(findings)

    def __str__(self) -> str:
        return "\n".join([*self.findings, super().__str__()])


class PublishFailed(ServegateError):
    """GitHub could not be told. Never confused with a verdict: callers warn and keep the gate's own exit code."""


class Cancelled(ServegateError):
    """The user or the runner asked to stop (SIGINT, SIGTERM)."""

    def __init__(self, signal_number: int) -> None:
        super().__init__("cancelled", next_step="what was finished is kept; `servegate judge DIR` reads it")
        self.signal_number = signal_number
        self.exit_code = ExitCode.SIGINT if signal_number == 2 else ExitCode.SIGTERM
