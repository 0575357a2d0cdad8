"""The action in its container, as GitHub's runner starts it, telling a fake GitHub: from the event to the status.

Stacks here are processes in the action's own container, with a pace that is exact, so that the outcome is known.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from tests.e2e.world import ROOT, Ended, Engine, Job, Runner, wait_until
from tests.support.fake_github import FakeGitHub, World, serving, sha

CONTEXT = "servegate/tiny"
STEADY = "--tpot-ms 4 --ttft-ms 20"


def gate_file(candidate: str, *, baseline: str = STEADY, limit: str = "20%") -> str:
    """A small gate: one cell, four rounds, on the CPU."""

    def stack(label: str, flags: str) -> str:
        words = ", ".join(f'"{word}"' for word in flags.split())
        return f'{{label: {label}, process: {{command: [python3, stack.py, --port, "{{port}}", {words}]}}}}'

    return f"""\
version: 1
gate: tiny
model: {{name: tiny, path: model, quantization: bf16, batch_size: 4}}
stacks:
  baseline: {stack("steady", baseline)}
  candidate: {stack("proposed", candidate)}
workload:
  seed: 7
  cells: [{{name: chat, prompt_tokens: 16, output_tokens: 24, concurrency: 2, requests: 80}}]
rounds: {{min: 4, max: 4}}
limits: {{default: {limit}, cells: {{default: {limit}}}}}
accelerator: cpu
"""


@dataclass(frozen=True, slots=True)
class Desk:
    """A repository with a pull request, its checkout on the runner, and GitHub."""

    runner: Runner
    fake: FakeGitHub
    job: Job

    @property
    def head(self) -> str:
        return self.fake.world.pulls[7].head_sha

    def states(self) -> list[str]:
        """The states of the gate's status on the head, oldest first."""
        return [row.state for row in self.fake.world.statuses if row.sha == self.head and row.context == CONTEXT]

    def comments(self) -> list[str]:
        return [comment.body for comment in self.fake.world.of(7)]

    def propose(self, head: str, *, base: str | None = None) -> None:
        """The gate's file as the checkout of the pull request has it, and as the base commit has it."""
        self.runner.put(".servegate.yml", head)
        self.fake.world.files[self.fake.world.pulls[7].base_sha] = {".servegate.yml": base or head}

    def evidence(self, name: str) -> str:
        return (self.runner.workspace / "servegate-report" / name).read_text(encoding="utf-8")


def pull_request_event(world: World) -> dict[str, object]:
    """The payload of `pull_request` for pull request 7, as far as it matters."""
    pull = world.pulls[7]
    repository = {"full_name": world.repository, "default_branch": "main"}
    return {
        "action": "synchronize",
        "number": 7,
        "pull_request": {
            "number": 7,
            "state": "open",
            "locked": False,
            "head": {"sha": pull.head_sha, "ref": "topic", "repo": {"full_name": pull.head_repo}},
            "base": {"sha": pull.base_sha, "ref": "main", "repo": repository},
            "user": {"login": "author"},
        },
        "repository": repository,
        "sender": {"login": "author"},
    }


@pytest.fixture
def network(engine: Engine) -> Iterator[tuple[str, str]]:
    """A network as the runner makes one for a job, and the address of this machine on it."""
    name = "servegate-e2e"
    if name in engine.networks():
        engine.docker("network", "rm", name)
    engine.docker("network", "create", name)
    gateway = engine.docker("network", "inspect", name, "--format", "{{(index .IPAM.Config 0).Gateway}}")
    yield name, gateway
    engine.docker("network", "rm", "--force", name)


@pytest.fixture
def desk(runner: Runner, network: tuple[str, str]) -> Iterator[Desk]:
    name, gateway = network
    world = World()
    world.add_pull(7)
    world.branches["main"] = world.pulls[7].base_sha
    runner.put("stack.py", (ROOT / "tests/e2e/stack.py").read_text(encoding="utf-8"))
    runner.put("model/config.json", '{"torch_dtype": "bfloat16"}')
    with serving(FakeGitHub(world), host="0.0.0.0", name=gateway) as fake:
        job = Job(
            inputs={"github-token": "t0ken-of-the-job"},
            payload=pull_request_event(world),
            environment={"GITHUB_SHA": sha("merge"), "GITHUB_REPOSITORY": world.repository},
            api_url=fake.url,
            network=name,
        )
        yield Desk(runner, fake, job)


def notes(ended: Ended) -> str:
    return "\n".join(f"{note['level']}: {note.get('title', '')}: {note['message']}" for note in ended.annotations)


# ---------------------------------------------------------------- verdicts


def test_a_better_candidate_passes_with_status_comment_outputs_and_evidence(desk: Desk) -> None:
    desk.propose(gate_file("--tpot-ms 3 --ttft-ms 12"))
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 0, ended.log
    assert desk.states() == ["pending", "success"]
    assert ended.outputs["verdict"] == "PASS"
    assert json.loads(ended.outputs["rejected"]) == []
    assert ended.outputs["report-dir"] == "servegate-report"
    assert ended.summary_fits
    (comment,) = desk.comments()
    assert desk.head[:7] in comment.splitlines()[0]
    assert sum(line.startswith(f"| {row} ") for row in range(1, 9) for line in comment.splitlines()) == 8
    assert json.loads(desk.evidence("verdict.json"))["word"] == "PASS"
    assert "t0ken-of-the-job" not in ended.log
    owner = desk.runner.workspace.stat().st_uid
    written = list((desk.runner.workspace / "servegate-report").rglob("*"))
    assert {path.stat().st_uid for path in written} == {owner}
    assert [path for path in written if not path.stat().st_mode & 0o004] == []


