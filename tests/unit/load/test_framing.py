"""Where a response ends does not depend on how it was cut into packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.load.framing import Framing, Mode
from tests.unit.load.feeding import cut, frame

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nx-t: 1\r\n\r\n"
LENGTH = OK + b"content-length: 5\r\n\r\nhello"
EMPTY = OK + b"content-length: 0\r\n\r\n"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + LENGTH
WHOLE = [CHUNKED, LENGTH, EMPTY, EARLY, b"HTTP/1.1 204 No Content\r\n\r\n"]


def data_of(buffer: bytearray, framing: Framing) -> bytes:
    """The data of all chunks, as far as they have come."""
    chunks = list(framing.chunks)
    return b"".join(bytes(buffer[first:last]) for first, last in zip(chunks[::2], chunks[1::2], strict=True))


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 200)))
def test_the_end_is_found_at_the_last_byte_however_the_bytes_are_cut(data: bytes, places: list[int]) -> None:
    pieces = cut(data, places)
    buffer, _, marks, framing = frame(pieces)
    assert (framing.complete, framing.broken, framing.end) == (True, None, len(data))
    assert len(marks) == len(pieces)
    assert bytes(buffer) == data
    assert framing.reusable


@given(st.sampled_from(WHOLE), st.integers(1, 200))
def test_a_truncated_response_is_never_complete(data: bytes, missing: int) -> None:
    _, _, _, framing = frame([data[: max(0, len(data) - missing)]], closed=True)
    assert not framing.complete


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)))
def test_garbage_is_never_complete_and_never_raises(data: bytes, places: list[int]) -> None:
    _, _, _, framing = frame(cut(data, places), closed=True)
    assert not framing.complete


@given(st.binary(max_size=200), st.lists(st.integers(0, 300)))
def test_garbage_after_a_chunked_head_ends_or_waits_but_never_raises(data: bytes, places: list[int]) -> None:
    head = OK + b"transfer-encoding: chunked\r\n\r\n"
    pieces = cut(head + data, places)
    whole, parts = frame([head + data])[3], frame(pieces)[3]
    assert (whole.complete, whole.end) == (parts.complete, parts.end)
    assert (whole.broken is None) == (parts.broken is None)


def test_bytes_beyond_the_end_belong_to_nobody() -> None:
    buffer, _, _, framing = frame([LENGTH + b"HTTP/1.1 408 late\r\n"])
    assert (framing.complete, framing.end, len(buffer)) == (True, len(LENGTH), len(LENGTH) + 19)


def test_without_length_the_close_is_the_end() -> None:
    _, _, _, framing = frame([OK + b"\r\nhel", b"lo"], closed=True)
    assert (framing.mode, framing.complete, framing.reusable) == (Mode.UNTIL_CLOSE, True, False)


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", True),
    ],
)
def test_a_connection_is_reused_only_when_http_allows(head: bytes, reusable: bool) -> None:
    assert frame([head])[3].reusable is reusable


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"HTTP/2 200\r\n\r\n", "status line"),
        (b"\x16\x03\x01", "not an HTTP response"),
        (OK + b"no colon here\r\n\r\n", "header field"),
        (OK + b"transfer-encoding: gzip, chunked\r\n\r\n", "transfer-encoding"),
        (OK + b"content-length: 1e3\r\n\r\n", "content-length"),
        (OK + b"content-length: 1, 2\r\n\r\n", "content-length"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70000, "longer than"),
        (OK + b"transfer-encoding: chunked\r\n\r\n" + b"0" * 2000, "chunk size"),
        (OK + b"transfer-encoding: chunked\r\n\r\n-1\r\n", "chunk size"),
        (OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", "longer than its size"),
        (OK + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x" * 70000, "trailers"),
    ],
)
def test_what_violates_http_is_named(data: bytes, what: str) -> None:
    framing = frame([data])[3]
    assert what in str(framing.broken)
    assert not framing.complete


def test_equal_content_lengths_given_twice_are_one() -> None:
    assert frame([OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nab"])[3].complete


def test_extents_are_the_data_of_the_chunks_even_when_the_last_is_cut_short() -> None:
    whole = frame([CHUNKED])
    assert data_of(whole[0], whole[3]) == b"hello world"
    short = frame([CHUNKED[: CHUNKED.index(b"hello") + 3]])
    assert data_of(short[0], short[3]) == b"hel"
    assert list(short[3].chunks)[1] > len(short[0])


def test_nothing_is_wanted_before_something_has_come() -> None:
    assert Framing().wanted == 1
