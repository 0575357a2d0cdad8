"""Server-sent events out of a finished body: the slow, exact way.

Follows the event stream format of the HTML standard (9.2.6): lines end with LF, CRLF or CR; `data` lines of one event
are joined by LF; one space after the colon is dropped; comments and unknown fields are ignored; an empty line ends the
event. One thing more than the standard: when the response itself is complete, a last event without its empty line
counts, because several servers close right after `data: [DONE]`. It refuses to read JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its name (`message` unless told), its data, and the offset after its last byte."""

    name: bytes
    data: bytes | None
    end: int


def events(body: bytes, *, start: int = 0, whole: bool) -> Iterator[Event]:
    """Events of `body[start:]`; blocks of comments only are events without data. `start` must be an event's start."""
    at = start
    if at == 0 and body.startswith(_BOM):
        at = len(_BOM)
    name, data, seen = b"", None, False
    for line_end in _LINE_END.finditer(body, at):
        line = body[at : line_end.start()]
        at = line_end.end()
        if not line:
            if seen:
                yield Event(name or b"message", data, at)
            name, data, seen = b"", None, False
            continue
        name, data, seen = *_field(line, name, data), True
    if whole and (at < len(body) or seen):
        if at < len(body):
            name, data = _field(body[at:], name, data)
        yield Event(name or b"message", data, len(body))


def _field(line: bytes, name: bytes, data: bytes | None) -> tuple[bytes, bytes | None]:
    """Take one line into the event under construction."""
    key, _, value = line.partition(b":")
    value = value.removeprefix(b" ")
    if key == b"data":
        return name, value if data is None else data + b"\n" + value
    if key == b"event":
        return value, data
    return name, data
