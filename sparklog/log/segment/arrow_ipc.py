"""Record batches as Arrow IPC encodes them: positions of buffers, and reads of single columns.

In a compressed batch each buffer has its uncompressed length before it, or -1 if it is stored raw.
Positions count from the start of the given view.

Arrow's own reader needs the whole message in one piece, so it would copy each byte there first.
`read_columns` leaves uncompressed buffers in place and decompresses the others directly from there.

ARROW-IPC-1: No offset, length or bitmap of a column that `read_columns` returns leads outside its
    buffers, even if the object was crafted. So compiled code may trust them.

Source: Arrow columnar format, "Encapsulated message format", "Recursive flattening" and "Buffer
compression"; format/Message.fbs (RecordBatch, BodyCompression).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

_BATCH_ROWS_FIELD = 0
_MESSAGE_HEADER_FIELD = 2
_MESSAGE_BODY_FIELD = 3
_BATCH_NODES_FIELD = 1
_BATCH_BUFFERS_FIELD = 2
_BATCH_COMPRESSION_FIELD = 3
PAIR = struct.Struct("<qq")
"""A buffer: its position in the body and its length. An array: its length and its nulls."""
UNCOMPRESSED_LENGTH = struct.Struct("<q")
BUFFER_BYTES_MAX = (1 << 31) + (64 << 10)
"""Offsets within a column have 32 bits, so no buffer is longer than they reach and its padding."""
_CONTINUATION = 0xFFFFFFFF
ALIGNMENT = 8
"""Of a body, and of the buffers in it."""
_PADDING = tuple(bytes(n) for n in range(ALIGNMENT))
_NUMBER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """Positions of the parts of one record batch."""

    start: int
    meta_length: int
    """Of the message's prefix and metadata; the body follows."""
    body_length: int
    body_length_at: int
    """Position of that number in the metadata."""
    batch_at: int
    """Position of the record batch's table in the metadata."""
    buffers_at: int
    """Position of the table's list of buffers."""
    buffers: tuple[tuple[int, int], ...]
    """Position in the body and length of each."""
    nodes_at: int
    nodes: tuple[tuple[int, int], ...]
    """Length and number of nulls of each array."""
    codec: int | None
    """Of the body: 0 LZ4 frames, 1 ZSTD; None: not compressed."""

    @property
    def body(self) -> int:
        """Return where the body starts."""
        return self.start + self.meta_length


def batch_message(view: memoryview, start: int) -> BatchMessage:
    """Look into the message of a record batch at `start`.

    Raises:
        ValueError: there is none.
    """
    try:
        meta_length = message_length(view, start)
        table = start + 8
        root = table + _u32(view, table)
        header = field_position(view, root, _MESSAGE_HEADER_FIELD)
        batch = header + _u32(view, header)
        body_at = field_position(view, root, _MESSAGE_BODY_FIELD)
        (body_length,) = UNCOMPRESSED_LENGTH.unpack_from(view, body_at)
        buffers_at, nodes_at = (
            at + _u32(view, at)
            for at in (
                field_position(view, batch, _BATCH_BUFFERS_FIELD),
                field_position(view, batch, _BATCH_NODES_FIELD),
            )
        )
        return BatchMessage(
            start=start,
            meta_length=meta_length,
            body_length=body_length,
            body_length_at=body_at,
            batch_at=batch,
            buffers_at=buffers_at + 4,
            buffers=_pairs(view, buffers_at),
            nodes_at=nodes_at + 4,
            nodes=_pairs(view, nodes_at),
            codec=_codec(view, batch),
        )
    except struct.error as error:
        raise ValueError(f"no record batch's message: {error}") from error


class BatchTemplate:
    """A record batch's message without its body, in which the numbers can be replaced.

    Batches of one schema and one codec differ in nothing else.
    """

    def __init__(self, message: bytes) -> None:
        """Find the numbers in one that Arrow wrote, of one row at least: it leaves out a zero.

        Raises:
            ValueError: it is none.
        """
        found = batch_message(memoryview(message), 0)
        self.arrays = len(found.nodes)
        self.buffers = len(found.buffers)
        self.size_bytes = len(message)
        self._message = message
        self._rows_at = field_position(message, found.batch_at, _BATCH_ROWS_FIELD)
        self._body_at = found.body_length_at
        self._nodes_at, self._buffers_at = found.nodes_at, found.buffers_at
        self._nodes = struct.Struct(f"<{2 * self.arrays}q")
        self._buffers = struct.Struct(f"<{2 * self.buffers}q")

    def filled(
        self, rows: int, nodes: Sequence[int], buffers: Sequence[int], body_length: int
    ) -> bytes:
        """Return the message of another batch.

        Args:
            `rows`: number of rows.
            `nodes`: length and number of nulls of each array, one after the other.
            `buffers`: position in the body and length of each buffer, one after the other.
            `body_length`: bytes of the body.
        """
        message = bytearray(self._message)
        _NUMBER.pack_into(message, self._rows_at, rows)
        _NUMBER.pack_into(message, self._body_at, body_length)
        self._nodes.pack_into(message, self._nodes_at, *nodes)
        self._buffers.pack_into(message, self._buffers_at, *buffers)
        return bytes(message)


