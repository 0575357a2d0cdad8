"""The run directory: what is in it, written as the run goes on, readable after a kill at any moment.

`recording.json` is replaced atomically after each launch; a launch's requests are appended one gzip member per finished
cell and synced, so that a kill loses at most the cell in progress. `manifest.json` is written last and lists the
sha256 and size of every file. This room stores and loads; it computes nothing but digests.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from servegate_action.errors import RecordingUnreadable, StorageFailed
from servegate_action.records import (
    Absent,
    LaunchRecord,
    Recording,
    RequestRecord,
    TelemetrySample,
    TelemetryStatic,
)

RECORDING = "recording.json"
CONFIG = "config.yml"
WORKLOAD = "workload.jsonl.gz"
TRAFFIC = "traffic.txt"
MANIFEST = "manifest.json"
VERDICT = "verdict.json"
COMMENT = "comment.md"
SUMMARY = "summary.md"
PAGE = "report.html"
TRACE = "tokens_per_second.csv"
ROUNDS = "rounds"

MANIFEST_VERSION = 1
_REQUESTS = "requests.jsonl.gz"
_TELEMETRY = "telemetry.jsonl"
_LOG = "server.log"

_requests_of_cell: TypeAdapter[tuple[RequestRecord, ...]] = TypeAdapter(tuple[RequestRecord, ...])


@dataclass(frozen=True, slots=True)
class LaunchFiles:
    """Where one launch's facts are."""

    folder: Path

    @property
    def requests(self) -> Path:
        """Every request with every token time."""
        return self.folder / _REQUESTS

    @property
    def telemetry(self) -> Path:
        """The sampler's lines."""
        return self.folder / _TELEMETRY

    @property
    def log(self) -> Path:
        """What the stack wrote."""
        return self.folder / _LOG


@dataclass(frozen=True, slots=True)
class LaunchData:
    """A launch's bulk facts, loaded. `damaged` says what could not be read, if anything."""

    requests: tuple[RequestRecord, ...]
    telemetry: TelemetryStatic | Absent
    samples: tuple[TelemetrySample, ...]
    damaged: str | None = None


