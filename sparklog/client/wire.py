"""WireConnection: a blocking connection to one broker, for calls that confluent-kafka lacks.

It sends one request at a time, in order, each with a time-out. It reads the broker's versions once
per connection, so an unsupported call fails with a clear error before it is sent.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from sparklog.client.addresses import TIMEOUT_S, BrokerAddress
from sparklog.core.errors import DataCorrupt, InvalidRequest, OutcomeUnknown, Unavailable
from sparklog.core.types import Closeable
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request
from sparklog.protocol.messages.frames import correlation_id_of, decode_response, encode_request

CLIENT_ID: Final = "sparklog"
CONNECT_TIMEOUT_S: Final = 5.0
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than any broker returns: with a larger size the peer is not a broker."""

_SIZE: Final = struct.Struct(">i")


class WireConnection(Closeable):
    """One connection. A context manager; not thread-safe."""

    def __init__(self, address: BrokerAddress, timeout_s: float = TIMEOUT_S) -> None:
        """Connect and read the broker's supported versions.

        Raises:
            Unavailable: the connection failed, or no response came.
            DataCorrupt: the peer is not a broker.
        """
        self.address = address
        self._timeout_s = timeout_s
        self._correlation_id = 0
        try:
            connect_s = min(timeout_s, CONNECT_TIMEOUT_S)
            self._socket = socket.create_connection((address.host, address.port), connect_s)
        except OSError as error:
            raise Unavailable(
                f"a broker cannot be reached. broker={address} problem={error}"
            ) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._spoken = self._ask_versions()
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
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

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
        """
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
            raise OutcomeUnknown(
                "the broker did not answer; look whether the request was carried out. "
                f"broker={self.address} request={type(request).__name__} problem={error}"
            ) from error
        if correlation_id_of(frame) != self._correlation_id:
            self.close()
            raise DataCorrupt(f"an answer to another request came. broker={self.address}")
        return decode_response(frame, type(request))

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        answer = self.call(build_request(Api.API_VERSIONS, 0))
        return {int(k.api_key): (int(k.min_version), int(k.max_version)) for k in answer.api_keys}

    def _received(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
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
