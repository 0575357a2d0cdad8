"""The wall towards GitHub: addresses, certificates, paging, retries and translated errors."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from servegate_action.github import status
from servegate_action.github.api import ATTEMPTS, Answer, Api, Refusal, Refused, Server
from servegate_action.github.degrade import Feature, explain
from tests.support.fake_github import FakeGitHub, World, serving, sha
from tests.support.fake_github.clock import InstantClock

STATUS = status.Status("pending", "servegate/x", "measuring", "https://github.com/octo/repo/actions/runs/1")


class Comment(Answer):
    id: int
    body: str


def test_all_pages_are_read(fake: FakeGitHub, api: Api) -> None:
    for number in range(250):
        fake.world.add_comment(7, f"comment {number}", author="someone")
    found = [row.body for row in api.pages(api.path("issues", 7, "comments"), Comment)]
    assert found == [f"comment {number}" for number in range(250)]
    assert len(fake.asked("GET", "comments")) == 3


def test_the_token_s_own_name_is_known(api: Api) -> None:
    assert api.viewer() == "github-actions[bot]"


def test_a_path_cannot_leave_its_repository(fake: FakeGitHub, api: Api) -> None:
    assert api.path("contents", "../../../user") == "/repos/octo/repo/contents/..%2F..%2F..%2Fuser"
    assert api.path("statuses", "a?b#c") == "/repos/octo/repo/statuses/a%3Fb%23c"


@pytest.mark.parametrize("prefix", ["/api/v3", ""])
def test_an_enterprise_server_lives_below_a_prefix(prefix: str, clock: InstantClock) -> None:
    world = World()
    world.add_pull(7)
    with serving(FakeGitHub(world, prefix=prefix)) as fake:
        api = Api(Server(api_url=fake.url, token="t"), repository="octo/repo", clock=clock)
        status.post(api, sha=sha("head7"), status=STATUS)
        assert api.viewer() == "github-actions[bot]"
    assert [row.state for row in world.statuses] == ["pending"]


def test_a_private_authority_is_trusted_when_it_is_named(tmp_path: Path, clock: InstantClock) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    world = World()
    world.add_pull(7)
    with serving(FakeGitHub(world, prefix="/api/v3"), tls=context, name="localhost") as fake:
        trusting = Api(Server(fake.url, "t", ca_bundle=str(bundle)), repository="octo/repo", clock=clock)
        status.post(trusting, sha=sha("head7"), status=STATUS)
        assert len(world.statuses) == 1
        doubting = Api(Server(fake.url, "t"), repository="octo/repo", clock=clock)
        with pytest.raises(Refused) as caught:
            status.post(doubting, sha=sha("head7"), status=STATUS)
    assert caught.value.kind is Refusal.UNREACHABLE
    assert "SSL_CERT_FILE" in explain(Feature.STATUS, caught.value).text


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_what_may_be_repeated_is_repeated_four_times_at_most(
    fake: FakeGitHub, api: Api, clock: InstantClock, method: str
) -> None:
    fake.fail(method=method, status=503, message="down", times=None)
    row = fake.world.add_comment(7, "x")
    path = api.path("issues", "comments", row.id)
    calls: dict[str, Callable[[], object]] = {
        "GET": lambda: api.get(path, Comment),
        "POST": lambda: status.post(api, sha=sha("head7"), status=STATUS),
        "PATCH": lambda: api.patch(path, Comment, {"body": "y"}),
        "DELETE": lambda: api.delete(path),
    }
    with pytest.raises(Refused) as caught:
        calls[method]()
    assert caught.value.kind is Refusal.SERVER
    assert len(fake.asked(method)) == ATTEMPTS
    assert sum(clock.slept) < 20


def test_a_job_that_is_being_cancelled_does_not_wait(fake: FakeGitHub, api: Api, clock: InstantClock) -> None:
    fake.fail(status=503, message="down", times=None)
    hurried = api.hurried()
    for _ in range(2):
        with pytest.raises(Refused):
            status.post(hurried, sha=sha("head7"), status=STATUS)
    assert len(fake.asked("POST")) == 2
    assert clock.slept == []


def test_a_creation_is_not_repeated_after_an_unclear_answer(fake: FakeGitHub, api: Api) -> None:
    fake.fail(method="POST", status=502, message="Bad Gateway", times=None)
    with pytest.raises(Refused) as caught:
        api.post(api.path("issues", 7, "comments"), Comment, {"body": "x"})
    assert caught.value.unclear
    assert len(fake.asked("POST")) == 1


def test_a_creation_is_repeated_after_a_rate_limit(fake: FakeGitHub, api: Api, clock: InstantClock) -> None:
    fake.fail(
        method="POST", status=403, message="You have exceeded a secondary rate limit.", headers={"Retry-After": "5"}
    )
    api.post(api.path("issues", 7, "comments"), Comment, {"body": "x"})
    assert len(fake.world.of(7)) == 1
    assert 5.0 in clock.slept


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 500, "message": "x"}, Refusal.SERVER),
        ({"status": 404, "message": "Not Found"}, Refusal.NOT_FOUND),
        ({"status": 409, "message": "Conflict"}, Refusal.INVALID),
        ({"status": 418, "message": "teapot"}, Refusal.INVALID),
        ({"drop": True}, Refusal.UNREACHABLE),
        ({"status": 200, "raw": "<html>log in</html>"}, Refusal.SERVER),
        ({"status": 200, "raw": ""}, Refusal.SERVER),
        ({"status": 200, "raw": "[1, 2]"}, Refusal.SERVER),
        ({"status": 200, "raw": '{"id": 1, '}, Refusal.SERVER),
        ({"status": 502, "raw": "<html>Bad Gateway</html>"}, Refusal.SERVER),
        ({"status": 500, "raw": "[1, 2]"}, Refusal.SERVER),
        ({"status": 403, "raw": ""}, Refusal.FORBIDDEN),
    ],
    ids=[
        "500",
        "404",
        "409",
        "418",
        "a broken connection",
        "a proxy's page",
        "nothing",
        "a list",
        "half of it",
        "a page with 502",
        "a list with 500",
        "403 without a word",
    ],
)
def test_no_foreign_error_crosses_the_wall(fake: FakeGitHub, api: Api, fault: dict[str, object], kind: Refusal) -> None:
    fake.fail(times=None, **fault)
    with pytest.raises(Refused) as caught:
        api.get(api.path("pulls", 7), Comment)
    assert caught.value.kind is kind
    with pytest.raises(Refused):
        api.viewer()


def test_an_answer_without_what_was_asked_for_is_the_server_s_fault(api: Api) -> None:
    with pytest.raises(Refused, match="an answer without id, body"):
        api.get(api.path("collaborators", "x", "permission"), Comment)


def test_a_redirect_to_another_host_is_not_followed(fake: FakeGitHub, api: Api) -> None:
    fake.fail(status=301, message="moved", headers={"Location": "https://evil.example/repos/x"}, times=None)
    with pytest.raises(Refused):
        api.get(api.path("pulls", 7), Comment)


def test_the_token_is_not_in_the_server_s_repr() -> None:
    assert "secret" not in repr(Server(token="secret"))
