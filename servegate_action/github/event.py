"""What happened on GitHub, reduced to what a gate needs: which commit, which thread, whose policy.

The payload models are lenient on purpose: they name the few fields that are read, and ignore the rest, because GitHub
adds fields every week. What they do name is checked, and a payload that lacks it is refused with the name of the field.
The commit is always the one that a required status must sit on, never the merge commit that `GITHUB_SHA` names on a
pull request. This module reads no environment, asks no server and decides nothing about a candidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, ValidationError

from servegate_action.errors import UsageError

_FULL_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NO_COMMIT = re.compile(r"0+")
_DEPENDABOT = "dependabot[bot]"


class Kind(StrEnum):
    """The events that a gate runs on."""

    PULL_REQUEST = "pull_request"
    MERGE_GROUP = "merge_group"
    PUSH = "push"
    WORKFLOW_DISPATCH = "workflow_dispatch"
    SCHEDULE = "schedule"
    ISSUE_COMMENT = "issue_comment"
    WORKFLOW_RUN = "workflow_run"


class Thread(StrEnum):
    """Whether a comment can be expected to arrive, as far as the event itself can tell."""

    OPEN = "a comment is possible"
    NONE = "there is no pull request or issue to comment on"
    LOOK_UP = "the pull request has to be looked up on the server"
    LOCKED = "the conversation is locked"
    READ_ONLY = "the token of this event can only read (a fork, or Dependabot)"


@dataclass(frozen=True, slots=True)
class Comment:
    """The comment that an `issue_comment` event is about. `body` is foreign text."""

    id: int
    author: str
    body: str
    created: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `sha` is None where only the server, or an input, can name the commit.

    `policy_ref` is the commit or branch that the gate's policy must be read from; None means that the measured commit
    is itself where the policy lives (a push to the default branch).
    `head_repository` is None when the fork was deleted.
    """

    kind: Kind
    action: str
    repository: str
    sha: str | None
    number: int | None
    policy_ref: str | None
    thread: Thread
    on_pull_request: bool = False
    head_repository: str | None = None
    head_branch: str | None = None
    closed: bool = False
    comment: Comment | None = None


# ---------------------------------------------------------------- the payloads, as far as they are read


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Repository(_Payload):
    full_name: str
    default_branch: str = "main"


class _Login(_Payload):
    login: str = ""


class _Tip(_Payload):
    sha: str
    ref: str = ""
    repo: _Repository | None = None


class _PullRequest(_Payload):
    number: int
    state: str = "open"
    locked: bool = False
    head: _Tip
    base: _Tip
    user: _Login | None = None


class _PullRequestEvent(_Payload):
    action: str = ""
    pull_request: _PullRequest
    repository: _Repository
    sender: _Login | None = None


class _MergeGroup(_Payload):
    head_sha: str
    base_sha: str
    head_ref: str = ""


class _MergeGroupEvent(_Payload):
    action: str = ""
    merge_group: _MergeGroup
    repository: _Repository


class _PushEvent(_Payload):
    ref: str
    after: str
    deleted: bool = False
    repository: _Repository


class _RefEvent(_Payload):
    """`workflow_dispatch` and `schedule`: the commit is not in the payload."""

    ref: str = ""
    repository: _Repository | None = None


class _IssuePullRequest(_Payload):
    url: str = ""


class _Issue(_Payload):
    number: int
    state: str = "open"
    locked: bool = False
    pull_request: _IssuePullRequest | None = None


class _IssueComment(_Payload):
    id: int
    body: str | None = None
    user: _Login | None = None


class _IssueCommentEvent(_Payload):
    action: str = ""
    issue: _Issue
    comment: _IssueComment
    repository: _Repository


class _WorkflowRun(_Payload):
    head_sha: str
    head_branch: str | None = None
    event: str = ""
    head_repository: _Repository | None = None


class _WorkflowRunEvent(_Payload):
    action: str = ""
    workflow_run: _WorkflowRun
    repository: _Repository


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the runner says beside the payload, and what the workflow's author adds through inputs."""

    repository: str
    sha: str
    ref: str = ""
    asked_sha: str | None = None
    asked_number: int | None = None


