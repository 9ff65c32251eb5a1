"""Finds the records of one key in a partition, without reading segments that do not have it.

The lookup skips a segment whose key index (`key_index`) excludes the key. That costs its footer and
one page of the filter. Of the other segments it reads the key column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Range, get_many, run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.view import PartitionView
from sparklog.log.numpy_arrays import binary_scalar
from sparklog.log.partition.segment_reader import Region, SegmentReader
from sparklog.log.segment.key_index import KeyIndex, hashed_key
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.unread_batches import Unread
from sparklog.store.base import ObjectStore
from sparklog.store.kept_ends import KeptEnds

AT_ONCE_MAX: Final = 64
"""Segments whose footers and filters are read together."""
NEWEST_AT_ONCE: Final = 16
"""Of the newest segments, before older ones: as many requests take hardly longer than one."""
WHOLE_BYTES_MAX: Final = 256 << 10
"""All columns of a smaller segment take hardly longer to read than its keys."""


@dataclass(frozen=True, slots=True)
class FoundKey:
    """The records of a key, and the cost of the lookup."""

    records: tuple[pa.RecordBatch, ...] = ()
    """In order of offsets."""
    segments: int = 0
    """Examined: all segments with rows, or those down to the newest record's."""
    out_of_bounds: int = 0
    """Skipped, because the key is outside their bounds, or because they have no keys."""
    filtered: int = 0
    """Skipped, because their filters exclude the key."""

    @property
    def rows(self) -> int:
        """Return the number of records."""
        return sum(batch.num_rows for batch in self.records)

    @property
    def searched(self) -> int:
        """Return the number of segments whose keys were read."""
        return self.segments - self.out_of_bounds - self.filtered


def find_key(
    store: ObjectStore,
    pool: Executor,
    view: PartitionView,
    key: bytes,
    columns: Sequence[str],
    *,
    newest_only: bool,
) -> FoundKey:
    """Return the records of a key in a view, tombstones too, or only the newest of them.

    Args:
        `store`: of the partition. If it is a `KeptEnds`, what it kept is not read again.
        `pool`: fetches ahead.
        `view`: of the partition.
        `key`: to find, byte for byte.
        `columns`: of the records.
        `newest_only`: stop at the newest record.

    Raises:
        DataCorrupt: an object is damaged or missing.
    """
    start = view.log_start_offset
    entries = [e for e in view.entries if e.rows and e.end_offset > start]
    if newest_only:
        entries.reverse()
    ends = KeptEnds.over(store)
    reader = SegmentReader(ends, view.layout, pool)
    found = FoundKey()
    parts: list[pa.RecordBatch] = []
    at, count = 0, NEWEST_AT_ONCE if newest_only else AT_ONCE_MAX
    while at < len(entries) and not (newest_only and parts):
        some = entries[at : at + count]
        at, count = at + count, min(2 * count, AT_ONCE_MAX)
        for entry in some:
            ends.learn_size(view.layout.key(entry.object), entry.size_bytes)
        segments = dict(Region(ends, view, some, pool).segments())
        bounded = [e for e in some if _within_bounds(segments[e], key)]
        wanted = _unfiltered(ends, pool, view.layout, {e: segments[e] for e in bounded}, key)
        for number, entry in enumerate(wanted, 1):
            reader.keep(entry, segments[entry])
            parts += _rows(reader, view, entry, key, columns, newest_only=newest_only)
            if newest_only and parts:
                some = some[: some.index(entry) + 1]
                bounded = [e for e in bounded if e in some]
                wanted = wanted[:number]
                break
        found = replace(
            found,
            segments=found.segments + len(some),
            out_of_bounds=found.out_of_bounds + len(some) - len(bounded),
            filtered=found.filtered + len(bounded) - len(wanted),
        )
        for entry in some:
            ends.forget(view.layout.key(entry.object))
    return replace(found, records=tuple(parts))


def may_have_key(
    store: ObjectStore,
    pool: Executor,
    layout: PartitionLayout,
    segments: Mapping[Entry, Segment],
    keys: Iterable[bytes],
) -> list[Entry]:
    """Return the entries, in their order, that may have one of the keys.

    Cost: a page of each filter for every key that is within the segment's bounds.

    Raises:
        DataCorrupt: a filter is damaged or missing.
    """
    found: set[Entry] = set()
    for key in keys:
        bounded = {e: s for e, s in segments.items() if e not in found and _within_bounds(s, key)}
        found.update(_unfiltered(store, pool, layout, bounded, key))
    return [entry for entry in segments if entry in found]


def _within_bounds(segment: Segment, key: bytes) -> bool:
    if "key" not in segment.column_names:
        return False
    return segment.keys is None or not segment.keys.out_of_bounds(key)


def _unfiltered(
    store: ObjectStore,
    pool: Executor,
    layout: PartitionLayout,
    segments: Mapping[Entry, Segment],
    key: bytes,
) -> list[Entry]:
    """Return the entries whose filters do not exclude the key."""
    asked: list[tuple[Entry, KeyIndex, int]] = []
    for entry, segment in segments.items():
        if segment.keys is not None:
            asked.append((entry, segment.keys, hashed_key(key, segment.nonce)))
    spans = [keys.page(hashed) for _, keys, hashed in asked]
    names = [layout.key(entry.object) for entry, _, _ in asked]
    ranges = tuple(
        Range(name, span.start, span.start + span.length)
        for name, span in zip(names, spans, strict=True)
    )
    pages = run(get_many(ranges), store, pool)
    excluded = set()
    for (entry, keys, hashed), name, span, page in zip(asked, names, spans, pages, strict=True):
        if page is None or len(page) != span.length or crc32c(page) != span.crc:
            raise DataCorrupt(
                "object's key filter is missing or fails its checksum; run verify. "
                f"object={name} position={span.start}"
            )
        if keys.excludes(hashed, page):
            excluded.add(entry)
    return [entry for entry in segments if entry not in excluded]


def _rows(
    reader: SegmentReader,
    view: PartitionView,
    entry: Entry,
    key: bytes,
    columns: Sequence[str],
    *,
    newest_only: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the key: read the keys, then all rows from the first to the last hit.

    A small segment is read once.
    """
    low = max(entry.base_offset, view.log_start_offset)
    read = tuple(dict.fromkeys((*columns, "key")))
    if entry.size_bytes <= WHOLE_BYTES_MAX:
        rows = reader.read(view, low, entry.end_offset, read, unread=Unread.PASS_OVER)
        matching = [some for b in rows if (some := b.filter(_equal(b, key))).num_rows]
        if newest_only:
            matching = [last.slice(last.num_rows - 1) for last in matching[-1:]]
        yield from (some.select(list(columns)) for some in matching)
        return
    hits: list[tuple[int, int]] = []
    for batch in reader.read(
        view, low, entry.end_offset, ("offset", "key"), unread=Unread.PASS_OVER
    ):
        offsets = batch.column("offset").filter(_equal(batch, key))
        if len(offsets):
            hits.append((offsets[0].as_py(), offsets[-1].as_py()))
    if newest_only:
        hits = [(last, last) for _, last in hits[-1:]]
    for first, last in hits:
        for batch in reader.read(view, first, last + 1, read, unread=Unread.PASS_OVER):
            yield batch.filter(_equal(batch, key)).select(list(columns))


def _equal(batch: pa.RecordBatch, key: bytes) -> pa.Array:
    return pc.equal(batch.column("key"), binary_scalar(key))  # a filter drops its nulls
