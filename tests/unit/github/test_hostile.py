"""Foreign text in every place of a judgement at once, all the way to what GitHub and the runner would see.

Labels, model names, engine answers, flags, log lines, branch names and model output all reach a report as plain strings.
Each case puts one hostile text into every such string, renders comment, summary and status line, and looks at them with
readers that had no part in writing them: a Markdown parser, and the runner's own rules for commands.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from servegate_action.analysis.judgement import Judgement
from servegate_action.github.comment import Marker, Occasion, compose, read_marker
from servegate_action.github.inputs import RunId
from servegate_action.github.outputs import JobLog
from servegate_action.github.selfcheck import Expected, findings
from servegate_action.report.comment import comment
from servegate_action.report.status import status_line
from servegate_action.report.summary import summary
from tests.support import judgements
from tests.unit.github.test_outputs import commands

MARKER = Marker("llama-8b-chat", "a" * 40, RunId(1234, 1), "reject")
FORGED = f"<!-- servegate:v1 gate=llama-8b-chat head={'b' * 40} run=9999.1 verdict=pass -->"

HOSTILE = {
    "a pipe": "vLLM | 0.33 | PASS |",
    "a whole row of the table": "x |\n| 8 ✅ | No metric regressed | – | – | – | – | PASS",
    "a table of its own": "\n\n| a | b |\n|---|---|\n| c | d |\n",
    "an escaped pipe": "vLLM \\| 0.33",
    "backticks": "`` ` ``` ~~~",
    "a code fence": "\n```\n@octo\n```\n",
    "a fence that never closes": "\n~~~~\n",
    "a heading": "\n# PASS\n",
    "an underlined heading": "PASS\n====",
    "a quotation": "\n> [!NOTE]\n> approved",
    "a rule": "\n---\n",
    "a list": "\n1. one\n- two\n+ three",
    "a task list": "\n- [x] approved by @octo",
    "bold HTML": "<b>PASS</b>",
    "an image in HTML": "<img src=https://evil.example/pixel.png>",
    "a script": "<script>fetch('//evil.example')</script>",
    "the end of our section": "</summary></details></details>",
    "an HTML comment": "<!-- hide the rest",
    "the end of a comment": "--> visible",
    "a forged marker": FORGED,
    "a forged marker on a line of its own": f"x\n{FORGED}\ny",
    "a processing instruction": "<?xml?><!DOCTYPE x><![CDATA[x]]>",
    "an entity": "&lt;img&gt; &#64;octo &commat;octo &num;12",
    "a mention": "@octo please approve",
    "a team": "@octo/admins",
    "a mention without a blank": "x(@octo)",
    "a mail address": "root@evil.example",
    "an issue": "fixes #12",
    "an issue elsewhere": "fixes octo/repo#12 and GH-12",
    "a commit": "octo/repo@5d6e7f85d6e7f85d6e7f85d6e7f85d6e7f85d6e7",
    "a link": "[PASS](https://evil.example)",
    "a link by reference": "[PASS][1]\n\n[1]: https://evil.example",
    "an image": "![PASS](https://evil.example/pass.svg)",
    "a bare address": "see https://evil.example/x",
    "a bare www": "see www.evil.example",
    "an address in brackets": "<https://evil.example>",
    "a script address": "[x](javascript:alert(1))",
    "an emoji code": ":white_check_mark: :octocat:",
    "a formula": "$\\href{javascript:x}{y}$ $$x$$",
    "a footnote": "x[^1]\n\n[^1]: evil",
    "a direction override": "abc\u202egnp.exe\u2066x",
    "zero widths": "PA\u200bSS\u200d\ufeff",
    "stacked marks": "Z" + "\u0301" * 50,
    "nulls and escapes": "a\x00b\x1b[31mc\x07",
    "lone surrogates of a broken log": "a\ud800b",
    "an error for the runner": "::error::owned",
    "an output for the runner": "x\n::set-output name=verdict::PASS",
    "the old form": "loss ##[error]owned",
    "the old form parted by a joiner": "##\u2060[error]owned",
    "the end of a quarantine": "::stop-commands::x\n::x::",
    "a carriage return": "fine\r::add-mask::e",
    "a heredoc's end": "x\nEOF\nverdict=PASS",
    "a template": "{{ 7 * 7 }} {% raw %} ${{ secrets.TOKEN }}",
    "a chart's end": '"]\n```\n@octo',
    "a chart's action": 'a"] click a href "https://evil.example"',
    "a very long word": "W" * 20_000,
    "many lines": "\n".join(["line"] * 5000),
    "blanks only": " \t\u00a0 ",
    "nothing": "",
}

FOREIGN = {
    "baseline_label", "candidate_label", "operator", "accelerator", "headline", "advice", "notes", "voided", "failure",
    "rejected", "what", "baseline", "candidate", "model", "quantization", "batch", "engine", "details", "detail",
    "policy_edits", "policy_from", "repository", "label", "cell", "note", "absent", "why_not_gated", "title", "run_id",
    "run_url", "idle_policy", "break_even_sentence", "traffic", "poisson_check", "method", "name", "date", "allowed",
}  # fmt: skip


def poisoned(judgement: Judgement, text: str) -> Judgement:
    """The same judgement with one text in every field that holds text of others."""

    def walk(value: object, field: str) -> object:
        if isinstance(value, dict):
            return {name: walk(entry, name) for name, entry in value.items()}
        if isinstance(value, list | tuple):
            return tuple(walk(entry, field) for entry in value)
        return text if isinstance(value, str) and field in FOREIGN else value

    def copy(value: object, field: str) -> object:
        if isinstance(value, list | tuple):
            return tuple(copy(entry, field) for entry in value)
        names = getattr(type(value), "model_fields", None)
        if names is not None and hasattr(value, "model_copy"):
            changed = {name: copy(getattr(value, name), name) for name in names}
            return value.model_copy(update=changed)
        return walk(value, field)

    made = copy(judgement, "")
    assert isinstance(made, Judgement)
    return made


def body_of(judgement: Judgement) -> str:
    return compose(
        MARKER,
        lambda occasion: comment(judgement, max_chars=occasion.max_chars),
        Occasion(max_chars=60_000),
    )


JUDGEMENTS: dict[str, Callable[[], Judgement]] = {
    "rejected": judgements.rejected,
    "invalid": judgements.invalid,
    "without rounds": judgements.without_rounds,
}


@pytest.mark.parametrize("made", JUDGEMENTS.values(), ids=list(JUDGEMENTS))
def test_an_honest_judgement_passes_the_last_look(made: Callable[[], Judgement]) -> None:
    assert findings(body_of(made()), expected=Expected()) == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_text_gets_neither_into_the_comment_nor_to_the_runner(text: str) -> None:
    judgement = poisoned(judgements.rejected(), text)
    body = body_of(judgement)
    assert findings(body, expected=Expected()) == []
    assert read_marker(body) == MARKER
    body.encode("utf-8")
    line = status_line(judgement)
    assert len(line) <= 140
    assert "\n" not in line
    assert commands(line) == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_log_line_commands_no_runner(text: str) -> None:
    stream = io.StringIO()
    log = JobLog(stream, commands=True)
    shown = text.encode("utf-8", errors="replace").decode()
    log.line(shown)
    log.error(shown, shown)
    assert [name for name, _ in commands(stream.getvalue())] == ["error"]


@pytest.mark.parametrize("name", ["a whole row of the table", "a forged marker", "a mention", "the end of our section"])
@pytest.mark.parametrize("made", [judgements.invalid, judgements.without_rounds], ids=["invalid", "without rounds"])
def test_the_other_verdicts_hold_as_well(made: Callable[[], Judgement], name: str) -> None:
    judgement = poisoned(made(), HOSTILE[name])
    assert findings(body_of(judgement), expected=Expected()) == []
    stream = io.StringIO()
    JobLog(stream, commands=True).line(summary(judgement))
    assert commands(stream.getvalue()) == []


def test_the_set_is_large_and_its_readers_can_see() -> None:
    """Without the escaping most of it is found: the texts are hostile, and the parser is not blind."""
    assert len(HOSTILE) >= 40
    table = "|a|b|c|d|e|f|g|\n|---|---|---|---|---|---|---|\n" + "|1|2|3|4|5|6|7|\n" * 8
    raw = [
        name
        for name, text in HOSTILE.items()
        if findings(f"{MARKER.line()}\n\n{text}\n\n{table}", expected=Expected()) or commands(text)
    ]
    assert len(raw) >= 30
