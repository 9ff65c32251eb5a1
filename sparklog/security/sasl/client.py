"""The client side of SASL: an exchange yields tokens for the server and receives its challenges.

    exchange = sasl_exchange(login, entropy)
    token = next(exchange)            # send it; with the server's challenge:
    token = exchange.send(challenge)  # StopIteration: the exchange is complete

An exchange ends only after the server has proved what its mechanism lets it prove.
Source: RFC 4422.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from sparklog.core.entropy import Entropy
from sparklog.core.errors import InvalidConfig
from sparklog.security.sasl.credentials import SCRAM_NAMES
from sparklog.security.sasl.mechanism import SaslFailure
from sparklog.security.sasl.oauthbearer import CONTROL_A, oauthbearer_token
from sparklog.security.sasl.plain import plain_token
from sparklog.security.sasl.scram import ScramClient, new_scram_nonce

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
CLIENT_MECHANISMS: Final = (PLAIN, *SCRAM_NAMES, OAUTHBEARER)

SaslExchange = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A mechanism with the credentials for it."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """The bearer token of OAUTHBEARER."""
    by_token: bool = False
    """True if user and password are the id and the HMAC of a delegation token."""


def sasl_exchange(login: SaslLogin, entropy: Entropy) -> SaslExchange:
    """Return a new exchange of the login's mechanism. `send` raises SaslFailure if it fails.

    Raises:
        InvalidConfig: the mechanism is not supported.
    """
    if login.mechanism == PLAIN:
        return _plain(login)
    if login.mechanism == OAUTHBEARER:
        return _oauthbearer(login)
    if login.mechanism in SCRAM_NAMES:
        return _scram(login, new_scram_nonce(entropy))
    raise InvalidConfig(
        f"the SASL mechanism is not supported; choose from {', '.join(CLIENT_MECHANISMS)}. "
        f"sasl.mechanism={login.mechanism}"
    )


def _plain(login: SaslLogin) -> SaslExchange:
    challenge = yield plain_token(login.user, login.password)
    _check_empty(challenge, login)


def _oauthbearer(login: SaslLogin) -> SaslExchange:
    challenge = yield oauthbearer_token(login.token)
    if challenge:  # a failure; the server reports it in its answer to this
        yield CONTROL_A
        raise SaslFailure("the server rejected the bearer token.")


def _scram(login: SaslLogin, nonce: str) -> SaslExchange:
    client = ScramClient(
        SCRAM_NAMES[login.mechanism], login.user, login.password, nonce, by_token=login.by_token
    )
    server_first = yield client.first()
    server_final = yield client.final(server_first)
    client.verify(server_final)


def _check_empty(challenge: bytes, login: SaslLogin) -> None:
    if challenge:
        raise SaslFailure(
            f"the server sent an unexpected challenge. mechanism={login.mechanism} "
            f"bytes={len(challenge)}"
        )
