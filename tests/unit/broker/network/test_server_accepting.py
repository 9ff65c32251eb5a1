"""A fault at one connection does not end the listener."""

from __future__ import annotations

import pytest

from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address
from sparklog.core.config.broker import BrokerConfig
from tests.unit.broker.network.test_server import Client, answer_any, metadata, tell


def test_a_fault_at_one_connection_does_not_end_the_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(server: Server, address: Address) -> None:
        config, calls = server.in_force(), iter([True])

        def broken_once() -> BrokerConfig:
            if next(calls, False):
                raise ZeroDivisionError
            return config

        server.in_force = broken_once
        assert await (await Client.connect(address)).hung_up()
        client = await Client.connect(address)
        client.send(metadata(), 7)
        assert await client.next_id() == 7
        assert "a connection was not accepted" in caplog.text

    tell(answer_any, story)
