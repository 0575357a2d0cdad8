"""Telling GitHub: pending at the start, the verdict in the end, and an honest error when the job was cut off.

Measuring and posting are separate phases: by the time anything here runs, no GPU is held. The text is finished and the
word is given; what cannot be posted becomes a warning with the way to mend it, and never a verdict. The status comes
first, because it is what a branch rule waits for; the comment is for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from servegate_action.errors import ExitCode
from servegate_action.github import checkrun, comment, pulls, selfcheck, status
from servegate_action.github.api import Api, Refusal, Refused
from servegate_action.github.comment import CommentText, Marker
from servegate_action.github.degrade import Feature, Lost, explain
from servegate_action.github.event import Event
from servegate_action.github.inputs import ActionsEnvironment, CommentWhen, RunId
from servegate_action.github.outputs import guard_line

Word = Literal["PASS", "REJECT", "INCONCLUSIVE", "INVALID"]
T = TypeVar("T")

NO_VERDICT = "error"
_RUN_PAGE = re.compile(r"(https?://\S+)/actions/runs/(\d{1,18})/attempts/(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Where:
    """What is published to: the commit, the thread (None: there is none), and the run that speaks."""

    gate: str
    context: str
    sha: str
    number: int | None
    on_pull_request: bool
    run: RunId
    run_url: str


@dataclass(frozen=True, slots=True)
class Options:
    """What the user wants published."""

    comment: CommentWhen = "always"
    check_run: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run, in words. `word` is None when nothing could be judged; `exit_code` says why.

    The two must agree: only PASS goes with exit code 0. `text` renders the comment for a given length and history.
    """

    word: Word | None
    exit_code: ExitCode
    status_line: str
    text: CommentText
    summary: str = ""

    def __post_init__(self) -> None:
        by_code = self.exit_code.name if self.exit_code.name in ("PASS", "REJECT", "INCONCLUSIVE", "INVALID") else None
        if self.word != by_code:
            raise ValueError(f"the word {self.word} and the exit code {self.exit_code.name} contradict each other")

    @property
    def state(self) -> status.State:
        """The commit status. Anything but PASS blocks."""
        if self.word is None:
            return "error"
        return "success" if self.word == "PASS" else "failure"


@dataclass(frozen=True, slots=True)
class Published:
    """What arrived. `kept` says why an existing comment was left alone; `warnings` is what could not be done."""

    status_posted: bool
    comment_url: str | None = None
    comment_written: bool = False
    kept: str = ""
    check_run_posted: bool = False
    outdated: bool = False
    warnings: tuple[Lost, ...] = ()


