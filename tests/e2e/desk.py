"""A repository with a pull request, its checkout on the runner, and a GitHub: what the tests of the action act on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from tests.e2e.world import Ended, Job, Runner
from tests.support.fake_github import FakeGitHub, World

NUMBER = 7
ROWS = range(1, 9)
CLIENTS = {"client", "client_certificate"}
STEADY = "--tpot-ms 16 --ttft-ms 60"


def gate_file(candidate: str, *, baseline: str = STEADY, limit: str = "25%", most_rounds: int = 4) -> str:
    """A small gate on stacks of exact speed, which are processes in the action's own container.

    The pace is slow and the streams are many, so that what a busy machine adds to a request stays small beside it.
    """

    def stack(label: str, flags: str) -> str:
        words = ", ".join(f'"{word}"' for word in flags.split())
        return f'{{label: {label}, process: {{command: [python3, stack.py, --port, "{{port}}", {words}]}}}}'

    return f"""\
version: 1
gate: tiny
model: {{name: tiny, path: model, quantization: bf16, batch_size: 8}}
stacks:
  baseline: {stack("steady", baseline)}
  candidate: {stack("proposed", candidate)}
workload:
  seed: 7
  cells: [{{name: chat, prompt_tokens: 16, output_tokens: 16, concurrency: 8, requests: 80}}]
rounds: {{min: 2, max: {most_rounds}}}
limits: {{default: {limit}, cells: {{default: {limit}}}}}
numerics: {{prompts: 4, output_tokens: 8}}
accelerator: cpu
"""


@dataclass(frozen=True, slots=True)
class Desk:
    """Where one job of the pull request runs. `gate` is the gate's name, of which the status' context is made."""

    runner: Runner
    fake: FakeGitHub
    job: Job
    gate: str = "tiny"

    @property
    def world(self) -> World:
        return self.fake.world

    @property
    def head(self) -> str:
        return self.world.pulls[NUMBER].head_sha

    def states(self, sha: str | None = None) -> list[str]:
        """The states of the gate's status on a commit (the head), oldest first."""
        context, commit = f"servegate/{self.gate}", sha or self.head
        return [row.state for row in self.world.statuses if row.sha == commit and row.context == context]

    def comments(self) -> list[str]:
        return [comment.body for comment in self.world.of(NUMBER)]

    def propose(self, head: str, *, base: str | None = None) -> None:
        """The gate's file as the checkout of the pull request has it, and as the base commit has it."""
        self.runner.put(".servegate.yml", head)
        self.world.files[self.world.pulls[NUMBER].base_sha] = {".servegate.yml": base or head}

    def evidence(self, name: str) -> str:
        return (self.runner.workspace / "servegate-report" / name).read_text(encoding="utf-8")

    def run(self, **changes: object) -> Ended:
        """One step of the job, changed as said."""
        return self.runner.run(replace(self.job, **changes))  # type: ignore[arg-type]

    def post(self, state: Mapping[str, str]) -> Ended:
        """The step's `post-entrypoint`, with the state that the main step saved."""
        saved = {f"STATE_{name}": value for name, value in state.items()}
        return self.run(stage="post", environment={**self.job.environment, **saved})

    def says_the_same_everywhere(self, ended: Ended, word: str, *, commented: bool = True) -> None:
        """Hold status, outputs, exit code, stored verdict and comment against one word."""
        code = {"PASS": 0, "REJECT": 1, "INCONCLUSIVE": 3, "INVALID": 4}[word]
        assert (ended.exit_code, ended.outputs.get("verdict")) == (code, word), ended.log
        assert self.states()[-1] == ("success" if word == "PASS" else "failure")
        assert bool(json.loads(ended.outputs["rejected"])) == (word == "REJECT")
        assert ended.summary_fits
        if commented:
            (comment,) = self.comments()
            marker = comment.splitlines()[0]
            assert f"gate={self.gate} " in marker
            assert f"head={self.head[:7]}" in marker
            assert f"verdict={word.lower()} " in marker
            assert rows_of(comment) == list(ROWS)
            assert ended.outputs["comment-url"].startswith("https://github.com/octo/repo/")


def measured(desk: Desk, **changes: object) -> Ended:
    """A run whose load generator kept up. On a machine that is too busy for it the verdict is INVALID, which is tried again."""
    failed: dict[str, str] = {}
    for _ in range(3):
        ended = desk.run(**changes)
        if ended.exit_code != 4:
            return ended
        failed = {
            row["name"]: row["detail"] for row in json.loads(desk.evidence("verdict.json"))["checks"] if not row["ok"]
        }
        assert failed.keys() <= CLIENTS, failed
    pytest.skip(f"this machine is too busy to measure on, which the gate saw and said three times: {failed}")


def rows_of(comment: str) -> list[int]:
    """The numbers of the checklist's rows, in the order in which the comment has them; what is folded is something else."""
    return [int(row) for row in re.findall(r"^\| (\d)\s", comment.partition("<details>")[0], re.MULTILINE)]


def notes(ended: Ended) -> str:
    """The annotations that GitHub shows on the run's page."""
    return "\n".join(f"{note['level']}: {note.get('title', '')}: {note['message']}" for note in ended.annotations)


# ---------------------------------------------------------------- payloads, as far as they matter


def pull_request(world: World) -> dict[str, object]:
    """`pull_request` for the pull request as it is now."""
    pull = world.pulls[NUMBER]
    repository = {"full_name": world.repository, "default_branch": "main"}
    return {
        "action": "synchronize",
        "number": NUMBER,
        "pull_request": {
            "number": NUMBER,
            "state": "open",
            "locked": world.issues[NUMBER].locked,
            "head": {"sha": pull.head_sha, "ref": pull.head_ref, "repo": {"full_name": pull.head_repo}},
            "base": {"sha": pull.base_sha, "ref": "main", "repo": repository},
            "user": {"login": "author"},
        },
        "repository": repository,
        "sender": {"login": "author"},
    }


def merge_group(world: World, *, head: str) -> dict[str, object]:
    """`merge_group` for a queue's commit on top of the base."""
    return {
        "action": "checks_requested",
        "merge_group": {
            "head_sha": head,
            "head_ref": "refs/heads/gh-readonly-queue/main/pr-7",
            "base_sha": world.pulls[NUMBER].base_sha,
            "base_ref": "refs/heads/main",
        },
        "repository": {"full_name": world.repository, "default_branch": "main"},
    }


def workflow_run(world: World) -> dict[str, object]:
    """`workflow_run` of the job that measured the pull request's head."""
    pull = world.pulls[NUMBER]
    return {
        "action": "completed",
        "workflow_run": {
            "id": 99,
            "head_sha": pull.head_sha,
            "head_branch": pull.head_ref,
            "event": "pull_request",
            "head_repository": {"full_name": pull.head_repo},
            "pull_requests": [],
        },
        "repository": {"full_name": world.repository, "default_branch": "main"},
    }


def slash_command(world: World, body: str, *, author: str) -> dict[str, object]:
    """`issue_comment` of a new comment on the pull request."""
    row = world.add_comment(NUMBER, body, author=author)
    return {
        "action": "created",
        "issue": {"number": NUMBER, "state": "open", "locked": False, "pull_request": {"url": "x"}},
        "comment": {"id": row.id, "body": body, "user": {"login": author}},
        "repository": {"full_name": world.repository, "default_branch": "main"},
    }
