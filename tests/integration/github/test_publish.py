"""Publishing against the fake GitHub: what arrives, what a refusal costs, and who wins a race."""

from __future__ import annotations

import pytest

from servegate_action.errors import ExitCode
from servegate_action.github import comment, publish, status
from servegate_action.github.api import Api, Refusal, Server
from servegate_action.github.comment import read_earlier, read_marker
from servegate_action.github.degrade import Feature
from servegate_action.github.inputs import CommentWhen, RunId
from servegate_action.github.publish import Finished, Options
from tests.integration.github.conftest import finished, place_at
from tests.support.fake_github import READ_ONLY, FakeGitHub, sha
from tests.support.fake_github.clock import InstantClock

HEAD = sha("head7")
CONTEXT = "servegate/llama-8b-chat"
OPTIONS = Options()


def test_pending_at_the_start_and_the_verdict_in_the_end(fake: FakeGitHub, api: Api) -> None:
    publish.pending(place_at(HEAD), api=api, options=OPTIONS)
    assert fake.world.status_of(HEAD, CONTEXT).state == "pending"  # type: ignore[union-attr]
    done = publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert done.status_posted
    assert done.comment_written
    assert done.warnings == ()
    status = fake.world.status_of(HEAD, CONTEXT)
    assert status is not None
    assert (status.state, status.target_url) == ("success", place_at(HEAD).run_url)
    (row,) = fake.world.of(7)
    assert done.comment_url is not None
    assert str(row.id) in done.comment_url
    assert read_marker(row.body) == comment.Marker("llama-8b-chat", HEAD, place_at(HEAD).run, "pass")


@pytest.mark.parametrize(
    ("word", "code", "state"),
    [
        ("PASS", ExitCode.PASS, "success"),
        ("REJECT", ExitCode.REJECT, "failure"),
        ("INCONCLUSIVE", ExitCode.INCONCLUSIVE, "failure"),
        ("INVALID", ExitCode.INVALID, "failure"),
        (None, ExitCode.CANNOT_MEASURE, "error"),
        (None, ExitCode.USAGE, "error"),
        (None, ExitCode.SIGINT, "error"),
        (None, ExitCode.SIGTERM, "error"),
    ],
)
def test_only_pass_becomes_a_success(fake: FakeGitHub, api: Api, word: str | None, code: ExitCode, state: str) -> None:
    publish.publish(finished(word, code=code), place=place_at(HEAD), api=api, options=OPTIONS)
    status = fake.world.status_of(HEAD, CONTEXT)
    assert status is not None
    assert status.state == state


@pytest.mark.parametrize("word", ["PASS", "REJECT", "INCONCLUSIVE", "INVALID", None])
@pytest.mark.parametrize("code", list(ExitCode))
def test_a_word_that_contradicts_the_exit_code_cannot_be_published(word: str | None, code: ExitCode) -> None:
    agrees = (word or "") == code.name or (
        word is None and code.name not in ("PASS", "REJECT", "INCONCLUSIVE", "INVALID")
    )
    if agrees:
        assert finished(word, code=code).exit_code is code
    else:
        with pytest.raises(ValueError, match="contradict"):
            finished(word, code=code)


def test_the_second_head_updates_the_same_comment_and_remembers_the_first(fake: FakeGitHub, api: Api) -> None:
    publish.publish(finished("REJECT"), place=place_at(HEAD, run=100), api=api, options=OPTIONS)
    fake.world.push(7, sha("second"))
    publish.publish(finished("PASS"), place=place_at(sha("second"), run=101), api=api, options=OPTIONS)
    (row,) = fake.world.of(7)
    assert read_marker(row.body) == comment.Marker("llama-8b-chat", sha("second"), place_at(HEAD, run=101).run, "pass")
    assert [(one.head, one.verdict) for one in read_earlier(row.body)] == [(HEAD, "reject")]
    assert f"earlier {HEAD[:7]}" in row.body


def test_measuring_the_same_head_until_it_passes_is_seen(fake: FakeGitHub, api: Api) -> None:
    """Attempts of one run, then another run, all of one commit; a run that writes twice is one run."""
    for word, run, attempt in (
        ("REJECT", 100, 1),
        ("INCONCLUSIVE", 100, 2),
        ("INCONCLUSIVE", 100, 2),
        ("PASS", 101, 1),
    ):
        publish.publish(finished(word), place=place_at(HEAD, run=run, attempt=attempt), api=api, options=OPTIONS)
    (row,) = fake.world.of(7)
    assert [(one.head, one.verdict, str(one.run)) for one in read_earlier(row.body)] == [
        (HEAD, "inconclusive", "100.2"),
        (HEAD, "reject", "100.1"),
    ]


