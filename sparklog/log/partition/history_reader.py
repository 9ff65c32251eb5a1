"""Reads a partition's own log (L1) as record batches, for Kafka's consumers below the tail.

It reads a few record batches of a segment at a time and converts them to wire batches once. A
bounded cache, shared by all partitions of a broker, keeps blocks of wire batches and footers. So
consumers that follow one another share the cost. Fetches and computations are effects, so the same
code runs on threads and in the simulation.

HISTORY-READER-1: The batches of `read` cover offset after offset: no consumer waits for one that
    never comes.
HISTORY-READER-2: Every byte has passed its checksum, as in all reads of segments.
HISTORY-READER-3: An object that vanished was replaced by a newer manifest: after a refresh it is
    damage.

Offsets: base inclusive, end exclusive. Sizes are bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import DataCorrupt, OffsetOutOfRange
from sparklog.log.effects import Program, work
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.reference_transactions import written_by
from sparklog.log.manifest.refresh import read_segment, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.offset_lookup import TimedOffset, epoch_at
from sparklog.log.segment import column_reader
from sparklog.log.segment.segment import BatchIndex, Segment
from sparklog.log.segment.to_batches import BlockWriter, OffsetSpans, WireBatch
from sparklog.protocol.records.header import Codec

_BATCH_OVERHEAD_BYTES: Final = 200
_FOOTER_ENTRY_BYTES: Final = 200
"""About the memory of Python's objects besides the bytes."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a segment as wire batches that cover [base_offset, end_offset)."""

    base_offset: int
    end_offset: int
    batches: tuple[WireBatch, ...]

    @property
    def size_bytes(self) -> int:
        """Return the memory that it uses in the cache."""
        return sum(len(b.data) + _BATCH_OVERHEAD_BYTES for b in self.batches)


@dataclass(frozen=True, slots=True)
class Footer:
    """The content of a segment's footer, sorted for reading its blocks."""

    segment: Segment
    stretches: OffsetSpans
    bases: tuple[int, ...]
    """Relative start of each block; a block ends at the next one, the last at the end."""

    @property
    def size_bytes(self) -> int:
        """Return about the memory that it uses in the cache."""
        segment = self.segment
        parts = len(segment.batches) * (2 + len(segment.column_names)) + len(segment.producers)
        return _FOOTER_ENTRY_BYTES * (1 + parts)


class HistoryCache:
    """LRU cache of blocks and footers. One per broker; for use on one event loop only."""

    def __init__(self, size_bytes_max: int) -> None:
        """Hold at most about `size_bytes_max`."""
        self._kept: OrderedDict[tuple[object, ...], Block | Footer] = OrderedDict()
        self._size_bytes_max = size_bytes_max
        self.size_bytes = 0

    def block(self, key: tuple[object, ...]) -> Block | None:
        """Return a block, if the cache has it."""
        found = self._find(key)
        return found if isinstance(found, Block) else None

    def footer(self, key: tuple[object, ...]) -> Footer | None:
        """Return a footer, if the cache has it."""
        found = self._find(key)
        return found if isinstance(found, Footer) else None

    def _find(self, key: tuple[object, ...]) -> Block | Footer | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: tuple[object, ...], one: Block | Footer) -> None:
        """Keep a block or footer, and drop others for it."""
        before = self._kept.pop(key, None)
        if before is not None:
            self.size_bytes -= before.size_bytes
        self._kept[key] = one
        self.size_bytes += one.size_bytes
        while self.size_bytes > self._size_bytes_max and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self.size_bytes -= dropped.size_bytes


BLOCKS_READ: Final = 4
"""Record batches of a segment fetched and encoded together: about 4 MiB of records. One request
returns them efficiently, and encoding takes about 20 ms."""
LOOKS_MAX: Final = 3
_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class EncodedHistory:
    """The result of one read."""

    view: PartitionView
    """Newer than the given one if objects had been replaced."""
    batches: list[bytes]
    """In order; the first holds the requested offset."""
    next_offset: int
    """The offset for the next read."""


class _Vanished(Exception):
    """An object that the view names is gone."""


