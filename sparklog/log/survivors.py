"""What a compaction keeps: the newest record of each key, by the number of its row.

Rows are numbered from 0 in order of offsets, those below the log start left out. A record of an
aborted transaction goes and hides nothing; one without a key goes; a tombstone hides what is before
it and goes itself once it was kept long enough. Source: Kafka's Cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.log.manifest import Entry
from sparklog.log.newest_rows import NewestRows
from sparklog.log.reading import SegmentReader
from sparklog.log.region import Region
from sparklog.log.rewriting import ROW_COLUMNS
from sparklog.log.segment import Segment
from sparklog.log.unread import Unread
from sparklog.log.view import PartitionView
from sparklog.protocol.arrays import Bytes

BLOCKS_BETWEEN_MAX = 4
"""Record batches of which nothing stays that are read all the same, rather than ask once more."""


@dataclass(frozen=True, slots=True)
class Survivors:
    """See the module."""

    bits: Bytes
    """Bit `row & 7` of byte `row >> 3` says whether a row stays."""
    first: Mapping[Entry, int]
    """Number of each entry's first row."""
    rows: Mapping[Entry, int]
    kept: Mapping[Entry, int]

    def chosen(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """Return for `count` rows from number `first` on whether they stay."""
        low = first >> 3
        part = np.unpackbits(self.bits[low : (first + count + 7) >> 3], bitorder="little")
        found: npt.NDArray[np.bool_] = part[first - 8 * low :][:count].view(bool)
        return found


def survivors(
    region: Region,
    aborted: Sequence[tuple[int, int]],
    tombstones_below: int,
    keys_folder: str | None = None,
) -> Survivors:
    """Read the keys of a region, and return what stays of it.

    Args:
        region: everything from the log start up to where it shall be clean.
        aborted: stretches of offsets (base, end) of aborted transactions, in order.
        tombstones_below: tombstones at lower offsets go.
        keys_folder: where keys go that do not fit memory.

    Raises:
        DataCorrupt: an object is damaged or missing.
    """
    entries = region.entries
    edges = np.array([e.end_offset for e in entries], np.int64)
    counts = np.zeros(len(entries), np.int64)
    gone = np.zeros((region.rows_max + 7) // 8, np.uint8) if tombstones_below else None
    taken = 0
    with NewestRows(region.rows_max, folder=keys_folder) as newest:
        for batch in _keys(region, tombstones_below):
            offsets = batch.column("offset").to_numpy()
            at = np.searchsorted(edges, offsets[0], "right")
            assert offsets[-1] < edges[at], "a record batch is of one object"
            counts[at] += len(offsets)
            newest.add(batch.column("key"), _outside(offsets, aborted) if aborted else None)
            if gone is not None and "value" in batch.schema.names:
                nulls = batch.column("value").is_null().to_numpy(zero_copy_only=False)
                rows = np.flatnonzero(nulls) + taken
                np.bitwise_or.at(gone, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
            taken += batch.num_rows
        bits = newest.finish()
    if gone is not None:
        bits &= ~gone
    firsts = np.concatenate([[0], np.cumsum(counts)]).tolist()
    told = Survivors(
        bits,
        dict(zip(entries, firsts, strict=False)),
        dict(zip(entries, counts.tolist(), strict=True)),
        {},
    )
    kept = {e: int(told.chosen(told.first[e], told.rows[e]).sum()) for e in entries}
    return Survivors(bits, told.first, told.rows, kept)


def kept_rows(
    reader: SegmentReader,
    view: PartitionView,
    entries: Sequence[Entry],
    segments: Mapping[Entry, Segment],
    found: Survivors | None,
) -> Iterator[pa.RecordBatch]:
    """Yield what stays of neighbouring entries, whole rows in order; everything without `found`.

    Record batches of which nothing stays are not read.

    Raises:
        DataCorrupt: an object is damaged or missing.
    """
    if found is None:
        low = max(entries[0].base_offset, view.log_start_offset)
        if low < entries[-1].end_offset:
            yield from reader.read(
                view, low, entries[-1].end_offset, ROW_COLUMNS, unread=Unread.KEEP
            )
        return
    for entry in entries:
        low = max(entry.base_offset, view.log_start_offset)
        for base, end, first in _ranges(entry, low, segments[entry], found):
            row = first
            for batch in reader.read(view, base, end, ROW_COLUMNS, unread=Unread.KEEP):
                stays = found.chosen(row, batch.num_rows)
                row += batch.num_rows
                if stays.all():
                    yield batch
                elif stays.any():
                    yield batch.filter(pa.array(stays))


def _keys(region: Region, tombstones_below: int) -> Iterator[pa.RecordBatch]:
    """Yield offsets and keys, and values as far as it matters whether they are null."""
    start, end = region.entries[0].base_offset, region.entries[-1].end_offset
    edge = min(max(start, tombstones_below), end)
    if start < edge:
        yield from region.read(("offset", "key", "value"), start, edge)
    if edge < end:
        yield from region.read(("offset", "key"), edge, end)


def _outside(
    offsets: npt.NDArray[np.int64], stretches: Sequence[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    """Return which offsets lie in none of the stretches."""
    table = np.array(stretches, np.int64)
    at = np.searchsorted(table[:, 0], offsets, "right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (offsets < table[at, 1])
    return ~inside


def _ranges(
    entry: Entry, low: int, segment: Segment, found: Survivors
) -> Iterator[tuple[int, int, int]]:
    """Yield what to read of an entry: offsets [base, end), and the number of the first row."""
    first, rows = found.first[entry], found.rows[entry]
    if not found.kept[entry]:
        return
    if rows != sum(batch.rows for batch in segment.batches):
        yield low, entry.end_offset, first  # read for less than the object holds
        return
    pending: tuple[int, int, int] | None = None
    skipped = 0
    for batch in segment.batches:
        base = max(low, entry.object_base + batch.base)
        end = entry.object_base + batch.end
        wanted = found.chosen(first, batch.rows).any()
        if wanted and pending is not None and skipped <= BLOCKS_BETWEEN_MAX:
            pending = (pending[0], end, pending[2])
        elif wanted:
            if pending is not None:
                yield pending
            pending = (base, end, first)
        skipped = 0 if wanted else skipped + 1
        first += batch.rows
    if pending is not None:
        yield pending
