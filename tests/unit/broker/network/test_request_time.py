"""Request time: the work for a client is charged, and its connection waits when it is too much."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.handlers import request_time
from sparklog.broker.network.request_time import RequestTime, TimedClients
from sparklog.broker.network.server import Server
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import UNTHROTTLED, NoResponse, RequestContext
from sparklog.cluster.metadata.changes import alter
from sparklog.core.clock import ManualClock
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, TokenBucket, entity_of
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import ResponseBuilder
from tests.harness.handler_node import PEER, ToyNode, tell
from tests.harness.handler_requests import create_topics, metadata, produce
from tests.unit.broker.network.test_server import Client

CLIENT = RequestContext("c", "127.0.0.1")
WINDOW_S = 0.4


class Timed:
    """The time of a client that may use 10 % of a thread, and 1 s of that at once."""

    def __init__(self, metrics: BrokerMetrics | None = None) -> None:
        self.clock = ManualClock()
        self.metrics = metrics or BrokerMetrics()
        self.bucket = TokenBucket(10.0, 1.0, asyncio.get_running_loop().time(), debt_max_s=1.0)
        self.time = RequestTime(self.bucket, WINDOW_S, self.metrics, self.clock)

    def owed_s(self) -> float:
        return self.bucket.wait_s(asyncio.get_running_loop().time())

    async def work(self, *steps_s: float) -> str:
        for step_s in steps_s:
            self.clock.sleep_s(step_s)
            await asyncio.sleep(0)
        return "done"


def run(story: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(20):
            await story

    asyncio.run(in_time())


def test_steps_of_a_handler_are_charged_and_its_waits_are_not() -> None:
    async def story() -> None:
        timed, ready = Timed(), asyncio.Event()

        async def handler() -> str:
            timed.clock.sleep_s(0.05)
            await ready.wait()
            return await timed.work(0.04, 0.04)

        async def outer() -> str:
            return await timed.time.timed(handler())

        task = asyncio.create_task(outer())
        await asyncio.sleep(0)
        timed.clock.sleep_s(50.0)  # the loop works for others
        ready.set()
        assert await task == "done"
        # 13 % of a second, of which 10 % may be used at once, at 10 % a second
        assert timed.owed_s() == pytest.approx(0.3, abs=0.1)

    run(story())


def test_a_cancelled_handler_cleans_up_and_is_charged() -> None:
    async def story() -> None:
        timed, cleaned = Timed(), []

        async def handler() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                timed.clock.sleep_s(0.15)
                cleaned.append(True)
                raise

        async def outer() -> None:
            await timed.time.timed(handler())

        task = asyncio.create_task(outer())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [True]
        assert timed.owed_s() == pytest.approx(0.5, abs=0.1)
        with pytest.raises(ZeroDivisionError):
            await timed.time.timed(failing())

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    run(story())


def test_a_throttle_time_is_one_window_at_most_and_debts_end() -> None:
    async def story() -> None:
        timed = Timed()
        assert timed.time.throttled(None) == (None, UNTHROTTLED)
        await timed.time.timed(timed.work(100.0))
        assert timed.owed_s() == pytest.approx(1.0, abs=0.1)
        window = timedelta(seconds=WINDOW_S)
        assert timed.time.throttled(None) == (NoResponse(window), window)
        longer = NoResponse(timedelta(seconds=7))
        assert timed.time.throttled(longer) == (longer, longer.throttle_time)
        nameless = SimpleNamespace()
        assert timed.time.throttled(nameless) == (nameless, window)
        assert timed.metrics.throttled_requests == {REQUEST_PERCENTAGE: 2}

    run(story())


def test_a_client_over_its_quota_waits_and_others_do_not() -> None:
    async def story() -> None:
        timed = Timed()
        begun: list[str] = []

        async def handle(request: Any, context: RequestContext) -> Any:
            if context.client_id == "busy":
                await timed.work(0.02, 0.02)
            return metadata_answer(request)

        def begin(plain: Any, reply: Any, context: RequestContext) -> bool:
            begun.append(context.client_id or "")
            return False

        def time_of(context: RequestContext, api: int) -> RequestTime | None:
            return timed.time if context.client_id == "busy" else None

        server = Server(
            handle,
            lambda _: None,
            parse_broker_configs({}),
            BrokerMetrics(),
            TimedClients(time_of),
        )
        server.begin_produce_by(begin)
        address = await server.start(Address("127.0.0.1", 0))
        busy, idle = await Client.connect(address), await Client.connect(address)
        try:
            throttled = [await asked(busy, "busy") for _ in range(4)]
            assert throttled[:2] == [UNTHROTTLED] * 2
            assert UNTHROTTLED < throttled[2] <= timedelta(seconds=WINDOW_S)
            loop = asyncio.get_running_loop()
            began_s, waits = loop.time(), await asked(busy, "busy")
            assert waits
            assert loop.time() - began_s > throttled[3].total_seconds() * 0.8
            assert await asked(idle, "idle") == UNTHROTTLED
            for client, name in ((busy, "busy"), (idle, "idle")):
                client.writer.write(frames.encode_request(produce("t", (0, b"x")), 1, name))
            await idle.answer()
            await busy.answer()
            assert begun == ["idle"]  # a timed produce runs as a task
        finally:
            await server.stop()
            while Client.opened:
                await Client.opened.pop().close()

    run(story())


def metadata_answer(request: Any) -> Any:
    answer = ResponseBuilder.to(request)
    if request.__api_key__ == Api.PRODUCE:
        return answer.response(responses=(), throttle_time=UNTHROTTLED)
    return answer.response(
        throttle_time=UNTHROTTLED, brokers=(), cluster_id="c", controller_id=1, topics=()
    )


async def asked(client: Client, name: str) -> timedelta:
    request = metadata("t")
    client.writer.write(frames.encode_request(request, 1, name))
    throttle: timedelta = frames.decode_response(await client.answer(), type(request)).throttle_time
    return throttle


def test_clients_are_timed_while_a_quota_limits_the_time_of_one() -> None:
    timed = TimedClients(lambda context, api: None)
    client = entity_of({"client-id": "c"})
    seen: list[bool] = []
    for quotas in ({PRODUCER_BYTE_RATE: 5.0}, {REQUEST_PERCENTAGE: 5.0}, {}):
        timed.saw({client: quotas})
        seen.append(timed.exist)
    assert seen == [False, True, False]


def test_brokers_logins_and_markers_are_not_timed() -> None:
    async def story(node: ToyNode) -> None:
        broker = node.as_node()
        assert request_time(broker, CLIENT, Api.METADATA) is None
        quotas = {REQUEST_PERCENTAGE: 12.5}
        for client_id in ("c", PEER.client_id):
            entity = entity_of({"client-id": client_id})
            await node.metadata.decide(lambda image: alter(image, entity, quotas))  # noqa: B023
        assert request_time(broker, CLIENT, Api.METADATA) is not None
        assert request_time(broker, RequestContext("d"), Api.METADATA) is None
        assert request_time(broker, PEER, Api.FETCH) is None
        for api in (Api.SASL_AUTHENTICATE, Api.WRITE_TXN_MARKERS, Api.BROKER_HEARTBEAT):
            assert request_time(broker, CLIENT, api) is None
        await node.ask(create_topics("t"))
        entity = entity_of({"client-id": "c"})
        await node.metadata.decide(lambda image: alter(image, entity, {REQUEST_PERCENTAGE: None}))
        assert request_time(broker, CLIENT, Api.METADATA) is None

    tell(story)
