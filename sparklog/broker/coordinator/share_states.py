"""ShareStateCoordinator: the coordinator of share groups' states in one incarnation of a broker.

The leaders of partitions write the states of their share groups here, and read them when they take
over (KIP-932). It runs each request as an event of the shard that has the key:
`coordinator.share.state_shard`. Brokers ask by `broker.share.state_client`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast
from uuid import UUID

from sparklog.broker.coordinator.runtime import CoordinatorRuntime
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.coordinator.effects import CoordinatorResult, Token
from sparklog.coordinator.internal_topics import SHARE_STATE_TOPIC, partition_for
from sparklog.coordinator.share.delivery_state import (
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
)
from sparklog.coordinator.share.state_shard import ShareStateShard
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidRequest, NotCoordinator, SparklogError
from sparklog.protocol.topic_ids import uuid_of

logger = logging.getLogger(__name__)

ShareStateEvent = Callable[[ShareStateShard, Token, int], CoordinatorResult]


class ShareStateCoordinator:
    """See the module. Every call raises if this broker does not serve the key now.

    Raises:
        NotCoordinator: find the coordinator again.
        CoordinatorLoading, CoordinatorNotAvailable: try again.
        InvalidRequest: the key has no group, topic or partition.
    """

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        tasks: TaskScope,
    ) -> None:
        """Begin without partitions; `runtime` is notified of those that this broker leads."""
        updates = config.whole("share.coordinator.snapshot.update.records.per.snapshot")
        self.runtime = CoordinatorRuntime(
            environment,
            metadata,
            tasks,
            topic=SHARE_STATE_TOPIC,
            broker_id=broker_id,
            make_shard=lambda partition, leader_epoch: ShareStateShard(updates),
            commit_timeout_s=config.whole("share.coordinator.write.timeout.ms") / 1000,
        )
        self._metadata = metadata
        self._tasks = tasks
        self._names = metadata.image.names

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin a state epoch at a start offset; see `ShareStateShard.initialize`."""
        await self._submit(key, lambda s, t, n: s.initialize(t, key, state_epoch, start_offset, n))

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """Return a state, and fence off earlier leaders; see `ShareStateShard.read`."""
        found = await self._submit(key, lambda s, t, n: s.read(t, key, leader_epoch, n))
        return cast("ShareState", found)

    async def write(self, update: ShareStateUpdate) -> None:
        """Change a state, and return when it is committed; see `ShareStateShard.write`."""
        await self._submit(update.key, lambda s, t, n: s.write(t, update, n))

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete a state."""
        await self._submit(key, lambda s, t, _: s.delete(t, key))

    async def summary(self, key: SharePartitionKey) -> ShareState:
        """Return a state as it is stored."""
        return cast("ShareState", await self._submit(key, lambda s, t, _: s.summary(t, key)))

    def apply(self, image: MetadataImage) -> None:
        """Apply the newest metadata: delete the states of deleted topics."""
        before, self._names = self._names, image.names
        if before is image.names:
            return
        deleted = frozenset(uuid_of(topic_id) for topic_id in before.keys() - image.names.keys())
        if deleted and self.runtime.active:
            self._tasks.start(self._forget(deleted), "forget share states of deleted topics")

    async def _forget(self, topic_ids: frozenset[UUID]) -> None:
        """Delete states of topics in every shard here; other brokers do so in their shards."""
        for partition in sorted(self.runtime.active):
            more = True
            while more:
                try:
                    more = bool(
                        await self.runtime.submit(
                            partition, lambda s, t, _: s.forget_topics(t, topic_ids)
                        )
                    )
                except SparklogError as error:
                    text = "share states of deleted topics stay topic_ids=%s partition=%d %s"
                    logger.warning(text, sorted(map(str, topic_ids)), partition, error)
                    more = False

    async def _submit(self, key: SharePartitionKey, event: ShareStateEvent) -> object:
        if not key.is_valid:
            raise InvalidRequest(f"the key has no group, topic or partition. key={key}")
        topic = self._metadata.image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            raise NotCoordinator(f"no share group's state has a coordinator yet. key={key}")
        partition = partition_for(key.coordinator_key, topic.partitions)
        return await self.runtime.submit(partition, event)
