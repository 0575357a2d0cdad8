"""The state of the fake GitHub: plain, mutable, and JSON on disk, so that a container test can lay it out and read it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

BOT = "github-actions[bot]"
EVERYTHING = frozenset({"contents:read", "issues:write", "pull-requests:write", "statuses:write", "checks:write"})
READ_ONLY = frozenset({"contents:read", "issues:read", "pull-requests:read", "statuses:read", "checks:read"})


class Part(BaseModel):
    """Base of every part of the state."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Pull(Part):
    """A pull request."""

    number: int
    head_sha: str
    base_sha: str
    head_repo: str | None = "octo/repo"
    head_ref: str = "topic"
    base_ref: str = "main"
    state: str = "open"
    author: str = "author"
    commits: list[str] = Field(default_factory=list)


class Issue(Part):
    """The thread of an issue or of a pull request."""

    number: int
    state: str = "open"
    locked: bool = False


class Comment(Part):
    """A comment. `hidden_from_lists` counts the listings that do not show it yet (replication lag)."""

    id: int
    issue: int
    author: str
    body: str
    edits: int = 0
    hidden_from_lists: int = 0


class Status(Part):
    """A commit status."""

    id: int
    sha: str
    state: str
    context: str
    description: str | None = None
    target_url: str | None = None
    creator: str = BOT


class CheckRun(Part):
    """A check run."""

    id: int
    name: str
    head_sha: str
    status: str
    conclusion: str | None = None
    details_url: str | None = None
    title: str = ""
    summary: str = ""
    text: str | None = None
    annotations: int = 0


class Reaction(Part):
    """A reaction to a comment."""

    id: int
    comment: int
    content: str


class Fault(Part):
    """One thing that goes wrong. `method` and `path` are regular expressions; `times` None means always.

    `raw` is sent instead of JSON, as a proxy would. `after_success` carries the request out and answers with the fault all the same; `drop` closes the connection.
    """

    method: str = ".*"
    path: str = ".*"
    status: int = 500
    message: str = "Server Error"
    headers: dict[str, str] = Field(default_factory=dict)
    times: int | None = 1
    raw: str | None = None
    after_success: bool = False
    drop: bool = False


class Request(Part):
    """One line of the log of what was asked."""

    method: str
    path: str
    status: int
    body: object = None


class World(Part):
    """Everything that the fake knows."""

    repository: str = "octo/repo"
    private: bool = True
    default_branch: str = "main"
    viewer: str = BOT
    rights: set[str] = Field(default_factory=lambda: set(EVERYTHING))
    roles: dict[str, str] = Field(default_factory=dict)
    branches: dict[str, str] = Field(default_factory=dict)
    commits: set[str] = Field(default_factory=set)
    pulls: dict[int, Pull] = Field(default_factory=dict)
    issues: dict[int, Issue] = Field(default_factory=dict)
    comments: list[Comment] = Field(default_factory=list)
    statuses: list[Status] = Field(default_factory=list)
    check_runs: list[CheckRun] = Field(default_factory=list)
    reactions: list[Reaction] = Field(default_factory=list)
    files: dict[str, dict[str, str]] = Field(default_factory=dict, description="commit -> path -> text")
    faults: list[Fault] = Field(default_factory=list)
    list_lag: int = 0
    next_id: int = 1000
    log: list[Request] = Field(default_factory=list)

    def new_id(self) -> int:
        """An id that grows, as GitHub's do."""
        self.next_id += 1
        return self.next_id

    def add_pull(self, number: int, **facts: object) -> Pull:
        """A pull request with its thread; its commits exist."""
        pull = Pull.model_validate(
            {"number": number, "head_sha": sha(f"head{number}"), "base_sha": sha("base"), **facts}
        )
        self.pulls[number] = pull
        self.issues.setdefault(number, Issue(number=number))
        self.commits |= {pull.head_sha, pull.base_sha, *pull.commits}
        return pull

    def add_issue(self, number: int, *, locked: bool = False) -> Issue:
        """A plain issue."""
        self.issues[number] = Issue(number=number, locked=locked)
        return self.issues[number]

    def add_comment(self, issue: int, body: str, *, author: str = BOT) -> Comment:
        """A comment that is there already."""
        comment = Comment(id=self.new_id(), issue=issue, author=author, body=body)
        self.comments.append(comment)
        return comment

    def push(self, number: int, head_sha: str) -> None:
        """New commits on a pull request."""
        pull = self.pulls[number]
        pull.commits = [*pull.commits, pull.head_sha]
        pull.head_sha = head_sha
        self.commits.add(head_sha)

    def of(self, number: int) -> list[Comment]:
        """The comments of one thread, oldest first."""
        return [comment for comment in self.comments if comment.issue == number]

    def status_of(self, commit: str, context: str) -> Status | None:
        """The status that counts: the newest one of a context."""
        found = [row for row in self.statuses if row.sha == commit and row.context == context]
        return found[-1] if found else None

    def save(self, path: Path) -> None:
        """Write it to disk, whole or not at all."""
        beside = path.with_name(path.name + ".new")
        beside.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> World:
        """Read it back."""
        return cls.model_validate_json(path.read_text(encoding="utf-8"))


def sha(name: str) -> str:
    """A commit sha that a test can name."""
    return hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()


def blob_sha(text: str) -> str:
    """The name that git gives to a file's content."""
    data = text.encode()
    return hashlib.sha1(b"blob %d\x00" % len(data) + data, usedforsecurity=False).hexdigest()
