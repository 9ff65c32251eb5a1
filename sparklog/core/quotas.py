"""Client quotas, and the token buckets that enforce them. Pure.

A client quota limits a rate of a client, by user and client id. It may be the bytes per second that
the client sends or reads. Others are the share of a thread's time that its requests take, and the
partitions per second that it creates and deletes.

An entity is a user, a client id, or both; the name None stands for all without a quota of their
own. The most specific quota of a client applies, in Kafka's order. Clients with a shared quota
share its bytes. A user's quota is shared by all clients of the user. A quota with a client id, or
for all client ids, applies to each client id separately. Values hold at each broker.

An IP address is an entity as well. Its quota is the connections per second that it may open.

`TokenBucket` limits a rate. A caller that overdraws waits until the balance is positive. Its times
are seconds of any clock that never goes back.

Source: KIP-13, KIP-55, KIP-124, KIP-546, KIP-599, KIP-612; Kafka's documentation, section Quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from math import inf
from typing import Final, NamedTuple

from sparklog.core.errors import InvalidRequest

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of an entity type and a name, by type; the name None is the default of that type."""
Quotas = Mapping[QuotaEntity, Mapping[str, float]]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
"""The time of a broker's event loop for a client, as a percentage: 100 is all of it."""
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
"""Partitions per second, added up over CreateTopics, DeleteTopics and CreatePartitions."""
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
QUOTA_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""Those of users and client ids."""
IP_QUOTA_KEYS: Final = (CONNECTION_CREATION_RATE,)
CONNECTIONS_PER_S_MAX: Final = 2**31 - 1
_FRACTIONS: Final = frozenset({REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
"""Quotas whose value may be any number above zero; the others are whole."""


class Limit(NamedTuple):
    """A quota that applies to a client."""

    per_s: float
    shared_by: tuple[str | None, str | None]
    """User and client id; None where the quota is for all of them together."""


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the entity with these types and names; an IP address gets its usual form.

    Raises:
        InvalidRequest: no type, an unknown one, an IP address beside another type, or no address.
    """
    if not parts:
        raise InvalidRequest("a quota belongs to a user, a client id or an IP address; name one.")
    for kind in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(
                f"the types are {USER}, {CLIENT_ID} and {IP}. entity_type={kind!r}"
            )
    if IP not in parts:
        return tuple(sorted(parts.items(), key=lambda part: part[0]))
    if len(parts) > 1:
        raise InvalidRequest("a quota of an IP address has neither a user nor a client id.")
    name = parts[IP]
    return ((IP, None if name is None else ip_name(name)),)


def ip_name(text: str) -> str:
    """Return an IP address as brokers see it at a connection: the usual form, and IPv4 if it is.

    Raises:
        InvalidRequest: it is not an IP address.
    """
    try:
        address = ip_address(text)
    except ValueError:
        raise InvalidRequest(
            f"brokers do not resolve names of hosts for quotas; give an IP address. ip={text!r}"
        ) from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def check_quota_key(entity: QuotaEntity, key: str) -> None:
    """Reject a key that is not a quota of an entity.

    Raises:
        InvalidRequest: the entity has no such quota.
    """
    keys = IP_QUOTA_KEYS if entity[0][0] == IP else QUOTA_KEYS
    if key not in keys:
        types = " and ".join(kind for kind, _ in entity)
        raise InvalidRequest(
            f"no such quota of this entity; there are {' and '.join(keys)}. "
            f"quota={key!r} entity_type={types}"
        )


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Reject an invalid quota.

    Raises:
        InvalidRequest: see `check_quota_key`; or the value is not a number in its range, or not a
            whole one.
    """
    check_quota_key(entity, key)
    if key in _FRACTIONS:
        if not 0 < value < inf:
            raise InvalidRequest(f"a rate is a number above 0. quota={key} value={value}")
        return
    least, most = (1, 2**63 - 1) if key != CONNECTION_CREATION_RATE else (0, CONNECTIONS_PER_S_MAX)
    if not least <= value <= most or value != int(value):
        what = "connections" if key == CONNECTION_CREATION_RATE else "bytes"
        raise InvalidRequest(
            f"a rate is a whole number of {what} per second, at least {least}. "
            f"quota={key} value={value}"
        )


def connection_rates(quotas: Quotas) -> dict[str | None, float]:
    """Return the connections per second by IP address; the name None has the default."""
    return {
        entity[0][1]: rates[CONNECTION_CREATION_RATE]
        for entity, rates in quotas.items()
        if entity[0][0] == IP and CONNECTION_CREATION_RATE in rates
    }


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """Return the quota that applies to a client, None if none does."""
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


class TokenBucket:
    """A rate per second, with a burst of `burst_s` seconds of the rate."""

    __slots__ = ("_at_s", "_left", "burst_s", "debt_max_s", "per_s")

    def __init__(self, per_s: float, burst_s: float, now_s: float, debt_max_s: float = inf) -> None:
        """Begin full, with the amount of `burst_s` seconds.

        The bucket forgets a debt beyond the amount of `debt_max_s` seconds.
        """
        self.per_s = per_s
        self.burst_s = burst_s
        self.debt_max_s = debt_max_s
        self._left = per_s * burst_s
        self._at_s = now_s

    def spend(self, amount: float, now_s: float) -> float:
        """Take an amount, overdrawing if need be; return the seconds to wait afterwards."""
        self._fill(now_s)
        self._left = max(self._left - amount, -self.per_s * self.debt_max_s)
        return self._owed_s()

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until nothing is overdrawn."""
        self._fill(now_s)
        return self._owed_s()

    def is_full(self, now_s: float) -> bool:
        """Return True if the bucket is full, as if nothing had ever been taken."""
        self._fill(now_s)
        return self._left >= self.per_s * self.burst_s

    def _owed_s(self) -> float:
        return max(0.0, -self._left / self.per_s)

    def _fill(self, now_s: float) -> None:
        come = max(0.0, now_s - self._at_s) * self.per_s
        self._left = min(self._left + come, self.per_s * self.burst_s)
        self._at_s = max(now_s, self._at_s)
