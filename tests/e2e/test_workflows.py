"""The example workflows, run: what each gives to the action, with no more rights than it names, leads from event to status."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.e2e.desk import NUMBER, Desk, gate_file, measured, merge_group
from tests.e2e.world import ROOT
from tests.support.fake_github import sha

BETTER = "--tpot-ms 10 --ttft-ms 40"


class Gate:
    """The job `gate` of one workflow, as far as the action sees it."""

    def __init__(self, name: str) -> None:
        loaded = YAML(typ="safe", pure=True).load((ROOT / "docs/workflows" / name).read_text(encoding="utf-8"))
        self.events = set(loaded.get("on", loaded.get(True)))
        self.rights = {f"{what}:{way}" for what, way in loaded["jobs"]["gate"]["permissions"].items()}
        steps = {str(step["uses"]).partition("@")[0]: step.get("with", {}) for step in loaded["jobs"]["gate"]["steps"]}
        self.given = {key: str(value) for key, value in steps["servegate/servegate"].items()}
        self.uploaded = Path(steps["actions/upload-artifact"]["path"])


@pytest.fixture
def better(desk: Desk) -> Desk:
    """A pull request whose candidate is better."""
    desk.runner.put("stack.py", (ROOT / "tests/e2e/stack.py").read_text(encoding="utf-8"))
    desk.runner.put("model/config.json", '{"torch_dtype": "bfloat16"}')
    desk.propose(gate_file(BETTER))
    return desk


def inputs(desk: Desk, gate: Gate) -> dict[str, str]:
    return {**gate.given, "github-token": desk.job.inputs["github-token"]}


def test_a_baseline_that_runs_the_changes_own_files_is_said_to(better: Desk) -> None:
    ended = measured(better)
    assert "whatever this change does to files that both stacks run" in better.comments()[0], ended.log
    beside = gate_file(BETTER).replace("label: steady, process: {", "label: steady, process: {cwd: base, ")
    better.propose(beside)
    better.runner.put("base/stack.py", (ROOT / "tests/e2e/stack.py").read_text(encoding="utf-8"))
    better.runner.put("base/.git/HEAD", better.world.pulls[NUMBER].base_sha + "\n")
    ended = measured(better)
    better.says_the_same_everywhere(ended, "PASS")
    assert "whatever this change does" not in better.comments()[0]


@pytest.mark.parametrize("name", ["simple.yml", "hardened.yml"])
def test_a_pull_request_gets_its_status_its_comment_and_its_evidence(better: Desk, name: str) -> None:
    gate = Gate(name)
    assert "pull_request" in gate.events
    better.world.rights = gate.rights
    ended = measured(better, inputs=inputs(better, gate))
    better.says_the_same_everywhere(ended, "PASS")
    assert better.states()[-2:] == ["pending", "success"]
    assert (better.runner.workspace / gate.uploaded / "report.html").is_file()
    assert not [note for note in ended.annotations if note["level"] == "error"]


def test_the_merge_queue_of_the_hardened_workflow_gets_a_status_on_its_own_commit(better: Desk) -> None:
    gate = Gate("hardened.yml")
    assert "merge_group" in gate.events
    queued = sha("queue")
    better.world.commits.add(queued)
    better.world.rights = gate.rights
    payload = merge_group(better.world, head=queued)
    ended = measured(better, inputs=inputs(better, gate), event="merge_group", payload=payload)
    assert ended.exit_code == 0, ended.log
    assert better.states(queued)[-2:] == ["pending", "success"]
    assert better.states() == []
    assert better.comments() == []
