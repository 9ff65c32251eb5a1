"""The listeners of a broker: names, addresses and protocols, from settings spelled as in Kafka.

Each listener has a name, an address to listen at, and a security protocol. Clients learn the
address that is advertised for the listener by which they came. One listener is for brokers.
Source: KIP-103, KIP-291.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.broker.network.listener_sockets import EVERY_INTERFACE
from sparklog.broker.runtime.environment import Address
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidConfig
from sparklog.security.protocol import SecurityProtocol

LISTENERS_MAX: Final = 16
PORT_MAX: Final = 65_535
_LISTENER = re.compile(r"([A-Za-z][A-Za-z0-9_]*)://(\[[0-9A-Fa-f:.]+\]|[^:/\[\],]*):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener, before it is bound."""

    name: str
    """In upper case, as Kafka has it."""
    protocol: SecurityProtocol
    address: Address
    """An empty host is every network interface; port 0 any free port."""
    is_inter_broker: bool = True
    """True for the listener by which brokers reach each other."""


def listeners_of(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """Return the listeners, in the order of the setting.

    Raises:
        InvalidConfig: no listener, a name twice, a port twice, an unknown name or protocol.
    """
    given = _parsed("listeners", config.text("listeners"))
    protocols = _protocols(config)
    inter_broker = _inter_broker(config, given, protocols)
    found = []
    for name, address in given.items():
        found.append(Endpoint(name, _protocol(name, protocols), address, name == inter_broker))
    ports = [one.address.port for one in found if one.address.port]
    if len(set(ports)) != len(ports):
        raise InvalidConfig(
            f"each listener needs a port of its own. listeners={config.text('listeners')}"
        )
    return tuple(found)


def advertised_of(config: BrokerConfig, bound: Mapping[str, Address]) -> dict[str, Address]:
    """Return the address by which others reach each listener; `bound` has those it listens at.

    Raises:
        InvalidConfig: not a listener, an unknown name, or a listener on every interface that has
            no other address.
    """
    text = config.text("advertised.listeners")
    given = _parsed("advertised.listeners", text) if text else {}
    unknown = sorted(set(given) - set(bound))
    if unknown:
        raise InvalidConfig(
            "advertised.listeners has names that are not in listeners. "
            f"names={','.join(unknown)} listeners={config.text('listeners')}"
        )
    found = {}
    for name, at in bound.items():
        asked = given.get(name, at)
        found[name] = Address(asked.host or at.host, asked.port or at.port)
        if found[name].host in EVERY_INTERFACE:
            raise InvalidConfig(
                "clients need to be told a host that reaches the broker: set advertised.listeners. "
                f"listeners={config.text('listeners')} advertised.listeners={text!r}"
            )
    return found


def _parsed(setting: str, text: str) -> dict[str, Address]:
    found: dict[str, Address] = {}
    words = [word.strip() for word in text.split(",")]
    if len(words) > LISTENERS_MAX:
        raise InvalidConfig(f"{setting} has too many listeners. most={LISTENERS_MAX}")
    for word in words:
        match = _LISTENER.fullmatch(word)
        if match is None or int(match.group(3)) > PORT_MAX:
            raise InvalidConfig(
                f"{setting} takes NAME://host:port, with commas between. {setting}={text!r}"
            )
        name, host, port = match.groups()
        if name.upper() in found:
            raise InvalidConfig(f"{setting} has a name twice. name={name} {setting}={text!r}")
        found[name.upper()] = Address(host.strip("[]"), int(port))
    return found


def _protocols(config: BrokerConfig) -> dict[str, str]:
    setting = "listener.security.protocol.map"
    found = {}
    for word in config.text(setting).split(","):
        name, colon, protocol = word.strip().partition(":")
        if not colon or protocol.upper() not in SecurityProtocol.__members__:
            raise InvalidConfig(
                f"{setting} takes NAME:PROTOCOL, with commas between; protocols are "
                f"{', '.join(SecurityProtocol)}. {setting}={config.text(setting)!r}"
            )
        found[name.upper()] = protocol.upper()
    return found


def _protocol(name: str, protocols: Mapping[str, str]) -> SecurityProtocol:
    protocol = protocols.get(name, name)
    if protocol not in SecurityProtocol.__members__:
        raise InvalidConfig(
            "a listener has no security protocol: set listener.security.protocol.map. "
            f"listener={name}"
        )
    return SecurityProtocol[protocol]


def _inter_broker(
    config: BrokerConfig, given: Mapping[str, Address], protocols: Mapping[str, str]
) -> str:
    name = config.text("inter.broker.listener.name").upper()
    protocol = config.text("security.inter.broker.protocol")
    if name and protocol:
        raise InvalidConfig(
            "set inter.broker.listener.name or security.inter.broker.protocol, not both. "
            f"inter.broker.listener.name={name} security.inter.broker.protocol={protocol}"
        )
    wanted = name or protocol
    if not wanted:
        plain = [one for one in given if protocols.get(one, one) == SecurityProtocol.PLAINTEXT]
        return plain[0] if plain else next(iter(given))
    if wanted not in given:
        raise InvalidConfig(
            "the listener for brokers is not one of the listeners. "
            f"listener={wanted} listeners={','.join(given)}"
        )
    return wanted
