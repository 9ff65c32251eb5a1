"""Which replicas are in sync: what a leader has the metadata log say. Pure decisions.

Each is made by the leader, on the newest image: one that was deposed finds out here. A broker that
restarted is another one, so who joins is named with the broker epoch it fetched with (KIP-903).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sparklog.cluster.election import changed, led
from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import Record
from sparklog.core.errors import NotServing
from sparklog.core.types import PartitionId


def expand(
    image: MetadataImage,
    where: PartitionId,
    broker_id: int,
    leader_epoch: int,
    joining: Mapping[int, int],
) -> list[Record]:
    """Return the records that take replicas into the ISR; none if none of them may join now.

    Args:
        image: the newest.
        where: the partition.
        broker_id: its leader, who decides.
        leader_epoch: the epoch it leads in.
        joining: broker id to the broker epoch that it fetched with.

    Raises:
        NotServing: `broker_id` does not lead in this epoch any more.
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
    """Return the records that take replicas other than the leader out of the ISR.

    Raises:
        NotServing: `broker_id` does not lead in this epoch any more.
    """
    before = led(image, where, broker_id, leader_epoch)
    isr = tuple(r for r in before.isr if r == broker_id or r not in leaving)
    return changed(before, replace(before, isr=isr), where)


def recovered(
    image: MetadataImage, leading: Iterable[tuple[PartitionId, int]], broker_id: int
) -> list[Record]:
    """Return the records saying that partitions' own logs hold all that their sealed logs held.

    `leading` gives the leader epoch each was recovered in; those that have another by now, and
    those that are gone, are passed over: somebody else recovers them.
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
