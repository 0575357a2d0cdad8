"""Waiting until a stack serves, phase by phase: port open, health 200, first token of a real completion.

Ready means that one token came back, never that a port is open or that a health page says so. Each phase is stamped as it
is passed. The completion is asked for in a thread of its own, so that a server that accepts and then dies, or that never
answers, is noticed at once and at its limit. Refuses to wait for a server whose answer is final: a wrong model name does
not become right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from servegate_action.client import Answered, NoAnswer, OneToken, Reply, api_root, get_text
from servegate_action.errors import LaunchFailed
from servegate_action.launch.ports import is_open
from servegate_action.launch.stack import FirstToken, log_tail
from servegate_action.records import Absent, MaybeInt

# A server may still register its routes when its port opens; a refusal that stays this long is final.
FINAL_AFTER_S = 30.0
_FINAL = frozenset({400, 401, 403, 404, 405, 422})
_NO_SUCH_PATH = frozenset({404, 405, 501})
_QUICKEST_POLL_S = 0.01
_SLOWEST_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Phases:
    """When each phase was passed, monotonic ns."""

    port_open_ns: int
    healthy_ns: MaybeInt
    first_token_ns: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What to wait for. `check` raises when the stack has ended, `port_opened` when the port is somebody else's."""

    label: str
    base_url: str
    health: str | None
    limit_s: float
    first_token: FirstToken
    log_path: Path
    check: Callable[[], None]
    port_opened: Callable[[], None]
    why_not: Callable[[], str]
    """Asked when the time is over and the port never opened: what was seen instead."""
    proxied: bool = False
    final_after_s: float = FINAL_AFTER_S


class _Clock:
    """The limit, and a pace that gets slower with the time waited: 1 % of it, so that stamps stay that exact."""

    def __init__(self, limit_s: float) -> None:
        self._started = time.monotonic()
        self._limit_s = limit_s

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def left_s(self) -> float:
        return self._limit_s - self.waited_s

    @property
    def pause_s(self) -> float:
        return min(_SLOWEST_POLL_S, max(_QUICKEST_POLL_S, 0.01 * self.waited_s))


def wait_until_ready(waiting: Waiting) -> Phases:
    """Pass every phase, or raise LaunchFailed with the end of the log."""
    clock = _Clock(waiting.limit_s)
    port_open_ns = _port_open(waiting, clock)
    waiting.port_opened()
    healthy_ns = _healthy(waiting, clock)
    first_token_ns = _first_token(waiting, clock)
    waiting.port_opened()
    return Phases(port_open_ns=port_open_ns, healthy_ns=healthy_ns, first_token_ns=first_token_ns)


def _port_open(waiting: Waiting, clock: _Clock) -> int:
    parts = urlsplit(waiting.base_url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    while not is_open(host, port, proxied=waiting.proxied):
        waiting.check()
        if clock.left_s <= 0:
            raise _never_ready(waiting, "its port never opened", why=waiting.why_not())
        time.sleep(clock.pause_s)
    return time.monotonic_ns()


def _healthy(waiting: Waiting, clock: _Clock) -> MaybeInt:
    if waiting.health is None:
        return Absent(absent="no health path is declared for this stack")
    url = api_root(waiting.base_url) + "/" + waiting.health.lstrip("/")
    while True:
        reply = get_text(url, timeout_s=min(10.0, max(1.0, clock.left_s)))
        if isinstance(reply, Answered) and reply.ok:
            return time.monotonic_ns()
        if isinstance(reply, Answered) and reply.status in _NO_SUCH_PATH:
            return Absent(absent=f"{waiting.health} answers {reply.status}")
        waiting.check()
        if clock.left_s <= 0:
            raise _never_ready(waiting, f"{waiting.health} never answered 200", why=f"it last said: {reply}")
        time.sleep(clock.pause_s)


class _Asking:
    """One attempt at a token, in a thread. When the stack ends, its connection breaks and so the thread ends."""

    def __init__(self, waiting: Waiting, timeout_s: float) -> None:
        self.reply: OneToken | Reply | None = None
        self.error: BaseException | None = None
        self.answered_ns = 0
        self._ask = partial(waiting.first_token, waiting.base_url, timeout_s=timeout_s)
        self._thread = threading.Thread(target=self._run, name="first token", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.reply = self._ask()
        except Exception as error:  # noqa: BLE001 - carried to the thread that waits, and raised there
            self.error = error
        self.answered_ns = time.monotonic_ns()

    def finished(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()


def _first_token(waiting: Waiting, clock: _Clock) -> int:
    refused_since: float | None = None
    while True:
        asking = _Asking(waiting, timeout_s=max(1.0, clock.left_s))
        while not asking.finished(clock.pause_s):
            waiting.check()
            if clock.left_s <= 0:
                raise _never_ready(waiting, "a completion of one token was never answered")
        if asking.error is not None:
            raise asking.error
        if isinstance(asking.reply, OneToken):
            return asking.answered_ns
        waiting.check()
        reply = asking.reply
        final = isinstance(reply, Answered) and reply.status in _FINAL
        refused_since = (refused_since if refused_since is not None else clock.waited_s) if final else None
        if refused_since is not None and clock.waited_s - refused_since > waiting.final_after_s:
            raise LaunchFailed(
                f"the stack '{waiting.label}' runs, but refuses a completion of one token",
                why=f"it says: {reply}",
                next_step="compare served_model and workload.api with what the server offers under /v1/models",
                log_tail=log_tail(waiting.log_path),
            )
        if clock.left_s <= 0:
            raise _never_ready(waiting, "no completion of one token came back", why=f"it last said: {reply}")
        time.sleep(max(clock.pause_s, 0.05 if isinstance(reply, NoAnswer) else 0.0))


def _never_ready(waiting: Waiting, what: str, *, why: str = "") -> LaunchFailed:
    return LaunchFailed(
        f"the stack '{waiting.label}' was not ready within {waiting.limit_s:g} s: {what}",
        why=why,
        next_step="see the end of its log; a large model may need a longer ready_timeout_s",
        log_tail=log_tail(waiting.log_path),
    )
