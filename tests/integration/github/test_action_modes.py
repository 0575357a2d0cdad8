"""The modes of the action that need no GPU, in this process, against the fake GitHub: publish, command, and what they refuse."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from servegate_action import action, gate, store
from servegate_action.config.cost import Traffic
from servegate_action.config.load import dump
from servegate_action.config.models import Config
from servegate_action.config.stacks import Stack
from servegate_action.config.workload import Trace, Workload
from servegate_action.errors import ExitCode
from servegate_action.records import Change
from servegate_action.store import RunDirectory
from servegate_action.world import World as Outside
from tests.integration.test_run_directory import record
from tests.support import recordings, run_directories
from tests.support.fake_github import FakeGitHub, sha

HEAD, BASE = sha("head7"), sha("base")
CONTEXT = "servegate/llama-8b-chat"


@dataclass(slots=True)
class Job:
    """One job on a hosted runner: its folder, its event, and GitHub."""

    folder: Path
    fake: FakeGitHub
    run_id: str = "100"
    log: str = ""

    def run(self, mode: str, event: str, payload: Mapping[str, object], **inputs: str) -> int:
        (self.folder / "event.json").write_text(json.dumps(payload))
        environment = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "octo/repo",
            "GITHUB_RUN_ID": self.run_id,
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_API_URL": self.fake.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_SHA": BASE,
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_WORKSPACE": str(self.folder),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_STATE": str(self.folder / "state"),
            "INPUT_MODE": mode,
            "INPUT_GITHUB-TOKEN": "t0ken",
            **{f"INPUT_{name.upper()}": value for name, value in inputs.items()},
        }
        out = io.StringIO()
        console = Console(file=out, width=200, force_terminal=False)
        code = action.main(Outside(environment, self.folder, console, console))
        self.log = out.getvalue()
        return code

    def statuses(self) -> list[tuple[str, str]]:
        return [(row.context, row.state) for row in self.fake.world.statuses]

    def output(self) -> str:
        return (self.folder / "output").read_text()

    def evidence(
        self, *, change: Change | None = None, configure: Callable[[Config], Config] | None = None
    ) -> RunDirectory:
        """What a measuring job of this pull request leaves: a passing run."""
        root = self.folder / "servegate-report"
        directory = record(recordings.passing(), root)
        told = change or Change(
            repository="octo/repo", head_sha=HEAD, base_sha=BASE, number=7, policy_from="the base commit"
        )
        directory.write_recording(directory.recording().model_copy(update={"change": told}))
        if configure is not None:
            run_directories.configured(
                directory, directory.recording(), dump(configure(gate.configuration_of(directory)))
            )
        return directory


@pytest.fixture
def job(tmp_path: Path, fake: FakeGitHub) -> Job:
    base_says(fake, comment="never")
    fake.world.roles = {"writer": "write", "reader": "read"}
    return Job(tmp_path, fake)


def base_says(fake: FakeGitHub, **github: str) -> None:
    """The base commit's gate, with these words about what is published."""
    config = recordings.build(recordings.passing()).config
    options = config.github.model_copy(update={"status": CONTEXT, **github})
    fake.world.files = {BASE: {".servegate.yml": dump(config.model_copy(update={"github": options}))}}


def after(commit: str = HEAD) -> dict[str, object]:
    """The event of a publishing workflow."""
    return {
        "action": "completed",
        "repository": {"full_name": "octo/repo", "default_branch": "main"},
        "workflow_run": {
            "id": 5,
            "head_sha": commit,
            "head_branch": "topic",
            "head_repository": {"full_name": "octo/repo"},
        },
    }


def test_an_honest_artifact_is_judged_again_and_published(job: Job) -> None:
    job.evidence()
    assert job.run("publish", "workflow_run", after()) == ExitCode.PASS
    assert job.statuses() == [(CONTEXT, "success")]
    assert "PASS" in job.output()


def test_the_comment_links_what_was_said_after_earlier_runs(job: Job) -> None:
    base_says(job.fake, comment="always")
    job.evidence()
    for job.run_id in ("100", "102"):
        assert job.run("publish", "workflow_run", after()) == ExitCode.PASS, job.log
    (comment,) = job.fake.world.comments
    assert "[100.1](<https://github.com/octo/repo/actions/runs/100/attempts/1>)" in comment.body


