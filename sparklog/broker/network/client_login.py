"""The login of one client's connection: SASL messages in, answers out, and then its principal.

Before a client has logged in, only ApiVersions, SaslHandshake and SaslAuthenticate are read, and
none larger than `sasl.server.max.receive.size`. Each waits for the answer to the one before it.

  CLIENT-LOGIN-1: no other request is decoded, and no handler runs, before the login is complete
  CLIENT-LOGIN-2: after a failed login the client gets the answer, and the connection ends a little
      later. A login that was not checked gets no answer, so its client tries again
  CLIENT-LOGIN-3: a client that logs in again has time to read the answers to its requests before

Source: KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.network.connection_gate import ConnectionGate
from sparklog.broker.network.login import BROKER_USER, ListenerLogin
from sparklog.broker.network.login_checks import CheckedClient, LoginChecks, NotChecked
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.protocol.api_keys import LABELS, Api
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.authenticator import SaslAuthenticator, TokenReply
from sparklog.security.sasl.mechanism import Check, SaslFailure

_KEY: Final = struct.Struct(">h")
ALLOWED: Final = frozenset({Api.SASL_HANDSHAKE, Api.API_VERSIONS, Api.SASL_AUTHENTICATE})
LOGIN_APIS: Final = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
"""Requests that the login answers itself."""
AGAIN_PAUSE_S: Final = 0.1
"""The pause before a client that logs in again gets its first answer. Java's client then reads one
answer at a time. If TLS brings it two at once, it sleeps with the second in its buffer. It wakes up
by news from the network, or after 30 s (`Selector.poll`; KAFKA-13559 is the same for sends).
"""


@dataclass(frozen=True, slots=True)
class LoginAnswer:
    """The answer to one message of a login."""

    response: Any = None
    """A response entity."""
    token: bytes = b""
    """A token without a header, where the client sends such."""
    fault: str = ""
    """The reason for which the connection ends after this answer; it is for the log. Without a
    response and a token, the connection ends without an answer."""


class ClientLogin:
    """The login of one connection."""

    def __init__(
        self, login: ListenerLogin, checks: LoginChecks, gate: ConnectionGate | None = None
    ) -> None:
        """Expect a login at a listener; `gate` is the one that the connection came through."""
        self._login = login
        self._gate = gate
        self._checks = checks
        self._client = CheckedClient("")
        self._authenticator = SaslAuthenticator({}, unlimited=frozenset({BROKER_USER}))
        self.principal: Principal | None = None
        """The user, once logged in."""

    @property
    def receive_bytes_max(self) -> int:
        """Return the size of the largest frame before the login is complete, in bytes."""
        return self._login.receive_bytes_max

    @property
    def failure_delay_s(self) -> float:
        """Return the time between the answer to a failed login and the close, in seconds."""
        return self._login.failure_delay_s

    @property
    def mechanism(self) -> str:
        """Return the mechanism of the newest handshake, or an empty text."""
        return self._authenticator.mechanism

    @property
    def complete(self) -> bool:
        """Return True if the client may send any request."""
        return self._authenticator.complete

    @property
    def by_token(self) -> bool:
        """Return True if the client logged in by a delegation token."""
        return self._authenticator.by_token

    @property
    def expects_token(self) -> bool:
        """Return True if the next frame is a token without a header."""
        return self._authenticator.expects_raw_token

    def check_frame(self, frame: bytes) -> None:
        """Check that an undecoded request may come before the login is complete.

        Raises:
            InvalidRequest: the client did not log in.
        """
        key = _KEY.unpack_from(frame)[0] if len(frame) >= _KEY.size else -1
        if key not in ALLOWED:
            raise InvalidRequest(
                "the client sent a request before it logged in; set its security.protocol and "
                f"sasl.mechanism. listener={self._login.listener.name} "
                f"request={LABELS.get(key, key)}"
            )

    def check_session(self, api: int) -> None:
        """Check that the session of a client that has logged in has not ended.

        Raises:
            InvalidRequest: it has, and the request does not log in again.
        """
        if api != Api.SASL_HANDSHAKE and self._authenticator.expired(self._login.clock.now_ms()):
            raise InvalidRequest(
                "the session of the login is over, and the client did not log in again. "
                f"listener={self._login.listener.name} user={self._authenticator.name!r}"
            )

    def saw_api_versions(self, *, supported: bool) -> None:
        """Record an ApiVersions request before the login.

        Raises:
            InvalidRequest: it comes too late.
        """
        self._authenticator.api_versions(supported=supported)

    def client_left(self) -> None:
        """End the wait for a check: the connection is lost."""
        self._checks.leave(self._client)

    async def answer(self, api: int, request: Any, host: str) -> LoginAnswer:
        """Answer SaslHandshake or SaslAuthenticate of a client's address.

        A request of bytes is a token.
        """
        if api == Api.SASL_HANDSHAKE:
            return await self._handshake(request)
        raw = isinstance(request, bytes)
        self._client.host = host
        try:
            reply = await self._authenticated(request if raw else request.auth_bytes)
        except NotChecked as error:
            return LoginAnswer(fault=str(error))
        fault = reply.reason if reply.error is not None else ""
        if raw:
            return LoginAnswer(token=reply.token, fault=fault)
        values: dict[str, Any] = {}
        answer = ResponseBuilder.to(request)
        if answer.version >= 1:
            values["session_lifetime"] = timedelta(milliseconds=reply.session_lifetime_ms)
        response = answer.response(
            error_code=_code_of(reply.error),
            error_message=None if reply.error is None else str(reply.error),
            auth_bytes=reply.token,
            **values,
        )
        return LoginAnswer(response, fault=fault)

    async def _handshake(self, request: Any) -> LoginAnswer:
        if self.principal is not None:
            await asyncio.sleep(AGAIN_PAUSE_S)
        now_ms = self._login.clock.now_ms()
        self._authenticator.mechanisms = await self._login.mechanisms()
        reply = self._authenticator.handshake(request.mechanism, request.__version__, now_ms)
        response = ResponseBuilder.to(request).response(
            error_code=_code_of(reply.error), mechanisms=reply.mechanisms
        )
        return LoginAnswer(response, fault=str(reply.error) if reply.close else "")

    async def _authenticated(self, token: bytes) -> TokenReply:
        now_ms = self._login.clock.now_ms()
        authenticator = self._authenticator
        authenticator.max_reauth_ms = self._login.max_reauth_ms(authenticator.mechanism)
        reply = authenticator.authenticate(token, now_ms)
        if isinstance(reply, Check):
            try:
                result = await self._checks.run(self._client, reply)
            except SaslFailure as failure:
                reply = authenticator.checked(failure, now_ms)
            else:
                reply = authenticator.checked(result, now_ms)
        if reply.complete and authenticator.name is not None:
            if self.principal is None and self._gate is not None:
                self._gate.proved()
            self.principal = Principal(USER, authenticator.name)
            self._checks.logged_in(self._client)
        return reply


def _code_of(error: SparklogError | None) -> ErrorCode:
    return ErrorCode.none if error is None else ErrorCode(error.kafka_code)