def padding_after(length: int) -> bytes:
    """Return what follows a buffer of this length in a body."""
    return _PADDING[-length % ALIGNMENT]


def _pairs(view: memoryview, position: int) -> tuple[tuple[int, int], ...]:
    """Return a vector of structs of two 64-bit numbers."""
    count, start = _u32(view, position), position + 4
    return tuple(PAIR.iter_unpack(view[start : start + count * PAIR.size]))


def _codec(view: memoryview, batch: int) -> int | None:
    offset = _field_offset(view, batch, _BATCH_COMPRESSION_FIELD)
    if not offset:
        return None
    compression = batch + offset + _u32(view, batch + offset)
    codec = _field_offset(view, compression, 0)
    return int(struct.unpack_from("<B", view, compression + codec)[0]) if codec else 0


def _u32(view: memoryview | bytes, position: int) -> int:
    return int(struct.unpack_from("<I", view, position)[0])


def message_length(view: memoryview | bytes, position: int) -> int:
    """Return the length of a message's prefix and metadata (not its body).

    Raises:
        ValueError: no message begins there.
    """
    mark, length = struct.unpack_from("<Ii", view, position)
    if mark != _CONTINUATION:
        raise ValueError(f"no message begins here. position={position}")
    return 8 + int(length)


def node_count(kind: pa.DataType) -> int:
    """Return how many arrays Arrow IPC lists for a column of this type, itself included."""
    if pa.types.is_struct(kind):
        return 1 + sum(node_count(field.type) for field in kind)
    return 1 + (node_count(kind.value_type) if pa.types.is_list(kind) else 0)


def buffer_count(kind: pa.DataType) -> int:
    """Return how many buffers Arrow IPC writes for a column of this type."""
    if pa.types.is_struct(kind):
        return 1 + sum(buffer_count(field.type) for field in kind)
    if pa.types.is_list(kind):
        return 2 + buffer_count(kind.value_type)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return 3
    return 2


def field_position(table: memoryview | bytes, position: int, index: int) -> int:
    """Return the position of a flatbuffer table's field.

    Raises:
        ValueError: the table leaves it out.
    """
    offset = _field_offset(table, position, index)
    if not offset:
        raise ValueError(f"a field of Arrow's metadata is missing. field={index}")
    return position + offset


def _field_offset(table: memoryview | bytes, position: int, index: int) -> int:
    """Return where a table's field lies from its start, or 0 if it is left out."""
    vtable = position - struct.unpack_from("<i", table, position)[0]
    size, _ = struct.unpack_from("<HH", table, vtable)
    entry = 4 + 2 * index
    return int(struct.unpack_from("<H", table, vtable + entry)[0]) if entry < size else 0


BytesOf = Callable[[int, int], memoryview]
"""Returns the bytes at (position in the body, length), of wanted columns only."""

_CODECS = {0: "lz4", 1: "zstd"}
_EXPANSION_MAX = {"lz4": 256, "zstd": 1 << 16}
"""Plain bytes per stored byte, at most. LZ4: a length's byte counts 255. ZSTD: 128 KiB in 4 bytes,
in the longest blocks of one repeated byte. Sources: LZ4 block format; RFC 8878, 3.1.1.2."""


def read_columns(
    meta: memoryview, bytes_of: BytesOf, schema: pa.Schema, wanted: Sequence[str]
) -> pa.RecordBatch:
    """Return the columns `wanted`, in the order of `schema`.

    Args:
        `meta`: the message's prefix and metadata; the caller has verified their checksum.
        `bytes_of`: returns bytes of the body as stored.
        `schema`: of the file.
        `wanted`: names of the columns to return.

    Raises:
        ValueError, OSError, pa.ArrowException: this is no record batch of that schema, or its
            arrays claim what their buffers do not hold.
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
            array = _array(_of_bytes(field.type), iter(mine), buffers)
            array.validate(full=True)
            arrays.append(array.view(field.type))
    fields = [field for field in schema if field.name in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _of_bytes(kind: pa.DataType) -> pa.DataType:
    """Return a type with binary for each string, as text need not be UTF-8 to be read."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_of_bytes(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_of_bytes(kind.value_type)))
    return pa.binary() if pa.types.is_string(kind) else kind


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
    """Return a buffer's plain bytes.

    Raises:
        ValueError: the length before it is negative, more than a buffer may have, or more than
            the codec can make of so few bytes.
    """
    if codec is None or not stored:
        return pa.py_buffer(stored)
    if len(stored) < UNCOMPRESSED_LENGTH.size:
        raise ValueError(f"a compressed buffer has no length before it. bytes={len(stored)}")
    size = int.from_bytes(stored[: UNCOMPRESSED_LENGTH.size], "little", signed=True)
    data = stored[UNCOMPRESSED_LENGTH.size :]
    if size == -1:
        return pa.py_buffer(data)
    limit = min(BUFFER_BYTES_MAX, len(data) * _EXPANSION_MAX[codec.name])
    if not 0 <= size <= limit:
        raise ValueError(f"a buffer's length is out of range. bytes={size} max={limit}")
    return codec.decompress(data, size, asbytes=False)
