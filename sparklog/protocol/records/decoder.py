"""Decodes the bytes of record batches to Arrow rows: checksum, codec, then the compiled scan.

It does not know where batches come from, or which records a reader may see (transactions, control
batches). It also decodes many batches together, so that the cost of a call is shared. A leader's
flush brings thousands of small batches at a time. Their headers become one table, their records one
buffer, and one call of the compiled scan decodes all of it.

RECORDS-DECODER-1: On any bytes, `decode` returns or raises DataCorrupt.
RECORDS-DECODER-2: Gaps in offsets, which compaction leaves, appear in the offset column.
RECORDS-DECODER-3: With LogAppendTime every row has the header's max timestamp.
RECORDS-DECODER-4: The rows of `decode_runs` are those of `decode`, batch after batch, each with
    its own offset.
RECORDS-DECODER-5: Each item is exactly one batch whose checksum the caller has verified.

Offsets count records, timestamps are milliseconds since the Unix epoch, sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import TimestampType
from sparklog.protocol.arrays import Bytes, Int32s, Int64s
from sparklog.protocol.records import header_names
from sparklog.protocol.records.columns import (
    HEADER_TYPE,
    HEADERS_TYPE,
    RECORDS_SCHEMA,
    TIMESTAMP_TYPE,
)
from sparklog.protocol.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from sparklog.protocol.records.header import (
    HEADER_BYTES,
    INT32_MAX,
    BatchHeader,
    BytesLike,
    check_crc,
    parse_header,
    whole_batch,
)

if TYPE_CHECKING:
    from types import ModuleType
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from sparklog.protocol.records.header import (
    CODEC_MASK,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    Codec,
)

_INT64: Final = pa.int64()
_BINARY: Final = pa.binary()
FAULTS: Final = {
    1: "a record runs past its end",
    2: "a number is longer than its type",
    3: "a record's length is not that of its fields",
    4: "an offset delta does not rise, or passes the header's last offset delta",
    5: "a header count cannot be right",
    6: "a header has no key",
    7: "bytes are left over after the last record",
    8: "it holds fewer records than its header says",
}
"""Messages for the kernels' faults."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One batch: its header, and its records by the columns of RECORDS_SCHEMA."""

    header: BatchHeader
    records: pa.RecordBatch


