"""The slash command: who may, for which commit, and what everybody else is told."""

from __future__ import annotations

import pytest

from servegate_action.github import commands
from servegate_action.github.api import Api
from servegate_action.github.commands import Accepted, NoCommand, Outcome, RefusedCommand
from servegate_action.github.event import Surroundings, parse
from tests.support.fake_github import FakeGitHub, sha

HEAD = sha("head7")


def say(
    fake: FakeGitHub, api: Api, body: str, *, author: str = "writer", action: str = "created", number: int = 7
) -> Outcome:
    row = fake.world.add_comment(number, body, author=author)
    issue: dict[str, object] = {"number": number, "locked": False}
    if number in fake.world.pulls:
        issue["pull_request"] = {"url": "x"}
    payload: dict[str, object] = {
        "action": action,
        "issue": issue,
        "comment": {"id": row.id, "body": body, "user": {"login": author}},
        "repository": {"full_name": "octo/repo"},
    }
    around = Surroundings(repository="octo/repo", sha="9" * 40, ref="refs/heads/main")
    return commands.answer(parse("issue_comment", payload, around=around), api=api)


@pytest.fixture(autouse=True)
def people(fake: FakeGitHub) -> None:
    fake.world.roles = {
        "owner": "admin",
        "maintainer": "maintain",
        "writer": "write",
        "helper": "triage",
        "reader": "read",
    }


def reactions(fake: FakeGitHub) -> list[str]:
    return [row.content for row in fake.world.reactions]


@pytest.mark.parametrize("who", ["owner", "maintainer", "writer"])
def test_a_writer_with_the_right_sha_is_obeyed(fake: FakeGitHub, api: Api, who: str) -> None:
    seen = say(fake, api, f"/servegate run {HEAD}", author=who)
    assert isinstance(seen, Accepted)
    assert (seen.event.sha, seen.event.policy_ref, seen.event.number) == (HEAD, sha("base"), 7)
    assert reactions(fake) == ["rocket"]


@pytest.mark.parametrize("who", ["reader", "helper", "stranger"])
def test_a_reader_is_refused(fake: FakeGitHub, api: Api, who: str) -> None:
    seen = say(fake, api, f"/servegate run {HEAD}", author=who)
    assert isinstance(seen, RefusedCommand)
    assert "no write access" in seen.reason
    assert reactions(fake) == ["-1"]


def test_a_writer_with_an_old_sha_is_refused_and_told_the_new_one(fake: FakeGitHub, api: Api) -> None:
    fake.world.push(7, sha("newer"))
    seen = say(fake, api, f"/servegate run {HEAD}")
    assert isinstance(seen, RefusedCommand)
    assert sha("newer")[:7] in seen.reason
    assert reactions(fake) == ["-1"]


def test_a_push_between_question_and_answer_is_noticed(fake: FakeGitHub, api: Api) -> None:
    fake.before("GET", "/pulls/7", lambda: fake.world.push(7, sha("newer")))
    assert isinstance(say(fake, api, f"/servegate run {HEAD}"), RefusedCommand)


@pytest.mark.parametrize(
    "body",
    [
        f"/servegate run {HEAD[:7]}",
        f"/servegate run {HEAD.upper()}",
        f"/servegate run {HEAD} ",
        f"/servegate run  {HEAD}",
        f"/servegate run {HEAD}; rm -rf /",
        f" /servegate run {HEAD}",
        f"/servegate run {HEAD}{HEAD[:1]}",
        f"/servegate run\n{HEAD}",
        "/servegate run main",
        "/servegate run $(id)",
        "/servegate run ::error::x",
        "/servegate",
        "/servegate approve",
        f"/servegate RUN {HEAD}",
        f"/servegate run\u00a0{HEAD}",
    ],
    ids=[
        "short sha", "upper case", "blank behind", "two blanks", "a shell", "blank before", "too long", "two lines", "branch",
        "substitution", "runner command", "nothing", "another word", "loud", "no-break space",
    ],
)  # fmt: skip
def test_anything_but_the_exact_first_line_is_refused(fake: FakeGitHub, api: Api, body: str) -> None:
    seen = say(fake, api, body, author="owner")
    assert isinstance(seen, RefusedCommand)
    assert reactions(fake) == ["-1"]
    assert fake.asked("GET") == []


@pytest.mark.parametrize(
    "body",
    [
        "LGTM",
        f"please /servegate run {HEAD}",
        f"> /servegate run {HEAD}",
        f"Hi\n/servegate run {HEAD}",
        "",
        "/servegated",
    ],
    ids=["praise", "in a sentence", "quoted", "on the second line", "empty", "another word"],
)
def test_an_ordinary_comment_is_left_alone(fake: FakeGitHub, api: Api, body: str) -> None:
    assert isinstance(say(fake, api, body), NoCommand)
    assert fake.world.log == []


@pytest.mark.parametrize("action", ["edited", "deleted"])
def test_only_a_new_comment_commands(fake: FakeGitHub, api: Api, action: str) -> None:
    assert isinstance(say(fake, api, f"/servegate run {HEAD}", action=action), NoCommand)
    assert fake.world.log == []


def test_text_below_the_command_is_no_matter(fake: FakeGitHub, api: Api) -> None:
    assert isinstance(say(fake, api, f"/servegate run {HEAD}\r\nplease"), Accepted)


def test_a_plain_issue_and_a_closed_pull_request_are_refused(fake: FakeGitHub, api: Api) -> None:
    fake.world.add_issue(12)
    assert isinstance(say(fake, api, f"/servegate run {HEAD}", number=12), RefusedCommand)
    fake.world.pulls[7].state = "closed"
    seen = say(fake, api, f"/servegate run {HEAD}")
    assert isinstance(seen, RefusedCommand)
    assert "closed" in seen.reason


@pytest.mark.parametrize("path", ["/collaborators/", "/pulls/7"])
@pytest.mark.parametrize("code", [403, 404, 500, 502])
def test_what_cannot_be_asked_is_refused(fake: FakeGitHub, api: Api, path: str, code: int) -> None:
    fake.fail(method="GET", path=path, status=code, message="no", times=None)
    assert isinstance(say(fake, api, f"/servegate run {HEAD}"), RefusedCommand)


def test_a_missing_reaction_changes_nothing(fake: FakeGitHub, api: Api) -> None:
    fake.fail(
        method="POST", path="/reactions", status=403, message="Resource not accessible by integration", times=None
    )
    seen = say(fake, api, f"/servegate run {HEAD}")
    assert isinstance(seen, Accepted)
    assert [lost.title for lost in seen.warnings] == ["No reaction to the command"]


def test_a_fork_s_pull_request_can_be_vouched_for(fake: FakeGitHub, api: Api) -> None:
    fake.world.pulls[7].head_repo = "stranger/repo"
    seen = say(fake, api, f"/servegate run {HEAD}")
    assert isinstance(seen, Accepted)
    assert seen.event.head_repository == "stranger/repo"
