"""A segment before it has an offset: encode once, stamp as often as a race needs.

Nothing in the encoded records depends on the base offset, so an append that loses its name only
gets a new footer. Source: FORMAT.md 2 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.types import NO_TIMESTAMP_MS, TimestampType
from sparklog.log import schema
from sparklog.log.layout import PartitionLayout
from sparklog.log.segment.file import StreamPart, finish_file, finish_in_place, write_stream
from sparklog.log.segment.footer import to_metadata
from sparklog.log.segment.key_index import index_keys
from sparklog.log.segment.segment import BatchIndex, CommitStamp, Reference, Segment
from sparklog.store.base import Data

BATCH_ROWS_MAX = 16_384
BATCH_BYTES = 1 << 20
"""About how much uncompressed data a record batch holds: the unit of a small read."""

_EMPTY_SCHEMA = pa.schema([pa.field("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class SegmentBuilder:
    """Encoded records (or references) and all of their metadata but the place in the log."""

    part: StreamPart
    segment: Segment
    """With base offset 0, so its offsets are relative."""

    def placed(self, base_offset: int, commit: CommitStamp | None = None) -> Segment:
        """Return the metadata of the segment that holds these records from `base_offset` on."""
        end_offset = base_offset + self.segment.end_offset
        return replace(self.segment, base_offset=base_offset, end_offset=end_offset, commit=commit)

    def at(self, base_offset: int, commit: CommitStamp | None = None) -> bytes:
        """Return the file of that segment."""
        return finish_file(self.part, to_metadata(self.placed(base_offset, commit)))

    def finished(self, base_offset: int) -> Data:
        """Return the same file as `at`, built in place without a copy. Call it once only."""
        return finish_in_place(self.part, to_metadata(self.placed(base_offset)))


def build_records(
    layout: PartitionLayout,
    batches: Sequence[pa.RecordBatch],
    nonce: str,
    *,
    codec: str,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    indexes_keys: bool = False,
) -> SegmentBuilder:
    """Encode normalised record batches (see `schema.normalized`) as one dense segment."""
    columns = [
        name for name in schema.APPEND_COLUMNS if any(name in b.schema.names for b in batches)
    ]
    rows = sum(batch.num_rows for batch in batches)
    about = Segment(
        topic_id=layout.topic_id,
        partition=layout.partition,
        base_offset=0,
        end_offset=rows,
        rows=rows,
        nonce=nonce,
        timestamp_type=timestamp_type,
        codec=codec,
    )
    return build_rows(about, columns, batches, level, indexes_keys=indexes_keys)


def build_rows(
    about: Segment,
    columns: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    level: int | None = None,
    *,
    first_offset: int = 0,
    indexes_keys: bool = False,
) -> SegmentBuilder:
    """Encode rows as the segment that `about` describes, with the metadata that follows from them.

    Args:
        `about`: metadata with base offset 0, the end offset and the number of rows.
        `columns`: to store, in their stored order. If offsets have gaps, `offset` is one of them,
            and the segment fits at `first_offset` only.
        `batches`: rows with some of these columns.
        `level`: of zstd.
        `first_offset`: base of the `offset` column.
        `indexes_keys`: add the key index, which excludes keys that the segment does not have.
    """
    stored_schema = pa.schema([pa.field(n, schema.COLUMN_TYPES[n]) for n in columns])
    pieces = [_aligned(piece, stored_schema) for piece in resized(batches)]
    part = write_stream(stored_schema, pieces, about.codec, level)
    keys = None
    if indexes_keys and "key" in columns:
        found = index_keys([p.column("key") for p in pieces], about.nonce, part.extra_start)
        keys, part = (found[0], replace(part, extra=found[1])) if found else (None, part)
    index = []
    base = 0
    for at, (piece, stored) in enumerate(zip(pieces, part.batches, strict=True)):
        low, high = timestamp_bounds(piece.column("timestamp"))
        rows = piece.num_rows
        end = base + rows
        if at + 1 == len(pieces):
            end = about.end_offset
        elif "offset" in columns:
            end = piece.column("offset")[rows - 1].as_py() + 1 - first_offset
        index.append(BatchIndex(base, end, rows, low, high, stored))
        base = end
    segment = replace(
        about,
        min_timestamp_ms=min((b.min_timestamp_ms for b in index), default=NO_TIMESTAMP_MS),
        max_timestamp_ms=max((b.max_timestamp_ms for b in index), default=NO_TIMESTAMP_MS),
        head=(part.head.length, part.head.crc),
        column_names=tuple(columns),
        batches=tuple(index),
        keys=keys,
    )
    return SegmentBuilder(part, segment)


def draft_fence(
    layout: PartitionLayout, nonce: str, *, leader_epoch: int, led: bool
) -> SegmentBuilder:
    """Return a fence: no offset, no record, and from here on a leader or none."""
    part = write_stream(_EMPTY_SCHEMA, [], "none")
    segment = Segment(
        topic_id=layout.topic_id,
        partition=layout.partition,
        kind="fence",
        base_offset=0,
        end_offset=0,
        rows=0,
        nonce=nonce,
        leader_epoch=leader_epoch,
        led=led,
        head=(part.head.length, part.head.crc),
    )
    return SegmentBuilder(part, segment)


def build_references(
    layout: PartitionLayout,
    staged: Iterable[Reference],
    nonce: str,
    *,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> SegmentBuilder:
    """Put staged objects in order as one segment without rows of its own."""
    placed: list[Reference] = []
    base = 0
    for reference in staged:
        end = base + reference.end - reference.base
        placed.append(replace(reference, base=base, end=end))
        base = end
    part = write_stream(_EMPTY_SCHEMA, [], "none")
    segment = Segment(
        topic_id=layout.topic_id,
        partition=layout.partition,
        kind="reference",
        base_offset=0,
        end_offset=base,
        rows=sum(r.rows for r in placed),
        nonce=nonce,
        min_timestamp_ms=min((r.min_timestamp_ms for r in placed), default=NO_TIMESTAMP_MS),
        max_timestamp_ms=max((r.max_timestamp_ms for r in placed), default=NO_TIMESTAMP_MS),
        timestamp_type=timestamp_type,
        head=(part.head.length, part.head.crc),
        references=tuple(placed),
    )
    return SegmentBuilder(part, segment)


def resized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in record batches of the stored size.

    Small neighbours are joined and large ones cut. So the size of a writer's batches does not
    decide how much a reader must fetch.
    """
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        row_bytes = max(1, batch.nbytes // batch.num_rows)
        per_batch = max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // row_bytes))
        at = 0
        while at < batch.num_rows:
            rows_left = min(BATCH_ROWS_MAX - rows, max(0, BATCH_BYTES - size) // row_bytes)
            if pending and (rows_left <= 0 or batch.schema != pending[0].schema):
                yield _joined(pending)
                pending, rows, size = [], 0, 0
                continue
            take = min(batch.num_rows - at, rows_left if pending else per_batch)
            pending.append(batch.slice(at, take))
            at, rows, size = at + take, rows + take, size + take * row_bytes
    if pending:
        yield _joined(pending)


def timestamp_bounds(timestamps: pa.Array) -> tuple[int, int]:
    """Return the lowest and highest of a timestamp column in milliseconds."""
    bounds = pc.min_max(timestamps.cast(pa.int64()))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _aligned(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    if batch.schema.names == wanted.names:
        return pa.RecordBatch.from_arrays(batch.columns, schema=wanted)
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
