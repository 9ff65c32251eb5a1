"""The suite needs no network: a connection to another machine fails the test that opens it."""

from __future__ import annotations

import socket

import pytest


def test_a_connection_to_another_machine_is_refused() -> None:
    with (
        socket.socket() as client,
        pytest.raises(AssertionError, match="connection to another machine"),
    ):
        client.connect(("192.0.2.1", 9))


def test_a_connection_to_this_machine_is_let_through() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        with socket.create_connection((host, port)) as client:
            assert client.getpeername() == (host, port)