def test_a_slower_candidate_is_rejected_and_the_metrics_are_named(desk: Desk) -> None:
    desk.propose(gate_file("--tpot-ms 8 --ttft-ms 20"))
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 1, ended.log
    assert desk.states() == ["pending", "failure"]
    assert ended.outputs["verdict"] == "REJECT"
    assert any("tpot_p95" in name for name in json.loads(ended.outputs["rejected"]))
    assert "tiny" in desk.comments()[0]


def test_a_pull_request_that_loosens_its_own_limit_is_judged_by_the_base_and_told(desk: Desk) -> None:
    slower = "--tpot-ms 8 --ttft-ms 20"
    desk.propose(gate_file(slower, limit="900%"), base=gate_file("--tpot-ms 4 --ttft-ms 20"))
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 1, ended.log
    assert desk.states()[-1] == "failure"
    assert "900" in desk.comments()[0]


def test_a_candidate_that_answers_otherwise_is_invalid_before_any_round(desk: Desk) -> None:
    desk.propose(gate_file(f"{STEADY} --shout"))
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 4, ended.log
    assert desk.states() == ["pending", "failure"]
    assert ended.outputs["verdict"] == "INVALID"


# ---------------------------------------------------------------- nothing measured


def test_a_candidate_that_does_not_start_is_an_error_that_quotes_its_log_and_commands_nothing(desk: Desk) -> None:
    desk.propose(gate_file("--refuse"))
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 5, ended.log
    assert desk.states() == ["pending", "error"]
    assert ended.outputs["verdict"] == ""
    assert "unknown flag --fast" in ended.log
    assert not [note for note in ended.annotations if note["message"].startswith("unknown flag")], notes(ended)


def test_a_candidate_that_dies_while_it_is_measured_is_an_error_and_what_was_finished_is_kept(desk: Desk) -> None:
    desk.propose(gate_file(f"{STEADY} --die-after-requests 60"))
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 5, ended.log
    assert desk.states() == ["pending", "error"]
    assert json.loads(desk.evidence("recording.json"))["launches"]


def test_a_mistake_in_the_configuration_is_named_with_its_line(desk: Desk) -> None:
    desk.propose(gate_file(STEADY) + "limtis: {}\n")
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 2, ended.log
    assert re.search(r"servegate.yml \(base\):13: limtis: unknown key; did you mean `limits`", ended.log)


# ---------------------------------------------------------------- rights


def test_a_token_that_can_only_read_costs_the_comment_and_not_the_verdict(desk: Desk) -> None:
    desk.fake.world.rights = {"contents:read", "issues:read", "pull-requests:read", "statuses:read"}
    desk.propose(gate_file(f"{STEADY} --shout"))
    ended = desk.runner.run(desk.job)
    assert ended.exit_code == 4, ended.log
    assert desk.comments() == []
    assert "statuses: write" in notes(ended)
    assert ended.outputs["verdict"] == "INVALID"


def comment_event(desk: Desk, body: str, author: str) -> dict[str, object]:
    row = desk.fake.world.add_comment(7, body, author=author)
    return {
        "action": "created",
        "issue": {"number": 7, "state": "open", "locked": False, "pull_request": {"url": "x"}},
        "comment": {"id": row.id, "body": body, "user": {"login": author}},
        "repository": {"full_name": "octo/repo", "default_branch": "main"},
    }


@pytest.mark.parametrize(
    ("author", "named", "accepted"),
    [("reader", "head7", False), ("writer", "an older head", False), ("writer", "head7", True)],
)
def test_a_slash_command_is_for_writers_and_for_the_head_of_now(
    desk: Desk, author: str, named: str, accepted: bool
) -> None:
    desk.fake.world.roles = {"reader": "read", "writer": "write"}
    payload = comment_event(desk, f"/servegate run {sha(named)}", author)
    job = replace(desk.job, event="issue_comment", payload=payload, inputs={**desk.job.inputs, "mode": "command"})
    ended = desk.runner.run(job)
    assert (ended.exit_code == 0) == accepted, ended.log
    assert ended.outputs["sha"] == (desk.head if accepted else "")
    assert [row.content for row in desk.fake.world.reactions] == ["rocket" if accepted else "-1"]


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


def post(desk: Desk, state: Mapping[str, str]) -> Ended:
    """The step's `post-entrypoint`, with the state that the main step saved."""
    saved = {f"STATE_{name}": value for name, value in state.items()}
    return desk.runner.run(replace(desk.job, stage="post", environment={**desk.job.environment, **saved}))


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
    after = post(desk, ended.state)
    assert after.exit_code == 0, after.log
    assert desk.states() == ["pending", "error"]


def test_a_container_killed_without_a_word_is_reported_by_the_post_step(desk: Desk, engine: Engine) -> None:
    process = begin(desk)
    (name,) = engine.containers(desk.runner.image, exited=False)
    engine.docker("kill", "--signal", "KILL", name)
    ended = desk.runner.finish(process)
    assert ended.exit_code == 137
    assert desk.states() == ["pending"]
    after = post(desk, ended.state)
    assert after.exit_code == 0, after.log
    assert desk.states() == ["pending", "error"]
