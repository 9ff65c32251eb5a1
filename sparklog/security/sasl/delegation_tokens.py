"""Delegation tokens: an identity for processes that shall not have their user's password.

A token has a public id. Its secret is the HMAC of the id under `delegation.token.secret.key`, which
the brokers share. The holder logs in by SCRAM with the id as user name and the HMAC as password.

DELEGATION-TOKENS-1: no record and no snapshot has the HMAC or anything that derives from it
DELEGATION-TOKENS-2: an id that is no token takes the same steps as a token until its proof fails

Times are in ms since the Unix epoch. Source: KIP-48, KIP-373.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sparklog.security.principal import Principal
from sparklog.security.sasl.credentials import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of,
)

_CREDENTIALS_KEPT: Final = 4096
"""Credentials that a broker remembers: each costs a derivation of 1.5 to 5 ms."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token without its secret."""

    token_id: str
    owner: Principal
    """The principal of connections that log in by the token."""
    requester: Principal
    renewers: tuple[Principal, ...]
    """Principals that may renew and expire it, as its owner may."""
    issue_ms: int
    max_ms: int
    """No renewal lasts beyond this."""
    expiry_ms: int

    def expired(self, now_ms: int) -> bool:
        """Return True if the time of the token is over: it allows no login and no renewal."""
        return now_ms > min(self.max_ms, self.expiry_ms)

    def belongs_to(self, principal: Principal) -> bool:
        """Return True for its owner and for its renewers."""
        return principal == self.owner or principal in self.renewers


Tokens = Mapping[str, DelegationToken]
"""Tokens by id."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its secret."""

    token: DelegationToken
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """Return the HMAC as the password of a login."""
        return password_of(self.hmac)


def password_of(token_hmac: bytes) -> str:
    """Return the HMAC of a token as the password of a login."""
    return base64.b64encode(token_hmac).decode()


class TokenSecrets:
    """Derives what brokers need to know of tokens from `delegation.token.secret.key`."""

    def __init__(self, secret_key: str) -> None:
        """Derive from a key that is not empty."""
        self._key = secret_key.encode()
        self._ids: tuple[Tokens, dict[bytes, str]] = ({}, {})
        self._kept = lru_cache(_CREDENTIALS_KEPT)(self.derived_credential)

    def hmac(self, token_id: str) -> bytes:
        """Return the secret of a token: 64 bytes."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, token_hmac: bytes, tokens: Tokens) -> DelegationToken | None:
        """Return the token with this secret. Cost: an HMAC for each token that is new."""
        known, ids = self._ids
        if known is not tokens:
            before = {token_id: secret for secret, token_id in ids.items()}
            ids = {before.get(one) or self.hmac(one): one for one in tokens}
            self._ids = (tokens, ids)
        found = ids.get(token_hmac)
        return None if found is None else tokens[found]

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Return the credential of a token. Cost: one derivation at the first call."""
        return self._kept(mechanism, token_id)

    def derived_credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Return the credential that an id has, or would have. Cost: one derivation.

        Each broker derives the same one, so a login does not depend on the broker.
        """
        label = f"salt {mechanism.sasl_name} {token_id}"
        salt = hmac.digest(self._key, label.encode(), "sha256")[:16]
        password = password_of(self.hmac(token_id))
        salted = mechanism.salted_password(password, salt, ITERATIONS_MIN)
        return credential_of(mechanism, salt, salted, ITERATIONS_MIN)
