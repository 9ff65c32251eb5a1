"""Who leads: fencing brokers, electing leaders, handing leadership over. Pure decisions.

Storage holds everything acknowledged, so any live broker is a clean leader: a replica in sync is
preferred because it has the tail in memory, then another replica, then anybody.
  E1  the leader epoch rises by one with every change of the leader
  E2  a leader is in the ISR, alone if it was not in sync before
  E3  a deposed leader's write-ahead log joins the partition's list, until a leader has recovered
  E4  who follows a leader that had not recovered marks the partition's own log before it serves:
      the other may still bring in what its replica had beyond the write-ahead logs, which nobody
      else knows, and meets the mark
  E5  where records are committed in memory, a broker that is about to stop leads once more if it
      alone is in sync: nobody else may have them, and it flushes all before it goes
Callers seal the write-ahead log of a broker before they append what fences or replaces it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from sparklog.cluster.image import Broker, MetadataImage, Partition
from sparklog.cluster.records import (
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
    """Return how a partition's `wals` spell a broker's write-ahead log."""
    return f"{broker.broker_id}-{broker.incarnation}"


def changed(before: Partition, after: Partition, where: PartitionId) -> list[Record]:
    """Return the record of a change, with the next partition epoch; none if nothing changed."""
    if after == before:
        return []
    after = replace(after, partition_epoch=before.partition_epoch + 1)
    return [after.record(where.topic_id, where.partition)]


def led_by(
    before: Partition, leader: int, isr: Sequence[int], *, wals: tuple[str, ...] | None = None
) -> Partition:
    """Return the partition with another leader, or with none; partition epoch as before."""
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
    before: Partition, eligible: Sequence[Broker], turn: int, leaving: Collection[int] = ()
) -> Partition:
    """Return the partition with the best leader there is, or with none. Partition epoch as before.

    `eligible` are the brokers in the order in which leaders outside the replicas are taken;
    `turn` says with which to begin, so that many partitions spread over them. `leaving` are those
    that are about to stop and lead only if no other is in sync (E5).
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
        # It takes the place of the preferred one; a move of replicas under way is off.
        replicas=(stand_in, *before.replicas[1:]),
        adding_replicas=(),
        removing_replicas=(),
    )


def fence(image: MetadataImage, broker_ids: Collection[int]) -> list[Record]:
    """Return the records that fence brokers whose write-ahead logs are sealed, and elect others.

    Those that are not registered, or fenced already, are passed over.
    """
    gone = {b: image.brokers[b] for b in sorted(broker_ids) if b in image.brokers}
    gone = {b: broker for b, broker in gone.items() if not broker.fenced}
    marks: list[Record] = [
        BrokerRegistrationChangeRecord(b.broker_id, b.epoch, fenced=True) for b in gone.values()
    ]
    return marks + _without(image, gone, image.eligible_brokers())


def register(image: MetadataImage, record: RegisterBrokerRecord) -> list[Record]:
    """Return the records that make an incarnation the registered one of its broker id.

    The write-ahead log of an incarnation that is registered and not fenced is sealed before; it is
    deposed in the same append, so its memory counts as in sync nowhere.
    """
    known = image.brokers.get(record.broker_id)
    if known is not None and known.incarnation == record.incarnation:
        return []
    if known is None or known.fenced:
        return [record]
    newcomer = Broker(
        record.broker_id, record.incarnation, record.host, record.port, record.rack, epoch=-1
    )
    eligible = [b for b in image.eligible_brokers() if b.broker_id != record.broker_id]
    eligible = sorted([*eligible, newcomer], key=lambda b: b.broker_id)
    return [record, *_without(image, {record.broker_id: known}, eligible)]


def _without(
    image: MetadataImage, gone: Mapping[int, Broker], eligible: Sequence[Broker]
) -> list[Record]:
    """Take brokers that lost their memory out of every ISR and from every lead."""
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
    """Say whether brokers' memory alone may hold records of a partition that are committed."""
    topic = image.topic_of(where.topic_id)
    return topic is not None and topic.settings.get("sparklog.commit") == "memory"


