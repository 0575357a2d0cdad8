"""The delaying proxy of benchmarks/controls: what it changes of an answer, and that it changes nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping

import pytest

from benchmarks.controls.proxy import Rule, free_port, leave, serve
from tests.support.scripted_server import Answer, plain, scripted

MS = 1_000_000
TOKENS = 6
LONG, SHORT = "x" * 120, "x" * 20


async def ask(port: int, body: Mapping[str, object], times: int = 1) -> list[tuple[bytes, list[int]]]:
    """The answers to the same request over one connection, with the arrival of each token event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    payload = json.dumps(body).encode()
    answers = []
    for _ in range(times):
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(payload) + payload)
        await reader.readuntil(b"\r\n\r\n")
        text, stamps = b"", []
        while not text.endswith(b"0\r\n\r\n"):
            part = await reader.read(65536)
            stamps += [time.monotonic_ns()] * part.count(b'"text": " t')
            text += part
        answers.append((text, stamps))
    await leave(writer)
    return answers


async def settled() -> None:
    """Let the proxy see that its client has gone."""
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


def through(url: str, rule: Rule, body: Mapping[str, object], times: int = 1) -> list[tuple[bytes, list[int]]]:
    """The same through the proxy."""

    async def run() -> list[tuple[bytes, list[int]]]:
        port = free_port()
        async with await serve(port, int(url.rsplit(":", 1)[1]), rule):
            answers = await ask(port, body, times)
            await settled()
            return answers

    return asyncio.run(run())


def spread(stamps: list[int]) -> int:
    return stamps[-1] - stamps[0]


def test_a_long_prompt_is_answered_the_same_but_later_per_token() -> None:
    with scripted({"default": Answer(tokens=TOKENS, gap_ns=2 * MS).script()}) as server:
        rule = Rule(delay_ns=40 * MS, min_prompt_chars=100)
        ((text, stamps),) = through(server.url, rule, {"prompt": LONG})
        ((plain_text, _),) = asyncio.run(ask(int(server.url.rsplit(":", 1)[1]), {"prompt": LONG}))
    assert text == plain_text
    assert len(stamps) == TOKENS
    assert spread(stamps) >= (TOKENS - 1) * 40 * MS


def test_a_pace_holds_for_every_answer_and_a_delay_comes_on_top() -> None:
    with scripted({"default": Answer(tokens=TOKENS, gap_ns=2 * MS).script()}) as server:
        rule = Rule(delay_ns=20 * MS, min_prompt_chars=100, pace_ns=30 * MS)
        ((_, short),) = through(server.url, rule, {"prompt": SHORT})
        ((_, long),) = through(server.url, rule, {"prompt": LONG})
    assert spread(short) >= (TOKENS - 1) * 30 * MS - MS
    assert spread(long) >= (TOKENS - 1) * 50 * MS - MS


def test_a_field_is_put_into_every_request() -> None:
    with scripted({"default": Answer(tokens=TOKENS).script()}) as server:
        through(server.url, Rule(0, 0, fields={"temperature": 2.0}), {"prompt": SHORT, "temperature": 0}, times=2)
        server.stop()
    assert [(body["prompt"], body["temperature"]) for body in server.bodies] == [(SHORT, 2.0)] * 2


def test_a_connection_serves_one_request_after_another() -> None:
    with scripted({"default": Answer(tokens=TOKENS).script()}) as server:
        answers = through(server.url, Rule(delay_ns=0, min_prompt_chars=0), {"prompt": SHORT}, times=3)
    assert len({text for text, _ in answers}) == 1


@pytest.mark.parametrize(
    ("body", "delay_ns"),
    [
        (json.dumps({"prompt": LONG}).encode(), 7),
        (json.dumps({"prompt": SHORT}).encode(), 0),
        (json.dumps({"prompt": [1, 2]}).encode(), 0),
        (json.dumps([LONG]).encode(), 0),
        (b"{" + b" " * 200, 0),
        (b"", 0),
    ],
)
def test_only_answers_to_long_prompts_are_delayed(body: bytes, delay_ns: int) -> None:
    assert Rule(delay_ns=7, min_prompt_chars=100).delay_of(body) == delay_ns
    assert Rule(delay_ns=0, min_prompt_chars=0).delay_of(body) == 0


def test_an_answer_with_a_length_passes_untouched() -> None:
    async def run(inner: int) -> bytes:
        port = free_port()
        async with await serve(port, inner, Rule(delay_ns=40 * MS, min_prompt_chars=0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200" in head
            body = await reader.readuntil(b"}]}")
            await leave(writer)
            await settled()
            return body

    with scripted({"default": plain(200, b"{}")}) as server:
        assert b"scripted" in asyncio.run(run(int(server.url.rsplit(":", 1)[1])))


def test_a_server_that_is_not_there_yet_is_a_closed_connection() -> None:
    async def run() -> bytes:
        port = free_port()
        async with await serve(port, free_port(), Rule(delay_ns=0, min_prompt_chars=0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            got = await reader.read()
            await leave(writer)
            await settled()
            return got

    assert asyncio.run(run()) == b""
