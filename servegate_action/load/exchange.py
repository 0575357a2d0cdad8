"""One request under way: what was sent and when, the bytes that came back, and a stamp for each read of them.

It refuses to do anything: the engine fills it in, and `answer` reads it after the round.
"""

from __future__ import annotations

from array import array

from servegate_action.load.framing import Framing


class Exchange:
    """One request and everything that came back for it."""

    __slots__ = (
        "buffer",
        "due_ns",
        "end_ns",
        "error",
        "framing",
        "index",
        "last_ns",
        "marks",
        "resent",
        "reused",
        "sent_ns",
        "slot",
        "stamps",
        "unstamped",
        "waited",
    )

    def __init__(self, index: int, *, slot: int | None, due_ns: int) -> None:
        self.index = index
        self.slot = slot
        self.due_ns = due_ns
        self.sent_ns: int | None = None
        self.last_ns = due_ns
        self.end_ns = 0
        self.buffer = bytearray()
        self.stamps = array("q")
        self.marks = array("q")
        self.framing = Framing()
        self.unstamped = 0
        self.reused = False
        self.waited = False
        self.resent = False
        self.error: str | None = None
