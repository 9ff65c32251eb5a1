"""Where a broker listens and where it is reached: Kafka's spelling of both."""

from __future__ import annotations

import re
from typing import Final

from sparklog.broker.environment import Address
from sparklog.broker.listening import EVERY_INTERFACE
from sparklog.core.broker_settings import BrokerConfig
from sparklog.core.errors import InvalidConfig

PORT_MAX: Final = 65_535
_LISTENER = re.compile(r"([A-Za-z][A-Za-z0-9_]*)://(\[[0-9A-Fa-f:.]+\]|[^:/\[\],]*):([0-9]{1,5})")


def listener_of(config: BrokerConfig) -> Address:
    """Return where to listen; an empty host is every network interface.

    Raises:
        InvalidConfig: not a listener, or more than one.
    """
    return _parsed("listeners", config.text("listeners"))


def advertised_of(config: BrokerConfig, bound: Address) -> Address:
    """Return where others reach a broker that listens at `bound`.

    Raises:
        InvalidConfig: not a listener, or none though it listens on every interface.
    """
    text = config.text("advertised.listeners")
    if text:
        given = _parsed("advertised.listeners", text)
        found = Address(given.host or bound.host, given.port or bound.port)
    else:
        found = bound
    if found.host in EVERY_INTERFACE:
        raise InvalidConfig(
            "clients need to be told a host that reaches the broker: set advertised.listeners. "
            f"listeners={config.text('listeners')} advertised.listeners={text!r}"
        )
    return found


def _parsed(name: str, text: str) -> Address:
    match = _LISTENER.fullmatch(text.strip())
    if match is None or int(match.group(3)) > PORT_MAX:
        raise InvalidConfig(f"{name} takes one PLAINTEXT://host:port. {name}={text!r}")
    protocol, host, port = match.groups()
    if protocol.upper() != "PLAINTEXT":
        raise InvalidConfig(
            f"{name} takes one PLAINTEXT://host:port; other protocols are not known. "
            f"{name}={text!r}"
        )
    return Address(host.strip("[]"), int(port))
