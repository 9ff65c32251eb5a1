"""Records as Arrow columns: the schema that decoding returns, and the buffers that encoding reads.

- `offset`, int64: only where offsets are known; a missing column means dense offsets.
- `timestamp`, timestamp[ms, UTC]: null means that none was given.
- `key`, binary: null and empty differ.
- `value`, binary: null is a tombstone.
- `headers`, list<struct<key: string, value: binary>>: null and empty are equal on the wire, and
  decode as null.

`columns_of` converts any slice of any Arrow array to plain numpy views for compiled code.

RECORDS-COLUMNS-1: Nothing is copied unless the type has to change.
RECORDS-COLUMNS-2: `columns_of` checks the lengths and buffers of the views; the kernel checks the
    offsets in them.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.core.types import NO_TIMESTAMP_MS
from sparklog.protocol.arrays import Bytes, Int32s, Int64s
from sparklog.protocol.records import header_names

Item = TypeVar("Item", bound=np.generic)


TIMESTAMP_TYPE: Final = pa.timestamp("ms", tz="UTC")
HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", HEADER_TYPE))
RECORDS_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)

_BINARY_TYPES: Final = (
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_binary_view,
    pa.types.is_string_view,
    pa.types.is_fixed_size_binary,
)


class BinaryView(NamedTuple):
    """One binary column: bytes, the end of each value, validity bits (empty: all valid)."""

    data: Bytes
    ends: Int32s
    valid: Bytes
    first_bit: int


class Columns(NamedTuple):
    """The buffers of a record batch, in the groups that the kernels take."""

    longs: tuple[Int64s, Int64s]
    """Offsets (empty when dense) and timestamps."""
    ends: tuple[Int32s, Int32s, Int32s, Int32s, Int32s]
    """Ends of keys, values, header lists (empty if none), header keys, header values."""
    data: tuple[Bytes, Bytes, Bytes, Bytes, Bytes, Bytes, Bytes]
    """Bytes of keys, values, header keys, header values; validity of keys, values, header
    values."""
    first_bits: Int64s
    """First validity bit of keys, values and header values."""


def columns_of(records: pa.RecordBatch) -> Columns:
    """Return the buffers behind `records`; any column may be missing.

    Raises:
        InvalidRequest: a column of another name or type, or a header that is null or has no key.
        DataCorrupt: an array claims more than its buffers hold.
    """
    rows = records.num_rows
    names = records.schema.names
    unknown = sorted(set(names) - set(RECORDS_SCHEMA.names))
    if unknown or len(set(names)) < len(names):
        raise InvalidRequest(
            "records need the columns offset, timestamp, key, value, headers, each at most once; "
            f"rename or drop the others. columns={names}"
        )
    given = dict(zip(names, records.columns, strict=True))
    key = binary_view(given.get("key"), rows, "key")
    value = binary_view(given.get("value"), rows, "value")
    list_ends, header_key, header_value = _headers(given.get("headers"), rows)
    return Columns(
        (_offsets(given.get("offset")), _timestamps(given.get("timestamp"), rows)),
        (key.ends, value.ends, list_ends, header_key.ends, header_value.ends),
        (
            key.data,
            value.data,
            header_key.data,
            header_value.data,
            key.valid,
            value.valid,
            header_value.valid,
        ),
        _frozen(np.array([key.first_bit, value.first_bit, header_value.first_bit], np.int64)),
    )


def binary_view(array: pa.Array | None, rows: int, name: str) -> BinaryView:
    """Return the buffers of a binary column; a missing one reads as all null.

    Raises:
        InvalidRequest: the type does not hold bytes.
    """
    if array is None or pa.types.is_null(array.type):
        nulls = np.zeros(rows // 8 + 1, np.uint8)
        return BinaryView(
            _frozen(np.empty(0, np.uint8)),
            _frozen(np.zeros(rows + 1, np.int32)),
            _frozen(nulls),
            0,
        )
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = _cast_to_binary(array, name)
    valid, ends, data = array.buffers()
    first = array.offset
    return BinaryView(
        _view(data, np.uint8, 0, None, name),
        _view(ends, np.int32, first, rows + 1, name) if rows else _frozen(np.zeros(1, np.int32)),
        _validity(array, valid, name),
        first % 8,
    )


def _cast_to_binary(array: pa.Array, name: str) -> pa.Array:
    if not any(is_type(array.type) for is_type in _BINARY_TYPES):
        raise InvalidRequest(
            f"{name} must be binary or string; cast it first. column={name} type={array.type}"
        )
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"{name} does not fit one Arrow binary array; send fewer rows at once. "
            f"column={name} rows={len(array)} bytes={array.nbytes}"
        ) from error


def _validity(array: pa.Array, bitmap: pa.Buffer | None, name: str) -> Bytes:
    """Return the validity bytes, from the byte with the array's first bit; empty: all valid."""
    if bitmap is None or array.null_count == 0:
        return _frozen(np.empty(0, np.uint8))
    first_byte = array.offset // 8
    count = (array.offset % 8 + len(array) + 7) // 8
    return _view(bitmap, np.uint8, first_byte, count, name)


