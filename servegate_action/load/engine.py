"""The hot path: sends prepared requests, stamps and stores what comes back, and does nothing else.

One thread, one epoll, no coroutines. Each read costs one `recvmsg` that also brings the kernel's receive stamp, one
addition to a buffer, and one comparison that tells whether the response may be over. Bytes are kept as they came and
are parsed after the round. At low rates every arrival wakes the loop; at high rates it sleeps for a few milliseconds
and then drains all sockets, which halves the CPU and costs no accuracy, since the kernel has stamped already.

It refuses to parse, to retry what a server refused, and to hide lateness. The one thing that is sent twice is a request
that met a connection, kept alive or opened in advance, which the server had just closed, before any byte of an answer (RFC 9110, 9.2.2);
its time keeps counting from the first sending.
"""

from __future__ import annotations

import select
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from servegate_action.load.clock import ANCILLARY_BYTES, OffsetTracker, unpack_timespec
from servegate_action.load.connection import Connection, Lost
from servegate_action.load.exchange import Exchange
from servegate_action.load.framing import LAST_BYTES
from servegate_action.load.job import Entry, Job
from servegate_action.load.pause import pause_s

if TYPE_CHECKING:
    from servegate_action.load.tls import TlsLayer

TICK_NS = 50_000_000
READ_BYTES = 1 << 16
LOOK_EVERY_TICKS = 4
"""How often what the hot path left unjudged is judged: a server that goes on talking after its answer, or breaks HTTP."""
SPARE_CONNECTIONS = 4
MAX_DEPTH_EVENTS = 4096
STALE_WITHIN_NS = 100_000_000
"""A connection that was closed before the request came answers within a round trip. What is closed later was at work on it."""
CLOSES_AT_ONCE_NS = 100_000_000
"""A connection that is found closed this soon after an answer tells that the server closes after every answer, whatever
its headers say (llama.cpp does): from then on each request gets a connection of its own, opened before it is sent."""

monotonic_ns = time.monotonic_ns
EPOLLIN, EPOLLOUT = select.EPOLLIN, select.EPOLLOUT


