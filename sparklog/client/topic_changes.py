"""Creates, grows and deletes topics through the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sparklog.client.asking import Brokers, Draft, sole
from sparklog.client.errors import of_code
from sparklog.protocol.api import Api

Assignment = Sequence[Sequence[int]]
"""The replicas of each partition, the preferred leader first."""

CREATE_VERSIONS: Final = (4, 7)
"""From version 4 on, -1 selects the cluster's default."""
DELETE_VERSIONS: Final = (1, 6)
GROW_VERSIONS: Final = (0, 3)
DEFAULT: Final = -1


def create_topic(
    brokers: Brokers,
    name: str,
    partitions: int | None,
    configs: Mapping[str, str],
    replication_factor: int | None,
    assignment: Assignment | None,
) -> None:
    """Create a topic. Raises as `Admin.create_topic`."""
    placed = assignment is not None

    def draft(of: Draft) -> Any:
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


def delete_topic(brokers: Brokers, name: str) -> None:
    """Delete a topic. Raises as `Admin.delete_topic`."""

    def draft(of: Draft) -> Any:
        timeout = _timeout(brokers)
        if of.version < 6:
            return of.request(topic_names=(name,), timeout=timeout)
        state = of.part("DeleteTopicState", name=name, topic_id=None)
        return of.request(topics=(state,), timeout=timeout)

    answer = brokers.change(Api.DELETE_TOPICS, *DELETE_VERSIONS, draft)
    _check(sole(answer.responses, Api.DELETE_TOPICS), "the topic was not deleted", topic=name)


def add_partitions(brokers: Brokers, name: str, total: int, assignment: Assignment | None) -> None:
    """Grow a topic. Raises as `Admin.add_partitions`."""

    def draft(of: Draft) -> Any:
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


def _timeout(brokers: Brokers) -> timedelta:
    return timedelta(seconds=brokers.timeout_s)


def _check(result: Any, doing: str, **variables: Any) -> None:
    if result.error_code != 0:
        message = getattr(result, "error_message", None)
        raise of_code(result.error_code, message, doing, **variables)
