"""Play the engine without a socket: pieces of bytes arrive one per microsecond, and are framed and read as usual."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise

from servegate_action.load.answer import Answer, Reader
from servegate_action.load.framing import LAST_BYTES, Framing
from tests.support.scripted_server.script import Script


def bytes_of(script: Script) -> bytes:
    """Everything that a script sends."""
    return b"".join(step.data for step in script.steps)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """`data` in pieces."""
    edges = [0, *sorted({place for place in places if 0 < place < len(data)}), len(data)]
    return [data[first:last] for first, last in pairwise(edges) if last > first]


def frame(pieces: Sequence[bytes], *, closed: bool = False) -> tuple[bytearray, array[int], array[int], Framing]:
    """Feed pieces until the framing wants no more; `closed` tells it that the connection ended then."""
    framing, buffer = Framing(), bytearray()
    stamps, marks = array("q"), array("q")
    for number, piece in enumerate(pieces):
        buffer += piece
        stamps.append(1000 * (number + 1))
        marks.append(len(buffer))
        if (len(buffer) >= framing.wanted or buffer.endswith(LAST_BYTES)) and framing.advance(buffer):
            break
    else:
        framing.advance(buffer)
        if closed:
            framing.closed(buffer)
    return buffer, stamps, marks, framing


def read(pieces: Sequence[bytes], *, reader: Reader | None = None, tokens: int = 8, closed: bool = False) -> Answer:
    """What the reader makes of the pieces."""
    buffer, stamps, marks, framing = frame(pieces, closed=closed)
    reader = reader or Reader()
    return reader.read(bytes(buffer), stamps=stamps, marks=marks, framing=framing, requested_tokens=tokens)
