"""A stack that already runs somewhere and is not launched by servegate: only asked for a token, never stopped.

Refuses to pretend anything about its start: every phase is absent, with the reason.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from servegate_action.client import api_root
from servegate_action.config.stacks import EndpointStack
from servegate_action.errors import LaunchFailed, StackDied
from servegate_action.launch.ports import is_open
from servegate_action.launch.readiness import Waiting, wait_until_ready
from servegate_action.launch.stack import Launch, Ready, health_path, nothing_launched
from servegate_action.records import Absent

_UNREACHABLE_AFTER_S = 20.0


@contextmanager
def launch_endpoint(launch: Launch, endpoint: EndpointStack, *, inside_container: bool) -> Iterator[RunningEndpoint]:
    """Wait until the endpoint answers one token. Nothing is started, and nothing is stopped."""
    requested_ns = time.monotonic_ns()
    running = RunningEndpoint(launch, endpoint, inside_container=inside_container)
    wait_until_ready(running.waiting())
    running.became_ready(requested_ns)
    launch.progress(f"{launch.stack.label}: answers at {endpoint.url}")
    yield running


class RunningEndpoint:
    """An endpoint that answers. `Running` to everybody else."""

    def __init__(self, launch: Launch, endpoint: EndpointStack, *, inside_container: bool) -> None:
        self._launch = launch
        self._base_url = api_root(endpoint.url)
        parts = urlsplit(self._base_url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._inside_container = inside_container
        self._asked_at = time.monotonic()
        self._ready: Ready | None = None

    @property
    def ready(self) -> Ready:
        """How it became ready."""
        if self._ready is None:
            raise LaunchFailed(f"the endpoint {self._base_url} is not ready")
        return self._ready

    @property
    def log_path(self) -> Path:
        """Where a log would be; an endpoint's log is not servegate's to read."""
        return self._launch.log_path

    @property
    def volume(self) -> None:
        """None: its files are this machine's."""
        return None

    def waiting(self) -> Waiting:
        """What to wait for."""
        return Waiting(
            label=self._launch.stack.label,
            base_url=self._base_url,
            health=health_path(self._launch.stack),
            limit_s=self._launch.stack.ready_timeout_s,
            first_token=self._launch.first_token,
            log_path=self.log_path,
            check=self._check_reachable,
            port_opened=lambda: None,
            why_not=lambda: "",
        )

    def became_ready(self, requested_ns: int) -> None:
        """Keep what is known, which is little."""
        self._ready = Ready(
            base_url=self._base_url,
            pid=None,
            container_id=None,
            container_digest=Absent(absent="an endpoint: what runs behind it cannot be seen from here"),
            cold_start=nothing_launched("already running; not launched by servegate", requested_ns),
            command=(),
        )

    def _check_reachable(self) -> None:
        if self._reachable() or time.monotonic() - self._asked_at < self._patience_s:
            return
        raise LaunchFailed(
            f"nothing accepts connections at {self._host}:{self._port}, the endpoint of '{self._launch.stack.label}'",
            why=self._why_unreachable(),
            next_step=self._next_step(),
        )

    @property
    def _hopeless(self) -> bool:
        return self._inside_container and _is_loopback(self._host)

    @property
    def _patience_s(self) -> float:
        return 0.0 if self._hopeless else min(_UNREACHABLE_AFTER_S, self._launch.stack.ready_timeout_s)

    def _why_unreachable(self) -> str:
        if self._hopeless:
            return f"servegate runs in a container, where {self._host} is the container itself and not the runner's machine"
        return "the server is not running, the address is wrong, or a firewall is in between (no proxy is used)"

    def _next_step(self) -> str:
        if self._hopeless:
            return "let the server listen on the machine's own address and give that, for instance http://10.0.0.7:8000"
        return f"try: curl http://{self._host}:{self._port}/v1/models"

    def _reachable(self) -> bool:
        return is_open(self._host, self._port, timeout_s=5.0)

    def alive(self) -> None:
        """Return when something still accepts connections there, else raise StackDied."""
        if not self._reachable():
            raise StackDied(
                f"the endpoint of '{self._launch.stack.label}' no longer accepts connections at {self._host}:{self._port}",
                why="its server ended, or the network between did",
                next_step="look at the server's own log",
            )

    def pids(self) -> tuple[int, ...]:
        """None that could be seen from here."""
        return ()

    def stop(self) -> None:
        """Nothing: what servegate did not start it does not stop."""

    def gone(self) -> bool:
        """Never: it goes on running."""
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
