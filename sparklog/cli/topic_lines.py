"""Descriptions of a topic: Kafka's lines, and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.cluster.image import Partition, Topic


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Conditions for the shown partitions; without any, all are shown."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    def __bool__(self) -> bool:
        """Return True if there is any condition."""
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def takes(self, state: Partition, min_isr: int, live: frozenset[int] | None) -> bool:
        """Return True if a partition meets one of the conditions.

        `min_isr` is the topic's `min.insync.replicas`, `live` the live brokers.
        """
        led = state.leader >= 0 and (live is None or state.leader in live)
        in_sync = len(state.isr)
        return (
            (self.under_replicated and in_sync < len(wanted_replicas(state)))
            or (self.unavailable and not led)
            or (self.under_min_isr and in_sync < min_isr)
            or (self.at_min_isr and in_sync == min_isr)
        )


def wanted_replicas(state: Partition) -> tuple[int, ...]:
    """Return the assigned replicas; during a reassignment without those to be removed."""
    return tuple(r for r in state.replicas if r not in state.removing_replicas)


def topic_document(topic: Topic, numbers: Iterable[int] | None = None) -> dict[str, Any]:
    """Return a topic as JSON values, with some or all of its partitions."""
    shown = range(topic.partitions) if numbers is None else numbers
    return {
        "topic": topic.name,
        "topicId": topic.topic_id,
        "partitionCount": topic.partitions,
        "replicationFactor": _replication_factor(topic),
        "configs": dict(topic.configs),
        "partitions": [_partition_document(n, topic.partition_states[n]) for n in shown],
    }


def _partition_document(number: int, state: Partition) -> dict[str, Any]:
    document: dict[str, Any] = {
        "partition": number,
        "leader": None if state.leader < 0 else state.leader,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
    }
    if state.adding_replicas or state.removing_replicas:
        document["addingReplicas"] = list(state.adding_replicas)
        document["removingReplicas"] = list(state.removing_replicas)
    return document


def topic_line(topic: Topic) -> str:
    """Return the first line of a topic's description."""
    configs = ",".join(f"{name}={value}" for name, value in topic.configs.items())
    return (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {topic.partitions}"
        f"\tReplicationFactor: {_replication_factor(topic)}\tConfigs: {configs}"
    )


def partition_line(topic: str, number: int, state: Partition) -> str:
    """Return the line that describes one partition."""
    leader = "none" if state.leader < 0 else str(state.leader)
    line = (
        f"\tTopic: {topic}\tPartition: {number}\tLeader: {leader}"
        f"\tReplicas: {_ids(state.replicas)}\tIsr: {_ids(state.isr)}"
    )
    if state.adding_replicas or state.removing_replicas:
        line += f"\tAdding Replicas: {_ids(state.adding_replicas)}"
        line += f"\tRemoving Replicas: {_ids(state.removing_replicas)}"
    return line + "\tElr: N/A\tLastKnownElr: N/A"


def _replication_factor(topic: Topic) -> int:
    # A partition without replicas is in the storage.
    return max([1, *(len(state.replicas) for state in topic.partition_states[:1])])


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
