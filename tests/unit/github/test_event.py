"""Events: the right commit, the right thread and the right policy, tried on real payloads and on bent ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.errors import UsageError
from servegate_action.github.event import Event, Kind, Surroundings, Thread, parse

EXAMPLES = Path(__file__).parents[2] / "fixtures" / "webhooks"
GITHUB_SHA = "9" * 40
HEAD, BASE, OTHER = "a" * 40, "b" * 40, "c" * 40
Payload = dict[str, object]


def around(**given: object) -> Surroundings:
    facts: dict[str, object] = {"repository": "octo/repo", "sha": GITHUB_SHA, "ref": "refs/heads/main", **given}
    return Surroundings(**facts)  # type: ignore[arg-type]


def examples(event: str) -> list[Payload]:
    return [entry["payload"] for entry in json.loads((EXAMPLES / f"{event}.json").read_text(encoding="utf-8"))]


def at(payload: object, *path: str) -> object:
    for name in path:
        assert isinstance(payload, dict)
        payload = payload[name]
    return payload


Expected = tuple[object, object, Thread] | None


def _pull(payload: Payload) -> Expected:
    locked = at(payload, "pull_request", "locked")
    thread = Thread.LOCKED if locked else Thread.OPEN
    return at(payload, "pull_request", "head", "sha"), at(payload, "pull_request", "number"), thread


def _push(payload: Payload) -> Expected:
    return None if payload["deleted"] else (payload["after"], None, Thread.NONE)


def _comment(payload: Payload) -> Expected:
    return None, at(payload, "issue", "number"), Thread.LOCKED if at(payload, "issue", "locked") else Thread.OPEN


EXPECTATIONS: Mapping[str, Callable[[Payload], Expected]] = {
    "pull_request": _pull,
    "merge_group": lambda payload: (at(payload, "merge_group", "head_sha"), None, Thread.NONE),
    "push": _push,
    "workflow_dispatch": lambda _: (GITHUB_SHA, None, Thread.NONE),
    "issue_comment": _comment,
    "workflow_run": lambda payload: (at(payload, "workflow_run", "head_sha"), None, Thread.LOOK_UP),
}
COUNTS = {
    "pull_request": 35,
    "merge_group": 2,
    "push": 10,
    "workflow_dispatch": 2,
    "issue_comment": 12,
    "workflow_run": 5,
}


@pytest.mark.parametrize("event", list(EXPECTATIONS))
def test_every_example_payload_gives_the_right_commit_number_and_permission(
    event: str, record_property: Callable[[str, object], None]
) -> None:
    payloads = examples(event)
    wrong = []
    for payload in payloads:
        expected = EXPECTATIONS[event](payload)
        try:
            seen = parse(event, payload, around=around())
            found: Expected = (seen.sha, seen.number, seen.thread)
        except UsageError:
            found = None
        if found != expected:
            wrong.append((payload.get("action"), found, expected))
    record_property(event, f"{len(payloads)} payloads, {len(wrong)} wrong")
    assert wrong == []
    assert len(payloads) == COUNTS[event]


def pull_request(**changes: object) -> Payload:
    payload: Payload = {
        "action": "synchronize",
        "repository": {"full_name": "octo/repo", "default_branch": "main"},
        "sender": {"login": "octocat"},
        "pull_request": {
            "number": 7,
            "state": "open",
            "locked": False,
            "head": {"sha": HEAD, "ref": "topic", "repo": {"full_name": "octo/repo"}},
            "base": {"sha": BASE, "ref": "main", "repo": {"full_name": "octo/repo"}},
            "user": {"login": "octocat"},
        },
    }
    pull = payload["pull_request"]
    assert isinstance(pull, dict)
    pull.update(changes)
    return payload


def test_a_pull_request_is_about_its_head_and_judged_by_its_base() -> None:
    seen = parse("pull_request", pull_request(), around=around())
    assert (seen.sha, seen.policy_ref, seen.number) == (HEAD, BASE, 7)
    assert seen.thread is Thread.OPEN
    assert seen.on_pull_request


def test_the_merge_commit_that_the_runner_names_is_never_used() -> None:
    assert parse("pull_request", pull_request(), around=around()).sha != GITHUB_SHA


@pytest.mark.parametrize(
    ("repository", "name"),
    [({"full_name": "mallory/repo"}, "mallory/repo"), (None, None)],
    ids=["fork", "deleted fork"],
)
def test_a_fork_has_a_token_that_can_only_read(repository: object, name: str | None) -> None:
    head = {"sha": HEAD, "ref": "topic", "repo": repository}
    seen = parse("pull_request", pull_request(head=head), around=around())
    assert seen.head_repository == name
    assert seen.thread is Thread.READ_ONLY


def test_dependabot_has_a_token_that_can_only_read() -> None:
    payload = pull_request() | {"sender": {"login": "dependabot[bot]"}}
    assert parse("pull_request", payload, around=around()).thread is Thread.READ_ONLY


def test_a_locked_and_a_closed_pull_request_are_told() -> None:
    seen = parse("pull_request", pull_request(locked=True, state="closed"), around=around())
    assert seen.thread is Thread.LOCKED
    assert seen.closed


def test_pull_request_target_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="pull_request_target") as caught:
        parse("pull_request_target", pull_request(), around=around())
    assert "Docker socket is root" in caught.value.why
    assert "two-job workflow" in caught.value.next_step


@pytest.mark.parametrize("name", ["release", "repository_dispatch", "check_run", ""])
def test_an_unknown_event_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(name, {}, around=around())
    assert all(kind in caught.value.why for kind in Kind)


def test_a_push_to_the_default_branch_brings_its_own_policy_and_a_push_elsewhere_does_not() -> None:
    payload: Payload = {
        "ref": "refs/heads/main",
        "after": HEAD,
        "deleted": False,
        "repository": {"full_name": "octo/repo", "default_branch": "main"},
    }
    assert parse("push", payload, around=around()).policy_ref is None
    assert parse("push", payload | {"ref": "refs/heads/topic"}, around=around()).policy_ref == "refs/heads/main"


def test_a_dispatch_on_a_branch_does_not_bring_its_own_policy() -> None:
    repository = {"full_name": "octo/repo", "default_branch": "main"}
    on_topic = parse("workflow_dispatch", {"ref": "refs/heads/topic", "repository": repository}, around=around())
    assert on_topic.policy_ref == "refs/heads/main"
    asked = parse(
        "workflow_dispatch", {"ref": "refs/heads/main", "repository": repository}, around=around(asked_sha=HEAD)
    )
    assert (asked.sha, asked.policy_ref) == (HEAD, GITHUB_SHA)


def test_a_schedule_without_a_repository_in_its_payload_is_about_the_runner_s_commit() -> None:
    seen = parse("schedule", {"schedule": "0 3 * * *"}, around=around())
    assert (seen.kind, seen.sha, seen.repository, seen.policy_ref) == (Kind.SCHEDULE, GITHUB_SHA, "octo/repo", None)


def test_a_comment_names_no_commit_by_itself() -> None:
    payload: Payload = {
        "action": "created",
        "issue": {"number": 7, "locked": False, "pull_request": {"url": "x"}},
        "comment": {"id": 5, "body": None, "user": None},
        "repository": {"full_name": "octo/repo"},
    }
    seen = parse("issue_comment", payload, around=around())
    assert seen.sha is None
    assert seen.on_pull_request
    assert seen.comment is not None
    assert (seen.comment.author, seen.comment.body, seen.comment.created) == ("", "", True)
    edited = parse("issue_comment", payload | {"action": "edited"}, around=around())
    assert edited.comment is not None
    assert not edited.comment.created


@pytest.mark.parametrize("event", ["pull_request", "merge_group", "push", "issue_comment", "workflow_run"])
def test_a_payload_without_what_is_needed_names_the_field(event: str) -> None:
    with pytest.raises(UsageError, match="is not what GitHub sends") as caught:
        parse(event, {"repository": {"full_name": "octo/repo"}}, around=around())
    assert "input `sha`" in caught.value.next_step


@pytest.mark.parametrize(
    "bad",
    ["a" * 39, "A" * 40, "0" * 40, "main", "a" * 41, "", "a" * 40 + "\n"],
    ids=["short", "upper case", "zeros", "a branch", "long", "empty", "with a line end"],
)
def test_only_a_full_sha_is_a_commit(bad: str) -> None:
    with pytest.raises(UsageError, match="full commit sha"):
        parse("workflow_dispatch", {}, around=around(asked_sha=bad))


def test_an_input_may_repeat_the_event_and_never_contradict_it() -> None:
    assert parse("pull_request", pull_request(), around=around(asked_sha=HEAD, asked_number=7)).sha == HEAD
    with pytest.raises(UsageError, match="input `sha`"):
        parse("pull_request", pull_request(), around=around(asked_sha=OTHER))
    with pytest.raises(UsageError, match="input `number`"):
        parse("pull_request", pull_request(), around=around(asked_number=8))


def test_an_input_names_the_thread_where_the_event_does_not() -> None:
    seen = parse("workflow_dispatch", {}, around=around(asked_number=12))
    assert (seen.number, seen.thread) == (12, Thread.OPEN)


@given(noise=st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_fields_that_nobody_reads_change_nothing(noise: dict[str, object]) -> None:
    read = {"action", "repository", "pull_request", "sender"}
    clean = {name: value for name, value in noise.items() if name not in read}
    assert parse("pull_request", clean | pull_request(), around=around()) == parse(
        "pull_request", pull_request(), around=around()
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    event=st.sampled_from([*Kind, "pull_request_target"]),
    part=st.sampled_from(["pull_request", "merge_group", "after", "issue", "workflow_run", "repository"]),
    value=JSON,
)
def test_a_bent_payload_is_refused_or_gives_a_full_sha(event: str, part: str, value: object) -> None:
    payload = pull_request() | {part: value}
    try:
        seen: Event = parse(event, payload, around=around())
    except UsageError:
        return
    assert seen.sha is None or len(seen.sha) in (40, 64)
