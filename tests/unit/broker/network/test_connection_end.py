"""The end of a client's connection releases what the client held."""

from __future__ import annotations

import asyncio
from typing import Any

from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.request import RequestContext
from tests.unit.broker.network.test_server import Client, metadata, metadata_answer, tell


def test_functions_are_called_once_when_the_connection_ends() -> None:
    ended: list[str] = []
    over = asyncio.Event()

    async def handler(request: Any, context: RequestContext) -> Any:
        assert context.connection is not None
        context.connection.call("a", lambda: ended.append("replaced"))
        context.connection.call("a", lambda: ended.append("a"))
        context.connection.call("b", lambda: ended.append("b"))
        context.connection.call("c", over.set)
        return metadata_answer(request)

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        client.send(metadata(), 1)
        await client.next_id()
        assert ended == []
        await client.close()
        async with asyncio.timeout(10):
            await over.wait()
        assert ended == ["a", "b"]

    tell(handler, story)
