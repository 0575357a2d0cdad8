"""Markdown as GitHub reads it: tables, folded sections, callouts, charts. Puts finished pieces together; escapes nothing.

Callers escape their text (`report.escape`). The only HTML that is ever written is `details` and `summary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NBSP = "\u00a0"
NB_HYPHEN = "\u2011"
PALETTE = "#8b949e, #1f6feb"  # grey, blue: both can be seen on white and on black; mermaid's own first colour cannot


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand on the right."""

    title: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a section. `drop`: the smaller, the earlier it is left out when the text must become shorter."""

    text: str
    drop: int


@dataclass(frozen=True, slots=True)
class Section:
    """A folded section."""

    title: str
    parts: tuple[Part, ...]


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already, and hold neither a bare pipe nor a line end."""
    head = "| " + " | ".join(column.title for column in columns) + " |"
    rule = "|" + "|".join(" ---: " if column.right else " --- " for column in columns) + "|"
    body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, rule, *body])


def details(title: str, body: str) -> str:
    """A folded section. `title` is ours, without markup."""
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"


def callout(kind: str, *texts: str) -> str:
    """One of GitHub's alerts: NOTE, IMPORTANT, WARNING, CAUTION. Each text is a paragraph, or a list."""
    lines = "\n\n".join(texts).split("\n")
    return "\n".join([f"> [!{kind}]", *(f"> {line}".rstrip() for line in lines)])


def bullets(items: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {item}" for item in items)


def bold(text: str) -> str:
    """Strong text; nothing stays nothing."""
    return f"**{text}**" if text else ""


def paragraphs(*parts: str) -> str:
    """Non-empty parts, a blank line apart."""
    return "\n\n".join(part for part in parts if part)


def unbroken(number: str) -> str:
    """A number whose unit, sign and interval stay on its line where the column is wide enough."""
    return number.replace(" ", NBSP).replace("GPU-h", f"GPU{NB_HYPHEN}h")


def xychart(title: str, *, x_axis: str, y_axis: str, lines: Sequence[Sequence[float]]) -> str:
    """A mermaid chart of lines over one x axis. Titles hold no quotes (`escape.chart_label`)."""
    top = max((value for line in lines for value in line), default=1.0) or 1.0
    body = [
        "```mermaid",
        "---",
        "config:",
        "  themeVariables:",
        "    xyChart:",
        f'      plotColorPalette: "{PALETTE}"',
        "---",
        "xychart-beta",
        f'    title "{title}"',
        f"    x-axis {x_axis}",
        f'    y-axis "{y_axis}" 0 --> {bare_number(1.05 * top)}',
        *(f"    line [{', '.join(bare_number(value) for value in line)}]" for line in lines),
        "```",
    ]
    return "\n".join(body)


def bare_number(value: float, *, digits: int = 4) -> str:
    """A few significant digits with a point, no exponent, no thousands: what mermaid reads."""
    text = f"{float(f'{value:.{digits}g}'):.6f}"
    return text.rstrip("0").rstrip(".")
