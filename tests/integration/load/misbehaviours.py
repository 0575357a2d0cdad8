"""Everything that a server may do, as scripts: what is well-formed though odd, and what is a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from tests.support.scripted_server import Answer, Part, Script, Step, plain, recut, sse
from tests.support.scripted_server.script import (
    CHUNKED,
    HEAD,
    MS,
    chat_event,
    completion_event,
    joined,
    usage_event,
    usage_of,
)

N = 8
GAP = 20 * MS
FIRST = 30 * MS
GOOD = Answer(tokens=N, first_ns=FIRST, gap_ns=GAP)
FINISH = Part(0, sse(completion_event("", finish="length")))
USAGE = Part(0, sse(usage_event(5, N, 0)))
DONE = Part(0, sse("[DONE]"))


def stream(*parts: Part, tokens: list[Part] | None = None, **changes: object) -> Script:
    """The ordinary token events (or others) followed by these parts."""
    chosen = GOOD.token_parts() if tokens is None else tokens
    return replace(GOOD, parts=(*chosen, *parts), **changes).script()  # type: ignore[arg-type]


def retold(end: str = "\n\n", *, space: bool = True) -> Script:
    """The ordinary stream in another spelling."""
    told = [completion_event(f" t{number}") for number in range(N)]
    tokens = [Part(FIRST if not n else GAP, sse(event, end=end, space=space), 1) for n, event in enumerate(told)]
    last = [completion_event("", finish="length"), usage_event(5, N, 0), "[DONE]"]
    return stream(*[Part(0, sse(event, end=end, space=space)) for event in last], tokens=tokens)


def chat(deltas: Sequence[tuple[Mapping[str, object], int]], *, role_first: bool = True) -> Script:
    """A chat stream: deltas with the number of token events (0 or 1) that each is."""
    parts = [Part(0, sse(chat_event({"role": "assistant", "content": ""})))] if role_first else []
    parts += [
        Part(FIRST if not number else GAP, sse(chat_event(delta)), token)
        for number, (delta, token) in enumerate(deltas)
    ]
    return stream(Part(0, sse(chat_event({}, finish="length"))), USAGE, DONE, tokens=parts)


def bursts(size: int) -> Script:
    """`size` tokens in each event, as with speculative decoding or a stream interval."""
    events = [
        Part(FIRST if not n else GAP * size, sse(completion_event(" a b c d"[: 2 * size])), 1) for n in range(N // size)
    ]
    return stream(FINISH, USAGE, DONE, tokens=events)


def usage_on_each(size: int) -> Script:
    """Cumulative usage in every event, `size` tokens an event."""
    events = [
        Part(FIRST if not n else GAP, sse(completion_event(" x", usage=usage_of(5, size * (n + 1)))), 1)
        for n in range(N // size)
    ]
    return stream(Part(0, sse(completion_event("", finish="length", usage=usage_of(5, N)))), DONE, tokens=events)


def whole_bytes() -> bytes:
    """Every byte of the ordinary answer."""
    return b"".join(step.data for step in GOOD.script().steps)


def split_multibyte() -> Script:
    """Characters of two to four bytes, cut in the middle of each."""
    words = [" é", " 漢字", " 🙂", " ñ", " ü", " 한", " ß", " 🚀🚀"]
    tokens = [Part(FIRST if not n else GAP, sse(completion_event(word)), 1) for n, word in enumerate(words)]
    script = stream(FINISH, USAGE, DONE, tokens=tokens)
    data = b"".join(step.data for step in script.steps)
    return recut(script, [at for at in range(1, len(data)) if data[at] & 0xC0 == 0x80])


def huge_event() -> Script:
    """One event of a megabyte among the others."""
    tokens = GOOD.token_parts()
    tokens[3] = Part(GAP, sse(completion_event(" " + "x" * (1 << 20))), 1)
    return stream(FINISH, USAGE, DONE, tokens=tokens)


def with_comments() -> Script:
    """Comments as keep-alives, before and between the events."""
    parts: list[Part] = [Part(0, b": ping\n\n")]
    for token in GOOD.token_parts():
        parts += [token, Part(0, b": keep-alive\n\n")]
    return stream(FINISH, USAGE, DONE, tokens=parts)


def informational() -> Script:
    """100 and 103 before the answer's own head."""
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n"
    return stream(FINISH, USAGE, DONE, head=hints + CHUNKED)


def with_length() -> Script:
    """The body's length announced, nothing chunked."""
    body = b"".join(part.data for part in GOOD.body())
    return replace(GOOD, chunked=False, head=HEAD + b"content-length: %d\r\n\r\n" % len(body)).script()


