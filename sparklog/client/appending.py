"""Appends one encoded batch to each of many partitions, through their leaders.

For batches that a leader appends once even if sent repeatedly, such as reference batches. An append
of unknown outcome is sent again. Ordinary records go through `Producer`. Source: KIP-516.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.asking import Brokers, Draft
from sparklog.client.by_leader import ask_leaders
from sparklog.client.errors import of_code
from sparklog.core.clock import Clock
from sparklog.core.errors import OutcomeUnknown, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

VERSIONS: Final = (13, 13)
"""With topic ids, so that a later topic of the same name never gets the batch."""
ACKS_ALL: Final = -1
TIMEOUT_S: Final = 20.0
"""Time that a leader may wait for replicas and the store before it responds."""


def append_batches(
    brokers: Brokers,
    batches: Mapping[TopicPartition, bytes],
    topic_ids: Mapping[str, str],
    clock: Clock,
    *,
    patience_s: float,
    transactional_id: str | None = None,
) -> dict[TopicPartition, int | SparklogError]:
    """Append each partition's batch with acks=all; return the base offsets.

    Args:
        brokers: the cluster.
        batches: idempotent batches.
        topic_ids: the topics' ids, by name.
        clock: for waits.
        patience_s: time to find leaders.

        transactional_id: that of the batches' transaction, if they have one.

    `NotServing` and `Unavailable` do not say whether the batch was appended.

    Raises:
        Unavailable: no broker responds at all.
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}

    def ask(
        leader: BrokerAddress, chosen: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | SparklogError]:
        def draft(of: Draft) -> Any:
            parts: dict[str, list[Any]] = {}
            for tp in chosen:
                part = of.part("PartitionProduceData", index=tp.partition, records=batches[tp])
                parts.setdefault(tp.topic, []).append(part)
            topics = tuple(
                of.part(
                    "TopicProduceData",
                    topic_id=uuid_of(topic_ids[topic]),
                    partition_data=tuple(some),
                )
                for topic, some in parts.items()
            )
            return of.request(
                transactional_id=transactional_id,
                acks=ACKS_ALL,
                timeout=timedelta(seconds=TIMEOUT_S),
                topic_data=topics,
            )

        answer = brokers.tell(leader, Api.PRODUCE, *VERSIONS, draft)
        return {
            (tp := TopicPartition(names[topic_id_of(topic.topic_id)], int(part.index))): _outcome(
                tp, part
            )
            for topic in answer.responses
            for part in topic.partition_responses
        }

    return ask_leaders(
        brokers, list(batches), ask, clock, patience_s=patience_s, topic_ids=topic_ids
    )


def _outcome(tp: TopicPartition, part: Any) -> int | SparklogError:
    if part.error_code == 0:
        return int(part.base_offset)
    error = of_code(part.error_code, part.error_message, "a batch was not appended", partition=tp)
    return Unavailable(str(error)) if isinstance(error, OutcomeUnknown) else error
