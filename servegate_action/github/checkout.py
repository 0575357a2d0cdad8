"""Which commit the working tree holds: the status must not land on a commit that was not the one measured.

A workflow that forgets `ref:` after a slash command checks out the default branch, measures that, and would set a green
status on the pull request's head. So the checkout's HEAD is read, from git's own files, since the image holds no git, and
is held against the event. Files are read, nothing is run and nothing is changed.
"""

from __future__ import annotations

import re
from pathlib import Path

from servegate_action.errors import UsageError
from servegate_action.github.event import Event, Kind

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/[A-Za-z0-9._/+@-]+")
_MOST_BYTES = 16 * 1024 * 1024


def head(folder: Path) -> str | None:
    """The commit that a working tree is at, or None when its files do not tell (no repository, a linked worktree)."""
    text = _read(folder / ".git" / "HEAD").strip()
    if _SHA.fullmatch(text):
        return text
    ref = text.removeprefix("ref: ")
    if ref == text or _REF.fullmatch(ref) is None or ".." in ref:
        return None
    loose = _read(folder / ".git" / ref).strip()
    if _SHA.fullmatch(loose):
        return loose
    for line in _read(folder / ".git" / "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if name == ref and _SHA.fullmatch(commit):
            return commit
    return None


def holding(folder: Path, *, within: Path) -> str | None:
    """The commit of the innermost working tree around `folder`, looked for up to `within`; None when no files tell."""
    folder, within = folder.resolve(), within.resolve()
    while folder.is_relative_to(within):
        if (folder / ".git").exists():
            return head(folder)
        folder = folder.parent
    return None


def confirm(event: Event, *, folder: Path, runner_sha: str) -> str:
    """Raise UsageError when the tree is another commit's; give a note for the report when it does not tell.

    On a pull request, actions/checkout takes the merge of the head into its base (`runner_sha`), unless told otherwise:
    that is what would be merged, and is accepted, like the head itself.
    """
    found = head(folder)
    if found is None:
        return "the checkout does not tell which commit it holds, so that nobody has compared it with the commit that was judged"
    accepted = {event.sha}
    if event.kind is Kind.PULL_REQUEST:
        accepted.add(runner_sha)
    if found in accepted:
        return ""
    on_pull = event.kind is Kind.PULL_REQUEST
    raise UsageError(
        f"the checkout holds {found[:7]}, but the verdict is about {(event.sha or 'no commit')[:7]}",
        why="on a pull request it must be the head, or the merge of it that actions/checkout takes by itself"
        if on_pull
        else "actions/checkout takes the default branch on this event, unless it is told which commit to take",
        next_step="leave `ref:` of actions/checkout out, or give it the pull request's head"
        if on_pull
        else "give actions/checkout `ref:` with the same commit as the input `sha` (docs/workflows/slash-command.yml)",
    )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
