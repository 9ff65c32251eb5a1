"""The listener over real sockets: order, back-pressure, limits, and clients that misbehave."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.network.connection import COMMITS_MAX
from sparklog.broker.network.request_memory import RequestMemoryPool
from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import CloseConnection, RequestContext
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.quotas import CONNECTION_CREATION_RATE, entity_of
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import ResponseBuilder, build_request, build_request_part
from sparklog.protocol.messages.frames import RequestHeader

Handler = Callable[[Any, RequestContext], Awaitable[Any]]
Story = Callable[[Server, Address], Coroutine[Any, Any, None]]


def versions(error: ErrorCode = ErrorCode.none, version: int = 0) -> Any:
    return ResponseBuilder(Api.API_VERSIONS, version).response(
        error_code=error, api_keys=(), throttle_time=timedelta(0)
    )


def tell(handler: Handler, story: Story, **settings: str) -> None:
    """Serve with `handler` on a free port and run `story` against it."""

    async def run() -> None:
        config = parse_broker_configs({k.replace("_", "."): v for k, v in settings.items()})
        server = Server(
            handler, lambda _: versions(ErrorCode.unsupported_version), config, BrokerMetrics()
        )
        address = await server.start(Address("127.0.0.1", 0))
        try:
            async with asyncio.timeout(10):
                await story(server, address)
        finally:
            await server.stop()
            while Client.opened:
                await Client.opened.pop().close()

    asyncio.run(run())


class Client:
    """A raw client: frames out, frames in."""

    opened: ClassVar[list[Client]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.opened.append(self)

    @classmethod
    async def connect(cls, address: Address) -> Client:
        return cls(*await asyncio.open_connection(address.host, address.port))

    async def close(self) -> None:
        self.writer.transport.abort()
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def send(self, request: Any, correlation_id: int) -> None:
        self.writer.write(frames.encode_request(request, correlation_id, "test"))

    async def answer(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def next_id(self) -> int:
        return frames.correlation_id_of(await self.answer())

    async def hung_up(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


def metadata(topic: str = "t") -> Any:
    named = build_request_part(Api.METADATA, 1, "MetadataRequestTopic", name=topic)
    return build_request(Api.METADATA, 1, topics=(named,))


def metadata_answer(request: Any) -> Any:
    return ResponseBuilder.to(request).response(brokers=(), controller_id=0, topics=())


def heartbeat() -> Any:
    return build_request(Api.API_VERSIONS, 0)


def create() -> Any:
    return build_request(Api.CREATE_TOPICS, 2, topics=(), timeout=timedelta(0), validate_only=False)


def create_answer(request: Any) -> Any:
    return ResponseBuilder.to(request).response(throttle_time=timedelta(0), topics=())


async def answer_any(request: Any, context: RequestContext) -> Any:
    if request.__api_key__ == Api.METADATA:
        return metadata_answer(request)
    return create_answer(request) if request.__api_key__ == Api.CREATE_TOPICS else versions()


def test_answers_come_in_the_order_of_their_requests() -> None:
    gate = asyncio.Event()
    started: list[int] = []

    async def handler(request: Any, context: RequestContext) -> Any:
        started.append(len(started))
        if len(started) == 1:
            await gate.wait()
        else:
            gate.set()
        return metadata_answer(request)

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        for number in range(5):
            client.send(metadata(), number)
        assert [await client.next_id() for _ in range(5)] == list(range(5))
        assert started == list(range(5))

    tell(handler, story)


def test_change_waits_for_earlier_requests_and_delays_later_ones() -> None:
    log: list[str] = []

    async def handler(request: Any, context: RequestContext) -> Any:
        name = type(request).__name__
        log.append(f"start {name}")
        await asyncio.sleep(0.01)  # long enough for what comes after to overtake
        log.append(f"end {name}")
        return await answer_any(request, context)

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        for number, request in enumerate((metadata(), create(), metadata())):
            client.send(request, number)
        assert [await client.next_id() for _ in range(3)] == [0, 1, 2]

    tell(handler, story)
    order = ["MetadataRequest", "CreateTopicsRequest", "MetadataRequest"]
    assert log == [f"{what} {name}" for name in order for what in ("start", "end")]


def test_offset_commits_gather_in_the_order_of_arrival() -> None:
    sent = ["a", "b", "c"]
    begun: list[str] = []
    all_began = asyncio.Event()

    async def handle(request: Any, context: RequestContext) -> Any:
        begun.append(request.group_id)
        if len(begun) == len(sent):
            all_began.set()
        await all_began.wait()
        return ResponseBuilder.to(request).response(throttle_time=timedelta(0), topics=())

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        for number, group_id in enumerate(sent):
            request = build_request(
                Api.OFFSET_COMMIT, 7, group_id=group_id, generation_id_or_member_epoch=-1,
                member_id="", group_instance_id=None, topics=(),
            )  # fmt: skip
            client.send(request, number)
        assert [await client.next_id() for _ in sent] == [0, 1, 2]
        assert begun == sent

    tell(handle, story)


def test_a_request_may_have_no_answer() -> None:
    async def handler(request: Any, context: RequestContext) -> Any:
        return None if request.topics[0].name == "quiet" else metadata_answer(request)

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        for number, topic in enumerate(("a", "quiet", "b")):
            client.send(metadata(topic), number)
        assert [await client.next_id() for _ in range(2)] == [0, 2]

    tell(handler, story)


def test_future_version_of_api_versions_gets_the_oldest_response() -> None:
    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        body = struct.pack(">hhi", 18, 99, 7) + b"future"
        client.writer.write(struct.pack(">i", len(body)) + body)
        frame = await client.answer()
        response = frames.decode_response(frame, type(heartbeat()))
        assert response.error_code is ErrorCode.unsupported_version
        client.send(heartbeat(), 8)
        assert await client.next_id() == 8

    tell(answer_any, story)


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhi", 8, 77, 0, 1),
        struct.pack(">ihhi", 8, 3, 99, 1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
        struct.pack(">i", 0),
    ],
    ids=["http", "negative", "huge", "no such key", "no such version", "huge array", "empty"],
)
def test_noise_ends_its_connection_and_no_other(noise: bytes) -> None:
    async def story(server: Server, address: Address) -> None:
        good, bad = await Client.connect(address), await Client.connect(address)
        bad.writer.write(noise)
        assert await bad.hung_up()
        good.send(heartbeat(), 1)
        assert await good.next_id() == 1

    tell(answer_any, story)


def test_a_handler_that_breaks_ends_its_connection_and_no_other() -> None:
    async def handler(request: Any, context: RequestContext) -> Any:
        if request.__api_key__ == Api.CREATE_TOPICS:
            raise RuntimeError("a bug")
        if request.__api_key__ == Api.METADATA:
            raise CloseConnection("nobody waits for an answer")
        return versions()

    async def story(server: Server, address: Address) -> None:
        for request in (create(), metadata()):
            client = await Client.connect(address)
            client.send(request, 1)
            assert await client.hung_up()
        client = await Client.connect(address)
        client.send(heartbeat(), 1)
        assert await client.next_id() == 1

    tell(handler, story)


def test_a_connection_over_the_limit_is_closed() -> None:
    async def story(server: Server, address: Address) -> None:
        first = await Client.connect(address)
        first.send(heartbeat(), 1)
        await first.next_id()
        second = await Client.connect(address)
        assert await second.hung_up()
        first.writer.close()
        await asyncio.sleep(0.05)  # the server notices it a moment later
        assert server.connections == 0
        third = await Client.connect(address)
        third.send(heartbeat(), 3)
        assert await third.next_id() == 3
        server.in_force = lambda: parse_broker_configs({"max.connections": "2"})
        fourth = await Client.connect(address)
        fourth.send(heartbeat(), 4)
        assert await fourth.next_id() == 4, "the limit may be raised while it serves"

    tell(answer_any, story, max_connections="1")


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def handler(request: Any, context: RequestContext) -> Any:
        await asyncio.sleep(0.3)  # busy for longer than a connection may idle
        return versions()

    async def story(server: Server, address: Address) -> None:
        idle, busy = await Client.connect(address), await Client.connect(address)
        busy.send(heartbeat(), 1)
        assert await idle.hung_up()
        assert await busy.next_id() == 1

    tell(handler, story, connections_max_idle_ms="50")


def test_server_closes_idle_connections_soon_when_they_may_not_idle() -> None:
    async def story(server: Server, address: Address) -> None:
        assert await (await Client.connect(address)).hung_up()

    tell(answer_any, story, connections_max_idle_ms="0")


@pytest.mark.parametrize("idle_ms", ["-1", "-600000"])
def test_server_keeps_idle_connections_when_their_time_is_negative(idle_ms: str) -> None:
    async def story(server: Server, address: Address) -> None:
        idle = await Client.connect(address)
        await asyncio.sleep(0.1)  # a server that took it for a time would have closed it by now
        idle.send(heartbeat(), 1)
        assert await idle.next_id() == 1

    tell(answer_any, story, connections_max_idle_ms=idle_ms)


def test_a_frame_over_the_limit_is_refused_and_one_at_it_is_not() -> None:
    async def story(server: Server, address: Address) -> None:
        fits, large = metadata("t" * 80), metadata("t" * 81)
        client = await Client.connect(address)
        client.send(fits, 1)
        assert await client.next_id() == 1
        client.send(large, 2)
        assert await client.hung_up()

    tell(answer_any, story, socket_request_max_bytes="100")


def test_requests_beyond_the_budget_wait_and_are_all_answered() -> None:
    working = 0
    most = 0

    async def handler(request: Any, context: RequestContext) -> Any:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0.002)  # so that requests overlap
        working -= 1
        return metadata_answer(request)

    async def story(server: Server, address: Address) -> None:
        clients = [await Client.connect(address) for _ in range(4)]
        for number in range(10):
            for client in clients:
                client.send(metadata("t" * 76), number)
        for client in clients:
            assert [await client.next_id() for _ in range(10)] == list(range(10))

    tell(handler, story, queued_max_request_bytes="250")
    assert most == 2


def test_a_client_that_takes_no_answers_stops_being_served() -> None:
    served = 0

    async def handler(request: Any, context: RequestContext) -> Any:
        nonlocal served
        served += 1
        named = ResponseBuilder.to(request).entity(
            "MetadataResponseBroker", node_id=1, host="h" * 30_000, port=1, rack=None
        )
        return ResponseBuilder.to(request).response(
            brokers=(named,) * 10, controller_id=0, topics=()
        )

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        for number in range(300):
            client.send(metadata(), number)
        before = -1
        while served != before:
            before = served
            await asyncio.sleep(0.1)  # until the server has stopped to read
        assert 0 < served < 150
        assert [await client.next_id() for _ in range(300)] == list(range(300))

    tell(handler, story)


def test_offset_commits_gather_beyond_the_limit_of_other_requests() -> None:
    gate, started = asyncio.Event(), 0
    request = build_request(
        Api.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        group_instance_id=None, topics=(),
    )  # fmt: skip

    async def handler(request: Any, context: RequestContext) -> Any:
        nonlocal started
        started += 1
        if started == COMMITS_MAX:
            gate.set()
        await gate.wait()
        return ResponseBuilder.to(request).response(throttle_time=timedelta(0), topics=())

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        for number in range(300):
            client.send(request, number)
        assert [await client.next_id() for _ in range(300)] == list(range(300))

    tell(handler, story)


def test_server_stops_after_it_has_answered_all_requests() -> None:
    gate = asyncio.Event()

    async def handler(request: Any, context: RequestContext) -> Any:
        await gate.wait()
        return metadata_answer(request)

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        client.send(metadata(), 4)
        await asyncio.sleep(0.05)  # the request is at work
        stopping = asyncio.ensure_future(server.stop(drain_s=5))
        await asyncio.sleep(0.05)  # the server has begun to stop
        gate.set()
        assert await client.next_id() == 4
        await stopping
        assert await client.hung_up()
        with pytest.raises(ConnectionError):
            await Client.connect(address)

    tell(handler, story)


def test_request_context_names_the_client() -> None:
    seen: list[RequestContext] = []

    async def handler(request: Any, context: RequestContext) -> Any:
        seen.append(context)
        return versions()

    async def story(server: Server, address: Address) -> None:
        client = await Client.connect(address)
        client.send(heartbeat(), 1)
        await client.next_id()

    tell(handler, story)
    assert seen == [RequestContext("test", "127.0.0.1")]


def test_a_request_larger_than_the_whole_budget_is_let_in_alone() -> None:
    memory = RequestMemoryPool(10)
    assert memory.take(50)
    assert not memory.take(1)
    tried: list[int] = []
    memory.wait(lambda: tried.append(1))
    memory.give_back(50)
    assert tried == [1]
    assert memory.take(10)
    assert memory.used_bytes == 10


def test_arriving_large_request_leaves_half_of_the_budget_free() -> None:
    memory = RequestMemoryPool(10)
    assert memory.reserve(10)
    assert not memory.reserve(1)
    assert memory.take(5)
    assert not memory.take(1)
    memory.give_back(5)
    memory.arrived(10)
    assert not memory.take(1)
    memory.give_back(10)
    assert memory.used_bytes == 0


def test_headers_of_the_oldest_version_need_no_client_id() -> None:
    frame = bytes(frames.encode_request(heartbeat(), 3, None))[4:]
    assert frames.decode_request(frame)[0] == RequestHeader(18, 0, 3, None)


def test_a_port_that_is_taken_is_named() -> None:
    async def story(server: Server, address: Address) -> None:
        with pytest.raises(OSError, match="already in use") as error:
            await server.start(address)
        assert error.value.filename == f"{address.host}:{address.port}"

    tell(answer_any, story)


def test_connection_over_the_quota_of_its_address_is_held_then_closed() -> None:
    async def story(server: Server, address: Address) -> None:
        quotas = {entity_of({"ip": "127.0.0.1"}): {CONNECTION_CREATION_RATE: 2.0}}
        server.client_quotas = lambda: quotas
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        first, second, held = [await Client.connect(address) for _ in range(3)]
        for client in (first, second):
            client.send(build_request(Api.API_VERSIONS, 0), 1)
        assert await first.answer()
        assert await second.answer()
        assert await held.reader.read() == b""
        assert loop.time() - began_s >= 0.45
        again = await Client.connect(address)
        again.send(build_request(Api.API_VERSIONS, 0), 2)
        assert await again.answer()
        assert server.connections == 3

    tell(answer_any, story, quota_window_num="2")
