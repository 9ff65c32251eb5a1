"""ClusterMetadata: the brokers, topics and leaders of a cluster. Source: KIP-516."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.values import ServingBroker
from sparklog.cluster.metadata.image import PartitionState, Topic
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.topic_ids import topic_id_of

VERSIONS: Final = (11, 12)
"""From version 10 on there are topic ids; 10 has a field that 9 and 11 lack."""
UNKNOWN_TOPIC: Final = 3
LEADER_NOT_AVAILABLE: Final = 5


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The metadata of one broker at one time. Topics come without their settings."""

    cluster_id: str | None
    brokers: Mapping[int, ServingBroker]
    topics: Mapping[str, Topic]

    def leader(self, tp: TopicPartition) -> BrokerAddress | None:
        """Return the address of a partition's leader; None if it has no leader."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < topic.partitions:
            return None
        broker = self.brokers.get(topic.partition_states[tp.partition].leader)
        return None if broker is None else broker.address


def read_metadata(
    brokers: BrokerConnections, topics: Sequence[str] | None = None
) -> ClusterMetadata:
    """Return any broker's metadata, with some topics or with all.

    A topic that does not exist is missing in the result, and is not created.

    Raises:
        Unavailable: no broker responds.
    """

    def draft(of: RequestDraft) -> Any:
        wanted = None
        if topics is not None:
            wanted = tuple(
                of.part("MetadataRequestTopic", topic_id=None, name=name) for name in topics
            )
        return of.request(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )

    answer = brokers.ask(Api.METADATA, *VERSIONS, draft)
    serving = {
        b.node_id: ServingBroker(
            int(b.node_id), b.host, int(b.port), b.rack, b.node_id == answer.controller_id
        )
        for b in answer.brokers
    }
    brokers.learn([broker.address for broker in serving.values()])
    found = {}
    for topic in answer.topics:
        if topic.error_code == UNKNOWN_TOPIC:
            continue
        if topic.error_code not in (0, LEADER_NOT_AVAILABLE):
            raise of_code(topic.error_code, None, "the topic could not be read", topic=topic.name)
        found[topic.name] = _topic(topic)
    return ClusterMetadata(answer.cluster_id, serving, found)


def _topic(topic: Any) -> Topic:
    parts = sorted(topic.partitions, key=lambda part: part.partition_index)
    states = tuple(
        PartitionState(
            replicas=tuple(map(int, part.replica_nodes)),
            isr=tuple(map(int, part.isr_nodes)),
            leader=int(part.leader_id),
            leader_epoch=int(part.leader_epoch),
        )
        for part in parts
    )
    topic_id = "" if topic.topic_id is None else topic_id_of(topic.topic_id)
    return Topic(topic.name, topic_id, states)
