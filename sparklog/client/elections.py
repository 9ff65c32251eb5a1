"""Elects leaders through the brokers. Source: KIP-460."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from sparklog.client.asking import Brokers, Draft
from sparklog.client.by_leader import by_topic
from sparklog.client.errors import of_code
from sparklog.client.values import Election
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api

VERSIONS: Final = (1, 2)
"""From version 1 on there are unclean elections."""
ELECTION_NOT_NEEDED: Final = 84

_NUMBERS: Final = {Election.PREFERRED: 0, Election.UNCLEAN: 1}


def elect(
    brokers: Brokers, election: Election, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, bool | SparklogError]:
    """Elect leaders. Returns and raises as `Admin.elect_leaders`."""

    def draft(of: Draft) -> Any:
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
