"""Elections: fences brokers, elects leaders, hands leadership over. Pure decisions.

Storage holds every acknowledged record, so any live broker is a clean leader. A replica in sync
comes first because it has the unflushed tail in memory. Another replica is next, then any broker.

ELECTION-1: The leader epoch rises by one with every change of the leader.
ELECTION-2: A leader is in the ISR, alone if it was not in sync before.
ELECTION-3: The write-ahead log of a deposed leader joins the partition's `wals`, until a leader
    has recovered it.
ELECTION-4: A leader after one that had not recovered fences the partition's log before it serves.
    The older leader may still flush records that only its memory holds, beyond the write-ahead
    logs; its flush then conflicts with the fence.
ELECTION-5: With commits in memory, a broker that shuts down leads once more if it alone is in
    sync. It may have the only copy, and it flushes all before it leaves.

Callers seal the write-ahead log of a broker before they append what fences or replaces it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from sparklog.cluster.metadata.image import Broker, MetadataImage, PartitionState
from sparklog.cluster.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from sparklog.core.errors import (
    ElectionNotNeeded,
    Fenced,
    NotServing,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId


def wal_name(broker: Broker) -> str:
    """Return a broker's write-ahead log as a partition's `wals` name it."""
    return f"{broker.broker_id}-{broker.incarnation}"


def changed(before: PartitionState, after: PartitionState, where: PartitionId) -> list[Record]:
    """Return the record of a change, with the next partition epoch; none if nothing changed."""
    if after == before:
        return []
    after = replace(after, partition_epoch=before.partition_epoch + 1)
    return [after.record(where.topic_id, where.partition)]


def led_by(
    before: PartitionState, leader: int, isr: Sequence[int], *, wals: tuple[str, ...] | None = None
) -> PartitionState:
    """Return the partition with another leader, or with none. It keeps the partition epoch."""
    wals = before.wals if wals is None else wals
    alone = leader not in isr
    return replace(
        before,
        leader=leader,
        leader_epoch=before.leader_epoch + 1,
        isr=(() if leader == NO_LEADER else (leader,)) if alone else tuple(isr),
        recovering=leader != NO_LEADER or bool(wals),
        wals=wals,
        next_leader=NO_LEADER,
        take_lead=leader != NO_LEADER
        and (before.leader == NO_LEADER or before.take_lead or before.recovering),
    )


def elected(
    before: PartitionState, eligible: Sequence[Broker], turn: int, leaving: Collection[int] = ()
) -> PartitionState:
    """Return the partition with the best leader, or with none. It keeps the partition epoch.

    `eligible` are the brokers in the order in which the election takes leaders outside the
    replicas. `turn` is the first one's index, so that many partitions spread over them. `leaving`
    are brokers that shut down; they lead only if no other is in sync (ELECTION-5).
    """
    ids = {b.broker_id for b in eligible}
    in_sync = tuple(r for r in before.isr if r in ids)
    last = tuple(r for r in before.isr if r in leaving)
    if last and not in_sync:
        return led_by(before, last[0], last)
    alive = [r for r in before.replicas if r in ids]
    best = next((r for r in before.replicas if r in in_sync), alive[0] if alive else None)
    if best is not None:
        return led_by(before, best, in_sync)
    if not eligible:
        return led_by(before, NO_LEADER, ())
    stand_in = eligible[turn % len(eligible)].broker_id
    return replace(
        led_by(before, stand_in, ()),
        # It replaces the preferred replica, and cancels a running reassignment.
        replicas=(stand_in, *before.replicas[1:]),
        adding_replicas=(),
        removing_replicas=(),
    )


def fence(image: MetadataImage, broker_ids: Collection[int]) -> list[Record]:
    """Return the records that fence brokers whose write-ahead logs are sealed, and elect others.

    Unregistered and fenced brokers are skipped.
    """
    gone = {b: image.brokers[b] for b in sorted(broker_ids) if b in image.brokers}
    gone = {b: broker for b, broker in gone.items() if not broker.fenced}
    marks: list[Record] = [
        BrokerRegistrationChangeRecord(b.broker_id, b.epoch, fenced=True) for b in gone.values()
    ]
    return marks + _without(image, gone, image.eligible_brokers())


def register(image: MetadataImage, record: RegisterBrokerRecord) -> list[Record]:
    """Return the records that register an incarnation of its broker id.

    The caller seals the write-ahead log of a previous, unfenced incarnation first. The same append
    deposes that incarnation, so the ISR has no broker without its memory.
    """
    known = image.brokers.get(record.broker_id)
    if known is not None and known.incarnation == record.incarnation:
        return []
    if known is None or known.fenced:
        return [record]
    newcomer = Broker(
        record.broker_id,
        record.incarnation,
        record.host,
        record.port,
        record.rack,
        epoch=-1,
        endpoints=record.endpoints,
    )
    eligible = [b for b in image.eligible_brokers() if b.broker_id != record.broker_id]
    eligible = sorted([*eligible, newcomer], key=lambda b: b.broker_id)
    return [record, *_without(image, {record.broker_id: known}, eligible)]


def _without(
    image: MetadataImage, gone: Mapping[int, Broker], eligible: Sequence[Broker]
) -> list[Record]:
    """Remove brokers that lost their memory from every ISR and every leadership."""
    able = [b for b in eligible if b.broker_id not in gone or b is not gone[b.broker_id]]
    leaving = {b.broker_id for b in image.live_brokers() if b.shutting_down} - gone.keys()
    records: list[Record] = []
    for turn, (where, before) in enumerate(image.partitions()):
        isr = tuple(r for r in before.isr if r not in gone)
        kept = before.next_leader not in gone
        after = replace(before, isr=isr, next_leader=before.next_leader if kept else NO_LEADER)
        if before.leader in gone:
            wals = (*before.wals, wal_name(gone[before.leader]))
            last = leaving if commits_in_memory(image, where) else ()
            after = elected(replace(after, wals=wals), able, turn, last)
        records += changed(before, after, where)
    return records


def commits_in_memory(image: MetadataImage, where: PartitionId) -> bool:
    """Return True if only brokers' memory may hold committed records of a partition."""
    topic = image.topic_of(where.topic_id)
    return topic is not None and topic.settings.get("sparklog.commit") == "memory"