FINE: dict[str, Script] = {
    "ordinary": GOOD.script(),
    "head with the first token": replace(GOOD, head_at_once=False).script(),
    "empty event first": stream(FINISH, USAGE, DONE, tokens=[Part(0, sse(completion_event(""))), *GOOD.token_parts()]),
    "usage inside the finish event": stream(
        Part(0, sse(completion_event("", finish="length", usage=usage_of(5, N)))), DONE
    ),
    "late empty finish event": stream(replace(FINISH, gap_ns=10 * GAP), USAGE, DONE),
    "finish reason on the last token": stream(
        USAGE, DONE, tokens=[*GOOD.token_parts()[:-1], Part(GAP, sse(completion_event(" z", finish="length")), 1)]
    ),
    "usage null on every event": stream(
        FINISH,
        USAGE,
        DONE,
        tokens=[Part(FIRST if not n else GAP, sse(completion_event(" y", usage=None)), 1) for n in range(N)],
    ),
    "usage on every event": usage_on_each(1),
    "no [DONE]": stream(FINISH, USAGE),
    "no finish reason": stream(USAGE, DONE),
    "CRLF": retold("\r\n\r\n"),
    "CR alone": retold("\r\r"),
    "no space after data": retold(space=False),
    "no empty line at the end": stream(FINISH, USAGE, Part(0, b"data: [DONE]")),
    "byte order mark": stream(FINISH, USAGE, DONE, tokens=[Part(0, b"\xef\xbb\xbf: hello\n\n"), *GOOD.token_parts()]),
    "other fields": stream(
        FINISH,
        USAGE,
        DONE,
        tokens=[Part(p.gap_ns, b"event: message\nid: 7\nretry: 3\n" + p.data, 1) for p in GOOD.token_parts()],
    ),
    "data over two lines": stream(
        FINISH,
        USAGE,
        DONE,
        tokens=[Part(p.gap_ns, p.data.replace(b', "model"', b',\ndata: "model"'), 1) for p in GOOD.token_parts()],
    ),
    "comments": with_comments(),
    "cut in odd places": recut(GOOD.script(), range(7, 9999, 61)),
    "multi-byte characters cut": split_multibyte(),
    "chat, role first": chat([({"content": f" c{n}"}, 1) for n in range(N)]),
    "chat, role with every token": chat([({"role": "assistant", "content": f" c{n}"}, 1) for n in range(N)]),
    "reasoning first": chat(
        [({"reasoning_content": f" r{n}"}, 1) for n in range(3)] + [({"content": f" c{n}"}, 1) for n in range(N - 3)]
    ),
    "both reasoning fields": chat([({"reasoning": " r", "reasoning_content": " r"}, 1) for _ in range(N)]),
    "tool calls": chat([({"tool_calls": [{"index": 0, "function": {"arguments": f"{n}"}}]}, 1) for n in range(N)]),
    "two tokens an event": bursts(2),
    "two tokens an event, usage on each": usage_on_each(2),
    "trailers": replace(GOOD, trailer=b"0\r\nx-digest: abc\r\nx-more: 1\r\n\r\n").script(),
    "1xx first": informational(),
    "content-length": with_length(),
    "until close": replace(GOOD, chunked=False, head=HEAD + b"connection: close\r\n\r\n", end="close").script(),
    "connection: close": replace(
        GOOD, head=HEAD + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n", end="close"
    ).script(),
    "closes without saying so": replace(GOOD, end="close").script(),
    "upper-case header names": replace(
        GOOD, head=b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\nTransfer-Encoding: CHUNKED\r\n\r\n"
    ).script(),
}
"""Well-formed, however odd: each is N tokens, ok, with the times that the server knows."""

HEAVY: dict[str, Script] = {
    "every byte alone": recut(Answer(tokens=N, first_ns=0, gap_ns=0).script(), range(1, 9999), apart_ns=20_000),
    "an event of a megabyte": huge_event(),
}
"""Well-formed too, but so much for the server to send that it is late itself: only the order of things is checked."""

UNCOUNTED: dict[str, Script] = {"no usage at all": stream(FINISH, DONE)}
"""Right, but N is only the number of events."""

SINGLE: dict[str, Script] = {
    "one event for all": stream(FINISH, USAGE, DONE, tokens=[Part(FIRST, sse(completion_event(" all of it")), 1)])
}

COALESCED: dict[str, Script] = {
    "several events in one read": replace(GOOD, parts=(*joined(GOOD.token_parts(), 4), FINISH, USAGE, DONE)).script()
}


