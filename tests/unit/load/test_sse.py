"""The event stream format, line by line (HTML standard, 9.2.6)."""

from __future__ import annotations

import pytest

from servegate_action.load.sse import Event, events


def read(body: bytes, *, whole: bool = True, start: int = 0) -> list[tuple[bytes, bytes | None]]:
    return [(event.name, event.data) for event in events(body, start=start, whole=whole)]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"id: 1\nretry: 5\ndata: a\n\n", [b"a"]),
    ],
)
def test_the_data_of_an_event(body: bytes, told: list[bytes]) -> None:
    assert [data for _, data in read(body)] == told


def test_empty_lines_alone_are_no_event() -> None:
    assert read(b"\n\n\ndata: a\n\n\n\n") == [(b"message", b"a")]


def test_a_block_of_comments_is_an_event_without_data() -> None:
    assert read(b": ping\n\ndata: a\n\n") == [(b"message", None), (b"message", b"a")]


def test_a_name_holds_for_its_event_only() -> None:
    assert read(b"event: error\ndata: a\n\ndata: b\n\n") == [(b"error", b"a"), (b"message", b"b")]


def test_the_last_event_counts_without_its_empty_line_only_when_the_response_is_complete() -> None:
    for body in (b"data: a\n\ndata: [DONE]\n", b"data: a\n\ndata: [DONE]"):
        assert [data for _, data in read(body)] == [b"a", b"[DONE]"]
        assert [data for _, data in read(body, whole=False)] == [b"a"]


def test_ends_are_the_offsets_after_the_empty_line() -> None:
    body = b"data: a\n\n: x\n\ndata: b"
    assert [event.end for event in events(body, whole=True)] == [9, 14, len(body)]
    assert list(events(body, start=9, whole=True)) == [Event(b"message", None, 14), Event(b"message", b"b", len(body))]