def test_our_comment_is_found_on_the_third_page(fake: FakeGitHub, api: Api) -> None:
    for number in range(230):
        fake.world.add_comment(7, f"chatter {number}", author="someone")
    publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    publish.publish(finished("REJECT"), place=place_at(HEAD, attempt=2), api=api, options=OPTIONS)
    assert len(fake.world.of(7)) == 231


def test_a_comment_of_somebody_else_with_our_marker_is_left_alone(fake: FakeGitHub, api: Api) -> None:
    forged = f"<!-- servegate:v1 gate=llama-8b-chat head={HEAD} run=999999.1 verdict=pass -->\nAll is well."
    theirs = fake.world.add_comment(7, forged, author="mallory")
    publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert theirs.body == forged
    assert len(fake.world.of(7)) == 2


def test_a_marker_that_is_not_on_the_first_line_is_none_of_ours(fake: FakeGitHub, api: Api) -> None:
    quoted = f"Look:\n<!-- servegate:v1 gate=llama-8b-chat head={HEAD} run=1.1 verdict=pass -->"
    fake.world.add_comment(7, quoted)
    publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert next(row.body for row in fake.world.of(7)) == quoted


def test_two_gates_have_two_comments(fake: FakeGitHub, api: Api) -> None:
    other = publish.Where("rag", "servegate/rag", HEAD, 7, True, place_at(HEAD).run, place_at(HEAD).run_url)
    publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    publish.publish(finished("PASS"), place=other, api=api, options=OPTIONS)
    assert {read_marker(row.body).gate for row in fake.world.of(7)} == {"llama-8b-chat", "rag"}  # type: ignore[union-attr]


def test_an_issue_is_a_change_request_too(fake: FakeGitHub, api: Api) -> None:
    fake.world.add_issue(12)
    fake.world.commits.add(sha("trial"))
    place = place_at(sha("trial"), number=12, pull=False)
    publish.publish(finished("REJECT"), place=place, api=api, options=OPTIONS)
    publish.publish(
        finished("PASS"), place=place_at(sha("trial"), number=12, pull=False, run=101), api=api, options=OPTIONS
    )
    (row,) = fake.world.of(12)
    assert row.body.startswith("<!-- servegate:v1 gate=llama-8b-chat head=- run=101.1 verdict=pass -->")


def test_a_merge_group_gets_a_status_and_no_comment(fake: FakeGitHub, api: Api) -> None:
    fake.world.commits.add(sha("queue"))
    done = publish.publish(
        finished("PASS"), place=place_at(sha("queue"), number=None, pull=False), api=api, options=OPTIONS
    )
    assert done.status_posted
    assert done.warnings == ()
    assert fake.world.comments == []


# ---------------------------------------------------------------- when


@pytest.mark.parametrize(
    ("when", "words", "written"),
    [
        ("always", ["PASS", "PASS"], [True, True]),
        ("never", ["REJECT", "PASS"], [False, False]),
        ("failures", ["PASS", "REJECT", "PASS", "PASS"], [False, True, True, True]),
        ("changes", ["PASS", "PASS", "REJECT", "REJECT", "PASS"], [True, False, True, False, True]),
    ],
)
def test_when_comments_are_written(
    fake: FakeGitHub, api: Api, when: CommentWhen, words: list[str], written: list[bool]
) -> None:
    seen = []
    for number, word in enumerate(words):
        head = sha(f"push {number}")
        fake.world.push(7, head)
        place = place_at(head, run=200 + number)
        done = publish.publish(finished(word), place=place, api=api, options=Options(comment=when))
        seen.append(done.comment_written)
    assert seen == written
    assert len(fake.world.of(7)) == (0 if when == "never" else 1)


# ---------------------------------------------------------------- refusals


