"""Reads record batches by offset range and column: selects, verifies and decodes the bytes.

Only the wanted columns' bytes are fetched and only they are decompressed. Every byte that is used
has passed its CRC. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Program, Range, get_many
from sparklog.log.numpy_arrays import int64_array, repeated_int32
from sparklog.log.schema import COLUMN_TYPES, READ_TYPES, unnamed_headers
from sparklog.log.segment.arrow_ipc import read_columns
from sparklog.log.segment.file import Span
from sparklog.log.segment.segment import BatchIndex, Segment

FETCH_BYTES_MAX = 4 << 20
"""About the bytes of one request: large enough for throughput, small enough for memory."""
DENSE_ROWS = 65_536
BATCHES_MAX = 32
"""Record batches decoded together. Each holds about 1 MiB uncompressed, however small it is stored,
so this bounds what very compressible data unfolds to."""
GAP_BYTES_MAX = 128 * 1024
"""Unwanted bytes between two wanted ranges that cost less to read than another request."""


@dataclass(frozen=True, slots=True)
class ColumnPiece:
    """A run of neighbouring record batches of one object, fetched together."""

    object: str
    """Store key."""
    segment: Segment
    object_base: int
    batches: tuple[BatchIndex, ...]
    columns: tuple[str, ...]
    """Stored columns to fetch; empty when what is wanted follows from the index alone."""
    base_offset: int
    end_offset: int
    """The offsets wanted of it; its first and last batch may hold others."""


def pieces(
    key: str,
    segment: Segment,
    object_base: int,
    base_offset: int,
    end_offset: int,
    columns: Sequence[str],
) -> Iterator[ColumnPiece]:
    """Cut the batches that hold any of [base_offset, end_offset) into pieces to fetch."""
    wanted = set(columns)
    stored = [name for name in segment.column_names if name in wanted]
    if "offset" in segment.column_names and "offset" not in stored:
        stored.insert(0, "offset")
    run: list[BatchIndex] = []
    size = 0

    def piece() -> ColumnPiece:
        return ColumnPiece(
            key, segment, object_base, tuple(run), tuple(stored), base_offset, end_offset
        )

    for batch in segment.batches:
        if object_base + batch.end <= base_offset or object_base + batch.base >= end_offset:
            continue
        cost = sum(span.length for span in _spans(segment, batch, stored)) if stored else 0
        if run and (size + cost > FETCH_BYTES_MAX or len(run) == BATCHES_MAX):
            yield piece()
            run, size = [], 0
        run.append(batch)
        size += cost
    if run:
        yield piece()


def byte_ranges(piece: ColumnPiece) -> list[tuple[int, int]]:
    """Return the file ranges [start, end) to request for a piece, neighbours merged."""
    merged: list[tuple[int, int]] = []
    if not piece.columns:
        return merged
    for batch in piece.batches:
        for span in _spans(piece.segment, batch, piece.columns):
            if not span.length:
                continue
            if merged and span.start - merged[-1][1] <= GAP_BYTES_MAX:
                merged[-1] = (merged[-1][0], max(merged[-1][1], span.start + span.length))
            else:
                merged.append((span.start, span.start + span.length))
    return merged


def fetch(piece: ColumnPiece) -> Program[list[tuple[int, bytes]] | None]:
    """Return the bytes of a piece by their positions; None if the object is gone."""
    wanted = byte_ranges(piece) if piece.batches else []
    if not wanted:
        return []
    found = yield from get_many(tuple(Range(piece.object, low, high) for low, high in wanted))
    starts = (low for low, _ in wanted)
    fetched = [(low, data) for low, data in zip(starts, found, strict=True) if data is not None]
    return fetched if len(fetched) == len(wanted) else None


def decode(
    piece: ColumnPiece, fetched: Sequence[tuple[int, bytes]], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows and columns of a piece from its fetched ranges (file position, bytes).

    Raises:
        DataCorrupt: a range came back short, bytes fail their CRC, or columns contradict
            themselves or the index.
    """
    tables = _load(piece, fetched) if piece.columns else [None] * len(piece.batches)
    for index, loaded in zip(piece.batches, tables, strict=True):
        base = piece.object_base + index.base
        if loaded is not None and "offset" in piece.columns:
            offsets = _stored_offsets(piece, index, loaded.column("offset"))
        else:
            offsets = np.arange(base, base + index.rows, dtype=np.int64)
        low, high = np.searchsorted(offsets, (piece.base_offset, piece.end_offset)).tolist()
        if low == high:
            continue
        arrays = [
            _column(name, index, loaded, offsets, piece.segment).slice(low, high - low)
            for name in columns
        ]
        yield batch_of(arrays, columns, high - low)


