"""Addresses: a broker's listener and its advertised address, which always leads to the listener.

On one machine (a local master) both are loopback, independent of the machine's networks. A
laptop's addresses change, and a host's own name may resolve to anything or to nothing. On a
cluster a broker listens on every interface and advertises the address by which it reaches the
driver.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from sparklog.broker.network.listener_sockets import EVERY_INTERFACE

LOOPBACK: Final = "127.0.0.1"
ALL: Final = ""
"""Every interface, for IPv4 and IPv6, as Kafka writes it."""

_ELSEWHERE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation: asking the way there sends nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Listen and advertised addresses of the brokers of one application."""

    listen_host: str
    advertised_host: str | None
    """None: the address by which the broker's machine reaches the driver."""


def is_local(master: str) -> bool:
    """Return whether all of an application's processes are on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def place_of(
    master: str,
    listen_host: str | None,
    advertised_host: str | None,
    own_address: Callable[[], str],
) -> Place:
    """Return where brokers of an application on `master` listen and what they advertise.

    Args:
        `master`: Spark's.
        `listen_host`: as the user says, None for the default.
        `advertised_host`: as the user says, None for the default.
        `own_address`: returns this machine's address for others.
    """
    local = is_local(master)
    if listen_host is None:
        within = local and (advertised_host is None or is_loopback(advertised_host))
        listen_host = LOOPBACK if within else ALL
    if advertised_host is not None:
        return Place(listen_host, advertised_host)
    if listen_host not in EVERY_INTERFACE:
        return Place(listen_host, listen_host)
    return Place(ALL, own_address() if local else None)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine for itself alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def outward_address() -> str:
    """Return the address by which other machines reach this one, as well as it is known.

    That of the interface with the default route; else one that the host's name has; else loopback.
    """
    for family, elsewhere in _ELSEWHERE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((elsewhere, 9))
            except OSError:
                continue  # no way there: no route, or no addresses of this kind
            found = str(probe.getsockname()[0])
        if not is_loopback(found):
            return found
    try:
        named = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return LOOPBACK
    return next((str(a[0]) for *_, a in named if not is_loopback(str(a[0]))), LOOPBACK)