class RunDirectory:
    """One run's folder. Writing translates every OSError into StorageFailed, reading into RecordingUnreadable."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # ------------------------------------------------------------ writing

    @classmethod
    def create(cls, root: Path) -> RunDirectory:
        """A fresh folder. One that holds an earlier run is moved aside to `<name>.<n>`, never written over."""
        with _storage(root):
            if (root / RECORDING).exists() or (root / MANIFEST).exists():
                root.rename(_free_name(root))
            root.mkdir(parents=True, exist_ok=True)
            root.chmod(0o755)
            (root / ROUNDS).mkdir(exist_ok=True)
        return cls(root)

    def write_recording(self, recording: Recording) -> None:
        """Replace `recording.json` atomically."""
        self.write_text(RECORDING, recording.model_dump_json(indent=1) + "\n")

    def write_text(self, name: str, text: str) -> Path:
        """Replace a file atomically: a reader sees the old one or the new one, never half of it."""
        target = self.root / name
        temporary = target.with_name(f".{target.name}.partial")
        with _storage(target):
            try:
                with temporary.open("w", encoding="utf-8", newline="\n") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        return target

    def write_lines(self, name: str, lines: Iterable[str]) -> Path:
        """A gzip file of lines, the same bytes for the same lines."""
        target = self.root / name
        with _storage(target), target.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            for line in lines:
                file.write(line.encode() + b"\n")
        return target

    def launch(self, name: str) -> LaunchFiles:
        """The folder of one launch, made if need be."""
        folder = self.root / name
        with _storage(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return LaunchFiles(folder)

    def append_requests(self, files: LaunchFiles, requests: Sequence[RequestRecord]) -> None:
        """One finished cell: one gzip member of JSON lines, on disk before this returns."""
        text = b"".join(request.model_dump_json().encode() + b"\n" for request in requests)
        with _storage(files.requests), files.requests.open("ab") as file:
            file.write(gzip.compress(text, 6, mtime=0))
            file.flush()
            os.fsync(file.fileno())

    def write_manifest(self, tool_version: str) -> None:
        """Sha256 and size of every file but the manifest itself; last act of a run."""
        files = {name: {"sha256": digest, "size": size} for name, digest, size in self._digests()}
        document = {"manifest_version": MANIFEST_VERSION, "tool": f"servegate {tool_version}", "files": files}
        self.write_text(MANIFEST, json.dumps(document, indent=1, sort_keys=True) + "\n")

    # ------------------------------------------------------------ reading

    def has(self, name: str) -> bool:
        """Whether the file exists."""
        return (self.root / name).is_file()

    def recording(self) -> Recording:
        """The recording. Raises RecordingUnreadable with what to do."""
        try:
            return Recording.model_validate_json(self.read_text(RECORDING))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise RecordingUnreadable(
                f"{self.root / RECORDING} is no recording that this version reads: {place}: {first['msg']}",
                why="it was changed, cut off, or written by another version of servegate",
                next_step="use the version that wrote it (see `tool_version` in the file), or measure again",
            ) from None

    def read_text(self, name: str) -> str:
        """A text file of the run."""
        path = self.root / name
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RecordingUnreadable(
                f"{path} does not exist",
                why="the folder is not a run directory, or the run died before it was written",
                next_step="give the folder that `servegate run -o DIR` wrote",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise RecordingUnreadable(f"{path} cannot be read: {error}") from None

    def read_bytes(self, name: str) -> bytes | None:
        """A file's bytes, or None when there is none."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordingUnreadable(f"{self.root / name} cannot be read: {error}") from None

    def data(self, launch: LaunchRecord) -> LaunchData:
        """A launch's requests and samples. A file that was cut off gives what is whole in it, and says so."""
        files = LaunchFiles(self.root / launch.directory)
        requests, request_damage = _read_requests(files.requests)
        static, samples, sample_damage = _read_telemetry(files.telemetry)
        return LaunchData(requests, static, samples, "; ".join(filter(None, (request_damage, sample_damage))) or None)

    def check_manifest(self) -> list[str]:
        """What differs from the manifest, one line per file; empty when nothing does."""
        try:
            listed = json.loads(self.read_text(MANIFEST))["files"]
            expected = {str(name): (str(entry["sha256"]), int(entry["size"])) for name, entry in listed.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RecordingUnreadable(f"{self.root / MANIFEST} is not a manifest") from None
        found = {name: (digest, size) for name, digest, size in self._digests()}
        lines = [f"{name}: missing" for name in expected if name not in found]
        lines += [f"{name}: not in the manifest" for name in found if name not in expected]
        for name in sorted(expected.keys() & found.keys()):
            if expected[name] != found[name]:
                sizes = (
                    f"{expected[name][1]} → {found[name][1]} bytes"
                    if expected[name][1] != found[name][1]
                    else "same size"
                )
                lines.append(f"{name}: changed ({sizes}; sha256 {expected[name][0][:12]}… → {found[name][0][:12]}…)")
        return lines

    def _digests(self) -> Iterator[tuple[str, str, int]]:
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.name != MANIFEST:
                with _readable(path), path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                    yield path.relative_to(self.root).as_posix(), digest, path.stat().st_size


# ---------------------------------------------------------------- bulk files


def _read_requests(path: Path) -> tuple[tuple[RequestRecord, ...], str | None]:
    """All records of all whole gzip members. A torn last member is reported, not raised."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return (), None
    except OSError as error:
        raise RecordingUnreadable(f"{path} cannot be read: {error}") from None
    records: list[RequestRecord] = []
    damage = None
    while raw:
        inflater = zlib.decompressobj(wbits=31)
        try:
            text = inflater.decompress(raw)
            if not inflater.eof:
                damage = f"{path.name}: the last cell was cut off while it was written"
                break
            raw = inflater.unused_data
            records.extend(_requests_of_cell.validate_json(b"[" + b",".join(text.splitlines()) + b"]"))
        except (zlib.error, ValidationError) as error:
            raise RecordingUnreadable(
                f"{path} is damaged: {str(error).splitlines()[0]}",
                why="a recorded file was changed after it was written",
                next_step="`servegate verify` names every file that differs; measure again",
            ) from None
    return tuple(records), damage


def _read_telemetry(path: Path) -> tuple[TelemetryStatic | Absent, tuple[TelemetrySample, ...], str | None]:
    """Static line and samples. A torn last line (a kill while it was written) is reported, not raised."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Absent(absent="no telemetry was recorded for this launch"), (), None
    except OSError as error:
        raise RecordingUnreadable(f"{path} cannot be read: {error}") from None
    torn = lines.pop()
    damage = f"{path.name}: the last line was cut off while it was written" if torn else None
    if not lines:
        return Absent(absent="the sampler wrote nothing"), (), damage
    try:
        static = TelemetryStatic.model_validate_json(lines[0])
        samples = tuple(TelemetrySample.model_validate_json(line) for line in lines[1:])
    except ValidationError as error:
        raise RecordingUnreadable(f"{path} is damaged: {str(error).splitlines()[0]}") from None
    return static, samples, damage


def _free_name(root: Path) -> Path:
    number = 1
    while (other := root.with_name(f"{root.name}.{number}")).exists():
        number += 1
    return other


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"cannot write {path}: {error.strerror or error}",
            why="the disk is full, or this user may not write here",
            next_step="free space or choose another folder with -o; what was finished before is kept",
        ) from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordingUnreadable(f"{path} cannot be read: {error.strerror or error}") from None
