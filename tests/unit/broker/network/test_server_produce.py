"""Produce requests without tasks over real sockets: their order, and what stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import NoResponse, Reply, RequestContext
from sparklog.core.config.broker import parse_broker_configs
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.messages.produce_fast_path import PlainProduce
from tests.harness.handler_requests import produce
from tests.unit.broker.network.test_server import Client, versions


class Broker:
    """Record how each request began, and answer on demand."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.left: set[int] = set()
        """Partitions whose requests are not begun."""
        self.begun: dict[int, tuple[PlainProduce, Reply]] = {}
        self.gates: dict[int, asyncio.Event] = {}
        self.metrics = BrokerMetrics()
        self.news = asyncio.Event()
        self.breaks = False

    def begin(self, asked: PlainProduce, reply: Reply, context: RequestContext) -> bool:
        if self.breaks:
            raise ZeroDivisionError
        number = asked.topics[0].partitions[0][0]
        if number in self.left:
            return False
        self._note("begun", number)
        self.begun[number] = asked, reply
        return True

    def _note(self, how: str, number: int) -> None:
        self.taken.append((how, number))
        self.news.set()

    def answer(self, number: int, throttle_ms: int = 0) -> None:
        asked, reply = self.begun[number]
        frame = produce_fast_path.answer(asked, [(number, -1, 0)], throttle_ms)
        reply.answer(frame, timedelta(milliseconds=throttle_ms))

    async def handle(self, request: Any, context: RequestContext) -> Any:
        number = request.topic_data[0].partition_data[0].index
        self._note("task", number)
        await self.gates.setdefault(number, asyncio.Event()).wait()
        return response(request, number, ErrorCode.none)

    def serve(self, story: Coroutine[Any, Any, None], **settings: str) -> None:
        async def run() -> None:
            config = parse_broker_configs({k.replace("_", "."): v for k, v in settings.items()})
            server = Server(
                self.handle,
                lambda _: versions(),
                config,
                self.metrics,
            )
            server.begin_produce_by(self.begin)
            self.address = await server.start(Address("127.0.0.1", 0))
            try:
                async with asyncio.timeout(10):
                    await story
            finally:
                await server.stop()
                while Client.opened:
                    await Client.opened.pop().close()

        asyncio.run(run())

    async def until(self, taken: int) -> None:
        while len(self.taken) < taken:
            self.news.clear()
            await self.news.wait()


def response(request: Any, number: int, error: ErrorCode) -> Any:
    answer = ResponseBuilder.to(request)
    part = answer.entity(
        "PartitionProduceResponse",
        index=number,
        error_code=error,
        base_offset=number,
        log_append_time=None,
        log_start_offset=0,
        record_errors=(),
        error_message=None,
    )
    topic = answer.entity("TopicProduceResponse", name="t", partition_responses=(part,))
    return answer.response(responses=(topic,), throttle_time=timedelta(0))


async def next_answer(client: Client, request: Any) -> tuple[int, int, ErrorCode]:
    frame = await client.answer()
    (topic,) = frames.decode_response(frame, type(request)).responses
    (part,) = topic.partition_responses
    return frames.correlation_id_of(frame), part.index, part.error_code


NONE = ErrorCode.none
THROTTLE = timedelta(milliseconds=300)
REQUEST = produce("t", (0, b"x"))


def test_responses_keep_the_order_of_requests() -> None:
    broker = Broker()

    async def story() -> None:
        client = await Client.connect(broker.address)
        for number in range(3):
            client.send(produce("t", (number, b"x")), number)
        await broker.until(3)
        assert broker.taken == [("begun", n) for n in range(3)]
        for number in (2, 0, 1):
            broker.answer(number)
        answers = [await next_answer(client, REQUEST) for _ in range(3)]
        assert answers == [(n, n, NONE) for n in range(3)]
        assert broker.metrics.requests == {("Produce", 9): 3}

    broker.serve(story())


def test_requests_after_one_with_a_task_have_tasks_until_it_ends() -> None:
    broker = Broker()
    broker.left = {1}

    async def story() -> None:
        client = await Client.connect(broker.address)
        for number in range(3):
            client.send(produce("t", (number, b"x")), number)
        await broker.until(3)
        assert broker.taken == [("begun", 0), ("task", 1), ("task", 2)]
        broker.answer(0)
        broker.gates[1].set()
        broker.gates[2].set()
        assert [await next_answer(client, REQUEST) for _ in range(3)] == [
            (n, n, NONE) for n in range(3)
        ]
        client.send(produce("t", (3, b"x")), 3)
        await broker.until(4)
        assert broker.taken[-1] == ("begun", 3)

    broker.serve(story())


