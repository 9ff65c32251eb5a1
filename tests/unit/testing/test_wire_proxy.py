"""The proxy's faults reach the brokers that a test names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from sparklog.broker.network import cluster_secret
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.request import BROKERS_CLIENT
from sparklog.testing.wire_proxy import NAME_AT, WireProxy

SECRET = "0123456789abcdef" * 2
REPLY_S = 10.0


def with_code(broker_id: int, peer: Address) -> str:
    return cluster_secret.client_id(broker_id, SECRET, peer)


def before_metadata(broker_id: int, peer: Address) -> str:
    return f"{BROKERS_CLIENT}{broker_id}"


def as_reach(broker_id: int, peer: Address) -> str:
    return f"{BROKERS_CLIENT}{broker_id}-reach-0123-1"


def passes(proxy: WireProxy, client_id: str) -> bool:
    """Say whether a request of a client reaches the server behind `proxy`, which echoes it."""
    name = client_id.encode()
    frame = bytes(NAME_AT) + len(name).to_bytes(2, "big") + name
    with socket.create_connection(("127.0.0.1", proxy.port), REPLY_S) as caller:
        caller.sendall(frame)
        with suppress(ConnectionResetError):
            return caller.recv(len(frame), socket.MSG_WAITALL) == frame
    return False


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Return the port of a server that sends back what it gets, until the test ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listener.accept()
                    with caller, suppress(OSError):
                        caller.sendall(caller.recv(4096))

        server = threading.Thread(target=serve)
        server.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        server.join()


@pytest.mark.parametrize("client_id_of", [with_code, before_metadata, as_reach])
def test_proxy_refuses_a_broker_by_its_id_with_any_client_id(
    client_id_of: Callable[[int, Address], str], echo_port: int
) -> None:
    proxy = WireProxy()
    try:
        proxy.lead_to(echo_port)
        peer = Address("127.0.0.1", proxy.port)
        proxy.refuse("broker-1")
        assert not passes(proxy, client_id_of(1, peer))
        assert passes(proxy, client_id_of(12, peer))
        assert passes(proxy, "a client")
        proxy.heal()
        assert passes(proxy, client_id_of(1, peer))
        assert proxy.seen == {"broker-1", "broker-12", "a client"}
    finally:
        proxy.close()
