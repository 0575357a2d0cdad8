"""Where one HTTP/1.1 response ends, found out while it arrives.

Works on the growing buffer of everything received for one request, and only ever looks at bytes that it has not judged
yet: a chunk is skipped by its size, never searched. Sources: RFC 9112 (6 message body, 7 transfer codings), RFC 9110
(15 status codes). It refuses to interpret the body (`answer` does that after the round), to follow redirects, and to
decode compressed bodies (none is ever asked for).
"""

from __future__ import annotations

import re
from array import array
from enum import IntEnum

MAX_HEAD_BYTES = 65536
_CHUNK_LINE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_CHUNK_LINE_MAX = 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?\r\n")
_FOREVER = 1 << 62
LAST_BYTES = b"\r\n\r\n"
_UNKNOWN = (0, 0)
_KNOWN_LINES: dict[bytes, tuple[int, int]] = {}
"""Chunk-size lines of two and three digits that were seen before: CRLF and what follows it, up to six bytes, to the size and
where its data begins. A stream repeats a few sizes, and looking one up costs a fifth of reading it."""


class Mode(IntEnum):
    """How the end of the body is told."""

    HEAD = 0
    LENGTH = 1
    CHUNKED = 2
    UNTIL_CLOSE = 3


class Framing:
    """The state of one response: `advance` it whenever `len(buffer) >= wanted` or the buffer ends with `LAST_BYTES`.

    Most reads need neither: `wanted` is the length below which nothing can be decided, and a chunked response, whose
    length nobody knows, ends with an empty line in any case. Other reads may be judged later, all at once, at no loss:
    what would be noticed late is a server that goes on talking after its answer. `chunks` holds where the data of each
    chunk starts and ends, in pairs; the last chunk may not have arrived in full. `end` is the offset after the last byte of the response once it is `complete`. `broken` says what violated HTTP.
    """

    __slots__ = (
        "body_start",
        "broken",
        "chunk_at",
        "chunks",
        "complete",
        "end",
        "headers",
        "http_minor",
        "mode",
        "status",
        "wanted",
    )

    def __init__(self) -> None:
        self.mode = Mode.HEAD
        self.wanted = 1
        self.status = 0
        self.http_minor = 1
        self.headers: dict[bytes, bytes] = {}
        self.body_start = 0
        self.chunk_at = 0
        self.chunks: array[int] = array("q")
        self.end = 0
        self.complete = False
        self.broken: str | None = None

    def advance(self, buffer: bytearray) -> bool:
        """Judge what has arrived. True once the response is complete or broken: nothing more will be read for it."""
        if self.mode is Mode.HEAD and not self._read_heads(buffer):
            return self.broken is not None
        if self.mode is Mode.CHUNKED:
            self._skip_chunks(buffer)
        elif self.mode is Mode.LENGTH and len(buffer) >= self.wanted:
            self.complete, self.end = True, self.wanted
        return self.complete or self.broken is not None

    def closed(self, buffer: bytearray) -> bool:
        """The peer closed its side. True when that is a proper end of the response."""
        if buffer:
            self.advance(buffer)
        if not self.complete and self.broken is None and self.mode is Mode.UNTIL_CLOSE:
            self.complete, self.end = True, len(buffer)
        return self.complete

    @property
    def reusable(self) -> bool:
        """True when the connection may carry another request after this response."""
        connection = self.headers.get(b"connection", b"").lower()
        if not self.complete or self.mode is Mode.UNTIL_CLOSE or b"close" in connection:
            return False
        return self.http_minor == 1 or b"keep-alive" in connection

    def _read_heads(self, buffer: bytearray) -> bool:
        """Read the head, and any 1xx heads before it. True when the body's framing is known."""
        while True:
            end = buffer.find(b"\r\n\r\n", self.body_start)
            if end < 0:
                self.wanted = len(buffer) + 1
                self._refuse_impossible_head(buffer)
                return False
            if not self._read_head(bytes(buffer[self.body_start : end + 4])):
                return False
            self.body_start = end + 4
            if self.status >= 200:
                return self._choose_mode()
            if self.status == 101:
                self.broken = "the server switched protocols (101)"
                return False

    def _refuse_impossible_head(self, buffer: bytearray) -> None:
        start = bytes(buffer[self.body_start : self.body_start + 5])
        if not b"HTTP/".startswith(start):
            self.broken = f"not an HTTP response: {start!r}"
        elif len(buffer) - self.body_start > MAX_HEAD_BYTES:
            self.broken = f"the response head is longer than {MAX_HEAD_BYTES} bytes"

    def _read_head(self, head: bytes) -> bool:
        line = _STATUS_LINE.match(head)
        if line is None:
            self.broken = f"not an HTTP/1 status line: {head[:60]!r}"
            return False
        self.http_minor, self.status = int(line[1]), int(line[2])
        self.headers = {}
        for field in head[line.end() : -4].split(b"\r\n"):
            name, colon, value = field.partition(b":")
            if not field:
                continue
            if not colon or not name.strip():
                self.broken = f"not a header field: {field[:60]!r}"
                return False
            key = name.lower()
            value = value.strip(b" \t")
            self.headers[key] = self.headers[key] + b", " + value if key in self.headers else value
        return True

    def _choose_mode(self) -> bool:
        """RFC 9112, 6.3: no body for 204 and 304; transfer-encoding before content-length; else until close."""
        coding = self.headers.get(b"transfer-encoding")
        length = self.headers.get(b"content-length")
        if self.status in {204, 304}:
            self.mode, self.wanted = Mode.LENGTH, self.body_start
        elif coding is not None:
            if coding.lower() != b"chunked":
                self.broken = f"unsupported transfer-encoding {coding[:40]!r}"
                return False
            self.mode, self.wanted, self.chunk_at = Mode.CHUNKED, _FOREVER, self.body_start
        elif length is not None:
            lengths = {part.strip() for part in length.split(b",")}
            (only,) = lengths if len(lengths) == 1 else (b"",)
            if not only.isdigit() or len(only) > 15:
                self.broken = f"not a content-length: {length[:40]!r}"
                return False
            self.mode, self.wanted = Mode.LENGTH, self.body_start + int(only)
        else:
            self.mode, self.wanted = Mode.UNTIL_CLOSE, _FOREVER
        return True

    def _skip_chunks(self, buffer: bytearray) -> None:
        """`chunk_at` is where the next chunk-size line starts; the CRLF before it is checked with it."""
        base = self.chunk_at - 2
        unseen = bytes(memoryview(buffer)[base:])
        at, length, chunks, known = 0, len(unseen), self.chunks, _KNOWN_LINES
        while at + 2 < length:
            size, begins = known.get(unseen[at : at + 6], _UNKNOWN)
            if not begins or unseen[at + begins - 1 : at + begins] != b"\n":
                line = self._chunk_line(unseen, at)
                if line is None:
                    break
                size, begins = int(line[1], 16), line.end() - at
                if size == 0:
                    self.chunk_at = base + at + 2
                    self._await_trailers(buffer, base + line.end())
                    return
            chunks.append(base + at + begins)
            at += begins + size
            chunks.append(base + at)
        self.chunk_at = base + at + 2

    def _chunk_line(self, unseen: bytes, at: int) -> re.Match[bytes] | None:
        """The chunk-size line after the CRLF at `at`; None when it has not arrived in full, or breaks HTTP."""
        if unseen[at : at + 2] != b"\r\n":
            self.broken = "a chunk is longer than its size says"
            return None
        line = _CHUNK_LINE.match(unseen, at + 2)
        if line is None:
            self._await_chunk_line(unseen, at + 2)
        elif line.end() - at in {6, 7} and line.end() - line.end(1) == 2 and int(line[1], 16):
            _KNOWN_LINES[unseen[at : at + 6]] = (int(line[1], 16), line.end() - at)
        return line

    def _await_chunk_line(self, unseen: bytes, at: int) -> None:
        line = unseen[at : at + _CHUNK_LINE_MAX]
        if b"\n" in line or len(line) >= _CHUNK_LINE_MAX or (line and not line[:1].isalnum()):
            self.broken = f"not a chunk size: {line[:20]!r}"

    def _await_trailers(self, buffer: bytearray, at: int) -> None:
        """The last chunk has come; the response ends with the first empty line from here."""
        if buffer[at : at + 2] == b"\r\n":
            self.complete, self.end = True, at + 2
            return
        end = buffer.find(b"\r\n\r\n", at)
        if end >= 0:
            self.complete, self.end = True, end + 4
        elif len(buffer) - at > MAX_HEAD_BYTES:
            self.broken = "the trailers are too long"
