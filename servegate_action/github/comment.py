"""The sticky comment: one per gate and thread, updated in place, never over that of a newer head.

Ours are the comments that this token's login wrote and whose first line is our marker; foreign text never stands there.
GitHub has no conditional update, so writing is: read, decide, read that one comment again, write, wait, read once more;
whoever finds the work of a newer head steps back, whoever finds that of an older one repairs it. Duplicates (a POST that
succeeded although its answer was an error) are collapsed. Texts too long for GitHub are asked for again, shorter. This
module sees finished Markdown and decides about comments only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from servegate_action.github.api import Answer, Api, Refusal, Refused
from servegate_action.github.inputs import CommentWhen, RunId

LADDER = (60_000, 40_000, 20_000, 8_000, 2_000)
SETTLE_S = 1.5
TRIES = 3
EARLIER_KEPT = 10
ACTIONS_BOT = "github-actions[bot]"

_MARKER = re.compile(
    r"<!-- servegate:v1 gate=(?P<gate>[A-Za-z0-9][A-Za-z0-9._-]{0,63}) head=(?P<head>[0-9a-f]{7,64}|-)"
    r" run=(?P<run>\d{1,18})\.(?P<attempt>\d{1,6}) verdict=(?P<verdict>[a-z]{1,20}) -->"
)
_ANY_MARKER = re.compile(r"<!-- servegate:[^>]*-->")
_EARLIER = re.compile(r"<!-- servegate:earlier(?P<heads>(?: (?:[0-9a-f]{7,64}|-)=[a-z]{1,20}@\d{1,18}\.\d{1,6})*) -->")


@dataclass(frozen=True, slots=True)
class Marker:
    """The first line of a comment of ours. `head` is the full sha of what was measured, `-` on a plain issue."""

    gate: str
    head: str
    run: RunId
    verdict: str

    def line(self) -> str:
        """As it is written."""
        return f"<!-- servegate:v1 gate={self.gate} head={self.head} run={self.run} verdict={self.verdict} -->"


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What the comment had said after an earlier run, of this head or of one before."""

    head: str
    verdict: str
    run: RunId


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a text is rendered for: how long it may be, what was said of earlier runs, and the head that has overtaken it."""

    max_chars: int
    earlier: tuple[EarlierRun, ...] = ()
    newer_head: str | None = None


CommentText = Callable[[Occasion], str]
Approve = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Thread:
    """Where the comment goes. `head_now` asks for the head of the pull request; it answers None on a plain issue."""

    number: int
    head_now: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Posted:
    """How it went. `kept` says why an existing comment was left alone, or none was written."""

    url: str | None
    written: bool
    kept: str = ""


class _User(Answer):
    login: str = ""


class _Comment(Answer):
    id: int
    body: str | None = None
    html_url: str
    user: _User | None = None


@dataclass(frozen=True, slots=True)
class _Ours:
    """A comment of ours, with what its first two lines say."""

    id: int
    url: str
    marker: Marker
    earlier: tuple[EarlierRun, ...]


@dataclass(frozen=True, slots=True)
class Writing:
    """What to write: marker and text, when to write at all, and what every finished body must pass through."""

    marker: Marker
    text: CommentText
    when: CommentWhen = "always"
    approve: Approve = str


def put(api: Api, *, thread: Thread, writing: Writing) -> Posted:
    """Write the comment, or say why not. Raises `Refused` when GitHub does not take it."""
    marker, when = writing.marker, writing.when
    if when == "never":
        return Posted(None, written=False, kept="comments are switched off (`comment: never`)")
    desk = _Desk(api, thread=thread, writing=writing)
    for _ in range(TRIES):
        ours = desk.ours()
        head_now = thread.head_now()  # after the listing: a newer head's comment must not be ranked by an older answer
        best = max(ours, key=lambda one: _rank(one.marker, head_now), default=None)
        if reason := _reason_to_keep(best.marker if best else None, marker, head_now=head_now, when=when):
            return Posted(best.url if best else None, written=False, kept=reason)
        target = min(ours, key=lambda one: one.id, default=None)
        if target is not None and not desk.unchanged(target):
            continue  # somebody wrote in between: decide again
        written = desk.write(target, best=best, head_now=head_now)
        if written is None:
            continue  # it was deleted while it was being changed: decide again
        settled = desk.settle(written, created=target is None)
        if settled is not None:
            return settled
    return Posted(None, written=False, kept="another run kept writing the same comment; it was left to that run")


def _rank(marker: Marker, head_now: str | None) -> tuple[bool, RunId]:
    """Newer is: the head that the pull request has now, then the later run. Commits have no order that a sha would tell."""
    return (marker.head == head_now, marker.run)


def _reason_to_keep(best: Marker | None, mine: Marker, *, head_now: str | None, when: CommentWhen) -> str:
    if best is None:
        return (
            "nothing to complain about (`comment: failures`)" if when == "failures" and mine.verdict == "pass" else ""
        )
    if best.head != mine.head and _rank(best, head_now) > _rank(mine, head_now):
        return f"the comment already speaks of a newer head, {best.head[:7]}"
    if best.head == mine.head == "-" and best.run > mine.run:
        return f"the comment already speaks of a later run, {best.run}"
    if when == "changes" and best.verdict == mine.verdict:
        return "the verdict is the one that the comment already gives (`comment: changes`)"
    return ""


class _Desk:
    """Reads and writes the comments of one gate in one thread."""

    def __init__(self, api: Api, *, thread: Thread, writing: Writing) -> None:
        self._api = api
        self._thread = thread
        self._marker = writing.marker
        self._writing = writing
        self._author = _author(api)

    def ours(self) -> list[_Ours]:
        """Comments of this gate and this author, over all pages."""
        rows = self._api.pages(self._api.path("issues", self._thread.number, "comments"), _Comment)
        return [mine for row in rows if (mine := self._as_ours(row)) is not None]

    def unchanged(self, seen: _Ours) -> bool:
        """Whether a comment still says what the decision was based on."""
        now = self._read(seen.id)
        return now is not None and now.marker == seen.marker

    def write(self, target: _Ours | None, *, best: _Ours | None, head_now: str | None) -> _Ours | None:
        """Write into the oldest comment of ours, or a new one; shorter and shorter until GitHub takes it.

        None: the comment to change is not there any more.
        """
        earlier = _history(best, self._marker)
        newer = head_now if head_now is not None and head_now != self._marker.head else None
        for position, max_chars in enumerate(LADDER):
            occasion = Occasion(max_chars=max_chars, earlier=earlier, newer_head=newer)
            body = self._writing.approve(compose(self._marker, self._writing.text, occasion))
            try:
                return self._change(target, body) if target is not None else self._create(body)
            except Refused as refused:
                if target is not None and refused.kind is Refusal.NOT_FOUND:
                    return None
                if refused.kind is not Refusal.TOO_LONG or position == len(LADDER) - 1:
                    raise
        raise AssertionError("the ladder has a last rung")

    def settle(self, written: _Ours, *, created: bool) -> Posted | None:
        """Look again after a moment. None: ours was replaced by something older, or removed; start over.

        The text is on GitHub by now: what cannot be looked at any more changes nothing about that.
        """
        try:
            return self._settle(written, created=created)
        except Refused:
            return Posted(written.url, written=True)

    def _settle(self, written: _Ours, *, created: bool) -> Posted | None:
        self._api.clock.sleep(SETTLE_S)
        now = self._read(written.id)
        head_now = self._thread.head_now()
        if now is None:
            return Posted(written.url, written=True) if created else None
        if now.marker != self._marker:
            if now.marker.head == self._marker.head or _rank(now.marker, head_now) > _rank(self._marker, head_now):
                return Posted(now.url, written=False, kept=f"run {now.marker.run} wrote after this one")
            return None
        for other in self.ours():
            if other.id == now.id:
                continue
            if other.marker.head != self._marker.head and _rank(other.marker, head_now) > _rank(self._marker, head_now):
                self._remove(now.id)
                return Posted(
                    other.url, written=False, kept=f"a newer head has its own comment, {other.marker.head[:7]}"
                )
            self._remove(other.id)
        return Posted(now.url, written=True)

    def _change(self, target: _Ours, body: str) -> _Ours:
        row = self._api.patch(self._api.path("issues", "comments", target.id), _Comment, {"body": body})
        return replace(target, url=row.html_url, marker=self._marker)

    def _create(self, body: str) -> _Ours:
        """POST is not repeated blindly: after an unclear answer the thread is read, and only then tried again."""
        path = self._api.path("issues", self._thread.number, "comments")
        for attempt in range(TRIES):
            try:
                row = self._api.post(path, _Comment, {"body": body})
            except Refused as refused:
                if not refused.unclear:
                    raise
                if (arrived := self._arrived()) is not None:
                    return arrived
                if attempt == TRIES - 1:
                    raise
            else:
                return _Ours(row.id, row.html_url, self._marker, ())
        raise AssertionError("the last attempt returns or raises")

    def _arrived(self) -> _Ours | None:
        """The comment of this very run, looked for more than once, because lists lag behind writes."""
        for attempt in range(TRIES):
            self._api.clock.sleep(2.0**attempt)
            for one in self.ours():
                if one.marker == self._marker:
                    return one
        return None

    def _read(self, comment_id: int) -> _Ours | None:
        try:
            return self._as_ours(self._api.get(self._api.path("issues", "comments", comment_id), _Comment))
        except Refused as refused:
            if refused.kind in (Refusal.NOT_FOUND, Refusal.GONE):
                return None
            raise

    def _remove(self, comment_id: int) -> None:
        try:
            self._api.delete(self._api.path("issues", "comments", comment_id))
        except Refused as refused:
            if refused.kind is not Refusal.NOT_FOUND:  # somebody else collapsed it: the same result
                raise

    def _as_ours(self, row: _Comment) -> _Ours | None:
        login = row.user.login if row.user else ""
        marker = read_marker(row.body or "")
        if login not in self._author or marker is None or marker.gate != self._marker.gate:
            return None
        return _Ours(row.id, row.html_url, marker, read_earlier(row.body or ""))


def _author(api: Api) -> frozenset[str]:
    """The login that this token writes as. GraphQL names an app without the suffix that REST gives it."""
    try:
        login = api.viewer()
    except Refused:
        return frozenset({ACTIONS_BOT})
    return frozenset({login, f"{login}[bot]"})


def compose(marker: Marker, text: CommentText, occasion: Occasion) -> str:
    """Our two lines, then the text without any marker of its own."""
    front = f"{marker.line()}\n{_earlier_line(occasion.earlier)}\n"
    lines = text(replace(occasion, max_chars=occasion.max_chars - len(front))).split("\n")
    while lines and _ANY_MARKER.fullmatch(lines[0].strip()):
        lines = lines[1:]
    return front + "\n".join(lines)


def read_marker(body: str) -> Marker | None:
    """The marker, from the first line and nowhere else."""
    found = _MARKER.fullmatch(body.split("\n", maxsplit=1)[0].strip())
    if found is None:
        return None
    run = RunId(int(found["run"]), int(found["attempt"]))
    return Marker(gate=found["gate"], head=found["head"], run=run, verdict=found["verdict"])


def read_earlier(body: str) -> tuple[EarlierRun, ...]:
    """What the comment keeps of earlier runs, newest first, from its second line and nowhere else."""
    lines = body.split("\n", maxsplit=2)
    found = _EARLIER.fullmatch(lines[1].strip()) if len(lines) > 1 else None
    heads: list[EarlierRun] = []
    for entry in found["heads"].split() if found else []:
        head, _, rest = entry.partition("=")
        verdict, _, run = rest.partition("@")
        number, _, attempt = run.partition(".")
        heads.append(EarlierRun(head, verdict, RunId(int(number), int(attempt))))
    return tuple(heads)


def _earlier_line(earlier: Sequence[EarlierRun]) -> str:
    return "<!-- servegate:earlier" + "".join(f" {one.head}={one.verdict}@{one.run}" for one in earlier) + " -->"


def _history(best: _Ours | None, mine: Marker) -> tuple[EarlierRun, ...]:
    """Earlier runs, newest first: what the comment says now goes on top of what it remembers; each run once.

    Those of the same head too: a change that was measured until it passed should look like one.
    """
    if best is None:
        return ()
    told = (EarlierRun(best.marker.head, best.marker.verdict, best.marker.run), *best.earlier)
    kept: dict[RunId, EarlierRun] = {}
    for one in told:
        if one.run != mine.run:
            kept.setdefault(one.run, one)
    return tuple(kept.values())[:EARLIER_KEPT]
