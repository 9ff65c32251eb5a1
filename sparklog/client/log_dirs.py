"""Log directories of brokers, and the sizes of the replicas in them. Source: KIP-113, KIP-827."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.asking import Brokers
from sparklog.client.errors import of_code
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api

VERSIONS: Final = (1, 4)


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


def read_log_dirs(brokers: Brokers, broker: BrokerAddress) -> list[LogDir]:
    """Return the log directories of one broker.

    Raises:
        Unavailable, OutcomeUnknown: no response. InvalidRequest: the broker does not support this
            call.
    """
    doing = "log dirs could not be described"
    answer = brokers.tell(
        broker, Api.DESCRIBE_LOG_DIRS, *VERSIONS, lambda of: of.request(topics=None)
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
