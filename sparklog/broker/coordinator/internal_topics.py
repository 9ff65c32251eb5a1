"""InternalTopic: creates a topic for coordinators' state when a request first needs it.

Internal topics are ordinary compacted topics that only brokers write to. The modules of
`coordinator/` that write their records document the formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.metadata.records import Record
from sparklog.coordinator.internal_topics import (
    GROUPS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.entropy import new_topic_id
from sparklog.core.errors import CoordinatorNotAvailable, SparklogError

COMPACTED: Final = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The settings with which an internal topic is created."""

    name: str
    partitions: int
    replication_factor: int
    """Most replicas: a cluster with fewer brokers has fewer. The storage is one more copy."""
    configs: Mapping[str, str]

    @classmethod
    def of(cls, name: str, config: BrokerConfig) -> InternalTopic:
        """Return the settings of one of coordinators' internal topics."""
        prefix = {
            GROUPS_TOPIC: "offsets.topic",
            TRANSACTIONS_TOPIC: "transaction.state.log",
            SHARE_STATE_TOPIC: "share.coordinator.state.topic",
        }[name]
        configs = dict(COMPACTED)
        if name != GROUPS_TOPIC:
            configs["min.insync.replicas"] = str(config.whole(f"{prefix}.min.isr"))
        return cls(
            name,
            config.whole(f"{prefix}.num.partitions"),
            config.whole(f"{prefix}.replication.factor"),
            configs,
        )

    async def ensure(self, metadata: MetadataAccess, environment: Environment) -> Topic:
        """Return the topic, after creating it if it is absent.

        Raises:
            CoordinatorNotAvailable: it cannot be created now.
        """
        topic = metadata.image.topics.get(self.name)
        if topic is not None:
            return topic
        topic_id = new_topic_id(environment.entropy)

        def create(image: MetadataImage) -> list[Record]:
            if self.name in image.topics:
                return []
            if not image.eligible_brokers():
                raise CoordinatorNotAvailable(f"no broker can lead it now. topic={self.name}")
            return changes.create_topic(
                image,
                self.name,
                topic_id,
                self.partitions,
                self.configs,
                default_replication_factor=self.replication_factor,
                by_cluster=True,
            )

        try:
            image = await metadata.decide(create)
        except SparklogError as error:
            raise CoordinatorNotAvailable(
                f"the internal topic cannot be created now: {error} topic={self.name}"
            ) from error
        return image.topics[self.name]
