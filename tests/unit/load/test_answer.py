"""The fast scan and the full parser agree on every stream, and on bytes that nobody meant to send."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate_action.load.answer import Answer, Reader
from servegate_action.load.shapes import make_scanner, read_event
from servegate_action.load.sse import events
from tests.integration.load.misbehaviours import COALESCED, FAILURES, FINE, HEAVY, SINGLE, UNCOUNTED
from tests.support.scripted_server.script import Answer as Told
from tests.support.scripted_server.script import Part, Script, chat_event, completion_event, sse, usage_event
from tests.unit.load.feeding import bytes_of, cut, read

SCRIPTS: dict[str, Script] = (
    FINE | HEAVY | UNCOUNTED | SINGLE | COALESCED | {name: script for name, (script, _) in FAILURES.items()}
)
SMALL = [name for name in SCRIPTS if len(bytes_of(SCRIPTS[name])) < 10_000]


def parts_of(answer: Answer) -> dict[str, object]:
    return {name: getattr(answer, name) for name in Answer.__slots__}


def same(one: Answer, other: Answer) -> bool:
    """Equal in everything."""
    return parts_of(one) == parts_of(other)


def warmed() -> Reader:
    """A fast reader that has already learnt from an ordinary answer of each API."""
    reader = Reader()
    read([bytes_of(FINE["ordinary"])], reader=reader)
    read([bytes_of(FINE["chat, role first"])], reader=reader)
    return reader


@pytest.mark.parametrize("name", SCRIPTS)
def test_scan_and_parser_agree_on_every_misbehaviour(name: str) -> None:
    pieces = [step.data for step in SCRIPTS[name].steps]
    closed = SCRIPTS[name].end != "keep"
    slow = read(pieces, reader=Reader(fast=False), closed=closed)
    assert same(read(pieces, reader=Reader(), closed=closed), slow)
    assert same(read(pieces, reader=warmed(), closed=closed), slow)


@pytest.mark.parametrize("name", [name for name in FAILURES if FAILURES[name][0].end == "keep"])
def test_what_is_no_whole_answer_says_why(name: str) -> None:
    script, words = FAILURES[name]
    assert words in str(read([step.data for step in script.steps]).error)


@settings(max_examples=300)
@given(st.data())
def test_scan_and_parser_agree_on_damaged_streams(data: st.DataObject) -> None:
    whole = bytes_of(SCRIPTS[data.draw(st.sampled_from(SMALL))])
    at = data.draw(st.integers(0, len(whole)))
    upto = data.draw(st.integers(at, min(len(whole), at + 40)))
    damaged = whole[:at] + data.draw(st.binary(max_size=12)) + whole[upto:]
    pieces = cut(damaged, data.draw(st.lists(st.integers(0, len(damaged)), max_size=30)))
    closed = data.draw(st.booleans())
    slow = read(pieces, reader=Reader(fast=False), closed=closed)
    assert same(read(pieces, reader=warmed(), closed=closed), slow)
    assert same(read(pieces, reader=Reader(), closed=closed), slow)


@settings(max_examples=300)
@given(st.data())
def test_scan_and_parser_agree_on_damaged_events(data: st.DataObject) -> None:
    """Damage inside one event's JSON, framing intact: where a scan that is too lenient would show."""
    tokens = [sse(completion_event(text)) for text in data.draw(st.lists(st.text(max_size=6), min_size=3, max_size=6))]
    victim = data.draw(st.integers(0, len(tokens) - 1))
    event = tokens[victim]
    at = data.draw(st.integers(0, len(event)))
    junk = data.draw(
        st.sampled_from([b"", b'"', b"\\", b"\\u12", b"\xff", b"\n", b"{", b'","text":"x', b"\x00", b"1", b" "])
    )
    tokens[victim] = event[:at] + junk + event[at + data.draw(st.integers(0, 3)) :]
    told = Told(parts=tuple(Part(0, token) for token in tokens)).script()
    pieces = [step.data for step in told.steps]
    assert same(read(pieces, reader=warmed(), tokens=3), read(pieces, reader=Reader(fast=False), tokens=3))


