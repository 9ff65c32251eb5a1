"""Sockets of one interface, of a name, and of every interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from sparklog.broker.network.listener_sockets import accept_after_first_bytes, open_sockets


def reached(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as client:
        return client.connect_ex((host, port)) == 0


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_every_interface_is_ipv4_and_ipv6_however_it_is_written(host: str) -> None:
    with ExitStack() as stack:
        (one,) = (stack.enter_context(s) for s in open_sockets(host, 0))
        one.listen()
        port = one.getsockname()[1]
        assert reached("127.0.0.1", port)
        assert reached("::1", port) or not socket.has_dualstack_ipv6()


def test_socket_of_one_interface_is_closed_to_others() -> None:
    with ExitStack() as stack:
        (one,) = (stack.enter_context(s) for s in open_sockets("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        assert reached("127.0.0.1", port)
        assert not reached("127.0.0.2", port)
        assert not reached("::1", port)


def test_addresses_of_a_name_share_one_port() -> None:
    with ExitStack() as stack:
        found = [stack.enter_context(s) for s in open_sockets("localhost", 0)]
        assert len({s.getsockname()[1] for s in found}) == 1
        assert all(s.getsockname()[0] in ("127.0.0.1", "::1") for s in found)


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        open_sockets("127.0.0.1", other.getsockname()[1])


def test_connections_are_accepted_in_the_order_of_their_bytes() -> None:
    (listening,) = open_sockets("127.0.0.1", 0)
    with ExitStack() as stack:
        stack.enter_context(listening)
        accept_after_first_bytes(listening, 600)
        listening.listen()
        at = listening.getsockname()
        silent, eager = (stack.enter_context(socket.create_connection(at)) for _ in range(2))
        listening.settimeout(10)
        for client in (eager, silent):
            client.send(b"x")
            accepted, peer = listening.accept()
            accepted.close()
            assert peer == client.getsockname()