def test_a_comment_without_a_verdict_says_what_happened_why_and_what_to_do(job: Job) -> None:
    base_says(job.fake, comment="always")
    job.evidence(change=_change(repository="mallory/repo"))
    assert job.run("publish", "workflow_run", after()) == ExitCode.USAGE
    (comment,) = job.fake.world.comments
    _, _, heading, *said = [line for line in comment.body.split("\n") if line]
    assert heading == "### ⚠️ servegate `llama-8b-chat`: no verdict"
    assert said[0].startswith("**the artifact speaks of ")
    assert said[1:] == [
        "the job that measured ran the pull request's code, and may have written anything",
        "Next: look at that job before anything else; nothing was published",
        "The job's log says more.",
    ]
    (status,) = job.fake.world.statuses
    assert (status.description or "").startswith("no verdict: the artifact speaks of ")


def test_a_verdict_written_into_the_artifact_counts_for_nothing(job: Job) -> None:
    directory = job.evidence()
    gate.conclude(directory)
    text = directory.read_text(store.VERDICT).replace('"PASS"', '"REJECT"')
    directory.write_text(store.VERDICT, text)
    assert job.run("publish", "workflow_run", after()) == ExitCode.PASS


def _other_context(config: Config) -> Config:
    return config.model_copy(update={"github": config.github.model_copy(update={"status": "ci/required"})})


def test_an_artifact_cannot_choose_which_status_it_turns_green(job: Job) -> None:
    job.evidence(configure=_other_context)
    job.run("publish", "workflow_run", after())
    assert [context for context, _ in job.statuses()] == [CONTEXT]


def _loose(config: Config) -> Config:
    return config.model_copy(update={"limits": config.limits.model_copy(update={"failed_share": 0.05})})


def _other_gate(config: Config) -> Config:
    return config.model_copy(update={"gate": "another"})


def _other_candidate(**facts: object) -> Callable[[Config], Config]:
    def configure(config: Config) -> Config:
        candidate = Stack.model_validate({"label": "served elsewhere", **facts})
        return config.model_copy(update={"stacks": config.stacks.model_copy(update={"candidate": candidate})})

    return configure


_fixed = _other_candidate(endpoint={"url": "http://10.0.0.9:8000", "launches": "fixed"})
_pooled = _other_candidate(process={"command": ["serve", "{port}"]}, gpu_pool="faster")
_unknown = _other_candidate(endpoint={"url": "http://10.0.0.9:8000"})


def _change(**facts: object) -> Change:
    known = {"repository": "octo/repo", "head_sha": HEAD, "base_sha": BASE, "number": 7, "policy_from": "base"}
    return Change.model_validate(known | facts)


def _without_the_slow_cell(job: Job) -> RunDirectory:
    """A run that rejects because of one cell, with that cell taken out of the plan and out of every launch."""
    directory = record(recordings.rejecting(), job.folder / "servegate-report")
    told = directory.recording()
    plan = told.plan.model_copy(update={"cells": tuple(cell for cell in told.plan.cells if cell.id != "long/2")})
    launches = []
    for launch in told.launches:
        cells = tuple(cell for cell in launch.cells if cell.cell != "long/2")
        launches.append(launch.model_copy(update={"cells": cells}))
        files = directory.launch(launch.directory)
        kept = [request for request in directory.data(launch).requests if request.cell != "long/2"]
        files.requests.unlink()
        directory.append_requests(files, kept)
    directory.write_recording(told.model_copy(update={"plan": plan, "launches": tuple(launches), "change": _change()}))
    return directory


def _spoil_link(root: Path) -> None:
    (root / "rounds" / "more").symlink_to("/etc")


def _spoil_json(root: Path) -> None:
    (root / store.RECORDING).write_text("[" * 100_000)


def _spoil_nothing(root: Path) -> None:
    (root / store.RECORDING).unlink()


