"""SHA-256 of weight files at the speed of the disk: several files at once, large reads, and a cache.

hashlib lets go of the interpreter lock while it hashes, so threads use all cores. One file cannot be split (SHA-256 is a
chain), so the largest files are started first. The cache is keyed by path, size, mtime, ctime, inode and device: a file
that was changed in place keeps none of the first three unless someone sets the clock back, and ctime cannot be set at
all. What it cannot see: a disk that returns other bytes without a write. Without a cache directory everything is hashed
each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from servegate_action.errors import CannotMeasure

Progress = Callable[[str], None]

BLOCK = 8 * 2**20
THREADS = 8
SAY_EVERY_S = 5.0
CACHE_FILE = "weights-sha256.json"
CACHE_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class FileHash:
    """One file: name relative to the model's folder, size in bytes, SHA-256."""

    name: str
    size: int
    sha256: str


def hash_files(
    root: Path, files: Sequence[Path], *, cache_dir: Path | None, progress: Progress = lambda _: None
) -> tuple[FileHash, ...]:
    """Hash files below (or equal to) `root`, in the order given. Raises CannotMeasure when one cannot be read."""
    cache = HashCache(cache_dir)
    keys = {path: _key(path) for path in files}
    known = {path: digest for path in files if (digest := cache.get(keys[path])) is not None}
    missing = sorted((path for path in files if path not in known), key=lambda path: -keys[path].size)
    if missing:
        found = _hash_all(missing, sum(keys[path].size for path in missing), progress)
        moved = [path for path in missing if _key(path) != keys[path]]
        if moved:
            raise CannotMeasure(f"{moved[0]} changed while it was being hashed", next_step="wait until it is complete")
        cache.put({keys[path]: digest for path, digest in found.items()})
        known |= found
    return tuple(FileHash(_name(root, path), keys[path].size, known[path]) for path in files)


def sha256(path: Path, count: Callable[[int], None] = lambda _: None) -> str:
    """SHA-256 of one file, in reads of 8 MiB into one buffer that is used again."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file, mmap.mmap(-1, BLOCK) as buffer, memoryview(buffer) as view:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while (size := file.readinto(view)) > 0:
            with view[:size] as part:
                digest.update(part)
            count(size)
    return digest.hexdigest()


def _hash_all(files: Sequence[Path], total: int, progress: Progress) -> dict[Path, str]:
    lock = threading.Lock()
    started = said = time.monotonic()
    done = 0

    def count(size: int) -> None:
        nonlocal done, said
        with lock:
            done += size
            now = time.monotonic()
            if now - said < SAY_EVERY_S:
                return
            said = now
            speed = done / (now - started)
        progress(f"hashing weights: {done / 1e9:.1f} of {total / 1e9:.1f} GB, {speed / 1e9:.2f} GB/s")

    def one(path: Path) -> tuple[Path, str]:
        try:
            return path, sha256(path, count)
        except OSError as error:
            raise CannotMeasure(
                f"the weight file {path} cannot be read: {error.strerror}",
                next_step="give the user that runs servegate read access to the weights",
            ) from error

    workers = min(THREADS, os.cpu_count() or 1, len(files))
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="servegate-hash") as pool:
        return dict(pool.map(one, files))


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root if root.is_dir() else root.parent).as_posix()


# ---------------------------------------------------------------- the cache


@dataclass(frozen=True, slots=True)
class _Key:
    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    def __str__(self) -> str:
        return f"{self.size}:{self.mtime_ns}:{self.ctime_ns}:{self.inode}:{self.device}:{self.path}"


def _key(path: Path) -> _Key:
    try:
        status = path.stat()
    except OSError as error:
        raise CannotMeasure(f"the weight file {path} cannot be read: {error.strerror}") from error
    return _Key(
        str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev
    )


class HashCache:
    """A small JSON file of known digests. Unreadable or damaged: as if empty. Written whole, by rename."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / CACHE_FILE
        self._entries: dict[str, str] = {} if self._path is None else _load(self._path)

    def get(self, key: _Key) -> str | None:
        """The digest of exactly this state of the file."""
        return self._entries.get(str(key))

    def put(self, found: Mapping[_Key, str]) -> None:
        """Add, and keep the newest entries. A cache that cannot be written is no error: the next run hashes again."""
        if self._path is None:
            return
        self._entries |= {str(key): digest for key, digest in found.items()}
        kept = dict(list(self._entries.items())[-CACHE_ENTRIES:])
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=CACHE_FILE)
            with os.fdopen(handle, "w") as file:
                json.dump(kept, file)
            Path(name).replace(self._path)


def _load(path: Path) -> dict[str, str]:
    try:
        entries = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {key: value for key, value in entries.items() if isinstance(value, str) and len(value) == 64}
