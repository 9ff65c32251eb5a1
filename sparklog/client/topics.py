"""Creates, grows and deletes topics through the brokers.

The module also elects leaders through the brokers. Source: KIP-460.

It starts, lists and cancels reassignments of replicas. Source: KIP-455.

It reads the log directories of brokers, and the sizes of the replicas in them. Source: KIP-113,
KIP-827.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft, sole
from sparklog.client.errors import of_code
from sparklog.client.routing import by_topic, parts_by_topic
from sparklog.client.values import Election
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api

Assignment = Sequence[Sequence[int]]
"""The replicas of each partition, the preferred leader first."""

CREATE_VERSIONS: Final = (4, 7)
"""From version 4 on, -1 selects the cluster's default."""
DELETE_VERSIONS: Final = (1, 6)
GROW_VERSIONS: Final = (0, 3)
DEFAULT: Final = -1


def create_topic(
    brokers: BrokerConnections,
    name: str,
    partitions: int | None,
    configs: Mapping[str, str],
    replication_factor: int | None,
    assignment: Assignment | None,
) -> None:
    """Create a topic. Raises as `Admin.create_topic`."""
    placed = assignment is not None

    def draft(of: RequestDraft) -> Any:
        topic = of.part(
            "CreatableTopic",
            name=name,
            num_partitions=DEFAULT if placed or partitions is None else partitions,
            replication_factor=DEFAULT
            if placed or replication_factor is None
            else replication_factor,
            assignments=tuple(
                of.part("CreatableReplicaAssignment", partition_index=n, broker_ids=tuple(replicas))
                for n, replicas in enumerate(assignment or ())
            ),
            configs=tuple(
                of.part("CreatableTopicConfig", name=key, value=value)
                for key, value in configs.items()
            ),
        )
        return of.request(topics=(topic,), timeout=_timeout(brokers), validate_only=False)

    answer = brokers.change(Api.CREATE_TOPICS, *CREATE_VERSIONS, draft)
    _check(sole(answer.topics, Api.CREATE_TOPICS), "the topic was not created", topic=name)


def delete_topic(brokers: BrokerConnections, name: str) -> None:
    """Delete a topic. Raises as `Admin.delete_topic`."""

    def draft(of: RequestDraft) -> Any:
        timeout = _timeout(brokers)
        if of.version < 6:
            return of.request(topic_names=(name,), timeout=timeout)
        state = of.part("DeleteTopicState", name=name, topic_id=None)
        return of.request(topics=(state,), timeout=timeout)

    answer = brokers.change(Api.DELETE_TOPICS, *DELETE_VERSIONS, draft)
    _check(sole(answer.responses, Api.DELETE_TOPICS), "the topic was not deleted", topic=name)


def add_partitions(
    brokers: BrokerConnections, name: str, total: int, assignment: Assignment | None
) -> None:
    """Grow a topic. Raises as `Admin.add_partitions`."""

    def draft(of: RequestDraft) -> Any:
        placed = None
        if assignment is not None:
            placed = tuple(
                of.part("CreatePartitionsAssignment", broker_ids=tuple(replicas))
                for replicas in assignment
            )
        topic = of.part("CreatePartitionsTopic", name=name, count=total, assignments=placed)
        return of.request(topics=(topic,), timeout=_timeout(brokers), validate_only=False)

    answer = brokers.change(Api.CREATE_PARTITIONS, *GROW_VERSIONS, draft)
    result = sole(answer.results, Api.CREATE_PARTITIONS)
    _check(result, "partitions were not added", topic=name, partitions=total)


def _timeout(brokers: BrokerConnections) -> timedelta:
    return timedelta(seconds=brokers.timeout_s)


def _check(result: Any, doing: str, **variables: Any) -> None:
    if result.error_code != 0:
        message = getattr(result, "error_message", None)
        raise of_code(result.error_code, message, doing, **variables)


VERSIONS: Final = (1, 2)
"""From version 1 on there are unclean elections."""
ELECTION_NOT_NEEDED: Final = 84

_NUMBERS: Final = {Election.PREFERRED: 0, Election.UNCLEAN: 1}


def elect(
    brokers: BrokerConnections, election: Election, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, bool | SparklogError]:
    """Elect leaders. Returns and raises as `Admin.elect_leaders`."""

    def draft(of: RequestDraft) -> Any:
        wanted = None
        if partitions is not None:
            wanted = tuple(
                of.part(
                    "TopicPartitions",
                    topic=topic,
                    partitions=tuple(tp.partition for tp in chosen),
                )
                for topic, chosen in by_topic(partitions)
            )
        return of.request(
            election_type=_NUMBERS[election],
            topic_partitions=wanted,
            timeout=timedelta(seconds=brokers.timeout_s),
        )

    answer = brokers.change(Api.ELECT_LEADERS, *VERSIONS, draft)
    doing = "no leader was elected"
    if answer.error_code != 0:
        raise of_code(answer.error_code, None, doing)
    return {
        (tp := TopicPartition(topic.topic, int(result.partition_id))): _outcome(tp, result, doing)
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


def _outcome(tp: TopicPartition, result: Any, doing: str) -> bool | SparklogError:
    if result.error_code == 0:
        return True
    if result.error_code == ELECTION_NOT_NEEDED:
        return False
    return of_code(result.error_code, result.error_message, doing, partition=tp)


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
    brokers: BrokerConnections, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, Reassignment]:
    """Return the running reassignments of some partitions, or of all.

    Raises:
        InvalidRequest: the brokers do not support this call. Unavailable: no broker responds.
    """

    def draft(of: RequestDraft) -> Any:
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
    brokers: BrokerConnections, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, SparklogError | None]:
    """Start to move partitions to these replicas; None cancels a reassignment.

    Returns:
        Per partition None if the reassignment has begun (or ended), else the error.

    Raises:
        InvalidRequest, Unavailable: as `list_moves`. OutcomeUnknown: no response.
    """

    def draft(of: RequestDraft) -> Any:
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


LOG_DIRS_VERSIONS: Final = (1, 4)


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One broker's replica of one partition."""

    size_bytes: int
    offset_lag: int
    """Lag in records: of a follower behind its leader, of a leader's end beyond its high watermark.
    """
    future: bool
    """True if it will replace another copy on the same broker."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One directory in which a broker keeps replicas."""

    path: str
    error: SparklogError | None
    replicas: dict[TopicPartition, ReplicaSize]


def read_log_dirs(brokers: BrokerConnections, broker: BrokerAddress) -> list[LogDir]:
    """Return the log directories of one broker.

    Raises:
        Unavailable, OutcomeUnknown: no response. InvalidRequest: the broker does not support this
            call.
    """
    doing = "log dirs could not be described"
    answer = brokers.tell(
        broker, Api.DESCRIBE_LOG_DIRS, *LOG_DIRS_VERSIONS, lambda of: of.request(topics=None)
    )
    code = getattr(answer, "error_code", 0)  # from version 3 on
    if code != 0:
        raise of_code(code, None, doing, broker=broker)
    return [
        LogDir(
            path=found.log_dir,
            error=of_code(found.error_code, None, doing, log_dir=found.log_dir)
            if found.error_code != 0
            else None,
            replicas={
                TopicPartition(topic.name, p.partition_index): ReplicaSize(
                    int(p.partition_size), int(p.offset_lag), bool(p.is_future_key)
                )
                for topic in found.topics
                for p in topic.partitions
            },
        )
        for found in answer.results
    ]
