"""What a job tells its runner: outputs, the step summary, annotations, masks; and foreign text that must tell it nothing.

The runner reads commands from stdout and from stderr: `::name …::` where a line begins, `##[name …]` anywhere in a line.
Logs of a stack, model output, labels and branch names are foreign text: all of it passes through `guard`. Values go into
the runner's files with a delimiter that is not in them. This module decides nothing and reads no environment.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

SUMMARY_MAX_BYTES = 1024 * 1024
_ANNOTATION_MAX_CHARS = 4000

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_LINE_ENDS = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_LEADING_COLON = re.compile(r"^(\s*):", re.MULTILINE)


def guard(text: str) -> str:
    r"""Foreign text, made unable to command the runner or the terminal. Idempotent; readable words stay as they are.

    Line ends of every kind become `\n` (the runner splits at more of them than a terminal shows), escape sequences and
    control, invisible and direction-changing characters go, a line that would begin with a colon gets a bar in front, and
    `##[` loses its meaning by a space.
    """
    text = _TERMINAL.sub("", text)
    text = _LINE_ENDS.sub("\n", text)
    text = _CONTROL.sub("", text)
    text = _LEADING_COLON.sub(r"\1| :", text)
    return text.replace("##[", "## [")


def guard_line(text: str, *, max_chars: int = 300) -> str:
    """Foreign text on one line, for the inside of a sentence."""
    line = " ".join(guard(text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


class JobLog:
    """The job's log. Lines of ours may be commands; everything handed in as text is made harmless first."""

    def __init__(self, stream: TextIO, *, commands: bool) -> None:
        self._stream = stream
        self._commands = commands

    def line(self, text: str) -> None:
        """One or more plain lines."""
        self._write(guard(text))

    def notice(self, title: str, message: str) -> None:
        """A notice that GitHub shows on the run's page."""
        self._annotate("notice", title, message)

    def warning(self, title: str, message: str) -> None:
        """A warning that GitHub shows on the run's page."""
        self._annotate("warning", title, message)

    def error(self, title: str, message: str) -> None:
        """An error that GitHub shows on the run's page."""
        self._annotate("error", title, message)

    def mask(self, secret: str) -> None:
        """Hide a value from the log: each of its lines, because the runner masks line by line."""
        if not self._commands:
            return
        for line in {secret, *secret.splitlines()}:
            if len(line.strip()) >= 3:  # a mask of one or two characters would black out the log and hide nothing
                self._write(f"::add-mask::{_escape_data(line)}")

    def _annotate(self, level: str, title: str, message: str) -> None:
        text = guard(message)[:_ANNOTATION_MAX_CHARS]
        if self._commands:
            self._write(f"::{level} title={_escape_property(guard_line(title))}::{_escape_data(text)}")
        else:
            self._write(f"{level}: {guard_line(title)}: {text}")

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def write_pairs(path: Path, values: Mapping[str, str]) -> None:
    """Append names and values to GITHUB_OUTPUT or GITHUB_STATE. Names are ours; values may be anything."""
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.writelines(pair(name, value) for name, value in values.items())


def _random_word() -> str:
    return f"servegate_{secrets.token_hex(16)}"


def pair(name: str, value: str, *, word: Callable[[], str] = _random_word) -> str:
    r"""One entry of the runner's file format, `name<<delimiter`, value, delimiter.

    The delimiter is random and is drawn again while it occurs in the value. NUL and lone carriage returns go, because
    the runner's reader ends lines at `\r` too.
    """
    value = _LINE_ENDS.sub("\n", value).replace("\x00", "")
    delimiter = word()
    while delimiter in value:
        delimiter = word()
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def append_summary(path: Path, markdown: str, *, max_bytes: int = SUMMARY_MAX_BYTES) -> bool:
    """Append to the step summary and say whether all of it fitted.

    The runner drops the whole file, silently, when it is larger than 1 MiB in bytes: what is there already counts.
    """
    used = path.stat().st_size if path.exists() else 0
    text = markdown if markdown.endswith("\n") else markdown + "\n"
    whole, fitted = shorten_bytes(text, max_bytes - used)
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(whole)
    return fitted


def shorten_bytes(text: str, max_bytes: int) -> tuple[str, bool]:
    """The text, cut at a line so that it and a note fit in `max_bytes` of UTF-8; and whether nothing was cut."""
    data = text.encode("utf-8", errors="replace")
    if len(data) <= max_bytes:
        return data.decode("utf-8"), True
    note = "\n\n*The rest did not fit: a step summary holds 1 MiB. The whole text is in the artifact.*\n"
    room = max_bytes - len(note.encode())
    if room <= 0:
        return "", False
    cut = data[:room].decode("utf-8", errors="ignore")
    return cut[: cut.rfind("\n") + 1] + note, False
