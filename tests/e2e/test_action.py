"""The action in its container, as GitHub's runner starts it, telling a fake GitHub: from the event to the status.

Stacks here are processes in the action's own container, with a pace that is exact, so that the outcome is known.
"""

from __future__ import annotations

import json
import re
import subprocess

import psutil
import pytest

from tests.e2e.desk import STEADY, Desk, gate_file, measured, notes, slash_command
from tests.e2e.world import ROOT, Engine, wait_until
from tests.support.fake_github import sha


@pytest.fixture(autouse=True)
def checkout(desk: Desk) -> None:
    """What the pull request's checkout holds besides the gate's file."""
    desk.runner.put("stack.py", (ROOT / "tests/e2e/stack.py").read_text(encoding="utf-8"))
    desk.runner.put("model/config.json", '{"torch_dtype": "bfloat16"}')


# ---------------------------------------------------------------- verdicts


def test_a_slower_candidate_is_rejected_by_the_bases_limit_although_the_change_loosens_it(desk: Desk) -> None:
    slower = "--tpot-ms 48 --ttft-ms 60"
    desk.propose(gate_file(slower, limit="900%"), base=gate_file(STEADY))
    ended = measured(desk)
    desk.says_the_same_everywhere(ended, "REJECT")
    assert desk.states()[-2:] == ["pending", "failure"]
    assert any("tpot_p95" in name for name in json.loads(ended.outputs["rejected"]))
    assert "900" in desk.comments()[0]


def test_a_budget_that_ends_before_the_first_look_is_inconclusive_and_blocks(desk: Desk) -> None:
    short = gate_file(STEADY).replace("rounds: {min: 2, max: 4}", "rounds: {min: 4, max: 4, budget_minutes: 0.01}")
    assert "budget_minutes" in short
    desk.propose(short)
    ended = measured(desk)
    desk.says_the_same_everywhere(ended, "INCONCLUSIVE")
    assert desk.states()[-2:] == ["pending", "failure"]
    assert "the budget of 0.01 minutes ended the run after 1 rounds" in desk.evidence("recording.json")


def test_a_candidate_that_answers_otherwise_is_invalid_before_any_round(desk: Desk) -> None:
    desk.propose(gate_file(f"{STEADY} --shout"))
    ended = desk.run()
    desk.says_the_same_everywhere(ended, "INVALID")
    assert desk.states() == ["pending", "failure"]
    assert json.loads(desk.evidence("recording.json"))["launches"] == []


# ---------------------------------------------------------------- nothing measured


def test_a_candidate_that_does_not_start_is_an_error_that_quotes_its_log_and_commands_nothing(desk: Desk) -> None:
    desk.propose(gate_file("--refuse"))
    ended = desk.run()
    assert ended.exit_code == 5, ended.log
    assert desk.states() == ["pending", "error"]
    assert ended.outputs["verdict"] == ""
    assert "unknown flag --fast" in ended.log
    assert not [note for note in ended.annotations if note["message"].startswith("unknown flag")], notes(ended)


def test_a_candidate_that_dies_while_it_is_measured_is_an_error_and_what_was_finished_is_kept(desk: Desk) -> None:
    desk.propose(gate_file(f"{STEADY} --die-after-requests 60"))
    ended = desk.run()
    assert ended.exit_code == 5, ended.log
    assert desk.states() == ["pending", "error"]
    assert json.loads(desk.evidence("recording.json"))["launches"]


def test_a_mistake_in_the_configuration_is_named_with_its_line(desk: Desk) -> None:
    desk.propose(gate_file(STEADY) + "limtis: {}\n")
    ended = desk.run()
    assert ended.exit_code == 2, ended.log
    assert re.search(r"servegate.yml \(base\):14: limtis: unknown key; did you mean `limits`", ended.log)


# ---------------------------------------------------------------- rights


def test_a_token_that_can_only_read_costs_the_comment_and_not_the_verdict(desk: Desk) -> None:
    desk.world.rights = {"contents:read", "issues:read", "pull-requests:read", "statuses:read"}
    desk.propose(gate_file(f"{STEADY} --shout"))
    ended = desk.run()
    assert ended.exit_code == 4, ended.log
    assert desk.comments() == []
    assert "statuses: write" in notes(ended)
    assert ended.outputs["verdict"] == "INVALID"


@pytest.mark.parametrize(
    ("author", "named", "accepted"),
    [("reader", "head7", False), ("writer", "an older head", False), ("writer", "head7", True)],
)
def test_a_slash_command_is_for_writers_and_for_the_head_of_now(
    desk: Desk, author: str, named: str, accepted: bool
) -> None:
    desk.world.roles = {"reader": "read", "writer": "write"}
    payload = slash_command(desk.world, f"/servegate run {sha(named)}", author=author)
    ended = desk.run(event="issue_comment", payload=payload, inputs={**desk.job.inputs, "mode": "command"})
    assert (ended.exit_code == 0) == accepted, ended.log
    assert ended.outputs["sha"] == (desk.head if accepted else "")
    assert [row.content for row in desk.world.reactions] == ["rocket" if accepted else "-1"]


# ---------------------------------------------------------------- the end that nobody planned


def measuring(desk: Desk) -> bool:
    """True once the first round is being recorded."""
    return any((desk.runner.workspace / "servegate-report" / "rounds").glob("01-*/requests.jsonl.gz"))


def begin(desk: Desk) -> subprocess.Popen[str]:
    """Start the step and wait until it measures."""
    desk.propose(gate_file(f"{STEADY}"))
    process = desk.runner.start(desk.job)
    wait_until(process, lambda: measuring(desk), what="it measured")
    return process


def test_a_cancelled_job_ends_in_time_says_so_and_keeps_what_was_finished(desk: Desk, engine: Engine) -> None:
    process = begin(desk)
    cancelled_by = desk.runner.cancel(process)
    ended = desk.runner.finish(process)
    assert cancelled_by == "SIGINT"
    assert ended.exit_code == 130, ended.log
    assert desk.states() == ["pending", "error"]
    assert ended.outputs["verdict"] == ""
    assert desk.comments() == []
    assert json.loads(desk.evidence("recording.json"))["launches"]
    assert engine.containers(desk.runner.image, exited=False) == set()
    after = desk.post(ended.state)
    assert after.exit_code == 0, after.log
    assert desk.states() == ["pending", "error"]


def test_a_container_killed_without_a_word_is_reported_by_the_post_step(desk: Desk, engine: Engine) -> None:
    process = begin(desk)
    (name,) = engine.containers(desk.runner.image, exited=False)
    engine.docker("kill", "--signal", "KILL", name)
    ended = desk.runner.finish(process)
    assert ended.exit_code == 137
    assert desk.states() == ["pending"]
    after = desk.post(ended.state)
    assert after.exit_code == 0, after.log
    assert desk.states() == ["pending", "error"]


def test_a_container_that_outlives_its_client_is_ended_by_the_post_step(desk: Desk, engine: Engine) -> None:
    """The runner's last means kills the engine's client only; the container would go on and hold the machine."""
    process = begin(desk)
    (client,) = psutil.Process(process.pid).children()
    client.kill()
    ended = desk.runner.finish(process)
    assert len(engine.containers(desk.runner.image, exited=False)) == 1
    after = desk.post(ended.state)
    assert after.exit_code == 0, after.log
    assert "ended container" in after.log
    assert engine.containers(desk.runner.image, exited=False) == set()
    assert desk.states() == ["pending", "error"]
    assert json.loads(desk.evidence("recording.json"))["launches"]
