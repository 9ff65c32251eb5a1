"""Moves of replicas between brokers: asked for, listed and called off. Source: KIP-455."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.errors import of_code
from sparklog.client.wire import WireConnection, with_any_broker
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api
from sparklog.protocol.building import build_request, build_request_part

ALTER: Final = Api.ALTER_PARTITION_REASSIGNMENTS
LIST: Final = Api.LIST_PARTITION_REASSIGNMENTS


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move that has not ended."""

    replicas: tuple[int, ...]
    """Old and new ones, while both hold the partition."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas there will be at the end."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


def list_reassignments(
    brokers: Sequence[BrokerAddress], partitions: Iterable[TopicPartition] | None, timeout_s: float
) -> dict[TopicPartition, Reassignment]:
    """Return the moves under way, of some partitions or of all.

    Raises:
        InvalidRequest: the brokers know no such call. Unavailable, OutcomeUnknown: no answer.
    """

    def ask(connection: WireConnection) -> Any:
        version = connection.version(LIST, 0, 0)
        topics = None
        if partitions is not None:
            topics = tuple(
                build_request_part(
                    LIST,
                    version,
                    "ListPartitionReassignmentsTopics",
                    name=topic,
                    partition_indexes=tuple(tp.partition for tp in chosen),
                )
                for topic, chosen in _by_topic(partitions)
            )
        timeout = timedelta(seconds=timeout_s)
        return connection.call(build_request(LIST, version, timeout=timeout, topics=topics))

    answer = with_any_broker(brokers, ask, timeout_s)
    if answer.error_code != 0:
        raise of_code(answer.error_code, answer.error_message, "moves could not be listed")
    return {
        TopicPartition(topic.name, p.partition_index): Reassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in answer.topics
        for p in topic.partitions
    }


def alter_reassignments(
    brokers: Sequence[BrokerAddress],
    wanted: Mapping[TopicPartition, Sequence[int] | None],
    timeout_s: float,
) -> dict[TopicPartition, SparklogError | None]:
    """Start to move partitions to these replicas; None calls a move off.

    Returns:
        Per partition None when the move has begun (or ended), else why not.

    Raises:
        InvalidRequest: the brokers know no such call. Unavailable: nobody could be asked.
        OutcomeUnknown: no answer came.
    """

    def ask(connection: WireConnection) -> Any:
        version = connection.version(ALTER, 0, 1)
        topics = tuple(
            build_request_part(
                ALTER,
                version,
                "ReassignableTopic",
                name=topic,
                partitions=tuple(
                    build_request_part(
                        ALTER,
                        version,
                        "ReassignablePartition",
                        partition_index=tp.partition,
                        replicas=_replicas(wanted[tp]),
                    )
                    for tp in chosen
                ),
            )
            for topic, chosen in _by_topic(wanted)
        )
        timeout = timedelta(seconds=timeout_s)
        return connection.call(build_request(ALTER, version, timeout=timeout, topics=topics))

    answer = with_any_broker(brokers, ask, timeout_s)
    doing = "the partition is not moved"
    if answer.error_code != 0:
        raise of_code(answer.error_code, answer.error_message, doing)
    return {
        (tp := TopicPartition(topic.name, p.partition_index)): of_code(
            p.error_code, p.error_message, doing, partition=tp
        )
        if p.error_code != 0
        else None
        for topic in answer.responses
        for p in topic.partitions
    }


def _replicas(brokers: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if brokers is None else tuple(brokers)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    ordered = sorted(partitions)
    return [(topic, list(chosen)) for topic, chosen in groupby(ordered, lambda tp: tp.topic)]
