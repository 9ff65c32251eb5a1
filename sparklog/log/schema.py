"""The Arrow shapes of records: as stored, as appended, as read. Source: FORMAT.md 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import InvalidRecord, InvalidRequest, RecordTooLarge
from sparklog.log.numpy_arrays import int64_array

TIMESTAMP = pa.timestamp("ms", tz="UTC")
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
COLUMN_TYPES: dict[str, pa.DataType] = {
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
}
"""Stored columns, in their order in a file."""

READ_TYPES: dict[str, pa.DataType] = {**COLUMN_TYPES, "timestampType": pa.int32()}
"""Columns for readers: the stored ones, and one that comes from the segment's metadata."""

APPEND_COLUMNS = ("timestamp", "key", "value", "headers")
RECORD_OVERHEAD_BYTES_MAX = 70
"""Most that Kafka's v2 format adds to a record's key, value and headers (batch header included)."""

KEY_FILTER_SALTS: Final = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
    0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip
"""Salts of Parquet's split block Bloom filter. Source: FORMAT.md 14; Parquet's BloomFilter.md."""


def read_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of batches read with these columns, in the order given.

    Raises:
        InvalidRequest: a column no log has.
    """
    unknown = [name for name in columns if name not in READ_TYPES]
    if unknown:
        raise InvalidRequest(
            f"no such column in a log; choose from {', '.join(READ_TYPES)}. columns={unknown}"
        )
    return pa.schema([pa.field(name, READ_TYPES[name]) for name in columns])


def normalized(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Return `batch` in the stored columns and types, without `offset`.

    A missing `timestamp`, or a null in it, becomes `now_ms`. Missing `key` and `headers`, and
    those that are null throughout, are left out.

    Raises:
        InvalidRequest: an unknown column, no `value` column, a type that does not convert, or a
            header that is null or has no key.
    """
    unknown = [name for name in batch.schema.names if name not in APPEND_COLUMNS]
    if unknown or "value" not in batch.schema.names:
        raise InvalidRequest(
            f"records are appended with columns {', '.join(APPEND_COLUMNS)}, of which only value "
            f"must be there. columns={batch.schema.names}"
        )
    arrays: list[pa.Array] = []
    names: list[str] = []
    for name in APPEND_COLUMNS:
        array = _column(batch, name, now_ms)
        if array is not None:
            arrays.append(array)
            names.append(name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _column(batch: pa.RecordBatch, name: str, now_ms: int) -> pa.Array | None:
    if name not in batch.schema.names:
        if name == "timestamp":
            return pa.repeat(pa.scalar(now_ms, TIMESTAMP), batch.num_rows)
        return None
    array = batch.column(name)
    if name in ("key", "headers") and array.null_count == len(array):
        return None
    if array.type != COLUMN_TYPES[name]:
        try:
            is_time = name == "timestamp" and pa.types.is_timestamp(array.type)
            array = floored(array) if is_time else array.cast(COLUMN_TYPES[name])
        except pa.ArrowException as error:
            raise InvalidRequest(
                f"column cannot be stored: {error}. column={name} type={array.type} "
                f"wanted={COLUMN_TYPES[name]}"
            ) from error
    if name == "timestamp" and array.null_count:
        array = pc.fill_null(array, pa.scalar(now_ms, TIMESTAMP))
    if name == "headers" and (problem := unnamed_headers(array)):
        raise InvalidRequest(f"headers cannot be stored: {problem}")
    return array


def unnamed_headers(headers: pa.Array) -> str:
    """Return the problem if a header is null or has a null name, which Kafka cannot have; or ''."""
    structs = headers.values
    if not structs.null_count and not structs.field("key").null_count:
        return ""  # without a copy, as nearly always
    structs = headers.flatten()
    nulls, names = structs.null_count, structs.field("key").null_count
    if not nulls and not names:
        return ""
    return f"a header is null or has no key. null_headers={nulls} null_keys={names}"


def floored(times: pa.Array) -> pa.Array:
    """Return timestamps in milliseconds of UTC, rounded down: a cast rounds toward 1970."""
    finer = {"us": 1_000, "ns": 1_000_000}.get(times.type.unit)
    if finer is None:
        return times.cast(TIMESTAMP)
    numbers = times.cast(pa.int64())
    whole = pc.divide(numbers, finer)
    is_above = pc.greater(pc.multiply(whole, finer), numbers)
    return pc.subtract(whole, is_above.cast(pa.int64())).cast(TIMESTAMP)


def check_record_sizes(batch: pa.RecordBatch, max_message_bytes: int) -> None:
    """Reject records that Kafka would reject.

    Cheap: it reads the columns' lengths, and single records only if the whole batch is larger than
    one record may be.

    Raises:
        RecordTooLarge: a record over `max.message.bytes`; the message names its row and size.
    """
    if batch.nbytes + RECORD_OVERHEAD_BYTES_MAX <= max_message_bytes:
        return
    sizes = record_bytes(batch)
    largest = pc.max(sizes).as_py() or 0
    if largest + RECORD_OVERHEAD_BYTES_MAX > max_message_bytes:
        row = pc.index(sizes, largest).as_py()
        raise RecordTooLarge(
            "a record is larger than the topic takes; split it or raise max.message.bytes. "
            f"row={row} bytes={largest + RECORD_OVERHEAD_BYTES_MAX}, of them "
            f"{RECORD_OVERHEAD_BYTES_MAX} of its batch; max.message.bytes={max_message_bytes}"
        )


def record_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Return the bytes of key, value and headers of each record, as int64."""
    sizes = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    for name in ("key", "value"):
        if name in batch.schema.names:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(batch.column(name)), 0))
    if "headers" in batch.schema.names:
        sizes = pc.add(sizes, _header_bytes(batch.column("headers")))
    return sizes


def check_keys(batch: pa.RecordBatch) -> None:
    """Reject records without a key, as Kafka does for a compacted topic.

    Raises:
        InvalidRecord: the message names the first such row.
    """
    if "key" not in batch.schema.names:
        row = 0
    elif batch.column("key").null_count:
        row = pc.index(batch.column("key").is_null(), True).as_py()
    else:
        return
    raise InvalidRecord(
        "a compacted topic takes no record without a key: give each one, or change cleanup.policy. "
        f"row={row}"
    )


def _header_bytes(headers: pa.Array) -> pa.Array:
    items = headers.flatten()
    lengths = pc.add(
        pc.fill_null(pc.binary_length(items.field("key")), 0),
        pc.fill_null(pc.binary_length(items.field("value")), 0),
    )
    rows = np.bincount(
        pc.list_parent_indices(headers).to_numpy(zero_copy_only=False),
        weights=lengths.to_numpy(zero_copy_only=False),
        minlength=len(headers),
    )
    return int64_array(rows)
