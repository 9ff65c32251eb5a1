"""Reads a partition's own log as `read_committed` does: without aborted records. Pure.

Footers record the batches of transactions and their outcomes; producers' snapshots summarise them.
A reader stops at the last stable offset: the first offset of the oldest transaction that is open at
the end of the log. It drops the batches of transactions that were aborted before that.
Offsets: base inclusive, end exclusive; `last_offset` is a marker's. Source: KIP-98; FORMAT.md 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparklog.core.types import UNLED_EPOCH
from sparklog.log.effects import Program
from sparklog.log.manifest.view import PartitionView
from sparklog.log.numpy_arrays import bool_array
from sparklog.log.segment.segment import Segment
from sparklog.log.tail.producer_snapshot import load_producers
from sparklog.log.tail.producer_state import AbortedTransaction
from sparklog.protocol.records.decoder import read_headers
from sparklog.protocol.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BytesLike

AbortedRange = tuple[int, int, int]
"""Producer id, first offset, and offset of the marker of an aborted transaction."""


@dataclass(frozen=True, slots=True)
class TransactionOutcomes:
    """The last stable offset, and the aborted transactions."""

    stable_end: int
    """The last stable offset of the partition's own log."""
    aborted: tuple[AbortedRange, ...] = ()
    """Of transactions that reach beyond the log start, by last offset."""


def decided(view: PartitionView) -> Program[TransactionOutcomes]:
    """Return the outcomes of transactions in a partition's own log, for `read_committed`.

    Cost: nothing if no broker ever led the partition. Else a listing, the newest snapshot of
    producers, and a footer for each segment since.

    Raises:
        Unavailable: an object was replaced meanwhile; refresh the view.
        DataCorrupt: a segment is damaged.
    """
    if view.leader_epoch == UNLED_EPOCH:
        return TransactionOutcomes(view.end_offset)
    producers = yield from load_producers(view, 0)
    transactions = producers.transactions
    return TransactionOutcomes(
        transactions.last_stable_offset(view.end_offset),
        tuple(
            (one.producer_id, one.first_offset, one.last_offset)
            for one in transactions.aborted
            if one.last_offset >= view.log_start_offset
        ),
    )


def met(
    aborted: Sequence[AbortedTransaction], batches: Sequence[BytesLike]
) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in these batches.

    A client drops the producer's batches from such a transaction's start until it finds the marker.
    If compaction removed the records, it removed the marker, too. A client would then drop
    committed records, so the result leaves such transactions out.
    """
    if not aborted or not batches:
        return []
    headers = read_headers(batches)
    kinds = headers["attributes"] & (TRANSACTIONAL_BIT | CONTROL_BIT)
    headers = headers[kinds == TRANSACTIONAL_BIT]
    producers, bases = headers["producer_id"], headers["base_offset"]
    return [
        one
        for one in aborted
        if (
            (producers == one.producer_id)
            & (bases >= one.first_offset)
            & (bases <= one.last_offset)
        ).any()
    ]


def aborted_stretches(
    segment: Segment, object_base: int, aborted: Sequence[AbortedRange]
) -> list[tuple[int, int]]:
    """Return the offsets (base, end) of aborted transactions in a segment, in order."""
    found = []
    for batch in segment.producers:
        if batch.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != TRANSACTIONAL_BIT:
            continue
        base = object_base + batch.base
        if any(p == batch.producer_id and first <= base <= last for p, first, last in aborted):
            found.append((base, object_base + batch.end))
    return found


def without(rows: pa.RecordBatch, stretches: Iterable[tuple[int, int]]) -> pa.RecordBatch:
    """Return rows, which have an `offset` column in order, without those in `stretches`."""
    offsets = rows.column("offset").to_numpy()
    keep = np.ones(rows.num_rows, bool)
    for base, end in stretches:
        first, last = np.searchsorted(offsets, (base, end))
        keep[first:last] = False
    return rows if keep.all() else rows.filter(bool_array(keep))
