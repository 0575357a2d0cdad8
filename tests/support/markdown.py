"""What a reader of Markdown gets: text, tables, HTML, links, images. Parsed by a parser that had no part in writing it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

JOINER = "\u2060"

MENTION = re.compile(r"(?<![\w`/.])@[A-Za-z0-9][A-Za-z0-9-]*")
REFERENCE = re.compile(r"(?<![\w&/])(?:[\w.-]+/[\w.-]+)?#\d+|\bGH-\d+", re.IGNORECASE)
BARE_LINK = re.compile(r"(?:https?|ftp)://\S|\bwww\.\w|[\w.+-]+@[\w-]+\.\w", re.IGNORECASE)
EMOJI_CODE = re.compile(r":[A-Za-z0-9_+-]+:")
BARE_SHA = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{7,40}(?![0-9A-Za-z])")


@lru_cache(maxsize=4)
def parse(text: str) -> list[Token]:
    """Tokens, with tables and strikethrough as on GitHub."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)


def inline_tokens(text: str) -> Iterator[Token]:
    """Every inline token of every block."""
    for token in parse(text):
        if token.type == "inline":
            yield from token.children or []


def visible(text: str) -> str:
    """What is shown: text and code, joiners taken out."""
    shown = "".join(" " if token.type == "softbreak" else token.content for token in inline_tokens(text))
    return shown.replace(JOINER, "")


def plain_text(text: str) -> str:
    """The text outside of code, as GitHub's own filters see it: mentions and references are looked for in there."""
    return "\n".join(token.content if token.type == "text" else " " for token in inline_tokens(text))


def kinds(text: str) -> set[str]:
    """Every kind of token, inline ones too."""
    return {token.type for token in parse(text)} | {token.type for token in inline_tokens(text)}


def tables(text: str) -> list[list[list[str]]]:
    """Every table: its rows, its cells as source text. The head is the first row."""
    found: list[list[list[str]]] = []
    row: list[str] = []
    in_cell = False
    for token in parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            found[-1].append(row)
        elif token.type in {"th_open", "td_open"}:
            in_cell = True
        elif token.type in {"th_close", "td_close"}:
            in_cell = False
        elif token.type == "inline" and in_cell:
            row.append(token.content)
    return found


def source_columns(text: str) -> list[int]:
    """Unescaped pipes between cells of each line of the first table, counted in the source (a parser cuts rows to fit)."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|"))
    block = list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
    return [len(re.findall(r"(?<!\\)\|", line)) - 1 for line in block]


def html_of(text: str) -> list[str]:
    """Every piece of HTML."""
    blocks = [token.content for token in parse(text) if token.type == "html_block"]
    return blocks + [token.content for token in inline_tokens(text) if token.type == "html_inline"]
