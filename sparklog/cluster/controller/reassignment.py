"""Reassignment of replicas: begin, cancel, list, complete. Pure decisions. Source: KIP-455.

During a reassignment the replicas are the target, followed by those to remove. The reassignment
completes when all added replicas are in sync and a replica that stays is the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparklog.cluster.controller.election import changed, may_lead
from sparklog.cluster.metadata.image import MetadataImage, PartitionState, Topic
from sparklog.cluster.metadata.records import NO_LEADER, Record, TopicRecord
from sparklog.cluster.metadata.replica_placer import check_replicas
from sparklog.core.errors import NoReassignmentInProgress, UnknownTopicOrPartition
from sparklog.core.types import PartitionId


@dataclass(frozen=True, slots=True)
class Move:
    """A partition whose replicas are moving."""

    where: PartitionId
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


def reassign(image: MetadataImage, where: PartitionId, target: Sequence[int]) -> list[Record]:
    """Return the records that begin to move a partition to the replicas `target`.

    A running reassignment gets the new target.

    Raises:
        UnknownTopicOrPartition: no such partition.
        InvalidReplicaAssignment: the target is invalid.
    """
    topic, before = _known(image, where)
    check_replicas(image, target)
    settled = _settled(before)
    # A partition without replicas has nothing to copy.
    adding = tuple(r for r in target if r not in settled) if settled else ()
    removing = tuple(r for r in before.replicas if r not in target)
    after = replace(
        before,
        replicas=(*target, *removing),
        adding_replicas=adding,
        removing_replicas=removing,
    )
    after = _completed(image, after)
    return [*_fewer(topic, len(target)), *changed(before, after, where)]


def cancel(image: MetadataImage, where: PartitionId) -> list[Record]:
    """Return the records that restore the replicas before a reassignment.

    Raises:
        UnknownTopicOrPartition: no such partition.
        NoReassignmentInProgress: there is no reassignment to cancel.
    """
    _, before = _known(image, where)
    if not _is_moving(before):
        raise NoReassignmentInProgress(f"no replicas of it are moving. partition={where}")
    kept = _settled(before)
    going = tuple(r for r in before.replicas if r not in kept)
    after = replace(before, replicas=(*kept, *going), adding_replicas=(), removing_replicas=going)
    return changed(before, _completed(image, after), where)


def moves(image: MetadataImage) -> list[Move]:
    """Return every partition whose replicas are moving."""
    return [
        Move(where, p.replicas, p.adding_replicas, p.removing_replicas)
        for where, p in image.partitions()
        if _is_moving(p)
    ]


def advance(image: MetadataImage, where: PartitionId, before: PartitionState) -> list[Record]:
    """Return the records of a reassignment's next step; none while replicas catch up.

    It asks a leader that is to be removed to hand over. When a replica that stays leads, it drops
    the others.
    """
    if not _is_moving(before):
        return []
    return changed(before, _completed(image, before), where)


def _completed(image: MetadataImage, moving: PartitionState) -> PartitionState:
    if not set(moving.adding_replicas) <= set(moving.isr):
        return moving
    staying = tuple(r for r in moving.replicas if r not in moving.removing_replicas)
    if moving.leader not in (*staying, NO_LEADER):
        return _led_away(image, moving, staying)
    return replace(
        moving,
        replicas=staying,
        isr=tuple(r for r in moving.isr if r in staying),
        adding_replicas=(),
        removing_replicas=(),
        next_leader=moving.next_leader if moving.next_leader in staying else NO_LEADER,
    )


def _led_away(
    image: MetadataImage, moving: PartitionState, staying: Sequence[int]
) -> PartitionState:
    if moving.next_leader in staying and may_lead(image, moving, moving.next_leader):
        return moving
    next_leader = next((r for r in staying if may_lead(image, moving, r)), NO_LEADER)
    return replace(moving, next_leader=next_leader)


def _settled(partition: PartitionState) -> tuple[int, ...]:
    """Return the replicas before the reassignment."""
    return tuple(r for r in partition.replicas if r not in partition.adding_replicas)


def _is_moving(partition: PartitionState) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _fewer(topic: Topic, replicas: int) -> list[Record]:
    """Lower the topic's replication factor, so that upkeep does not add removed replicas again."""
    if topic.replication_factor is not None and topic.replication_factor <= replicas:
        return []
    if all(replicas >= len(_settled(p)) for p in topic.partition_states):
        return []
    return [TopicRecord(topic.name, topic.topic_id, replicas)]


def _known(image: MetadataImage, where: PartitionId) -> tuple[Topic, PartitionState]:
    topic, partition = image.topic_of(where.topic_id), image.partition(where)
    if topic is None or partition is None:
        raise UnknownTopicOrPartition(f"no such partition. partition={where}")
    return topic, partition