def test_a_read_only_token_costs_the_posting_and_prints_the_yaml(fake: FakeGitHub, api: Api) -> None:
    fake.world.rights = set(READ_ONLY)
    done = publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=Options(check_run=True))
    assert not done.status_posted
    assert done.comment_url is None
    assert [(lost.feature, lost.kind) for lost in done.warnings] == [
        (Feature.STATUS, Refusal.READ_ONLY),
        (Feature.CHECK_RUN, Refusal.READ_ONLY),
        (Feature.COMMENT, Refusal.READ_ONLY),
    ]
    assert "permissions:\n  contents: read\n  statuses: write" in done.warnings[0].text
    assert "permissions:\n  contents: read\n  pull-requests: write" in done.warnings[2].text


def test_a_locked_conversation_costs_the_comment_only(fake: FakeGitHub, api: Api) -> None:
    fake.world.issues[7].locked = True
    done = publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert done.status_posted
    assert [(lost.feature, lost.kind) for lost in done.warnings] == [(Feature.COMMENT, Refusal.LOCKED)]


REFUSALS = [
    (401, "Bad credentials", Refusal.BAD_TOKEN),
    (403, "Resource not accessible by integration", Refusal.READ_ONLY),
    (403, "Repository was archived so is read-only.", Refusal.READ_ONLY),
    (403, "Resource protected by organization SAML enforcement.", Refusal.FORBIDDEN),
    (403, "You have exceeded a secondary rate limit.", Refusal.RATE_LIMITED),
    (403, "Unable to create comment because issue is locked.", Refusal.LOCKED),
    (404, "Not Found", Refusal.NOT_FOUND),
    (410, "Issues are disabled for this repo", Refusal.GONE),
    (422, "Validation Failed", Refusal.INVALID),
    (422, "Body is too long (maximum is 65536 characters)", Refusal.TOO_LONG),
    (429, "Too many requests", Refusal.RATE_LIMITED),
    (500, "Server Error", Refusal.SERVER),
    (502, "Bad Gateway", Refusal.SERVER),
    (503, "Service Unavailable", Refusal.SERVER),
    (504, "Gateway Timeout", Refusal.SERVER),
]


@pytest.mark.parametrize(("code", "message", "kind"), REFUSALS, ids=[f"{code} {kind}" for code, _, kind in REFUSALS])
@pytest.mark.parametrize("feature", [Feature.STATUS, Feature.COMMENT, Feature.CHECK_RUN])
def test_every_refusal_is_a_warning_about_its_feature_alone(
    fake: FakeGitHub, api: Api, feature: Feature, code: int, message: str, kind: Refusal
) -> None:
    path = {Feature.STATUS: "/statuses/", Feature.COMMENT: "/comments$", Feature.CHECK_RUN: "/check-runs$"}
    fake.fail(method="POST", path=path[feature], status=code, message=message, times=None)
    done = publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=Options(check_run=True))
    assert [(lost.feature, lost.kind) for lost in done.warnings] == [(feature, kind)]
    assert done.status_posted == (feature is not Feature.STATUS)
    assert done.comment_written == (feature is not Feature.COMMENT)


def test_an_unreachable_server_is_three_warnings_and_no_crash(clock: InstantClock) -> None:
    api = Api(Server(api_url="http://127.0.0.1:9", token="t"), repository="octo/repo", clock=clock)
    done = publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert not done.status_posted
    assert {lost.kind for lost in done.warnings} == {Refusal.UNREACHABLE}


def test_a_short_rate_limit_is_waited_for(fake: FakeGitHub, api: Api, clock: InstantClock) -> None:
    fake.fail(method="POST", path="/statuses/", status=429, message="slow down", headers={"Retry-After": "17"})
    done = publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert done.warnings == ()
    assert 17.0 in clock.slept


def test_an_hour_long_rate_limit_is_not_waited_for(fake: FakeGitHub, api: Api, clock: InstantClock) -> None:
    fake.fail(method="POST", path="/statuses/", status=429, message="no", headers={"Retry-After": "3600"}, times=None)
    done = publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert [lost.kind for lost in done.warnings] == [Refusal.RATE_LIMITED]
    assert len(fake.asked("POST", "/statuses/")) == 1
    assert max(clock.slept) < 60


def test_writes_are_a_second_apart(fake: FakeGitHub, api: Api, clock: InstantClock) -> None:
    publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=Options(check_run=True))
    writes = [row for row in fake.world.log if row.method != "GET" and "graphql" not in row.path]
    assert clock.now_s() - 1000.0 >= len(writes) - 1


