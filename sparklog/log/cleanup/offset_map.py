"""OffsetMap: finds the newest record of each key, for any number of keys in bounded memory.

Rows come in order. While the keys fit into a table of `keys_max`, each row marks itself and clears
the mark of the previous row of its key. When they no longer fit, the content of the table and all
later rows go to files by hash. Each file then has few enough keys for a table of its own. So the
keys are read once. Memory is one table and one bit per row for any number of keys.

`survivors` and `kept_rows` return the rows that a compaction keeps. Rows are numbered from 0 in
order of offsets, without those below the log start. A record of an aborted transaction goes and
hides no other record. A record without a key goes. A tombstone hides older records of its key, and
goes itself after it was kept long enough. Source: Kafka's Cleaner.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import Closeable
from sparklog.log.cleanup.rewriter import ROW_COLUMNS
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.view import PartitionView
from sparklog.log.numpy_arrays import bool_array
from sparklog.log.partition.segment_reader import Region, SegmentReader
from sparklog.log.segment.key_kernels import EMPTY, ROW_BITS, UInt64s, hash_keys, keep_newest
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.unread_batches import Unread
from sparklog.protocol.arrays import Bytes
from sparklog.protocol.records.columns import binary_view

KEYS_MAX: Final = 1 << 22
"""Keys in one table: twice as many slots of 16 bytes take 128 MiB, and 192 while it grows."""
_FIRST_SLOTS: Final = 1 << 16
_PART_SLOTS: Final = 1 << 18
_FILES_MAX: Final = 256
_FILE_BUFFER_BYTES: Final = 1 << 18
_SPILLED = np.dtype([("low", "<u8"), ("marked", "<u8")])
_ROWS = np.uint64(ROW_BITS)


class OffsetMap(Closeable):
    """See the module. Not thread-safe; close it, or use it as a context, to remove its files."""

    def __init__(
        self,
        rows_max: int,
        *,
        keys_max: int = KEYS_MAX,
        folder: str | None = None,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Accept at most `rows_max` rows; files go under `folder`, or to the temporary folder."""
        assert rows_max < 1 << ROW_BITS, rows_max
        seed = entropy.random_bytes(16)
        self._seed = int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little")
        self._rows_max = rows_max
        self._keys_max = keys_max
        self._folder = folder
        self._bits: Bytes = np.zeros((rows_max + 7) // 8, np.uint8)
        self._table = _Table(min(_FIRST_SLOTS, _slots_for(keys_max)))
        self._taken = 0
        self._spill: _Spill | None = None

    def close(self) -> None:
        """Remove the files."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    @property
    def spilled(self) -> bool:
        """Return True if the keys did not fit into memory."""
        return self._spill is not None

    def add(self, keys: pa.Array, counts: npt.NDArray[np.bool_] | None = None) -> None:
        """Add the next rows. Those with a null key, or where `counts` is False, do not count.

        Raises:
            DataCorrupt: the array's offsets lead outside its data.
        """
        first, self._taken = self._taken, self._taken + len(keys)
        assert self._taken <= self._rows_max, (self._taken, self._rows_max)
        if keys.null_count == len(keys):
            return
        view = binary_view(keys, len(keys), "key")
        low, high = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint64)
        bad_row = hash_keys(view.data, view.ends, *self._seed, low, high)
        if bad_row >= 0:
            raise DataCorrupt(
                "Arrow array is malformed: its offsets lead outside its data; run verify. "
                f"column=key row={bad_row}"
            )
        # The other bits of the hash besides `low`, and below them the row's number.
        marked = (high >> _ROWS << _ROWS) | np.arange(first, self._taken, dtype=np.uint64)
        wanted = counts
        if keys.null_count:
            valid = keys.is_valid().to_numpy(zero_copy_only=False)
            wanted = valid if wanted is None else wanted & valid
        if wanted is not None and not wanted.all():
            low, marked = low[wanted], marked[wanted]
        self._take(low, marked)

    def finish(self) -> Bytes:
        """Return the bitmap: the newest row of each key is set. Call it once, at the end."""
        if self._spill is not None:
            self._table = _Table(_FIRST_SLOTS)
            self._spill.replay(self._take_all)
        return self._bits

    def _take_all(self, low: UInt64s, marked: UInt64s, *, fresh: bool) -> None:
        if fresh:
            self._table = _Table(_FIRST_SLOTS)
        self._table.take(low, marked, self._bits, keys_max=None)

    def _take(self, low: UInt64s, marked: UInt64s) -> None:
        if self._spill is None:
            done = self._table.take(low, marked, self._bits, keys_max=self._keys_max)
            if done == len(low):
                return
            low, marked = low[done:], marked[done:]
            possible = self._table.keys + self._rows_max - (int(marked[0]) & (1 << ROW_BITS) - 1)
            self._spill = _Spill(2 * -(-possible // self._keys_max), self._folder)
            for known in self._table.content():
                self._spill.add(*known)
            self._table = _Table(0)
        self._spill.add(low, marked)


class _Table:
    """An open-addressing table that doubles when it is half full."""

    def __init__(self, slots: int) -> None:
        self.keys = 0
        self._slots: UInt64s = np.full(2 * slots, EMPTY, np.uint64)

    def take(self, low: UInt64s, marked: UInt64s, bits: Bytes, *, keys_max: int | None) -> int:
        """Add rows, and return their number: all, unless the keys would exceed `keys_max`."""
        done = 0
        while done < len(low):
            half = len(self._slots) // 4
            capacity = half if keys_max is None else min(half, keys_max)
            outcome = keep_newest(
                low[done:], marked[done:], self._slots, bits, capacity - self.keys
            )
            done += outcome >> 32
            self.keys += outcome & 0xFFFFFFFF
            if done < len(low):
                if self.keys == keys_max:
                    return done
                self._grow(bits)
        return done

    def content(self) -> Iterator[tuple[UInt64s, UInt64s]]:
        """Yield the content of all keys, in no order, part by part."""
        pairs = self._slots.reshape(-1, 2)
        for at in range(0, len(pairs), _PART_SLOTS):
            part = pairs[at : at + _PART_SLOTS]
            used = part[part[:, 1] != EMPTY]
            yield np.ascontiguousarray(used[:, 0]), np.ascontiguousarray(used[:, 1])

    def _grow(self, bits: Bytes) -> None:
        bigger = _Table(len(self._slots))
        for low, marked in self.content():
            # Each key is there once, with its row marked, so no bit changes.
            bigger.take(low, marked, bits, keys_max=None)
        self._slots = bigger._slots


class _Spill:
    """Hashes and rows in files: all rows of one key are in one file, in the order they came."""

    def __init__(self, files: int, folder: str | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sparklog-keys-", dir=folder)
        count = min(_FILES_MAX, max(2, files))
        self._files = [
            (Path(self._folder.name) / str(n)).open("w+b", buffering=_FILE_BUFFER_BYTES)
            for n in range(count)
        ]

    def add(self, low: UInt64s, marked: UInt64s) -> None:
        which = ((marked >> _ROWS) % np.uint64(len(self._files))).astype(np.int64)
        order = np.argsort(which, kind="stable")
        packed = np.empty(len(low), _SPILLED)
        packed["low"], packed["marked"] = low[order], marked[order]
        ends = np.searchsorted(which[order], np.arange(len(self._files) + 1))
        for n, file in enumerate(self._files):
            part = packed[ends[n] : ends[n + 1]]
            if len(part):
                file.write(part.tobytes())

    def replay(self, take: Callable[..., None]) -> None:
        """Pass the content of file after file; `fresh` marks the start of a file."""
        for file in self._files:
            file.flush()
            file.seek(0)
            fresh = True
            while len(data := file.read(_SPILLED.itemsize << 18)):
                part = np.frombuffer(data, _SPILLED)
                take(part["low"].copy(), part["marked"].copy(), fresh=fresh)
                fresh = False

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()


def _slots_for(keys: int) -> int:
    return 1 << max(1, (2 * keys - 1).bit_length())


BLOCKS_BETWEEN_MAX = 4
"""Record batches without a kept row that are read anyway, because one more request costs more."""


@dataclass(frozen=True, slots=True)
class KeptOffsets:
    """See the module."""

    bits: Bytes
    """Bit `row & 7` of byte `row >> 3` is set if a row stays."""
    first: Mapping[Entry, int]
    """Number of each entry's first row."""
    rows: Mapping[Entry, int]
    kept: Mapping[Entry, int]

    def chosen(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """Return, for `count` rows from number `first` on, True if a row stays."""
        low = first >> 3
        part = np.unpackbits(self.bits[low : (first + count + 7) >> 3], bitorder="little")
        found: npt.NDArray[np.bool_] = part[first - 8 * low :][:count].view(bool)
        return found


def survivors(
    region: Region,
    aborted: Sequence[tuple[int, int]],
    tombstones_below: int,
    keys_folder: str | None = None,
) -> KeptOffsets:
    """Read the keys of a region, and return the rows that stay.

    Args:
        `region`: all entries from the log start up to the end of the part to clean.
        `aborted`: ranges of offsets (base, end) of aborted transactions, in order.
        `tombstones_below`: tombstones at lower offsets go.
        `keys_folder`: folder for keys that do not fit into memory.

    Raises:
        DataCorrupt: an object is damaged or missing.
    """
    entries = region.entries
    edges = np.array([e.end_offset for e in entries], np.int64)
    counts = np.zeros(len(entries), np.int64)
    gone = np.zeros((region.rows_max + 7) // 8, np.uint8) if tombstones_below else None
    taken = 0
    with OffsetMap(region.rows_max, folder=keys_folder) as newest:
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
    survivors = KeptOffsets(
        bits,
        dict(zip(entries, firsts, strict=False)),
        dict(zip(entries, counts.tolist(), strict=True)),
        {},
    )
    kept = {e: int(survivors.chosen(survivors.first[e], survivors.rows[e]).sum()) for e in entries}
    return KeptOffsets(bits, survivors.first, survivors.rows, kept)


def kept_rows(
    reader: SegmentReader,
    view: PartitionView,
    entries: Sequence[Entry],
    segments: Mapping[Entry, Segment],
    found: KeptOffsets | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the kept rows of neighbouring entries, whole and in order; all rows without `found`.

    It does not read record batches without a kept row.

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
                    yield batch.filter(bool_array(stays))


def _keys(region: Region, tombstones_below: int) -> Iterator[pa.RecordBatch]:
    """Yield offsets and keys, and also values below `tombstones_below`, where nulls matter."""
    start, end = region.entries[0].base_offset, region.entries[-1].end_offset
    edge = min(max(start, tombstones_below), end)
    if start < edge:
        yield from region.read(("offset", "key", "value"), start, edge)
    if edge < end:
        yield from region.read(("offset", "key"), edge, end)


def _outside(
    offsets: npt.NDArray[np.int64], stretches: Sequence[tuple[int, int]]
) -> npt.NDArray[np.bool_]:
    """Return True for each offset that lies in none of the stretches."""
    table = np.array(stretches, np.int64)
    at = np.searchsorted(table[:, 0], offsets, "right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (offsets < table[at, 1])
    return ~inside


def _ranges(
    entry: Entry, low: int, segment: Segment, found: KeptOffsets
) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of an entry to read: offsets [base, end), and the first row's number."""
    first, rows = found.first[entry], found.rows[entry]
    if not found.kept[entry]:
        return
    if rows != sum(batch.rows for batch in segment.batches):
        yield low, entry.end_offset, first  # the entry covers less than the object holds
        return
    pending: tuple[int, int, int] | None = None
    skipped = 0
    for batch in segment.batches:
        base = max(low, entry.base_offset + batch.base)
        end = entry.base_offset + batch.end
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
