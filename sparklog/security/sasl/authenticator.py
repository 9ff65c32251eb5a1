"""SaslAuthenticator: the state of one connection's authentication, without frames or sockets.

    start -> (ApiVersions) -> SaslHandshake -> SaslAuthenticate* -> complete | failed

AUTHENTICATOR-1: before `complete`, only ApiVersions (once, first), SaslHandshake and
    SaslAuthenticate are answered; anything else ends the connection.
AUTHENTICATOR-2: a failure's answer does not show whether the user exists.
AUTHENTICATOR-3: a complete connection may authenticate again, with the same mechanism and
    principal. Until it is complete again, AUTHENTICATOR-1 holds.
AUTHENTICATOR-4: a session ends at the earlier of the credential's expiry and
    `connections.max.reauth.ms`. After that, only SaslHandshake is accepted.

Source: KIP-43, KIP-152, KIP-368; Kafka's SaslServerAuthenticator for the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.core.errors import (
    IllegalSaslState,
    SaslAuthenticationFailed,
    SparklogError,
    UnsupportedSaslMechanism,
)
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, SaslServer, Step

REAUTH_INTERVAL_MS: Final = 1000
"""A client may not begin to authenticate again more often."""


class SaslState(Enum):
    """The next message that is expected."""

    START = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    WRONG_MECHANISM = "SaslAuthenticate, which will be rejected"
    COMPLETE = "any request"
    FAILED = "nothing"


@dataclass(frozen=True, slots=True)
class HandshakeReply:
    """The answer to SaslHandshake."""

    mechanisms: tuple[str, ...]
    error: SparklogError | None = None
    close: bool = False


@dataclass(frozen=True, slots=True)
class TokenReply:
    """The answer to SaslAuthenticate; the connection ends after one with an error."""

    token: bytes = b""
    session_lifetime_ms: int = 0
    """The duration of the session in ms; 0 has no end."""
    error: SparklogError | None = None
    reason: str = ""
    """The cause of the error for the log; it may name the user."""
    complete: bool = False


class SaslAuthenticator:
    """The authentication of one connection."""

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], SaslServer]],
        max_reauth_ms: int = 0,
        unlimited: frozenset[str] = frozenset(),
    ) -> None:
        """Offer `mechanisms`, by name, with a maker of one exchange each.

        Args:
            mechanisms: the makers; the next handshake takes them as they are then.
            max_reauth_ms: the longest session in ms; 0 is no limit.
            unlimited: names of users whose sessions have no limit.
        """
        self.mechanisms = mechanisms
        self.max_reauth_ms = max_reauth_ms
        self._unlimited = unlimited
        self.state = SaslState.START
        self.mechanism = ""
        """The mechanism of the newest handshake."""
        self.raw_tokens = False
        """After a handshake of version 0 tokens come without request headers."""
        self._server: SaslServer | None = None
        self._previous: tuple[str, str] | None = None
        """Mechanism and user name, while the client authenticates again."""
        self.name: str | None = None
        """The user's name, once complete."""
        self.by_token = False
        """True if the newest login was by a delegation token."""
        self._began_ms: int | None = None
        self._ends_ms: int | None = None

    @property
    def complete(self) -> bool:
        """Return True if the client may send any request."""
        return self.state is SaslState.COMPLETE

    @property
    def expects_raw_token(self) -> bool:
        """Return True if the client's next frame is a token without a header."""
        return self.raw_tokens and self._in_exchange

    def expired(self, now_ms: int) -> bool:
        """Return True if the session is over (AUTHENTICATOR-4)."""
        return self._ends_ms is not None and now_ms > self._ends_ms

    def api_versions(self, *, supported: bool) -> None:
        """Record an ApiVersions request; one of an unsupported version may be repeated.

        Raises:
            IllegalSaslState: it comes too late.
        """
        if self.state is not SaslState.START:
            raise self.unexpected("API_VERSIONS")
        if supported:
            self.state = SaslState.HANDSHAKE

    def unexpected(self, api_name: str) -> IllegalSaslState:
        """Return the error for a request that may not come now; the connection ends."""
        phase = "authentication" if self._in_exchange else "handshake"
        self.state = SaslState.FAILED
        return IllegalSaslState(f"Unexpected Kafka request of type {api_name} during SASL {phase}.")

    @property
    def _in_exchange(self) -> bool:
        return self.state in (SaslState.AUTHENTICATE, SaslState.WRONG_MECHANISM)

    def handshake(self, mechanism: str, version: int, now_ms: int) -> HandshakeReply:
        """Begin an exchange, for the first time or again (AUTHENTICATOR-3)."""
        offered = tuple(self.mechanisms)
        if self._in_exchange or self.state is SaslState.FAILED:
            return HandshakeReply((), self.unexpected("SASL_HANDSHAKE"), close=True)
        if self.state is SaslState.COMPLETE:
            began_ms, self._began_ms = self._began_ms, now_ms
            if began_ms is not None and now_ms - began_ms < REAUTH_INTERVAL_MS:
                self._began_ms = began_ms
                return HandshakeReply(offered, IllegalSaslState("Re-authentication is too early."))
            assert self.name is not None
            self._previous = (self.mechanism, self.name)
        if mechanism not in self.mechanisms:
            self.state = SaslState.FAILED
            error = UnsupportedSaslMechanism(
                f"Unsupported SASL mechanism. mechanism={mechanism[:100]!r} enabled={offered}"
            )
            return HandshakeReply(offered, error, close=True)
        if self._previous is not None and self._previous[0] != mechanism:
            self.mechanism = mechanism
            self.state = SaslState.WRONG_MECHANISM
            return HandshakeReply(offered)
        self.mechanism = mechanism
        self.raw_tokens = version == 0
        self._server = self.mechanisms[mechanism]()
        self.state = SaslState.AUTHENTICATE
        return HandshakeReply(offered)

    def authenticate(self, token: bytes, now_ms: int) -> TokenReply | Check:
        """Answer a client's token, or return a check whose result goes to `checked`."""
        if self.state is SaslState.WRONG_MECHANISM:
            assert self._previous is not None
            return self._failed(
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._previous[0]}'"
            )
        if self.state is not SaslState.AUTHENTICATE:
            error = self.unexpected("SASL_AUTHENTICATE")
            return TokenReply(error=error, reason=str(error))
        assert self._server is not None
        try:
            step = self._server.evaluate(token, now_ms)
        except SaslFailure as failure:
            return self.checked(failure, now_ms)
        return step if isinstance(step, Check) else self.checked(step, now_ms)

    def checked(self, result: Step | SaslFailure, now_ms: int) -> TokenReply:
        """Answer with the result of a mechanism's step."""
        if isinstance(result, SaslFailure):
            again = "re-authentication" if self._previous else "authentication"
            message = result.client_message or (
                f"Authentication failed during {again} due to invalid credentials "
                f"with SASL mechanism {self.mechanism}"
            )
            return self._failed(message, str(result))
        if result.authenticated is None:
            return TokenReply(result.token)
        return self._completed(result.token, result.authenticated, now_ms)

    def _completed(self, token: bytes, who: Authenticated, now_ms: int) -> TokenReply:
        if self._previous is not None and self._previous[1] != who.name:
            before = self._previous[1]
            return self._failed(
                "Cannot change principals during re-authentication from "
                f"User.{before}: User.{who.name}"
            )
        lifetimes = [who.expires_ms - now_ms] if who.expires_ms is not None else []
        if self.max_reauth_ms > 0 and who.name not in self._unlimited:
            lifetimes.append(self.max_reauth_ms)
        lifetime_ms = max(1, min(lifetimes)) if lifetimes else 0
        self._ends_ms = now_ms + lifetime_ms if lifetimes else None
        self._previous = self._server = None
        self.name, self.by_token = who.name, who.by_token
        self.state = SaslState.COMPLETE
        return TokenReply(token, lifetime_ms, complete=True)

    def _failed(self, message: str, reason: str = "") -> TokenReply:
        self.state = SaslState.FAILED
        self._server = None
        return TokenReply(error=SaslAuthenticationFailed(message), reason=reason or message)
