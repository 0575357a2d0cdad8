"""The example workflows: what they promise about permissions and untrusted code, and the one script that is in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from ruamel.yaml import YAML

from servegate_action.github.event import Kind
from servegate_action.github.inputs import NAMES, CommentWhen

DOCS = Path(__file__).parents[3] / "docs"
WORKFLOWS = sorted((DOCS / "workflows").glob("*.yml"))
Json = dict[str, object]
GPU = "gpu"


def load(path: Path) -> Json:
    loaded = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def jobs(path: Path) -> Iterator[tuple[str, Json]]:
    found = load(path)["jobs"]
    assert isinstance(found, dict)
    yield from found.items()


def steps(job: Json) -> list[Json]:
    found = job["steps"]
    assert isinstance(found, list)
    return found


def writes(job: Json) -> set[str]:
    permissions = job["permissions"]
    assert isinstance(permissions, dict)
    return {name for name, way in permissions.items() if way == "write"}


def named(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


def test_all_the_workflows_are_linked_from_the_document() -> None:
    text = (DOCS / "github.md").read_text(encoding="utf-8")
    assert [path.name for path in WORKFLOWS if f"workflows/{path.name}" not in text] == []


def test_the_document_tells_of_every_event_and_of_every_choice() -> None:
    text = (DOCS / "github.md").read_text(encoding="utf-8")
    assert [kind.value for kind in Kind if f"| `{kind.value}` |" not in text] == []
    assert [word for word in get_args(CommentWhen) if f"| `{word}` |" not in text] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=named(WORKFLOWS))
def test_nothing_is_permitted_that_a_job_does_not_name(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert "pull_request_target" not in workflow.get("on", workflow.get(True, {}))  # type: ignore[operator, call-overload]


@pytest.mark.parametrize("path", WORKFLOWS, ids=named(WORKFLOWS))
def test_a_checkout_keeps_no_credentials(path: Path) -> None:
    for name, job in jobs(path):
        for step in steps(job):
            if str(step.get("uses", "")).startswith("actions/checkout@"):
                given = step.get("with")
                assert isinstance(given, dict), name
                assert given["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=named(WORKFLOWS))
def test_only_inputs_that_exist_are_given(path: Path) -> None:
    for _, job in jobs(path):
        for step in steps(job):
            if str(step.get("uses", "")).startswith("servegate/servegate@"):
                given = step.get("with", {})
                assert isinstance(given, dict)
                assert set(given) <= set(NAMES)


@pytest.mark.parametrize("path", WORKFLOWS, ids=named(WORKFLOWS))
def test_one_measurement_at_a_time_and_none_is_cancelled(path: Path) -> None:
    for _, job in jobs(path):
        if GPU in str(job["runs-on"]):
            group = job.get("concurrency") or load(path)["concurrency"]
            assert group == {"group": "servegate-gpu-pool", "cancel-in-progress": False}


TRUSTED_ONLY = {"simple", "hardened", "two-job", "job-container"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=named(WORKFLOWS))
def test_code_of_a_fork_meets_no_token_that_can_write(path: Path) -> None:
    for _, job in jobs(path):
        on_gpu = GPU in str(job["runs-on"])
        if on_gpu and path.stem in TRUSTED_ONLY:
            assert "head.repo.full_name == github.repository" in str(job["if"])
        elif on_gpu:
            assert writes(job) == set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=named(WORKFLOWS))
def test_a_job_that_can_write_and_runs_on_events_of_strangers_checks_out_nothing(path: Path) -> None:
    if path.stem in TRUSTED_ONLY - {"two-job"}:
        return
    for name, job in jobs(path):
        if writes(job):
            uses = [str(step.get("uses", "")).split("@")[0] for step in steps(job)]
            assert "actions/checkout" not in uses, name
            assert not [step for step in steps(job) if "run" in step], name


# ---------------------------------------------------------------- the script in hardened.yml


GH = """#!/bin/sh
echo "$*" >>"$GH_LOG"
case "$*" in *"--method POST"*) ;; *) printf '%s' "$GH_STATE" ;; esac
"""


@pytest.mark.parametrize(
    ("state", "posts"),
    [("success", False), ("failure", False), ("error", False), ("pending", True), ("", True)],
    ids=["success", "failure", "error", "pending", "no status"],
)
def test_a_status_that_stayed_pending_becomes_an_error_and_a_verdict_stays(
    tmp_path: Path, state: str, posts: bool
) -> None:
    job = dict(jobs(DOCS / "workflows" / "hardened.yml"))["not-measured"]
    script = str(steps(job)[0]["run"])
    gh = tmp_path / "gh"
    gh.write_text(GH)
    gh.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "GH_LOG": str(tmp_path / "log"),
        "GH_STATE": f"{state}\n" if state else "",
        "CONTEXT": "servegate/llama-8b-chat",
        "COMMIT": "a" * 40,
        "GITHUB_REPOSITORY": "octo/repo",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_RUN_ID": "1",
    }
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], env=environment, check=True)
    asked = (tmp_path / "log").read_text()
    assert ("state=error" in asked) is posts
    assert f"statuses/{'a' * 40}" in asked or not posts
