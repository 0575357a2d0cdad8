"""A reverse proxy that makes chosen answers slower by a known amount per token, in front of any HTTP server.

    python -m benchmarks.controls.proxy --port 8080 --delay-us 900 --min-prompt-chars 120 \\
        -- python -m servegate_action.demo.server --port {inner} --model FILE.gguf ...

It starts the command after `--` with a free port in place of `{inner}`, hands every request on as it is, and releases the
i-th piece of a streamed answer i·delay after it arrived, so that time per output token grows by the delay and time to
first token not at all. Answers to shorter prompts, and all with a delay of zero, pass untouched. With `--pace-us` no piece
of any answer leaves sooner than that after the one before: what an engine's own speed varies by, below that pace, is not seen. `--set temperature=2` puts
a field of its own into every request, as a front end that overrides what its users ask for does. Both stacks of a control
run behind it, so that what the proxy itself costs is on both sides. It knows no more of HTTP than it needs: persistent
connections, bodies with a length, answers in chunks or with a length.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Message:
    """The head of a request or an answer as it came, and what of it matters here."""

    head: bytes
    fields: dict[bytes, bytes]

    @property
    def length(self) -> int | None:
        """Content-Length."""
        value = self.fields.get(b"content-length")
        return None if value is None else int(value)

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return b"chunked" in self.fields.get(b"transfer-encoding", b"").lower()

    @property
    def bodiless(self) -> bool:
        """Answers that have no body by definition."""
        return self.head.split(b" ", 2)[1][:1] == b"1" or self.head.split(b" ", 2)[1] in (b"204", b"304")


@dataclass(frozen=True, slots=True)
class Rule:
    """Which answers are delayed, and by how much per piece."""

    delay_ns: int
    min_prompt_chars: int
    pace_ns: int = 0
    fields: Mapping[str, object] = field(default_factory=dict)

    def delay_of(self, body: bytes) -> int:
        """The delay for the answer to this request body, in ns."""
        if not self.delay_ns or not body:
            return 0
        try:
            request = json.loads(body)
        except ValueError:
            return 0
        prompt = request.get("prompt") if isinstance(request, dict) else None
        return self.delay_ns if isinstance(prompt, str) and len(prompt) >= self.min_prompt_chars else 0

    def told(self, request: Message, body: bytes) -> bytes:
        """Head and body as the server behind gets them."""
        if not self.fields or not body:
            return request.head + body
        body = json.dumps(json.loads(body) | dict(self.fields)).encode()
        kept = [line for line in request.head.split(b"\r\n")[:-2] if not line.lower().startswith(b"content-length:")]
        return b"\r\n".join([*kept, b"content-length: %d" % len(body), b"", b""]) + body


async def read_head(reader: asyncio.StreamReader) -> Message | None:
    """The next head; None when the other side closed in between."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.split(b"\r\n")[1:-2]
    pairs = (line.split(b":", 1) for line in lines)
    return Message(head, {name.strip().lower(): value.strip() for name, value in pairs})


def chunks(reader: asyncio.StreamReader) -> asyncio.Queue[tuple[int, bytes]]:
    """A queue that fills with the chunks of an answer as they arrive, each with its time; the empty chunk ends it."""
    queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def fill() -> None:
        size = 1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
            queue.put_nowait((time.monotonic_ns(), line + data))

    task = asyncio.create_task(fill())
    task.add_done_callback(lambda done: queue.put_nowait((0, b"")) if done.exception() else None)
    return queue


async def release(
    queue: asyncio.Queue[tuple[int, bytes]], writer: asyncio.StreamWriter, *, delay_ns: int, pace_ns: int
) -> None:
    """Write each chunk i·delay after its arrival, and pace + delay after the one before. `ConnectionError` when it broke off."""
    index, due_ns = 0, 0
    while True:
        arrived_ns, chunk = await queue.get()
        if not chunk:
            raise ConnectionError("the server broke its answer off")
        after_last_ns = due_ns + pace_ns + delay_ns if pace_ns and due_ns else 0
        due_ns = max(arrived_ns + index * delay_ns, after_last_ns)
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            await asyncio.sleep(wait_ns / 1e9)
        writer.write(chunk)
        await writer.drain()
        index += 1
        if chunk.startswith(b"0\r\n"):
            return


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inner: int, rule: Rule) -> bool:
    """One request and its answer, over a connection of its own to the server behind; False when the client has no more."""
    request = await read_head(reader)
    if request is None:
        return False
    body = await reader.readexactly(request.length or 0)
    answers, behind = await asyncio.open_connection(LOOPBACK, inner)
    behind.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        behind.write(rule.told(request, body))
        await behind.drain()
        answer = await read_head(answers)
        if answer is None:
            return False
        writer.write(answer.head)
        if answer.chunked:
            await release(chunks(answers), writer, delay_ns=rule.delay_of(body), pace_ns=rule.pace_ns)
        elif not answer.bodiless:
            writer.write(await answers.readexactly(answer.length or 0))
        await writer.drain()
    finally:
        await leave(behind)
    return True


async def leave(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whatever the other side made of it."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def serve(port: int, inner: int, rule: Rule) -> asyncio.Server:
    """Accept clients, and answer each request of a connection in turn."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError, asyncio.IncompleteReadError):
            while await exchange(reader, writer, inner, rule):
                pass
        await leave(writer)

    return await asyncio.start_server(handle, LOOPBACK, port)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


async def run(told: argparse.Namespace) -> int:
    """The server behind, the proxy before it, until either ends or SIGTERM comes."""
    inner = free_port()
    command = [part.replace("{inner}", str(inner)) for part in told.command]
    fields = {name: json.loads(value) for name, _, value in (each.partition("=") for each in told.set)}
    rule = Rule(told.delay_us * 1000, told.min_prompt_chars, told.pace_us * 1000, fields)
    listening = await serve(told.port, inner, rule)
    behind: Process = await asyncio.create_subprocess_exec(*command)
    ended = asyncio.create_task(behind.wait())
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    stop = asyncio.create_task(asked.wait())
    await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
    listening.close()
    stop.cancel()
    if ended.done():
        return ended.result() or 1
    behind.terminate()
    await ended
    return 0


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay-us", type=int, default=0, help="added per piece of a streamed answer, microseconds")
    parser.add_argument(
        "--pace-us", type=int, default=0, help="least time between two pieces of an answer, microseconds"
    )
    parser.add_argument("--min-prompt-chars", type=int, default=0, help="shorter prompts are not delayed")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON", help="put into every request")
    parser.add_argument("command", nargs="+", help="after --, with {inner} for its port")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(options(None))))