def only_holds(
    image: MetadataImage, broker_id: int, drained: Collection[PartitionId]
) -> list[PartitionId]:
    """Return the partitions that a broker was given to lead as it left, and has not flushed."""
    return [
        where
        for where, state in image.partitions()
        if state.leader == broker_id
        and where not in drained
        and state.isr == (broker_id,)
        and commits_in_memory(image, where)
    ]


def left_to_nobody(
    image: MetadataImage, broker_id: int, drained: Collection[PartitionId]
) -> list[PartitionId]:
    """Return what the last of all brokers that leave leads, and has not flushed.

    Nothing of it is lost, but until brokers come again nobody may write it directly.
    """
    if any(broker.broker_id != broker_id for broker in image.eligible_brokers()):
        return []
    return [
        where
        for where, state in image.partitions()
        if state.leader == broker_id and where not in drained
    ]


def elect_unled(
    image: MetadataImage, partitions: Iterable[tuple[PartitionId, Partition]]
) -> list[Record]:
    """Return the records that give a leader to each partition of these that has none."""
    eligible = image.eligible_brokers()
    records: list[Record] = []
    for turn, (where, before) in enumerate(partitions):
        if eligible and before.leader == NO_LEADER and before.replicas:
            records += changed(before, elected(before, eligible, turn), where)
    return records


def prefer(image: MetadataImage, where: PartitionId) -> list[Record]:
    """Return the records that ask a partition's leader to hand over to the first replica.

    Raises:
        UnknownTopicOrPartition: no such partition.
        ElectionNotNeeded: it leads already.
        PreferredLeaderNotAvailable: it is not alive and in sync.
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


def may_lead(image: MetadataImage, partition: Partition, broker_id: int) -> bool:
    """Say whether a broker is alive and in sync."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.eligible and broker_id in partition.isr


def hand_over(
    image: MetadataImage, where: PartitionId, broker_id: int, leader_epoch: int
) -> list[Record]:
    """Return the records by which a leader that has flushed all it had makes the next one leader.

    When the next one is not alive and in sync any more, the leader stays and is not asked again.

    Raises:
        NotServing: `broker_id` does not lead in this epoch any more.
    """
    before = led(image, where, broker_id, leader_epoch)
    if before.next_leader == NO_LEADER:
        return []
    if before.next_leader == broker_id or not may_lead(image, before, before.next_leader):
        return changed(before, replace(before, next_leader=NO_LEADER), where)
    return changed(before, led_by(before, before.next_leader, before.isr), where)


def led(image: MetadataImage, where: PartitionId, broker_id: int, leader_epoch: int) -> Partition:
    """Return a partition as its leader sees it.

    Raises:
        NotServing: `broker_id` does not lead in this epoch any more; refresh metadata.
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
    """Return the records after which a broker is given nothing more.

    Raises:
        Fenced: it is deposed or replaced.
    """
    broker = registered(image, broker_id, incarnation)
    if broker.shutting_down:
        return []
    return [BrokerRegistrationChangeRecord(broker_id, broker.epoch, in_controlled_shutdown=True)]


def registered(image: MetadataImage, broker_id: int, incarnation: str) -> Broker:
    """Return the registration of an incarnation that is not fenced.

    Raises:
        Fenced: it is deposed or replaced.
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
    """Return the records by which a broker leaves that serves nothing any more.

    Its partitions go to replicas in sync, else to any broker, else to nobody. What it led and did
    not flush (is not in `drained`) keeps its write-ahead log, which it has sealed, to recover from.

    Raises:
        Fenced: it is deposed or replaced; others have what it led.
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
    """Return the partitions that these records leave to nobody, with their new leader epochs."""
    return {
        PartitionId(r.topic_id, r.partition): r.leader_epoch
        for r in records
        if isinstance(r, PartitionRecord) and r.leader == NO_LEADER and not r.recovering
    }
