"""The slash command: `/servegate run <sha>`, by somebody who may write, for the commit that is the head right now.

A comment is foreign text that starts code on a GPU host, so all of it is checked, on the server: it was created and not
edited, its first line is exactly the command, its author may write to this repository today, the pull request is open,
and the sha it names is the pull request's head at this moment. The sha is what is measured: a later push changes
nothing. A refusal is answered by a reaction and a sentence, never by silence and never by a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from servegate_action.github import pulls
from servegate_action.github.api import Answer, Api, Refusal, Refused
from servegate_action.github.degrade import Feature, Lost, explain
from servegate_action.github.event import Event, Thread
from servegate_action.github.outputs import guard_line

_COMMAND = re.compile(r"/servegate run (?P<sha>[0-9a-f]{40})")
_LIKE_A_COMMAND = re.compile(r"\s*/servegate\b")
_MAY_WRITE = frozenset({"admin", "write"})  # GitHub reports `maintain` as write here, and `triage` as read


@dataclass(frozen=True, slots=True)
class NoCommand:
    """An ordinary comment: nothing to do, nothing to answer."""


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A command that is not carried out. `reason` is one sentence for the log and the summary."""

    reason: str
    warnings: tuple[Lost, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """A command that is carried out. `event` has commit, policy and thread filled in from the server."""

    event: Event
    pull: pulls.Pull
    warnings: tuple[Lost, ...] = ()


A = TypeVar("A")
Outcome = NoCommand | RefusedCommand | Accepted


class _Permission(Answer):
    permission: str


class _Reaction(Answer):
    content: str


def answer(event: Event, *, api: Api) -> Outcome:
    """Check a comment and react to it. Nothing is measured here."""
    asked = _read(event)
    if not isinstance(asked, _Asked):
        return asked if isinstance(asked, NoCommand) else _refuse(event, asked, api=api)
    try:
        checked = _check(asked, api=api)
    except _NotAllowed as no:
        return _refuse(event, RefusedCommand(no.reason, no.warnings), api=api)
    warnings = _react(event, "rocket", api=api)
    accepted = replace(
        event,
        sha=checked.head_sha,
        policy_ref=checked.base_sha,
        thread=Thread.OPEN,
        on_pull_request=True,
        head_repository=checked.head_repository,
    )
    return Accepted(accepted, checked, warnings)


@dataclass(frozen=True, slots=True)
class _Asked:
    number: int
    sha: str
    commander: str


class _NotAllowed(Exception):
    def __init__(self, reason: str, warnings: tuple[Lost, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.warnings = warnings


def _read(event: Event) -> _Asked | NoCommand | RefusedCommand:
    """What the event's own comment says, before the server is asked anything."""
    comment = event.comment
    if comment is None or _LIKE_A_COMMAND.match(comment.body) is None:
        return NoCommand()
    if not comment.created:
        return NoCommand()  # an edit after the fact starts nothing, and is answered by nothing
    first = comment.body.split("\n", maxsplit=1)[0].removesuffix("\r")
    found = _COMMAND.fullmatch(first)
    if found is None:
        return RefusedCommand(
            f"the first line is {guard_line(first, max_chars=80)!r}, not exactly `/servegate run <sha>` with the whole "
            "sha of 40 lower-case digits"
        )
    if not event.on_pull_request or event.number is None:
        return RefusedCommand("the command works on pull requests; this is a plain issue")
    if not comment.author:
        return RefusedCommand("the account of the commenter is gone")
    return _Asked(event.number, found["sha"], comment.author)


def _check(asked: _Asked, *, api: Api) -> pulls.Pull:
    """Everything that only the server knows. The permission comes first: others learn nothing about the pull request."""
    may = _ask(
        Feature.COMMANDER, lambda: api.get(api.path("collaborators", asked.commander, "permission"), _Permission)
    )
    if may.permission not in _MAY_WRITE:
        raise _NotAllowed(f"@{guard_line(asked.commander)} has no write access to this repository")
    pull = _ask(Feature.PULL_REQUEST, lambda: pulls.get(api, asked.number))
    if not pull.is_open:
        raise _NotAllowed("the pull request is closed")
    if pull.head_sha != asked.sha:
        raise _NotAllowed(
            f"the head is {pull.head_sha[:7]} now, not {asked.sha[:7]}: look at the new commits, then name that sha"
        )
    return pull


def _ask(feature: Feature, question: Callable[[], A]) -> A:
    try:
        return question()
    except Refused as refused:
        if feature is Feature.COMMANDER and refused.kind is Refusal.NOT_FOUND:
            raise _NotAllowed("the commenter is no collaborator of this repository") from refused
        raise _NotAllowed(
            f"{feature.value} failed, so the command is not carried out", (explain(feature, refused),)
        ) from refused


def _refuse(event: Event, refused: RefusedCommand, *, api: Api) -> RefusedCommand:
    return replace(refused, warnings=(*refused.warnings, *_react(event, "-1", api=api)))


def _react(event: Event, content: str, *, api: Api) -> tuple[Lost, ...]:
    if event.comment is None:
        return ()
    try:
        api.post(
            api.path("issues", "comments", event.comment.id, "reactions"),
            _Reaction,
            {"content": content},
            repeatable=True,
        )
    except Refused as refused:
        return (explain(Feature.REACTION, refused),)
    return ()