def cut_after(count: int, *, end: str) -> Script:
    """`count` events, then the connection goes, in the middle of the chunked body."""
    script = GOOD.script()
    return Script(script.steps[: count + 1], end)


FAILURES: dict[str, tuple[Script, str]] = {
    "closed in the middle": (cut_after(3, end="close"), "before the end"),
    "reset in the middle": (cut_after(3, end="reset"), "reset"),
    "ended without [DONE] or finish": (stream(), "without [DONE] or finish_reason"),
    "until close, no [DONE]": (
        stream(FINISH, USAGE, chunked=False, head=HEAD + b"\r\n", end="close"),
        "without [DONE]",
    ),
    "stopped early": (
        stream(
            Part(0, sse(completion_event("", finish="stop"))),
            Part(0, sse(usage_event(5, 3))),
            DONE,
            tokens=GOOD.token_parts()[:3],
        ),
        "3 of 8 tokens",
    ),
    "stopped early, no usage": (
        stream(Part(0, sse(completion_event("", finish="stop"))), DONE, tokens=GOOD.token_parts()[:3]),
        "3 of 8 tokens",
    ),
    "too many tokens": (stream(FINISH, Part(0, sse(usage_event(5, N + 1))), DONE), "9 of 8 tokens"),
    "error inside the stream": (
        stream(Part(0, sse({"error": {"message": "engine died", "code": 500}})), DONE, tokens=GOOD.token_parts()[:3]),
        "engine died",
    ),
    "error object as older vLLM": (
        stream(Part(0, sse({"object": "error", "message": "engine died", "code": 400})), DONE),
        "engine died",
    ),
    "error after all tokens": (stream(FINISH, USAGE, Part(0, sse({"error": "late"})), DONE), "late"),
    "error as the event's name": (
        stream(Part(0, b'event: error\ndata: {"detail": "boom"}\n\n'), FINISH, USAGE, DONE),
        "boom",
    ),
    "aborted": (stream(Part(0, sse(completion_event("", finish="abort"))), USAGE, DONE), "abort"),
    "garbage for JSON": (stream(Part(0, b"data: {not json\n\n"), FINISH, USAGE, DONE), "not JSON"),
    "invalid UTF-8": (stream(Part(0, b'data: {"choices": "\xff\xfe"}\n\n'), FINISH, USAGE, DONE), "not JSON"),
    "tokens after [DONE]": (stream(FINISH, USAGE, DONE, Part(0, sse(completion_event(" more")))), "after [DONE]"),
    "no token at all": (stream(FINISH, USAGE, DONE, tokens=[]), "without a single token"),
    "not streamed": (
        plain(200, b'{"choices": [{"text": "all"}], "usage": {"completion_tokens": 8}}'),
        "did not stream",
    ),
    "compressed": (
        stream(FINISH, USAGE, DONE, head=HEAD + b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"),
        "compressed",
    ),
    "redirect": (plain(307, b"", headers=b"location: http://127.0.0.1:1/\r\n"), "redirect"),
    "429": (plain(429, b'{"error": "slow down"}', headers=b"retry-after: 0\r\n"), "HTTP 429"),
    "503": (plain(503, b"<h1>down</h1>", headers=b"content-type: text/html\r\nretry-after: 0\r\n"), "HTTP 503"),
    "400 with a reason": (plain(400, b'{"error": {"message": "bad prompt"}}'), "bad prompt"),
    "switching protocols": (Script((Step(0, b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),)), "101"),
    "not HTTP": (Script((Step(0, b"SSH-2.0-OpenSSH_9.9\r\n"),)), "not an HTTP response"),
    "bad chunk size": (Script((Step(0, CHUNKED + b"zz\r\nhello\r\n"),)), "chunk size"),
    "chunk longer than it says": (Script((Step(0, CHUNKED + b"3\r\nhello\r\n0\r\n\r\n"),)), "chunk"),
    "bad content-length": (Script((Step(0, HEAD + b"content-length: -5\r\n\r\n"),)), "content-length"),
    "two content-lengths": (
        Script((Step(0, HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n"),)),
        "content-length",
    ),
    "closed before the head": (Script((Step(0, b"HTTP/1.1 200 OK\r\ncont"),), "close"), "before the end"),
}
"""Script, and words of the error that the request must carry."""


def true_gap_count(script: Script) -> int:
    """Steps that complete a token event."""
    return sum(1 for before, after in pairwise(script.steps) if after.tokens and before.tokens)
