"""By which configuration a pull request is judged, and what a reviewer is told about it: base and head, on a runner's disk."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from servegate_action.action.policy import Gated, gated
from servegate_action.action.step import Step
from servegate_action.config.merge import NOT_FIXED
from servegate_action.github.inputs import read_inputs
from servegate_action.world import World as Outside
from tests.support.fake_github import FakeGitHub, sha

HEAD, BASE = sha("head7"), sha("base")
DIGEST = "a@sha256:" + "0" * 64
GATE = """\
version: 1
gate: g
model: {name: m}
stacks:
  baseline: {label: a, BASELINE}
  candidate: {label: b, CANDIDATE}
workload: {cells: [{name: c, prompt_tokens: 9, output_tokens: 9, concurrency: 1}]}
"""
PROCESS = 'process: {command: [b, "{port}"]}'


def gate_file(*, baseline: str = f"container: {{image: '{DIGEST}'}}", candidate: str = PROCESS) -> str:
    return GATE.replace("BASELINE", baseline).replace("CANDIDATE", candidate)


@dataclass(slots=True)
class Runner:
    """The runner of a pull request's job, its checkout, and GitHub."""

    folder: Path
    fake: FakeGitHub

    def gated(self, *, base: str, head: str | None = None, **environment: str) -> Gated:
        """What the job would be judged by."""
        self.fake.world.files = {BASE: {".servegate.yml": base}}
        (self.folder / ".servegate.yml").write_text(head or base)
        repository = {"full_name": "octo/repo", "default_branch": "main"}
        payload = {
            "action": "synchronize",
            "number": 7,
            "repository": repository,
            "pull_request": {
                "number": 7,
                "state": "open",
                "head": {"sha": HEAD, "ref": "topic", "repo": {"full_name": "octo/repo"}},
                "base": {"sha": BASE, "ref": "main", "repo": repository},
            },
        }
        (self.folder / "event.json").write_text(json.dumps(payload))
        console = Console(file=io.StringIO(), width=200, force_terminal=False)
        surroundings = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "octo/repo",
            "GITHUB_RUN_ID": "100",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_API_URL": self.fake.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_SHA": HEAD,
            "GITHUB_REF": "refs/pull/7/merge",
            "GITHUB_WORKSPACE": str(self.folder),
            "INPUT_GITHUB-TOKEN": "t0ken",
            **environment,
        }
        step = Step.begin(Outside(surroundings, self.folder, console, console), read_inputs(surroundings))
        return gated(step, step.event())


@pytest.fixture
def runner(tmp_path: Path, fake: FakeGitHub) -> Runner:
    return Runner(tmp_path, fake)


# ---------------------------------------------------------------- what the candidate says of itself


def test_a_candidate_that_calls_its_own_launches_fixed_is_held_to_the_base_and_the_report_says_so(
    runner: Runner,
) -> None:
    own = "endpoint: {url: 'http://10.0.0.9:8000', launches: fixed}, gpu_pool: faster"
    found = runner.gated(base=gate_file(), head=gate_file(candidate=own))
    counted = found.config.stacks.candidate
    assert counted.endpoint is not None
    assert (counted.endpoint.launches, counted.gpu_pool) == ("unknown", None)
    assert NOT_FIXED in found.notes
    assert found.change.policy_edits == (
        "stacks.candidate.gpu_pool: (not set) → faster",
        "stacks.candidate.endpoint.launches: unknown → fixed",
    )
    assert "the candidate now says of itself: stacks.candidate: process → endpoint" in found.notes
    assert "http://10.0.0.9:8000" in " ".join(found.notes)


# ---------------------------------------------------------------- files of the change under the baseline


def volumes(*written: str) -> str:
    return f"container: {{image: '{DIGEST}', volumes: {json.dumps(written)}}}"


@pytest.mark.parametrize("written", ["./engine:/engine:ro", "engine/../plugin:/p", ".:/all"])
def test_a_baseline_that_mounts_files_of_the_checkout_is_told(runner: Runner, written: str) -> None:
    (note,) = runner.gated(base=gate_file(baseline=volumes("/srv/models:/model:ro", written))).notes
    assert written.partition(":")[0] in note
    assert "it does to both" in note
    assert "/srv/models" not in note


def test_an_absolute_path_into_the_checkout_is_told_as_well(runner: Runner) -> None:
    assert runner.gated(base=gate_file(baseline=volumes(f"{runner.folder}/engine:/engine"))).notes


def test_a_folder_that_holds_the_checkout_is_told_as_well(runner: Runner) -> None:
    assert runner.gated(base=gate_file(baseline=volumes(f"{runner.folder.parent}:/all"))).notes


def test_the_checkout_is_known_by_its_path_on_the_host_too(runner: Runner) -> None:
    """In the action's own container the checkout is elsewhere than on the runner's disk, where volumes are looked up."""
    found = runner.gated(
        base=gate_file(baseline=volumes("/home/runner/work/repo/repo/engine:/engine")),
        RUNNER_WORKSPACE="/home/runner/work/repo",
    )
    assert found.notes


def test_a_link_that_leads_into_the_checkout_is_told(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> None:
    (runner.folder / "engine").mkdir()
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(runner.folder / "engine")
    assert runner.gated(base=gate_file(baseline=volumes(f"{link}:/engine"))).notes


def test_a_base_checked_out_beside_the_change_is_not_told(runner: Runner) -> None:
    git = runner.folder / "base" / ".git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text(BASE + "\n")
    assert runner.gated(base=gate_file(baseline=volumes("./base/engine:/engine:ro"))).notes == ()
    (git / "HEAD").write_text(HEAD + "\n")
    (note,) = runner.gated(base=gate_file(baseline=volumes("./base/engine:/engine:ro"))).notes
    assert f"a checkout of {HEAD[:7]}" in note


def test_a_container_by_digest_with_the_machines_files_is_the_bases_own(runner: Runner) -> None:
    assert runner.gated(base=gate_file(baseline=volumes("/srv/models:/model:ro", "cache:/cache"))).notes == ()


def test_a_baseline_by_tag_may_be_built_from_the_change_and_is_told(runner: Runner) -> None:
    (note,) = runner.gated(base=gate_file(baseline="container: {image: 'engine:dev', allow_tag: true}")).notes
    assert "engine:dev" in note
    assert "by digest" in note
