"""The interface of the server side of a SASL mechanism. Source: RFC 4422."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sparklog.core.errors import SparklogError


class SaslFailure(SparklogError):
    """An exchange failed. The message is for the broker's log; it may name the user."""

    kafka_code = 58

    def __init__(self, reason: str, *, client_message: str = "") -> None:
        """Fail for `reason`; the client gets `client_message`, or a generic text if it is empty."""
        super().__init__(reason)
        self.client_message = client_message


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A client proved its identity."""

    name: str
    """The user's name."""
    expires_ms: int | None = None
    """Wall-clock time in ms at which the credential expires; None if it does not."""
    by_token: bool = False
    """True if the credential is a delegation token of the user."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token for the client, and the identity if the exchange is complete."""

    token: bytes
    authenticated: Authenticated | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A computation of some milliseconds, which must not run on an event loop.

    `run` returns the next step or raises `SaslFailure`.
    """

    run: Callable[[], Step]
    key: bytes = field(default=b"", repr=False)
    """Checks of one key have one result; empty if the result is of this exchange only."""


class SaslServer(Protocol):
    """The server side of one exchange of one mechanism."""

    def evaluate(self, token: bytes, now_ms: int) -> Step | Check:
        """Return the reply to a client's token at wall-clock time `now_ms`.

        Raises:
            SaslFailure: the client did not authenticate.
        """
        ...
