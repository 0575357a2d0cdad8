"""One finished exchange, read: token events with their stamps, counts, and whether the answer is what was asked for.

Runs after the round. The outcome is `ok` only when everything fits: HTTP 200, an event stream that ended properly, no
error inside it, and exactly the number of tokens that was requested. Definitions: docs/measurement.md. It refuses to
repair: an answer with anything wrong keeps what had arrived and says what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from bisect import bisect_left
from itertools import pairwise

from servegate_action.load.framing import Framing, Mode
from servegate_action.load.shapes import TEXT, Reading, Scanner, Usage, make_scanner, read_event
from servegate_action.load.sse import Event, events

_DONE = b"[DONE]"
_NEVER = 1 << 62


class Answer:
    """What one exchange brought."""

    __slots__ = (
        "cached_tokens",
        "coalesced_reads",
        "counted_by",
        "error",
        "event_tokens",
        "events",
        "finish_reason",
        "first_answer_ns",
        "first_event_tokens",
        "output_tokens",
        "prompt_tokens",
        "text",
        "token_ns",
    )

    def __init__(self) -> None:
        self.token_ns: array[int] = array("q")
        self.event_tokens: list[int] | None = None
        self.first_answer_ns: int | None = None
        self.first_event_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.counted_by: str | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.events = 0
        self.coalesced_reads = 0
        self.error: str | None = None
        self.text = ""

    @property
    def ok(self) -> bool:
        """True when nothing is wrong."""
        return self.error is None

    @property
    def text_sha256(self) -> str | None:
        """Digest of the joined text; None when there is none."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest() if self.text else None


class Reader:
    """Reads answers of one server; keeps the scanners that fitted before, because the next answer looks the same."""

    def __init__(self, *, fast: bool = True) -> None:
        self._fast = fast
        self._scanners: list[Scanner] = []

    def read(
        self, buffer: bytes, *, stamps: array[int], marks: array[int], framing: Framing, requested_tokens: int
    ) -> Answer:
        """Read one exchange: `marks[i]` is the length of `buffer` after the read that `stamps[i]` belongs to."""
        answer = Answer()
        answer.error = _refusal(buffer, framing)
        if answer.error is not None:
            return answer
        body, body_marks = _body(buffer, marks, framing)
        stream = _Stream(body, scanners=self._scanners if self._fast and _is_utf8(body) else None)
        stream.read(whole=framing.complete)
        _place(answer, stream, stamps=stamps, body_marks=body_marks)
        _count(answer, stream)
        answer.error = stream.error or _shortfall(answer, stream, framing, requested_tokens)
        return answer


# ---------------------------------------------------------------- from response to body


def _refusal(buffer: bytes, framing: Framing) -> str | None:
    """Why this response is no event stream at all; None when it is one."""
    if framing.mode is Mode.HEAD:
        return framing.broken or "the server sent no complete response head"
    if framing.status != 200:
        shown = " ".join(_body(buffer, array("q"), framing)[0][:600].decode("utf-8", "replace").split())
        kind = "a redirect, which is not followed" if 300 <= framing.status < 400 else "refused"
        return f"HTTP {framing.status} ({kind}): {shown[:300]}"
    encoding = framing.headers.get(b"content-encoding", b"identity")
    if encoding.lower() != b"identity":
        return f"the stream is compressed ({encoding[:40]!r}), which was not asked for"
    content_type = framing.headers.get(b"content-type", b"")
    if not content_type.lower().startswith(b"text/event-stream"):
        return f"the server did not stream: content-type {content_type[:60]!r} instead of text/event-stream"
    return None


def _body(buffer: bytes, marks: array[int], framing: Framing) -> tuple[bytes, list[int]]:
    """The body without chunk framing, and how much of it had arrived after each read."""
    limit = framing.end if framing.complete else len(buffer)
    start = framing.body_start
    if framing.mode is not Mode.CHUNKED:
        return buffer[start:limit], [max(0, min(mark, limit) - start) for mark in marks]
    bounds = framing.chunks.tolist()
    chunks = list(zip(bounds[::2], bounds[1::2], strict=True))
    body = b"".join([buffer[first:last] for first, last in chunks])
    body_marks: list[int] = []
    coming = iter((*chunks, (_NEVER, _NEVER)))
    first, last = next(coming)
    before = 0
    for mark in marks:
        while last <= mark:
            before += last - first
            first, last = next(coming)
        body_marks.append(before + mark - first if mark > first else before)
    return body, body_marks


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# ---------------------------------------------------------------- from body to token events


