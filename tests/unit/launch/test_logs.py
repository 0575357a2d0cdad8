"""The log on its way to the disk (secrets blanked), and its last lines on their way to a message."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.launch.stack import log_tail
from servegate_action.launch.supervisor import Log

SECRET = "hf_0123456789"


def written(path: Path, pieces: list[bytes], secrets: tuple[str, ...] = (SECRET,)) -> bytes:
    path.unlink(missing_ok=True)
    log = Log(str(path), secrets)
    for piece in pieces:
        log.feed(piece)
    log.close()
    return path.read_bytes()


@given(
    before=st.binary(max_size=30),
    after=st.binary(max_size=30),
    cuts=st.lists(st.integers(0, 80), max_size=6),
)
def test_a_secret_never_reaches_the_disk_however_the_output_is_cut(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes, cuts: list[int]
) -> None:
    data = before + SECRET.encode() + after + SECRET.encode() + b"\n" + after
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    pieces = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    path = tmp_path_factory.getbasetemp() / "cut.log"
    assert written(path, pieces) == data.replace(SECRET.encode(), b"***")


def test_a_line_without_end_is_written_and_its_secrets_are_blanked_across_every_cut(tmp_path: Path) -> None:
    data = b"x" * 65_530 + SECRET.encode() + b"y" * 70_000 + SECRET.encode()
    pieces = [data[begin : begin + 1000] for begin in range(0, len(data), 1000)]
    assert written(tmp_path / "log", pieces) == data.replace(SECRET.encode(), b"***")


def test_of_two_secrets_one_inside_the_other_no_rest_is_left(tmp_path: Path) -> None:
    assert written(tmp_path / "log", [b"abcdef abc\n"], ("abc", "abcdef")) == b"*** ***\n"


def test_output_goes_to_the_file_as_its_lines_end(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), ())
    log.feed(b"one\ntw")
    assert (tmp_path / "log").read_bytes() == b"one\n"
    log.feed(b"o\r")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\r"
    log.close()


def test_the_tail_is_the_last_lines_without_colours_and_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[31mred\x1b[0m\r\n50%\r100%\n\x07bell \xff\n\n" + b"z" * 1000 + b"\n")
    tail = log_tail(path)
    assert tail[:3] == ("red", "100%", "bell \ufffd")
    assert tail[3] == "z" * 400 + "…"


def test_only_as_many_lines_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert log_tail(path, 2) == ("line 99998", "line 99999")


def test_a_log_that_does_not_exist_has_no_lines(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none") == ()
