"""One non-blocking connection to a stack, plain or TLS, with the kernel's receive stamps switched on.

It refuses to know what HTTP is, and to keep time (`engine` does).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from servegate_action.load.clock import RX_SOFTWARE_AND_REPORT, SO_TIMESTAMPING

if TYPE_CHECKING:
    from servegate_action.load.exchange import Exchange
    from servegate_action.load.job import Job
    from servegate_action.load.tls import TlsLayer


class Lost(Exception):
    """The connection is gone; the text says how."""


class Connection:
    """A socket on its way, idle, or carrying one exchange."""

    __slots__ = (
        "connected",
        "ended_ns",
        "exchange",
        "fd",
        "pending",
        "ready",
        "receive",
        "slot",
        "sock",
        "tls",
        "uses",
    )

    def __init__(self, job: Job, secure: Callable[[], TlsLayer] | None, slot: int | None) -> None:
        self.sock = socket.socket(job.family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if job.kernel_stamps:
            self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE_AND_REPORT)
        self.fd = self.sock.fileno()
        self.receive = self.sock.recvmsg_into
        self.slot = slot
        self.tls = secure() if secure is not None else None
        self.connected = False
        self.ready = False
        self.exchange: Exchange | None = None
        self.pending: memoryview | None = None
        self.uses = 0
        self.ended_ns = 0
        code = self.sock.connect_ex(job.address)
        if code not in {0, errno.EINPROGRESS}:
            self.close()
            raise Lost(os.strerror(code))

    def on_writable(self) -> bool:
        """Finish connecting, or send what is left. True when there is nothing left to wait for on the way out."""
        if not self.connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise Lost(os.strerror(code).lower())
            self.connected = True
            if self.tls is not None:
                self.tls.handshake()
                self.pending = memoryview(self.tls.outgoing())
            else:
                self.ready = True
        return self.flush()

    def send(self, data: memoryview) -> bool:
        """Send at once what the socket takes. True when all of it went."""
        if self.tls is not None:
            self.tls.encrypt(data)
            data = memoryview(self.tls.outgoing())
        self.pending = data
        return self.flush()

    def flush(self) -> bool:
        """Send what is pending. True when nothing is left."""
        pending = self.pending
        if pending is None:
            return True
        try:
            while pending:
                pending = pending[self.sock.send(pending) :]
        except BlockingIOError:
            self.pending = pending
            return False
        except OSError as error:
            raise Lost((error.strerror or str(error)).lower()) from error
        self.pending = None
        return True

    def plaintext(self, data: memoryview) -> bytes:
        """TLS only: the plaintext of received bytes; goes on with the handshake and its answers."""
        if self.tls is None:
            return bytes(data)
        plain = self.tls.decrypt(data)
        self.ready = self.tls.ready
        answer = self.tls.outgoing()
        if answer:
            self.pending = memoryview(bytes(self.pending or b"") + answer)
            self.flush()
        return plain

    def close(self) -> None:
        """Give the socket back."""
        self.sock.close()
