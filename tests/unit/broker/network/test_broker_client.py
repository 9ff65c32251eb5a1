"""Brokers' calls over real sockets: pipelined, and given up with their connection."""

from __future__ import annotations

import asyncio
import gc
import struct
from contextlib import suppress
from typing import Any

import pytest

from sparklog.broker.network.broker_client import TcpNetwork
from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.broker.runtime.request import RequestContext
from sparklog.protocol.api_keys import Api
from tests.unit.broker.network.test_server import answer_any, heartbeat, metadata, tell, versions


def test_brokers_call_each_other_in_parallel_over_one_connection() -> None:
    async def story(server: Server, address: Address) -> None:
        network = TcpNetwork("broker 1")
        calls = [network.call(address, metadata(str(n)), timeout_s=5) for n in range(20)]
        answers = await asyncio.gather(*calls)
        assert all(a.brokers == () for a in answers)
        assert server.connections == 1
        await network.call(address, heartbeat(), timeout_s=5, purpose="other")
        assert server.connections == 2
        await network.close()

    tell(answer_any, story)


async def silent_about_metadata(request: Any, context: RequestContext) -> Any:
    await asyncio.sleep(60 if request.__api_key__ == Api.METADATA else 0)
    return versions()


def test_client_distinguishes_a_dead_peer_from_a_silent_one() -> None:
    async def story(server: Server, address: Address) -> None:
        network = TcpNetwork("broker 1")
        with pytest.raises(TimeoutError):
            await network.call(address, metadata(), timeout_s=0.05)
        await network.call(address, heartbeat(), timeout_s=5)
        pending = asyncio.ensure_future(network.call(address, metadata(), timeout_s=5))
        await asyncio.sleep(0.05)  # the call has been sent
        await server.stop()
        with pytest.raises(Unreachable):
            await pending
        with pytest.raises(Unreachable):
            await network.call(address, heartbeat(), timeout_s=5)

    tell(silent_about_metadata, story)


def test_failure_of_an_abandoned_connect_is_not_reported_by_asyncio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        refused = asyncio.Event()

        async def connect(*given: Any) -> Any:
            await refused.wait()
            raise ConnectionRefusedError

        monkeypatch.setattr(loop, "create_connection", connect)
        network = TcpNetwork("broker 1")
        with pytest.raises(TimeoutError):
            await network.call(Address("127.0.0.1", 1), metadata(), timeout_s=0.01)
        refused.set()
        await asyncio.sleep(0)  # the connection fails
        await asyncio.sleep(0)  # its task has ended
        await network.close()

    asyncio.run(run())
    gc.collect()
    assert complaints == []


def test_an_answer_that_is_garbage_is_as_good_as_none() -> None:
    async def run() -> None:
        async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.write(struct.pack(">ii", 6, 0) + b"\0\0")
            await writer.drain()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            left.set()

        left = asyncio.Event()
        server = await asyncio.start_server(garbage, "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        network = TcpNetwork("broker 1")
        with pytest.raises(Unreachable, match="garbage"):
            await network.call(address, metadata(), timeout_s=5)
        await network.close()
        await left.wait()
        server.close()

    asyncio.run(run())


def test_late_call_fails_later_calls_and_the_next_one_reconnects() -> None:
    async def story(server: Server, address: Address) -> None:
        network = TcpNetwork("broker 1")
        late = asyncio.ensure_future(network.call(address, metadata(), timeout_s=0.05))
        behind = asyncio.ensure_future(network.call(address, metadata(), timeout_s=60))
        for call in (late, behind):
            with pytest.raises(TimeoutError, match="no answer in time"):
                await call
        # On the old connection it would wait for the answers before it.
        await network.call(address, heartbeat(), timeout_s=5)
        await network.close()

    tell(silent_about_metadata, story)


def test_timeout_of_a_cancelled_call_does_not_fail_later_calls() -> None:
    asked = asyncio.Event()

    async def handler(request: Any, context: RequestContext) -> Any:
        asked.set()
        await asyncio.sleep(0.2)  # longer than the cancelled call would have waited
        return await answer_any(request, context)

    async def story(server: Server, address: Address) -> None:
        network = TcpNetwork("broker 1")
        cancelled = asyncio.ensure_future(network.call(address, metadata(), timeout_s=0.1))
        await asked.wait()
        cancelled.cancel()
        await network.call(address, metadata(), timeout_s=5)
        assert server.connections == 1
        await network.close()

    tell(handler, story)
