"""Looks up offsets by time, and deletes records before an offset. Source: KIP-79, KIP-107.

The module also reads, moves and deletes the committed offsets of a group. Source: KIP-496,
KIP-709.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.routing import (
    CoordinatorKind,
    ask_coordinators,
    ask_leaders,
    partition_results,
    parts_by_topic,
)
from sparklog.client.values import (
    MAX_TIMESTAMP,
    Committed,
    CommittedOffset,
    ListedOffset,
    ServingBroker,
)
from sparklog.core.clock import Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api

LIST_VERSIONS: Final = (2, 7)
MAX_TIMESTAMP_VERSION: Final = 7
DELETE_VERSIONS: Final = (0, 2)
CLIENT: Final = -1
"""The replica id of clients."""


def find_offsets(
    brokers: BrokerConnections,
    wanted: Mapping[TopicPartition, int],
    clock: Clock,
    *,
    committed_only: bool = False,
    patience_s: float | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> dict[TopicPartition, ListedOffset | SparklogError]:
    """Return an offset per partition. Raises as `Admin.offsets`; the last two: `ask_leaders`."""
    lowest, highest = LIST_VERSIONS
    if MAX_TIMESTAMP in wanted.values():
        lowest = MAX_TIMESTAMP_VERSION

    def ask(
        leader: BrokerAddress, chosen: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset | SparklogError]:
        def draft(of: RequestDraft) -> Any:
            topics = parts_by_topic(
                of,
                ("ListOffsetsTopic", "ListOffsetsPartition"),
                chosen,
                lambda tp: {"current_leader_epoch": -1, "timestamp": wanted[tp]},
            )
            return of.request(replica_id=CLIENT, isolation_level=int(committed_only), topics=topics)

        answer = brokers.tell(leader, Api.LIST_OFFSETS, lowest, highest, draft)
        return {
            tp: ListedOffset(int(result.offset), int(result.timestamp))
            if result.error_code == 0
            else of_code(result.error_code, None, "the offset could not be looked up", partition=tp)
            for tp, result in partition_results(answer.topics).items()
        }

    return ask_leaders(
        brokers, list(wanted), ask, clock, patience_s=patience_s, topic_ids=topic_ids
    )


def delete_before(
    brokers: BrokerConnections, before: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, int | SparklogError]:
    """Delete records before offsets; return the new log starts.

    Raises as `Admin.delete_records`.
    """

    def ask(
        leader: BrokerAddress, chosen: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | SparklogError]:
        def draft(of: RequestDraft) -> Any:
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


FETCH_VERSIONS: Final = (8, 9)
COMMIT_VERSIONS: Final = (8, 9)
GROUP_OFFSETS_DELETE_VERSIONS: Final = (0, 0)
MEMBER_EPOCH_VERSION: Final = 9
NO_OFFSET: Final = -1
NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


def read_group_offsets(
    brokers: BrokerConnections,
    group_ids: Sequence[str],
    clock: Clock,
    *,
    require_stable: bool = False,
) -> dict[str, Committed | SparklogError]:
    """Return all committed offsets of groups; empty for a group that does not exist.

    With `require_stable` the coordinator first waits for transactions that commit offsets of them.
    """

    def ask(
        coordinator: ServingBroker, chosen: Sequence[str]
    ) -> dict[str, Committed | SparklogError]:
        def draft(of: RequestDraft) -> Any:
            member: dict[str, Any] = {}
            if of.version >= MEMBER_EPOCH_VERSION:
                member = {"member_id": None, "member_epoch": -1}
            groups = tuple(
                of.part("OffsetFetchRequestGroup", group_id=group, topics=None, **member)
                for group in chosen
            )
            return of.request(groups=groups, require_stable=require_stable)

        answer = brokers.tell(coordinator.address, Api.OFFSET_FETCH, *FETCH_VERSIONS, draft)
        return {group.group_id: _committed(group) for group in answer.groups}

    return ask_coordinators(brokers, CoordinatorKind.GROUP, group_ids, ask, clock)


def move_group_offsets(
    brokers: BrokerConnections, group_id: str, offsets: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, SparklogError | None]:
    """Commit offsets for a group without members. Raises as `Groups.move_offsets`."""

    def draft(of: RequestDraft) -> Any:
        topics = parts_by_topic(
            of,
            ("OffsetCommitRequestTopic", "OffsetCommitRequestPartition"),
            list(offsets),
            lambda tp: {
                "committed_offset": offsets[tp],
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            },
        )
        return of.request(
            group_id=group_id,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id=NO_MEMBER,
            group_instance_id=None,
            topics=topics,
        )

    def ask(coordinator: ServingBroker, _: Sequence[str]) -> dict[str, Any]:
        answer = brokers.tell(coordinator.address, Api.OFFSET_COMMIT, *COMMIT_VERSIONS, draft)
        failures = _failures(answer.topics, "the offset was not moved")
        # A former coordinator returns the error for each partition.
        for failure in failures.values():
            if failure is not None and failure.retriable:
                raise failure
        return {group_id: failures}

    return _of_one(ask_coordinators(brokers, CoordinatorKind.GROUP, [group_id], ask, clock))


def delete_group_offsets(
    brokers: BrokerConnections, group_id: str, partitions: Sequence[TopicPartition], clock: Clock
) -> dict[TopicPartition, SparklogError | None]:
    """Delete a group's committed offsets of partitions. Raises as `Groups.delete_offsets`."""

    def draft(of: RequestDraft) -> Any:
        kinds = ("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition")
        topics = parts_by_topic(of, kinds, partitions, lambda _: {})
        return of.request(group_id=group_id, topics=topics)

    def ask(coordinator: ServingBroker, _: Sequence[str]) -> dict[str, Any]:
        answer = brokers.tell(
            coordinator.address, Api.OFFSET_DELETE, *GROUP_OFFSETS_DELETE_VERSIONS, draft
        )
        doing = "the offset was not deleted"
        if answer.error_code != 0:
            raise of_code(answer.error_code, None, doing, group=group_id)
        return {group_id: _failures(answer.topics, doing)}

    return _of_one(ask_coordinators(brokers, CoordinatorKind.GROUP, [group_id], ask, clock))


def _of_one(outcomes: Mapping[str, Any]) -> dict[TopicPartition, SparklogError | None]:
    (outcome,) = outcomes.values()
    if isinstance(outcome, SparklogError):
        raise outcome
    return dict(outcome)


def _committed(group: Any) -> Committed | SparklogError:
    doing = "committed offsets could not be read"
    if group.error_code != 0:
        return of_code(group.error_code, None, doing, group=group.group_id)
    found = {}
    for topic in group.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, int(part.partition_index))
            if part.error_code != 0:
                return of_code(part.error_code, None, doing, group=group.group_id, partition=tp)
            if part.committed_offset != NO_OFFSET:
                found[tp] = CommittedOffset(
                    int(part.committed_offset),
                    int(part.committed_leader_epoch),
                    part.metadata or "",
                )
    return found


def _failures(topics: Any, doing: str) -> dict[TopicPartition, SparklogError | None]:
    return {
        (tp := TopicPartition(topic.name, int(part.partition_index))): None
        if part.error_code == 0
        else of_code(part.error_code, None, doing, partition=tp)
        for topic in topics
        for part in topic.partitions
    }
