"""What a person sees while long work runs: a live line with an ETA on a terminal, one plain line per phase in a log.

Only the command line uses this; rooms get plain callables and never print. What a phase quotes (a
calibration from the checkout, say) is made harmless to a runner that reads commands from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from servegate_action.github.outputs import guard


class Reporter(Protocol):
    """How long work tells where it is."""

    def phase(self, text: str) -> None:
        """A new phase has begun."""

    def advance(self, done: int, total: int, text: str) -> None:
        """`done` of `total` steps of the present phase are finished."""


class Lines:
    """One plain line per phase: for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def phase(self, text: str) -> None:
        """Print the phase."""
        self._console.print(guard(text), markup=False, highlight=False, soft_wrap=True)

    def advance(self, done: int, total: int, text: str) -> None:
        """Nothing: a log needs phases, not ticks."""


class Live:
    """A bar with elapsed and remaining time: for terminals. Phases stay visible above it."""

    def __init__(self, console: Console, progress: Progress, task: TaskID) -> None:
        self._console = console
        self._progress = progress
        self._task = task

    def phase(self, text: str) -> None:
        """Print the phase above the bar."""
        self._progress.console.print(guard(text), markup=False, highlight=False)

    def advance(self, done: int, total: int, text: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=total, description=text[:40])


@contextmanager
def reporting(console: Console) -> Iterator[Reporter]:
    """The reporter that suits the console: live on a terminal, lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Live(console, progress, progress.add_task("starting", total=None))
