"""Limited log lines: a repeated event is logged now and then, with the number of omitted lines."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sparklog.broker import handlers
from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.log_limiter import EVERY_S, RateLimitedLog
from sparklog.core.config.broker import parse_broker_configs
from tests.harness.broker_world import World


def test_first_event_is_logged_and_then_one_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    async def story() -> None:
        repeated = RateLimitedLog()
        for times in (4, 2, 1):
            for _ in range(times):
                repeated.warn(logging.getLogger(__name__), "it rains in %s", "May")
            await asyncio.sleep(EVERY_S)
        assert caplog.messages == [f"it rains in May suppressed_before={n}" for n in (0, 3, 1)]

    world.run(story())


def test_storm_of_connections_over_the_limit_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async def handle(*_: object) -> None:
            raise AssertionError("no request is sent")

        config = parse_broker_configs({"max.connections": "1"})
        server = Server(handle, handlers.refuse, config)
        at = await server.start(Address("127.0.0.1", 0))
        _, first = await asyncio.open_connection(at.host, at.port)
        for _ in range(50):
            reader, writer = await asyncio.open_connection(at.host, at.port)
            assert await reader.read() == b""
            writer.close()
        assert server.connections == 1
        (line,) = caplog.messages
        assert "raise max.connections=1" in line
        first.close()
        await server.stop()

    asyncio.run(story())
