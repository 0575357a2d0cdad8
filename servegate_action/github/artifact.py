"""Reading an artifact that somebody else's job made, as if that somebody were an enemy.

In the two-job workflow the measuring job ran the pull request's code; whatever it left is only data. Before the publishing
job opens anything, the folder is held against limits: names, kinds, counts, sizes, sizes once expanded,
and the depth of JSON. Sizes are counted while reading, never believed. Nothing is executed, followed or rendered from
here; the verdict is recomputed from the recording, and head and number are asked on the server.
"""

from __future__ import annotations

import json
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from servegate_action.errors import RecordingUnreadable
from servegate_action.github.outputs import guard_line

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]{0,127}")
_CHUNK = 1024 * 1024
_NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is looked at. Generous for a real run: a million tokens are about 20 MB of requests."""

    files: int = 2_000
    depth: int = 6
    file_bytes: int = 512 * 1024 * 1024
    total_bytes: int = 2 * 1024 * 1024 * 1024
    expanded_bytes: int = 2 * 1024 * 1024 * 1024
    json_bytes: int = 64 * 1024 * 1024
    json_depth: int = 40


class HostileArtifact(RecordingUnreadable):
    """The artifact is not what servegate writes. Nothing in it was believed; there is no verdict."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the artifact was refused: {what}",
            why="the job that made it ran the pull request's code, and left something that servegate does not write",
            next_step="look at that job's log before anything else; nothing was published from the artifact",
        )


def admit(directory: Path, *, limits: Limits | None = None) -> tuple[str, ...]:
    """Look a folder over and give the names of its files. Raises HostileArtifact at the first thing that is wrong."""
    allowed = limits or Limits()
    if directory.is_symlink() or not directory.is_dir():
        raise HostileArtifact(f"{guard_line(directory.name)} is no folder")
    names: list[str] = []
    total = expanded = 0
    for path in _walk(directory, depth=0, limits=allowed):
        names.append(path.relative_to(directory).as_posix())
        size = path.lstat().st_size
        total += size
        if len(names) > allowed.files:
            raise HostileArtifact(f"more than {allowed.files} files")
        if size > allowed.file_bytes or total > allowed.total_bytes:
            raise HostileArtifact(f"{names[-1]} makes it larger than allowed ({size} bytes, {total} in all)")
        if path.suffix == ".gz":
            with path.open("rb") as file:
                expanded += _expanded_bytes(file, name=names[-1], most=allowed.expanded_bytes - expanded)
    return tuple(sorted(names))


def _walk(folder: Path, *, depth: int, limits: Limits) -> Iterator[Path]:
    if depth > limits.depth:
        raise HostileArtifact(f"folders deeper than {limits.depth}")
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name) is None:
            raise HostileArtifact(f"the name {guard_line(ascii(path.name), max_chars=80)}")
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _walk(path, depth=depth + 1, limits=limits)
        elif stat.S_ISREG(mode):
            yield path
        else:
            raise HostileArtifact(f"{path.name} is a link or a device, not a file")


def _expanded_bytes(file: BinaryIO, *, name: str, most: int) -> int:
    """The size of a gzip file once expanded, over all its members; refused as soon as it is more than `most`."""
    total, member = 0, zlib.decompressobj(wbits=31)
    data = file.read(_CHUNK)
    while data:
        try:
            total += len(member.decompress(data, _CHUNK))
        except zlib.error as error:
            raise HostileArtifact(f"{name} is no gzip file") from error
        if total > most:
            raise HostileArtifact(f"{name} expands to more than allowed")
        if member.eof:
            data = member.unused_data or file.read(_CHUNK)
            member = zlib.decompressobj(wbits=31)
        else:
            data = member.unconsumed_tail or file.read(_CHUNK)
    return total


def read_json(path: Path, *, limits: Limits | None = None) -> object:
    """A JSON file of bounded size and depth, without repeated keys, NaN, infinities and numbers of a thousand digits."""
    allowed = limits or Limits()
    with path.open("rb") as file:
        data = file.read(allowed.json_bytes + 1)
    if len(data) > allowed.json_bytes:
        raise HostileArtifact(f"{path.name} has more than {allowed.json_bytes} bytes")
    _check_depth(data, name=path.name, most=allowed.json_depth)
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise HostileArtifact(f"{path.name}: {guard_line(str(error), max_chars=120)}") from error


def _check_depth(data: bytes, *, name: str, most: int) -> None:
    """Count brackets outside of strings, before the parser recurses into them."""
    depth = 0
    for found in _NESTING.finditer(data):
        sign = found[0][:1]
        depth += 1 if sign in b"[{" else -1 if sign in b"]}" else 0
        if depth > most:
            raise HostileArtifact(f"{name} is nested deeper than {most}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
