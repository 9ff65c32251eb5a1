"""Sends a client the alert of a failed TLS handshake, which event loops throw away.

OpenSSL writes the alert into a buffer. Then asyncio and uvloop close the socket without sending it.
To the client, a missing certificate would look like a dead broker. The context here sends the
alert. It also measures what handshakes cost.
"""

from __future__ import annotations

import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final

from sparklog.core.clock import thread_s

UNEXPECTED_MESSAGE: Final = bytes((0x15, 3, 3, 0, 2, 2, 10))
"""A fatal alert for a client that does not speak TLS: OpenSSL writes none. Source: RFC 5246."""
handshaking: ContextVar[socket.socket | None] = ContextVar("handshaking", default=None)
"""The socket whose handshake runs in this context."""
RECENT: Final = 1 / 8
"""The weight of the newest handshake in the average."""


class _AlertingObject(ssl.SSLObject):
    """One connection's TLS."""

    outgoing: ssl.MemoryBIO
    made_by: AlertingContext
    _has_begun = False

    def do_handshake(self) -> None:
        """Go on with the handshake; if it fails, send the alert at once."""
        began_s = thread_s()
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError):
            raise
        except ssl.SSLError:
            self._send_alert()
            raise
        finally:
            self.made_by.measured(thread_s() - began_s, begins=not self._has_begun)
            self._has_begun = True

    def _send_alert(self) -> None:
        client = handshaking.get()
        if client is None:
            return
        alert = self.outgoing.read() or UNEXPECTED_MESSAGE
        try:
            client.send(alert, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return  # the client is gone


class AlertingContext(ssl.SSLContext):
    """A context for servers whose clients get the alert of a failed handshake."""

    sslobject_class = _AlertingObject
    handshake_s = 0.0
    """The processor time of a handshake in seconds: an average of recent ones."""

    def measured(self, cost_s: float, *, begins: bool) -> None:
        """Add the processor time of one step, which `begins` a handshake or goes on with it.

        A handshake counts from its first step, because a client may end it before the last.
        """
        self.handshake_s += (cost_s - (self.handshake_s if begins else 0.0)) * RECENT

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any,
                 **kwargs: Any) -> ssl.SSLObject:  # fmt: skip
        """Return the TLS of a new connection."""
        made = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(made, _AlertingObject)
        made.outgoing = outgoing
        made.made_by = self
        return made
