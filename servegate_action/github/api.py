"""The wall towards GitHub's API: the only module that touches PyGithub.

It adds to PyGithub what a gate needs: one translated error (`Refused`, with a kind that `degrade` explains), a bounded
retry for every method that may be repeated (PyGithub itself never retries PATCH, and would repeat a POST that had
succeeded), writes at least a second apart, Retry-After honoured up to a limit. A POST that creates something is not
repeated here after an unclear answer: only its caller can look whether it arrived. Clock and sleep are passed in. This
module knows no comment, no status and no verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeVar
from urllib.parse import quote

import github
import requests
import tenacity
import urllib3
from github.GithubException import GithubException
from pydantic import BaseModel, ConfigDict, ValidationError

from servegate_action.errors import PublishFailed

SECONDS_BETWEEN_WRITES = 1.0
LONGEST_WAIT_S = 60.0
ATTEMPTS = 4
PAGE = 100
MOST_PAGES = 100  # 10,000 comments; GitHub itself stops listing far below what a thread can hold


class Refusal(StrEnum):
    """Why GitHub did not do what it was asked; one word for each thing that a user can do about it."""

    BAD_TOKEN = "bad token"  # noqa: S105 - a word, not a secret
    READ_ONLY = "read-only token"
    FORBIDDEN = "forbidden"
    LOCKED = "conversation locked"
    NOT_FOUND = "not found"
    GONE = "gone"
    TOO_LONG = "too long"
    INVALID = "invalid request"
    RATE_LIMITED = "rate limited"
    SERVER = "server error"
    UNREACHABLE = "unreachable"


class Refused(PublishFailed):
    """GitHub did not do what it was asked. `status` is the HTTP status, None when no answer came."""

    def __init__(self, kind: Refusal, *, status: int | None, message: str, retry_after_s: float | None = None) -> None:
        shown = f"{status} {message}" if status is not None else message
        super().__init__(f"GitHub: {kind.value} ({shown})")
        self.kind = kind
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def unclear(self) -> bool:
        """True when the request may have been carried out all the same."""
        return self.kind in (Refusal.SERVER, Refusal.UNREACHABLE)


class Clock(Protocol):
    """Time, as this room needs it."""

    def now_s(self) -> float:
        """Seconds of a monotonic clock."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The real one."""

    def now_s(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for real."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Server:
    """Where GitHub is and how it is trusted. `ca_bundle` is a file of certificates, for an enterprise server.

    `attempts` is how often a request is made that may be repeated; `spacing_s` lies between two writes.
    """

    api_url: str = "https://api.github.com"
    token: str | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    timeout_s: int = 20
    attempts: int = ATTEMPTS
    spacing_s: float = SECONDS_BETWEEN_WRITES


class Answer(BaseModel):
    """Base of what is read out of answers: only the named fields, the rest ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


A = TypeVar("A", bound=Answer)
Json = Mapping[str, object]


class Api:
    """One repository on one server. Every method raises `Refused`, and nothing else, when GitHub says no."""

    def __init__(self, server: Server, *, repository: str, clock: Clock | None = None) -> None:
        self.repository = repository
        self.server = server
        self.clock: Clock = clock or SystemClock()
        self._last_write_s: float | None = None
        self._requester = github.Github(
            auth=github.Auth.Token(server.token) if server.token else None,
            base_url=server.api_url,
            timeout=server.timeout_s,
            user_agent="servegate",
            per_page=PAGE,
            verify=server.ca_bundle or True,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
            lazy=True,
        ).requester

    def hurried(self) -> Api:
        """The same for a job that is being cancelled and has seconds: one attempt, short, without spacing."""
        return Api(
            replace(self.server, timeout_s=3, attempts=1, spacing_s=0.0), repository=self.repository, clock=self.clock
        )

    def path(self, *parts: str | int) -> str:
        """A path below this repository, each part quoted, so that no part can step out of it."""
        return "/repos/" + self.repository + "".join("/" + quote(str(part), safe="") for part in parts)

    def get(self, path: str, model: type[A], **parameters: str | int) -> A:
        """One object."""
        return _read(self._call("GET", path, parameters=parameters)[1], model)

    def pages(self, path: str, model: type[A], **parameters: str | int) -> Iterator[A]:
        """Every object of a list, over all pages, in the server's order."""
        for number in range(1, MOST_PAGES + 1):
            headers, found = self._call("GET", path, parameters={**parameters, "per_page": PAGE, "page": number})
            yield from (_read(entry, model) for entry in _entries(found))
            if 'rel="next"' not in headers.get("link", ""):
                return

    def post(self, path: str, model: type[A], body: Json, *, repeatable: bool = False) -> A:
        """Create something. `repeatable`: doing it twice does no harm, so an unclear answer is followed by another try."""
        return _read(self._call("POST", path, body=body, repeatable=repeatable)[1], model)

    def patch(self, path: str, model: type[A], body: Json) -> A:
        """Change something; repeated after an unclear answer, since the second change is the first one again."""
        return _read(self._call("PATCH", path, body=body)[1], model)

    def delete(self, path: str) -> None:
        """Remove something."""
        self._call("DELETE", path)

    def viewer(self) -> str:
        """The login that the token writes as. REST will not tell an installation token its own name; GraphQL does."""
        _, found = self._translated(
            lambda: self._requester.graphql_query("query { viewer { login } }", {}),
        )
        return _read(found, _Viewer).data.viewer.login

    def _call(
        self,
        verb: str,
        path: str,
        *,
        parameters: Json | None = None,
        body: Json | None = None,
        repeatable: bool = True,
    ) -> tuple[Mapping[str, str], object]:
        def once() -> tuple[Mapping[str, str], object]:
            if verb != "GET":
                self._space_out()
            return self._translated(
                lambda: self._requester.requestJsonAndCheck(
                    verb, path, parameters=dict(parameters or {}), input=dict(body) if body is not None else None
                )
            )

        def may_repeat(error: BaseException) -> bool:
            return isinstance(error, Refused) and (
                error.kind is Refusal.RATE_LIMITED or (error.unclear and repeatable and error.status != 501)
            )

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(may_repeat),
            stop=self._is_enough,
            wait=_wait_s,
            sleep=self.clock.sleep,
            reraise=True,
        )
        return retrying(once)

    def _is_enough(self, state: tenacity.RetryCallState) -> bool:
        """After a few tries; and at once with a server that wants an hour: the job would only hold its machine."""
        if state.attempt_number >= self.server.attempts:
            return True
        error = state.outcome.exception() if state.outcome else None
        asked_s = error.retry_after_s if isinstance(error, Refused) else None
        return asked_s is not None and asked_s > LONGEST_WAIT_S

    def _space_out(self) -> None:
        """Keep writes at least a second apart, as GitHub asks of everyone who wants no secondary limit."""
        if self._last_write_s is not None:
            due_s = self._last_write_s + self.server.spacing_s - self.clock.now_s()
            if due_s > 0:
                self.clock.sleep(due_s)
        self._last_write_s = self.clock.now_s()

    def _translated(self, ask: Callable[[], tuple[dict[str, str], object]]) -> tuple[Mapping[str, str], object]:
        try:
            return ask()
        except GithubException as error:
            raise _refusal(error) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise Refused(Refusal.UNREACHABLE, status=None, message=_reason(error)) from error
        except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            # PyGithub: an address on another host, a redirect that it does not follow, JSON that is none or of another
            # shape (a proxy's page, a list where it looks for a message).
            raise Refused(Refusal.SERVER, status=None, message=_reason(error)) from error


