"""Ports on this machine: one that is really free, and who holds one.

A port is chosen below the kernel's range for outgoing connections, so that nobody gets it by chance between the check
and the server's own bind, and is held open until just before the server starts. Refuses to believe that whatever answers
on a port is the stack: `owners` tells whose it is.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from servegate_action.errors import CannotMeasure

LOOPBACK = "127.0.0.1"
_LOWEST = 20_000
_TRIES = 200
_SILENCE_S = 0.05


@dataclass(frozen=True, slots=True)
class Owner:
    """Who listens on a port. `pid` is None when the system does not say (another user's, another container's)."""

    pid: int | None
    name: str
    address: str

    def __str__(self) -> str:
        who = "a process that cannot be seen from here" if self.pid is None else f"process {self.pid} ({self.name})"
        return f"{who}, listening on {self.address}"


def _bound(port: int) -> list[socket.socket] | None:
    """Sockets that hold the port on loopback and on every address, or None when it is taken on either."""
    held: list[socket.socket] = []
    for address in (LOOPBACK, "0.0.0.0"):  # noqa: S104 - a check only; nothing listens
        probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            probe.bind((address, port))
        except OSError:
            probe.close()
            for earlier in held:
                earlier.close()
            return None
        if address == LOOPBACK:
            probe.close()  # both at once would be in each other's way
        else:
            held.append(probe)
    return held


def _range() -> tuple[int, int]:
    """Ports that are neither well known nor given to outgoing connections."""
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    lowest_outgoing, highest_outgoing = map(int, text.split())
    if lowest_outgoing - _LOWEST >= 1000:
        return _LOWEST, lowest_outgoing - 1
    return (highest_outgoing + 1, 65_535) if 65_535 - highest_outgoing >= 1000 else (_LOWEST, 65_535)


@contextmanager
def reserved_port() -> Iterator[int]:
    """A free port, held until the block ends; the server is started right after. Raises CannotMeasure."""
    lowest, highest = _range()
    choose = random.SystemRandom()
    for _ in range(_TRIES):
        port = choose.randint(lowest, highest)
        held = _bound(port)
        if held is not None:
            try:
                yield port
            finally:
                for holder in held:
                    holder.close()
            return
    raise CannotMeasure(
        f"no free port was found between {lowest} and {highest}",
        why="almost every port of this machine is in use, or binding to loopback is forbidden",
        next_step="look at `ss -ltn`",
    )


def is_open(host: str, port: int, *, timeout_s: float = 1.0, proxied: bool = False) -> bool:
    """Whether somebody accepts connections there.

    A port that a container engine publishes is `proxied`: the engine accepts before the server does, and hangs up when
    nobody is behind it. A server says nothing before it is asked, so that silence means that it is there.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            return not proxied or _stays_silent(connection)
    except OSError:
        return False


def _stays_silent(connection: socket.socket) -> bool:
    connection.settimeout(_SILENCE_S)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True


def owners(port: int) -> list[Owner]:
    """Every process that listens on the port, on whatever address."""
    return [
        Owner(pid=pid, name=_name(pid), address=f"{address}:{number}")
        for address, number, pid in _listeners()
        if number == port
    ]


def listening(pids: tuple[int, ...]) -> list[str]:
    """The addresses on which these processes listen, for the message when it is not where they were told to."""
    ours = set(pids)
    return sorted({f"{address}:{port}" for address, port, pid in _listeners() if pid in ours})


def _listeners() -> list[tuple[str, int, int | None]]:
    """Address, port and process of every listening TCP socket."""
    return [
        (connection.laddr.ip, connection.laddr.port, connection.pid)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr
    ]


def _name(pid: int | None) -> str:
    if pid is None:
        return "unknown"
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "ended meanwhile"