# ---------------------------------------------------------------- answers that lie


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_502_after_success_leaves_one_comment(fake: FakeGitHub, api: Api, lag: int) -> None:
    fake.world.list_lag = lag
    fake.fail(method="POST", path="/comments$", status=502, message="Bad Gateway", after_success=True)
    done = publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert done.comment_written
    assert done.warnings == ()
    assert len(fake.world.of(7)) == 1


def test_a_502_after_success_behind_a_long_lag_leaves_one_comment_in_the_end(fake: FakeGitHub, api: Api) -> None:
    fake.world.list_lag = 3
    fake.fail(method="POST", path="/comments$", status=502, message="Bad Gateway", after_success=True)
    publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert len(fake.world.of(7)) == 1


def test_a_connection_that_breaks_after_success_leaves_one_comment(fake: FakeGitHub, api: Api) -> None:
    fake.fail(method="POST", path="/comments$", after_success=True, drop=True)
    done = publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert done.comment_written
    assert len(fake.world.of(7)) == 1


def test_a_patch_is_repeated_after_a_502(fake: FakeGitHub, api: Api) -> None:
    publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    fake.fail(method="PATCH", path="/comments/", status=502, message="Bad Gateway", times=2)
    done = publish.publish(finished("PASS"), place=place_at(HEAD, run=101), api=api, options=OPTIONS)
    assert done.comment_written
    assert len(fake.asked("PATCH", "/comments/")) == 3


def test_duplicates_of_earlier_runs_are_collapsed_into_the_oldest(fake: FakeGitHub, api: Api) -> None:
    for run in (90, 91):
        marker = comment.Marker("llama-8b-chat", HEAD, RunId(run, 1), "reject")
        fake.world.add_comment(7, f"{marker.line()}\nold")
    first = fake.world.of(7)[0].id
    publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=OPTIONS)
    (row,) = fake.world.of(7)
    assert row.id == first
    assert "verdict=pass" in row.body


def test_a_comment_that_was_deleted_meanwhile_is_written_anew(fake: FakeGitHub, api: Api) -> None:
    publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    fake.before("PATCH", "/comments/", fake.world.comments.clear)
    done = publish.publish(finished("PASS"), place=place_at(HEAD, run=101), api=api, options=OPTIONS)
    assert done.comment_written
    assert len(fake.world.of(7)) == 1


# ---------------------------------------------------------------- lengths


def test_a_text_that_is_too_long_is_asked_for_again_shorter(fake: FakeGitHub, api: Api) -> None:
    fake.fail(method="POST", path="/comments$", status=422, message="Body is too long (maximum is 65536 characters)")
    done = publish.publish(finished("REJECT"), place=place_at(HEAD), api=api, options=OPTIONS)
    assert done.comment_written
    sizes = [len(str(row.body["body"])) for row in fake.asked("POST", "/comments$") if isinstance(row.body, dict)]
    assert sizes[0] > 50_000
    assert sizes[1] < 40_001


def test_the_status_text_is_cut_at_140_characters(fake: FakeGitHub, api: Api) -> None:
    publish.publish(finished("REJECT", title="very " * 100), place=place_at(HEAD), api=api, options=OPTIONS)
    status = fake.world.status_of(HEAD, CONTEXT)
    assert status is not None
    assert status.description is not None
    assert len(status.description) <= 140
    assert status.description.endswith("…")


def test_a_body_that_fails_its_self_check_is_replaced_by_a_plain_one(fake: FakeGitHub, api: Api) -> None:
    def hostile(_: comment.Occasion) -> str:
        return "### fine\n\nhello @octo/admins <img src=x> ![x](https://evil.example/x.png)\n"

    bad = Finished(word="REJECT", exit_code=ExitCode.REJECT, status_line="REJECT: x", text=hostile)
    done = publish.publish(bad, place=place_at(HEAD), api=api, options=OPTIONS)
    (row,) = fake.world.of(7)
    assert "@octo" not in row.body
    assert "evil" not in row.body
    assert "REJECT" in row.body
    assert [lost.title for lost in done.warnings] == ["The comment failed its self-check"]


# ---------------------------------------------------------------- races


