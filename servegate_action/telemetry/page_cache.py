"""Weight files out of the page cache, so that a cold start is cold: dropped, verified, and named.

`posix_fadvise(DONTNEED)` is only advice: dirty pages and pages that another process has mapped stay. So the pages that
are still resident are counted afterwards with `mincore(2)`, and the condition of the cold start is what was found, not
what was asked for. It refuses to use `/proc/sys/vm/drop_caches`, which would empty the cache of the whole machine.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

STILL_COLD = 0.01
"""Share of the bytes that may stay resident in a cache that is called dropped: read-ahead of a header, no more."""


@dataclass(frozen=True, slots=True)
class PageCacheDrop:
    """What became of the page cache of some files. `resident_*` are bytes, None where the kernel would not tell."""

    condition: Literal["dropped", "as found", "unknown"]
    files: int
    bytes: int
    resident_before: int | None
    resident_after: int | None
    reason: str


def drop_page_cache(paths: Iterable[Path]) -> PageCacheDrop:
    """Drop the cached pages of these files, and of all files below these folders; then count what stayed."""
    files = tuple(_files(paths))
    if not files:
        return PageCacheDrop("unknown", 0, 0, None, None, "no weight file is visible from here")
    size = sum(path.stat().st_size for path in files)
    before = _resident_all(files)
    refused = [text for path in files if (text := _drop(path)) is not None]
    after = _resident_all(files)
    condition: Literal["dropped", "as found", "unknown"] = "unknown"
    if refused:
        reason = f"{len(refused)} of {len(files)} files could not be dropped: {refused[0]}"
    elif after is None:
        reason = "asked for, but the kernel does not say what stayed (mincore needs an owner or a writer of the file)"
    elif after <= STILL_COLD * size:
        condition, reason = "dropped", f"{after} of {size} bytes are still in the page cache"
    else:
        reason = f"{after} of {size} bytes stayed in the page cache: another process has them mapped, or they are dirty"
    if condition == "unknown" and before is not None and before == after:
        condition = "as found"
    return PageCacheDrop(condition, len(files), size, before, after, reason)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Regular files with bytes in them, links followed, each once."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if not one.is_file() or one.stat().st_size == 0:
                continue
            key = (one.stat().st_dev, one.stat().st_ino)
            if key not in seen:
                seen.add(key)
                yield one


def _drop(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return f"{path}: {error.strerror}"
    try:
        os.fdatasync(descriptor)  # dirty pages are not dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        return f"{path}: {error.strerror}"
    finally:
        os.close(descriptor)
    return None


def _resident_all(files: Iterable[Path]) -> int | None:
    counts = [resident_bytes(path) for path in files]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def resident_bytes(path: Path) -> int | None:
    """Bytes of a file that are in the page cache; None where the kernel would not tell.

    Since Linux 5.2 `mincore` calls everything resident unless the caller owns the file or may write to it
    (CVE-2019-5489); such an answer is no answer.
    """
    status = path.stat()
    if os.geteuid() not in (0, status.st_uid) and not os.access(path, os.W_OK):
        return None
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    pages = -(-status.st_size // mmap.PAGESIZE)
    flags = ctypes.create_string_buffer(pages)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        address = libc.mmap(None, status.st_size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            return None
        try:
            if libc.mincore(address, status.st_size, flags) != 0:
                return None
        finally:
            libc.munmap(address, status.st_size)
    finally:
        os.close(descriptor)
    resident = sum(flags.raw.translate(_LOWEST_BIT))
    return min(status.st_size, resident * mmap.PAGESIZE)


_LOWEST_BIT = bytes(value & 1 for value in range(256))
