"""Where finished exchanges wait to be parsed: in memory, and beyond a limit in an unnamed temporary file.

A cell of ordinary size never touches the file. A long one stays flat in memory: the file is appended to as answers end
(a copy into the page cache, about 10 µs) and read back one answer at a time. The file has no name, so nothing is left
behind however the process ends. It refuses to parse.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from servegate_action.load.engine import Exchange

MEMORY_LIMIT_BYTES = 8 << 20


class Spill:
    """Keeps exchanges in the order in which they ended."""

    def __init__(self, *, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> None:
        self._limit = memory_limit_bytes
        self._held_bytes = 0
        self._held: list[Exchange] = []
        self._file: BinaryIO | None = None
        self._in_file = 0

    def keep(self, exchange: Exchange) -> None:
        """Take a finished exchange."""
        size = len(exchange.buffer) + 32 * len(exchange.stamps) + 1024
        if self._held_bytes + size <= self._limit:
            self._held_bytes += size
            self._held.append(exchange)
            return
        if self._file is None:
            self._file = cast("BinaryIO", tempfile.TemporaryFile(prefix="servegate-load-"))  # noqa: SIM115 - lives as long as the spill
        pickle.dump(exchange, self._file, protocol=5)
        self._in_file += 1

    def drain(self) -> Iterator[Exchange]:
        """Every exchange once; what was held is let go while it is read."""
        self._held.reverse()
        while self._held:
            yield self._held.pop()
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self._in_file):
                yield pickle.load(self._file)  # noqa: S301 - our own bytes, out of a file that has no name
            self._file.close()
            self._file = None
