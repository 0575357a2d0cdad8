"""What stands on the pull request when there is no verdict: whole sentences, and nothing of foreign text's own making."""

from __future__ import annotations

import pytest

from servegate_action.action.publishing import nothing
from servegate_action.errors import CannotMeasure, ConfigError, Problem
from servegate_action.github.comment import Marker, Occasion, compose
from servegate_action.github.inputs import RunId
from servegate_action.github.selfcheck import Expected, findings
from servegate_action.report.escape import JOINER
from tests.support.hostile import HOSTILE
from tests.unit.github.test_outputs import commands

MARKER = Marker("llama-8b-chat", "a" * 40, RunId(1234, 1), "error")


def test_every_problem_of_a_configuration_is_named() -> None:
    problems = [Problem("gate.yml", line, f"key{line}", "unknown key") for line in (3, 14)]
    body = nothing(ConfigError(problems), gate="chat").text(Occasion(max_chars=60_000)).replace(JOINER, "")
    assert "- gate.yml:3: key3: unknown key\n- gate.yml:14: key14: unknown key\n" in body


def test_sentences_are_whole_and_only_the_status_line_is_cut() -> None:
    long = "the stack 'candidate' ended before it was ready " + "because of a reason " * 8 + "that has an end"
    said = nothing(CannotMeasure(long, why="a flag", next_step="read the log"), gate="chat")
    assert said.text(Occasion(max_chars=60_000)).count(long) == 1
    assert len(said.status_line) <= 140


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_text_stays_text(text: str) -> None:
    errors = (CannotMeasure(text, why=text, next_step=text), ConfigError([Problem(text, 1, text, text)]))
    for said in (nothing(error, gate="llama-8b-chat") for error in errors):
        body = compose(MARKER, said.text, Occasion(max_chars=60_000))
        assert findings(body, expected=Expected(rows=0)) == []
        assert commands(said.status_line) == []
