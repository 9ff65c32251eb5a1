"""Reads, moves and deletes the committed offsets of a group. Source: KIP-496, KIP-709."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparklog.client.asking import Brokers, Draft
from sparklog.client.by_leader import parts_by_topic
from sparklog.client.coordinators import CoordinatorKind, ask_coordinators
from sparklog.client.errors import of_code
from sparklog.client.group_values import Committed, CommittedOffset
from sparklog.client.values import ServingBroker
from sparklog.core.clock import Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api

FETCH_VERSIONS: Final = (8, 9)
COMMIT_VERSIONS: Final = (8, 9)
DELETE_VERSIONS: Final = (0, 0)
MEMBER_EPOCH_VERSION: Final = 9
NO_OFFSET: Final = -1
NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


def read_group_offsets(
    brokers: Brokers, group_ids: Sequence[str], clock: Clock, *, require_stable: bool = False
) -> dict[str, Committed | SparklogError]:
    """Return all committed offsets of groups; empty for a group that does not exist.

    With `require_stable` the coordinator first waits for transactions that commit offsets of them.
    """

    def ask(
        coordinator: ServingBroker, chosen: Sequence[str]
    ) -> dict[str, Committed | SparklogError]:
        def draft(of: Draft) -> Any:
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
    brokers: Brokers, group_id: str, offsets: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, SparklogError | None]:
    """Commit offsets for a group without members. Raises as `Groups.move_offsets`."""

    def draft(of: Draft) -> Any:
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
    brokers: Brokers, group_id: str, partitions: Sequence[TopicPartition], clock: Clock
) -> dict[TopicPartition, SparklogError | None]:
    """Delete a group's committed offsets of partitions. Raises as `Groups.delete_offsets`."""

    def draft(of: Draft) -> Any:
        kinds = ("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition")
        topics = parts_by_topic(of, kinds, partitions, lambda _: {})
        return of.request(group_id=group_id, topics=topics)

    def ask(coordinator: ServingBroker, _: Sequence[str]) -> dict[str, Any]:
        answer = brokers.tell(coordinator.address, Api.OFFSET_DELETE, *DELETE_VERSIONS, draft)
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
