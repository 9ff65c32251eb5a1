"""Reads a partition from a store, with cached footers and read-ahead.

`Region` reads neighbouring entries from end to end, for jobs. It reads many footers at once before
their rows, which helps if entries are small and the store is distant. It leaves out rows below the
log start.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from threading import Lock
from typing import TypeAlias

import pyarrow as pa

from sparklog.core.errors import DataCorrupt, OffsetOutOfRange
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.refresh import read_segment, read_segments
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.read_committed import TransactionOutcomes, aborted_stretches, without
from sparklog.log.segment import column_reader
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.unread_batches import Unread, unread_rows
from sparklog.store.base import ObjectNotFound, ObjectStore

FOOTERS_CACHED = 256
PIECES_AHEAD = 2
"""Pieces fetched ahead of the decoded one; with `FETCH_BYTES_MAX` this bounds memory."""


_Ahead: TypeAlias = (
    "tuple[column_reader.ColumnPiece, Future[list[tuple[int, bytes]]]] | pa.RecordBatch"
)
"""Bytes in flight, or rows."""


class SegmentReader:
    """Reads one partition's objects. Thread-safe."""

    def __init__(self, store: ObjectStore, layout: PartitionLayout, pool: Executor) -> None:
        """Read through `store`; `pool` fetches ahead."""
        self._store = store
        self._layout = layout
        self._pool = pool
        self._footers: OrderedDict[str, Segment] = OrderedDict()
        self._lock = Lock()

    def footer(self, entry: Entry) -> Segment:
        """Return the metadata of an entry's object.

        Raises:
            DataCorrupt: damaged, or not the object of the entry.
        """
        with self._lock:
            known = self._footers.get(entry.object)
            if known is not None:
                self._footers.move_to_end(entry.object)
                return known
        found = run(read_segment(self._layout, entry.object, entry.size_bytes), self._store)
        key = self._layout.key(entry.object)
        if found is None:
            raise DataCorrupt(
                f"object is missing though the log names it; run verify. object={key}"
            )
        segment = found[0]
        if segment.rows != entry.rows:
            raise DataCorrupt(
                "object does not hold what the log says; run verify. "
                f"object={key} rows={segment.rows} expected={entry.rows}"
            )
        self.keep(entry, segment)
        return segment

    def keep(self, entry: Entry, segment: Segment) -> None:
        """Cache the metadata of an entry's object that the caller has read."""
        with self._lock:
            self._footers[entry.object] = segment
            while len(self._footers) > FOOTERS_CACHED:
                self._footers.popitem(last=False)

    def read(
        self,
        view: PartitionView,
        base_offset: int,
        end_offset: int,
        columns: Sequence[str],
        *,
        unread: Unread = Unread.FAIL,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of [base_offset, end_offset) in order, usually 16,384 a batch.

        Cost: one request per object for its footer and about one per 4 MiB.

        Args:
            view: the partition.
            base_offset: the first offset.
            end_offset: the offset after the last.
            columns: of READ_TYPES.
            unread: the reaction to an unreadable batch.

        Raises:
            OffsetOutOfRange: the range is not within [log start, log end).
            UnreadableRecords: some records are unreadable, and `unread` is FAIL.
            DataCorrupt: an object is damaged or missing.
        """
        if not view.log_start_offset <= base_offset <= end_offset <= view.end_offset:
            raise OffsetOutOfRange(
                "the offsets asked for are not all in the log. "
                f"partition={view.layout.topic}-{view.layout.partition} "
                f"base_offset={base_offset} end_offset={end_offset} "
                f"log_start_offset={view.log_start_offset} log_end_offset={view.end_offset}"
            )
        entries = view.covering(base_offset, end_offset)
        if set(columns) <= {"offset"} and all(
            e.rows == e.end_offset - e.base_offset for e in entries
        ):
            yield from column_reader.dense_batches(base_offset, end_offset, columns)
            return
        ahead: deque[_Ahead] = deque()
        pieces = self._pieces(entries, base_offset, end_offset, columns, unread)
        damage: DataCorrupt | None = None
        while True:
            try:
                piece = next(pieces, None)
            except DataCorrupt as error:
                damage, piece = error, None
            if piece is None:
                break
            ahead.append(self._started(piece))
            if len(ahead) > PIECES_AHEAD:
                yield from _decoded(ahead.popleft(), columns)
        for one in ahead:
            yield from _decoded(one, columns)
        if damage is not None:  # after all records before it
            raise damage

    def read_committed(
        self,
        view: PartitionView,
        base_offset: int,
        end_offset: int,
        columns: Sequence[str],
        outcomes: TransactionOutcomes,
        *,
        unread: Unread = Unread.FAIL,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of [base_offset, end_offset) that no aborted transaction wrote.

        `outcomes` is what `decided` returned for `view`. Records from its `stable_end` on are left
        out. Cost and errors: as `read`, and the footer of each object where transactions aborted.
        """
        end = min(end_offset, outcomes.stable_end)
        if base_offset >= end:
            return
        stretches = [
            span
            for entry in view.covering(base_offset, end)
            if outcomes.aborted and entry.rows
            for span in aborted_stretches(self.footer(entry), entry.base_offset, outcomes.aborted)
        ]
        if not stretches:
            yield from self.read(view, base_offset, end, columns, unread=unread)
            return
        names = columns if "offset" in columns else ["offset", *columns]
        for rows in self.read(view, base_offset, end, names, unread=unread):
            yield without(rows, stretches).select(list(columns))

    def _pieces(
        self,
        entries: Sequence[Entry],
        base_offset: int,
        end_offset: int,
        columns: Sequence[str],
        unread: Unread,
    ) -> Iterator[column_reader.ColumnPiece | pa.RecordBatch]:
        for entry in entries:
            if not entry.rows and unread is Unread.KEEP:
                continue  # one that compaction emptied
            # An entry may cover fewer offsets than its object holds.
            low, high = max(base_offset, entry.base_offset), min(end_offset, entry.end_offset)
            segment = self.footer(entry)
            key = self._layout.key(entry.object)
            for one in segment.unread if unread is not Unread.KEEP else ():
                base, end = entry.base_offset + one.base, entry.base_offset + one.end
                if end <= low or base >= high:
                    continue
                if low < base:
                    yield from column_reader.pieces(
                        key, segment, entry.base_offset, low, base, columns
                    )
                rows = unread_rows(self._layout, one, base, columns, unread)
                if rows is not None:
                    yield rows.slice(max(0, low - base), min(end, high) - max(base, low))
                low = end
            if low < high:
                yield from column_reader.pieces(key, segment, entry.base_offset, low, high, columns)

    def _started(self, piece: column_reader.ColumnPiece | pa.RecordBatch) -> _Ahead:
        if isinstance(piece, column_reader.ColumnPiece):
            return piece, self._pool.submit(self._fetch, piece)
        return piece

    def _fetch(self, piece: column_reader.ColumnPiece) -> list[tuple[int, bytes]]:
        try:
            return [
                (start, self._store.get(piece.object, start, end))
                for start, end in column_reader.byte_ranges(piece)
            ]
        except ObjectNotFound as error:
            raise DataCorrupt(
                f"object is missing though the log names it; run verify. object={piece.object}"
            ) from error


def _decoded(ahead: _Ahead, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if isinstance(ahead, pa.RecordBatch):
        yield ahead
    else:
        piece, fetched = ahead
        yield from column_reader.decode(piece, fetched.result(), columns)


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
        """Return the most rows that the entries can have."""
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
