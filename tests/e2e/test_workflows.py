"""The example workflows, run: what each gives to the action, with no more rights than it names, leads from event to status."""

from __future__ import annotations

import json
from pathlib import Path

from ruamel.yaml import YAML

from tests.e2e.desk import NUMBER, Desk, gate_file, measured, merge_group
from tests.e2e.world import ROOT
from tests.support.fake_github import sha

SAME_FILES = "whatever this change does to files that both stacks run"


class Gate:
    """The job `gate` of one workflow, as far as the action sees it."""

    def __init__(self, name: str) -> None:
        loaded = YAML(typ="safe", pure=True).load((ROOT / "docs/workflows" / name).read_text(encoding="utf-8"))
        self.events = set(loaded.get("on", loaded.get(True)))
        self.rights = {f"{what}:{way}" for what, way in loaded["jobs"]["gate"]["permissions"].items()}
        steps = {str(step["uses"]).partition("@")[0]: step.get("with", {}) for step in loaded["jobs"]["gate"]["steps"]}
        self.given = {key: str(value) for key, value in steps["servegate/servegate"].items()}
        self.uploaded = Path(steps["actions/upload-artifact"]["path"])

    def inputs(self, desk: Desk) -> dict[str, str]:
        """What the step passes, and the job's token."""
        return {**self.given, "github-token": desk.job.inputs["github-token"]}


def check_out(desk: Desk, gate: str) -> None:
    desk.runner.put("stack.py", (ROOT / "tests/e2e/stack.py").read_text(encoding="utf-8"))
    desk.runner.put("model/config.json", '{"torch_dtype": "bfloat16"}')
    desk.propose(gate)


def test_the_simple_one_gives_a_better_candidate_its_status_its_comment_and_its_evidence(desk: Desk) -> None:
    gate = Gate("simple.yml")
    assert "pull_request" in gate.events
    desk.world.rights = gate.rights
    check_out(desk, gate_file("--tpot-ms 10 --ttft-ms 40"))
    ended = measured(desk, inputs=gate.inputs(desk))
    desk.says_the_same_everywhere(ended, "PASS")
    assert desk.states()[-2:] == ["pending", "success"]
    assert ended.outputs["report-dir"] == "servegate-report" == str(gate.uploaded)
    assert json.loads(desk.evidence("verdict.json"))["word"] == "PASS"
    assert not [note for note in ended.annotations if note["level"] == "error"]
    assert "t0ken-of-the-job" not in ended.log
    assert SAME_FILES in desk.comments()[0], "both stacks are processes of one checkout"
    owner = desk.runner.workspace.stat().st_uid
    written = list((desk.runner.workspace / gate.uploaded).rglob("*"))
    assert {path.stat().st_uid for path in written} == {owner}
    assert [path for path in written if not path.stat().st_mode & 0o004] == []


def test_the_hardened_one_gives_the_merge_queue_a_status_on_its_own_commit(desk: Desk) -> None:
    gate = Gate("hardened.yml")
    assert {"pull_request", "merge_group"} <= gate.events
    queued = sha("queue")
    desk.world.commits.add(queued)
    desk.world.rights = gate.rights
    beside = gate_file("--tpot-ms 10 --ttft-ms 40").replace(
        "label: steady, process: {", "label: steady, process: {cwd: base, "
    )
    check_out(desk, beside)
    desk.runner.put("base/stack.py", (ROOT / "tests/e2e/stack.py").read_text(encoding="utf-8"))
    desk.runner.put("base/.git/HEAD", desk.world.pulls[NUMBER].base_sha + "\n")
    payload = merge_group(desk.world, head=queued)
    ended = measured(desk, inputs=gate.inputs(desk), event="merge_group", payload=payload)
    assert ended.exit_code == 0, ended.log
    assert desk.states(queued)[-2:] == ["pending", "success"]
    assert desk.states() == []
    assert desk.comments() == []
    assert SAME_FILES not in desk.evidence("comment.md"), "the baseline ran from a checkout of the base"
