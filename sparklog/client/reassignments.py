"""Starts, lists and cancels reassignments of replicas. Source: KIP-455."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sparklog.client.asking import Brokers, Draft
from sparklog.client.by_leader import by_topic, parts_by_topic
from sparklog.client.errors import of_code
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api

ALTER_VERSIONS: Final = (0, 1)
LIST_VERSIONS: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A running reassignment."""

    replicas: tuple[int, ...]
    """Old and new replicas, while both hold the partition."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


def list_moves(
    brokers: Brokers, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, Reassignment]:
    """Return the running reassignments of some partitions, or of all.

    Raises:
        InvalidRequest: the brokers do not support this call. Unavailable: no broker responds.
    """

    def draft(of: Draft) -> Any:
        topics = None
        if partitions is not None:
            topics = tuple(
                of.part(
                    "ListPartitionReassignmentsTopics",
                    name=topic,
                    partition_indexes=tuple(tp.partition for tp in chosen),
                )
                for topic, chosen in by_topic(partitions)
            )
        return of.request(timeout=timedelta(seconds=brokers.timeout_s), topics=topics)

    answer = brokers.ask(Api.LIST_PARTITION_REASSIGNMENTS, *LIST_VERSIONS, draft)
    if answer.error_code != 0:
        raise of_code(answer.error_code, answer.error_message, "moves could not be listed")
    return {
        TopicPartition(topic.name, int(p.partition_index)): Reassignment(
            tuple(map(int, p.replicas)),
            tuple(map(int, p.adding_replicas)),
            tuple(map(int, p.removing_replicas)),
        )
        for topic in answer.topics
        for p in topic.partitions
    }


def move(
    brokers: Brokers, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, SparklogError | None]:
    """Start to move partitions to these replicas; None cancels a reassignment.

    Returns:
        Per partition None if the reassignment has begun (or ended), else the error.

    Raises:
        InvalidRequest, Unavailable: as `list_moves`. OutcomeUnknown: no response.
    """

    def draft(of: Draft) -> Any:
        topics = parts_by_topic(
            of,
            ("ReassignableTopic", "ReassignablePartition"),
            list(wanted),
            lambda tp: {"replicas": _replicas(wanted[tp])},
        )
        return of.request(timeout=timedelta(seconds=brokers.timeout_s), topics=topics)

    answer = brokers.change(Api.ALTER_PARTITION_REASSIGNMENTS, *ALTER_VERSIONS, draft)
    doing = "the partition is not moved"
    if answer.error_code != 0:
        raise of_code(answer.error_code, answer.error_message, doing)
    return {
        (tp := TopicPartition(topic.name, int(p.partition_index))): of_code(
            p.error_code, p.error_message, doing, partition=tp
        )
        if p.error_code != 0
        else None
        for topic in answer.responses
        for p in topic.partitions
    }


def _replicas(brokers: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if brokers is None else tuple(brokers)
