"""Decisions about delegation tokens: an image and a time in, records out, or a clear error. Pure.

Periods and times are in ms; a clock of a broker decides. Source: KIP-48, KIP-373.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sparklog.cluster.metadata.access_state import token_record
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record, RemoveDelegationTokenRecord
from sparklog.core.errors import InvalidRequest, PolicyViolation
from sparklog.core.token_errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
)
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.delegation_tokens import DelegationToken

TOKENS_MAX: Final = 10_000
"""Tokens of a cluster: each change copies them, and each broker keeps them in memory."""
REQUESTER_TOKENS_MAX: Final = 1000
"""Tokens of one requester, so that one user cannot take all places."""
PRINCIPALS_CHARS_MAX: Final = 4000
"""Characters of the names of a token's owner, requester and renewers together."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """The token that a client asks for."""

    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...] = ()
    lifetime_ms: int = -1
    """The longest life that the client wants; 0 and less is the brokers' own limit."""


def new_token(
    asked: TokenRequest, token_id: str, now_ms: int, lifetime_ms: int, expiry_ms: int
) -> DelegationToken:
    """Return the token of a request.

    Args:
        asked: the request.
        token_id: a new id.
        now_ms: the time of the creation.
        lifetime_ms: the longest life of a token, with renewals.
        expiry_ms: its life without renewals.

    Raises:
        InvalidPrincipalType: the owner or a renewer is no user.
        InvalidRequest: a principal without a name, or too many characters.
    """
    for one in (asked.owner, *asked.renewers):
        if one.kind != USER:
            raise InvalidPrincipalType("owner and renewers of a token are users.")
        if not one.name or not one.name.isprintable():
            raise InvalidRequest("a principal of a token has no name that can be printed.")
    names = [one.name for one in (asked.owner, asked.requester, *asked.renewers)]
    if sum(map(len, names)) > PRINCIPALS_CHARS_MAX:
        raise InvalidRequest(f"the principals of a token are too long. most={PRINCIPALS_CHARS_MAX}")
    life_ms = min(lifetime_ms, asked.lifetime_ms) if asked.lifetime_ms > 0 else lifetime_ms
    return DelegationToken(
        token_id,
        asked.owner,
        asked.requester,
        asked.renewers,
        now_ms,
        now_ms + life_ms,
        now_ms + min(life_ms, expiry_ms),
    )


def create_token(image: MetadataImage, token: DelegationToken) -> list[Record]:
    """Return the record of a new token.

    Raises:
        PolicyViolation: the cluster or the requester has too many tokens.
    """
    own = sum(one.requester == token.requester for one in image.tokens.values())
    if len(image.tokens) >= TOKENS_MAX or own >= REQUESTER_TOKENS_MAX:
        raise PolicyViolation(
            "there are too many delegation tokens; expire some. "
            f"most={TOKENS_MAX} most_of_a_requester={REQUESTER_TOKENS_MAX}"
        )
    return [token_record(token)]


def renew_token(
    token: DelegationToken | None, principal: Principal, now_ms: int, period_ms: int
) -> DelegationToken:
    """Return a token that expires `period_ms` from now, or at the end of its longest life.

    Raises:
        DelegationTokenNotFound, DelegationTokenExpired: there is none to renew.
        DelegationTokenOwnerMismatch: the principal is neither its owner nor a renewer.
    """
    known = _known(token)
    _check_lives(known, now_ms)
    _check_belongs(known, principal)
    return replace(known, expiry_ms=min(known.max_ms, now_ms + period_ms))


def expire_token(
    token: DelegationToken | None, principal: Principal, now_ms: int, period_ms: int
) -> DelegationToken | None:
    """Return a token that expires `period_ms` from now; None to remove it, if that is negative.

    Raises:
        As `renew_token`. A token that has expired can be removed.
    """
    known = _known(token)
    _check_belongs(known, principal)
    if period_ms < 0:
        return None
    _check_lives(known, now_ms)
    return replace(known, expiry_ms=min(known.max_ms, now_ms + period_ms))


def _known(token: DelegationToken | None) -> DelegationToken:
    if token is None:
        raise DelegationTokenNotFound("no delegation token has this HMAC.")
    return token


def _check_lives(token: DelegationToken, now_ms: int) -> None:
    if token.expired(now_ms):
        raise DelegationTokenExpired(
            f"the token has expired; create another one. token={token.token_id}"
        )


def _check_belongs(token: DelegationToken, principal: Principal) -> None:
    if not token.belongs_to(principal):
        raise DelegationTokenOwnerMismatch(
            "only its owner and its renewers change a token. "
            f"token={token.token_id} principal={principal}"
        )


def remove_expired(image: MetadataImage, now_ms: int) -> list[Record]:
    """Return the records that remove each expired token. Cost: one look at each token."""
    return [
        RemoveDelegationTokenRecord(token_id)
        for token_id, token in image.tokens.items()
        if token.expired(now_ms)
    ]
