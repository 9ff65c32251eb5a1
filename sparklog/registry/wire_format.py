"""Framing: which schema each value of a column has, and its payload, by Arrow kernels.

A value begins with `00` and an id of four bytes. Or a header names the schema, by `00` and an id or
by `01` and a GUID: `__value_schema_id`, for keys `__key_schema_id`. The header counts first. Before
a Protobuf payload stand the indexes of its message, in the header or in the value behind the id.
Source: Confluent's wire format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
PREFIX_BYTES: Final = 5
_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_GUID_BYTES: Final = 17
NO_SCHEMA: Final = -1
INDEXES_MAX: Final = 64
"""Bound on the nesting of a Protobuf message in others."""

Schema = int | str
"""An id, or a GUID in the spelling of a UUID."""
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SplitValues:
    """The values of a column, split."""

    schemas: tuple[tuple[Schema, bytes], ...]
    """Each schema that occurs, with the message indexes that a header adds (mostly empty)."""
    places: Numbers
    """For each row the place of its schema in `schemas`; -1 for a null or an unframed value."""
    payloads: pa.Array
    """Binary: without the prefix. An unframed value stays as it is."""

    def rows_of(self, place: int) -> npt.NDArray[np.int64]:
        """Return the rows that have a schema, in order."""
        return np.flatnonzero(self.places == place)


def split_values(
    values: pa.Array, headers: pa.Array | None = None, *, name: str = VALUE_HEADER
) -> SplitValues:
    """Split a column of keys or values.

    Args:
        values: binary or large_binary.
        headers: the column `headers` of the same rows, or None to look at prefixes only.
        name: the header that counts, for values or for keys.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    ids = _prefix_ids(values)
    framed = ids >= 0
    named = _from_headers(headers, name, len(values)) if headers is not None else None
    found: dict[tuple[Schema, bytes], int] = {}
    places = np.full(len(values), NO_SCHEMA, np.int32)
    if named is not None:
        schemas, of_row = named
        by_header = of_row >= 0
        known = np.array([found.setdefault(s, len(found)) for s in schemas] or [0], np.int32)
        places[by_header] = known[of_row[by_header]]
        framed &= ~by_header
    if framed.any():
        distinct, inverse = np.unique(ids[framed], return_inverse=True)
        known = np.array(
            [found.setdefault((int(one), b""), len(found)) for one in distinct], np.int32
        )
        places[framed] = known[inverse]
    payloads = _without_prefixes(values, framed) if framed.any() else values
    return SplitValues(tuple(found), places, payloads)


def _bytes_of(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the n+1 offsets of a binary column, and its bytes."""
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offsets, data = values.buffers()
    if offsets is None or not len(values):
        return np.zeros(len(values) + 1, np.int64), np.empty(0, np.uint8)
    starts = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1]
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts.astype(np.int64), content


def _without_prefixes(values: pa.Array, framed: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a binary column without the prefixes of the `framed` rows."""
    offsets, data = _bytes_of(values)
    first, end = int(offsets[0]), int(offsets[-1])
    kept = np.ones(end - first, np.bool_)
    starts = offsets[:-1][framed] - first
    for n in range(PREFIX_BYTES):
        kept[starts + n] = False
    lengths = np.diff(offsets) - PREFIX_BYTES * framed
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    made = np.concatenate(([0], np.cumsum(lengths))).astype(width)
    valid = pa.array(np.asarray(values.is_valid())).buffers()[1]
    content = data[first:end][kept]
    buffers = [valid, pa.py_buffer(made), pa.py_buffer(content)]
    return pa.Array.from_buffers(values.type, len(values), buffers)


def _prefix_ids(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the id in front of each value; -1 for a null, or a value without one."""
    offsets, data = _bytes_of(values)
    starts = offsets[:-1]
    fits = (np.diff(offsets) >= PREFIX_BYTES) & np.asarray(values.is_valid())
    ids = np.full(len(values), NO_SCHEMA, np.int64)
    at = starts[fits]
    read = np.zeros(len(at), np.int64)
    for n in range(1, PREFIX_BYTES):
        read = read << 8 | data[at + n]
    # A negative id is none: the first bit of four bytes is its sign.
    ids[fits] = np.where((data[at] == _ID_MAGIC) & (read < 1 << 31), read, NO_SCHEMA)
    return ids


def _from_headers(
    headers: pa.Array, name: str, rows: int
) -> tuple[list[tuple[Schema, bytes]], Numbers] | None:
    """Return the schemas that headers name, and each row's place among them; None for none."""
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    entries = headers.flatten()
    if not len(entries):
        return None
    chosen = pc.fill_null(pc.equal(entries.field("key"), name), False)
    if not pc.any(chosen).as_py():
        return None
    parents = pc.list_parent_indices(headers).filter(chosen).to_numpy()
    encoded = entries.field("value").filter(chosen).dictionary_encode()
    schemas: list[tuple[Schema, bytes]] = []
    known = np.full(len(encoded.dictionary) + 1, NO_SCHEMA, np.int32)
    for n, value in enumerate(encoded.dictionary.to_pylist()):
        schema = _named_schema(value)
        if schema is not None:
            known[n] = len(schemas)
            schemas.append(schema)
    indices = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    places = np.full(rows, NO_SCHEMA, np.int32)
    places[parents] = known[indices]  # the last header of a record counts, as in Kafka
    return schemas, places


def _named_schema(value: Any) -> tuple[Schema, bytes] | None:
    if not isinstance(value, bytes) or not value:
        return None
    if value[0] == _GUID_MAGIC and len(value) >= _GUID_BYTES:
        return str(UUID(bytes=value[1:_GUID_BYTES])), value[_GUID_BYTES:]
    if value[0] == _ID_MAGIC and len(value) >= PREFIX_BYTES:
        return int.from_bytes(value[1:PREFIX_BYTES], "big"), value[PREFIX_BYTES:]
    return None


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes in front of a Protobuf payload, and their length in bytes.

    A zero alone stands for the first message.

    Raises:
        ValueError: the bytes end too early, or there are too many indexes.
    """
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise ValueError("too many message indexes")
    found = []
    for _ in range(count):
        one, at = _zigzag(data, at)
        found.append(one)
    return tuple(found), at


def encoded_indexes(path: Sequence[int]) -> bytes:
    """Return the indexes of a Protobuf message as they stand in front of its payload."""
    if tuple(path) == (0,):
        return b"\0"
    found = bytearray()
    for number in (len(path), *path):
        rest = number << 1  # zig-zag of a number that is not negative
        while rest >= 0x80:
            found.append(rest & 0x7F | 0x80)
            rest >>= 7
        found.append(rest)
    return bytes(found)


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("message indexes are cut off")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