def test_a_run_whose_head_was_overtaken_does_not_touch_the_newer_comment(fake: FakeGitHub, api: Api) -> None:
    fake.world.push(7, sha("newer"))
    publish.publish(finished("PASS"), place=place_at(sha("newer"), run=101), api=api, options=OPTIONS)
    before = fake.world.of(7)[0].body
    done = publish.publish(finished("REJECT"), place=place_at(HEAD, run=100), api=api, options=OPTIONS)
    assert done.outdated
    assert not done.comment_written
    assert "newer head" in done.kept
    assert fake.world.of(7)[0].body == before
    status = fake.world.status_of(HEAD, CONTEXT)
    assert status is not None
    assert status.state == "failure"


def test_a_run_whose_head_was_overtaken_but_not_measured_says_that_it_is_outdated(fake: FakeGitHub, api: Api) -> None:
    fake.world.push(7, sha("newer"))
    done = publish.publish(finished("REJECT"), place=place_at(HEAD, run=100), api=api, options=OPTIONS)
    assert done.comment_written
    assert f"newer head {sha('newer')[:7]}" in fake.world.of(7)[0].body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/issues/7/comments"),
        ("GET", "/issues/comments/"),
        ("GET", "/pulls/7"),
        ("POST", "/statuses/"),
    ],
    ids=["while listing", "while reading the one comment", "while asking for the head", "while posting the status"],
)
@pytest.mark.parametrize("existing", [True, False], ids=["with a comment", "without one"])
def test_of_two_runs_racing_on_one_pull_request_the_newer_head_wins(
    fake: FakeGitHub, api: Api, method: str, path: str, existing: bool
) -> None:
    if existing:
        marker = comment.Marker("llama-8b-chat", sha("older"), RunId(50, 1), "pass")
        fake.world.add_comment(7, f"{marker.line()}\nold")

    def newer_run() -> None:
        fake.world.push(7, sha("newer"))
        rival = Api(Server(api_url=fake.url, token="t"), repository="octo/repo", clock=InstantClock())
        publish.publish(finished("PASS"), place=place_at(sha("newer"), run=101), api=rival, options=OPTIONS)

    fake.before(method, path, newer_run)
    publish.publish(finished("REJECT"), place=place_at(HEAD, run=100), api=api, options=OPTIONS)
    (row,) = fake.world.of(7)
    marker_now = read_marker(row.body)
    assert marker_now is not None
    assert (marker_now.head, marker_now.verdict) == (sha("newer"), "pass")


@pytest.mark.parametrize(("run", "attempt"), [(101, 1), (100, 2)])
@pytest.mark.parametrize("later", ["REJECT", None])
@pytest.mark.parametrize("word", ["PASS", "INCONCLUSIVE", None])
def test_an_older_run_of_the_same_commit_that_ends_last_says_nothing(
    fake: FakeGitHub, api: Api, run: int, attempt: int, later: str | None, word: str | None
) -> None:
    newer = place_at(HEAD, run=run, attempt=attempt)
    publish.pending(place_at(HEAD, run=100), api=api, options=OPTIONS)
    publish.pending(newer, api=api, options=OPTIONS)
    if later is not None:
        publish.publish(finished(later), place=newer, api=api, options=OPTIONS)
    before = [(row.state, row.target_url) for row in fake.world.statuses], [row.body for row in fake.world.of(7)]
    done = publish.publish(finished(word), place=place_at(HEAD, run=100), api=api, options=OPTIONS)
    assert not done.status_posted
    assert newer.run_url in done.kept
    after = [(row.state, row.target_url) for row in fake.world.statuses], [row.body for row in fake.world.of(7)]
    assert after == before


def test_a_regression_that_an_older_run_shows_last_blocks_and_both_runs_are_told(fake: FakeGitHub, api: Api) -> None:
    publish.publish(finished("PASS"), place=place_at(HEAD, run=101), api=api, options=OPTIONS)
    done = publish.publish(finished("REJECT"), place=place_at(HEAD, run=100), api=api, options=OPTIONS)
    assert done.status_posted
    assert fake.world.statuses[-1].state == "failure"
    (row,) = fake.world.of(7)
    assert "verdict=reject" in row.body
    assert [(one.verdict, str(one.run)) for one in read_earlier(row.body)] == [("pass", "101.1")]


