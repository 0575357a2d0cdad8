"""Commit statuses: the one thing that a branch rule should require.

A status sits on the head commit itself, in a context of its own (`servegate/<gate>`), apart from every job's name: a
skipped job counts as passing, a missing status does not. Texts are cut to GitHub's limits. This module writes what it is
told and derives no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from servegate_action.github.api import Answer, Api

State = Literal["pending", "success", "failure", "error"]

DESCRIPTION_MAX = 140
CONTEXT_MAX = 255


@dataclass(frozen=True, slots=True)
class Status:
    """One status. `target_url` is the run's page."""

    state: State
    context: str
    description: str
    target_url: str


class Seen(Answer):
    """A status as GitHub holds it."""

    state: str
    context: str
    description: str | None = None
    target_url: str | None = None


def post(api: Api, *, sha: str, status: Status) -> None:
    """Set it. Setting it twice is the same as once, so that an unclear answer is followed by another try."""
    body = {
        "state": status.state,
        "context": status.context[:CONTEXT_MAX],
        "description": shorten(status.description, DESCRIPTION_MAX),
        "target_url": status.target_url,
    }
    api.post(api.path("statuses", sha), Seen, body, repeatable=True)


def current(api: Api, *, sha: str, context: str) -> Seen | None:
    """The status that counts: the newest of the context, or None."""
    for seen in api.pages(api.path("commits", sha, "statuses"), Seen):
        if seen.context == context[:CONTEXT_MAX]:
            return seen
    return None


def shorten(text: str, max_chars: int) -> str:
    """One line of at most `max_chars` characters, with an ellipsis where something was cut."""
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"
