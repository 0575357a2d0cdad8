"""The scripted server's process: sends every step at its time and remembers when it really did.

    python -m tests.support.scripted_server.server < job.json

One thread, one epoll, one heap of what is due. A request names its script with `script=NAME` anywhere in its body;
others get `default`. Arrival is the kernel's stamp of the request's first bytes, and just before each step is sent the
monotonic clock is read: these are the truth. It is a server for tests and benchmarks on loopback and checks nothing.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import json
import os
import re
import select
import socket
import ssl
import struct
import sys
import time
from typing import Any

from tests.support.scripted_server.script import WORDS as PLACEHOLDER
from tests.support.scripted_server.script import Script

TICK_S = 0.0004
SO_TIMESTAMPING = 37
_NAME = re.compile(rb"script=([A-Za-z0-9_.-]+)")
_LABEL = re.compile(rb"#([0-9]+)#")
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
monotonic_ns = time.monotonic_ns
WORDS = f'"{PLACEHOLDER}"'.encode()


class Stream:
    """One connection."""

    __slots__ = (
        "arrived_ns",
        "at",
        "handshaken",
        "inbox",
        "label",
        "name",
        "offset_ns",
        "sent",
        "sock",
        "steps",
        "unsent",
    )

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = bytearray()
        self.steps: list[tuple[int, bytes, int]] = []
        self.at = 0
        self.arrived_ns = 0
        self.offset_ns = 0
        self.sent: list[int] = []
        self.name = ""
        self.label = ""
        self.unsent = b""
        self.handshaken = not isinstance(sock, ssl.SSLSocket)


class Server:
    """Reads requests, sends steps."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.scripts = {name: Script.from_json(told) for name, told in job["scripts"].items()}
        self.pages = {path: base64_free(told) for path, told in job["pages"].items()}
        self.refuses: list[str] = job["refuses"]
        self.phases: int = job["phases"]
        self.phase_ns: int = job["phase_ns"]
        self.tls = server_context(job["tls"]) if job["tls"] else None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.truth: list[dict[str, Any]] = []
        self.bodies: list[str] = []
        self.keep_bodies: bool = job["keep_bodies"]
        self.keep_truth: bool = job["keep_truth"]
        self.connections = 0
        self.open = 0
        self._started = 0
        self._counting = {n for n, s in self.scripts.items() if any(WORDS in step.data for step in s.steps)}
        self._epoll = select.epoll()
        self._epoll.register(self.listener, select.EPOLLIN)
        self._streams: dict[int, Stream] = {}
        self._due: list[tuple[int, int, int]] = []
        self._sequence = 0
        self._offset_ns = time.time_ns() - monotonic_ns()

    def run(self, stop_fd: int) -> None:
        """Serve until `stop_fd` is readable."""
        self._epoll.register(stop_fd, select.EPOLLIN | select.EPOLLHUP)
        while True:
            wait_s = 0.1
            if self._due:
                left_s = (self._due[0][0] - monotonic_ns()) / 1e9
                time.sleep(min(TICK_S, max(0.0, left_s)))
                wait_s = 0.0
            for fd, mask in self._epoll.poll(wait_s, 4096):
                if fd == stop_fd:
                    return
                if fd == self.listener.fileno():
                    self.accept()
                elif fd in self._streams:
                    self.serve(self._streams[fd], mask)
            self.send_due()

    def accept(self) -> None:
        """Take every waiting connection."""
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 0x18)
            sock.setblocking(False)
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            self._streams[sock.fileno()] = Stream(sock)
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            self.connections += 1
            self.open += 1

    def serve(self, stream: Stream, mask: int) -> None:
        """Something happened on a connection."""
        try:
            if not stream.handshaken:
                assert isinstance(stream.sock, ssl.SSLSocket)
                stream.sock.do_handshake()
                stream.handshaken = True
            if mask & select.EPOLLOUT and stream.unsent:
                self.send(stream, b"")
            data = self.receive(stream)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            data = b""
        if not data:
            self.drop(stream)
            return
        stream.inbox += data
        request = whole_request(stream.inbox)
        if request is not None:
            stream.inbox.clear()
            self.answer(stream, request)

    def receive(self, stream: Stream) -> bytes:
        """Bytes, and the moment when the kernel had the first of them."""
        if isinstance(stream.sock, ssl.SSLSocket):
            data = stream.sock.recv(1 << 18)
            while stream.sock.pending():
                data += stream.sock.recv(1 << 18)
            now_ns = stamp_ns = monotonic_ns()
        else:
            data, ancillary, _, _ = stream.sock.recvmsg(1 << 20, 128)
            now_ns = stamp_ns = monotonic_ns()
            if ancillary:
                seconds, nanoseconds = struct.unpack_from("@qq", ancillary[0][2])
                stamp_ns = seconds * 10**9 + nanoseconds - self._offset_ns
        if not stream.inbox:
            stream.arrived_ns = stamp_ns if now_ns - 10**9 < stamp_ns <= now_ns else now_ns
        return data

    def answer(self, stream: Stream, request: bytes) -> None:
        """Choose what to say."""
        method, path, _ = request.split(b" ", 2)
        if method == b"GET" or path.decode() in self.pages:
            status, kind, shown = self.pages.get(path.decode(), (404, "text/plain", "no such page"))
            self.send(stream, page(status, kind, shown.encode()))
            return
        body = request.partition(b"\r\n\r\n")[2]
        if self.keep_bodies:
            self.bodies.append(body.decode("utf-8", "replace"))
        refused = [key for key in self.refuses if f'"{key}"'.encode() in body]
        if refused:
            told = json.dumps({"error": {"message": f"unknown field {refused[0]}", "code": 400}})
            self.send(stream, page(400, "application/json", told.encode()))
            return
        found = _NAME.search(body)
        stream.name = found[1].decode() if found else "default"
        script = self.scripts.get(stream.name, self.scripts["default"])
        stream.steps = [(step.after_ns, step.data, step.tokens) for step in script.steps]
        if stream.name in self._counting:
            stream.steps = with_words(stream.steps, body)
        label = _LABEL.search(body)
        stream.label = label[1].decode() if label else str(self._started)
        stream.at, stream.sent = 0, []
        stream.offset_ns = stream.arrived_ns + (self._started % self.phases) * self.phase_ns // self.phases
        self._started += 1
        self.schedule(stream)

    def schedule(self, stream: Stream) -> None:
        """Put the next step on the heap. A step at time 0 is not delayed by the request's phase."""
        after_ns = stream.steps[stream.at][0]
        when_ns = stream.offset_ns + after_ns if after_ns else stream.arrived_ns
        self._sequence += 1
        heapq.heappush(self._due, (when_ns, self._sequence, stream.sock.fileno()))

    def send_due(self) -> None:
        """Send every step whose time has come."""
        due = self._due
        now_ns = monotonic_ns()
        while due and due[0][0] <= now_ns:
            _, _, fd = heapq.heappop(due)
            stream = self._streams.get(fd)
            if stream is None or stream.at >= len(stream.steps):
                continue
            _, data, tokens = stream.steps[stream.at]
            if tokens:
                stream.sent += [monotonic_ns()] * tokens
            stream.at += 1
            self.send(stream, data)
            if stream.at < len(stream.steps):
                if fd in self._streams:
                    self.schedule(stream)
            else:
                self.finish(stream)

    def finish(self, stream: Stream) -> None:
        """The last step is out: remember the truth, end as the script says."""
        truth = {"name": stream.name, "label": stream.label, "arrived_ns": stream.arrived_ns, "sent_ns": stream.sent}
        if self.keep_truth:
            self.truth.append(truth)
        end = self.scripts.get(stream.name, self.scripts["default"]).end
        if end == "close":
            self.drop(stream)
        elif end == "reset":
            stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.drop(stream)

    def send(self, stream: Stream, data: bytes) -> None:
        """Send now, or as soon as the socket takes it."""
        data = stream.unsent + data
        stream.unsent = b""
        try:
            while data:
                data = data[stream.sock.send(data) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            stream.unsent = data
        except OSError:
            self.drop(stream)
            return
        with contextlib.suppress(OSError):
            self._epoll.modify(stream.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if stream.unsent else 0))

    def drop(self, stream: Stream) -> None:
        """Close a connection."""
        fd = stream.sock.fileno()
        if self._streams.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            self.open -= 1
            stream.sock.close()


