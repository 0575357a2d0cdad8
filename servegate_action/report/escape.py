"""Foreign text made harmless for the place where it is shown.

Labels, model names, reasons that quote a server, log lines, branch names: whoever writes them must not be able to break
a table, mention people, link to issues, forge the marker of a comment, reorder characters, or speak to the runner.
Everything foreign goes through here on its way into Markdown, a chart, or one plain line. HTML is escaped by Jinja2,
which asks `clean` first. Nothing here knows what the text means.

The word joiner (U+2060, invisible, no width) is put into places where GitHub would otherwise see a mention, a reference
or a link: GitHub looks for those in the text *after* Markdown, so that a backslash or an entity would not help there.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

JOINER = "\u2060"
REPLACEMENT = "\ufffd"
ELLIPSIS = "…"
SHORT_DIGEST = 12

_MAX_COMBINING = 2
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")  # soft hyphen, zero widths: dropped without a trace
_UNSHOWABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SPACES = frozenset({"Zs", "Zl", "Zp"})

_DIGEST = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{40,}(?![0-9A-Za-z])")
_HEX = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{7,}(?![0-9A-Za-z])")
_MARKUP = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "&#124;",
    "\\": "&#92;",
    "`": "&#96;",
    "*": "\\*",
    "[": "\\[",
    "]": "\\]",
    "~": "\\~",
    "$": "\uff04",  # GitHub reads $…$ as a formula, and has no reliable escape for it
}
_BREAKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"@(?=\S)"), f"@{JOINER}"),  # mentions, user@sha, mail addresses
    (re.compile(r"#(?=\w)"), f"#{JOINER}"),  # #12, org/repo#12
    (re.compile(r"\b(gh-)(?=\d)", re.IGNORECASE), rf"\1{JOINER}"),  # GH-12
    (re.compile(r"://"), f":{JOINER}//"),  # links without markup
    (re.compile(r"\b(www)\.", re.IGNORECASE), rf"\1{JOINER}."),
    (re.compile(r":(?=[A-Za-z0-9_+-]+:)"), f":{JOINER}"),  # :emoji:
    (re.compile(r"::"), f":{JOINER}:"),  # ::workflow-command::
    (re.compile(r"##\["), f"##{JOINER}["),  # ##[command]
)
_LONE_UNDERSCORE = re.compile(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
_LEADING = re.compile(r"\A([#=]|[-+](?=[-+\s]|\Z)|\d+(?=[.)](?:\s|\Z)))")


def clean(text: str, *, max_chars: int = 400) -> str:
    """One line of visible characters: controls, bidi overrides and stacked marks out, white space single, length bounded.

    Tabs and line ends become spaces. What cannot be shown becomes U+FFFD, so that a reader sees that something was there.
    """
    start = text[: 4 * max_chars]
    visible = start if start.isascii() and start.isprintable() else _visible(start)
    return shorten(re.sub(r" {2,}", " ", visible).strip(), max_chars=max_chars)


def _visible(text: str) -> str:
    kept: list[str] = []
    combining = 0
    for char in text:
        category = unicodedata.category(char)
        combining = combining + 1 if category in {"Mn", "Me"} else 0
        if char in _INVISIBLE or combining > _MAX_COMBINING:
            continue
        if char in "\t\n\r\v\f\x85" or category in _SPACES:
            kept.append("\u00a0" if char == "\u00a0" else " ")
        elif category not in _UNSHOWABLE:
            kept.append(char)
        elif not kept or kept[-1] != REPLACEMENT:
            kept.append(REPLACEMENT)
    return "".join(kept)


def shorten(line: str, *, max_chars: int) -> str:
    """At most `max_chars` characters; what is cut off the end is marked."""
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + ELLIPSIS


def plain(text: str, *, max_chars: int = 400) -> str:
    """One line for places without markup (status texts, a terminal): cleaned, and no runner command in it."""
    line = clean(text, max_chars=max_chars)
    return re.sub(r":(?=:)", ": ", line).replace("##[", "## [")


def short_hashes(line: str) -> str:
    """Whole digests (40 hexadecimal characters and more) cut to their beginning: the report page has them whole."""
    return _DIGEST.sub(lambda found: f"{found.group()[:SHORT_DIGEST]}{ELLIPSIS}", line)


def inline(text: str, *, max_chars: int = 200) -> str:
    """Markdown that shows `text` literally, inside a sentence, a list item, a heading or a table cell.

    Hexadecimal words of seven characters and more are shown as code, since GitHub links bare commit hashes; digests are
    cut.
    """
    line = short_hashes(clean(text, max_chars=max_chars))
    parts: list[str] = []
    end = 0
    for found in _HEX.finditer(line):
        parts += [_literal(line[end : found.start()], first=end == 0), f"`{found.group()}`"]
        end = found.end()
    parts.append(_literal(line[end:], first=end == 0))
    return "".join(parts)


def _literal(text: str, *, first: bool) -> str:
    """Markdown's own characters and GitHub's references, defused. `first`: the text may stand at the start of a block."""
    for pattern, replacement in _BREAKS:
        text = pattern.sub(replacement, text)
    escaped = "".join(_MARKUP.get(char, char) for char in text)
    escaped = _LONE_UNDERSCORE.sub(r"\\_", escaped)
    if first:
        escaped = _LEADING.sub(lambda found: _escape_leading(found.group()), escaped)
    return escaped


def _escape_leading(token: str) -> str:
    """`#` becomes `\\#`; `1` (before a dot or a bracket) stays and its dot is defused by an empty joiner."""
    return token + JOINER if token.isdigit() else "\\" + token


def code(text: str, *, max_chars: int = 120) -> str:
    """A code span; text that a code span cannot hold in every place (backtick, pipe, backslash) is shown as `inline`."""
    line = short_hashes(clean(text, max_chars=max_chars))
    if not line or any(char in line for char in "`|\\"):
        return inline(text, max_chars=max_chars)
    return f"`{line}`"


def chart_label(text: str, *, max_chars: int = 60) -> str:
    """Text for a mermaid string: letters, digits, spaces and a few harmless signs; everything else becomes a space."""
    line = "".join(
        char if char.isalnum() or char in " .,/+-_–×" else " " for char in clean(text, max_chars=4 * max_chars)
    )
    return shorten(re.sub(r" {2,}", " ", line).strip(), max_chars=max_chars)


def web_address(url: str | None) -> str | None:
    """`url` when it is a plain http(s) address that can stand in a link as it is, else None."""
    if url is None or not re.fullmatch(r"https?://[A-Za-z0-9\-._~:/?#@!$&'*+,;=%]{1,1000}", url):
        return None
    parts = urlsplit(url)
    return url if parts.hostname and "@" not in parts.netloc else None


def link(text: str, url: str | None) -> str:
    """A Markdown link whose text is foreign, or just the text where the address cannot be trusted to be one."""
    address = web_address(url)
    shown = inline(text, max_chars=80)
    return shown if address is None else f"[{shown}](<{address}>)"
