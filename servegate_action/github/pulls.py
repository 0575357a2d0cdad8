"""Pull requests as the server holds them now: whose they are, where their head is, which one a commit belongs to.

An event's payload is a photograph from when the job was queued, and an artifact from another job says what its author
likes. Whatever decides about publishing is asked here, on the server. Nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from servegate_action.errors import UsageError
from servegate_action.github.api import Answer, Api, Refusal, Refused
from servegate_action.github.event import Event, Kind, Thread


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request. `head_repository` is None when the fork was deleted."""

    number: int
    head_sha: str
    head_repository: str | None
    base_sha: str
    is_open: bool


class _Repository(Answer):
    full_name: str


class _Tip(Answer):
    sha: str
    repo: _Repository | None = None


class _Pull(Answer):
    number: int
    state: str
    head: _Tip
    base: _Tip


class _Issue(Answer):
    number: int
    pull_request: dict[str, object] | None = None


def get(api: Api, number: int) -> Pull:
    """One pull request, now."""
    return _pull(api.get(api.path("pulls", number), _Pull))


def is_pull_request(api: Api, number: int) -> bool:
    """Whether a number is that of a pull request, rather than of a plain issue."""
    return api.get(api.path("issues", number), _Issue).pull_request is not None


def resolve(event: Event, *, api: Api) -> Event:
    """The event with what only the server knows: thread and policy, and that commit and number belong together.

    An event that names both itself (a pull request) comes back as it is, without a question. Raises UsageError when the
    number is that of another pull request, whoever said so: an input, or an artifact by way of an input.
    """
    if event.kind is Kind.WORKFLOW_RUN and event.number is None:
        pull = of_event(api, event)
        return replace(event, thread=Thread.NONE) if pull is None else _on(pull, event)
    if event.kind is Kind.PULL_REQUEST or event.number is None or event.sha is None:
        return event
    if not is_pull_request(api, event.number):
        return replace(event, on_pull_request=False)
    if not belongs(api, number=event.number, sha=event.sha):
        raise UsageError(
            f"commit {event.sha[:7]} is not part of pull request {event.number}",
            why="the number came from an input, and the server says otherwise",
            next_step="give the number of the pull request whose commit was measured, or leave it out",
        )
    return _on(get(api, event.number), event)


def _on(pull: Pull, event: Event) -> Event:
    return replace(
        event,
        number=pull.number,
        policy_ref=pull.base_sha,
        thread=Thread.OPEN,
        on_pull_request=True,
        closed=not pull.is_open,
    )


def of_event(api: Api, event: Event) -> Pull | None:
    """The pull request behind a `workflow_run`: found by its commit, or by its branch when it comes from a fork.

    Only one whose head is that very commit *now* counts, or had been before it moved: the caller compares.
    """
    if event.sha is None:
        return None
    found = [_pull(row) for row in _of_commit(api, event.sha)]
    if not found and event.head_repository and event.head_branch:
        owner = event.head_repository.split("/", maxsplit=1)[0]
        rows = api.pages(api.path("pulls"), _Pull, state="open", head=f"{owner}:{event.head_branch}")
        found = [pull for pull in map(_pull, rows) if pull.head_repository == event.head_repository]
    at_head = [pull for pull in found if pull.head_sha == event.sha]
    candidates = at_head or [pull for pull in found if pull.is_open]
    return candidates[0] if len(candidates) == 1 else None


def belongs(api: Api, *, number: int, sha: str) -> bool:
    """Whether a commit is, or was, the head of a pull request: the server's word, not the artifact's."""
    try:
        pull = get(api, number)
    except Refused as refused:
        if refused.kind is Refusal.NOT_FOUND:
            return False
        raise
    return pull.head_sha == sha or any(row.sha == sha for row in api.pages(api.path("pulls", number, "commits"), _Tip))


def _of_commit(api: Api, sha: str) -> list[_Pull]:
    try:
        return list(api.pages(api.path("commits", sha, "pulls"), _Pull))
    except Refused as refused:
        if refused.kind in (Refusal.NOT_FOUND, Refusal.INVALID):  # a commit that only the fork has
            return []
        raise


def _pull(row: _Pull) -> Pull:
    return Pull(
        number=row.number,
        head_sha=row.head.sha,
        head_repository=row.head.repo.full_name if row.head.repo else None,
        base_sha=row.base.sha,
        is_open=row.state == "open",
    )
