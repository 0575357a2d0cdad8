"""A second opinion on our requests: GitHub's own OpenAPI description, held by a server that is not ours.

The fake GitHub was written by the same hands as the code that it tests. Here Stoplight's Prism reads the description that
Octokit publishes, refuses every request that does not fit it, and answers with the description's own examples, which our
models then have to read. It needs Node, npm and a few minutes, so it runs when SERVEGATE_SECOND_OPINION=1 is set.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servegate_action.errors import CannotMeasure, ExitCode
from servegate_action.github import checkrun, policy, publish, pulls, status
from servegate_action.github.api import Answer, Api, Refusal, Refused, Server
from servegate_action.github.checkrun import Conclusion
from servegate_action.github.publish import Finished, Options
from tests.integration.github.conftest import finished, place_at
from tests.support.fake_github import sha
from tests.support.fake_github.clock import InstantClock

PRISM = "@stoplight/prism-cli@5.16.0"
DESCRIPTION = "@octokit/openapi@23.0.2"
PATHS = (
    "/repos/{owner}/{repo}/statuses/{sha}",
    "/repos/{owner}/{repo}/commits/{ref}",
    "/repos/{owner}/{repo}/commits/{ref}/statuses",
    "/repos/{owner}/{repo}/commits/{commit_sha}/pulls",
    "/repos/{owner}/{repo}/commits/{ref}/check-runs",
    "/repos/{owner}/{repo}/check-runs",
    "/repos/{owner}/{repo}/check-runs/{check_run_id}",
    "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repos/{owner}/{repo}/issues/{issue_number}/comments",
    "/repos/{owner}/{repo}/issues/comments/{comment_id}",
    "/repos/{owner}/{repo}/issues/comments/{comment_id}/reactions",
    "/repos/{owner}/{repo}/pulls",
    "/repos/{owner}/{repo}/pulls/{pull_number}",
    "/repos/{owner}/{repo}/pulls/{pull_number}/commits",
    "/repos/{owner}/{repo}/collaborators/{username}/permission",
    "/repos/{owner}/{repo}/contents/{path}",
    "/repos/{owner}/{repo}/git/blobs/{file_sha}",
)
Json = dict[str, object]

wanted = os.environ.get("SERVEGATE_SECOND_OPINION") == "1"
pytestmark = [
    pytest.mark.skipif(not wanted, reason="a second opinion takes minutes: set SERVEGATE_SECOND_OPINION=1 to have it"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="a second opinion needs Node and npm, which are not here"),
]


def description(package: Path, url: str) -> Json:
    """GitHub's description, cut down to the paths that we use and what they refer to, on our own address."""
    with tarfile.open(package) as archive:
        file = archive.extractfile("package/generated/api.github.com.json")
        assert file is not None
        whole = json.loads(file.read().replace(b"https://api.github.com", url.encode()))
    paths = {name: whole["paths"][name] for name in PATHS}
    answer = paths["/repos/{owner}/{repo}/contents/{path}"]["get"]["responses"]["200"]
    plain = answer["content"]["application/json"]  # the first is a media type that Prism cannot write
    examples = {name: one for name, one in plain["examples"].items() if name.endswith("-is-a-file")}
    answer["content"] = {"application/json": {**plain, "examples": examples}}
    kept: dict[str, Json] = {}
    todo = [paths]
    while todo:
        for name in _references(todo.pop()):
            kind, _, entry = name.removeprefix("#/components/").partition("/")
            if entry not in kept.setdefault(kind, {}):
                kept[kind][entry] = whole["components"][kind][entry]
                todo.append(whole["components"][kind][entry])
    _mend([paths, kept])
    return {
        "openapi": whole["openapi"],
        "info": whole["info"],
        "servers": [{"url": url}],
        "paths": paths,
        "components": kept,
    }


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for entry in value.values():
            yield from _references(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _references(entry)


def _mend(value: object) -> None:
    """Take out what would lead an answer astray: `Link` headers (they page for ever), and examples wrapped twice."""
    if isinstance(value, dict):
        headers = value.get("headers")
        if isinstance(headers, dict):
            headers.pop("Link", None)
        example = value.get("value")
        if isinstance(example, dict) and str(example.get("$ref", "")).startswith("#/components/examples/"):
            value["value"] = {"$ref": f"{example['$ref']}/value"}
        for entry in value.values():
            _mend(entry)
    elif isinstance(value, list):
        for entry in value:
            _mend(entry)


@pytest.fixture(scope="module")
def prism(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prism")
    npm = ["npm", "--silent", "--prefix", str(folder)]
    subprocess.run([*npm, "install", "--no-audit", "--no-fund", PRISM], cwd=folder, check=True, timeout=300)
    packed = subprocess.run([*npm, "pack", DESCRIPTION], cwd=folder, check=True, capture_output=True, text=True).stdout
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    spec = folder / "github.json"
    spec.write_text(json.dumps(description(folder / packed.strip(), url)))
    command = [str(folder / "node_modules/.bin/prism"), "mock", "--port", str(port), str(spec)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "Prism is listening" in line:
                break
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture
def opinion(prism: str) -> Api:
    return Api(Server(api_url=prism, token="t"), repository="octo/repo", clock=InstantClock())


class Anything(Answer):
    pass


def test_it_refuses_what_github_would_refuse(opinion: Api) -> None:
    with pytest.raises(Refused) as caught:
        opinion.post(opinion.path("statuses", sha("x")), Anything, {"state": "neutral"})
    assert caught.value.kind is Refusal.INVALID
    with pytest.raises(Refused):
        opinion.post(opinion.path("issues", 7, "comments"), Anything, {"text": "x"})


def test_statuses_fit(opinion: Api) -> None:
    for state in ("pending", "success", "failure", "error"):
        said = status.Status(state, "servegate/x", "words", "https://github.com/octo/repo/actions/runs/1")
        status.post(opinion, sha=sha("x"), status=said)
    assert status.current(opinion, sha=sha("x"), context="no such context") is None


def test_check_runs_fit(opinion: Api) -> None:
    run = checkrun.start(opinion, sha=sha("x"), name="servegate/x", details_url="https://github.com/x")
    checkrun.finish(opinion, run_id=run.id, conclusion=Conclusion(True, "PASS", "# PASS"))
    checkrun.find(opinion, sha=sha("x"), name="servegate/x", details_url="https://github.com/x")


@pytest.mark.parametrize("word", ["PASS", "REJECT"])
def test_a_whole_publication_fits(opinion: Api, word: str) -> None:
    done: Finished = finished(word, code=ExitCode[word])
    told = publish.publish(done, place=place_at(sha("x")), api=opinion, options=Options(check_run=True))
    assert told.warnings == ()
    assert told.status_posted
    assert told.comment_written


def test_questions_fit(opinion: Api) -> None:
    assert pulls.get(opinion, 7).head_sha
    assert pulls.is_pull_request(opinion, 7)
    pulls.belongs(opinion, number=7, sha=sha("x"))
    with pytest.raises(CannotMeasure) as caught:  # the published example's content is cut short: words, not base64
        policy.fetch([".servegate.yml"], ref="refs/heads/main", sources=policy.Sources(api=opinion))
    assert "a file that is not base64" in caught.value.why


class Permission(Answer):
    permission: str


def test_the_command_s_questions_and_reactions_fit(opinion: Api) -> None:
    asked = opinion.get(opinion.path("collaborators", "octocat", "permission"), Permission)
    assert asked.permission in ("admin", "write", "read", "none")
    for content in ("rocket", "-1"):
        opinion.post(opinion.path("issues", "comments", 1, "reactions"), Anything, {"content": content})
    opinion.patch(opinion.path("issues", "comments", 1), Anything, {"body": "x"})
    opinion.delete(opinion.path("issues", "comments", 1))
