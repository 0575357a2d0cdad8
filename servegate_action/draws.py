"""Random numbers that are a function of their names alone: the same on every machine, with every version of everything.

NumPy promises no such thing of its generators (NEP 19), nor Python of most of `random`. A workload whose digest changed
with an upgrade could not be compared with an earlier one. The bits are SHAKE-256 of the names (FIPS 202), 64 at a time.
It refuses to draw anything that was not named.
"""

from __future__ import annotations

import hashlib
import sys
from array import array


class Draws:
    """One stream. Streams of different names have nothing to do with each other; each call goes on where the last ended."""

    __slots__ = ("_calls", "_key")

    def __init__(self, *names: str) -> None:
        self._key = hashlib.sha256("/".join(names).encode()).digest()
        self._calls = 0

    def below(self, limit: int, count: int) -> list[int]:
        """`count` whole numbers from 0 to `limit` − 1, evenly (but for limit / 2⁶⁴: Lemire 2019, without the rejection)."""
        return [word * limit >> 64 for word in self._words(count)]

    def unit(self, count: int) -> list[float]:
        """`count` numbers between 0 and 1, neither included: the middles of 2⁵² equal steps."""
        return [((word >> 12) + 0.5) * 2.0**-52 for word in self._words(count)]

    def order(self, count: int) -> list[int]:
        """The numbers from 0 to `count` − 1 in any order, all orders equally likely."""
        words = self._words(count)
        return sorted(range(count), key=words.__getitem__)

    def _words(self, count: int) -> array[int]:
        block = hashlib.shake_256(self._key + self._calls.to_bytes(8, "little")).digest(8 * count)
        self._calls += 1
        words = array("Q", block)
        if sys.byteorder == "big":  # pragma: no cover - no machine that a stack runs on
            words.byteswap()
        return words
