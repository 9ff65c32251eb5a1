"""ISR changes: the records that a leader appends to the metadata log. Pure decisions.

The leader decides on the newest image, which shows it if it was deposed. A restarted broker has
lost its memory, so a joining broker is named with the broker epoch of its fetch (KIP-903).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sparklog.cluster.controller.election import changed, led
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.core.errors import NotServing
from sparklog.core.types import PartitionId


def expand(
    image: MetadataImage,
    where: PartitionId,
    broker_id: int,
    leader_epoch: int,
    joining: Mapping[int, int],
) -> list[Record]:
    """Return the records that add replicas to the ISR; none if no replica may join now.

    Args:
        image: the newest image.
        where: the partition.
        broker_id: its leader.
        leader_epoch: the leader's epoch.
        joining: broker id to the broker epoch of its fetch.

    Raises:
        NotServing: `broker_id` is no longer the leader in this epoch.
    """
    before = led(image, where, broker_id, leader_epoch)
    able = {
        b.broker_id
        for b in image.eligible_brokers()
        if joining.get(b.broker_id) == b.epoch and b.broker_id in before.replicas
    }
    isr = (*before.isr, *(r for r in before.replicas if r in able and r not in before.isr))
    return changed(before, replace(before, isr=isr), where)


def shrink(
    image: MetadataImage,
    where: PartitionId,
    broker_id: int,
    leader_epoch: int,
    leaving: Collection[int],
) -> list[Record]:
    """Return the records that remove replicas other than the leader from the ISR.

    Raises:
        NotServing: `broker_id` is no longer the leader in this epoch.
    """
    before = led(image, where, broker_id, leader_epoch)
    isr = tuple(r for r in before.isr if r == broker_id or r not in leaving)
    return changed(before, replace(before, isr=isr), where)


def recovered(
    image: MetadataImage, leading: Iterable[tuple[PartitionId, int]], broker_id: int
) -> list[Record]:
    """Return the records that mark partitions as recovered: their own logs hold all of `wals`.

    `leading` has the leader epoch in which each was recovered. Deleted partitions, and those with a
    newer epoch, are skipped: their new leader recovers them.
    """
    records: list[Record] = []
    for where, leader_epoch in leading:
        try:
            before = led(image, where, broker_id, leader_epoch)
        except NotServing:
            continue
        after = replace(before, recovering=False, wals=(), take_lead=False)
        records += changed(before, after, where)
    return records
