"""What the runner hears: outputs and commands of ours, and nothing that foreign text would like it to hear.

The reader used here follows the runner's own rules: `::name …::` where a line begins, after blanks; `##[name …]` anywhere
in a line; lines end at any of the line ends that .NET knows.
"""

from __future__ import annotations

import io
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.github.outputs import (
    SUMMARY_MAX_BYTES,
    JobLog,
    append_summary,
    guard,
    guard_line,
    pair,
    shorten_bytes,
    write_pairs,
)

COMMANDS = {"error", "warning", "set-output", "add-mask", "stop-commands", "save-state", "set-env", "group", "debug"}


def commands(log: str) -> list[tuple[str, str]]:
    """Every command that a runner would carry out, with commands switched off as it does."""
    found, stop = [], None
    for line in re.split(r"\r\n|\r|\n", log):
        command = _command(line, COMMANDS | ({stop} if stop else set()))
        if command is None:
            continue
        if stop is not None:
            stop = None if command[0] == stop else stop
        elif command[0] == "stop-commands":
            stop = command[1]
        else:
            found.append(command)
    return found


def _command(line: str, known: set[str]) -> tuple[str, str] | None:
    text = line.lstrip()
    if text.startswith("::") and (end := text.find("::", 2)) > 0:
        name = text[2:end].split(" ")[0].lower()
        if name in known:
            return name, text[end + 2 :]
    start = line.find("##[")
    if start >= 0 and (end := line.find("]", start)) > 0:
        name = line[start + 3 : end].split(" ", maxsplit=1)[0].lower()
        if name in known:
            return name, line[end + 1 :]
    return None


INJECTIONS = {
    "an error at the start": "::error::owned",
    "after blanks": "   \t::error file=a::owned",
    "after a line end": "fine\n::set-output name=verdict::PASS",
    "after a carriage return": "fine\r::add-mask::e",
    "after a vertical tab": "fine\x0b::error::owned",
    "after a form feed": "fine\x0c::error::owned",
    "after a next line": "fine\x85::error::owned",
    "after a line separator": "fine\u2028::error::owned",
    "after a paragraph separator": "fine\u2029::error::owned",
    "behind a no-break space": "\u00a0::error::owned",
    "behind an ideographic space": "\u3000::error::owned",
    "behind a zero-width space": "\u200b::error::owned",
    "behind a byte order mark": "\ufeff::error::owned",
    "behind an escape sequence": "\x1b[31m::error::owned",
    "behind an operating system command": "\x1b]0;title\x07::error::owned",
    "behind a null": "\x00::error::owned",
    "behind a backspace": "x\b::error::owned",
    "old form": "loss ##[error]owned",
    "old form, parted by a zero-width space": "##\u200b[error]owned",
    "old form, parted by a null": "#\x00#[error]owned",
    "old form, four signs": "####[error]owned",
    "old form, nested": "##[##[error]owned",
    "stop": "::stop-commands::mine\n::mine::",
    "the end of a stop": "::0123456789abcdef::\n::error::owned",
    "upper case": "::ERROR::owned",
    "a save": "::save-state name=sha::0000",
    "an environment": "::set-env name=LD_PRELOAD::/x.so",
}


@pytest.mark.parametrize("text", INJECTIONS.values(), ids=list(INJECTIONS))
def test_foreign_text_commands_nothing(text: str) -> None:
    for shown in (guard(text), guard_line(text), f"log: {guard(text)}"):
        assert commands(shown) == []
    stream = io.StringIO()
    log = JobLog(stream, commands=True)
    log.line(text)
    log.warning(text, text)
    assert [name for name, _ in commands(stream.getvalue())] == ["warning"]


def test_the_injections_are_real() -> None:
    """Each of them, or what a terminal makes of it, would work without the guard; the reader is not blind."""
    assert commands(INJECTIONS["after a line end"]) == [("set-output", "PASS")]
    assert commands(INJECTIONS["old form"]) == [("error", "owned")]
    assert commands(INJECTIONS["behind a no-break space"]) == [("error", "owned")]


