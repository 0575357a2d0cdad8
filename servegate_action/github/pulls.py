"""Pull requests as the server holds them now: whose they are, where their head is, which one a commit belongs to.

An event's payload is a photograph from when the job was queued, and an artifact from another job says what its author
likes. Whatever decides about publishing is asked here, on the server. Nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from servegate_action.github.api import Answer, Api, Kind, Refused
from servegate_action.github.event import Event


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request. `head_repository` is None when the fork was deleted."""

    number: int
    head_sha: str
    head_repository: str | None
    base_sha: str
    base_branch: str
    is_open: bool


class _Repository(Answer):
    full_name: str


class _Tip(Answer):
    sha: str
    ref: str = ""
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
        if refused.kind is Kind.NOT_FOUND:
            return False
        raise
    return pull.head_sha == sha or any(row.sha == sha for row in api.pages(api.path("pulls", number, "commits"), _Tip))


def _of_commit(api: Api, sha: str) -> list[_Pull]:
    try:
        return list(api.pages(api.path("commits", sha, "pulls"), _Pull))
    except Refused as refused:
        if refused.kind in (Kind.NOT_FOUND, Kind.INVALID):  # a commit that only the fork has
            return []
        raise


def _pull(row: _Pull) -> Pull:
    return Pull(
        number=row.number,
        head_sha=row.head.sha,
        head_repository=row.head.repo.full_name if row.head.repo else None,
        base_sha=row.base.sha,
        base_branch=row.base.ref,
        is_open=row.state == "open",
    )
