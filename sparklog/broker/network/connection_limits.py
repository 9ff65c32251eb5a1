"""Limits on connections: how many at once, how many from one address, and how many a second.

A connection over a limit of a number is closed at once. Over the rate, the broker accepts later.
Over the quota of its IP address, the broker holds a connection without a read, then closes it.
Source: KIP-308, KIP-402, KIP-612.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping
from typing import Final

from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.model import INT_MAX
from sparklog.core.config.security import MAX_CONNECTIONS_PER_IP_OVERRIDES
from sparklog.core.errors import InvalidConfig
from sparklog.core.quotas import Quotas, TokenBucket, connection_rates

_IPV4_IN_IPV6: Final = "::ffff:"
BURST_S: Final = 1.0
"""The connections of this many seconds may come at once."""
ADDRESSES_KEPT: Final = 1000
"""With more buckets of addresses than this, those that are full again are dropped."""


def host_of(peer: object) -> str:
    """Return the host of a socket's peer; an IPv4 address in IPv6's form is IPv4's."""
    if not isinstance(peer, tuple) or not peer:
        return ""
    host = str(peer[0])
    if host.startswith(_IPV4_IN_IPV6) and "." in host:
        return host.removeprefix(_IPV4_IN_IPV6)
    return host


class ConnectionLimits:
    """Counts the connections of one broker by address, and paces new ones."""

    def __init__(self, config: BrokerConfig, now_s: float) -> None:
        """Read the settings.

        Raises:
            InvalidConfig: the overrides are malformed.
        """
        self._per_ip = config.whole("max.connections.per.ip")
        self._overrides = _overrides(config.text(MAX_CONNECTIONS_PER_IP_OVERRIDES))
        self._from: Counter[str] = Counter()
        rate = config.whole("max.connection.creation.rate")
        self._rate = None if rate == INT_MAX else TokenBucket(rate, BURST_S, now_s)
        self._hold_max_s = float(config.whole("quota.window.size.seconds"))
        self._burst_s = max(1, config.whole("quota.window.num") - 1) * self._hold_max_s
        self._quotas: Quotas = {}
        """Those that `_rates` has; an image with other quotas has another mapping."""
        self._rates: Mapping[str | None, float] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._buckets_max = ADDRESSES_KEPT

    def pause_s(self, now_s: float) -> float:
        """Count a new connection; return the seconds after which the next may be accepted."""
        return 0.0 if self._rate is None else self._rate.spend(1, now_s)

    def hold_s(self, quotas: Quotas, host: str, now_s: float) -> float:
        """Count a new connection against the quota of its IP address.

        Args:
            quotas: all there are, from the metadata image.
            host: the address of the client.
            now_s: the time by the event loop's clock.

        Returns:
            0, or the seconds after which the broker closes the connection: it is over the quota,
            and does not count.
        """
        if quotas is not self._quotas:
            self._quotas, self._rates = quotas, connection_rates(quotas)
        if not self._rates:
            return 0.0
        rate = self._rates.get(host, self._rates.get(None))
        if rate is None:
            return 0.0
        if rate == 0:
            return self._hold_max_s
        bucket = self._bucket(host, rate, now_s)
        wait_s = bucket.spend(1, now_s)
        if wait_s > 0.0:
            bucket.spend(-1, now_s)
        return min(wait_s, self._hold_max_s)

    def _bucket(self, host: str, rate: float, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(host)
        if bucket is None or bucket.per_s != rate:
            if len(self._buckets) >= self._buckets_max:
                kept = {k: b for k, b in self._buckets.items() if not b.is_full(now_s)}
                self._buckets, self._buckets_max = kept, max(ADDRESSES_KEPT, 2 * len(kept))
            bucket = self._buckets[host] = TokenBucket(rate, self._burst_s, now_s)
        return bucket

    def opened(self, host: str) -> bool:
        """Count a connection from an address, unless there are too many; return whether it is."""
        if self._from[host] >= self.limit_of(host):
            return False
        self._from[host] += 1
        return True

    def closed(self, host: str) -> None:
        """Count a connection less."""
        self._from[host] -= 1
        if self._from[host] <= 0:
            del self._from[host]

    def limit_of(self, host: str) -> int:
        """Return how many connections an address may have."""
        return self._overrides.get(host, self._per_ip)


def _overrides(text: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        host, colon, number = word.rpartition(":")
        if not colon or not host or not number.isascii() or not number.isdecimal():
            raise InvalidConfig(
                f"{MAX_CONNECTIONS_PER_IP_OVERRIDES} takes host:number, with commas between. "
                f"{MAX_CONNECTIONS_PER_IP_OVERRIDES}={text!r}"
            )
        for address in _addresses(host.strip("[]")):
            found[address] = int(number)
    return found


def _addresses(host: str) -> set[str]:
    try:
        return {host_of(address) for *_, address in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise InvalidConfig(
            f"{MAX_CONNECTIONS_PER_IP_OVERRIDES} has an unknown host. host={host!r} "
            f"problem={error.strerror}"
        ) from None
