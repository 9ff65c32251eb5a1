"""Looks up offsets by time, and deletes records before an offset. Source: KIP-79, KIP-107."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.asking import Brokers, Draft
from sparklog.client.by_leader import ask_leaders, partition_results, parts_by_topic
from sparklog.client.errors import of_code
from sparklog.client.values import MAX_TIMESTAMP, FoundOffset
from sparklog.core.clock import Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api

LIST_VERSIONS: Final = (2, 7)
MAX_TIMESTAMP_VERSION: Final = 7
DELETE_VERSIONS: Final = (0, 2)
CLIENT: Final = -1
"""The replica id of clients."""


def find_offsets(
    brokers: Brokers,
    wanted: Mapping[TopicPartition, int],
    clock: Clock,
    *,
    committed_only: bool = False,
    patience_s: float | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> dict[TopicPartition, FoundOffset | SparklogError]:
    """Return an offset per partition. Raises as `Admin.offsets`; the last two: `ask_leaders`."""
    lowest, highest = LIST_VERSIONS
    if MAX_TIMESTAMP in wanted.values():
        lowest = MAX_TIMESTAMP_VERSION

    def ask(
        leader: BrokerAddress, chosen: Sequence[TopicPartition]
    ) -> dict[TopicPartition, FoundOffset | SparklogError]:
        def draft(of: Draft) -> Any:
            topics = parts_by_topic(
                of,
                ("ListOffsetsTopic", "ListOffsetsPartition"),
                chosen,
                lambda tp: {"current_leader_epoch": -1, "timestamp": wanted[tp]},
            )
            return of.request(replica_id=CLIENT, isolation_level=int(committed_only), topics=topics)

        answer = brokers.tell(leader, Api.LIST_OFFSETS, lowest, highest, draft)
        return {
            tp: FoundOffset(int(result.offset), int(result.timestamp))
            if result.error_code == 0
            else of_code(result.error_code, None, "the offset could not be looked up", partition=tp)
            for tp, result in partition_results(answer.topics).items()
        }

    return ask_leaders(
        brokers, list(wanted), ask, clock, patience_s=patience_s, topic_ids=topic_ids
    )


def delete_before(
    brokers: Brokers, before: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, int | SparklogError]:
    """Delete records before offsets; return the new log starts.

    Raises as `Admin.delete_records`.
    """

    def ask(
        leader: BrokerAddress, chosen: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | SparklogError]:
        def draft(of: Draft) -> Any:
            kinds = ("DeleteRecordsTopic", "DeleteRecordsPartition")
            topics = parts_by_topic(of, kinds, chosen, lambda tp: {"offset": before[tp]})
            return of.request(topics=topics, timeout=timedelta(seconds=brokers.timeout_s))

        answer = brokers.tell(leader, Api.DELETE_RECORDS, *DELETE_VERSIONS, draft)
        return {
            tp: int(result.low_watermark)
            if result.error_code == 0
            else of_code(result.error_code, None, "records were not deleted", partition=tp)
            for tp, result in partition_results(answer.topics).items()
        }

    return ask_leaders(brokers, list(before), ask, clock)
