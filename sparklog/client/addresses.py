"""Addresses of brokers, and their text form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.core.errors import InvalidRequest

DEFAULT_PORT: Final = 9092
TIMEOUT_S: Final = 30.0
"""Default time-out for a broker's response, in seconds."""


@dataclass(frozen=True, order=True, slots=True)
class BrokerAddress:
    """The host and port of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return `host:port`, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bootstrap_addresses(servers: str) -> list[BrokerAddress]:
    """Return the addresses of `host:port,host:port`; the default port is Kafka's 9092.

    Raises:
        InvalidRequest: not such a list.
    """
    found = [_address(word.strip()) for word in servers.split(",") if word.strip()]
    if not found:
        raise InvalidRequest(f"bootstrap servers are host:port,host:port. given={servers!r}")
    return found


def _address(word: str) -> BrokerAddress:
    host, colon, port = word.rpartition(":")
    if not colon or word.endswith("]"):  # a bare name, or a bare [IPv6 address]
        host, port = word, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise InvalidRequest(f"bootstrap servers are host:port,host:port. given={word!r}")
    return BrokerAddress(host, int(port))