HOSTILE: dict[str, Callable[[Job], object]] = {
    "looser limits": lambda job: job.evidence(configure=_loose),
    "launches that only the change calls fixed": lambda job: job.evidence(configure=_fixed),
    "a pool that only the change names": lambda job: job.evidence(configure=_pooled),
    "another gate": lambda job: job.evidence(configure=_other_gate),
    "a cell less than the base declares": _without_the_slow_cell,
    "another commit": lambda job: job.evidence(change=_change(head_sha=sha("other"))),
    "another repository": lambda job: job.evidence(change=_change(repository="mallory/repo")),
    "a link to the machine": lambda job: _spoil_link(job.evidence().root),
    "absurd JSON": lambda job: _spoil_json(job.evidence().root),
    "no recording": lambda job: _spoil_nothing(job.evidence().root),
    "no artifact at all": lambda job: None,
}


def test_what_the_candidate_says_of_itself_is_told_even_where_the_artifact_keeps_quiet(job: Job) -> None:
    job.evidence(configure=_unknown)
    job.run("publish", "workflow_run", after())
    told = (job.folder / "summary").read_text()
    assert "stacks.candidate: process → endpoint" in told
    assert told.count("stacks.candidate.endpoint.url") == 1


def test_what_the_artifact_already_tells_is_not_told_twice(job: Job) -> None:
    directory = job.evidence(configure=_unknown)
    note = "the candidate now says of itself: stacks.candidate: process → endpoint"
    directory.write_recording(directory.recording().model_copy(update={"notes": (note,)}))
    job.run("publish", "workflow_run", after())
    assert (job.folder / "summary").read_text().count("process → endpoint") == 1


def test_a_candidate_that_is_an_endpoint_without_fixed_launches_is_no_forgery(job: Job) -> None:
    job.evidence(configure=_unknown)
    assert job.run("publish", "workflow_run", after()) == ExitCode.INCONCLUSIVE
    assert job.statuses() == [(CONTEXT, "failure")]


def test_the_reason_for_a_forged_plan_is_given(job: Job) -> None:
    _without_the_slow_cell(job)
    job.run("publish", "workflow_run", after())
    assert "the plan in the recording is not the one that its configuration declares" in job.log
    assert "long/2" in job.log


