"""Moving replicas: begin, cancel, list, complete. Pure decisions. Source: KIP-455.

While a partition moves its replicas are the new ones and, behind them, those that will go. When all
that are added are in sync, and a replica that stays leads, those that go are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparklog.cluster.election import changed, may_lead
from sparklog.cluster.image import MetadataImage, Partition, Topic
from sparklog.cluster.placement import check_replicas
from sparklog.cluster.records import NO_LEADER, Record, TopicRecord
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

    A move under way goes on to the new target instead.

    Raises:
        UnknownTopicOrPartition: no such partition.
        InvalidReplicaAssignment: the target cannot be.
    """
    topic, before = _known(image, where)
    check_replicas(image, target)
    settled = _settled(before)
    # Where nobody held it, there is nothing to move from.
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
    """Return the records that take a partition back to the replicas it had before a move.

    Raises:
        UnknownTopicOrPartition: no such partition.
        NoReassignmentInProgress: nothing to cancel.
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


def advance(image: MetadataImage, where: PartitionId, before: Partition) -> list[Record]:
    """Return the records that take a move one step on; none while replicas have to catch up.

    It asks a leader that goes to hand over, and drops what goes when a replica that stays leads.
    """
    if not _is_moving(before):
        return []
    return changed(before, _completed(image, before), where)


def _completed(image: MetadataImage, moving: Partition) -> Partition:
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


def _led_away(image: MetadataImage, moving: Partition, staying: Sequence[int]) -> Partition:
    if moving.next_leader in staying and may_lead(image, moving, moving.next_leader):
        return moving
    next_leader = next((r for r in staying if may_lead(image, moving, r)), NO_LEADER)
    return replace(moving, next_leader=next_leader)


def _settled(partition: Partition) -> tuple[int, ...]:
    """Return the replicas that were there before the move."""
    return tuple(r for r in partition.replicas if r not in partition.adding_replicas)


def _is_moving(partition: Partition) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _fewer(topic: Topic, replicas: int) -> list[Record]:
    """Lower the number of replicas a topic wants, lest what was taken away comes back."""
    if topic.replication_factor is not None and topic.replication_factor <= replicas:
        return []
    if all(replicas >= len(_settled(p)) for p in topic.partition_states):
        return []
    return [TopicRecord(topic.name, topic.topic_id, replicas)]


def _known(image: MetadataImage, where: PartitionId) -> tuple[Topic, Partition]:
    topic, partition = image.topic_of(where.topic_id), image.partition(where)
    if topic is None or partition is None:
        raise UnknownTopicOrPartition(f"no such partition. partition={where}")
    return topic, partition
