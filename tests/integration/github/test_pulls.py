"""Pull requests as the server holds them: found by commit, by a fork's branch, and never by what an artifact says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servegate_action.errors import UsageError
from servegate_action.github import pulls
from servegate_action.github.api import Api, Refused
from servegate_action.github.event import Event, Kind, Thread
from tests.support.fake_github import FakeGitHub, sha

HEAD = sha("head7")


def run_event(commit: str = HEAD, **facts: object) -> Event:
    event = Event(
        kind=Kind.WORKFLOW_RUN,
        action="completed",
        repository="octo/repo",
        sha=commit,
        number=None,
        policy_ref="refs/heads/main",
        thread=Thread.LOOK_UP,
        head_repository="octo/repo",
        head_branch="topic",
    )
    return replace(event, **facts)  # type: ignore[arg-type]


def test_the_pull_request_of_another_run_is_found_by_its_commit(api: Api) -> None:
    seen = pulls.resolve(run_event(), api=api)
    assert (seen.number, seen.policy_ref, seen.thread, seen.on_pull_request) == (7, sha("base"), Thread.OPEN, True)


def test_a_fork_s_pull_request_is_found_by_its_branch(fake: FakeGitHub, api: Api) -> None:
    fake.world.add_pull(8, head_repo="stranger/fork", head_ref="topic")
    seen = pulls.resolve(run_event(sha("head8"), head_repository="stranger/fork"), api=api)
    assert seen.number == 8


def test_a_branch_of_the_same_name_in_another_fork_is_not_it(fake: FakeGitHub, api: Api) -> None:
    fake.world.add_pull(8, head_repo="stranger/fork", head_ref="topic")
    seen = pulls.resolve(run_event(sha("head8"), head_repository="stranger/other"), api=api)
    assert (seen.number, seen.thread) == (None, Thread.NONE)


def test_two_pull_requests_of_one_commit_are_none(fake: FakeGitHub, api: Api) -> None:
    fake.world.add_pull(8, head_sha=HEAD, head_ref="twin")
    assert pulls.resolve(run_event(), api=api).number is None


def test_a_head_that_has_moved_is_still_its_pull_request_s(fake: FakeGitHub, api: Api) -> None:
    fake.world.push(7, sha("newer"))
    assert pulls.resolve(run_event(), api=api).number == 7


def test_the_number_of_another_pull_request_is_refused(fake: FakeGitHub, api: Api) -> None:
    fake.world.add_pull(8, head_ref="other")
    with pytest.raises(UsageError, match="is not part of pull request 8"):
        pulls.resolve(run_event(number=8), api=api)
    assert pulls.resolve(run_event(number=7), api=api).policy_ref == sha("base")


def test_a_number_that_does_not_exist_is_refused(api: Api) -> None:
    with pytest.raises(Refused):
        pulls.resolve(run_event(number=404), api=api)


def test_a_plain_issue_needs_no_commit_of_its_own(fake: FakeGitHub, api: Api) -> None:
    fake.world.add_issue(12)
    event = run_event(number=12, kind=Kind.WORKFLOW_DISPATCH, thread=Thread.OPEN)
    seen = pulls.resolve(event, api=api)
    assert (seen.number, seen.on_pull_request, seen.policy_ref) == (12, False, "refs/heads/main")


def test_a_pull_request_event_is_not_asked_about(fake: FakeGitHub, api: Api) -> None:
    event = run_event(kind=Kind.PULL_REQUEST, number=7, thread=Thread.OPEN)
    assert pulls.resolve(event, api=api) is event
    assert fake.world.log == []


def test_a_commit_that_only_the_fork_has_is_no_error(fake: FakeGitHub, api: Api) -> None:
    fake.fail(method="GET", path="/commits/.*/pulls", status=422, message="No commit found for SHA", times=None)
    fake.world.add_pull(8, head_repo="stranger/fork", head_ref="topic")
    seen = pulls.resolve(run_event(sha("head8"), head_repository="stranger/fork"), api=api)
    assert seen.number == 8