@pytest.mark.parametrize("spoil", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_artifact_becomes_an_error_and_nothing_else(job: Job, spoil: Callable[[Job], object]) -> None:
    spoil(job)
    code = job.run("publish", "workflow_run", after())
    assert code not in (ExitCode.PASS, ExitCode.REJECT)
    assert job.statuses() == [(CONTEXT, "error")]
    assert "PASS" not in job.output()


# ---------------------------------------------------------------- files that the policy names


def _lines(*, count: int, every_ms: int) -> str:
    rows = [{"timestamp": every_ms * index, "input_length": 512, "output_length": 32} for index in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def replayed(job: Job, *, at_base: str) -> None:
    """A run that replayed a trace of 100 requests, two a second; and the trace as the base has it."""
    cell = recordings.SceneCell("trace", None, rate=2.0, requests=100)
    built = recordings.build(recordings.passing(cells=(cell,)))
    trace = Trace(path="traces/day.jsonl", warmup_requests=2)
    config = built.config.model_copy(update={"workload": Workload(seed=11, trace=trace)})
    directory = run_directories.record(replace(built, config=config), job.folder / "servegate-report")
    directory.write_recording(directory.recording().model_copy(update={"change": _change()}))
    status = config.github.model_copy(update={"comment": "never", "status": CONTEXT})
    base = config.model_copy(update={"github": status})
    job.fake.world.files = {BASE: {".servegate.yml": dump(base), "traces/day.jsonl": at_base}}


@pytest.mark.parametrize(
    ("count", "every_ms", "honest"),
    [(100, 500, True), (200, 500, False), (100, 50, False)],
    ids=["it", "longer", "denser"],
)
def test_a_replayed_trace_is_the_one_at_the_base(job: Job, count: int, every_ms: int, honest: bool) -> None:
    replayed(job, at_base=_lines(count=count, every_ms=every_ms))
    code = job.run("publish", "workflow_run", after())
    assert ("the plan in the recording" in job.log) is not honest
    assert (code == ExitCode.USAGE) is not honest
    assert (job.statuses() == [(CONTEXT, "error")]) is not honest


def priced_by_a_day(config: Config) -> Config:
    assert config.cost is not None
    traffic = Traffic(trace="traces/day.jsonl")
    return config.model_copy(update={"cost": config.cost.model_copy(update={"traffic": traffic})})


@pytest.mark.parametrize(("every_ms", "honest"), [(60_000, True), (30_000, False)])
def test_the_day_that_the_money_is_computed_for_is_the_one_at_the_base(job: Job, every_ms: int, honest: bool) -> None:
    directory = job.evidence(configure=priced_by_a_day)
    directory.write_text(store.TRAFFIC, "".join(f"{60.0 * minute!r}\n" for minute in range(1440)))
    base = priced_by_a_day(gate.configuration_of(directory))
    status = base.github.model_copy(update={"comment": "never", "status": CONTEXT})
    day = _lines(count=1440, every_ms=every_ms)
    files = {".servegate.yml": dump(base.model_copy(update={"github": status})), "traces/day.jsonl": day}
    job.fake.world.files = {BASE: files}
    code = job.run("publish", "workflow_run", after())
    assert ("traffic.txt" in job.log) is not honest
    assert (code == ExitCode.USAGE) is not honest


def test_a_day_that_the_policy_does_not_name_is_refused(job: Job) -> None:
    job.evidence().write_text(store.TRAFFIC, "0.0\n60.0\n")
    assert job.run("publish", "workflow_run", after()) == ExitCode.USAGE
    assert job.statuses() == [(CONTEXT, "error")]


def test_the_number_of_another_pull_request_publishes_nothing(job: Job) -> None:
    job.evidence()
    job.fake.world.add_pull(8, head_ref="other")
    assert job.run("publish", "workflow_run", after(), number="8") == ExitCode.USAGE
    assert job.statuses() == []


def test_without_a_gate_at_the_base_nothing_is_published(job: Job) -> None:
    job.evidence()
    job.fake.world.files = {BASE: {"README.md": "x"}}
    assert job.run("publish", "workflow_run", after()) == ExitCode.USAGE
    assert job.statuses() == []


# ---------------------------------------------------------------- command


def comment(body: str, author: str, fake: FakeGitHub) -> dict[str, object]:
    row = fake.world.add_comment(7, body, author=author)
    return {
        "action": "created",
        "repository": {"full_name": "octo/repo", "default_branch": "main"},
        "issue": {"number": 7, "pull_request": {"url": "x"}},
        "comment": {"id": row.id, "body": body, "user": {"login": author}},
    }


def test_an_accepted_command_hands_over_the_sha_and_shows_that_it_runs(job: Job) -> None:
    said = comment(f"/servegate run {HEAD}", "writer", job.fake)
    assert job.run("command", "issue_comment", said) == ExitCode.PASS
    assert HEAD in job.output()
    assert job.statuses() == [(CONTEXT, "pending")]
    assert not (job.folder / "state").exists() or HEAD not in (job.folder / "state").read_text()


@pytest.mark.parametrize(
    ("body", "author"),
    [(f"/servegate run {HEAD}", "reader"), (f"/servegate run {sha('old')}", "writer")],
    ids=["a reader", "an old sha"],
)
def test_a_refused_command_hands_over_nothing(job: Job, body: str, author: str) -> None:
    job.run("command", "issue_comment", comment(body, author, job.fake))
    assert HEAD not in job.output()
    assert job.statuses() == []


def test_the_publishing_job_of_a_command_needs_no_second_command(job: Job) -> None:
    job.evidence()
    said = comment(f"/servegate run {HEAD}", "writer", job.fake)
    assert job.run("publish", "issue_comment", said, sha=HEAD, number="7") == ExitCode.PASS
    assert job.statuses() == [(CONTEXT, "success")]
    assert job.fake.world.reactions == []


def test_a_checkout_of_another_commit_is_not_measured(job: Job) -> None:
    (job.folder / ".servegate.yml").write_text(job.fake.world.files[BASE][".servegate.yml"])
    (job.folder / ".git").mkdir()
    (job.folder / ".git" / "HEAD").write_text(BASE + "\n")
    said = comment(f"/servegate run {HEAD}", "writer", job.fake)
    assert job.run("run", "issue_comment", said, sha=HEAD) == ExitCode.USAGE
    assert "the checkout holds" in job.log
    assert "success" not in [state for _, state in job.statuses()]
