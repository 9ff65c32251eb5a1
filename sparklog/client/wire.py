"""WireConnection: a blocking connection to one broker, for calls that confluent-kafka lacks.

It sends one request at a time, in order, each with a time-out. It reads the broker's versions once
per connection, so an unsupported call fails with a clear error before it is sent.

With TLS or SASL settings it is encrypted and logged in before the first call. A session that ends
is renewed before the next call, on the same connection (KIP-368).
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from sparklog.client.addresses import TIMEOUT_S, BrokerAddress
from sparklog.client.security import NO_SECURITY, SecuritySettings
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SystemEntropy
from sparklog.core.errors import (
    DataCorrupt,
    InvalidConfig,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
)
from sparklog.core.types import Closeable
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request
from sparklog.protocol.messages.frames import correlation_id_of, decode_response, encode_request

if TYPE_CHECKING:
    from sparklog.client.security_settings import SaslSettings

CLIENT_ID: Final = "sparklog"
CONNECT_TIMEOUT_S: Final = 5.0
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than any broker returns: with a larger size the peer is not a broker."""

RENEW_AT: Final = 0.85
"""Part of a session after which it is renewed, as in Java's clients."""

_SIZE: Final = struct.Struct(">i")
_TLS_ALERT: Final = b"\x15\x03"
"""The first bytes of a TLS alert; no frame begins so, because it would be too large."""


class WireConnection(Closeable):
    """One connection. A context manager; not thread-safe."""

    def __init__(
        self,
        address: BrokerAddress,
        timeout_s: float = TIMEOUT_S,
        security: SecuritySettings = NO_SECURITY,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Connect, log in, and read the broker's supported versions.

        Raises:
            Unavailable: the connection failed, or no response came.
            DataCorrupt: the peer is not a broker.
            InvalidConfig: a security setting is wrong, or the broker's certificate is.
            SaslAuthenticationFailed, UnsupportedSaslMechanism: the broker rejects the login.
        """
        self.address = address
        self._timeout_s = timeout_s
        self._security = security
        self._clock = clock
        self._correlation_id = 0
        self._answers = 0
        self._renew_at_s: float | None = None
        checked = security.resolve()
        try:
            connect_s = min(timeout_s, CONNECT_TIMEOUT_S)
            self._socket = socket.create_connection((address.host, address.port), connect_s)
        except OSError as error:
            raise Unavailable(
                f"a broker cannot be reached. broker={address} problem={error}"
            ) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if checked.tls is not None:
                from sparklog.client.tls import client_context, secured  # noqa: PLC0415 - seldom

                self._socket = secured(self._socket, client_context(checked.tls), address)
            self._spoken = self._ask_versions()
            if checked.sasl is not None:
                self._log_in(checked.sasl)
        except OutcomeUnknown as error:  # safe to repeat
            self.close()
            raise Unavailable(str(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. Repeated calls have no effect."""
        self._socket.close()

    @property
    def ended(self) -> bool:
        """Return True if the broker has closed the connection, as it does with idle ones."""
        try:
            self._socket.settimeout(0)
            if self._security.encrypted:
                self._socket.recv(1)  # unrequested data, or the end
                return True
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError as error:
            return type(error).__name__ != "SSLWantReadError"

    def offers(self, api_key: int) -> bool:
        """Return True if the broker supports an API, by its number."""
        return api_key in self._spoken

    def version(self, api: Api, lowest: int, highest: int) -> int:
        """Return the highest version in [lowest, highest] that the broker supports, too.

        Raises:
            InvalidRequest: there is none.
        """
        first, last = self._spoken.get(int(api), (0, -1))
        chosen = min(last, highest)
        if chosen < max(first, lowest):
            raise InvalidRequest(
                f"the broker does not support this call. api={api.name} broker={self.address} "
                f"wanted={lowest}-{highest} offered={f'{first}-{last}' if last >= 0 else 'none'}"
            )
        return chosen

    def call(self, request: Any) -> Any:
        """Send a request entity and return the response entity.

        Raises:
            InvalidRequest: a value does not fit its field; nothing was sent.
            OutcomeUnknown: no response came; the broker may have handled the request.
            DataCorrupt: the response does not belong to this request.
            SaslAuthenticationFailed: the session is not renewed; the request was not sent.
        """
        if self._renew_at_s is not None and self._clock.monotonic_s() >= self._renew_at_s:
            self._renew()
        return self._exchange(request)

    def _exchange(self, request: Any) -> Any:
        self._correlation_id += 1
        try:
            asked = encode_request(request, self._correlation_id, CLIENT_ID)
        except struct.error as error:
            raise InvalidRequest(
                "a number or a name does not fit Kafka's protocol: give a smaller one. "
                f"request={type(request).__name__} problem={error}"
            ) from error
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(asked)
            frame = self._received()
        except OSError as error:
            self.close()
            if "CERTIFICATE" in str(error):  # TLS 1.3 rejects a client after its handshake
                from sparklog.client.tls import tls_error  # noqa: PLC0415 - seldom

                raise tls_error(error, self.address) from error
            hint = ""
            if self._answers <= 1:
                hint = " If this goes on, it expects TLS or a login; set security.protocol."
            raise OutcomeUnknown(
                f"the broker did not answer; look whether the request was carried out.{hint} "
                f"broker={self.address} request={type(request).__name__} problem={error}"
            ) from error
        if correlation_id_of(frame) != self._correlation_id:
            self.close()
            raise DataCorrupt(f"an answer to another request came. broker={self.address}")
        self._answers += 1
        return decode_response(frame, type(request))

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        answer = self._exchange(build_request(Api.API_VERSIONS, 0))
        return {int(k.api_key): (int(k.min_version), int(k.max_version)) for k in answer.api_keys}

    def _log_in(self, sasl: SaslSettings) -> None:
        from sparklog.client.login import log_in  # noqa: PLC0415 - loads the mechanisms

        began_s = self._clock.monotonic_s()
        lifetime_ms = log_in(self._exchange, sasl, self.address, SystemEntropy())
        self._renew_at_s = began_s + lifetime_ms / 1000 * RENEW_AT if lifetime_ms > 0 else None

    def _renew(self) -> None:
        """Log in again; the connection ends if that fails, and nothing else was sent."""
        try:
            sasl = self._security.resolve().sasl
            if sasl is not None:
                self._log_in(sasl)
        except OutcomeUnknown as error:
            self.close()
            raise Unavailable(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _received(self) -> bytes:
        head = self._exactly(_SIZE.size)
        if head.startswith(_TLS_ALERT):
            raise InvalidConfig(
                "the broker's listener speaks TLS; set security.protocol to SSL or SASL_SSL. "
                f"broker={self.address}"
            )
        (size,) = _SIZE.unpack(head)
        if not 0 < size <= RESPONSE_BYTES_MAX:
            raise DataCorrupt(f"what listens there is no broker. address={self.address}")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            data += part
        return bytes(data)
