"""Limited log lines: a repeated event is logged now and then, with the number of omitted lines."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sparklog.broker import handlers
from sparklog.broker.network.server import Server
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
    world = World()

    async def story() -> None:
        async def handle(*_: object) -> None:
            raise AssertionError("nobody is let in")

        config = parse_broker_configs({"max.connections": "1"})
        server = Server(handle, handlers.refuse, config)
        for _ in range(100):
            server._accept()
        assert server.connections == 1
        (told,) = caplog.messages
        assert "raise max.connections=1" in told

    world.run(story())
