"""A server that sends tokens on an exact schedule and remembers when: what the client certifies itself against.

Runs as a process of its own with nothing but the standard library. It answers every POST with a completion stream,
named by its prompt: first token after a fixed delay from the moment the *kernel* received the request, then one event per gap. The
moment just before each send is kept; these stamps are the truth. It is late now and then, like any process; that
changes when a token is sent, never what its stamp says. It refuses to be a general server: no errors, no options.
"""

from __future__ import annotations

import gc
import heapq
import json
import select
import signal
import socket
import sys
import time
from array import array
from dataclasses import asdict, dataclass

from servegate_action.load.clock import (
    ANCILLARY_BYTES,
    RX_SOFTWARE_AND_REPORT,
    SO_TIMESTAMPING,
    OffsetTracker,
    unpack_timespec,
)
from servegate_action.load.job import DONE, READY, REQUEST, write_frame
from servegate_action.load.process import ask_for_precedence

_TICK_S = 0.0005
_ID_FIELD = b'"prompt":"'
monotonic_ns = time.monotonic_ns


@dataclass(frozen=True, slots=True)
class Pace:
    """The schedule. Request k starts `k mod phases` phases of `gap_ns / phases` later than the delay says."""

    first_ns: int
    gap_ns: int
    tokens: int
    phases: int = 64

    def to_line(self) -> bytes:
        """As one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


class _Stream:
    __slots__ = ("arrived_ns", "inbox", "left", "sent", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = bytearray()
        self.left = 0
        self.arrived_ns = 0
        self.sent = array("q")


class Pacer:
    """One listening socket, many streams, one heap of what is due."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.truth: list[tuple[str, int, array[int]]] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self._clock = OffsetTracker()
        self._epoll = select.epoll()
        self._epoll.register(self.listener, select.EPOLLIN)
        self._streams: dict[int, _Stream] = {}
        self._due: list[tuple[int, int]] = []
        self._ids: dict[int, str] = {}
        self._started = 0
        self._event = _chunk(_token_event())
        self._last = _chunk(_finish_event(pace.tokens)) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        self._head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    def run(self, stop_fd: int) -> None:
        """Serve until `stop_fd` becomes readable."""
        self._epoll.register(stop_fd, select.EPOLLIN | select.EPOLLHUP)
        while True:
            wait_s = _TICK_S if self._due else 0.05
            if self._due:
                time.sleep(min(_TICK_S, max(0.0, (self._due[0][0] - monotonic_ns()) / 1e9)))
                wait_s = 0.0
            for fd, _ in self._epoll.poll(wait_s, 4096):
                if fd == stop_fd:
                    return
                if fd == self.listener.fileno():
                    self._accept()
                else:
                    self._receive(fd)
            self._send_due()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE_AND_REPORT)
            self._streams[sock.fileno()] = _Stream(sock)
            self._epoll.register(sock, select.EPOLLIN)

    def _receive(self, fd: int) -> None:
        stream = self._streams[fd]
        try:
            data, ancillary, _, _ = stream.sock.recvmsg(1 << 18, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data, ancillary = b"", []
        if not data:
            self._epoll.unregister(fd)
            stream.sock.close()
            del self._streams[fd]
            return
        now_ns = monotonic_ns()
        stamp_ns = 0
        if ancillary:
            seconds, nanoseconds = unpack_timespec(ancillary[0][2])
            stamp_ns = seconds * 1_000_000_000 + nanoseconds - self._clock.offset_ns
        if not stream.inbox:
            stream.arrived_ns = stamp_ns if now_ns - 10**9 < stamp_ns <= now_ns else now_ns
        stream.inbox += data
        if stream.inbox.startswith(b"GET "):
            stream.inbox.clear()
            self._send(stream, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        elif _is_whole(stream.inbox):
            self._begin(fd, stream)

    def _begin(self, fd: int, stream: _Stream) -> None:
        at = stream.inbox.find(_ID_FIELD)
        end = stream.inbox.find(b'"', at + len(_ID_FIELD))
        self._ids[fd] = bytes(stream.inbox[at + len(_ID_FIELD) : end]).decode() if at >= 0 else str(self._started)
        stream.inbox.clear()
        stream.left, stream.sent = self.pace.tokens, array("q")
        phase_ns = (self._started % self.pace.phases) * self.pace.gap_ns // self.pace.phases
        self._started += 1
        stream.sock.send(self._head)
        heapq.heappush(self._due, (stream.arrived_ns + self.pace.first_ns + phase_ns, fd))

    def _send_due(self) -> None:
        due, gap_ns = self._due, self.pace.gap_ns
        now_ns = monotonic_ns()
        while due and due[0][0] <= now_ns:
            when_ns, fd = due[0]
            stream = self._streams.get(fd)
            if stream is None:
                heapq.heappop(due)
                continue
            stream.sent.append(monotonic_ns())
            stream.left -= 1
            alive = self._send(stream, self._event)
            if stream.left and alive:
                heapq.heapreplace(due, (when_ns + gap_ns, fd))
            else:
                heapq.heappop(due)
                self.truth.append((self._ids[fd], stream.arrived_ns, stream.sent))
                self._send(stream, self._last)

    def _send(self, stream: _Stream, data: bytes) -> bool:
        try:
            stream.sock.send(data)
        except (BlockingIOError, ConnectionError):
            return False
        return True


def _is_whole(inbox: bytearray) -> bool:
    end = inbox.find(b"\r\n\r\n")
    if end < 0:
        return False
    at = inbox.find(b"content-length: ", 0, end)
    return at >= 0 and len(inbox) >= end + 4 + int(inbox[at + 16 : inbox.find(b"\r\n", at)])


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _token_event() -> bytes:
    told = {"id": "cmpl-" + "0" * 24, "object": "text_completion", "created": 1_700_000_000, "model": "pace"}
    told |= {"choices": [{"index": 0, "text": " pace", "logprobs": None, "finish_reason": None, "stop_reason": None}]}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def _finish_event(tokens: int) -> bytes:
    told = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
    return b"data: " + json.dumps(told | {"usage": usage}).encode() + b"\n\n"


def main() -> int:
    """The process: a schedule on standard input, the port as a frame, the truth as frames once told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ask_for_precedence()
    pacer = Pacer(Pace(**json.loads(sys.stdin.buffer.readline())))
    pipe = sys.stdout.buffer
    write_frame(pipe, READY, {"port": pacer.listener.getsockname()[1]})
    pipe.flush()
    gc.collect()
    gc.freeze()
    gc.disable()
    before_ns = time.process_time_ns()
    pacer.run(sys.stdin.fileno())
    for identifier, arrived_ns, sent in pacer.truth:
        write_frame(pipe, REQUEST, {"id": identifier, "arrived_ns": arrived_ns}, sent)
    write_frame(pipe, DONE, {"cpu_ns": time.process_time_ns() - before_ns})
    pipe.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
