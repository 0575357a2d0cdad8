"""What the scripted server says, and when: answers as lists of steps, in the shapes of the engines that exist.

A step is bytes and a time after the request's arrival. Each step also says how many token events its last byte
completes, so that the server's own stamps are the truth about every token. `Answer` builds the ordinary stream; what
misbehaves is built by changing its parts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MS = 1_000_000
HEAD = b"HTTP/1.1 200 OK\r\nserver: scripted\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
WORDS = "@words@"
"""As `prompt_tokens`: the server puts in the number of words of the prompt, padded to the same width."""
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Step:
    """Send `data` `after_ns` after the request came; then `tokens` more token events are complete."""

    after_ns: int
    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """One whole answer. `end`: keep the connection, close it, reset it, or leave it open and say nothing more."""

    steps: tuple[Step, ...]
    end: str = "keep"

    def to_json(self) -> dict[str, Any]:
        """For the way into the server's process."""
        steps = [[step.after_ns, base64.b64encode(step.data).decode(), step.tokens] for step in self.steps]
        return {"steps": steps, "end": self.end}

    @staticmethod
    def from_json(told: dict[str, Any]) -> Script:
        """The inverse of `to_json`."""
        return Script(
            tuple(Step(after, base64.b64decode(data), tokens) for after, data, tokens in told["steps"]), told["end"]
        )


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def sse(told: object, *, end: str = "\n\n", space: bool = True) -> bytes:
    """One event with JSON data (or text as it is)."""
    data = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
    return f"data:{' ' if space else ''}{data}{end}".encode()


# ---------------------------------------------------------------- events as engines send them


def completion_event(text: str, *, finish: str | None = None, **more: object) -> dict[str, Any]:
    """A `/v1/completions` event as vLLM writes it."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    return {
        "id": "cmpl-a1b2c3d4e5f60718293a4b5c6d7e8f90",
        "object": "text_completion",
        "created": 1_764_000_000,
        "model": "scripted",
        "choices": [choice],
        **more,
    }


def chat_event(delta: Mapping[str, object], *, finish: str | None = None, **more: object) -> dict[str, Any]:
    """A `/v1/chat/completions` event."""
    return {
        "id": "chatcmpl-a1b2c3d4e5f60718",
        "object": "chat.completion.chunk",
        "created": 1_764_000_000,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **more,
    }


def usage_of(prompt: int | str, completion: int, cached: int | None = None) -> dict[str, Any]:
    """A usage object."""
    told: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion if isinstance(prompt, int) else completion,
    }
    return told if cached is None else told | {"prompt_tokens_details": {"cached_tokens": cached}}


def usage_event(prompt: int | str, completion: int, cached: int | None = None) -> dict[str, Any]:
    """The last event of a stream with include_usage: no choices."""
    return {
        "id": "cmpl-a1b2c3d4e5f60718293a4b5c6d7e8f90",
        "object": "text_completion",
        "created": 1_764_000_000,
        "model": "scripted",
        "choices": [],
        "usage": usage_of(prompt, completion, cached),
    }


# ---------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of the body `gap_ns` after the part before; completes `tokens` token events."""

    gap_ns: int
    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """An ordinary stream: first token after `first_ns`, one event per `gap_ns`, finish, usage, [DONE]."""

    tokens: int = 8
    first_ns: int = 30 * MS
    gap_ns: int = 5 * MS
    prompt_tokens: int | str = 5
    parts: tuple[Part, ...] | None = None
    head: bytes = CHUNKED
    head_at_once: bool = True
    chunked: bool = True
    trailer: bytes = b"0\r\n\r\n"
    end: str = "keep"
    first_parts: tuple[Part, ...] = field(default_factory=tuple)

    def body(self) -> tuple[Part, ...]:
        """The parts of the body, times relative to the part before."""
        if self.parts is not None:
            return self.parts
        parts = [*self.first_parts, *self.token_parts()]
        parts.append(Part(0, sse(completion_event("", finish="length"))))
        parts.append(Part(0, sse(usage_event(self.prompt_tokens, self.tokens, 0))))
        parts.append(Part(0, sse("[DONE]")))
        return tuple(parts)

    def token_parts(self) -> list[Part]:
        """Only the token events."""
        gaps = [self.first_ns, *[self.gap_ns] * (self.tokens - 1)]
        return [Part(gap, sse(completion_event(f" t{number}")), 1) for number, gap in enumerate(gaps)]

    def script(self) -> Script:
        """The steps. The head goes out at once, as servers do that stream."""
        steps = [Step(0, self.head)] if self.head_at_once else []
        at = 0
        waiting = b"" if self.head_at_once else self.head
        for part in self.body():
            at += part.gap_ns
            data = chunk(part.data) if self.chunked else part.data
            steps.append(Step(at, waiting + data, part.tokens))
            waiting = b""
        if self.chunked and self.trailer:
            last = steps.pop()
            steps.append(replace(last, data=last.data + self.trailer))
        return Script(tuple(steps), self.end)


def plain(
    status: int, body: bytes, *, headers: bytes = b"content-type: application/json\r\n", reason: bytes = b"X"
) -> Script:
    """An answer that is not streamed."""
    head = b"HTTP/1.1 %d %s\r\n%scontent-length: %d\r\n\r\n" % (status, reason, headers, len(body))
    return Script((Step(0, head + body),))


def recut(script: Script, cuts: Iterable[int], *, apart_ns: int = 2 * MS) -> Script:
    """The same bytes, cut at other places (offsets from the first byte) and sent piece by piece.

    Which piece completes which token event is counted anew: an event is complete with the piece that holds its end, which
    is two bytes before the end of its chunk.
    """
    data = b"".join(step.data for step in script.steps)
    ends: list[int] = []
    length = 0
    for step in script.steps:
        length += len(step.data)
        ends += [length - 2] * step.tokens
    edges = sorted({cut for cut in cuts if 0 < cut < len(data)} | {len(data)})
    steps: list[Step] = []
    before = 0
    for number, edge in enumerate(edges):
        tokens = sum(before < end <= edge for end in ends)
        steps.append(Step(number * apart_ns, data[before:edge], tokens))
        before = edge
    return Script(tuple(steps), script.end)


def joined(parts: Sequence[Part], size: int) -> tuple[Part, ...]:
    """Neighbouring parts joined, `size` at a time: several events in one piece."""
    groups = [parts[at : at + size] for at in range(0, len(parts), size)]
    return tuple(
        Part(sum(p.gap_ns for p in group), b"".join(p.data for p in group), sum(p.tokens for p in group))
        for group in groups
    )