class _Stream:
    """One body on its way through scanner and full reader; both append to the same lists."""

    def __init__(self, body: bytes, *, scanners: list[Scanner] | None) -> None:
        self.body = body
        self.scanners = scanners
        self.ends: list[int] = []
        self.texts: list[bytes | str] = []
        self.first_answer: int | None = None
        self.events = 0
        self.usages: list[tuple[int, Usage]] = []
        self.finish_reason: str | None = None
        self.done = False
        self.error: str | None = None

    def read(self, *, whole: bool) -> None:
        """Read all events; without `whole` an unfinished last event is dropped."""
        at, length = 0, len(self.body)
        while at < length:
            scanned = self._scan(at)
            if scanned > at:
                at = scanned
                continue
            event = next(events(self.body, start=at, whole=whole), None)
            if event is None:
                return
            self._take(event, at)
            at = event.end

    def _scan(self, at: int) -> int:
        """Take every event from `at` that fits a scanner; returns where that ends."""
        if self.done or self.error is not None:
            return at
        for scanner in self.scanners or ():
            found = scanner.pattern.match(self.body, at)
            if found is None:
                continue
            if scanner.answer and self.first_answer is None:
                self.first_answer = len(self.ends)
            before = len(self.ends)
            while found is not None:
                at = self._take_alike(found)
                found = scanner.pattern.match(self.body, at)
            self.events += len(self.ends) - before
            return at
        return at

    def _take_alike(self, found: re.Match[bytes]) -> int:
        """Take the event that a scanner found, and those after it with the same bytes around the text; returns where they end."""
        body, texts, ends = self.body, self.texts, self.ends
        around, behind = body[found.start() : found.start(1)], body[found.end(1) : found.end()]
        at, ahead, length = found.start(), len(around), len(behind)
        starts_with, match_text = body.startswith, TEXT.match
        while starts_with(around, at) and (text := match_text(body, at + ahead)) and starts_with(behind, text.end()):
            at = text.end() + length
            texts.append(text[0])
            ends.append(at)
        return at

    def _take(self, event: Event, start: int) -> None:
        self.events += 1
        if not event.data:
            if event.name == b"error":
                self.error = self.error or "the server reported an error inside the stream"
            return
        if event.data.strip() == _DONE:
            self.done = True
            return
        reading = read_event(event.data)
        if event.name == b"error" and reading.error is None:
            reading = Reading(error=f"the server reported an error inside the stream: {event.data[:200]!r}")
        self._take_reading(reading, event.end)
        if self.scanners is not None and reading.text and len(self.scanners) < 8:
            self._learn(event, start)

    def _take_reading(self, reading: Reading, end: int) -> None:
        if reading.error is not None:
            self.error = self.error or reading.error
            return
        if reading.text:
            if self.done:
                self.error = self.error or "tokens arrived after [DONE]"
            if reading.answer and self.first_answer is None:
                self.first_answer = len(self.ends)
            self.ends.append(end)
            self.texts.append(reading.text)
        if reading.usage is not None:
            self.usages.append((len(self.ends), reading.usage))
        self.finish_reason = reading.finish_reason or self.finish_reason

    def _learn(self, event: Event, start: int) -> None:
        """Make a scanner from this event when it stands in the stream exactly as `data: {…}` and an empty line."""
        for prefix in (b"data: ", b"data:"):
            for ending in (b"\n\n", b"\r\n\r\n"):
                if self.scanners is not None and self.body[start : event.end] == prefix + (event.data or b"") + ending:
                    scanner = make_scanner(event.data or b"", ending)
                    if scanner is not None and all(scanner.pattern != known.pattern for known in self.scanners):
                        self.scanners.insert(0, scanner)
                    return

    def decoded(self) -> list[str]:
        """The text of each token event."""
        return [
            text
            if isinstance(text, str)
            else (json.loads(b'"' + text + b'"') if b"\\" in text else text.decode("utf-8"))
            for text in self.texts
        ]

    def joined_text(self) -> str:
        """All texts as one; surrogate pairs that were split over two events are put together."""
        joined = "".join(self.decoded())
        return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _place(answer: Answer, stream: _Stream, *, stamps: array[int], body_marks: list[int]) -> None:
    """Give each token event the stamp of the read that completed it."""
    read, last, shared = 0, -1, -1
    token_ns = answer.token_ns
    for end in stream.ends:
        if body_marks[read] < end:
            read += 1
            if body_marks[read] < end:
                read = bisect_left(body_marks, end, read + 1)
        token_ns.append(stamps[read])
        if read == last and read != shared:
            answer.coalesced_reads += 1
            shared = read
        last = read
    answer.events = stream.events
    answer.text = stream.joined_text()
    if stream.first_answer is not None:
        answer.first_answer_ns = token_ns[stream.first_answer]


