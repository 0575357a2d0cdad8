"""What each address does. Answers carry the fields that GitHub's schema requires of them where a program could read
them, and every address in them is on the fake's own host, because PyGithub insists on that."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.support.fake_github import bodies
from tests.support.fake_github.world import CheckRun, Comment, Pull, Reaction, Status, World, blob_sha

Json = Mapping[str, object]
INLINE_MAX = 1_000_000  # the contents API sends larger files without their content


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, taken apart."""

    world: World
    base: str
    match: re.Match[str]
    query: Mapping[str, str]
    body: Json

    def part(self, name: str) -> str:
        """A part of the path."""
        return unquote(self.match[name])

    @property
    def number(self) -> int:
        """The number in the path."""
        return int(self.match["number"])


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body; `listed` bodies are cut into pages by the server."""

    status: int
    body: object = None
    listed: bool = False
    wrapper: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: str | None = None


Route = Callable[[Asked], Answer]
NOT_FOUND = Answer(404, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"})


def refused(message: str, *, status: int = 403) -> Answer:
    """An error as GitHub words it."""
    return Answer(
        status, {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)}
    )


def no_right() -> Answer:
    """What a token without the permission hears."""
    return refused("Resource not accessible by integration")


def user(login: str) -> Json:
    """A user, as far as anybody reads it."""
    return {"login": login, "id": abs(hash(login)) % 10**6, "type": "Bot" if login.endswith("[bot]") else "User"}


# ---------------------------------------------------------------- shapes


def comment_shape(asked: Asked, row: Comment) -> Json:
    """An issue comment."""
    at = f"{asked.base}/repos/{asked.world.repository}/issues"
    return {
        "id": row.id,
        "node_id": f"IC_{row.id}",
        "url": f"{at}/comments/{row.id}",
        "html_url": f"https://github.com/{asked.world.repository}/issues/{row.issue}#issuecomment-{row.id}",
        "issue_url": f"{at}/{row.issue}",
        "body": row.body,
        "user": user(row.author),
        "created_at": "2026-11-30T00:00:00Z",
        "updated_at": f"2026-11-30T00:{row.edits // 60 % 60:02d}:{row.edits % 60:02d}Z",
        "author_association": "NONE",
    }


def status_shape(asked: Asked, row: Status) -> Json:
    """A commit status."""
    return {
        "id": row.id,
        "node_id": f"SC_{row.id}",
        "url": f"{asked.base}/repos/{asked.world.repository}/statuses/{row.sha}",
        "avatar_url": None,
        "state": row.state,
        "description": row.description,
        "target_url": row.target_url,
        "context": row.context,
        "creator": user(row.creator),
        "created_at": "2026-11-30T00:00:00Z",
        "updated_at": "2026-11-30T00:00:00Z",
    }


def check_shape(asked: Asked, row: CheckRun) -> Json:
    """A check run."""
    return {
        "id": row.id,
        "node_id": f"CR_{row.id}",
        "name": row.name,
        "head_sha": row.head_sha,
        "external_id": None,
        "url": f"{asked.base}/repos/{asked.world.repository}/check-runs/{row.id}",
        "html_url": f"https://github.com/{asked.world.repository}/runs/{row.id}",
        "details_url": row.details_url,
        "status": row.status,
        "conclusion": row.conclusion,
        "started_at": None,
        "completed_at": None,
        "output": {
            "title": row.title or None,
            "summary": row.summary or None,
            "text": row.text,
            "annotations_count": row.annotations,
            "annotations_url": f"{asked.base}/repos/{asked.world.repository}/check-runs/{row.id}/annotations",
        },
        "check_suite": None,
        "app": None,
        "pull_requests": [],
    }


def pull_shape(asked: Asked, row: Pull) -> Json:
    """A pull request, as far as anybody reads it."""
    issue = asked.world.issues[row.number]
    head_repo = {"full_name": row.head_repo, "default_branch": "main"} if row.head_repo else None
    return {
        "number": row.number,
        "id": row.number,
        "url": f"{asked.base}/repos/{asked.world.repository}/pulls/{row.number}",
        "html_url": f"https://github.com/{asked.world.repository}/pull/{row.number}",
        "state": row.state,
        "locked": issue.locked,
        "title": f"Pull {row.number}",
        "user": user(row.author),
        "head": {"sha": row.head_sha, "ref": row.head_ref, "repo": head_repo},
        "base": {"sha": row.base_sha, "ref": row.base_ref, "repo": {"full_name": asked.world.repository}},
    }


# ---------------------------------------------------------------- comments


def _thread_right(world: World, number: int, level: str) -> bool:
    """Comments of a pull request need `issues` or `pull-requests`; those of a plain issue need `issues`."""
    names = ["issues", "pull-requests"] if number in world.pulls else ["issues"]
    return any(f"{name}:{way}" in world.rights for name in names for way in {level, "write"})


def list_comments(asked: Asked) -> Answer:
    """Comments of one thread, oldest first, less those that replication has not brought yet."""
    world = asked.world
    if asked.number not in world.issues:
        return NOT_FOUND
    if not _thread_right(world, asked.number, "read"):
        return no_right()
    shown = [row for row in world.of(asked.number) if row.hidden_from_lists == 0]
    for row in world.of(asked.number):
        row.hidden_from_lists = max(0, row.hidden_from_lists - 1)
    return Answer(200, [comment_shape(asked, row) for row in shown], listed=True)


def create_comment(asked: Asked) -> Answer:
    """A new comment."""
    world = asked.world
    if asked.number not in world.issues:
        return NOT_FOUND
    if not _thread_right(world, asked.number, "write"):
        return no_right()
    if world.issues[asked.number].locked:
        return refused("Unable to create comment because issue is locked.")
    if problem := bodies.refuse_comment(asked.body):
        return Answer(422, problem)
    row = world.add_comment(asked.number, str(asked.body["body"]), author=world.viewer)
    row.hidden_from_lists = world.list_lag
    return Answer(201, comment_shape(asked, row))


def _comment(asked: Asked) -> Comment | None:
    return next((row for row in asked.world.comments if row.id == asked.number), None)


def get_comment(asked: Asked) -> Answer:
    """One comment."""
    row = _comment(asked)
    return Answer(200, comment_shape(asked, row)) if row else NOT_FOUND


def change_comment(asked: Asked) -> Answer:
    """A new text for a comment."""
    row = _comment(asked)
    if row is None:
        return NOT_FOUND
    if not _thread_right(asked.world, row.issue, "write") or row.author != asked.world.viewer:
        return no_right()
    if problem := bodies.refuse_comment(asked.body):
        return Answer(422, problem)
    row.body = str(asked.body["body"])
    row.edits += 1
    return Answer(200, comment_shape(asked, row))


def delete_comment(asked: Asked) -> Answer:
    """A comment less."""
    row = _comment(asked)
    if row is None:
        return NOT_FOUND
    if not _thread_right(asked.world, row.issue, "write"):
        return no_right()
    asked.world.comments.remove(row)
    return Answer(204)


def react(asked: Asked) -> Answer:
    """A reaction to a comment."""
    row = _comment(asked)
    if row is None:
        return NOT_FOUND
    if not _thread_right(asked.world, row.issue, "write"):
        return no_right()
    if problem := bodies.refuse_reaction(asked.body):
        return Answer(422, problem)
    reaction = Reaction(id=asked.world.new_id(), comment=row.id, content=str(asked.body["content"]))
    asked.world.reactions.append(reaction)
    shape = {"id": reaction.id, "node_id": "R", "user": user(asked.world.viewer), "content": reaction.content}
    return Answer(201, {**shape, "created_at": "2026-11-30T00:00:00Z"})


# ---------------------------------------------------------------- statuses and check runs


def create_status(asked: Asked) -> Answer:
    """A commit status."""
    world, commit = asked.world, asked.part("sha")
    if "statuses:write" not in world.rights:
        return no_right()
    if commit not in world.commits:
        return Answer(422, {"message": f"No commit found for SHA: {commit}", "status": "422"})
    if problem := bodies.refuse_status(asked.body):
        return Answer(422, problem)
    row = Status.model_validate(
        {"context": "default", **asked.body, "id": world.new_id(), "sha": commit, "creator": world.viewer}
    )
    world.statuses.append(row)
    return Answer(201, status_shape(asked, row))


def list_statuses(asked: Asked) -> Answer:
    """Statuses of a commit, newest first."""
    world, commit = asked.world, asked.part("sha")
    if not world.rights & {"statuses:read", "statuses:write"}:
        return no_right()
    rows = [row for row in reversed(world.statuses) if row.sha == commit]
    return Answer(200, [status_shape(asked, row) for row in rows], listed=True)


def create_check(asked: Asked) -> Answer:
    """A new check run."""
    world = asked.world
    if "checks:write" not in world.rights:
        return no_right()
    if problem := bodies.refuse_check_run(asked.body):
        return Answer(422, problem)
    row = CheckRun(
        id=world.new_id(),
        name=str(asked.body["name"]),
        head_sha=str(asked.body["head_sha"]),
        status=str(asked.body.get("status", "queued")),
    )
    _fill(row, asked.body)
    world.check_runs.append(row)
    return Answer(201, check_shape(asked, row))


def change_check(asked: Asked) -> Answer:
    """A check run goes on; annotations add up."""
    world = asked.world
    row = next((run for run in world.check_runs if run.id == asked.number), None)
    if row is None:
        return NOT_FOUND
    if "checks:write" not in world.rights:
        return no_right()
    if problem := bodies.refuse_check_run_change(asked.body):
        return Answer(422, problem)
    _fill(row, asked.body)
    return Answer(200, check_shape(asked, row))


def list_checks(asked: Asked) -> Answer:
    """Check runs of a commit."""
    rows = [row for row in asked.world.check_runs if row.head_sha == asked.part("sha")]
    name = asked.query.get("check_name")
    rows = [row for row in rows if name is None or row.name == name]
    return Answer(200, [check_shape(asked, row) for row in rows], listed=True, wrapper="check_runs")


def _fill(row: CheckRun, body: Json) -> None:
    row.status = str(body.get("status", row.status))
    if body.get("conclusion") is not None:
        row.status, row.conclusion = "completed", str(body["conclusion"])
    if body.get("details_url") is not None:
        row.details_url = str(body["details_url"])
    output = body.get("output")
    if isinstance(output, Mapping):
        row.title = str(output.get("title", row.title))
        row.summary = str(output.get("summary", row.summary))
        row.text = str(output["text"]) if output.get("text") is not None else row.text
        annotations = output.get("annotations")
        row.annotations += len(annotations) if isinstance(annotations, list) else 0


# ---------------------------------------------------------------- reading


def get_pull(asked: Asked) -> Answer:
    """One pull request."""
    row = asked.world.pulls.get(asked.number)
    if row is None:
        return NOT_FOUND
    if not asked.world.rights & {"pull-requests:read", "pull-requests:write"}:
        return NOT_FOUND if asked.world.private else Answer(200, pull_shape(asked, row))
    return Answer(200, pull_shape(asked, row))


def pull_commits(asked: Asked) -> Answer:
    """The commits of one pull request, oldest first; what was pushed away by force is not among them."""
    row = asked.world.pulls.get(asked.number)
    if row is None:
        return NOT_FOUND
    return Answer(200, [{"sha": commit} for commit in [*row.commits, row.head_sha]], listed=True)


def list_pulls(asked: Asked) -> Answer:
    """Pull requests by state and `head=owner:branch`."""
    state, head = asked.query.get("state", "open"), asked.query.get("head")
    rows = [row for row in asked.world.pulls.values() if state in ("all", row.state)]
    if head:
        owner, _, branch = head.partition(":")
        rows = [row for row in rows if row.head_ref == branch and (row.head_repo or "").split("/")[0] == owner]
    return Answer(200, [pull_shape(asked, row) for row in rows], listed=True)


def pulls_of_commit(asked: Asked) -> Answer:
    """Pull requests that contain a commit. As on GitHub: those of forks are not found this way."""
    commit, world = asked.part("sha"), asked.world
    rows = [
        row
        for row in world.pulls.values()
        if commit in {row.head_sha, *row.commits} and row.head_repo == world.repository
    ]
    return Answer(200, [pull_shape(asked, row) for row in rows], listed=True)


def get_issue(asked: Asked) -> Answer:
    """The thread of an issue or pull request."""
    issue = asked.world.issues.get(asked.number)
    if issue is None:
        return NOT_FOUND
    shape: dict[str, object] = {"number": issue.number, "state": issue.state, "locked": issue.locked}
    if asked.number in asked.world.pulls:
        shape["pull_request"] = {"url": f"{asked.base}/repos/{asked.world.repository}/pulls/{asked.number}"}
    return Answer(200, shape)


def permission(asked: Asked) -> Answer:
    """What a user may do here: maintain counts as write, triage as read, as on GitHub."""
    role = asked.world.roles.get(asked.part("login"), "none")
    legacy = {"maintain": "write", "triage": "read"}.get(role, role)
    return Answer(200, {"permission": legacy, "role_name": role, "user": user(asked.part("login"))})


def contents(asked: Asked) -> Answer:
    """One file at a commit or branch."""
    world = asked.world
    if "contents:read" not in world.rights:
        return NOT_FOUND
    ref = asked.query.get("ref") or world.default_branch
    commit = world.branches.get(ref.removeprefix("refs/heads/"), ref)
    path = asked.part("path")
    text = world.files.get(commit, {}).get(path)
    if text is None:
        below = [name for name in world.files.get(commit, {}) if name.startswith(path.rstrip("/") + "/")]
        return Answer(200, [{"type": "file", "path": name} for name in below]) if below else NOT_FOUND
    large = len(text.encode()) > INLINE_MAX
    return Answer(
        200,
        {
            "type": "symlink" if text.startswith("symlink:") else "file",
            "path": path,
            "name": path.rsplit("/", maxsplit=1)[-1],
            "size": len(text.encode()),
            "sha": blob_sha(text),
            "encoding": "none" if large else "base64",
            "content": "" if large else base64.encodebytes(text.encode()).decode(),
            "url": f"{asked.base}/repos/{world.repository}/contents/{path}",
        },
    )


def blob(asked: Asked) -> Answer:
    """A file's content by git's name for it."""
    for files in asked.world.files.values():
        for text in files.values():
            if blob_sha(text) == asked.part("sha"):
                content = base64.encodebytes(text.encode()).decode()
                return Answer(200, {"sha": blob_sha(text), "encoding": "base64", "content": content, "size": len(text)})
    return NOT_FOUND


def branch_head(asked: Asked) -> Answer:
    """A commit by branch or sha."""
    ref = asked.part("sha").removeprefix("refs/heads/").removeprefix("heads/")
    commit = asked.world.branches.get(ref, ref)
    if commit not in asked.world.commits:
        return Answer(422, {"message": f"No commit found for SHA: {ref}", "status": "422"})
    return Answer(200, {"sha": commit, "url": f"{asked.base}/repos/{asked.world.repository}/commits/{commit}"})


def compare(asked: Asked) -> Answer:
    """How two commits of one pull request lie to each other, by the order in which they were pushed."""
    first, _, second = asked.part("range").partition("...")
    for pull in asked.world.pulls.values():
        line = [pull.base_sha, *pull.commits, pull.head_sha]
        if first in line and second in line:
            distance = line.index(second) - line.index(first)
            word = "identical" if distance == 0 else "ahead" if distance > 0 else "behind"
            return Answer(200, {"status": word, "ahead_by": max(0, distance), "behind_by": max(0, -distance)})
    return NOT_FOUND


def whoami(_: Asked) -> Answer:
    """An installation token has no user."""
    return no_right()


def viewer(asked: Asked) -> Answer:
    """The one GraphQL question that this fake understands."""
    if "viewer" not in str(asked.body.get("query", "")):
        return Answer(200, {"errors": [{"message": "the fake knows `viewer { login }` only"}]})
    return Answer(200, {"data": {"viewer": {"login": asked.world.viewer}}})


ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("GET", r"issues/(?P<number>\d+)/comments", list_comments),
    ("POST", r"issues/(?P<number>\d+)/comments", create_comment),
    ("GET", r"issues/comments/(?P<number>\d+)", get_comment),
    ("PATCH", r"issues/comments/(?P<number>\d+)", change_comment),
    ("DELETE", r"issues/comments/(?P<number>\d+)", delete_comment),
    ("POST", r"issues/comments/(?P<number>\d+)/reactions", react),
    ("GET", r"issues/(?P<number>\d+)", get_issue),
    ("POST", r"statuses/(?P<sha>[^/]+)", create_status),
    ("GET", r"commits/(?P<sha>[^/]+)/statuses", list_statuses),
    ("GET", r"commits/(?P<sha>[^/]+)/pulls", pulls_of_commit),
    ("GET", r"commits/(?P<sha>[^/]+)/check-runs", list_checks),
    ("GET", r"commits/(?P<sha>.+)", branch_head),
    ("POST", r"check-runs", create_check),
    ("PATCH", r"check-runs/(?P<number>\d+)", change_check),
    ("GET", r"pulls/(?P<number>\d+)", get_pull),
    ("GET", r"pulls/(?P<number>\d+)/commits", pull_commits),
    ("GET", r"pulls", list_pulls),
    ("GET", r"collaborators/(?P<login>[^/]+)/permission", permission),
    ("GET", r"contents/(?P<path>.+)", contents),
    ("GET", r"git/blobs/(?P<sha>[^/]+)", blob),
    ("GET", r"compare/(?P<range>.+)", compare),
)
