"""Large requests that arrive slowly or never: what they take of the memory, and how long."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.broker.network import connection
from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.request import RequestContext
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from tests.harness.handler_requests import fetch
from tests.unit.broker.network.test_server import Client, heartbeat, metadata_answer, tell, versions

MIB = 1 << 20


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until the server has seen what a client did; the test's clock has a deadline."""
    for _ in iter(is_so, True):
        await asyncio.sleep(0.001)  # lets the server's callbacks run


def half_a_frame(size: int, sent: int) -> bytes:
    return struct.pack(">i", size) + bytes(sent)


def test_unfinished_large_requests_leave_half_of_the_memory_free() -> None:
    async def handler(_request: Any, _context: RequestContext) -> Any:
        return versions()

    async def story(server: Server, address: Address) -> None:
        memory = server._service.request_memory
        hostile = [await Client.connect(address) for _ in range(8)]
        for one in hostile:
            one.writer.write(half_a_frame(3 * MIB, 200_000))
            await one.writer.drain()
        await until(lambda: memory.used_bytes == 6 * MIB)
        kind = await Client.connect(address)
        for number in range(50):
            kind.send(heartbeat(), number)
            assert await kind.next_id() == number
            assert memory.used_bytes == 6 * MIB
        for one in hostile:
            await one.close()
        await until(lambda: server.connections == 1)
        assert memory.used_bytes == 0

    tell(handler, story, queued_max_request_bytes=str(14 * MIB))


def test_a_large_request_is_answered_once_it_is_whole() -> None:
    async def handler(request: Any, _context: RequestContext) -> Any:
        return metadata_answer(request)

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        named = [
            build_request_part(Api.METADATA, 1, "MetadataRequestTopic", name="t" * 200)
            for _ in range(2_000)
        ]
        large = build_request(Api.METADATA, 1, topics=tuple(named))
        for number in range(3):
            client.send(large, number)
        for number in range(3):
            assert await client.next_id() == number
        client.writer.write(half_a_frame(100_000, 100_000))
        assert await client.hung_up()
        await until(lambda: server.connections == 0)
        assert server._service.request_memory.used_bytes == 0

    tell(handler, story)


def test_a_request_that_takes_too_long_to_arrive_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "FRAME_S", 0.0)
    monkeypatch.setattr(connection, "FRAME_BYTES_PER_S", 100 * MIB)

    async def handler(_request: Any, _context: RequestContext) -> Any:
        return versions()

    async def story(server: Server, address: Address) -> None:
        slow = await Client.connect(address)
        slow.writer.write(half_a_frame(MIB, 100_000))
        assert await slow.hung_up()
        assert server._service.request_memory.used_bytes == 0

    tell(handler, story)


def test_fetch_of_a_client_that_leaves_at_once_gives_its_memory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_task = connection.Connection.start_task

    def start_and_lose(self: connection.Connection, exchange: Any, work: Any) -> None:
        start_task(self, exchange, work)
        # The same step of the loop: the task has not begun.
        self.connection_lost(None)

    monkeypatch.setattr(connection.Connection, "start_task", start_and_lose)
    ends: list[str] = []

    async def handler(_request: Any, _context: RequestContext) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        client.send(fetch("t", (0, 0)), 1)
        await until(lambda: ends == ["cancelled"])
        await until(lambda: server._service.request_memory.used_bytes == 0)

    tell(handler, story)