def parse(name: str, payload: Mapping[str, object], *, around: Surroundings) -> Event:
    """Read one event.

    Raises UsageError for an event that a gate must not or cannot run on, for a payload that lacks what is needed, and
    for an input that contradicts the event.
    """
    reader = _READERS.get(name)
    if reader is None:
        raise _unsupported(name)
    try:
        event = reader(payload, around)
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(str(part) for part in problem["loc"]) for problem in error.errors()}))
        raise UsageError(
            f"the payload of this {name} event is not what GitHub sends: {fields}",
            why="GITHUB_EVENT_PATH names another file, or a server that imitates GitHub sends less",
            next_step="run the action from a workflow, or name the commit with the input `sha`",
        ) from error
    return _with_inputs(event, around)


def _unsupported(name: str) -> UsageError:
    if name == "pull_request_target":
        return UsageError(
            "servegate refuses to run on pull_request_target",
            why="that event hands the repository's secrets and a writing token to a job that would start the pull "
            "request's own code on the GPU host, where the Docker socket is root",
            next_step="use `on: pull_request` for branches of this repository, and the two-job workflow or the "
            "slash command for forks (docs/github.md)",
        )
    known = ", ".join(kind.value for kind in Kind)
    return UsageError(
        f"servegate cannot tell which commit a {name or 'nameless'} event is about",
        why=f"the events it knows are {known}",
        next_step="change `on:` in the workflow",
    )


def _pull_request(payload: Mapping[str, object], _: Surroundings) -> Event:
    seen = _PullRequestEvent.model_validate(payload)
    pull = seen.pull_request
    head_repository = pull.head.repo.full_name if pull.head.repo else None
    is_fork = head_repository != seen.repository.full_name
    read_only = is_fork or (seen.sender is not None and seen.sender.login == _DEPENDABOT)
    return Event(
        kind=Kind.PULL_REQUEST,
        action=seen.action,
        repository=seen.repository.full_name,
        sha=_commit(pull.head.sha, "pull_request.head.sha"),
        number=pull.number,
        policy_ref=_commit(pull.base.sha, "pull_request.base.sha"),
        thread=Thread.READ_ONLY if read_only else Thread.LOCKED if pull.locked else Thread.OPEN,
        on_pull_request=True,
        head_repository=head_repository,
        head_branch=pull.head.ref or None,
        closed=pull.state != "open",
    )


def _merge_group(payload: Mapping[str, object], _: Surroundings) -> Event:
    seen = _MergeGroupEvent.model_validate(payload)
    return Event(
        kind=Kind.MERGE_GROUP,
        action=seen.action,
        repository=seen.repository.full_name,
        sha=_commit(seen.merge_group.head_sha, "merge_group.head_sha"),
        number=None,
        policy_ref=_commit(seen.merge_group.base_sha, "merge_group.base_sha"),
        thread=Thread.NONE,
        head_repository=seen.repository.full_name,
        head_branch=seen.merge_group.head_ref or None,
    )


def _push(payload: Mapping[str, object], _: Surroundings) -> Event:
    seen = _PushEvent.model_validate(payload)
    if seen.deleted or _NO_COMMIT.fullmatch(seen.after):
        raise UsageError(
            "this push deleted a branch or tag; there is no commit to measure",
            next_step="add `if: ${{ !github.event.deleted }}` to the job",
        )
    return Event(
        kind=Kind.PUSH,
        action="",
        repository=seen.repository.full_name,
        sha=_commit(seen.after, "after"),
        number=None,
        policy_ref=_policy_ref(seen.ref, seen.repository),
        thread=Thread.NONE,
        head_repository=seen.repository.full_name,
        head_branch=seen.ref.removeprefix("refs/heads/") or None,
    )


def _by_hand(kind: Kind) -> _Reader:
    def read(payload: Mapping[str, object], around: Surroundings) -> Event:
        seen = _RefEvent.model_validate(payload)
        repository = seen.repository.full_name if seen.repository else around.repository
        ref = seen.ref if seen.ref.startswith("refs/") else around.ref
        return Event(
            kind=kind,
            action="",
            repository=repository,
            sha=_commit(around.sha, "GITHUB_SHA"),
            number=None,
            policy_ref=_policy_ref(ref, seen.repository) if seen.repository else None,
            thread=Thread.NONE,
            head_repository=repository,
            head_branch=ref.removeprefix("refs/heads/") or None,
        )

    return read


