"""Where finished exchanges wait to be parsed: in memory, and beyond a limit in an unnamed temporary file.

A cell of ordinary size never touches the file. A long one stays flat in memory: now and then, never while an answer is
being taken, the oldest exchanges move into the file (a copy into the page cache), for a few milliseconds at most. They
are read back one at a time. The file has no name, so nothing is left behind however the process ends. It refuses to parse.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, cast

from servegate_action.load.exchange import Exchange

MEMORY_LIMIT_BYTES = 8 << 20
RELIEF_NS = 2_000_000


class Spill:
    """Keeps exchanges in the order in which they ended."""

    def __init__(self, *, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> None:
        self._limit = memory_limit_bytes
        self._held_bytes = 0
        self._held: deque[Exchange] = deque()
        self._file: BinaryIO | None = None
        self._in_file = 0

    def keep(self, exchange: Exchange) -> None:
        """Take a finished exchange."""
        self._held_bytes += _size(exchange)
        self._held.append(exchange)

    def relieve(self, budget_ns: int = RELIEF_NS) -> None:
        """Move the oldest into the file until the rest fits the limit, or the time is up."""
        until_ns = time.monotonic_ns() + budget_ns
        while self._held and self._held_bytes > self._limit and time.monotonic_ns() < until_ns:
            exchange = self._held.popleft()
            self._held_bytes -= _size(exchange)
            if self._file is None:
                self._file = cast("BinaryIO", tempfile.TemporaryFile(prefix="servegate-load-"))  # noqa: SIM115 - lives as long as the spill
            pickle.dump(exchange, self._file, protocol=5)
            self._in_file += 1

    def drain(self) -> Iterator[Exchange]:
        """Every exchange once, in order; what was held is let go while it is read."""
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self._in_file):
                yield pickle.load(self._file)  # noqa: S301 - our own bytes, out of a file that has no name
            self._file.close()
            self._file = None
        while self._held:
            yield self._held.popleft()


def _size(exchange: Exchange) -> int:
    return len(exchange.buffer) + 32 * len(exchange.stamps) + 1024