# ---------------------------------------------------------------- counts and outcome


def _count(answer: Answer, stream: _Stream) -> None:
    """N, prompt and cached tokens: from the last usage that gives them (usages are cumulative, never summed)."""
    for _, usage in stream.usages:
        answer.prompt_tokens = answer.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
        answer.cached_tokens = answer.cached_tokens if usage.cached_tokens is None else usage.cached_tokens
        answer.output_tokens = answer.output_tokens if usage.completion_tokens is None else usage.completion_tokens
    answer.finish_reason = stream.finish_reason
    if answer.output_tokens is not None:
        answer.counted_by = "usage"
    elif stream.ends:
        answer.output_tokens, answer.counted_by = len(stream.ends), "events"
    answer.event_tokens = _tokens_per_event(stream)
    if answer.event_tokens is None and answer.output_tokens is not None:
        answer.first_event_tokens = _first_by_share(stream, answer.output_tokens)


def _tokens_per_event(stream: _Stream) -> list[int] | None:
    """Tokens of each token event, when the server says so with each of them; else None."""
    if len(stream.usages) < len(stream.ends):
        return None
    after: dict[int, int] = {}
    for event, usage in stream.usages:
        if usage.completion_tokens is not None:
            after.setdefault(event, usage.completion_tokens)
    totals = [0, *(after.get(number, -1) for number in range(1, len(stream.ends) + 1))]
    steps = [later - earlier for earlier, later in pairwise(totals)]
    if len(steps) < 2 or min(totals) < 0 or min(steps) < 1:
        return None
    return steps


def _first_by_share(stream: _Stream, tokens: int) -> int | None:
    """Tokens of the first event by its share of the text; None when there are no more tokens than events.

    A server that lets its first tokens out together would otherwise seem to decode faster. Never more than the tokens
    that are left when every other event holds one.
    """
    spare = tokens - len(stream.ends)
    if spare < 1 or len(stream.ends) < 2:
        return None
    lengths = list(map(len, stream.decoded()))
    return min(1 + spare, max(1, round(tokens * lengths[0] / sum(lengths))))


def _shortfall(answer: Answer, stream: _Stream, framing: Framing, requested: int) -> str | None:
    """Why this answer is not what was asked for; None when it is."""
    ended = stream.done or (stream.finish_reason is not None and framing.mode is not Mode.UNTIL_CLOSE)
    for wrong, what in (
        (framing.broken is not None, f"broken HTTP: {framing.broken}"),
        (not framing.complete, "the connection closed before the end of the answer"),
        (not ended, "the stream ended without [DONE] or finish_reason"),
        (not stream.ends, "the stream ended without a single token"),
    ):
        if wrong:
            return what
    if answer.output_tokens == requested:
        return None
    if answer.counted_by == "events" and stream.finish_reason == "length":
        return None  # without usage an event may hold several tokens: the server's own word that the limit was reached
    return f"{answer.output_tokens} of {requested} tokens (finish_reason {stream.finish_reason})"
