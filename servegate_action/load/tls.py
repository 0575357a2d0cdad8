"""TLS in memory, above the same reads as plain connections: an encrypted stream keeps the kernel's stamps.

The stamp is that of the last segment of each read. Only loaded for https stacks. It refuses to skip verification.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from servegate_action.load.connection import Lost

if TYPE_CHECKING:
    from servegate_action.load.job import Job


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


def securing(job: Job) -> Callable[[], TlsLayer]:
    """Makes the TLS of each connection of a job. Certificates are always verified."""
    context = ssl.create_default_context(cafile=job.cafile)
    context.set_alpn_protocols(["http/1.1"])
    return lambda: TlsLayer(context, job.server_name)
