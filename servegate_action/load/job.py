"""What a client process is told, and how its answers travel back.

A job is one JSON line; the request bytes themselves lie ready in shared memory, made before the round, so that sending
is one system call on a slice of it. Answers are frames on a pipe: a kind, a JSON part and a binary part of int64 stamps.
Only the standard library is used, because client processes start without anything else. It refuses to know records.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator
from io import RawIOBase
from typing import BinaryIO, NamedTuple

_FRAME = struct.Struct("!cII")
_ENTRY = struct.Struct("!QQqIBxxx")
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

READY, PROGRESS, REQUEST, DONE = b"R", b"P", b"Q", b"D"


class Entry(NamedTuple):
    """One planned request: where its bytes lie, when it is due (relative to the start; -1 = closed loop)."""

    offset: int
    length: int
    due_ns: int
    output_tokens: int
    warmup: int


class Job(NamedTuple):
    """The work of one client process. File descriptors are inherited under the same numbers."""

    family: int
    address: tuple[object, ...]
    server_name: str
    tls: bool
    cafile: str | None
    slots: int
    first_slot: int
    open_loop: bool
    chat: bool
    wire_fd: int
    index_fd: int
    queue_fd: int
    entries: int
    request_timeout_ns: int
    stall_timeout_ns: int
    open_timeout_ns: int
    kernel_stamps: bool = True
    sample_texts: int = 0

    def to_line(self) -> bytes:
        """The job as one line of JSON."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> Job:
        """The inverse of `to_line`."""
        told = json.loads(line)
        told["address"] = tuple(told["address"])
        return Job(**told)


def pack_entries(entries: list[Entry]) -> bytes:
    """All entries, fixed width."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def unpack_entries(packed: bytes) -> list[Entry]:
    """The inverse of `pack_entries`."""
    return [Entry(*fields) for fields in _ENTRY.iter_unpack(packed)]


def write_frame(pipe: BinaryIO | RawIOBase, kind: bytes, told: object, stamps: array[int] | None = None) -> None:
    """Append one frame."""
    head = _encode(told).encode()
    tail = stamps.tobytes() if stamps is not None else b""
    pipe.write(_FRAME.pack(kind, len(head), len(tail)) + head + tail)


class FrameReader:
    """Frames out of a byte stream that arrives in pieces of any size."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, dict[str, object], array[int]]]:
        """Add bytes; yields each frame that is now whole: kind, told, stamps."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _FRAME.size:
            kind, head, tail = _FRAME.unpack_from(buffer, at)
            first = at + _FRAME.size
            if len(buffer) < first + head + tail:
                break
            stamps = array("q")
            stamps.frombytes(buffer[first + head : first + head + tail])
            yield kind, json.loads(buffer[first : first + head].decode()), stamps
            at = first + head + tail
        del buffer[:at]
