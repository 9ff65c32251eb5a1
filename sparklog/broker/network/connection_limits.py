"""Limits on connections: how many at once, how many from one address, and how many a second.

A connection over a limit of a number is closed at once. Over the rate, the broker accepts later.
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
from sparklog.core.quotas import TokenBucket

_IPV4_IN_IPV6: Final = "::ffff:"
BURST_S: Final = 1.0
"""The connections of this many seconds may come at once."""


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

    def pause_s(self, now_s: float) -> float:
        """Count a new connection; return the seconds after which the next may be accepted."""
        return 0.0 if self._rate is None else self._rate.spend(1, now_s)

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
