"""An artifact from a hostile job: whatever it is, it is refused before it is believed."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from servegate_action.errors import RecordingUnreadable
from servegate_action.github.artifact import HostileArtifact, Limits, admit, read_json

SMALL = Limits(
    files=20, file_bytes=4_000_000, total_bytes=8_000_000, expanded_bytes=8_000_000, json_bytes=200_000, json_depth=40
)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "servegate-report"
    (folder / "rounds" / "01-baseline").mkdir(parents=True)
    (folder / "recording.json").write_text("{}")
    with gzip.open(folder / "rounds" / "01-baseline" / "requests.jsonl.gz", "wb") as file:
        file.write(b'{"id": "a"}\n' * 1000)
    return folder


def zeros(megabytes: int) -> bytes:
    """Raw deflate of so many megabytes of zeros, made without ever having them: full flushes can be strung together."""
    pressed = zlib.compressobj(9, zlib.DEFLATED, -15)
    one = pressed.compress(bytes(1_000_000)) + pressed.flush(zlib.Z_FULL_FLUSH)
    return one * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def test_a_real_report_is_admitted(report: Path) -> None:
    assert admit(report, limits=SMALL) == ("recording.json", "rounds/01-baseline/requests.jsonl.gz")


def test_a_gzip_bomb_of_five_gigabytes_is_stopped_at_the_limit(report: Path) -> None:
    bomb = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + zeros(5000) + bytes(8)
    limits = Limits(file_bytes=10_000_000, total_bytes=20_000_000, expanded_bytes=50_000_000)
    (report / "rounds" / "01-baseline" / "requests.jsonl.gz").write_bytes(bomb)
    with pytest.raises(HostileArtifact, match="expands to more"):
        admit(report, limits=limits)


def test_many_members_are_counted_together(report: Path) -> None:
    member = gzip.compress(bytes(1_000_000))
    (report / "many.jsonl.gz").write_bytes(member * 20)
    with pytest.raises(HostileArtifact, match="expands to more"):
        admit(report, limits=SMALL)


def _link(folder: Path) -> None:
    (folder / "verdict.json").symlink_to("/etc/passwd")


def _hard_to_name(folder: Path) -> None:
    (folder / "::error::x").write_text("x")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def _folder_link(folder: Path) -> None:
    (folder / "more").symlink_to("/", target_is_directory=True)


def _deep(folder: Path) -> None:
    folder.joinpath(*"abcdefghij").mkdir(parents=True)


def _many(folder: Path) -> None:
    for number in range(40):
        (folder / f"f{number}").touch()


def _large(folder: Path) -> None:
    with (folder / "server.log").open("wb") as file:
        file.truncate(5_000_000_000)  # sparse: it costs no disk


def _no_gzip(folder: Path) -> None:
    (folder / "x.gz").write_text("not gzip")


@pytest.mark.parametrize(
    "spoil",
    [_link, _hard_to_name, _pipe, _folder_link, _deep, _many, _large, _no_gzip],
    ids=[
        "a link",
        "a command as a name",
        "a pipe",
        "a link to the root",
        "ten folders deep",
        "too many files",
        "5 GB",
        "no gzip",
    ],
)
def test_a_folder_with_anything_odd_is_refused(report: Path, spoil: Callable[[Path], None]) -> None:
    spoil(report)
    with pytest.raises(HostileArtifact):
        admit(report, limits=SMALL)


def test_a_folder_that_is_a_link_is_refused(report: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(report)
    with pytest.raises(HostileArtifact):
        admit(tmp_path / "alias")
    with pytest.raises(HostileArtifact):
        admit(tmp_path / "nothing")


ABSURD = {
    "a million brackets": "[" * 1_000_000 + "]" * 1_000_000,
    "deep beyond recursion, but short": "[" * 50_000 + "]" * 50_000,
    "deep objects": '{"a":' * 1000 + "1" + "}" * 1000,
    "deeper than anything of ours, though a parser takes it": "[" * 100 + "]" * 100,
    "brackets that never close": "[" * 300,
    "a number of ten thousand digits": "9" * 10_000,
    "not a number": '{"value": NaN}',
    "an infinity": '{"value": -Infinity}',
    "a key twice": '{"word": "REJECT", "word": "PASS"}',
    "too long": '"' + "a" * 300_000 + '"',
    "no JSON": "PASS",
    "nothing": "",
    "bytes": "\udcff\udcfe",
    "half": '{"word": "PASS"',
    "a surplus": '{"word": "PASS"} {"word": "REJECT"}',
}


@pytest.mark.parametrize("text", ABSURD.values(), ids=list(ABSURD))
def test_absurd_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "verdict.json"
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    with pytest.raises(HostileArtifact):
        read_json(path, limits=SMALL)


def test_brackets_in_texts_are_no_depth(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    value = {"text": "[" * 1000 + '\\"{' * 50, "list": [[1.5, None, True]]}
    path.write_text(json.dumps(value))
    assert read_json(path, limits=SMALL) == value


def test_a_refusal_is_an_unreadable_recording_and_so_never_a_verdict() -> None:
    assert issubclass(HostileArtifact, RecordingUnreadable)