def only_holds(
    image: MetadataImage, broker_id: int, drained: Collection[PartitionId]
) -> list[PartitionId]:
    """Return the unflushed partitions that a leaving broker leads as the only one in sync."""
    return [
        where
        for where, state in image.partitions()
        if state.leader == broker_id
        and where not in drained
        and state.isr == (broker_id,)
        and commits_in_memory(image, where)
    ]


def leaderless_without(
    image: MetadataImage, broker_id: int, drained: Collection[PartitionId]
) -> list[PartitionId]:
    """Return the partitions that the last leaving broker leads, and has not flushed.

    No record is lost. But until a broker returns, no client can write to them directly.
    """
    if any(broker.broker_id != broker_id for broker in image.eligible_brokers()):
        return []
    return [
        where
        for where, state in image.partitions()
        if state.leader == broker_id and where not in drained
    ]


def elect_unled(
    image: MetadataImage, partitions: Iterable[tuple[PartitionId, PartitionState]]
) -> list[Record]:
    """Return the records that elect a leader for each of these partitions without one."""
    eligible = image.eligible_brokers()
    records: list[Record] = []
    for turn, (where, before) in enumerate(partitions):
        if eligible and before.leader == NO_LEADER and before.replicas:
            records += changed(before, elected(before, eligible, turn), where)
    return records


def prefer(image: MetadataImage, where: PartitionId) -> list[Record]:
    """Return the records that ask a partition's leader to hand over to the preferred replica.

    Raises:
        UnknownTopicOrPartition: no such partition.
        ElectionNotNeeded: the preferred replica is the leader.
        PreferredLeaderNotAvailable: the preferred replica is not alive and in sync.
    """
    before = image.partition(where)
    if before is None:
        raise UnknownTopicOrPartition(f"no such partition. partition={where}")
    if not before.replicas:
        raise PreferredLeaderNotAvailable(f"no broker was ever given it. partition={where}")
    preferred = before.replicas[0]
    if before.leader == preferred:
        raise ElectionNotNeeded(f"the preferred replica leads. partition={where}")
    if not may_lead(image, before, preferred) or before.leader == NO_LEADER:
        raise PreferredLeaderNotAvailable(
            "the first replica is not alive and in sync; try again when it is. "
            f"partition={where} preferred={preferred} isr={list(before.isr)}"
        )
    return changed(before, replace(before, next_leader=preferred), where)


