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
from itertools import takewhile
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import DataCorrupt, InvalidRequest, OffsetOutOfRange
from sparklog.log.effects import Program, work
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.reference_transactions import written_by
from sparklog.log.manifest.refresh import read_segment, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.offset_lookup import TimedOffset, epoch_at
from sparklog.log.segment import column_reader
from sparklog.log.segment.segment import BatchIndex, ProducerBatch, Segment
from sparklog.log.segment.to_batches import BlockWriter, OffsetSpans, WireBatch
from sparklog.protocol.records.header import INT32_MAX, Codec

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

    def index_of(self, entry: Entry, offset: int) -> int:
        """Return the number of the block that holds an offset of an entry of the object."""
        relative = offset - entry.base_offset
        return int(np.searchsorted(self.bases, relative, side="right")) - 1

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
        self.size_bytes_max = size_bytes_max
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
        while self.size_bytes > self.size_bytes_max and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self.size_bytes -= dropped.size_bytes


BLOCKS_READ: Final = 4
"""Record batches of a segment fetched and encoded together. One request returns them efficiently,
and encoding takes about 20 ms."""
GROUP_BYTES: Final = BLOCKS_READ << 20
"""About the bytes of their records."""
LOOKS_MAX: Final = 3
Fetched = Sequence[tuple[int, bytes]]
"""Bytes of an object, each after its file position."""
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
        enough_bytes: int = INT32_MAX,
    ) -> Program[EncodedHistory]:
        """Return batches from the one that holds `offset` on: one at least, then up to `max_bytes`.

        The result is empty only at the end of the log. With `limit_offset` (the last stable offset,
        for readers of committed records) it has no batch that begins there or later. Once it has
        `enough_bytes`, it ends before a block that is not cached.

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
            block = self._cached(view, at)
            if block is None:
                if found and size >= enough_bytes:
                    break
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
        if view.log_start_offset <= offset < view.end_offset and not self._cached(view, offset):
            view, _ = yield from self._block(view, offset)
        return view

    def plan(self, view: PartitionView, offset: int) -> Program[BlockGroup | None]:
        """Return the blocks to load from the one that holds `offset` on; None outside of the log.

        If the cache has the first ones, the group is these alone: the next one begins behind them.

        Cost: nothing, or one request for a footer.

        Raises:
            DataCorrupt: an object is damaged or missing.
        """
        if not view.log_start_offset <= offset < view.end_offset:
            return None
        try:
            group = yield from self._planned(view, offset)
        except _Vanished:
            return None
        known = tuple(takewhile(lambda i: self._cache.block(group.key(i)), group.indexes))
        return replace(group, indexes=known) if known else group

    def fetch_group(self, group: BlockGroup) -> Program[Fetched]:
        """Return the stored bytes of a group; empty if the cache has it, or the object is gone.

        Cost: one request, or none.
        """
        if all(self._cache.block(group.key(index)) for index in group.indexes):
            return ()
        return (yield from column_reader.fetch(group.piece())) or ()

    def keep_group(self, group: BlockGroup, fetched: Fetched) -> Program[int]:
        """Encode a group's stored bytes into the cache, if there are any.

        Returns how many bytes of the group the cache has.

        Raises:
            DataCorrupt: an object is damaged.
        """
        if fetched:
            return sum(block.size_bytes for block in (yield from self._encoded(group, fetched)))
        known = (self._cache.block(group.key(index)) for index in group.indexes)
        return sum(block.size_bytes for block in known if block is not None)

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
            try:
                group = yield from self._planned(view, offset)
                block = self._cache.block(group.key(group.indexes[0]))
                return view, block or (yield from self._loaded(group))[0]
            except _Vanished:
                view = yield from refresh(view)
                _check(view, offset)
        raise _missing(self._layout)

    def _cached(self, view: PartitionView, offset: int) -> Block | None:
        """Return the block at an offset, if the cache has it and its footer."""
        entry = view.covering(offset, offset + 1)[0]
        footer = self._cache.footer(self._footer_key(entry, _writer_of(view, entry)))
        if footer is None:
            return None
        return self._cache.block(_key(self._layout, entry, footer.index_of(entry, offset)))

    def _planned(self, view: PartitionView, offset: int) -> Program[BlockGroup]:
        entry = view.covering(offset, offset + 1)[0]
        footer = yield from self._footer(view, entry)
        first = footer.index_of(entry, offset)
        indexes = range(first, min(first + BLOCKS_READ, len(footer.bases)))
        epoch = epoch_at(view, entry.base_offset)
        return BlockGroup(self._layout, entry, footer, tuple(indexes), epoch)

    def _footer(self, view: PartitionView, entry: Entry) -> Program[Footer]:
        writer = _writer_of(view, entry)
        key = self._footer_key(entry, writer)
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

    def _footer_key(self, entry: Entry, writer: ProducerBatch | None) -> tuple[object, ...]:
        key = self._layout.key(entry.object)
        # Another attempt may reference the same object at other offsets, as another producer.
        return (key,) if writer is None else (key, entry.base_offset)

    def _loaded(self, group: BlockGroup) -> Program[list[Block]]:
        fetched = yield from _fetch(group.piece())
        return (yield from self._encoded(group, fetched))

    def _encoded(self, group: BlockGroup, fetched: Fetched) -> Program[list[Block]]:
        footer, base_offset = group.footer, group.entry.base_offset
        writer = BlockWriter(
            footer.segment, base_offset, group.leader_epoch, self._codec, footer.stretches
        )
        blocks = yield from work(partial(_encoded, group, fetched, writer))
        for index, block in zip(group.indexes, blocks, strict=True):
            self._cache.keep(group.key(index), block)
        return blocks

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
class BlockGroup:
    """Neighbouring blocks of one segment, read together."""

    layout: PartitionLayout
    entry: Entry
    footer: Footer
    indexes: tuple[int, ...]
    leader_epoch: int

    @property
    def base_offset(self) -> int:
        """Return the first offset that the blocks cover."""
        return self.offsets(self.indexes[0])[0]

    @property
    def end_offset(self) -> int:
        """Return the offset after the last."""
        return self.offsets(self.indexes[-1])[1]

    def key(self, index: int) -> tuple[object, ...]:
        """Return the key of a block in the cache."""
        return _key(self.layout, self.entry, index)

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


def _encoded(group: BlockGroup, fetched: Fetched, writer: BlockWriter) -> list[Block]:
    blocks = []
    for index in group.indexes:
        base, end = group.offsets(index)
        piece = group.piece(index)
        rows = _decoded(piece, fetched, _COLUMNS) if piece.batches else []
        one = rows[0] if rows else None
        try:
            batches = tuple(writer.batches(one, base, end))
        except InvalidRequest as error:  # of the writer of the object; the client asked rightly
            raise DataCorrupt(
                f"stored records fit no record batch: {error}; run verify. object={piece.object}"
            ) from error
        blocks.append(Block(base, end, batches))
    return blocks


def _decoded(
    piece: column_reader.ColumnPiece, fetched: Fetched, columns: Sequence[str]
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


def _writer_of(view: PartitionView, entry: Entry) -> ProducerBatch | None:
    """Return the transaction that a tail's reference segment gives to the rows of an entry."""
    return written_by([one.segment for one in view.tail], entry)


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
