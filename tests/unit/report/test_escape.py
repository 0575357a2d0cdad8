from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.report import escape
from tests.support import markdown
from tests.support.hostile import HOSTILE

ANY_TEXT = st.text(alphabet=st.characters(), max_size=60)
SYNTAX = st.text(alphabet="`|\\<>*_[]()~!#$&@:/.-+=0123456789abcdefGHgh \n\"'{}%^", max_size=40)
FOREIGN = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def shown(text: str, max_chars: int = 200) -> str:
    """What a reader should see of a foreign text in Markdown."""
    return escape.short_hashes(escape.clean(text, max_chars=max_chars)).replace("$", "\uff04")


def assert_harmless(text: str, source: str) -> None:
    assert "\n" not in source
    seen = markdown.visible(f"x {source} x").replace("$", "\uff04")
    assert seen == (f"x {shown(text)} x" if shown(text) else "x  x")
    assert markdown.kinds(f"x {source} x") <= {
        "paragraph_open",
        "inline",
        "paragraph_close",
        "text",
        "code_inline",
        "text_special",
    }
    plain = markdown.plain_text(f"x {source} x")
    for pattern in (markdown.MENTION, markdown.REFERENCE, markdown.BARE_LINK, markdown.EMOJI_CODE, markdown.BARE_SHA):
        assert not pattern.search(plain), (pattern.pattern, plain)


@FOREIGN
def test_hostile_text_is_shown_literally_in_a_sentence(text: str) -> None:
    assert_harmless(text, escape.inline(text))


@FOREIGN
def test_hostile_text_is_shown_literally_as_code(text: str) -> None:
    assert_harmless(text, escape.code(text, max_chars=200))


@given(ANY_TEXT | SYNTAX)
def test_any_text_is_shown_literally(text: str) -> None:
    assert_harmless(text, escape.inline(text))
    assert_harmless(text, escape.code(text, max_chars=200))


@given(SYNTAX)
def test_any_text_stays_in_its_paragraph_when_it_stands_first(text: str) -> None:
    source = escape.inline(text)
    kinds = markdown.kinds(source)
    assert kinds <= {"paragraph_open", "inline", "paragraph_close", "text", "code_inline", "text_special"}


@given(SYNTAX)
def test_any_text_stays_in_its_list_item(text: str) -> None:
    kinds = markdown.kinds(f"- {escape.inline(text)} end")
    assert "heading_open" not in kinds
    assert "blockquote_open" not in kinds
    assert [token.type for token in markdown.parse(f"- {escape.inline(text)} end")].count("list_item_open") == 1


@given(SYNTAX, SYNTAX)
def test_any_text_stays_in_its_table_cell(first: str, second: str) -> None:
    text = f"| a | b |\n|---|---|\n| {escape.inline(first)} | {escape.code(second)} |"
    table = markdown.tables(text)[0]
    assert [len(row) for row in table] == [2, 2]
    assert markdown.source_columns(text) == [2, 2, 2]


@FOREIGN
def test_hostile_text_cannot_speak_to_the_runner(text: str) -> None:
    line = escape.plain(text)
    assert "::" not in line
    assert "##[" not in line
    assert line.isprintable()


@FOREIGN
def test_hostile_text_in_a_chart_is_letters_digits_and_a_few_signs(text: str) -> None:
    label = escape.chart_label(text)
    assert all(char.isalnum() or char in " .,/+-_–×…" for char in label)
    assert len(label) <= 60


@given(ANY_TEXT)
def test_cleaned_text_is_one_printable_line(text: str) -> None:
    line = escape.clean(text)
    assert all(unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in line)
    assert "  " not in line
    assert line == line.strip()
    assert escape.clean(line) == line


def test_what_cannot_be_shown_leaves_a_trace_and_what_has_no_width_does_not() -> None:
    assert escape.clean("a\x00\x01b\u202ec") == "a\ufffdb\ufffdc"
    assert escape.clean("a\u200bb\u00adc") == "abc"


def test_stacked_marks_are_cut_and_accents_are_kept() -> None:
    assert escape.clean("e\u0301\u0302\u0303\u0304") == "e\u0301\u0302"
    assert escape.clean("año, naïve, ünïcödé, 模型") == "año, naïve, ünïcödé, 模型"


def test_long_text_is_cut_at_its_end_and_says_so() -> None:
    assert escape.clean("abcdefghij", max_chars=5) == "abcd…"
    assert len(escape.inline("|" * 5000, max_chars=10).replace("&#124;", "|")) == 10


def test_bare_hashes_become_code() -> None:
    assert escape.inline("at 5d6e7f8a now") == "at `5d6e7f8a` now"
    assert escape.inline("5d6e7f8a") == "`5d6e7f8a`"


def test_words_with_underscores_stay_readable_in_the_source() -> None:
    assert escape.inline("grid_efficiency") == "grid_efficiency"
    assert escape.inline("_emphasis_") == "\\_emphasis\\_"


def test_code_that_cannot_hold_its_text_is_shown_as_text() -> None:
    assert escape.code("--max-num-seqs 64") == "`--max-num-seqs 64`"
    assert escape.code("a|b") == "a&#124;b"
    assert escape.code("") == ""


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "https://github.com@evil.example/",
        "https://github.com/a b",
        "https://github.com/a)b",
        "https://github.com/<x>",
        "ftp://github.com/",
        "https://",
        "https:///path",
        "",
        None,
        "https://github.com/" + "a" * 2000,
        "https://github.com/\nx",
    ],
)
def test_an_address_that_is_none_becomes_no_link(url: str | None) -> None:
    assert escape.web_address(url) is None
    assert escape.link("Run 7", url) == "Run 7"


def test_an_address_becomes_a_link_with_a_foreign_text() -> None:
    source = escape.link("Run [7](x)", "https://github.com/acme/serving/actions/runs/1234")
    links = [token for token in markdown.inline_tokens(source) if token.type == "link_open"]
    assert [token.attrs["href"] for token in links] == ["https://github.com/acme/serving/actions/runs/1234"]
    assert markdown.visible(source) == "Run [7](x)"


def test_every_escaped_character_is_one_that_markdown_or_github_reads() -> None:
    harmless = "plain words, 12.5 % (+1.0 … +2.0), a/b; 'c' — ünïcödé"
    assert escape.inline(harmless) == harmless
    assert re.sub(r"&#?\w+;", "", escape.inline("<|&>")) == ""
