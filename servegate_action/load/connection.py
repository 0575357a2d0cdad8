"""One non-blocking connection to a stack, plain or TLS, with the kernel's receive stamps switched on.

TLS runs through the ssl module's memory buffers above the same reads, so that an encrypted stream keeps the kernel's
stamps: that of the last segment of each read. It refuses to know what HTTP is, and to keep time (`engine` does).
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING

from servegate_action.load.clock import RX_SOFTWARE_AND_REPORT, SO_TIMESTAMPING

if TYPE_CHECKING:
    from servegate_action.load.engine import Exchange
    from servegate_action.load.job import Job


class Lost(Exception):
    """The connection is gone; the text says how."""


class TlsLayer:
    """TLS in memory: ciphertext in, plaintext out, and the other way round."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ready")

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self.ready = False

    def handshake(self) -> None:
        """Go on with the handshake as far as the bytes allow."""
        try:
            self._object.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise Lost(f"TLS: {error.reason or error}") from error

    def decrypt(self, ciphertext: memoryview) -> bytes:
        """Plaintext of what has arrived; empty when no whole record has."""
        self._incoming.write(ciphertext)
        plain = bytearray()
        try:
            if not self.ready:
                self.handshake()
            while self.ready:
                piece = self._object.read(65536)
                if not piece:
                    break
                plain += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # the end of what is there, or of the stream: the socket's own end of file tells which
        except ssl.SSLError as error:
            raise Lost(f"TLS: {error.reason or error}") from error
        return bytes(plain)

    def encrypt(self, plaintext: memoryview) -> None:
        """Queue plaintext as ciphertext."""
        self._object.write(plaintext)

    def outgoing(self) -> bytes:
        """Ciphertext to be sent."""
        return self._outgoing.read()


def tls_context(job: Job) -> ssl.SSLContext | None:
    """The TLS settings of a job. Certificates are always verified."""
    if not job.tls:
        return None
    context = ssl.create_default_context(cafile=job.cafile)
    context.set_alpn_protocols(["http/1.1"])
    return context


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

    def __init__(self, job: Job, context: ssl.SSLContext | None, slot: int | None) -> None:
        self.sock = socket.socket(job.family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if job.kernel_stamps:
            self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE_AND_REPORT)
        self.fd = self.sock.fileno()
        self.receive = self.sock.recvmsg_into
        self.slot = slot
        self.tls = TlsLayer(context, job.server_name) if context is not None else None
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