def may_lead(image: MetadataImage, partition: PartitionState, broker_id: int) -> bool:
    """Return True if a broker is alive and in sync."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.eligible and broker_id in partition.isr


def hand_over(
    image: MetadataImage, where: PartitionId, broker_id: int, leader_epoch: int
) -> list[Record]:
    """Return the records by which a leader that has flushed everything hands over to the next one.

    If the next one is no longer alive and in sync, the leader stays and the request is dropped.

    Raises:
        NotServing: `broker_id` is no longer the leader in this epoch.
    """
    before = led(image, where, broker_id, leader_epoch)
    if before.next_leader == NO_LEADER:
        return []
    if before.next_leader == broker_id or not may_lead(image, before, before.next_leader):
        return changed(before, replace(before, next_leader=NO_LEADER), where)
    return changed(before, led_by(before, before.next_leader, before.isr), where)


def led(
    image: MetadataImage, where: PartitionId, broker_id: int, leader_epoch: int
) -> PartitionState:
    """Return a partition, if the broker leads it in this epoch.

    Raises:
        NotServing: `broker_id` is no longer the leader in this epoch; refresh metadata.
    """
    found = image.partition(where)
    if found is None or (found.leader, found.leader_epoch) != (broker_id, leader_epoch):
        raise NotServing(
            "the partition has another leader or epoch by now; refresh metadata. "
            f"partition={where} broker_id={broker_id} leader_epoch={leader_epoch} "
            f"now={None if found is None else (found.leader, found.leader_epoch)}"
        )
    return found


def begin_shutdown(image: MetadataImage, broker_id: int, incarnation: str) -> list[Record]:
    """Return the records after which a broker gets no more leaderships and replicas.

    Raises:
        Fenced: the broker is deposed or replaced.
    """
    broker = registered(image, broker_id, incarnation)
    if broker.shutting_down:
        return []
    return [BrokerRegistrationChangeRecord(broker_id, broker.epoch, in_controlled_shutdown=True)]


def registered(image: MetadataImage, broker_id: int, incarnation: str) -> Broker:
    """Return the registration of an incarnation that is not fenced.

    Raises:
        Fenced: the broker is deposed or replaced.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.incarnation != incarnation or broker.fenced:
        raise Fenced(
            "the broker is deposed or replaced by another incarnation; start with a new one. "
            f"broker_id={broker_id} incarnation={incarnation} registered={broker}"
        )
    return broker


def controlled_shutdown(
    image: MetadataImage, broker_id: int, incarnation: str, drained: Collection[PartitionId]
) -> list[Record]:
    """Return the records that unregister a broker which has stopped serving.

    Its partitions go to replicas in sync, else to any broker, else they have no leader. A partition
    outside `drained` was not flushed: recovery reads it from the write-ahead log that this broker
    has sealed.

    Raises:
        Fenced: the broker is deposed or replaced; others lead its partitions.
    """
    broker = registered(image, broker_id, incarnation)
    eligible = [b for b in image.eligible_brokers() if b.broker_id != broker_id]
    records: list[Record] = []
    for turn, (where, before) in enumerate(image.partitions()):
        after = replace(before, isr=tuple(r for r in before.isr if r != broker_id))
        if before.next_leader == broker_id:
            after = replace(after, next_leader=NO_LEADER)
        if before.leader == broker_id:
            wals = () if where in drained else (*before.wals, wal_name(broker))
            after = elected(replace(after, wals=wals), eligible, turn)
        records += changed(before, after, where)
    return [*records, UnregisterBrokerRecord(broker_id, broker.epoch)]


def handed_back(records: Iterable[Record]) -> dict[PartitionId, int]:
    """Return the partitions without a leader after these records, with their new epochs."""
    return {
        PartitionId(r.topic_id, r.partition): r.leader_epoch
        for r in records
        if isinstance(r, PartitionRecord) and r.leader == NO_LEADER and not r.recovering
    }