def _offsets(array: pa.Array | None) -> Int64s:
    if array is None:
        return _frozen(np.empty(0, np.int64))
    if not pa.types.is_int64(array.type) or array.null_count:
        raise InvalidRequest(
            "offset must be int64 without nulls; drop the column for dense offsets. "
            f"type={array.type} nulls={array.null_count}"
        )
    return _view(array.buffers()[1], np.int64, array.offset, len(array), "offset")


def _timestamps(array: pa.Array | None, rows: int) -> Int64s:
    """Return milliseconds; a missing timestamp reads as NO_TIMESTAMP_MS."""
    if array is None or pa.types.is_null(array.type):
        return _frozen(np.full(rows, NO_TIMESTAMP_MS, np.int64))
    if not pa.types.is_timestamp(array.type):
        raise InvalidRequest(f"timestamp must be a timestamp; cast it first. type={array.type}")
    if array.type.unit != "ms":
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    array = array.view(pa.int64())
    if array.null_count:
        array = array.fill_null(NO_TIMESTAMP_MS)
    return _view(array.buffers()[1], np.int64, array.offset, rows, "timestamp")


def _headers(array: pa.Array | None, rows: int) -> tuple[Int32s, BinaryView, BinaryView]:
    """Return the end of each record's headers, and the keys and values of all headers."""
    if array is None or array.null_count == rows:
        nothing = binary_view(None, 0, "headers")
        return _frozen(np.empty(0, np.int32)), nothing, nothing
    item = array.type.value_type if pa.types.is_list(array.type) else None
    if item is None or not pa.types.is_struct(item) or {f.name for f in item} != {"key", "value"}:
        raise InvalidRequest(
            "headers must be a list of structs of key and value; rebuild the column. "
            f"type={array.type} wanted={HEADERS_TYPE}"
        )
    headers = array.flatten()
    keys = headers.field("key")
    if headers.null_count or keys.null_count:
        raise InvalidRequest(
            "a header is null or has no key; leave such headers out. "
            f"null_headers={headers.null_count} null_keys={keys.null_count}"
        )
    counts = pc.list_value_length(array).fill_null(0).to_numpy()
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return (
        _frozen(ends),
        binary_view(header_names.names(keys), len(headers), "headers.key"),
        binary_view(headers.field("value"), len(headers), "headers.value"),
    )


def _view(
    buffer: pa.Buffer | None, dtype: type[Item], start: int, count: int | None, name: str
) -> npt.NDArray[Item]:
    """Return items [start, start + count) of an Arrow buffer; None: up to the end."""
    found: npt.NDArray[Item] = np.empty(0, dtype)
    if buffer is not None and buffer.size:
        found = np.frombuffer(buffer, dtype, buffer.size // np.dtype(dtype).itemsize)[start:]
    if count is not None:
        found = found[:count]
        if len(found) < count:
            raise DataCorrupt(
                "Arrow array is malformed: a buffer is shorter than the array; check the writer. "
                f"column={name} items={len(found)} wanted={count}"
            )
    return _frozen(found)


def _frozen(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Mark an array read-only, which is the type the kernels are compiled for."""
    array.setflags(write=False)
    return array
