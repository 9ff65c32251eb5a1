"""Decisions of the controller: the records that it appends to the metadata log. Pure.

The last ControllerChangeRecord names the controller. It decides on the newest image. An image that
names another controller ends its work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparklog.cluster.controller import reassignment
from sparklog.cluster.controller.election import changed, elected, fence, may_lead, registered
from sparklog.cluster.metadata import replica_placer
from sparklog.cluster.metadata.image import Controller, MetadataImage, PartitionState
from sparklog.cluster.metadata.records import (
    NO_LEADER,
    ControllerChangeRecord,
    Record,
    UnregisterBrokerRecord,
)
from sparklog.core.errors import Fenced, InvalidRequest
from sparklog.core.types import PartitionId


def claim(
    image: MetadataImage, broker_id: int, incarnation: str, lost: Controller | None
) -> list[Record]:
    """Return the records that make a broker the controller, in place of `lost`.

    Return none if another live controller has replaced the lost one.
    """
    now = image.controller
    if now is not None and now != lost and is_controller_live(image):
        return []
    epoch = 1 if now is None else now.epoch + 1
    return [ControllerChangeRecord(broker_id, incarnation, epoch)]


def is_controller_live(image: MetadataImage) -> bool:
    """Return True if the controller is registered and not fenced in the metadata log."""
    if image.controller is None:
        return False
    broker = image.brokers.get(image.controller.broker_id)
    return (
        broker is not None
        and broker.incarnation == image.controller.incarnation
        and not broker.fenced
    )


def check_controller(image: MetadataImage, incarnation: str) -> None:
    """Reject a decision of a controller that was replaced.

    Raises:
        Fenced: another broker is the controller.
    """
    if image.controller is None or image.controller.incarnation != incarnation:
        raise Fenced(
            "another broker is the controller by now; stop deciding. "
            f"incarnation={incarnation} controller={image.controller}"
        )


def fence_sealed(
    image: MetadataImage, broker_id: int, incarnation: str, sealed: Mapping[int, int]
) -> list[Record]:
    """Return the records that fence brokers after a controller has sealed their logs.

    They can acknowledge nothing more, so a controller that another one has replaced meanwhile
    fences them too. If its successor is one of them, it takes its place back. Else the log would
    name a controller that cannot go on.

    Args:
        image: the newest.
        broker_id: of the broker that sealed the logs.
        incarnation: of that broker.
        sealed: epochs of the sealed incarnations, by their broker ids.

    Raises:
        Fenced: the broker itself was replaced or fenced; others find the seals by themselves.
    """
    own = registered(image, broker_id, incarnation)
    same = [i for i, e in sealed.items() if i in image.brokers and image.brokers[i].epoch == e]
    records = fence(image, same)
    after = image.applied(records, image.end_offset + len(records)) if records else image
    if own.eligible and not is_controller_live(after):
        records += claim(after, broker_id, incarnation, after.controller)
    return records


def upkeep(
    image: MetadataImage, topics: Iterable[str], default_replication_factor: int
) -> list[Record]:
    """Return the records that bring topics to their wanted state, as far as live brokers allow.

    They elect leaders for partitions without one, add missing replicas, and take the next step of
    reassignments. Repeated calls reach a state without records. Cost: the partitions of `topics`,
    and once those of the image if one of `topics` has a partition without replicas.
    """
    brokers = image.eligible_brokers()
    if not brokers:
        return []
    records: list[Record] = []
    start: int | None = None
    for name in topics:
        topic = image.topics.get(name)
        if topic is None:
            continue
        wanted = min(topic.replication_factor or default_replication_factor, len(brokers))
        for number, before in enumerate(topic.partition_states):
            where = PartitionId(topic.topic_id, number)
            after = before
            if not after.replicas:
                start = _started(image) if start is None else start
                replicas = replica_placer.place(brokers, 1, wanted, start)[0]
                after, start = replace(after, replicas=replicas), start + 1
            if after.leader == NO_LEADER:
                after = elected(after, brokers, number)
            after = _filled(image, after, wanted, number)
            records += changed(before, after, where) or reassignment.advance(image, where, before)
    return records


def unregister(image: MetadataImage, broker_id: int) -> list[Record]:
    """Return the records that remove a fenced broker; none for an unknown id.

    Raises:
        InvalidRequest: the broker is alive; stop it first.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        return []
    if not broker.fenced:
        raise InvalidRequest(f"the broker is alive; stop it first. broker_id={broker_id}")
    return [UnregisterBrokerRecord(broker_id, broker.epoch)]


def rebalance(image: MetadataImage) -> list[Record]:
    """Return the records that ask leaders to hand over to preferred replicas in sync."""
    records: list[Record] = []
    for where, before in image.partitions():
        preferred = before.replicas[0] if before.replicas else NO_LEADER
        wanted = preferred not in (before.leader, before.next_leader)
        if wanted and not before.recovering and may_lead(image, before, preferred):
            records += changed(before, replace(before, next_leader=preferred), where)
    return records


def _filled(
    image: MetadataImage, partition: PartitionState, wanted: int, number: int
) -> PartitionState:
    """Add replicas for which there were too few brokers at placement."""
    moving = partition.adding_replicas or partition.removing_replicas
    if moving or len(partition.replicas) >= wanted:
        return partition
    replicas = replica_placer.extended(image.eligible_brokers(), partition.replicas, wanted, number)
    return replace(partition, replicas=replicas)


def _started(image: MetadataImage) -> int:
    """Return the number of placed partitions: the place in the ring where the next one starts."""
    return sum(1 for _, partition in image.partitions() if partition.replicas)
