"""SimulatedBroker: a real broker as a simulated process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from sparklog.broker import handlers
from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.handlers import produce
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.node.replicas import Replicas
from sparklog.broker.partition.follower import FollowerPartition
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.identity import Identity
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import UNTHROTTLED, RequestContext
from sparklog.core.config.broker import BrokerConfig, parse_broker_configs
from sparklog.core.errors import OutcomeUnknown, Unavailable
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.testing.sim.cluster import BrokerSide

CONFIGS: Final = {
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "250",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "wal.linger.ms": "10",
    "leader.imbalance.check.interval.seconds": "1",
    "tail.bytes": str(16 * 1024 * 1024),
    "history.cache.bytes": str(1024 * 1024),
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
"""Shorter times than the defaults, with the same order, so that a few seconds have many events."""


class WatchedReplicas(Replicas):
    """The replicas of an incarnation, open to the invariants."""

    def led_partitions(self) -> list[LeaderPartition]:
        """Return the led partitions."""
        return self.roles.all_led()

    def followed_partition(self, where: PartitionId) -> FollowerPartition | None:
        """Return a partition that this broker follows, or None."""
        replica = self.roles.replicas.get(where)
        role = replica.role if replica is not None else None
        return role if isinstance(role, FollowerPartition) else None

    @property
    def wal_acknowledged(self) -> int:
        """Return the newest acknowledged sequence of the write-ahead log."""
        return self._wal._writer.acknowledged  # noqa: SLF001 - there is no other way to see it


class SimulatedBroker:
    """A node for `SimCluster`. Subclasses replace parts with faulty ones, to test the checks."""

    replicas_type: type[WatchedReplicas] = WatchedReplicas

    def __init__(self, side: BrokerSide) -> None:
        """Create the node; `run` starts it."""
        config = parse_broker_configs(
            {**CONFIGS, **dict(side.configs), "node.id": str(side.broker_id)}
        )
        self.incarnations: list[WatchedReplicas] = []
        """The replicas of every incarnation, oldest first."""
        self.node = BrokerNode(
            config, side.environment, side.address, make_replicas=self._make_replicas
        )

    def _make_replicas(
        self,
        environment: Environment,
        settings: BrokerConfig,
        identity: Identity,
        metadata: MetadataLog,
        *,
        metrics: BrokerMetrics,
        on_fenced: Callable[[str], None],
        on_crash: Callable[[BaseException], None],
    ) -> WatchedReplicas:
        replicas = self.replicas_type(
            environment,
            settings,
            identity,
            metadata,
            metrics=metrics,
            on_fenced=on_fenced,
            on_crash=on_crash,
        )
        self.incarnations.append(replicas)
        return replicas

    async def run(self) -> None:
        """Start and serve.

        The process ends if the store does not respond at the start, and restarts.
        """
        try:
            await self.node.start()
        except (Unavailable, OutcomeUnknown):
            return
        await self.node.run()

    async def stop(self) -> None:
        """Shut down in a controlled way."""
        await self.node.stop()

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Return the response to a request entity, as the listener would."""
        if request.__api_key__ == Api.PRODUCE:
            frame = bytes(frames.encode_request(request, 0, None))[frames.SIZE_BYTES :]
            plain, reply = produce_fast_path.read(frame), _Reply(type(request))
            if (
                plain is not None
                and self.node.has_started
                and produce.begin(self.node, plain, reply, context)
            ):
                return await reply.response()
        return await handlers.handle(self.node, request, context)


class _Reply:
    """Waits for the response to one request. Implements `broker.request.Reply`."""

    def __init__(self, request_type: Any) -> None:
        self._request_type = request_type
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Awaitable[Any]] = self._loop.create_future()

    def answer(self, frame: bytearray, throttle: timedelta = UNTHROTTLED) -> None:
        """Set the frame of the response."""
        response = self._loop.create_future()
        data = bytes(frame)[frames.SIZE_BYTES :]
        response.set_result(frames.decode_response(data, self._request_type))
        self._go_on_with(response)

    def go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        """Set a coroutine that returns the response."""
        self._go_on_with(self._loop.create_task(work))

    def _go_on_with(self, response: Awaitable[Any]) -> None:
        if not self._answer.done():  # done, for example, if its client has gone
            self._answer.set_result(response)

    async def response(self) -> Any:
        """Return the response entity."""
        return await (await self._answer)
