"""Quotas of clients: how many bytes a second one may send or read, by whom it says it is. Pure.

An entity is a user, a client id, or both; None stands for every one that has no quota of its own.
Of the quotas that hold for a client the most specific counts, in Kafka's order. What clients share
one quota share its bytes: all of a user's, but each client id for itself where the quota names a
client id or stands for all of them. Values are bytes per second at each broker.
Source: KIP-13, KIP-55, KIP-546; Kafka's documentation, section Quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklog.core.errors import InvalidRequest

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of an entity type and a name, by type; the name None is the default of that type."""
Quotas = Mapping[QuotaEntity, Mapping[str, float]]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
QUOTA_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
_NOT_HELD: Final = frozenset(
    {"request_percentage", "controller_mutation_rate", "connection_creation_rate"}
)
"""Kafka's others."""


class Limit(NamedTuple):
    """A quota that holds for a client."""

    bytes_per_s: float
    shared_by: tuple[str | None, str | None]
    """User and client id, None where the quota is for all of them together."""


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the entity that has these types and names.

    Raises:
        InvalidRequest: no type, one that is unknown, or one that has no quotas here.
    """
    if not parts:
        raise InvalidRequest("a quota is a user's or a client id's; name one.")
    for kind in parts:
        if kind == "ip":
            raise InvalidRequest(
                "brokers hold no quotas of IP addresses; set one of a client id or a user. "
                f"entity_type={kind}"
            )
        if kind not in (USER, CLIENT_ID):
            raise InvalidRequest(f"the types are {USER} and {CLIENT_ID}. entity_type={kind!r}")
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


def check_quota_key(key: str) -> None:
    """Refuse what is no quota.

    Raises:
        InvalidRequest: it is none, or none that brokers hold clients to.
    """
    if key in _NOT_HELD:
        raise InvalidRequest(
            f"brokers do not hold clients to this quota; they do to {' and '.join(QUOTA_KEYS)}. "
            f"quota={key}"
        )
    if key not in QUOTA_KEYS:
        raise InvalidRequest(f"no such quota; there are {' and '.join(QUOTA_KEYS)}. quota={key!r}")


def check_quota(key: str, value: float) -> None:
    """Refuse what cannot be a quota.

    Raises:
        InvalidRequest: see `check_quota_key`; or the value is no whole number of 1 or more.
    """
    check_quota_key(key)
    if not 1 <= value < 2**63 or value != int(value):
        raise InvalidRequest(
            f"a rate is a whole number of bytes per second, at least 1. quota={key} value={value}"
        )


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """Return the quota that holds for a client, None if none does."""
    for entity, shared_by in (
        (_both(user, client_id), (user, client_id)),
        (_both(user, None), (user, client_id)),
        (((USER, user),), (user, None)),
        (_both(None, client_id), (user, client_id)),
        (_both(None, None), (user, client_id)),
        (((USER, None),), (user, None)),
        (((CLIENT_ID, client_id),), (None, client_id)),
        (((CLIENT_ID, None),), (None, client_id)),
    ):
        rate = quotas.get(entity, {}).get(key)
        if rate is not None:
            return Limit(rate, shared_by)
    return None


def _both(user: str | None, client_id: str | None) -> QuotaEntity:
    return ((CLIENT_ID, client_id), (USER, user))
