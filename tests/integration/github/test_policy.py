"""The policy comes from the base commit, by the API or the checkout's history, and from nowhere else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from servegate_action.errors import CannotMeasure, UsageError
from servegate_action.github import policy
from servegate_action.github.api import Api
from servegate_action.github.policy import Sources
from tests.support.fake_github import FakeGitHub, sha

BASE = sha("base")
STRICT, LOOSE = "limits: {default: 2%}\n", "limits: {default: 90%}\n"


@pytest.fixture(autouse=True)
def files(fake: FakeGitHub) -> None:
    fake.world.files = {
        BASE: {
            ".servegate.yml": STRICT,
            "traces/prod.jsonl": '{"timestamp": 0}\n' * 80_000,
            "link.yml": "symlink:/etc/x",
        },
        sha("head7"): {".servegate.yml": LOOSE},
    }


def git(folder: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = [
        "git",
        "-C",
        str(folder),
        "-c",
        "init.defaultBranch=main",
        "-c",
        "protocol.file.allow=always",
        *arguments,
    ]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> tuple[Path, str, str]:
    """A repository whose head loosens the gate: folder, base, head."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".servegate.yml").write_text(STRICT)
    (folder / "link.yml").symlink_to("/etc/passwd")
    (folder / "a[b]c.yml").write_text("odd\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "base")
    base = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "-q", "-b", "topic")
    (folder / ".servegate.yml").write_text(LOOSE)
    git(folder, "commit", "-q", "-a", "-m", "loosen")
    return folder, base, git(folder, "rev-parse", "HEAD")


def test_the_base_s_limit_counts_and_not_the_head_s(fake: FakeGitHub, api: Api) -> None:
    found = policy.fetch([".servegate.yml"], ref=BASE, sources=Sources(api=api))
    assert found.files == {".servegate.yml": STRICT.encode()}
    assert (found.commit, found.source) == (BASE, "api")


def test_a_branch_is_resolved_to_a_commit(fake: FakeGitHub, api: Api) -> None:
    found = policy.fetch(["./.servegate.yml"], ref="refs/heads/main", sources=Sources(api=api))
    assert (found.commit, found.files[".servegate.yml"]) == (BASE, STRICT.encode())


def test_a_file_over_a_megabyte_comes_as_a_blob(fake: FakeGitHub, api: Api) -> None:
    found = policy.fetch(["traces/prod.jsonl"], ref=BASE, sources=Sources(api=api))
    assert found.files["traces/prod.jsonl"] == b'{"timestamp": 0}\n' * 80_000
    assert len(fake.asked("GET", "/git/blobs/")) == 1


def test_a_file_that_does_not_exist_there_is_a_fact(fake: FakeGitHub, api: Api) -> None:
    assert policy.fetch(["gate/new.yml"], ref=BASE, sources=Sources(api=api)).files == {"gate/new.yml": None}


def test_no_permission_is_not_no_file(fake: FakeGitHub, api: Api) -> None:
    fake.world.rights = set()
    fake.world.commits = set()
    with pytest.raises(CannotMeasure) as caught:
        policy.fetch([".servegate.yml"], ref=BASE, sources=Sources(api=api))
    assert "contents: read" in caught.value.next_step


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "", "a\nb", "./"])
def test_a_path_that_leaves_the_repository_is_refused(fake: FakeGitHub, api: Api, path: str) -> None:
    with pytest.raises(UsageError):
        policy.fetch([path], ref=BASE, sources=Sources(api=api))
    assert fake.world.log == []


def test_a_link_is_refused(fake: FakeGitHub, api: Api, checkout: tuple[Path, str, str]) -> None:
    with pytest.raises(UsageError, match="symlink"):
        policy.fetch(["link.yml"], ref=BASE, sources=Sources(api=api))
    with pytest.raises(UsageError, match="symlink"):
        policy.fetch(["link.yml"], ref=checkout[1], sources=Sources(checkout=checkout[0]))


def test_without_the_api_the_checkout_s_history_tells(checkout: tuple[Path, str, str]) -> None:
    folder, base, head = checkout
    assert (folder / ".servegate.yml").read_text() == LOOSE
    found = policy.fetch([".servegate.yml", "a[b]c.yml", "nothing.yml"], ref=base, sources=Sources(checkout=folder))
    assert found.source == "checkout"
    assert found.files == {".servegate.yml": STRICT.encode(), "a[b]c.yml": b"odd\n", "nothing.yml": None}
    assert policy.fetch([".servegate.yml"], ref=head, sources=Sources(checkout=folder)).files != found.files


def test_a_server_that_is_down_leaves_the_checkout(fake: FakeGitHub, api: Api, checkout: tuple[Path, str, str]) -> None:
    fake.fail(times=None, status=503, message="down")
    found = policy.fetch([".servegate.yml"], ref=checkout[1], sources=Sources(api, checkout[0]))
    assert (found.source, found.files[".servegate.yml"]) == ("checkout", STRICT.encode())


def test_the_default_branch_is_found_in_a_clone(checkout: tuple[Path, str, str], tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(checkout[0]), str(clone))
    found = policy.fetch([".servegate.yml"], ref="refs/heads/main", sources=Sources(checkout=clone))
    assert found.commit == checkout[1]


def test_a_shallow_clone_says_so_and_stops_the_gate(checkout: tuple[Path, str, str], tmp_path: Path) -> None:
    clone = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "topic", f"file://{checkout[0]}", str(clone))
    with pytest.raises(CannotMeasure, match="cannot be read") as caught:
        policy.fetch([".servegate.yml"], ref=checkout[1], sources=Sources(checkout=clone))
    assert "shallow" in caught.value.why
    assert "fetch-depth: 0" in caught.value.next_step


@pytest.mark.parametrize("ref", ["--upload-pack=x", "main; id", "refs/heads/../x", "HEAD", "refs/heads/-x"])
def test_a_ref_cannot_be_an_option(checkout: tuple[Path, str, str], ref: str) -> None:
    with pytest.raises(CannotMeasure):
        policy.fetch([".servegate.yml"], ref=ref, sources=Sources(checkout=checkout[0]))


def test_a_folder_without_git_and_nobody_else_to_ask(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure):
        policy.fetch(["x"], ref=BASE, sources=Sources(checkout=tmp_path))
    with pytest.raises(CannotMeasure, match="cannot be read"):
        policy.fetch(["x"], ref=BASE, sources=Sources())


def test_a_hook_or_monitor_of_the_checkout_is_not_run(checkout: tuple[Path, str, str], tmp_path: Path) -> None:
    folder, base, _ = checkout
    witness = tmp_path / "ran"
    git(folder, "config", "core.fsmonitor", f"touch {witness}; false")
    git(folder, "config", "core.pager", f"touch {witness}")
    policy.fetch([".servegate.yml"], ref=base, sources=Sources(checkout=folder))
    assert not witness.exists()
