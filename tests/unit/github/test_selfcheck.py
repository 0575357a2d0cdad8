"""The last look at a comment: what must be found, and what must not be mistaken for it."""

from __future__ import annotations

import pytest

from servegate_action.github.selfcheck import Expected, findings

MARKER = (
    f"<!-- servegate:v1 gate=llama-8b-chat head={'a' * 40} run=1234.1 verdict=reject -->\n<!-- servegate:earlier -->"
)
HEAD = "|    | Check | Baseline | Candidate | Change | Allowed | Verdict |\n|---|---|---|---|---|---|---|"


def table(label: str = "vLLM 0.33", rows: int = 8) -> str:
    return "\n".join([HEAD, *(f"| {n} ✅ | {label} | 1 | 2 | – | 2 % | PASS |" for n in range(1, rows + 1))])


def body(label: str = "vLLM 0.33", *, below: str = "", rows: int = 8) -> str:
    return (
        f"{MARKER}\n### ❌ servegate `llama-8b-chat`: rejected\n\n**It got worse: +6.3 %**\n"
        f"[Run 1234](https://github.com/octo/repo/actions/runs/1234)\n\n{table(label, rows)}\n\n"
        f"<details>\n<summary>every cell</summary>\n\ntext\n\n</details>\n\n{below}\n"
    )


def wrong(text: str) -> list[str]:
    return findings(text, expected=Expected())


def test_a_good_comment_has_no_findings() -> None:
    chart = "```mermaid\nxychart-beta\n  line [1, 2]\n```\n\n```\n@not-a-mention <b>\n```\n"
    assert wrong(body(below=chart + "`@code` and `#12`, 3 × 4, a\u2060@\u2060b, user&#96;s")) == []


HOSTILE = {
    "a mention": ("@octo", "a mention"),
    "a team": ("@octo/admins", "a mention"),
    "a mention behind a bracket": ("(@octo)", "a mention"),
    "a mention by entity": ("&#64;octo", "a mention"),
    "a mention by backslash": ("\\@octo", "a mention"),
    "an issue": ("#12", "a reference"),
    "an issue elsewhere": ("octo/repo#12", "a reference"),
    "an old issue form": ("GH-12", "a reference"),
    "an issue by entity": ("&#35;12", "a reference"),
    "a bare address": ("https://evil.example/x", "a bare address"),
    "a bare www": ("www.evil.example", "a bare address"),
    "a link": ("[run](https://evil.example)", "a link to elsewhere"),
    "a script link": ("[run](javascript:alert)", ""),
    "a link by another host's user": ("[run](https://github.com@evil.example)", "a link to elsewhere"),
    "a link to a look-alike": ("[run](https://github.com.evil.example)", "a link to elsewhere"),
    "an automatic link": ("<https://evil.example>", "a link to elsewhere"),
    "a mail address": ("<mail@evil.example>", "a link to elsewhere"),
    "an image": ("![x](https://evil.example/x.png)", "an image"),
    "an image of our own host": ("![x](https://github.com/x.png)", "an image"),
    "an HTML image": ("<img src=//evil.example/x.png>", "HTML that is not ours"),
    "bold HTML": ("<b>PASS</b>", "HTML that is not ours"),
    "an open details": ("<details open>", "HTML that is not ours"),
    "a comment": ("<!-- hidden -->", "HTML that is not ours"),
    "a marker": ("<!-- servegate:v1 gate=x head=- run=1.1 verdict=pass -->", "HTML that is not ours"),
    "a script": ("<script>alert(1)</script>", "HTML that is not ours"),
    "a processing instruction": ("<?php ?>", "HTML that is not ours"),
    "an override of direction": ("abc\u202egnp", "an invisible"),
    "a null": ("a\x00b", "an invisible"),
    "an escape": ("a\x1b[31mb", "an invisible"),
}


@pytest.mark.parametrize("place", ["in the table", "below it", "on a line of its own"])
@pytest.mark.parametrize(("text", "finding"), HOSTILE.values(), ids=list(HOSTILE))
def test_foreign_text_that_got_through_is_found(text: str, finding: str, place: str) -> None:
    if place == "in the table":
        seen = wrong(body(text))
    else:
        seen = wrong(body(below=f"words {text} words" if place == "below it" else f"\n{text}\n"))
    if finding:
        assert any(finding in one for one in seen), seen


def test_a_script_link_is_no_link_to_a_parser() -> None:
    """markdown-it refuses the scheme, so that nothing is linked; GitHub does the same."""
    assert wrong(body("[run](javascript:alert)")) == []


TABLES = {
    "a pipe": body("vLLM | 0.33"),
    "a row less": body(rows=7),
    "a row more": body(rows=9),
    "no table": body().replace("|---|---|---|---|---|---|---|", "no table"),
    "a line end": body("vLLM\n0.33"),
    "a foreign table first": body().replace("**It", "| a |\n|---|\n| b |\n\n**It"),
}


@pytest.mark.parametrize("text", TABLES.values(), ids=list(TABLES))
def test_the_checklist_has_all_its_rows_and_columns(text: str) -> None:
    assert any("checklist" in one for one in wrong(text)), wrong(text)


def test_the_marker_is_the_first_line() -> None:
    assert wrong("\n" + body()) != []
    assert any("first line" in one for one in wrong(body().removeprefix("<!--")))


@pytest.mark.parametrize(
    "fence",
    [
        '```mermaid\nflowchart LR\n a --> b\n click a href "https://evil.example"\n```',
        "```mermaid\n%%{init: {}}%%\npie\n```",
        "```mermaid\nflowchart LR\n a[<img src=x>]\n```",
        "```math\n\\href{x}{y}\n```",
        "```geojson\n{}\n```",
        "```stl\nsolid\n```",
    ],
    ids=["a click", "a directive", "HTML in a chart", "a formula", "a map", "a solid"],
)
def test_what_github_renders_from_a_code_block_is_ours_only(fence: str) -> None:
    assert any("chart" in one or "code block" in one for one in wrong(body(below=fence)))


def test_a_code_block_that_is_closed_early_is_seen() -> None:
    assert wrong(body(below="```text\nlog\n```\n@octo get well\n```")) != []


def test_the_size_is_in_characters() -> None:
    assert any("characters" in one for one in wrong(body(below="漢" * 70_000)))


def test_without_a_verdict_there_is_no_checklist_to_miss() -> None:
    assert findings(f"{MARKER}\n### could not measure\n", expected=Expected(rows=0)) == []


def test_links_to_an_enterprise_server_are_ours_there() -> None:
    text = body().replace("github.com", "git.example.com")
    assert wrong(text) != []
    assert findings(text, expected=Expected(hosts=frozenset({"git.example.com"}))) == []
