"""Uploading from inside the action: blocks, size, hash; and a warning for everything that goes wrong."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from servegate_action.github import upload
from servegate_action.github.api import Refusal
from servegate_action.github.degrade import Feature, Lost
from servegate_action.github.inputs import ActionsEnvironment, read_environment
from servegate_action.github.upload import Uploaded
from tests.support.fake_github.clock import InstantClock
from tests.support.fake_github.results import FakeResults, runtime_token, serving_results


@pytest.fixture
def results() -> Iterator[FakeResults]:
    with serving_results() as running:
        yield running


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    folder = tmp_path / "servegate-report"
    (folder / "rounds" / "01-baseline").mkdir(parents=True)
    (folder / "verdict.json").write_text(json.dumps({"word": "PASS"}))
    (folder / "rounds" / "01-baseline" / "requests.jsonl.gz").write_bytes(b"\x1f\x8b" + bytes(range(256)) * 40_000)
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def environment(results: FakeResults, tmp_path: Path, token: str | None = None) -> ActionsEnvironment:
    return read_environment(
        {
            "GITHUB_REPOSITORY": "octo/repo",
            "GITHUB_RUN_ID": "1",
            "GITHUB_EVENT_NAME": "push",
            "RUNNER_TEMP": str(tmp_path),
            "ACTIONS_RESULTS_URL": results.url + "/",
            "ACTIONS_RUNTIME_TOKEN": runtime_token() if token is None else token,
        }
    )


def send(evidence: Path, around: ActionsEnvironment) -> Uploaded | Lost:
    return upload.upload(evidence, name="servegate: a/b", environment=around, sleep=InstantClock().sleep)


def test_the_folder_arrives_whole_and_in_blocks(results: FakeResults, evidence: Path, tmp_path: Path) -> None:
    sent = send(evidence, environment(results, tmp_path))
    assert isinstance(sent, Uploaded)
    assert (sent.id, sent.name, sent.size_bytes) == ("1234", "servegate- a-b", len(results.blob))
    assert results.artifacts == {"servegate- a-b": {"final": True}}
    assert len(results.blocks) == 2
    with zipfile.ZipFile(io.BytesIO(results.blob)) as archive:
        assert sorted(archive.namelist()) == ["rounds/01-baseline/requests.jsonl.gz", "verdict.json"]


def test_the_runtime_token_never_reaches_the_storage(results: FakeResults, evidence: Path, tmp_path: Path) -> None:
    send(evidence, environment(results, tmp_path))
    assert set(results.tokens_at_storage) == {""}


def test_a_passing_fault_is_ridden_out(results: FakeResults, evidence: Path, tmp_path: Path) -> None:
    results.failures = [503, 500]
    assert isinstance(send(evidence, environment(results, tmp_path)), Uploaded)


@pytest.mark.parametrize(
    "token", ["", "x", "x.e30.x", "x.!!!.x", runtime_token("Actions.Results:a"), runtime_token("")]
)
def test_a_token_without_the_scope_is_a_warning(
    results: FakeResults, evidence: Path, tmp_path: Path, token: str
) -> None:
    lost = send(evidence, environment(results, tmp_path, token))
    assert isinstance(lost, Lost)
    assert lost.feature is Feature.ARTIFACT
    assert "actions/upload-artifact" in lost.text


def test_a_lasting_fault_is_a_warning_without_the_signed_address(
    results: FakeResults, evidence: Path, tmp_path: Path
) -> None:
    results.failures = [200, *[503] * 9]
    lost = send(evidence, environment(results, tmp_path))
    assert isinstance(lost, Lost)
    results.failures = []
    gone = replace(environment(results, tmp_path), results_url="http://127.0.0.1:9")
    lost = send(evidence, gone)
    assert isinstance(lost, Lost)
    assert lost.kind is Refusal.UNREACHABLE
    assert "SECRET" not in lost.text


def test_an_enterprise_server_has_no_such_service(results: FakeResults, evidence: Path, tmp_path: Path) -> None:
    lost = send(evidence, replace(environment(results, tmp_path), server_url="https://git.example.com"))
    assert isinstance(lost, Lost)
    assert "Enterprise" in lost.text
    assert results.artifacts == {}
