"""The second half in its container: a recording in the workspace, and what GitHub hears of it. Nothing is measured here.

The recordings are made up, so that each verdict is certain and no test waits for a stack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from servegate_action.config.load import dump
from servegate_action.records import Change
from tests.e2e.desk import NUMBER, ROWS, Desk, merge_group, notes, pull_request, rows_of, workflow_run
from tests.support import recordings
from tests.support.fake_github import sha
from tests.support.recordings import Built, Scene
from tests.support.run_directories import record


def measured(desk: Desk, scene: Scene, *, head: str | None = None, number: int | None = NUMBER) -> Desk:
    """The desk of the job that publishes what another job measured at a commit, by the base's policy."""
    built = recordings.build(scene)
    base = desk.world.pulls[NUMBER].base_sha
    change = Change(
        repository=desk.world.repository,
        head_sha=head or desk.head,
        base_sha=base,
        number=number,
        policy_from=f"the base commit {base[:7]}",
    )
    told = Built(built.config, built.recording.model_copy(update={"change": change}), built.data)
    desk.world.files[base] = {".servegate.yml": dump(built.config)}
    record(told, desk.runner.workspace / "servegate-report")
    job = replace(desk.job, inputs={**desk.job.inputs, "mode": "publish"})
    return replace(desk, job=job, gate=built.config.gate)


def elsewhere(desk: Desk, *, run_id: int) -> Desk:
    """Another job of the same pull request, as it is now, on a runner of its own."""
    runner = replace(desk.runner, work=desk.runner.work.with_name(f"work-{run_id}"))
    job = replace(
        desk.job,
        payload=pull_request(desk.world),
        environment={**desk.job.environment, "GITHUB_RUN_ID": str(run_id)},
    )
    return replace(desk, runner=runner, job=job)


@pytest.mark.parametrize(
    ("scene", "word"),
    [
        (recordings.passing, "PASS"),
        (recordings.rejecting, "REJECT"),
        (recordings.inconclusive, "INCONCLUSIVE"),
        (recordings.invalid, "INVALID"),
    ],
)
def test_each_verdict_reaches_status_comment_outputs_and_exit_code_alike(
    desk: Desk, scene: Callable[[], Scene], word: str
) -> None:
    there = measured(desk, scene())
    ended = there.run()
    there.says_the_same_everywhere(ended, word)
    assert there.states() == ["success" if word == "PASS" else "failure"]
    assert "t0ken-of-the-job" not in ended.log


def test_a_run_that_could_not_be_measured_is_an_error_and_no_verdict(desk: Desk) -> None:
    there = measured(desk, recordings.nothing_measured())
    ended = there.run()
    assert (ended.exit_code, ended.outputs["verdict"]) == (5, ""), ended.log
    assert there.states() == ["error"]
    assert "CUDA out of memory" in ended.log


def test_a_merge_group_gets_its_status_on_the_queues_commit_and_no_comment(desk: Desk) -> None:
    queued = sha("queue")
    desk.world.commits.add(queued)
    there = measured(desk, recordings.passing(), head=queued, number=None)
    ended = there.run(event="merge_group", payload=merge_group(desk.world, head=queued))
    assert ended.exit_code == 0, ended.log
    assert there.states(queued) == ["success"]
    assert there.states() == []
    assert there.comments() == []
    assert ended.outputs["comment-url"] == ""


def test_a_locked_conversation_costs_the_comment_and_not_the_verdict(desk: Desk) -> None:
    desk.world.issues[NUMBER].locked = True
    there = measured(desk, recordings.passing())
    ended = there.run(payload=pull_request(desk.world))
    there.says_the_same_everywhere(ended, "PASS", commented=False)
    assert there.comments() == []
    assert "locked" in notes(ended)


def test_a_post_that_arrived_although_the_answer_was_502_leaves_one_comment(desk: Desk) -> None:
    desk.fake.fail(method="POST", path="/issues/7/comments", status=502, message="Bad Gateway", after_success=True)
    there = measured(desk, recordings.passing())
    ended = there.run()
    there.says_the_same_everywhere(ended, "PASS")
    assert next(row.status for row in there.fake.asked("POST", "/comments")) == 502


def test_of_two_runs_that_race_the_newer_heads_comment_stays(desk: Desk) -> None:
    """The older run is about to post its comment when the newer one begins, posts, and ends."""
    older = measured(elsewhere(desk, run_id=11), recordings.rejecting())
    old_head = desk.head
    desk.world.push(NUMBER, sha("newer head"))
    newer = measured(elsewhere(desk, run_id=12), recordings.passing())
    seen: list[int] = []
    desk.fake.before("POST", "/issues/7/comments", lambda: seen.append(newer.run().exit_code))
    ended = older.run()
    assert seen == [0]
    assert ended.exit_code == 1, ended.log
    assert older.states(old_head) == ["failure"]
    assert newer.states() == ["success"]
    (comment,) = newer.comments()
    assert f"head={desk.head[:7]}" in comment.splitlines()[0]
    assert rows_of(comment) == list(ROWS)


def test_a_run_of_an_older_head_that_ends_late_leaves_the_newer_heads_comment_alone(desk: Desk) -> None:
    old_head = desk.head
    older = measured(elsewhere(desk, run_id=11), recordings.rejecting())
    desk.world.push(NUMBER, sha("newer head"))
    newer = measured(elsewhere(desk, run_id=12), recordings.passing())
    assert newer.run().exit_code == 0
    (before,) = newer.comments()
    ended = older.run()
    assert ended.exit_code == 1, ended.log
    assert older.states(old_head) == ["failure"]
    assert newer.comments() == [before]


def test_a_forks_run_is_told_on_the_pull_request_that_the_server_names(desk: Desk) -> None:
    """Two jobs: one measured without any right; this one, on `workflow_run`, has rights and looks everything up."""
    desk.world.pulls[NUMBER].head_repo = "stranger/repo"
    there = measured(desk, recordings.passing())
    ended = there.run(event="workflow_run", payload=workflow_run(desk.world))
    there.says_the_same_everywhere(ended, "PASS")


# ---------------------------------------------------------------- hostile artifacts: the job that made them ran foreign code


def is_refused(desk: Desk) -> str:
    """Publish, and hold that the folder decided nothing: an error on the commit, and a comment that says so. Gives the log."""
    ended = desk.run()
    assert (ended.exit_code, ended.outputs.get("verdict", "")) == (2, ""), ended.log
    assert desk.states() == ["error"]
    assert [body.splitlines()[0].endswith("verdict=error -->") for body in desk.comments()] == [True]
    assert rows_of(desk.comments()[0]) == []
    return ended.log


def test_an_artifact_about_another_commit_is_refused(desk: Desk) -> None:
    assert "may have written anything" in is_refused(measured(desk, recordings.passing(), head=sha("another commit")))


def test_an_artifact_measured_by_a_looser_policy_than_the_bases_is_refused(desk: Desk) -> None:
    there = measured(desk, recordings.passing(limits={"default": "90%"}))
    strict = recordings.build(recordings.passing()).config
    desk.world.files[desk.world.pulls[NUMBER].base_sha] = {".servegate.yml": dump(strict)}
    assert "not measured by the policy of the base commit" in is_refused(there)


def test_a_folder_that_leads_out_of_itself_is_refused(desk: Desk) -> None:
    there = measured(desk, recordings.passing())
    (there.runner.workspace / "servegate-report/rounds/passwd").symlink_to("/etc/passwd")
    assert "root:" not in is_refused(there)