def _issue_comment(payload: Mapping[str, object], around: Surroundings) -> Event:
    """`GITHUB_SHA` is the default branch here; `commands` replaces it by the base of the pull request it was asked for."""
    seen = _IssueCommentEvent.model_validate(payload)
    return Event(
        kind=Kind.ISSUE_COMMENT,
        action=seen.action,
        repository=seen.repository.full_name,
        sha=None,
        number=seen.issue.number,
        policy_ref=around.sha or None,
        thread=Thread.LOCKED if seen.issue.locked else Thread.OPEN,
        on_pull_request=seen.issue.pull_request is not None,
        closed=seen.issue.state != "open",
        comment=Comment(
            id=seen.comment.id,
            author=seen.comment.user.login if seen.comment.user else "",
            body=seen.comment.body or "",
            created=seen.action == "created",
        ),
    )


def _workflow_run(payload: Mapping[str, object], _: Surroundings) -> Event:
    """The pull request is looked up by the commit: the list in the payload is empty for forks, and cannot be trusted."""
    seen = _WorkflowRunEvent.model_validate(payload)
    run = seen.workflow_run
    head_repository = run.head_repository.full_name if run.head_repository else None
    return Event(
        kind=Kind.WORKFLOW_RUN,
        action=seen.action,
        repository=seen.repository.full_name,
        sha=_commit(run.head_sha, "workflow_run.head_sha"),
        number=None,
        policy_ref=f"refs/heads/{seen.repository.default_branch}",
        thread=Thread.LOOK_UP,
        head_repository=head_repository,
        head_branch=run.head_branch,
    )


_Reader = Callable[[Mapping[str, object], Surroundings], Event]

_READERS: Mapping[str, _Reader] = {
    Kind.PULL_REQUEST: _pull_request,
    Kind.MERGE_GROUP: _merge_group,
    Kind.PUSH: _push,
    Kind.WORKFLOW_DISPATCH: _by_hand(Kind.WORKFLOW_DISPATCH),
    Kind.SCHEDULE: _by_hand(Kind.SCHEDULE),
    Kind.ISSUE_COMMENT: _issue_comment,
    Kind.WORKFLOW_RUN: _workflow_run,
}


def _policy_ref(ref: str, repository: _Repository) -> str | None:
    """A branch must not bring its own limits: a push to it could set the status that a pull request waits for."""
    default = f"refs/heads/{repository.default_branch}"
    return None if ref == default else default


def _commit(text: str, field: str) -> str:
    if _FULL_SHA.fullmatch(text) is None or _NO_COMMIT.fullmatch(text):
        raise UsageError(
            f"{field} is not a full commit sha",
            why="a status can only be set on a whole sha of 40 (or 64) lower-case hexadecimal digits",
            next_step="give the whole sha",
        )
    return text


def _with_inputs(event: Event, around: Surroundings) -> Event:
    """Add what the event does not name. An input never overrules the event: that would be a status on another commit."""
    if around.asked_sha is not None:
        asked = _commit(around.asked_sha, "the input `sha`")
        if event.kind in (Kind.PULL_REQUEST, Kind.MERGE_GROUP, Kind.PUSH, Kind.WORKFLOW_RUN) and asked != event.sha:
            raise _contradiction("sha", asked=asked, named=str(event.sha), event=event)
        # Another commit than the one the workflow ran from does not bring its own policy.
        policy_ref = event.policy_ref if asked == event.sha else (event.policy_ref or around.sha or None)
        event = replace(event, sha=asked, policy_ref=policy_ref)
    if around.asked_number is not None:
        if event.number is not None and event.number != around.asked_number:
            raise _contradiction("number", asked=str(around.asked_number), named=str(event.number), event=event)
        if event.number is None:
            event = replace(event, number=around.asked_number, thread=Thread.OPEN)
    return event


def _contradiction(what: str, *, asked: str, named: str, event: Event) -> UsageError:
    return UsageError(
        f"the input `{what}` says {asked}, but this {event.kind} event is about {named}",
        why="the status and the comment would land beside what was measured",
        next_step=f"leave the input `{what}` out; it is for events that do not name one",
    )
