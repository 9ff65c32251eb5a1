"""Recovers the batches of deposed leaders from write-ahead logs, by partition. Source: WAL.md 5.

A log is sealed and read once, for every partition that its broker led. The batches of a partition
join the end of the partition's own log (L1). Read that end *after* the sealed logs: an object that
is missing from them was flushed before it was deleted.

WAL-RECOVERY-1: The batches in a result join each other, and the first joins the partition's own
    log.
WAL-RECOVERY-2: Leader epochs never fall from one batch to the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import OffsetRange, PartitionId
from sparklog.log.effects import Program
from sparklog.log.layout import WalLayout
from sparklog.log.manifest.view import PartitionView
from sparklog.log.wal.objects import WalBatch, WalObject
from sparklog.log.wal.sealing import (
    OBJECTS_READ_AT_ONCE,
    LogTail,
    Sealed,
    read_objects,
    read_sealed,
    read_tail,
    seal,
    sizes_of,
)
from sparklog.protocol.records.header import BatchHeader, parse_header


@dataclass(frozen=True, slots=True)
class SealedTail:
    """Batches that a sealed write-ahead log may have beyond the partitions' own logs."""

    layout: WalLayout
    sealed: Sealed
    batches: Mapping[PartitionId, tuple[WalBatch, ...]]
    """In the order in which the broker appended them."""
    broken_at: int | None = None
    """See `LogTail.broken_at`."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all batches: the memory that this object uses."""
        return sum(len(b.data) for batches in self.batches.values() for b in batches)


def read_early(layout: WalLayout, bytes_max: int) -> Program[dict[int, WalObject]]:
    """Return the newest objects of a log whose broker may be dead, by sequence.

    They are for `seal_and_read`. The broker may run, and may write on. They are at most
    `OBJECTS_READ_AT_ONCE` objects, and `bytes_max` bytes. Cost: a listing, and a GET for each.
    """
    sizes = yield from sizes_of(layout)
    chosen: list[int] = []
    for sequence in sorted(sizes, reverse=True)[:OBJECTS_READ_AT_ONCE]:
        bytes_max -= sizes[sequence]
        if bytes_max < 0:
            break
        chosen.append(sequence)
    objects = yield from read_objects(layout, chosen)
    return {one.header.sequence: one for one in objects or () if isinstance(one, WalObject)}


def seal_and_read(
    layout: WalLayout, nonce: str, known: Mapping[int, WalObject] | None = None
) -> Program[SealedTail]:
    """Read the rest of a log that is sealed according to the metadata. Idempotent.

    It first seals a log without a visible seal. Cost: WAL.md 6. Flushes bound its memory, the tail.
    The objects in `known`, from `read_early`, are not read again.

    Raises:
        Unavailable: the store does not answer, or the log keeps changing; try again.
        DataCorrupt: an object is damaged.
    """
    found: tuple[Sealed, LogTail] | None = yield from read_sealed(layout, known)
    if found is None:
        sealed = yield from seal(layout, nonce)
        found = sealed, (yield from read_tail(layout, sealed))
    sealed, tail = found
    return SealedTail(layout, sealed, by_partition(tail.windows), tail.broken_at)


def by_partition(windows: Iterable[WalObject]) -> Mapping[PartitionId, tuple[WalBatch, ...]]:
    """Return the batches of all windows, partition by partition."""
    found: defaultdict[PartitionId, list[WalBatch]] = defaultdict(list)
    for window in windows:
        for batch in window.batches:
            found[PartitionId(batch.topic_id, batch.partition)].append(batch)
    return {partition: tuple(batches) for partition, batches in found.items()}


def recover_batches(
    tails: Sequence[SealedTail], view: PartitionView, gaps: list[OffsetRange] | None = None
) -> tuple[WalBatch, ...]:
    """Return the batches of a partition in the sealed logs beyond the end of its own log, in order.

    A leader appends only after all batches that it found at its election. So earlier epochs end
    where a later one begins: batches of a deposed leader beyond that were never committed.

    Args:
        `tails`: of every broker that led the partition since its last known flush, in any order.
        `view`: of the partition, read after all of `tails`.
        `gaps`: for repair only: gets the missing offsets, which are an error otherwise.

    Raises:
        DataCorrupt: records are missing, or one epoch has two for the same offset.
    """
    partition = PartitionId(view.layout.topic_id, view.layout.partition)
    given = [batch for tail in tails for batch in tail.batches.get(partition, ())]
    found = [(batch, _header(batch).end_offset) for batch in given]
    # A leader may lose and win a partition again, so epochs, not logs, define the order.
    found.sort(key=lambda one: (one[0].leader_epoch, one[0].base_offset))
    limits = _limits([batch for batch, _ in found])
    end = view.end_offset
    kept: list[WalBatch] = []
    for batch, end_offset in found:
        if end_offset <= view.end_offset or batch.leader_epoch < view.leader_epoch:
            continue
        if batch.base_offset >= limits[batch.leader_epoch]:
            continue
        if gaps is not None and batch.base_offset > end:
            gaps.append(OffsetRange(end, batch.base_offset))
        elif batch.base_offset != end:
            raise _apart(batch, view, end)
        kept.append(batch)
        end = end_offset
    return tuple(kept)


def _limits(batches: Sequence[WalBatch]) -> dict[int, float]:
    """Return for each epoch the lowest offset at which a later one begins."""
    limits: dict[int, float] = {}
    lowest = inf
    for epoch, of_epoch in groupby(reversed(batches), key=lambda batch: batch.leader_epoch):
        limits[epoch] = lowest
        lowest = min(lowest, *(batch.base_offset for batch in of_epoch))
    return limits


def _header(batch: WalBatch) -> BatchHeader:
    header = parse_header(batch.data)
    fields = (batch.base_offset, batch.leader_epoch, len(batch.data))
    if fields != (header.base_offset, header.leader_epoch, header.size_bytes):
        raise DataCorrupt(
            "a batch in a write-ahead log is not what its row says; run verify. "
            f"partition={batch.topic_id}-{batch.partition} base_offset={batch.base_offset} "
            f"leader_epoch={batch.leader_epoch}"
        )
    return header


def _apart(batch: WalBatch, view: PartitionView, end: int) -> DataCorrupt:
    what = "leave a hole" if batch.base_offset > end else "hold two batches for the same offsets"
    return DataCorrupt(
        f"sealed write-ahead logs {what}; run verify. partition={view.layout.folder} "
        f"expected_offset={end} base_offset={batch.base_offset} "
        f"leader_epoch={batch.leader_epoch} log_end_offset={view.end_offset}"
    )