def with_words(steps: list[tuple[int, bytes, int]], body: bytes) -> list[tuple[int, bytes, int]]:
    """The steps with the number of the prompt's words in place of the placeholder, in the same width."""
    told = json.loads(body)
    prompt = told["prompt"] if "prompt" in told else " ".join(message["content"] for message in told["messages"])
    shown = str(len(prompt.split())).rjust(len(WORDS)).encode()
    return [(after, data.replace(WORDS, shown), tokens) for after, data, tokens in steps]


def base64_free(told: list[Any]) -> tuple[int, str, str]:
    """A page: status, content type, body."""
    return told[0], told[1], told[2]


def page(status: int, kind: str, body: bytes) -> bytes:
    """A whole response with a length."""
    return b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        kind.encode(),
        len(body),
        body,
    )


def whole_request(inbox: bytearray) -> bytes | None:
    """The request once its body is complete."""
    end = inbox.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = _LENGTH.search(inbox, 0, end)
    size = end + 4 + (int(length[1]) if length else 0)
    return bytes(inbox[:size]) if len(inbox) >= size else None


def server_context(files: list[str]) -> ssl.SSLContext:
    """TLS with a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


def main() -> int:
    """Read the job, say the port, serve, say the truth."""
    server = Server(json.loads(sys.stdin.readline()))
    print(json.dumps({"port": server.listener.getsockname()[1]}), flush=True)
    gc.collect()
    gc.freeze()
    gc.disable()
    before = os.times()
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, min(-10, os.getpriority(os.PRIO_PROCESS, 0)))
    server.run(sys.stdin.fileno())
    after = os.times()
    told = {
        "truth": server.truth,
        "bodies": server.bodies,
        "connections": server.connections,
        "open": server.open,
        "cpu_s": after.user + after.system - before.user - before.system,
    }
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
