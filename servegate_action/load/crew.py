"""The client processes of one cell: started together, let go at one moment, gathered, and always ended.

A context manager: however its block is left, the processes are killed and waited for, which closes their sockets. The
processes run outside the terminal's process group, so that Ctrl-C reaches only the parent, which then decides. It
refuses to interpret what they bring.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeAlias

import httpx

from servegate_action.errors import CannotMeasure
from servegate_action.load.job import DONE, PROGRESS, READY, REQUEST, FrameReader, Job

_ROOT = str(Path(__file__).resolve().parents[2])
_MAIN = "import sys; sys.path.insert(0, sys.argv[1]); from servegate_action.load.worker import main; sys.exit(main())"
_PIPE_BYTES = 1 << 20
_STDERR_TAIL = 2000
Row: TypeAlias = "tuple[dict[str, Any], array[int]]"


@dataclass(frozen=True, slots=True)
class Origin:
    """A URL's server, as an address that answers."""

    family: int
    address: tuple[object, ...]
    server_name: str
    tls: bool

    @staticmethod
    def of(base_url: str) -> Origin:
        """Resolve once, before the round; of several addresses the first that accepts a connection."""
        url = httpx.URL(base_url)
        if url.scheme not in {"http", "https"} or not url.host:
            raise CannotMeasure(f"{base_url!r} is not an http or https URL")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = socket.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise CannotMeasure(f"the host name {url.host!r} cannot be resolved", why=str(error)) from error
        for family, _, _, _, address in found:
            if len(found) == 1 or _accepts(family, address):
                return Origin(family, address, url.host, url.scheme == "https")
        raise CannotMeasure(f"nothing accepts connections at {base_url}", next_step="is the server up, on this port?")


def _accepts(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(5.0)
        return probe.connect_ex(address) == 0


@dataclass(slots=True)
class Finished:
    """What all client processes brought."""

    rows: dict[int, Row] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    lags: array[int] = field(default_factory=lambda: array("q"))
    processes: int = 0
    reads: int = 0
    unstamped: int = 0
    coalesced: int = 0
    kernel_stamps: bool = True
    cpu_ns: int = 0
    parse_cpu_ns: int = 0
    drift_ns: int = 0
    peak_rss_bytes: int = 0

    def add(self, told: Mapping[str, int], lags: array[int]) -> None:
        """The last word of one process."""
        self.processes += 1
        self.lags += lags
        self.kernel_stamps = self.kernel_stamps and bool(told["kernel_stamps"])
        for name in ("reads", "unstamped", "coalesced", "cpu_ns", "parse_cpu_ns", "peak_rss_bytes"):
            setattr(self, name, getattr(self, name) + told[name])
        self.drift_ns = max(self.drift_ns, told["drift_ns"])


class Crew:
    """Client processes, one per job."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = list(jobs)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: dict[int, FrameReader] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        try:
            for job in self._jobs:
                self._spawn(job)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _spawn(self, job: Job) -> None:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _MAIN, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(job.wire_fd, job.index_fd, job.queue_fd),
            process_group=0,
        )
        self._processes.append(process)
        for stream in (process.stdout, process.stderr):
            os.set_blocking(_opened(stream).fileno(), False)
        self._selector.register(_opened(process.stdout), selectors.EVENT_READ, process)
        self._readers[process.pid] = FrameReader()
        _tell(process, job.to_line())

    def _end(self) -> None:
        self._selector.close()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                _close_quietly(_opened(stream))

    def start(self, delay_ns: int) -> int:
        """Wait until every connection of every process is open, then let all go at one moment (monotonic ns)."""
        for _, kind, told, _ in self._frames(len(self._processes)):
            if kind == READY and told["error"] is not None:
                raise CannotMeasure(
                    f"cannot open the connections to the server: {told['error']}",
                    why="the server is not up, or does not take that many connections at once",
                    next_step="read the server's log; is its limit of connections below the concurrency?",
                )
        start_ns = time.monotonic_ns() + delay_ns
        for process in self._processes:
            self._selector.register(_opened(process.stdout), selectors.EVENT_READ, process)
            _tell(process, f"{start_ns}\n".encode())
        return start_ns

    def gather(self, report: Callable[[Mapping[str, int]], None]) -> Finished:
        """Everything that the processes bring, until each has had its last word."""
        finished = Finished()
        latest: dict[int, Mapping[str, int]] = {}
        for process, kind, told, stamps in self._frames(len(self._processes)):
            if kind == PROGRESS:
                latest[process.pid] = told
                report({name: sum(one[name] for one in latest.values()) for name in told})
            elif kind == REQUEST:
                index = told["index"]
                finished.rows[index] = (told, stamps)
                if "text" in told:
                    finished.texts[index] = told["text"]
            elif kind == DONE:
                finished.add(told, stamps)
        return finished

    def _frames(self, awaited: int) -> Iterator[tuple[subprocess.Popen[bytes], bytes, dict[str, Any], array[int]]]:
        """Frames of all processes as they come, until `awaited` frames of the kind READY or DONE have passed."""
        while awaited:
            for key, _ in self._selector.select():
                process: subprocess.Popen[bytes] = key.data
                data = os.read(key.fd, _PIPE_BYTES)
                if not data:
                    raise _died(process)
                for kind, told, stamps in self._readers[process.pid].feed(data):
                    if kind in {READY, DONE}:
                        awaited -= 1
                        self._selector.unregister(_opened(process.stdout))
                    yield process, kind, told, stamps


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("not a pipe")
    return stream


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    stream = _opened(process.stdin)
    try:
        stream.write(line)
        stream.flush()
    except BrokenPipeError as error:
        raise _died(process) from error


def _died(process: subprocess.Popen[bytes]) -> CannotMeasure:
    code = process.wait()
    said = (_opened(process.stderr).read() or b"").decode("utf-8", "replace")[-_STDERR_TAIL:]
    return CannotMeasure(
        f"a client process of the load generator ended with exit code {code}",
        why=said.strip() or "it said nothing; out of memory, or killed",
        next_step="report this as a defect of servegate, with the lines above",
    )


def _close_quietly(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        return  # the process is gone, and what was not yet written to it with it
