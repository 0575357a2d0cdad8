"""Which commit a working tree holds, as git itself laid it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate_action.errors import UsageError
from servegate_action.github.checkout import confirm, head, holding
from servegate_action.github.event import Event, Kind, Thread
from tests.integration.github.test_policy import git

MERGE = "d" * 40


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a").write_text("a")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a")
    return folder


def event(sha: str, kind: Kind = Kind.ISSUE_COMMENT) -> Event:
    return Event(kind, "", "octo/repo", sha, 7, None, Thread.OPEN)


def test_the_head_of_a_branch_a_detached_head_and_a_packed_one(tree: Path) -> None:
    commit = git(tree, "rev-parse", "HEAD")
    assert head(tree) == commit
    git(tree, "pack-refs", "--all")
    assert not (tree / ".git/refs/heads/main").exists()
    assert head(tree) == commit
    git(tree, "checkout", "-q", "--detach")
    assert head(tree) == commit


def test_a_tree_of_the_judged_commit_is_confirmed(tree: Path) -> None:
    assert confirm(event(git(tree, "rev-parse", "HEAD")), folder=tree, runner_sha=MERGE) == ""


def test_a_tree_of_another_commit_is_refused(tree: Path) -> None:
    with pytest.raises(UsageError, match="the checkout holds") as caught:
        confirm(event("e" * 40), folder=tree, runner_sha=git(tree, "rev-parse", "HEAD"))
    assert "`ref:`" in caught.value.next_step


def test_the_merge_of_a_pull_request_is_accepted_for_its_head(tree: Path) -> None:
    merge = git(tree, "rev-parse", "HEAD")
    on_pull = event("e" * 40, Kind.PULL_REQUEST)
    assert confirm(on_pull, folder=tree, runner_sha=merge) == ""
    with pytest.raises(UsageError):
        confirm(on_pull, folder=tree, runner_sha=MERGE)


def test_the_innermost_working_tree_counts_and_nothing_outside_of_the_workspace(tree: Path) -> None:
    outer = git(tree, "rev-parse", "HEAD")
    inner = tree / "base"
    (inner / "server").mkdir(parents=True)
    assert holding(inner / "server", within=tree) == outer
    (inner / ".git").mkdir()
    (inner / ".git" / "HEAD").write_text("b" * 40)
    assert holding(inner / "server", within=tree) == "b" * 40
    assert holding(tree.parent, within=tree) is None
    assert holding(inner / "server", within=inner / "server") is None


def test_a_folder_without_a_repository_is_said_to_be_one(tmp_path: Path) -> None:
    assert "nobody has compared" in confirm(event("e" * 40), folder=tmp_path, runner_sha=MERGE)
    assert head(tmp_path) is None


@pytest.mark.parametrize(
    "text", ["ref: ../../../etc/passwd", "ref: refs/../../x", "gitdir: /x", "", "\x00", "ref: HEAD"]
)
def test_a_bent_head_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(text)
    assert head(tmp_path) is None
