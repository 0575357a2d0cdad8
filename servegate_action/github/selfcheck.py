"""The last look at a comment before it is posted: what GitHub would make of it, and whether that is what we meant.

The body is parsed as Markdown by a parser that had no part in writing it. Foreign text that got through the escaping
would show here as a mention, an image, a link to elsewhere, HTML, or a table with a column too many. Findings are
sentences for a log; the caller then posts a plain text instead. This module changes nothing and knows no server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_CHARS = 65_536

_HTML = re.compile(r"</?(?:details|summary)>")
_MARKER_LINE = re.compile(r"<!-- servegate:[a-z0-9]+(?: [A-Za-z0-9._@=-]+)* -->")
# GitHub links these wherever they stand in text; code and escaped signs are left alone.
_MENTION = re.compile(r"(?<![A-Za-z0-9_`/.])@[A-Za-z0-9][A-Za-z0-9-]*")
_REFERENCE = re.compile(r"(?<![\w&/#])(?:[\w.-]+/[\w.-]+)?#\d+\b|\bGH-\d+\b")
_BARE_ADDRESS = re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BARE_PIPE = re.compile(r"(?<!\\)\|")
_CHART_ACTIONS = re.compile(r"%%\{|\bclick\b|\bhref\b|<|javascript:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a comment must look like. `hosts` are those that links may lead to; no `rows`: no checklist is looked for."""

    rows: int = 8
    columns: int = 7
    hosts: frozenset[str] = frozenset({"github.com"})
    max_chars: int = MAX_CHARS


def findings(body: str, *, expected: Expected) -> list[str]:
    """Everything wrong with a comment, in words; an empty list when it may be posted."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(body)
    return [
        *_about_the_text(body, expected),
        *_about_the_table(body, tokens, expected),
        *_about_html(tokens),
        *_about_inline(tokens, expected),
        *_about_charts(tokens),
    ]


def _about_the_text(body: str, expected: Expected) -> Iterator[str]:
    if len(body) > expected.max_chars:
        yield f"{len(body)} characters, allowed {expected.max_chars}"
    first = body.split("\n", maxsplit=1)[0]
    if _MARKER_LINE.fullmatch(first) is None:
        yield "the first line is not the marker"
    if found := _INVISIBLE.search(body):
        yield f"an invisible or control character, U+{ord(found[0]):04X}"


def _about_the_table(body: str, tokens: Sequence[Token], expected: Expected) -> Iterator[str]:
    """The first table is the checklist: always all of its rows, each with all of its columns."""
    if expected.rows == 0:
        return
    rows = list(_rows_of_first_table(body.split("\n"), tokens))
    if not rows:
        yield "there is no checklist"
        return
    if len(rows) - 1 != expected.rows:
        yield f"the checklist has {len(rows) - 1} rows, expected {expected.rows}"
    for number, cells in enumerate(rows):
        if cells != expected.columns:
            yield f"line {number} of the checklist has {cells} columns, expected {expected.columns}"


def _rows_of_first_table(lines: Sequence[str], tokens: Sequence[Token]) -> Iterator[int]:
    """Cells of each line of the first table, counted in the source: a parser drops and fills cells to fit the head."""
    within = False
    for token in tokens:
        if token.type == "table_open":
            within = True
        elif token.type == "table_close":
            return
        elif within and token.type == "tr_open" and token.map is not None:
            yield len(_BARE_PIPE.findall(lines[token.map[0]].strip())) - 1


def _about_html(tokens: Sequence[Token]) -> Iterator[str]:
    for position, token in enumerate(tokens):
        if token.type == "html_block":
            for line in token.content.splitlines():
                if not _is_ours(line.strip(), near_top=position < 2):
                    yield f"HTML that is not ours: {line.strip()[:80]!r}"


def _is_ours(line: str, *, near_top: bool) -> bool:
    if near_top and _MARKER_LINE.fullmatch(line):
        return True
    return "<" not in _HTML.sub("", line)


def _about_inline(tokens: Sequence[Token], expected: Expected) -> Iterator[str]:
    for token in tokens:
        if token.type == "inline":
            yield from _about_children(token.children or [], expected)
        elif token.type == "html_block":
            yield from _about_words(_HTML.sub("", token.content))


def _about_children(children: Iterable[Token], expected: Expected) -> Iterator[str]:
    inside_link = 0
    for child in children:
        if child.type == "image":
            yield "an image"
        elif child.type == "html_inline" and _HTML.fullmatch(child.content) is None:
            yield f"HTML that is not ours: {child.content[:80]!r}"
        elif child.type == "link_open":
            inside_link += 1
            yield from _about_link(str(child.attrs.get("href", "")), expected)
        elif child.type == "link_close":
            inside_link -= 1
        elif child.type == "text":
            yield from _about_words(child.content, link=inside_link > 0)


def _about_link(address: str, expected: Expected) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or (parts.hostname or "") not in expected.hosts:
        yield f"a link to elsewhere: {address[:80]!r}"


def _about_words(text: str, *, link: bool = False) -> Iterator[str]:
    if found := _MENTION.search(text):
        yield f"a mention: {found[0]!r}"
    if found := _REFERENCE.search(text):
        yield f"a reference to an issue: {found[0]!r}"
    if not link and (found := _BARE_ADDRESS.search(text)):
        yield f"a bare address that becomes a link: {found[0][:80]!r}"


def _about_charts(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type != "fence":
            continue
        language = token.info.strip().split(" ")[0].lower()
        if language not in ("", "mermaid", "text", "yaml", "json", "sh", "shell", "console", "diff", "csv"):
            yield f"a code block that GitHub renders: {language[:20]!r}"
        if language == "mermaid" and (found := _CHART_ACTIONS.search(token.content)):
            yield f"a chart with an action or HTML: {found[0]!r}"