@dataclass(slots=True)
class _Losses:
    """Collects refusals: one thing that cannot be posted does not stop the next."""

    found: list[Lost] = field(default_factory=list)

    def attempt(self, feature: Feature, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except Refused as refused:
            self.found.append(explain(feature, refused))
            return None

    def done(self, feature: Feature, action: Callable[[], object]) -> bool:
        before = len(self.found)
        self.attempt(feature, action)
        return len(self.found) == before


def where(event: Event, environment: ActionsEnvironment, *, gate: str, context: str) -> Where | None:
    """Where an event's verdict goes. None when the event names no commit yet (a command that was not accepted)."""
    if event.sha is None:
        return None
    return Where(
        gate=gate,
        context=context,
        sha=event.sha,
        number=event.number,
        on_pull_request=event.on_pull_request,
        run=environment.run,
        run_url=environment.run_url,
    )


def pending(place: Where, *, api: Api, options: Options) -> Published:
    """Say that the gate is at work, before anything is measured."""
    losses = _Losses()
    said = status.Status("pending", place.context, "measuring baseline and candidate", place.run_url)
    posted = losses.done(Feature.STATUS, lambda: status.post(api, sha=place.sha, status=said))
    started = options.check_run and losses.done(
        Feature.CHECK_RUN,
        lambda: checkrun.start(api, sha=place.sha, name=place.context, details_url=place.run_url),
    )
    return Published(status_posted=posted, check_run_posted=started, warnings=tuple(losses.found))


def publish(finished: Finished, *, place: Where, api: Api, options: Options) -> Published:
    """Post status, check run and comment, in this order; report what arrived and what did not.

    Of one commit and gate the latest run's word stands, also while it measures: an older run that ends last says nothing,
    unless it has shown a regression. That is never left unsaid.
    """
    losses = _Losses()
    later = _later_run(place, api) if finished.word != "REJECT" else None
    if later is not None:
        return Published(status_posted=False, kept=f"a later run of the same commit has the word: {later}")
    said = status.Status(finished.state, place.context, finished.status_line, place.run_url)
    posted = losses.done(Feature.STATUS, lambda: status.post(api, sha=place.sha, status=said))
    checked = options.check_run and losses.done(Feature.CHECK_RUN, lambda: _conclude(finished, place=place, api=api))
    told = _comment(finished, place=place, api=api, options=options, losses=losses)
    return Published(
        status_posted=posted,
        comment_url=told.url,
        comment_written=told.written,
        kept=told.kept,
        check_run_posted=checked,
        outdated=told.outdated,
        warnings=tuple(losses.found),
    )


def _later_run(place: Where, api: Api) -> str | None:
    """The page of a run after this one that has set the status. What GitHub does not tell changes nothing."""
    try:
        seen = status.current(api, sha=place.sha, context=place.context)
    except Refused:
        return None
    found = _RUN_PAGE.fullmatch((seen and seen.target_url) or "")
    if found is None or found[1] != place.run_url.rpartition("/actions/runs/")[0]:
        return None
    return found[0] if RunId(int(found[2]), int(found[3])) > place.run else None


def interrupted(place: Where, *, api: Api, options: Options, description: str) -> Published:
    """From the step after the job: turn a status of this run that is still pending into `error`; touch nothing else."""
    losses = _Losses()
    seen = losses.attempt(Feature.STATUS, lambda: status.current(api, sha=place.sha, context=place.context))
    if seen is None or seen.state != "pending" or seen.target_url != place.run_url:
        return Published(status_posted=False, warnings=tuple(losses.found))
    said = status.Status("error", place.context, description, place.run_url)
    posted = losses.done(Feature.STATUS, lambda: status.post(api, sha=place.sha, status=said))
    checked = options.check_run and losses.done(
        Feature.CHECK_RUN,
        lambda: _conclude_as(checkrun.Conclusion(success=False, title=description, summary=description), place, api),
    )
    return Published(status_posted=posted, check_run_posted=checked, warnings=tuple(losses.found))


# ---------------------------------------------------------------- check run


def _conclude(finished: Finished, *, place: Where, api: Api) -> None:
    conclusion = checkrun.Conclusion(
        success=finished.state == "success",
        title=finished.status_line,
        summary=finished.summary or finished.status_line,
    )
    _conclude_as(conclusion, place, api)


def _conclude_as(conclusion: checkrun.Conclusion, place: Where, api: Api) -> None:
    run = checkrun.find(api, sha=place.sha, name=place.context, details_url=place.run_url)
    if run is None:
        run = checkrun.start(api, sha=place.sha, name=place.context, details_url=place.run_url)
    checkrun.finish(api, run_id=run.id, conclusion=conclusion)


# ---------------------------------------------------------------- comment


@dataclass(frozen=True, slots=True)
class _Told:
    url: str | None = None
    written: bool = False
    kept: str = ""
    outdated: bool = False


class _Head:
    """The pull request's head, asked anew each time: it is what a newer run is recognized by."""

    def __init__(self, api: Api, place: Where, losses: _Losses) -> None:
        self._api = api
        self._place = place
        self._losses = losses
        self._refused = False
        self.seen: str | None = None

    def __call__(self) -> str | None:
        number = self._place.number
        if number is None or not self._place.on_pull_request or self._refused:
            return self.seen
        pull = self._losses.attempt(Feature.PULL_REQUEST, lambda: pulls.get(self._api, number))
        self._refused = pull is None
        self.seen = pull.head_sha if pull else self.seen
        return self.seen


def _comment(finished: Finished, *, place: Where, api: Api, options: Options, losses: _Losses) -> _Told:
    if place.number is None:
        return _Told(kept="there is no pull request or issue to comment on")
    head = _Head(api, place, losses)
    thread = comment.Thread(number=place.number, head_now=head)
    writing = comment.Writing(
        marker=Marker(
            gate=place.gate,
            head=place.sha if place.on_pull_request else "-",
            run=place.run,
            verdict=finished.word.lower() if finished.word else NO_VERDICT,
        ),
        text=finished.text,
        when=options.comment,
        approve=_last_look(finished, place=place, losses=losses),
    )
    feature = Feature.COMMENT if place.on_pull_request else Feature.ISSUE_COMMENT
    posted = losses.attempt(feature, lambda: comment.put(api, thread=thread, writing=writing))
    outdated = head.seen is not None and head.seen != place.sha
    if posted is None:
        return _Told(outdated=outdated)
    return _Told(url=posted.url, written=posted.written, kept=posted.kept, outdated=outdated)


def _last_look(finished: Finished, *, place: Where, losses: _Losses) -> comment.Approve:
    """A body that fails its self-check is not posted; a plain one takes its place, and the failure is reported."""
    host = urlsplit(place.run_url).hostname or "github.com"
    expected = selfcheck.Expected(hosts=frozenset({host}))
    if not finished.word:
        expected = replace(expected, rows=0)  # a run without a verdict has no checklist to show

    def approve(body: str) -> str:
        found = selfcheck.findings(body, expected=expected)
        if not found:
            return body
        lost = _failed_check(found)
        if lost not in losses.found:
            losses.found.append(lost)
        lines = body.split("\n")[:2]
        return "\n".join([*lines, plain(finished, place)])

    return approve


def _failed_check(found: list[str]) -> Lost:
    return Lost(
        feature=Feature.COMMENT,
        kind=Refusal.INVALID,
        title="The comment failed its self-check",
        text="A plain one was posted instead; the verdict is the same. "
        + "; ".join(guard_line(finding, max_chars=120) for finding in found[:5]),
    )


def plain(finished: Finished, place: Where) -> str:
    """A comment of nothing but our own words, for when the full one cannot be shown."""
    word = finished.word or "no verdict"
    return (
        f"### servegate `{place.gate}`: {word}\n\n"
        f"Measured at `{place.sha[:7]}`. The full comment did not pass its last check and was not posted; "
        f"the step summary of [run {place.run}](<{place.run_url}>) has the whole report.\n"
    )
