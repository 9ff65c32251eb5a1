"""The network of a real broker: requests to other brokers over TCP.

One connection per peer and purpose, opened when it is needed. Requests are pipelined on it and
answered in order. A peer that does not answer in time loses the connection, so that the next call
finds out at once whether anybody is there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from sparklog.broker.runtime.environment import Address, Unreachable, caught, shielded, spawn
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import build_request
from sparklog.protocol.messages.frames import FrameReader
from sparklog.security.sasl.client import SaslLogin, sasl_exchange
from sparklog.security.sasl.mechanism import SaslFailure

RESPONSE_BYTES_MAX: Final = 512 * 1024 * 1024
"""A fetch between brokers is bounded by what it asks for; this only rejects what is no frame."""
HANDSHAKE_S: Final = 10.0
"""The time that a TLS handshake may take."""
GOODBYE_S: Final = 1.0
"""The time that the end of a TLS connection may take."""
_CORRELATION_IDS: Final = 2**31


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """The way to the listener by which brokers reach each other."""

    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the context for the next connection; None: no TLS."""
    login: Callable[[], SaslLogin] | None = None
    """Returns the login for the next connection; None: no login."""
    entropy: Entropy = SYSTEM_ENTROPY


class TcpNetwork:
    """Calls other brokers. Implements `environment.Network`."""

    def __init__(self, client_id: str, access: PeerAccess | None = None) -> None:
        """Send `client_id` to every peer, until `introduce` says otherwise."""
        self._client_id_at: Callable[[Address], str] = lambda _: client_id
        self._access = PeerAccess() if access is None else access
        self._channels: dict[tuple[Address, str], _Channel] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[_Channel | Exception]] = {}

    async def call(
        self, peer: Address, request: Any, *, timeout_s: float, purpose: str = ""
    ) -> Any:
        """Send a request entity and return the response entity; see `environment.Network`.

        Raises:
            Unreachable: refused, lost before the answer, or the answer was garbage.
            TimeoutError: no answer in time.
        """
        key = (peer, purpose)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        channel = self._channels.get(key)
        if channel is None or not channel.is_open:
            async with asyncio.timeout_at(deadline):
                channel = await self._channel(key)
        answer = channel.ask(request, self._client_id_at(peer))
        # A timer by hand, as followers ask all the time: `asyncio.timeout` costs three times that.
        timer = loop.call_at(deadline, self._late, key, channel)
        try:
            return await answer
        finally:
            timer.cancel()

    def _late(self, key: tuple[Address, str], channel: _Channel) -> None:
        """Give up a connection whose answer did not come in time."""
        if self._channels.get(key) is channel:
            del self._channels[key]
        channel.give_up(TimeoutError(f"no answer in time. peer={key[0]}"))

    def introduce(self, client_id_at: Callable[[Address], str]) -> None:
        """See `environment.Network`."""
        self._client_id_at = client_id_at

    async def close(self) -> None:
        """Drop every connection; calls under way raise Unreachable."""
        for opening in list(self._opening.values()):
            opening.cancel()
        for channel in list(self._channels.values()):
            channel.give_up(Unreachable("this broker closed its connections"))
        self._channels.clear()

    async def _channel(self, key: tuple[Address, str]) -> _Channel:
        channel = self._channels.get(key)
        if channel is not None and channel.is_open:
            return channel
        opening = self._opening.get(key)
        if opening is None:
            opening = spawn(caught(self._open(key)))
            self._opening[key] = opening
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        try:
            return await shielded(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise Unreachable("this broker closed its connections") from None
            raise

    async def _open(self, key: tuple[Address, str]) -> _Channel:
        peer, _ = key
        loop = asyncio.get_running_loop()
        tls = self._access.tls
        more: dict[str, Any] = {}
        if tls is not None:
            more = {
                "ssl": tls(),
                "server_hostname": peer.host,
                "ssl_handshake_timeout": HANDSHAKE_S,
                "ssl_shutdown_timeout": GOODBYE_S,
            }
        try:
            _, channel = await loop.create_connection(
                lambda: _Channel(peer), peer.host, peer.port, **more
            )
        except ssl.SSLError as error:
            detail = getattr(error, "verify_message", "") or error.reason
            raise Unreachable(f"no TLS connection: {detail} peer={peer}") from error
        except OSError as error:
            raise Unreachable(f"no connection: {error} peer={peer}") from error
        if self._access.login is not None:
            await self._log_in(channel, self._access.login(), peer)
        self._channels[key] = channel
        return channel

    async def _log_in(self, channel: _Channel, login: SaslLogin, peer: Address) -> None:
        client_id = self._client_id_at(peer)
        chosen = await channel.ask(
            build_request(Api.SASL_HANDSHAKE, 1, mechanism=login.mechanism), client_id
        )
        exchange = sasl_exchange(login, self._access.entropy)
        error, token = int(chosen.error_code), next(exchange)
        try:
            while not error:
                request = build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=token)
                answer = await channel.ask(request, client_id)
                error = int(answer.error_code)
                if not error:
                    token = exchange.send(answer.auth_bytes)
        except StopIteration:
            return
        except SaslFailure as failure:
            channel.give_up(Unreachable(f"the peer is no broker of the cluster. peer={peer}"))
            raise Unreachable(f"the peer did not log in: {failure} peer={peer}") from failure
        channel.give_up(Unreachable(f"the peer rejected the login. peer={peer}"))
        raise Unreachable(f"the peer rejected the login of a broker. code={error} peer={peer}")


class _Channel(asyncio.Protocol):
    """This broker's end of one connection."""

    def __init__(self, peer: Address) -> None:
        self._peer = peer
        self._reader = FrameReader(RESPONSE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[Any, asyncio.Future[Any]]] = {}
        self._correlation_id = 0
        self.is_open = False

    def ask(self, request: Any, client_id: str) -> asyncio.Future[Any]:
        """Send a request; return what will have its answer."""
        if self._transport is None or not self.is_open:
            raise Unreachable(f"the connection was lost. peer={self._peer}")
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) % _CORRELATION_IDS
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = (type(request), answer)
        self._transport.write(frames.encode_request(request, correlation_id, client_id))
        return answer

    def give_up(self, why: Exception) -> None:
        """Drop the connection; every call still waiting raises `why`."""
        self.is_open = False
        waiting, self._waiting = self._waiting, {}
        for _, answer in waiting.values():
            if not answer.done():
                answer.set_exception(why)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while self.is_open and (frame := self._reader.next_frame()) is not None:
                self._answered(frame)
        except (InvalidRequest, DataCorrupt) as error:
            self.give_up(Unreachable(f"the peer answered garbage: {error} peer={self._peer}"))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the peer closed the connection" if exc is None else str(exc)
        self.give_up(Unreachable(f"the connection was lost: {reason} peer={self._peer}"))

    def _answered(self, frame: bytes) -> None:
        correlation_id = frames.correlation_id_of(frame)
        if correlation_id not in self._waiting:
            raise DataCorrupt(f"an answer nobody waits for. correlation_id={correlation_id}")
        request_type, answer = self._waiting[correlation_id]
        if not answer.done():
            answer.set_result(frames.decode_response(frame, request_type))
        del self._waiting[correlation_id]