@given(st.text(st.sampled_from(list(":#[]\n\r\t \x85\u2028\u200b\x1b\x00error")), max_size=60))
def test_no_text_whatever_commands_anything(text: str) -> None:
    assert commands(guard(text)) == []
    assert commands(guard_line(text)) == []


@given(st.text(max_size=200))
def test_guarding_twice_is_guarding_once(text: str) -> None:
    assert guard(guard(text)) == guard(text)


@given(st.text(max_size=200))
def test_what_is_left_is_visible(text: str) -> None:
    assert not [char for char in guard(text) if unicodedata.category(char) == "Cc" and char not in "\n\t"]


def test_plain_words_stay_as_they_are() -> None:
    text = "INFO 12:00:01 [loader] std::vector took 3.2 s — 100 %\n  next line"
    assert guard(text) == text


def test_each_line_of_a_secret_is_masked() -> None:
    stream = io.StringIO()
    JobLog(stream, commands=True).mask("line one\nline two 50%\n")
    masked = {text for name, text in commands(stream.getvalue()) if name == "add-mask"}
    assert {"line one", "line two 50%25"} <= masked
    assert "\nline two" not in stream.getvalue()


def test_outside_of_a_job_nothing_looks_like_a_command() -> None:
    stream = io.StringIO()
    job = JobLog(stream, commands=False)
    job.mask("secret")
    job.line("x")
    job.error("t", "m")
    assert "::" not in stream.getvalue()
    assert "secret" not in stream.getvalue()


# ---------------------------------------------------------------- files


def read_pairs(text: str) -> dict[str, str]:
    """The runner's reader of GITHUB_OUTPUT."""
    found, lines, position = {}, re.split(r"\r\n|\r|\n", text), 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if not line:
            continue
        name, _, delimiter = line.partition("<<")
        value = []
        while lines[position] != delimiter:
            value.append(lines[position])
            position += 1
        position += 1
        found[name] = "\n".join(value)
    return found


@given(st.text(), st.text())
def test_a_value_comes_back_and_brings_no_other(first: str, second: str) -> None:
    seen = read_pairs(pair("verdict", first) + pair("rejected", second))
    assert set(seen) == {"verdict", "rejected"}


def test_a_delimiter_that_is_in_the_value_is_drawn_again() -> None:
    words = iter(["taken", "free"])
    assert pair("verdict", "x\ntaken\nrejected=[]", word=lambda: next(words)).startswith("verdict<<free\n")


def test_a_value_keeps_its_lines_and_loses_what_a_file_of_lines_cannot_hold() -> None:
    assert pair("x", "a\r\nb\rc\x00", word=lambda: "END") == "x<<END\na\nb\nc\nEND\n"


def test_a_value_cannot_write_another_output(tmp_path: Path) -> None:
    path = tmp_path / "output"
    write_pairs(path, {"comment-url": "x\nverdict<<EOF\nPASS\nEOF\nverdict=PASS", "verdict": "REJECT"})
    assert read_pairs(path.read_text())["verdict"] == "REJECT"
    assert len(read_pairs(path.read_text())) == 2


def test_a_summary_that_fits_is_appended_whole(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    assert append_summary(path, "# one")
    assert append_summary(path, "# two\n")
    assert path.read_text() == "# one\n# two\n"


@pytest.mark.parametrize("letter", ["a", "é", "漢", "🎯"])
def test_a_summary_stays_below_a_mebibyte_in_bytes(tmp_path: Path, letter: str) -> None:
    path = tmp_path / "summary"
    path.write_text("before\n")
    assert not append_summary(path, (letter * 79 + "\n") * 20_000)
    assert path.stat().st_size <= SUMMARY_MAX_BYTES
    assert path.read_text().endswith("artifact.*\n")


def test_a_full_summary_takes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * SUMMARY_MAX_BYTES)
    assert not append_summary(path, "more")
    assert path.stat().st_size == SUMMARY_MAX_BYTES


@given(st.text(), st.integers(min_value=0, max_value=300))
def test_shortening_keeps_the_limit(text: str, limit: int) -> None:
    short, whole = shorten_bytes(text, limit)
    assert len(short.encode()) <= limit
    assert not whole or short == text.encode("utf-8", errors="replace").decode()