class _Login(Answer):
    login: str


class _ViewerData(Answer):
    viewer: _Login


class _Viewer(Answer):
    data: _ViewerData


def _read(found: object, model: type[A]) -> A:
    try:
        return model.model_validate(found)
    except ValidationError as error:
        fields = ", ".join(
            ".".join(str(part) for part in problem["loc"]) or "(all of it)" for problem in error.errors()
        )
        raise Refused(Refusal.SERVER, status=None, message=f"an answer without {fields}") from error


def _entries(found: object) -> list[object]:
    if isinstance(found, list):
        return found
    if isinstance(found, dict):  # `check_runs`, `statuses`: the list stands beside a total
        for value in found.values():
            if isinstance(value, list):
                return value
    raise Refused(Refusal.SERVER, status=None, message="a list was asked for, and something else came")


def _refusal(error: GithubException) -> Refused:
    headers = error.headers or {}
    message = _message(error)
    kind = _kind(error.status, message, headers)
    return Refused(kind, status=error.status, message=message, retry_after_s=_retry_after_s(headers))


def _message(error: GithubException) -> str:
    """GitHub's sentence and, on 422, what it says of the fields."""
    data = error.data if isinstance(error.data, dict) else {}
    parts = [str(data.get("message") or error.message or "no reason given")]
    details = data.get("errors")
    if isinstance(details, list):
        parts += [str(entry.get("message") or entry) if isinstance(entry, dict) else str(entry) for entry in details]
    return "; ".join(parts)[:500]


def _kind(status: int, message: str, headers: Mapping[str, str]) -> Refusal:
    lower = message.lower()
    if status == 401:
        return Refusal.BAD_TOKEN
    if status == 429 or (status == 403 and ("rate limit" in lower or "retry-after" in headers)):
        return Refusal.RATE_LIMITED
    if status == 403:
        return _forbidden(lower)
    if status == 422:
        return Refusal.TOO_LONG if "too long" in lower or "too_long" in lower or "maximum" in lower else Refusal.INVALID
    if status >= 500:
        return Refusal.SERVER
    return {404: Refusal.NOT_FOUND, 410: Refusal.GONE}.get(status, Refusal.INVALID)


def _forbidden(message: str) -> Refusal:
    if "locked" in message:
        return Refusal.LOCKED
    if "not accessible by" in message or "read-only" in message or "read only" in message:
        return Refusal.READ_ONLY
    return Refusal.FORBIDDEN


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _wait_s(state: tenacity.RetryCallState) -> float:
    """What the server asks for, else 1, 2, 4 s; never longer than a minute."""
    error = state.outcome.exception() if state.outcome else None
    asked_s = error.retry_after_s if isinstance(error, Refused) else None
    return min(LONGEST_WAIT_S, asked_s if asked_s is not None else 2.0 ** (state.attempt_number - 1))


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
