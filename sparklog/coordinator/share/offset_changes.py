"""Changes of a share group's offsets by administrators: pure steps of its group coordinator.

The offsets are in stored states, which another broker may have. So each change has two steps here,
and the states are changed in between. A group with members has no such changes: its members would
go on with records that they have.

OFFSET-CHANGES-1: An alteration raises the group epoch, and that is the epoch of the altered states.
    No state of the group has a higher one.
OFFSET-CHANGES-2: Before a state is initialized or deleted, a record says so. If the second step is
    missing, the group initializes the state again before a member gets the partition.

Source: Kafka's `GroupMetadataManager.alterShareGroupOffsets` and `deleteShareGroupOffsets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from sparklog.coordinator.consumer.messages import Parts
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.errors import NonEmptyGroup
from sparklog.coordinator.share.heartbeat import ID_BYTES_MAX, ShareChange
from sparklog.coordinator.share.messages import InitializeShareState
from sparklog.coordinator.share.records import ShareGroupEpoch
from sparklog.core.errors import InvalidRequest


def check_empty(change: ShareChange) -> None:
    """Reject a change of the offsets of a group with members.

    Raises:
        NonEmptyGroup: the group has members.
    """
    group_id = change.group.group_id
    if change.group.members:
        raise NonEmptyGroup(f"The group is not empty. group={group_id}")


def begin_alteration(
    change: ShareChange, parts: Parts, names: Mapping[UUID, str]
) -> InitializeShareState:
    """Record that states get other offsets; return how to initialize them.

    The group may be a new one, which then begins at these offsets.

    Args:
        change: of the group.
        parts: the partitions.
        names: of the partitions' topics, by their ids.

    Raises:
        NonEmptyGroup: the group has members. InvalidRequest: no group can have its id.
    """
    check_empty(change)
    group, before = change.group, change.group.partitions
    if not group.group_id.strip() or len(group.group_id.encode()) > ID_BYTES_MAX:
        raise InvalidRequest("The group id is empty or too long.")
    change.add(ShareGroupEpoch(group.group_id, group.epoch + 1, group.topics_hash))
    topic_ids = {topic_id for topic_id, _ in parts}
    after = replace(
        before,
        initializing=before.initializing | (parts - before.initialized),
        deleting=before.deleting - topic_ids,
        names={**before.names, **names},
    )
    if after != before:
        change.add(after)
    return InitializeShareState(group.group_id, group.epoch, tuple(sorted(parts)))


def begin_offset_deletion(
    change: ShareChange, topics: Mapping[UUID, int]
) -> tuple[SharePartitionKey, ...]:
    """Record that the states of topics are deleted; return their keys.

    `topics` has the number of partitions of each topic. A topic without a state has no keys in the
    result.

    Raises:
        NonEmptyGroup: the group has members.
    """
    check_empty(change)
    group, before = change.group, change.group.partitions
    parts = {
        (topic_id, number)
        for topic_id, number in before.initialized | before.initializing
        if topic_id in topics
    }
    again = {(t, n) for t in before.deleting if t in topics for n in range(topics[t])}
    topic_ids = {topic_id for topic_id, _ in parts}
    if topic_ids:
        change.add(
            replace(
                before,
                initializing=before.initializing - parts,
                initialized=before.initialized - parts,
                deleting=before.deleting | topic_ids,
            )
        )
        group.topics_seen = None  # the next heartbeat looks at which topics need a state
    return group.state_keys(frozenset(parts | again))


def end_offset_deletion(change: ShareChange, topic_ids: frozenset[UUID]) -> None:
    """Record that no state of these topics is left."""
    before = change.group.partitions
    done = before.deleting & topic_ids
    if done:
        after = replace(before, deleting=before.deleting - done)
        names = {t: name for t, name in before.names.items() if t in after.topic_ids()}
        change.add(replace(after, names=names))
