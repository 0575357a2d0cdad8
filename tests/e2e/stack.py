"""A stack of exact speed, for gates whose outcome is known: `stack.py --port 8000 --tpot-ms 4 --ttft-ms 20`.

Standard library only, so that it runs wherever Python does, the image of the action included. It speaks enough of the
OpenAI API to be measured (models, completions, streaming with usage) and answers every prompt with the same words, so
that two of them agree. The pace of a stream is kept against its own start, so that a late wake-up is not handed on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass(frozen=True, slots=True)
class Idle:
    """What it does after so many seconds without a request: end, or only shut its port and keep its memory."""

    after_s: float
    keep: bool
    mib: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast it answers, what it says, and when it gives up."""

    ttft_s: float
    tpot_s: float
    die_after_requests: int
    words: tuple[str, ...]
    forgets_beyond: int = 0
    muddles: bool = False
    metrics_key: str = ""
    tokenizer: float = 0.0


class Stack:
    """The server. One connection at a time is one request at a time, as for any HTTP/1.1 server."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._served = 0
        self._running = 0
        self._idle_since = asyncio.get_running_loop().time()

    def idle_s(self) -> float:
        """For how long nobody has wanted anything."""
        return 0.0 if self._running else asyncio.get_running_loop().time() - self._idle_since

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests until the client leaves."""
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        size = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
        body = await reader.readexactly(size)
        if method == "GET":
            known = {"/health": {"status": "ok"}, "/v1/models": {"data": [{"id": "tiny", "object": "model"}]}}
            if self._pace.metrics_key and f"bearer {self._pace.metrics_key}" in head.lower():
                known["/metrics"] = {"served": self._served}
            await _json(writer, known.get(path), status=200 if path in known else 404)
            return True
        if path == "/tokenize":
            count = round(self._pace.tokenizer * len(str(json.loads(body)["prompt"]).split()))
            await _json(writer, {"count": count}, status=200 if self._pace.tokenizer else 404)
            return True
        self._running += 1
        try:
            await self._complete(writer, json.loads(body))
        finally:
            self._running -= 1
            self._idle_since = asyncio.get_running_loop().time()
        return True

    async def _complete(self, writer: asyncio.StreamWriter, asked: Mapping[str, object]) -> None:
        self._served += 1
        if self._pace.die_after_requests and self._served > self._pace.die_after_requests:
            print("::error::out of memory ##[error]the card is full", flush=True)
            os._exit(9)
        count = int(str(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16))
        prompt = len(str(asked.get("prompt") or asked.get("messages")).split())
        forgets = 0 < self._pace.forgets_beyond < prompt
        muddles = self._pace.muddles and self._running > 1
        words = _other(self._pace.words) if forgets or muddles else self._pace.words
        texts = [f" {words[index % len(words)]}" for index in range(count)]
        usage = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
        begun = asyncio.get_running_loop().time()
        if not asked.get("stream"):
            await _until(begun + self._pace.ttft_s + self._pace.tpot_s * (count - 1))
            await _json(writer, {**_chunk("".join(texts), "length"), "usage": usage})
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for index, text in enumerate(texts):
            await _until(begun + self._pace.ttft_s + self._pace.tpot_s * index)
            await _event(writer, json.dumps(_chunk(text, "length" if index == count - 1 else None)))
        await _event(writer, json.dumps({"object": "text_completion", "model": "tiny", "choices": [], "usage": usage}))
        await _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _other(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.upper() for word in reversed(words))


def _chunk(text: str, finish: str | None) -> dict[str, object]:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return {"id": "cmpl", "object": "text_completion", "model": "tiny", "choices": [choice]}


async def _until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - asyncio.get_running_loop().time()))


async def _event(writer: asyncio.StreamWriter, data: str) -> None:
    payload = f"data: {data}\n\n".encode()
    writer.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")
    await writer.drain()


async def _json(writer: asyncio.StreamWriter, body: object, *, status: int = 200) -> None:
    payload = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    writer.write(head.encode() + payload)
    await writer.drain()


async def serve(pace: Pace, idle: Idle, *, host: str, port: int) -> None:
    """Serve until asked to end, or until idle for long enough."""
    held = bytearray(os.urandom(4096)) * (256 * idle.mib)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    stack = Stack(pace)
    server = await asyncio.start_server(stack.connected, host, port)
    print(f"serving on {port} with {len(held)} bytes", flush=True)
    while not ended.is_set() and not 0 < idle.after_s < stack.idle_s():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 0.1)
    server.close()
    if idle.keep:
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ttft-ms", type=float, default=20.0)
    parser.add_argument("--tpot-ms", type=float, default=4.0)
    parser.add_argument("--die-after-requests", type=int, default=0)
    parser.add_argument("--idle-s", type=float, default=0.0, help="end after so many seconds without a request")
    parser.add_argument("--keep", action="store_true", help="when idle, shut the port and keep the memory")
    parser.add_argument("--mib", type=int, default=1, help="memory that it holds")
    parser.add_argument("--refuse", action="store_true", help="leave at once, as a stack with a bad flag does")
    parser.add_argument("--shout", action="store_true", help="answer every prompt with other words")
    parser.add_argument("--forget-beyond", type=int, default=0, help="answer longer prompts (words) with other words")
    parser.add_argument("--muddle", action="store_true", help="answer with other words while others are answered too")
    parser.add_argument("--metrics-key", default="", help="answer /metrics to whoever brings this key (lower case)")
    parser.add_argument("--tokenizer", type=float, default=0.0, help="offer /tokenize, which counts so many per word")
    told = parser.parse_args()
    if told.refuse:
        sys.exit("::error::unknown flag --fast ##[error]giving up")
    words = _other(WORDS) if told.shout else WORDS
    pace = Pace(
        told.ttft_ms / 1000,
        told.tpot_ms / 1000,
        told.die_after_requests,
        words,
        told.forget_beyond,
        told.muddle,
        told.metrics_key,
        told.tokenizer,
    )
    idle = Idle(told.idle_s, told.keep, told.mib)
    asyncio.run(serve(pace, idle, host=told.host, port=told.port))


if __name__ == "__main__":
    main()