def test_begun_request_may_be_answered_by_a_task() -> None:
    broker = Broker()

    async def story() -> None:
        client = await Client.connect(broker.address)
        client.send(REQUEST, 5)
        await broker.until(1)

        async def work() -> Any:
            await asyncio.sleep(0)
            return response(REQUEST, 0, ErrorCode.not_leader_or_follower)

        broker.begun[0][1].go_on(work())
        assert await next_answer(client, REQUEST) == (5, 0, ErrorCode.not_leader_or_follower)

    broker.serve(story())


def test_a_request_that_breaks_the_broker_ends_its_connection_only() -> None:
    broker = Broker()

    async def story() -> None:
        client, other = [await Client.connect(broker.address) for _ in range(2)]
        broker.breaks = True
        client.send(REQUEST, 1)
        assert await client.hung_up()
        broker.breaks = False
        # The memory that the broken request took is free again.
        other.send(REQUEST, 2)
        await broker.until(1)
        broker.answer(0)
        assert await next_answer(other, REQUEST) == (2, 0, NONE)

    broker.serve(story(), queued_max_request_bytes="60")


def test_a_client_that_is_gone_is_answered_in_vain() -> None:
    broker = Broker()

    async def story() -> None:
        client = await Client.connect(broker.address)
        client.send(REQUEST, 1)
        await broker.until(1)
        await client.close()
        other = await Client.connect(broker.address)
        other.send(produce("t", (1, b"x")), 2)
        await broker.until(2)
        broker.answer(0)
        broker.answer(1)
        assert await next_answer(other, REQUEST) == (2, 1, NONE)

    broker.serve(story())


def test_client_over_its_quota_gets_a_response_and_is_then_muted() -> None:
    broker = Broker()

    async def story() -> None:
        client, other = [await Client.connect(broker.address) for _ in range(2)]
        loop = asyncio.get_running_loop()
        client.send(produce("t", (0, b"x")), 0)
        await broker.until(1)
        began_s = loop.time()
        broker.answer(0, throttle_ms=300)
        frame = await client.answer()
        assert frames.decode_response(frame, type(REQUEST)).throttle_time == THROTTLE
        client.send(produce("t", (1, b"x")), 1)
        other.send(produce("t", (2, b"x")), 2)
        await broker.until(2)
        assert broker.taken[1] == ("begun", 2)
        broker.answer(2)
        await broker.until(3)
        assert broker.taken[2] == ("begun", 1)
        assert loop.time() - began_s >= THROTTLE.total_seconds() * 0.99

    broker.serve(story())


def test_longest_throttle_time_counts_except_at_a_closed_connection() -> None:
    broker = Broker()

    async def story() -> None:
        client = await Client.connect(broker.address)
        loop = asyncio.get_running_loop()
        for number in range(3):
            client.send(produce("t", (number, b"x")), number)
        await broker.until(3)
        began_s = loop.time()
        for number, throttle_ms in enumerate((100, 300, 0)):
            broker.answer(number, throttle_ms)
        client.send(produce("t", (3, b"x")), 3)
        await broker.until(4)
        assert loop.time() - began_s >= THROTTLE.total_seconds() * 0.99
        broker.answer(3, throttle_ms=100_000)
        await client.close()

    broker.serve(story())


def test_throttle_time_of_a_task_or_of_no_response_is_kept() -> None:
    broker = Broker()
    waits: list[float] = []

    async def handle(request: Any, context: RequestContext) -> Any:
        waits.append(asyncio.get_running_loop().time())
        if len(waits) == 1:
            return replace(response(request, 0, NONE), throttle_time=THROTTLE)
        return NoResponse(THROTTLE) if len(waits) == 2 else response(request, 0, NONE)

    broker.left = {0}
    broker.handle = handle  # type: ignore[method-assign]

    async def story() -> None:
        client = await Client.connect(broker.address)
        client.send(REQUEST, 0)
        assert await next_answer(client, REQUEST) == (0, 0, NONE)
        client.send(REQUEST, 1)
        client.send(REQUEST, 2)
        assert await next_answer(client, REQUEST) == (2, 0, NONE)
        first, second, third = waits
        assert second - first >= THROTTLE.total_seconds() * 0.99
        assert third >= second

    broker.serve(story())
