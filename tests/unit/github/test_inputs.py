"""Inputs and the runner's variables, from a mapping."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate_action.errors import UsageError
from servegate_action.github.inputs import NAMES, Inputs, RunId, read_environment, read_inputs

JOB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REPOSITORY": "octo/repo",
    "GITHUB_RUN_ID": "1234",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_EVENT_NAME": "pull_request",
    "GITHUB_WORKSPACE": "/github/workspace",
}


def test_inputs_that_were_not_given_have_defaults() -> None:
    assert read_inputs({}) == Inputs()
    assert read_inputs({f"INPUT_{name.upper()}": "" for name in NAMES}) == Inputs()


def test_hyphens_stay_in_the_variable_s_name() -> None:
    seen = read_inputs({"INPUT_GITHUB-TOKEN": "ghs_x", "INPUT_OUTPUT-DIR": "out", "INPUT_UPLOAD-ARTIFACT": "true"})
    assert (seen.token, seen.output_dir, seen.upload_artifact) == ("ghs_x", "out", True)


def test_the_token_is_not_in_any_repr() -> None:
    assert "ghs_secret" not in repr(read_inputs({"INPUT_GITHUB-TOKEN": "ghs_secret"}))
    assert "eyJ" not in repr(read_environment(JOB | {"ACTIONS_RUNTIME_TOKEN": "eyJsecret"}))


def test_everything_wrong_is_told_at_once() -> None:
    given = {
        "INPUT_MODE": "go",
        "INPUT_COMMENT": "maybe",
        "INPUT_UPLOAD-ARTIFACT": "yes",
        "INPUT_ACCELERATOR": "tpu",
        "INPUT_NUMBER": "-1",
        "INPUT_OUTPUT-DIR": "../elsewhere",
    }
    with pytest.raises(UsageError) as caught:
        read_inputs(given)
    assert all(
        f"`{name}`" in caught.value.what for name in ("mode", "comment", "upload-artifact", "accelerator", "number")
    )
    assert "run, measure, publish, command" in caught.value.what


@pytest.mark.parametrize("number", ["0", "x", "1.5", "²", "9" * 20, "1 2"])
def test_a_number_is_that_of_a_thread(number: str) -> None:
    with pytest.raises(UsageError, match="number"):
        read_inputs({"INPUT_NUMBER": number})


def test_a_number_may_have_its_sign() -> None:
    assert read_inputs({"INPUT_NUMBER": " #12 "}).number == 12


@pytest.mark.parametrize("folder", ["..", "a/../../b", "/etc", "/github/workspace/../x", ".", "a\nb"])
def test_the_output_stays_in_the_workspace(folder: str) -> None:
    with pytest.raises(UsageError, match="output-dir"):
        read_inputs(JOB | {"INPUT_OUTPUT-DIR": folder})


@pytest.mark.parametrize(("folder", "seen"), [("out/x/", "out/x"), ("/github/workspace/out", "out"), ("./out", "out")])
def test_the_output_is_told_relative_to_the_workspace(folder: str, seen: str) -> None:
    assert read_inputs(JOB | {"INPUT_OUTPUT-DIR": folder}).output_dir == seen


def test_the_environment_of_a_job() -> None:
    seen = read_environment(JOB | {"STATE_sha": "abc", "GITHUB_RETENTION_DAYS": "90"})
    assert seen.run == RunId(1234, 2)
    assert str(seen.run) == "1234.2"
    assert seen.run_url == "https://github.com/octo/repo/actions/runs/1234/attempts/2"
    assert seen.state == {"sha": "abc"}
    assert seen.retention_days == 90
    assert seen.event_path is None


def test_runs_are_ordered_by_id_and_then_by_attempt() -> None:
    assert RunId(9, 9) < RunId(10, 1) < RunId(10, 2)


@pytest.mark.parametrize(
    ("server", "enterprise"),
    [
        ("https://github.com", False),
        ("https://octo.ghe.com", False),
        ("https://git.example.com", True),
        ("https://git.example.com:8443", True),
        ("https://github.com.evil.example", True),
    ],
)
def test_an_enterprise_server_is_known_by_its_name(server: str, enterprise: bool) -> None:
    assert read_environment(JOB | {"GITHUB_SERVER_URL": server}).is_enterprise_server is enterprise


def test_the_certificates_of_an_enterprise_server_are_found() -> None:
    assert read_environment(JOB).ca_bundle is None
    assert read_environment(JOB | {"NODE_EXTRA_CA_CERTS": "/a", "SSL_CERT_FILE": "/b"}).ca_bundle == "/b"


def test_outside_of_a_job_the_missing_variables_are_named() -> None:
    with pytest.raises(UsageError, match="GITHUB_REPOSITORY, GITHUB_RUN_ID"):
        read_environment({"GITHUB_EVENT_NAME": "push"})


def test_paths_are_paths() -> None:
    seen = read_environment(JOB | {"GITHUB_OUTPUT": "/out", "GITHUB_EVENT_PATH": "/event.json"})
    assert (seen.output_path, seen.event_path) == (Path("/out"), Path("/event.json"))