@given(st.lists(st.text(min_size=1), min_size=2, max_size=6))
def test_any_text_survives_the_scan(texts: list[str]) -> None:
    parts = [Part(0, sse(completion_event(text)), 1) for text in texts]
    told = Told(parts=(*parts, Part(0, sse(completion_event("", finish="length"))), Part(0, sse("[DONE]")))).script()
    answer = read([step.data for step in told.steps], tokens=len(texts))
    assert (answer.error, answer.text, len(answer.token_ns)) == (None, "".join(texts), len(texts))


@settings(max_examples=200)
@given(st.binary(max_size=400), st.lists(st.integers(0, 400)), st.booleans())
def test_garbage_is_never_a_success(body: bytes, places: list[int], chunked: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    framing = b"transfer-encoding: chunked\r\n\r\n" if chunked else b"content-length: %d\r\n\r\n" % len(body)
    answer = read(cut(head + framing + body, places), closed=True)
    assert not answer.ok


@given(st.sampled_from(SMALL), st.lists(st.integers(0, 9999)))
def test_cutting_the_bytes_changes_no_count_and_no_outcome(name: str, places: list[int]) -> None:
    data = bytes_of(SCRIPTS[name])
    closed = SCRIPTS[name].end != "keep"
    whole, parts = read([data], closed=closed), read(cut(data, places), closed=closed)
    silent = {"token_ns": None, "coalesced_reads": 0, "first_answer_ns": None}
    assert parts_of(whole) | silent == parts_of(parts) | silent
    assert len(whole.token_ns) == len(parts.token_ns)


@given(st.sampled_from(SMALL), st.integers(1, 200))
def test_a_truncated_stream_is_never_a_success(name: str, missing: int) -> None:
    data = bytes_of(SCRIPTS[name])
    answer = read([data[: max(0, len(data) - missing)]], closed=True)
    if name != "until close" or missing > len(b"data: [DONE]\n\n") - len(b"data: [DONE]"):
        assert not answer.ok


def test_an_event_has_the_stamp_of_the_read_that_ended_it() -> None:
    head, *rest = [step.data for step in Told(tokens=2).script().steps]
    pieces = [head, rest[0][:20], rest[0][20:], rest[1], *rest[2:]]
    answer = read(pieces, tokens=2)
    assert list(answer.token_ns) == [3000, 4000]


def test_an_event_inside_two_reads_does_not_count_as_coalesced() -> None:
    head, *rest = [step.data for step in Told(tokens=3).script().steps]
    answer = read([head, rest[0] + rest[1][:30], rest[1][30:] + rest[2], *rest[3:]], tokens=3)
    assert list(answer.token_ns) == [2000, 3000, 3000]
    assert answer.coalesced_reads == 1


@pytest.mark.parametrize(
    "texts, tokens, first",
    [
        ([" one two three four five", *[" word"] * 27], 32, 5),  # 5 of 32 at once, then one by one
        ([" ab"] * 16, 32, 2),  # two in each
        ([" photosynthesis", *[" a"] * 30], 32, 2),  # one token is hidden somewhere: no more than that can be its
        ([" a"] * 32, 32, None),  # an event a token
        ([" a"] * 33, 32, None),
        ([" all of it"], 32, None),
    ],
)
def test_the_first_event_holds_tokens_by_its_share_of_the_text(
    texts: list[str], tokens: int, first: int | None
) -> None:
    parts = (*(Part(0, sse(completion_event(text)), 1) for text in texts), Part(0, sse(usage_event(1, tokens))))
    script = Told(tokens=tokens, parts=(*parts, Part(0, sse("[DONE]")))).script()
    for reader in (Reader(), Reader(fast=False)):
        answer = read([step.data for step in script.steps], tokens=tokens, reader=reader)
        assert answer.first_event_tokens == first
        assert answer.event_tokens is None


def test_a_surrogate_pair_split_over_two_events_is_one_character() -> None:
    halves = [b'"\\ud83d"', b'"\\ude00"']
    events_of = [sse(completion_event("?")).replace(b'"?"', half) for half in halves]
    told = Told(parts=(*[Part(0, event, 1) for event in events_of], Part(0, sse("[DONE]")))).script()
    pieces = [step.data for step in told.steps]
    assert read(pieces, tokens=2).text == "😀"
    assert read(pieces, tokens=2, reader=Reader(fast=False)).text == "😀"


@pytest.mark.parametrize(
    "event",
    [
        completion_event("", finish=None),
        completion_event("x", finish="length"),
        completion_event("x", usage={"prompt_tokens": 1, "completion_tokens": 1}),
        chat_event({"reasoning": "x", "reasoning_content": "x"}),
        chat_event({"content": "x", "reasoning": "x"}),
        {"error": {"message": "x"}, **completion_event("x")},
    ],
)
def test_only_an_ordinary_token_event_becomes_a_scanner(event: dict[str, object]) -> None:
    data = sse(event).removeprefix(b"data: ").rstrip(b"\n")
    assert make_scanner(data, b"\n\n") is None


@pytest.mark.parametrize(
    ("ordinary", "odd"),
    [
        (completion_event("x"), completion_event("x", finish="abort")),
        (completion_event("x"), completion_event("")),
        (completion_event("x"), {**completion_event("x"), "error": "boom"}),
        (completion_event("x", usage=None), completion_event("x", usage={"completion_tokens": 5})),
        (chat_event({"content": "x"}), chat_event({"reasoning_content": "x"})),
        (chat_event({"content": "", "reasoning": "x"}), chat_event({"content": "y", "reasoning": "x"})),
        (completion_event("x", finish=""), completion_event("x", finish="abort")),
        (completion_event("x"), completion_event("x") | {"object": "error"}),
        (completion_event("x", error=""), completion_event("x", error="boom")),
        (
            chat_event({"content": "x", "reasoning_content": None}),
            chat_event({"content": "x", "reasoning_content": "y"}),
        ),
    ],
)
def test_a_scanner_does_not_match_what_means_something_else(
    ordinary: dict[str, object], odd: dict[str, object]
) -> None:
    scanner = make_scanner(sse(ordinary).removeprefix(b"data: ").rstrip(b"\n"), b"\n\n")
    assert scanner is not None
    assert scanner.pattern.match(sse(ordinary))
    assert scanner.pattern.match(sse(odd)) is None


def test_a_scanner_does_match_other_texts_ids_times_and_probabilities() -> None:
    one = completion_event("x", token_ids=[1])
    one["choices"][0]["logprobs"] = {"token_logprobs": [-0.5], "tokens": ["x"]}
    scanner = make_scanner(sse(one).removeprefix(b"data: ").rstrip(b"\n"), b"\n\n")
    assert scanner is not None
    other = completion_event(' "quoted"\\ \u00e9', token_ids=[77])
    other |= {"id": "cmpl-other", "created": 99}
    other["choices"][0]["logprobs"] = {"token_logprobs": [-3.25e-3], "tokens": ['"']}
    found = scanner.pattern.match(sse(other))
    assert found is not None


def test_an_error_message_can_always_be_written() -> None:
    said = read_event(b'{"error": {"message": "out of memory \\ud83d"}}').error
    assert said == "the server reported an error inside the stream: out of memory ?"


def test_duplicate_keys_are_left_to_the_parser() -> None:
    data = b'{"choices": [{"text": "a", "text": ""}]}'
    assert read_event(data).text == ""
    assert make_scanner(b'{"choices": [{"text": "", "text": "a"}]}', b"\n\n") is None


def test_events_follow_the_standard() -> None:
    body = b": c\n\ndata: a\ndata:  b\nevent: x\n\nid: 1\n\ndata\n\ndata: tail"
    assert [(event.name, event.data) for event in events(body, whole=False)] == [
        (b"message", None),
        (b"x", b"a\n b"),
        (b"message", None),
        (b"message", b""),
    ]
    assert list(events(body, whole=True))[-1].data == b"tail"


def test_a_reader_is_not_changed_by_what_it_reads_twice() -> None:
    reader = Reader()
    pieces = [step.data for step in FINE["ordinary"].steps]
    assert same(read(pieces, reader=reader), read(pieces, reader=reader))


def test_a_script_can_be_replayed_with_other_tokens() -> None:
    pieces = [step.data for step in replace(Told(), tokens=3).script().steps]
    assert read(pieces, tokens=3).output_tokens == 3