class HistoryReader:
    """Reads one partition. All methods are protocols, to be run by `store.run`."""

    def __init__(
        self, layout: PartitionLayout, cache: HistoryCache, codec: Codec = Codec.NONE
    ) -> None:
        """Read through `cache`; compress batches with `codec` for the network."""
        self._layout = layout
        self._cache = cache
        self._codec = codec

    def read(
        self,
        view: PartitionView,
        offset: int,
        max_bytes: int,
        limit_offset: int | None = None,
    ) -> Program[EncodedHistory]:
        """Return batches from the one that holds `offset` on: one at least, then up to `max_bytes`.

        The result is empty only at the end of the log. With `limit_offset` (the last stable offset,
        for readers of committed records) it has no batch that begins there or later.

        Cost: nothing if cached; else one request for 4 MiB of records, and one for a footer.

        Raises:
            OffsetOutOfRange: not within [log start, log end] of this log.
            DataCorrupt: an object is damaged or missing.
        """
        _check(view, offset)
        limit = view.end_offset if limit_offset is None else min(limit_offset, view.end_offset)
        found: list[bytes] = []
        size = 0
        at = offset
        while at < limit and (not found or size < max_bytes):
            view, block = yield from self._block(view, at)
            for batch in block.batches:
                if batch.end_offset <= at:
                    continue
                is_over = bool(found) and size + len(batch.data) > max_bytes
                if is_over or batch.base_offset >= limit:
                    return EncodedHistory(view, found, at)
                found.append(batch.data)
                size += len(batch.data)
                at = batch.end_offset
        return EncodedHistory(view, found, at)

    def load(self, view: PartitionView, offset: int) -> Program[PartitionView]:
        """Read ahead: load the block at `offset` into the cache, if it is not there."""
        if view.log_start_offset <= offset < view.end_offset:
            view, _ = yield from self._block(view, offset)
        return view

    def find_timestamp(self, view: PartitionView, timestamp_ms: int) -> Program[TimedOffset | None]:
        """Return the first record at or after `timestamp_ms`, or None when there is none.

        Raises:
            DataCorrupt: an object is damaged or missing.
        """
        for _ in range(LOOKS_MAX):
            try:
                return (yield from self._first_of_all(view, timestamp_ms))
            except _Vanished:
                view = yield from refresh(view)
        raise _missing(self._layout)

    def find_max_timestamp(self, view: PartitionView) -> Program[TimedOffset | None]:
        """Return the first record that has the highest timestamp, or None in an empty log."""
        highest = max((e.max_timestamp_ms for e in view.entries if e.rows), default=None)
        if highest is None:
            return None
        return (yield from self.find_timestamp(view, highest))

    def _block(self, view: PartitionView, offset: int) -> Program[tuple[PartitionView, Block]]:
        for _ in range(LOOKS_MAX):
            entry = view.covering(offset, offset + 1)[0]
            try:
                footer = yield from self._footer(view, entry)
                return view, (yield from self._read_block(view, entry, footer, offset))
            except _Vanished:
                view = yield from refresh(view)
                _check(view, offset)
        raise _missing(self._layout)

    def _footer(self, view: PartitionView, entry: Entry) -> Program[Footer]:
        writer = written_by([one.segment for one in view.tail], entry)
        key: tuple[object, ...] = (self._layout.key(entry.object),)
        if writer is not None:
            # Another attempt may reference the same object at other offsets, as another producer.
            key = (*key, entry.base_offset)
        known = self._cache.footer(key)
        if known is not None:
            return known
        segment = next((t.segment for t in view.tail if t.name == entry.object), None)
        if segment is None:
            found = yield from read_segment(self._layout, entry.object, entry.size_bytes)
            if found is None:
                raise _Vanished
            segment = found[0]
        if writer is not None:
            segment = replace(segment, producers=(writer,))
        bases = (0, *(batch.end for batch in segment.batches[:-1]))
        footer = Footer(segment, OffsetSpans(segment), bases)
        self._cache.keep(key, footer)
        return footer

    def _read_block(
        self, view: PartitionView, entry: Entry, footer: Footer, offset: int
    ) -> Program[Block]:
        relative = offset - entry.base_offset
        first = int(np.searchsorted(footer.bases, relative, side="right")) - 1
        wanted = self._cache.block(_key(self._layout, entry, first))
        if wanted is not None:
            return wanted
        indexes = range(first, min(first + BLOCKS_READ, len(footer.bases)))
        plan = _ReadPlan(self._layout, entry, footer, tuple(indexes))
        fetched = yield from _fetch(plan.piece())
        writer = BlockWriter(
            footer.segment,
            entry.base_offset,
            epoch_at(view, entry.base_offset),
            self._codec,
            footer.stretches,
        )
        blocks = yield from work(partial(_encoded, plan, fetched, writer))
        for index, block in zip(indexes, blocks, strict=True):
            self._cache.keep(_key(self._layout, entry, index), block)
        return blocks[0]

    def _first_of_all(self, view: PartitionView, timestamp_ms: int) -> Program[TimedOffset | None]:
        for entry in view.entries:
            if entry.rows and entry.max_timestamp_ms >= timestamp_ms:
                footer = yield from self._footer(view, entry)
                found = yield from self._first_at(view, entry, footer.segment, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _first_at(
        self, view: PartitionView, entry: Entry, segment: Segment, timestamp_ms: int
    ) -> Program[TimedOffset | None]:
        columns = ("offset", "timestamp")
        low = max(entry.base_offset, view.log_start_offset)
        for batch in segment.batches:
            if batch.max_timestamp_ms < timestamp_ms:
                continue
            base, end = entry.base_offset + batch.base, entry.base_offset + batch.end
            some = column_reader.pieces(
                self._layout.key(entry.object),
                segment,
                entry.base_offset,
                max(base, low),
                min(end, entry.end_offset),
                columns,
            )
            for piece in some:
                fetched = yield from _fetch(piece)
                for rows in (yield from work(partial(_decoded, piece, fetched, columns))):
                    stamps = rows.column("timestamp").cast(pa.int64()).to_numpy()
                    hits = (stamps >= timestamp_ms).nonzero()[0]
                    if len(hits):
                        row = int(hits[0])
                        return TimedOffset(rows.column("offset")[row].as_py(), int(stamps[row]))
        return None


@dataclass(frozen=True, slots=True)
class _ReadPlan:
    """Neighbouring blocks of one segment, read together."""

    layout: PartitionLayout
    entry: Entry
    footer: Footer
    indexes: tuple[int, ...]

    def offsets(self, index: int) -> tuple[int, int]:
        """Return the offsets of a block that its entry covers."""
        bases = self.footer.bases
        base = self.entry.base_offset + bases[index]
        end = self.entry.end_offset
        if index + 1 < len(bases):
            end = min(self.entry.base_offset + bases[index + 1], end)
        return max(base, self.entry.base_offset), end

    def batches(self) -> tuple[BatchIndex, ...]:
        """Return the stored record batches; none in a segment without rows."""
        return self.footer.segment.batches[self.indexes[0] : self.indexes[-1] + 1]

    def piece(self, index: int | None = None) -> column_reader.ColumnPiece:
        """Return the piece to fetch for all blocks, or to decode for one."""
        segment = self.footer.segment
        batches = self.batches() if index is None else segment.batches[index : index + 1]
        low, high = self.offsets(self.indexes[0] if index is None else index)
        if index is None:
            high = self.offsets(self.indexes[-1])[1]
        key = self.layout.key(self.entry.object)
        names = segment.column_names
        return column_reader.ColumnPiece(
            key, segment, self.entry.base_offset, batches, names, low, high
        )


def _encoded(
    plan: _ReadPlan, fetched: Sequence[tuple[int, bytes]], writer: BlockWriter
) -> list[Block]:
    blocks = []
    for index in plan.indexes:
        base, end = plan.offsets(index)
        piece = plan.piece(index)
        rows = _decoded(piece, fetched, _COLUMNS) if piece.batches else []
        one = rows[0] if rows else None
        blocks.append(Block(base, end, tuple(writer.batches(one, base, end))))
    return blocks


def _decoded(
    piece: column_reader.ColumnPiece, fetched: Sequence[tuple[int, bytes]], columns: Sequence[str]
) -> list[pa.RecordBatch]:
    return list(column_reader.decode(piece, fetched, columns))


def _fetch(piece: column_reader.ColumnPiece) -> Program[list[tuple[int, bytes]]]:
    """Return the bytes of a piece by their positions. Raises _Vanished if the object is gone."""
    fetched = yield from column_reader.fetch(piece)
    if fetched is None:
        raise _Vanished
    return fetched


def _key(layout: PartitionLayout, entry: Entry, index: int) -> tuple[object, ...]:
    # An entry defines the offsets of its object; a later manifest may define them anew.
    return (layout.key(entry.object), entry.base_offset, entry.base_offset, entry.end_offset, index)


def _check(view: PartitionView, offset: int) -> None:
    if not view.log_start_offset <= offset <= view.end_offset:
        raise OffsetOutOfRange(
            "the offset asked for is not in the log. "
            f"partition={view.layout.topic}-{view.layout.partition} offset={offset} "
            f"log_start_offset={view.log_start_offset} log_end_offset={view.end_offset}"
        )


def _missing(layout: PartitionLayout) -> DataCorrupt:
    return DataCorrupt(
        f"an object is missing though the log names it; run verify. partition={layout.folder}"
    )
