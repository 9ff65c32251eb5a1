"""Reading neighbouring entries from end to end, for jobs.

Footers are read many at once before the rows they belong to, which helps where entries are small
and the store is far. Rows below the log start are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

import pyarrow as pa

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest import Entry
from sparklog.log.reading import SegmentReader
from sparklog.log.refresh import read_segments
from sparklog.log.segment import Segment
from sparklog.log.unread import Unread
from sparklog.log.view import PartitionView
from sparklog.store.base import ObjectStore

ENTRIES_READ_AT_ONCE = 64


class Region:
    """Some neighbouring entries of one view."""

    def __init__(
        self, store: ObjectStore, view: PartitionView, entries: Sequence[Entry], pool: Executor
    ) -> None:
        """Read `entries` of `view` through `store`; `pool` fetches ahead."""
        self._store = store
        self._view = view
        self._pool = pool
        self.entries = tuple(entries)

    @property
    def rows_max(self) -> int:
        """Return how many rows there are at most."""
        return sum(entry.rows for entry in self.entries)

    def segments(self) -> Iterator[tuple[Entry, Segment]]:
        """Yield the entries and their objects' metadata.

        Raises:
            DataCorrupt: an object is damaged or missing.
        """
        layout = self._view.layout
        for at in range(0, len(self.entries), ENTRIES_READ_AT_ONCE):
            some = self.entries[at : at + ENTRIES_READ_AT_ONCE]
            found = run(read_segments(layout, [e.object for e in some]), self._store, self._pool)
            for entry, segment in zip(some, found, strict=True):
                if segment is None or segment.rows != entry.rows:
                    raise _unlike(layout, entry)
                yield entry, segment

    def read(
        self, columns: Sequence[str], low: int | None = None, high: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of [low, high), or all, in order.

        Raises:
            DataCorrupt: an object is damaged or missing.
        """
        first = self.entries[0].base_offset if low is None else low
        end = self.entries[-1].end_offset if high is None else high
        reader = SegmentReader(self._store, self._view.layout, self._pool)
        wanted = [e for e in self.entries if e.end_offset > first and e.base_offset < end]
        for at in range(0, len(wanted), ENTRIES_READ_AT_ONCE):
            some = wanted[at : at + ENTRIES_READ_AT_ONCE]
            part = Region(self._store, self._view, some, self._pool)
            for entry, segment in part.segments():
                reader.keep(entry, segment)
            base = max(first, some[0].base_offset, self._view.log_start_offset)
            stop = min(end, some[-1].end_offset)
            if base < stop:
                yield from reader.read(self._view, base, stop, columns, unread=Unread.KEEP)


def _unlike(layout: PartitionLayout, entry: Entry) -> DataCorrupt:
    return DataCorrupt(
        "object is missing, or does not hold what the log says; run verify. "
        f"object={layout.key(entry.object)} rows={entry.rows}"
    )
