"""What a stack sees of the job's environment, and what may be shown of its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.config.base import belongs_to_the_job
from servegate_action.errors import UsageError
from servegate_action.launch.environment import ALLOWED_NAMES, ALLOWED_PREFIXES, StackEnvironment, declared, for_process

JOBS_OWN = (
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "INPUT_GITHUB-TOKEN",
    "INPUT_CONFIG",
    "GITHUB_OUTPUT",
    "GITHUB_ENV",
)


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_-]{0,20}", fullmatch=True), st.text(max_size=5)))
def test_nothing_but_the_allow_list_passes(environment: dict[str, str]) -> None:
    passed = for_process((), environment=environment, label="x").variables
    assert set(passed) == {name for name in environment if name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)}


@pytest.mark.parametrize("name", JOBS_OWN)
def test_what_belongs_to_the_job_never_passes_by_itself(name: str) -> None:
    assert belongs_to_the_job(name)
    assert for_process((), environment={name: "x"}, label="x").variables == {}


def test_a_declared_name_is_taken_from_the_job_and_its_value_is_secret() -> None:
    found = declared(("HF_TOKEN", "MODE=fast"), environment={"HF_TOKEN": "hf_12345"}, label="x")
    assert found.variables == {"HF_TOKEN": "hf_12345", "MODE": "fast"}
    assert found.secrets == ("hf_12345",)


def test_a_written_value_is_secret_when_its_name_sounds_so() -> None:
    assert declared(("API_KEY=abcdef",), environment={}, label="x").secrets == ("abcdef",)
    assert declared(("MAX_TOKENS=2048",), environment={}, label="x").secrets == ()


def test_a_declared_name_that_is_not_set_says_so() -> None:
    with pytest.raises(UsageError, match="HF_TOKEN, which is not set") as failed:
        declared(("HF_TOKEN",), environment={}, label="x")
    assert "env:" in failed.value.next_step


def test_a_value_too_short_to_be_a_secret_does_not_blank_half_of_the_log() -> None:
    assert declared(("DEVICE",), environment={"DEVICE": "0"}, label="x").secrets == ()


@pytest.mark.parametrize(
    "command,shown",
    [
        (("serve", "--api-key", "abc"), ("serve", "--api-key", "***")),
        (("serve", "--api-key=abc"), ("serve", "--api-key=***")),
        (("serve", "HF_TOKEN=abc"), ("serve", "HF_TOKEN=***")),
        (("serve", "--url", "http://u:pass1234@h"), ("serve", "--url", "http://u:***@h")),
        (("serve", "--tokenizer", "llama"), ("serve", "--tokenizer", "llama")),
        (("serve", "--max-num-batched-tokens", "8192"), ("serve", "--max-num-batched-tokens", "8192")),
        (("serve", "--max-num-batched-tokens=8192"), ("serve", "--max-num-batched-tokens=8192")),
    ],
)
def test_a_recorded_command_holds_no_secret(command: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert StackEnvironment({}, ("pass1234",)).shown(command) == shown


def test_the_document_lists_what_passes() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/operations.md").read_text(encoding="utf-8")
    block = text.split("declares:\n\n")[1].split("\n\n")[0].split()
    assert set(block) == ALLOWED_NAMES | {f"{prefix}*" for prefix in ALLOWED_PREFIXES}
    assert len(block) == len(set(block))