class Engine:
    """All exchanges of one client process."""

    def __init__(
        self,
        job: Job,
        *,
        wire: memoryview,
        entries: list[Entry],
        take: Callable[[], int | None],
        keep: Callable[[Exchange], None],
    ) -> None:
        self.job = job
        self.clock = OffsetTracker()
        self.reads = 0
        self.active = 0
        self.finished = 0
        self.failed = 0
        self.lags = array("q")
        self.first_sent_ns = 0
        self.orphaned = False
        self._wire = wire
        self.entries = entries
        self._take = take
        self._keep = keep
        self._secure = _securing(job)
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._idle: list[Connection] = []
        self._vacant: deque[tuple[int | None, Exchange | None]] = deque()
        self._coming: deque[int] = deque()
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._into = [self._buffer]
        self._offset_ns = self.clock.offset_ns
        self._pause_s = 0.0
        self._keeps_alive = True
        self._tick_at_ns = 0
        self._reads_at_tick = 0
        self._ticks = 0
        self._flowing = 0
        self._start_ns = 0
        self._watch_fd: int | None = None

    # ------------------------------------------------------------ opening and closing

    def watch(self, fd: int) -> None:
        """Give up as soon as `fd` becomes readable or hangs up: the parent's end of standard input."""
        self._watch_fd = fd
        self._epoll.register(fd, EPOLLIN | select.EPOLLHUP)

    def open(self, count: int) -> None:
        """Open `count` connections before the round; raises Lost when they cannot all be had in time."""
        deadline_ns = monotonic_ns() + self.job.open_timeout_ns
        for number in range(count):
            self._connect(None if self.job.open_loop else self.job.first_slot + number)
        waiting = dict(self._connections)
        while waiting:
            if monotonic_ns() > deadline_ns:
                raise Lost(f"only {count - len(waiting)} of {count} connections opened in time")
            for fd, mask in self._epoll.poll(0.1):
                self._open_step(fd, mask)
            waiting = {fd: connection for fd, connection in waiting.items() if not connection.ready}
        self._idle = list(self._connections.values())

    def _open_step(self, fd: int, mask: int) -> None:
        connection = self._connections[fd]
        if mask & EPOLLOUT:
            self._await_writable(connection, not connection.on_writable())
        if mask & EPOLLIN:
            count = connection.sock.recv_into(self._buffer)
            if count == 0:
                raise Lost("the server closed a connection as soon as it was opened")
            connection.plaintext(self._view[:count])
            self._await_writable(connection, connection.pending is not None)

    def close(self) -> None:
        """Close every socket. The end of every path, also of cancellation."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._epoll.close()

    def _connect(self, slot: int | None) -> Connection:
        connection = Connection(self.job, self._secure, slot)
        self._connections[connection.fd] = connection
        self._epoll.register(connection.fd, EPOLLIN | EPOLLOUT)
        return connection

    def _drop(self, connection: Connection) -> None:
        if self._connections.pop(connection.fd, None) is not None:
            self._epoll.unregister(connection.fd)
        if connection in self._idle:
            self._idle.remove(connection)
        connection.close()

    def _await_writable(self, connection: Connection, wanted: bool) -> None:
        self._epoll.modify(connection.fd, EPOLLIN | EPOLLOUT if wanted else EPOLLIN)

    # ------------------------------------------------------------ the loop

    def run(self, start_ns: int, on_tick: Callable[[int], None]) -> None:
        """Send everything and wait for every answer. Ends early, `orphaned`, when the parent process is gone."""
        self._start_ns = start_ns
        self._tick_at_ns = monotonic_ns() + TICK_NS
        if self.job.open_loop:
            self._coming.extend(self._own_entries())
        else:
            self._idle, idle = [], self._idle
            _sleep_until(start_ns)
            for connection in idle:
                self._next(connection, connection.slot, start_ns)
        while (self.active or self._coming or self._vacant) and not self.orphaned:
            self._poll(self._wait())
            now_ns = monotonic_ns()
            if self._coming:
                self._dispatch_due(now_ns)
            if self._vacant:
                self._fill_vacancies()
            if now_ns >= self._tick_at_ns:
                self._tick(now_ns, on_tick)

    def _own_entries(self) -> list[int]:
        taken: list[int] = []
        while (index := self._take()) is not None:
            taken.append(index)
        return taken

    def _wait(self) -> float:
        """Sleep when sleeping is better than waking; returns how long the poll may still wait, s."""
        now_ns = monotonic_ns()
        until_ns = self._tick_at_ns
        if self._coming:
            until_ns = min(until_ns, self._start_ns + self.entries[self._coming[0]].due_ns)
        left_s = max(0, until_ns - now_ns) / 1e9
        if self._pause_s:
            time.sleep(min(self._pause_s, left_s))
            return 0.0
        if self._vacant:
            return 0.0
        if self._coming and left_s < 0.001:
            select.select([self._epoll.fileno()], [], [], left_s)  # epoll's own timeout counts whole milliseconds
            return 0.0
        return left_s if not self._coming else int(left_s * 1000) / 1000

    def _poll(self, timeout_s: float) -> None:
        """The hot path: one read, one stamp. What is no ordinary read of a plain connection goes to `_on_event`."""
        connections, view, into, offset_ns = self._connections, self._view, self._into, self._offset_ns
        now_ns = reads = 0
        for fd, mask in self._epoll.poll(timeout_s, MAX_DEPTH_EVENTS):
            connection = connections.get(fd)
            exchange = None if connection is None or connection.tls is not None else connection.exchange
            if mask != EPOLLIN or connection is None or exchange is None:
                self._on_event(fd, mask)
                continue
            try:
                count, ancillary, _, _ = connection.receive(into, ANCILLARY_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                self._lose(connection, (error.strerror or str(error)).lower(), may_resend=True)
                continue
            if not count:
                self._on_end_of_file(connection)
                continue
            reads += 1
            stamp_ns = 0
            if ancillary:
                seconds, nanoseconds = unpack_timespec(ancillary[0][2])
                stamp_ns = seconds * 1_000_000_000 + nanoseconds - offset_ns
            if not exchange.last_ns <= stamp_ns <= now_ns:
                now_ns = monotonic_ns()
                if not exchange.last_ns <= stamp_ns <= now_ns:
                    stamp_ns = now_ns
                    exchange.unstamped += 1
            exchange.last_ns = stamp_ns
            buffer = exchange.buffer
            buffer += view[:count]
            exchange.stamps.append(stamp_ns)
            exchange.marks.append(len(buffer))
            framing = exchange.framing
            if (len(buffer) >= framing.wanted or buffer.endswith(LAST_BYTES)) and framing.advance(buffer):
                self._finish(connection, exchange)
        self.reads += reads

    def _on_event(self, fd: int, mask: int) -> None:
        """Anything else that epoll may tell."""
        connection = self._connections.get(fd)
        if connection is None:
            self.orphaned = self.orphaned or fd == self._watch_fd
            return
        if mask & EPOLLOUT:
            self._on_writable(connection)
        if mask & ~EPOLLOUT and connection.fd in self._connections:
            self._on_odd_read(connection)

    def _on_odd_read(self, connection: Connection) -> None:
        """A read that may bring the end of file, bytes that nobody asked for, or TLS."""
        try:
            count, ancillary, _, _ = connection.receive(self._into, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, (error.strerror or str(error)).lower(), may_resend=True)
            return
        if count == 0:
            self._on_end_of_file(connection)
        elif connection.tls is not None:
            self._on_ciphertext(connection, count, ancillary)
        elif connection.exchange is None:
            self._drop(connection)
        else:
            self._take_in(connection, connection.exchange, self._view[:count], ancillary)

    def _on_ciphertext(self, connection: Connection, count: int, ancillary: list[tuple[int, int, bytes]]) -> None:
        try:
            was_ready = connection.ready
            plain = connection.plaintext(self._view[:count])
            self._await_writable(connection, connection.pending is not None)
        except Lost as lost:
            self._lose(connection, str(lost), may_resend=False)
            return
        exchange = connection.exchange
        if connection.ready and not was_ready:
            self._on_ready(connection)
        if not plain:
            return
        if exchange is None or exchange.sent_ns is None:
            self._drop(connection)
            return
        self._take_in(connection, exchange, plain, ancillary)

    def _take_in(
        self,
        connection: Connection,
        exchange: Exchange,
        data: bytes | memoryview,
        ancillary: list[tuple[int, int, bytes]],
    ) -> None:
        """As in the hot path, but judged at once."""
        self.reads += 1
        now_ns, stamp_ns = monotonic_ns(), 0
        if ancillary:
            seconds, nanoseconds = unpack_timespec(ancillary[0][2])
            stamp_ns = seconds * 1_000_000_000 + nanoseconds - self._offset_ns
        if not exchange.last_ns <= stamp_ns <= now_ns:
            stamp_ns = now_ns
            exchange.unstamped += 1
        exchange.last_ns = stamp_ns
        exchange.buffer += data
        exchange.stamps.append(stamp_ns)
        exchange.marks.append(len(exchange.buffer))
        if exchange.framing.advance(exchange.buffer):
            self._finish(connection, exchange)

    def _on_end_of_file(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is not None and exchange.framing.closed(exchange.buffer):
            self._finish(connection, exchange)
        else:
            self._lose(connection, "the server closed the connection before the end of its answer", may_resend=True)

    def _on_writable(self, connection: Connection) -> None:
        try:
            was_ready = connection.ready
            self._await_writable(connection, not connection.on_writable())
        except Lost as lost:
            self._lose(connection, str(lost), may_resend=True)
            return
        if connection.ready and not was_ready:
            self._on_ready(connection)

    def _on_ready(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is not None:
            exchange.due_ns = exchange.due_ns if self.job.open_loop or exchange.resent else monotonic_ns()
            self._send(connection, exchange)
        elif self.job.open_loop:
            self._idle.append(connection)

    # ------------------------------------------------------------ starting and ending exchanges

    def _next(self, connection: Connection | None, slot: int | None, due_ns: int) -> None:
        """Closed loop: hand the slot to the next request of the queue, or let it go when there is none."""
        index = self._take()
        if index is None:
            if connection is not None:
                self._drop(connection)
            return
        exchange = Exchange(index, slot=slot, due_ns=due_ns)
        self.active += 1
        self._carry(connection, exchange)

    def _carry(self, connection: Connection | None, exchange: Exchange) -> None:
        if connection is None:
            try:
                connection = self._connect(exchange.slot)
            except Lost as lost:
                self._fail(exchange, f"cannot connect: {lost}")
                return
        connection.exchange = exchange
        exchange.waited = connection.ready
        if connection.ready:
            self._send(connection, exchange)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        entry = self.entries[exchange.index]
        data = self._wire[entry.offset : entry.offset + entry.length]
        exchange.reused = connection.uses > 0
        connection.uses += 1
        now_ns = monotonic_ns()
        if exchange.sent_ns is None:
            exchange.sent_ns = exchange.last_ns = now_ns
            self.first_sent_ns = self.first_sent_ns or now_ns
        try:
            whole = connection.send(data)
        except Lost as lost:
            self._lose(connection, str(lost), may_resend=True)
            return
        if not exchange.resent and exchange.due_ns != self._start_ns:
            self.lags.append(exchange.sent_ns - exchange.due_ns)
        if not whole:
            self._await_writable(connection, True)

    def _finish(self, connection: Connection, exchange: Exchange) -> None:
        """The answer is complete, or breaks HTTP."""
        framing = exchange.framing
        exchange.error = framing.broken
        connection.exchange = None
        slot = connection.slot
        clean = framing.broken is None and framing.reusable and framing.end == len(exchange.buffer)
        clean = clean and self._keeps_alive and connection.pending is None
        connection.ended_ns = exchange.last_ns
        if not clean:
            self._drop(connection)
        self._store(exchange, exchange.last_ns)
        if self.job.open_loop:
            if clean:
                self._idle.append(connection)
        elif clean:
            self._next(connection, slot, exchange.last_ns)
        else:
            self._vacant.append((slot, None))

    def _lose(self, connection: Connection, how: str, *, may_resend: bool) -> None:
        """The connection is gone, and with it its exchange, unless it was a stale kept-alive connection."""
        exchange = connection.exchange
        self._drop(connection)
        if exchange is None:
            return
        connection.exchange = None
        sent_ns = exchange.sent_ns or 0
        stale = exchange.waited and not exchange.buffer and monotonic_ns() - sent_ns < STALE_WITHIN_NS
        if may_resend and stale and not exchange.resent:
            exchange.resent = True
            if sent_ns - connection.ended_ns < CLOSES_AT_ONCE_NS:
                self._keeps_alive = False
            self._vacant.append((exchange.slot, exchange))
        else:
            self._fail(exchange, how if exchange.sent_ns is not None else f"cannot connect: {how}")

    def _fail(self, exchange: Exchange, error: str) -> None:
        exchange.error = error
        self._store(exchange, monotonic_ns())
        if not self.job.open_loop:
            self._vacant.append((exchange.slot, None))

    def _store(self, exchange: Exchange, end_ns: int) -> None:
        if exchange.buffer and not exchange.framing.complete:
            exchange.framing.advance(exchange.buffer)
        exchange.end_ns = end_ns
        self.active -= 1
        self.finished += 1
        self.failed += exchange.error is not None or exchange.framing.status != 200
        self._keep(exchange)

    def _fill_vacancies(self) -> None:
        for _ in range(len(self._vacant)):
            slot, exchange = self._vacant.popleft()
            if exchange is not None:
                self._carry(None, exchange)
            else:
                self._next(None, slot, monotonic_ns())

    def _dispatch_due(self, now_ns: int) -> None:
        """Open loop: send what is due, whether or not earlier answers have come."""
        coming = self._coming
        while coming and self._start_ns + self.entries[coming[0]].due_ns <= now_ns:
            index = coming.popleft()
            exchange = Exchange(index, slot=None, due_ns=self._start_ns + self.entries[index].due_ns)
            self.active += 1
            self._carry(self._idle.pop() if self._idle else None, exchange)

    # ------------------------------------------------------------ now and then

    def _tick(self, now_ns: int, on_tick: Callable[[int], None]) -> None:
        elapsed_s = (now_ns - self._tick_at_ns + TICK_NS) / 1e9
        self._tick_at_ns = now_ns + TICK_NS
        self._offset_ns = self.clock.resample()
        rate = (self.reads - self._reads_at_tick) / elapsed_s
        self._reads_at_tick = self.reads
        self._expire(now_ns)
        self._pause_s = pause_s(rate, flowing=self._flowing) if self.job.kernel_stamps else 0.0
        if self.job.open_loop and self._coming and len(self._idle) < SPARE_CONNECTIONS:
            self._open_spare()
        on_tick(now_ns)

    def _open_spare(self) -> None:
        try:
            self._connect(None)
        except Lost:
            return  # nothing is due on it; the request that needs a connection will say what is wrong

    def _expire(self, now_ns: int) -> None:
        """Judge what the hot path left unjudged, and give up what took too long."""
        request_ns, stall_ns = self.job.request_timeout_ns, self.job.stall_timeout_ns
        self._ticks += 1
        self._flowing = 0
        for connection in list(self._connections.values()):
            exchange = connection.exchange
            if exchange is None:
                continue
            self._flowing += len(exchange.stamps) > 1 and now_ns - exchange.last_ns < TICK_NS
            turn = (self._ticks + connection.fd) % LOOK_EVERY_TICKS == 0
            if (
                (turn or now_ns - exchange.last_ns > TICK_NS)
                and exchange.buffer
                and exchange.framing.advance(exchange.buffer)
            ):
                self._finish(connection, exchange)
                continue
            since_ns = exchange.sent_ns if exchange.sent_ns is not None else exchange.due_ns
            if now_ns - since_ns > request_ns:
                self._lose(connection, f"timeout: not finished {request_ns / 1e9:g} s after sending", may_resend=False)
            elif now_ns - exchange.last_ns > stall_ns:
                self._lose(connection, f"stalled: nothing arrived for {stall_ns / 1e9:g} s", may_resend=False)


def _securing(job: Job) -> Callable[[], TlsLayer] | None:
    if not job.tls:
        return None
    from servegate_action.load.tls import securing

    return securing(job)


def _sleep_until(moment_ns: int) -> None:
    left_ns = moment_ns - monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)