@pytest.mark.parametrize(
    "page",
    [
        "https://github.com/other/repo/actions/runs/999/attempts/1",
        "https://github.com/octo/repo/actions/runs/99/attempts/9",
        "https://example.org/",
        None,
    ],
)
def test_a_status_that_is_of_no_later_run_of_ours_is_written_over(fake: FakeGitHub, api: Api, page: str | None) -> None:
    said = {"state": "success", "context": "servegate/llama-8b-chat", "description": "by hand", "target_url": page}
    api.post(api.path("statuses", HEAD), status.Seen, {key: value for key, value in said.items() if value is not None})
    assert publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=OPTIONS).status_posted


def test_two_first_comments_posted_at_once_become_the_newer_one(fake: FakeGitHub, api: Api) -> None:
    def newer_run() -> None:
        fake.world.push(7, sha("newer"))
        rival = Api(Server(api_url=fake.url, token="t"), repository="octo/repo", clock=InstantClock())
        publish.publish(finished("PASS"), place=place_at(sha("newer"), run=101), api=rival, options=OPTIONS)

    fake.before("POST", "/comments$", newer_run)
    done = publish.publish(finished("REJECT"), place=place_at(HEAD, run=100), api=api, options=OPTIONS)
    (row,) = fake.world.of(7)
    assert "verdict=pass" in row.body
    assert "newer head" in done.kept


def test_an_older_run_that_writes_over_a_newer_one_is_put_right_by_the_newer_one(fake: FakeGitHub, api: Api) -> None:
    """The window that no API closes: the old run has decided, and its PATCH lands just after the new run's."""
    marker = comment.Marker("llama-8b-chat", HEAD, RunId(100, 1), "reject")
    target = fake.world.add_comment(7, f"{marker.line()}\nold")
    fake.world.push(7, sha("newer"))
    writes = 0

    class Clobbered(InstantClock):
        def sleep(self, seconds: float) -> None:
            nonlocal writes
            if seconds == comment.SETTLE_S and writes == 0:
                writes += 1
                target.body = f"{marker.line()}\nwritten late by the older run"
            super().sleep(seconds)

    newer = Api(Server(api_url=fake.url, token="t"), repository="octo/repo", clock=Clobbered())
    done = publish.publish(finished("PASS"), place=place_at(sha("newer"), run=101), api=newer, options=OPTIONS)
    assert writes == 1
    assert done.comment_written
    assert "verdict=pass" in fake.world.of(7)[0].body


# ---------------------------------------------------------------- cut off


def test_a_killed_job_turns_its_pending_status_into_an_error(fake: FakeGitHub, api: Api) -> None:
    publish.pending(place_at(HEAD), api=api, options=Options(check_run=True))
    done = publish.interrupted(
        place_at(HEAD), api=api, options=Options(check_run=True), description="the job was killed"
    )
    assert done.status_posted
    status = fake.world.status_of(HEAD, CONTEXT)
    assert status is not None
    assert (status.state, status.description) == ("error", "the job was killed")
    (run,) = fake.world.check_runs
    assert (run.status, run.conclusion) == ("completed", "failure")


@pytest.mark.parametrize("word", ["PASS", "REJECT"])
def test_the_post_step_leaves_a_verdict_alone(fake: FakeGitHub, api: Api, word: str) -> None:
    publish.pending(place_at(HEAD), api=api, options=OPTIONS)
    publish.publish(finished(word), place=place_at(HEAD), api=api, options=OPTIONS)
    before = fake.world.status_of(HEAD, CONTEXT)
    done = publish.interrupted(place_at(HEAD), api=api, options=OPTIONS, description="the job was killed")
    assert not done.status_posted
    assert fake.world.status_of(HEAD, CONTEXT) == before


def test_the_post_step_leaves_the_pending_status_of_another_run_alone(fake: FakeGitHub, api: Api) -> None:
    publish.pending(place_at(HEAD, run=101), api=api, options=OPTIONS)
    done = publish.interrupted(place_at(HEAD, run=100), api=api, options=OPTIONS, description="killed")
    assert not done.status_posted


# ---------------------------------------------------------------- check run


def test_a_check_run_is_started_once_and_concluded(fake: FakeGitHub, api: Api) -> None:
    options = Options(check_run=True)
    publish.pending(place_at(HEAD), api=api, options=options)
    done = publish.publish(finished("PASS"), place=place_at(HEAD), api=api, options=options)
    assert done.check_run_posted
    (run,) = fake.world.check_runs
    assert (run.status, run.conclusion, run.summary) == ("completed", "success", "# PASS")
