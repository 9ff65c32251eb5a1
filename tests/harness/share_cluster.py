"""A cluster whose brokers keep states of share groups, and who asks for them at any broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from sparklog.broker.share.state_client import ShareStateClient
from sparklog.coordinator.internal_topics import SHARE_STATE_TOPIC, partition_for
from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from tests.harness.live_cluster import SETTINGS, LiveCluster
from tests.harness.replica_cluster import answered

Result = TypeVar("Result")
TOPIC_ID = UUID(int=7)
PARTITIONS = int(SETTINGS["share_coordinator_state_topic_num_partitions"])


def share_key(group: str = "g", partition: int = 0, topic_id: UUID = TOPIC_ID) -> SharePartitionKey:
    return SharePartitionKey(group, topic_id, partition)


def finished(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, DeliveryState.ACKNOWLEDGED, count)


def update_of(
    key: SharePartitionKey,
    *batches: StateBatch,
    start: int = -1,
    state_epoch: int = 1,
    leader_epoch: int = 1,
) -> ShareStateUpdate:
    return ShareStateUpdate(key, state_epoch, leader_epoch, start, batches)


class ShareCluster(LiveCluster):
    """Runs calls of the clients of states in the processes of their brokers."""

    async def at(
        self, broker_id: int, call: Callable[[ShareStateClient], Coroutine[Any, Any, Result]]
    ) -> Result:
        """Return the result of a call at a broker; it fails if the broker is killed."""
        started = self.nodes[broker_id]

        async def run() -> Result:
            return await call(started.node.current_incarnation.share_states)

        return await answered(started.process, run())

    async def read_state(
        self, broker_id: int, key: SharePartitionKey, leader_epoch: int
    ) -> ShareState:
        return await self.at(broker_id, lambda client: client.read(key, leader_epoch))

    async def write_state(self, broker_id: int, update: ShareStateUpdate) -> None:
        await self.at(broker_id, lambda client: client.write(update))

    async def coordinator_of(self, key: SharePartitionKey) -> int:
        """Return the broker that has the state of a key."""
        return await self.leader(SHARE_STATE_TOPIC, partition_for(key.coordinator_key, PARTITIONS))