def decode(
    data: BytesLike,
    *,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> DecodedBatch:
    """Decode one record batch.

    Header keys that are not UTF-8 are escaped as `header_names` says.

    Args:
        data: exactly one batch; `memory_records.split_batches` finds them.
        verify_crc: False if the same bytes were checked before.

        max_decompressed_bytes: limit for the records: a small batch must not exhaust the memory.

    Raises:
        DataCorrupt: not a batch of magic 2, changed, or inconsistent. Reject the request, or read
            another copy.
    """
    header = parse_header(data)
    batch = whole_batch(data, header)
    extra = memoryview(data).nbytes - header.size_bytes
    if extra:
        raise DataCorrupt(
            "bytes follow the record batch; split the buffer first. "
            f"base_offset={header.base_offset} batch_bytes={header.size_bytes} extra_bytes={extra}"
        )
    if verify_crc:
        check_crc(batch, header)
    if header.record_count == 0 and len(batch) == HEADER_BYTES:
        return DecodedBatch(header, pa.RecordBatch.from_pylist([], RECORDS_SCHEMA))
    bound = min(max_decompressed_bytes, INT32_MAX)
    plain = decompress(batch[HEADER_BYTES:], header.codec, bound)
    return DecodedBatch(header, rows_of_batch(header, plain, 0))


def rows_of_batch(header: BatchHeader, data: BytesLike, first_byte: int) -> pa.RecordBatch:
    """Return the decompressed records of one batch that begin at a byte of `data`.

    Raises:
        DataCorrupt: the records contradict themselves or their header.
    """
    places = np.array([place_of(header, first_byte, len(data))], np.int64)
    return rows_of(np.frombuffer(data, np.uint8), places)


def place_of(header: BatchHeader, first_byte: int, end_byte: int) -> tuple[int, ...]:
    """Return the scan's row for a batch whose decompressed records are at these bytes."""
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return (
        first_byte,
        end_byte,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp if is_append_time else header.base_timestamp,
        is_append_time,
    )


def rows_of(data: Bytes, places: Int64s) -> pa.RecordBatch:
    """Scan the records of decompressed batches, and copy them into Arrow arrays in order.

    Args:
        data: the records of all batches, below 2 GiB.
        places: one row a batch, in offset order; see `place_of` and the kernels' PLACE.

    Raises:
        DataCorrupt: the records contradict themselves or their header.
    """
    kernels = _kernels()
    rows = int(places[:, kernels.RECORDS].sum())
    if rows > len(data) // kernels.RECORD_BYTES_MIN:
        raise DataCorrupt(
            "record batch holds fewer records than its header says; read another copy or have it "
            f"sent again. base_offset={places[0, kernels.BASE_OFFSET]} record_count={rows} "
            f"bytes={len(data)}"
        )
    longs = np.empty((2, rows), np.int64)
    starts = np.empty((3, rows), np.int32)
    ends = np.zeros((3, rows + 1), np.int32)
    valid = np.zeros((3, (rows + 7) // 8), np.uint8)
    sums = np.zeros(kernels.SUMS, np.int64)
    fault = kernels.scan_records(data, places, longs, starts, ends, valid, sums)
    nulls = sums.tolist()
    if fault:
        bad = places[nulls[kernels.BAD_BATCH]].tolist()
        raise _malformed(
            fault, bad[kernels.BASE_OFFSET], bad[kernels.RECORDS], nulls[kernels.BAD_RECORD]
        )
    columns = [
        _array(_INT64, rows, None, 0, longs[0]),
        _array(TIMESTAMP_TYPE, rows, None, 0, longs[1]),
    ]
    for column in (kernels.KEY, kernels.VALUE):
        column_ends = ends[column]
        into = np.empty(column_ends[rows], np.uint8)
        kernels.gather(data, starts[column], column_ends, into)
        columns.append(_array(_BINARY, rows, valid[column], nulls[column], column_ends, into))
    lists = kernels.HEADER_LIST
    if nulls[lists] == rows:
        columns.append(pa.nulls(rows, HEADERS_TYPE))
    else:
        headers = _headers(data, starts[lists], ends[lists], sums)
        buffers = [pa.py_buffer(valid[lists]) if nulls[lists] else None, pa.py_buffer(ends[lists])]
        columns.append(
            pa.Array.from_buffers(
                HEADERS_TYPE, rows, buffers, null_count=nulls[lists], children=[headers]
            )
        )
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS_SCHEMA)


def _headers(data: Bytes, starts: Int32s, ends: Int32s, sums: Int64s) -> pa.Array:
    """Copy the headers of all records into one struct array."""
    kernels = _kernels()
    count = int(sums[kernels.HEADERS])
    key_ends = np.empty(count + 1, np.int32)
    keys = np.empty(int(sums[kernels.HEADER_KEY_BYTES]), np.uint8)
    value_ends = np.empty(count + 1, np.int32)
    values = np.empty(int(sums[kernels.HEADER_VALUE_BYTES]), np.uint8)
    value_valid = np.zeros((count + 7) // 8, np.uint8)
    fault = kernels.gather_headers(
        data, starts, ends, key_ends, keys, value_ends, values, value_valid
    )
    if fault:
        raise _malformed(fault, -1, len(starts), -1)
    nulls = int(sums[kernels.HEADER_VALUE_NULLS])
    fields = [
        header_names.texts(_array(_BINARY, count, None, 0, key_ends, keys)),
        _array(_BINARY, count, value_valid, nulls, value_ends, values),
    ]
    return pa.StructArray.from_arrays(fields, fields=list(HEADER_TYPE))


def _array(
    kind: pa.DataType,
    rows: int,
    valid: Bytes | None,
    nulls: int,
    *buffers: Int64s | Int32s | Bytes,
) -> pa.Array:
    bitmap = pa.py_buffer(valid) if valid is not None and nulls else None
    return pa.Array.from_buffers(kind, rows, [bitmap, *map(pa.py_buffer, buffers)], nulls)


def _malformed(fault: int, base_offset: int, record_count: int, record: int) -> DataCorrupt:
    return DataCorrupt(
        f"record batch is malformed: {FAULTS[fault]}; read another copy or have it sent again. "
        f"base_offset={base_offset} record={record} record_count={record_count}"
    )


@cache
def _kernels() -> ModuleType:
    """Load numba and the machine code on first use: importing them costs a third of a second."""
    from sparklog.protocol.records import decode_kernels  # noqa: PLC0415 - see above

    return decode_kernels


_FIELDS: Final = zip(
    BatchHeader._fields,
    ("i8", "i4", "i4", "i1", "u4", "i2", "i4", "i8", "i8", "i8", "i2", "i4", "i4"),
    strict=True,
)
HEADER_ROW: Final = np.dtype([(name, f">{kind}") for name, kind in _FIELDS])
"""The wire format of a header, with the field names of `BatchHeader`."""

RUN_BYTES: Final = 16 << 20
"""Decompressed bytes of one call: more would not be faster, only take more memory."""

Headers = npt.NDArray[Any]
"""One HEADER_ROW for each batch."""


def read_headers(batches: Sequence[BytesLike]) -> Headers:
    """Return the headers of whole batches as one table.

    Raises:
        DataCorrupt: an item is not exactly one batch of magic 2; a header contradicts itself.
    """
    table = np.frombuffer(b"".join(batch[:HEADER_BYTES] for batch in batches), np.uint8)
    sizes = np.fromiter(map(len, batches), np.int64, len(batches))
    if len(table) < len(batches) * HEADER_BYTES:
        raise _first_problem(batches)
    headers = table.view(HEADER_ROW)
    counts = headers["record_count"].astype(np.int64)
    sound = (
        (headers["magic"] == MAGIC)
        & (headers["length"].astype(np.int64) + LENGTH_END == sizes)
        & (headers["base_offset"] >= 0)
        & (counts >= 0)
        & (counts <= headers["last_offset_delta"].astype(np.int64) + 1)
        & (headers["attributes"] & CODEC_MASK <= Codec.ZSTD)
    )
    if not sound.all():
        raise _first_problem(batches)
    return headers


def decode_runs(
    batches: Sequence[BytesLike],
    headers: Headers,
    *,
    run_bytes: int = RUN_BYTES,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of neighbouring batches and their records, by the columns of RECORDS_SCHEMA.

    Memory: twice the records of one run, which are `run_bytes` and at most one batch more.

    Args:
        batches: as for `read_headers`.
        headers: its result.
        run_bytes: decompressed size that ends a run.
        max_decompressed_bytes: limit for the records of one batch.

    Raises:
        DataCorrupt: a batch's records contradict themselves or its header.
    """
    codecs = (headers["attributes"] & CODEC_MASK).tolist()
    bound = min(max_decompressed_bytes, INT32_MAX - run_bytes)
    first = 0
    pieces: list[BytesLike] = []
    skipped: list[int] = []
    size = 0
    for batch, codec in zip(batches, codecs, strict=True):
        is_plain = codec == Codec.NONE or len(batch) == HEADER_BYTES
        # A plain batch is joined whole: join() releases the interpreter's lock for `bytes`, not for
        # views.
        skipped.append(HEADER_BYTES if is_plain else 0)
        pieces.append(
            batch if is_plain else decompress(memoryview(batch)[HEADER_BYTES:], Codec(codec), bound)
        )
        size += len(pieces[-1])
        if size >= run_bytes:
            yield len(pieces), _rows(pieces, skipped, headers[first : first + len(pieces)])
            first += len(pieces)
            pieces, skipped, size = [], [], 0
    if pieces:
        yield len(pieces), _rows(pieces, skipped, headers[first:])


def _rows(pieces: Sequence[BytesLike], skipped: Sequence[int], headers: Headers) -> pa.RecordBatch:
    """Scan the decompressed records of batches; `skipped` bytes precede them in each piece."""
    if not headers["record_count"].any():
        return pa.RecordBatch.from_pylist([], RECORDS_SCHEMA)
    ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    is_append_time = headers["attributes"] & TIMESTAMP_TYPE_BIT != 0
    columns = (
        np.concatenate(([0], ends[:-1])) + np.array(skipped, np.int64),
        ends,
        headers["record_count"],
        headers["base_offset"],
        headers["last_offset_delta"],
        np.where(is_append_time, headers["max_timestamp"], headers["base_timestamp"]),
        is_append_time,
    )
    places = np.empty((len(pieces), len(columns)), np.int64)
    for column, values in enumerate(columns):
        places[:, column] = values
    return rows_of(np.frombuffer(b"".join(pieces), np.uint8), places)


def _first_problem(batches: Sequence[BytesLike]) -> DataCorrupt:
    """Return the error of the first invalid batch, checking one after the other."""
    for batch in batches:
        try:
            header = parse_header(batch)
            whole_batch(batch, header)
        except DataCorrupt as error:
            return error
        if len(batch) != header.size_bytes:
            return DataCorrupt(
                "bytes follow the record batch; split the buffer first. "
                f"base_offset={header.base_offset} batch_bytes={header.size_bytes}"
            )
    return DataCorrupt(f"record batches contradict themselves. batches={len(batches)}")
