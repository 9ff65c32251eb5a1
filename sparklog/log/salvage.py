"""Writing anew what can be read of an object."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Executor
from dataclasses import replace

import pyarrow as pa

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import OffsetRange, TimestampType
from sparklog.log.effects import create, run
from sparklog.log.lineage import Lineage, lineage_of
from sparklog.log.manifest import Entry
from sparklog.log.reading import SegmentReader
from sparklog.log.rewrite import Replacement
from sparklog.log.rewriting import ROW_COLUMNS, Encoding, Place, rewritten
from sparklog.log.segment import Segment
from sparklog.log.unread import Unread
from sparklog.log.verify import batch_problem, clipped
from sparklog.log.view import PartitionView
from sparklog.store.base import ObjectStore


def salvaged(
    store: ObjectStore,
    view: PartitionView,
    entry: Entry,
    pool: Executor,
    encoding: Encoding,
    nonces: Iterator[str],
    *,
    given_up: Collection[OffsetRange] = (),
) -> Replacement:
    """Upload objects with the rows of an entry that can be read, for the very offsets it covers.

    Nothing names them yet. Of an object whose footer cannot be read there are no rows. The footer
    keeps producers' batches that nobody can read, except those in `given_up`.

    Raises:
        OutcomeUnknown, Unavailable: the store; nothing was changed.
    """
    reader = SegmentReader(store, view.layout, pool)
    try:
        segment: Segment | None = reader.footer(entry)
        lineage = lineage_of([(entry, reader.footer(entry))], compacted=False)
    except DataCorrupt:
        segment, lineage = None, Lineage()
    place = Place(
        view.layout,
        entry.base_offset,
        entry.end_offset,
        entry.leader_epoch,
        view.is_led if segment is None else segment.led,
        TimestampType.CREATE_TIME if segment is None else segment.timestamp_type,
    )
    rows = iter(()) if segment is None else _readable(reader, view, entry, segment)
    lineage = replace(
        lineage,
        unread=tuple(
            u
            for u in lineage.unread
            if not any(u.base < r.end_offset and r.base_offset < u.end for r in given_up)
        ),
    )
    new = []
    for made, data in rewritten(place, rows, lineage, encoding, nonces):
        run(create(view.layout.key(made.object), data), store)
        new.append(made)
    return Replacement((entry,), tuple(new))


def _readable(
    reader: SegmentReader, view: PartitionView, entry: Entry, segment: Segment
) -> Iterator[pa.RecordBatch]:
    for batch in segment.batches:
        low, high = clipped(view, entry, batch.base, batch.end)
        if low < high and not batch_problem(reader, view, entry, batch):
            yield from reader.read(view, low, high, ROW_COLUMNS, unread=Unread.KEEP)