def _stored_offsets(piece: ColumnPiece, index: BatchIndex, stored: pa.Array) -> np.ndarray:
    """Return the offsets of a batch's rows as the log counts them.

    Raises:
        DataCorrupt: one is null, they do not rise, or one is outside of the batch.
    """
    # Stored offsets are relative in a staged or moved object, hence the difference.
    shift = piece.object_base - piece.segment.base_offset
    base, end = piece.object_base + index.base, piece.object_base + index.end
    offsets: np.ndarray = stored.fill_null(0).to_numpy() + shift
    problem = ""
    if stored.null_count:
        problem = "null"
    elif len(offsets) and not base <= offsets[0] <= offsets[-1] < end:
        problem = "outside of the batch"
    elif (offsets[1:] <= offsets[:-1]).any():
        problem = "not above the one before"
    if problem:
        raise DataCorrupt(
            f"a stored offset is {problem}; run verify. object={piece.object} "
            f"base_offset={base} end_offset={end}"
        )
    return offsets


def dense_batches(
    base_offset: int, end_offset: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield records of which nothing but the offset is wanted, and every offset exists."""
    for low in range(base_offset, end_offset, DENSE_ROWS):
        high = min(low + DENSE_ROWS, end_offset)
        arrays = [int64_array(np.arange(low, high, dtype=np.int64)) for _ in columns]
        yield batch_of(arrays, columns, high - low)


def batch_of(arrays: Sequence[pa.Array], columns: Sequence[str], rows: int) -> pa.RecordBatch:
    """Return a record batch; without columns it still has its number of rows."""
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))
    schema = pa.schema([pa.field(name, READ_TYPES[name]) for name in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(
    name: str,
    index: BatchIndex,
    loaded: pa.RecordBatch | None,
    offsets: np.ndarray,
    segment: Segment,
) -> pa.Array:
    if name == "offset":
        return int64_array(offsets)
    if name == "timestampType":
        return repeated_int32(int(segment.timestamp_type), index.rows)
    if loaded is None or name not in loaded.schema.names:
        return pa.nulls(index.rows, READ_TYPES[name])
    return loaded.column(name)


def _spans(segment: Segment, batch: BatchIndex, columns: Sequence[str]) -> list[Span]:
    body = batch.stored.position + batch.stored.meta.length
    spans = [batch.stored.meta]
    for name, span in zip(segment.column_names, batch.stored.columns, strict=True):
        if name in columns:
            spans.append(Span(body + span.start, span.length, span.crc))
    return spans


def _load(piece: ColumnPiece, fetched: Sequence[tuple[int, bytes]]) -> list[pa.RecordBatch | None]:
    """Check the wanted bytes and make columns of them."""
    names = piece.segment.column_names
    schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in names])
    try:
        return [_columns(piece, schema, batch, fetched) for batch in piece.batches]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataCorrupt(
            f"Arrow cannot read a record batch: {error}; run verify. object={piece.object}"
        ) from error


def _columns(
    piece: ColumnPiece, schema: pa.Schema, batch: BatchIndex, fetched: Sequence[tuple[int, bytes]]
) -> pa.RecordBatch:
    body = batch.stored.position + batch.stored.meta.length
    meta, *columns = [
        (span.start - body, _checked(fetched, span, piece.object))
        for span in _spans(piece.segment, batch, piece.columns)
    ]

    def bytes_of(position: int, length: int) -> memoryview:
        for start, data in columns:
            if start <= position and position + length <= start + len(data):
                return data[position - start : position - start + length]
        if not length:
            return memoryview(b"")
        raise ValueError(f"a buffer lies outside its column. position={position} length={length}")

    rows = read_columns(meta[1], bytes_of, schema, piece.columns)
    if rows.num_rows != batch.rows:
        raise ValueError(f"it has other rows than its index says. rows={rows.num_rows}")
    if "headers" in rows.schema.names and (problem := unnamed_headers(rows.column("headers"))):
        raise ValueError(problem)
    return rows


def _checked(fetched: Sequence[tuple[int, bytes]], span: Span, name: str) -> memoryview:
    data = _cut(fetched, span, name)
    if crc32c(data) != span.crc:
        raise DataCorrupt(
            "stored bytes fail their checksum; run verify. "
            f"object={name} position={span.start} length={span.length}"
        )
    return data


def _cut(fetched: Sequence[tuple[int, bytes]], span: Span, name: str) -> memoryview:
    for position, data in fetched:
        if position <= span.start and span.start + span.length <= position + len(data):
            return memoryview(data)[span.start - position : span.start - position + span.length]
    if not span.length:
        return memoryview(b"")
    raise DataCorrupt(
        "object is shorter than its index says: truncated; run verify. "
        f"object={name} position={span.start} length={span.length}"
    )
