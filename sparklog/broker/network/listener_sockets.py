"""Sockets to accept connections from: on one interface or on all, for IPv4 and IPv6 alike.

"Every interface" is one socket for both kinds of addresses where the machine has both, as in Java.
So the broker listens to an advertised address of either kind; the wildcard's kind is irrelevant.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Final

EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - asked for by the caller
BIND_TRIES: Final = 8
"""For port 0 and a name with several addresses: the port that is free at the first may be taken at
the next one."""


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to all addresses of `host`, all with one port; 0 takes a free one.

    They listen when a server accepts from them.

    Raises:
        OSError: the address is taken, not this machine's, or its name is unknown.
    """
    if host in EVERY_INTERFACE:
        return [_every_interface(port)]
    kinds = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = list(dict.fromkeys((family, str(address[0])) for family, *_, address in kinds))
    for left in reversed(range(BIND_TRIES)):
        try:
            return _at_one_port(places, port)
        except OSError as error:
            if port or not left or error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("the last try returns or raises")


def accept_after_first_bytes(listening: socket.socket, wait_s: float) -> None:
    """Let a socket's connections wait in the kernel for their first bytes.

    One without any is accepted after about `wait_s`: the kernel rounds it up to a time of its
    own. Systems other than Linux accept at once.
    """
    if hasattr(socket, "TCP_DEFER_ACCEPT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, round(wait_s))


def _every_interface(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return _bound(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise  # else IPv6 is compiled in and switched off
    return _bound(socket.AF_INET, "0.0.0.0", port)  # noqa: S104 - asked for by the caller


def _at_one_port(places: Sequence[tuple[int, str]], port: int) -> list[socket.socket]:
    found: list[socket.socket] = []
    refused: OSError | None = None
    try:
        for family, address in places:
            try:
                found.append(_bound(family, address, port))
            except OSError as error:
                # `localhost` often has an address of a kind that is switched off.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                refused = error
                continue
            port = int(found[0].getsockname()[1])
    except OSError:
        for one in found:
            one.close()
        raise
    if not found and refused is not None:
        raise refused
    return found


def _bound(family: int, address: str, port: int) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address != "::"))
        one.setblocking(False)
        one.bind((address, port))
    except OSError:
        one.close()
        raise
    return one
