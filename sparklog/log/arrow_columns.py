"""Columns of a stored record batch, made from the bytes of these columns alone.

Arrow's own reader wants the whole message in one piece, so that each byte would be copied there
first. Here buffers that are not compressed stay where they are, and the rest is decompressed from
there. Source: Arrow columnar format, "Recursive flattening" and "Buffer compression".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import pyarrow as pa

from sparklog.log.arrow_message import (
    UNCOMPRESSED_LENGTH,
    batch_message,
    buffer_count,
    node_count,
)

BytesOf = Callable[[int, int], memoryview]
"""Returns the bytes at (position in the body, length), of wanted columns only."""

_CODECS = {0: "lz4", 1: "zstd"}


def read_columns(
    meta: memoryview, bytes_of: BytesOf, schema: pa.Schema, wanted: Sequence[str]
) -> pa.RecordBatch:
    """Return the columns `wanted`, in the order of `schema`.

    Args:
        meta: the message's prefix and metadata, which have passed their checksum.
        bytes_of: the body's bytes, as they are stored.
        schema: of the file.
        wanted: some of its columns.

    Raises:
        ValueError, OSError, pa.ArrowException: this is no record batch of that schema.
    """
    message = batch_message(meta, 0)
    if message.codec is not None and message.codec not in _CODECS:
        raise ValueError(f"no codec of Arrow's. codec={message.codec}")
    codec = None if message.codec is None else pa.Codec(_CODECS[message.codec])
    expected = sum(node_count(f.type) for f in schema), sum(buffer_count(f.type) for f in schema)
    if (len(message.nodes), len(message.buffers)) != expected:
        raise ValueError(f"another schema's record batch. arrays={len(message.nodes)}")
    nodes, places = iter(message.nodes), iter(message.buffers)
    arrays = []
    for field in schema:
        mine = list(islice(nodes, node_count(field.type)))
        stored = list(islice(places, buffer_count(field.type)))
        if field.name in wanted:
            buffers = (_plain(bytes_of(*place), codec) for place in stored)
            array = _array(field.type, iter(mine), buffers)
            array.validate()
            arrays.append(array)
    fields = [field for field in schema if field.name in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(
    kind: pa.DataType, nodes: Iterator[tuple[int, int]], buffers: Iterator[pa.Buffer]
) -> pa.Array:
    length, nulls = next(nodes)
    validity = next(buffers)
    own = [validity if nulls else None]
    children = []
    if pa.types.is_struct(kind):
        children = [_array(field.type, nodes, buffers) for field in kind]
    elif pa.types.is_list(kind):
        own.append(next(buffers))
        children = [_array(kind.value_type, nodes, buffers)]
    else:
        own += [next(buffers) for _ in range(buffer_count(kind) - 1)]
    return pa.Array.from_buffers(kind, length, own, nulls, children=children or None)


def _plain(stored: memoryview, codec: pa.Codec | None) -> pa.Buffer:
    if codec is None or not stored:
        return pa.py_buffer(stored)
    size = int.from_bytes(stored[: UNCOMPRESSED_LENGTH.size], "little", signed=True)
    data = stored[UNCOMPRESSED_LENGTH.size :]
    return pa.py_buffer(data) if size == -1 else codec.decompress(data, size, asbytes=False)
