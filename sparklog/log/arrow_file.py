"""Arrow IPC files put together from parts, with our metadata in their footer.

pyarrow writes a file's footer metadata only when the file is opened, before anything is known about
its batches. A file, however, is nothing but `ARROW1`, an IPC stream and a footer; so the stream is
written first (see `compressed_batch`), and the footer is Arrow's own footer of an empty file of
that schema, with the list of blocks filled in. The result is an ordinary Arrow file.

Knows nothing of records or offsets. Sizes and positions are bytes from the file's start.
Source: Arrow columnar format, "IPC File Format"; format/File.fbs and Message.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log.arrow_message import (
    batch_message,
    buffer_count,
    field_position,
    message_length,
)
from sparklog.log.compressed_batch import BatchWriter
from sparklog.store.base import Data

MAGIC = b"ARROW1"
STREAM_START = 8
"""Where the IPC stream begins: the magic, padded to eight bytes."""
MESSAGE_ROOM_BYTES = 8192
"""What the schema, or a record batch's metadata and padding, take at most beside its buffers: a few
hundred bytes a column."""
BEGINNINGS_KEPT_MAX = 64
"""Schemas, each with a codec, whose streams' beginnings are kept: Arrow takes 0.1 ms for one."""
END_SHARE = 16
"""Content this many times larger than a file's end leaves room for that. Room that is not written
to takes no memory."""
TRAILER_BYTES = 4 + len(MAGIC)
_BLOCK = struct.Struct("<qi4xq")
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FOOTER_BLOCKS_FIELD = 3


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of bytes and its checksum."""

    start: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Where one record batch lies: its message metadata, its body, each column in the body."""

    position: int
    meta: Span
    body_length: int
    columns: tuple[Span, ...]
    """One per column of the schema; `start` counts from the body's start."""


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Everything of a file but its footer."""

    data: pa.Buffer
    """Magic, schema message, record batches. No end mark."""
    schema: pa.Schema
    head: Span
    batches: tuple[StoredBatch, ...]
    room: pa.Buffer
    """The memory that `data` is the beginning of: the file's end may be written behind it."""
    extra: bytes = b""
    """What lies between the end mark and the footer, where no Arrow reader looks."""

    @property
    def extra_start(self) -> int:
        """Return the file position of `extra`."""
        return int(self.data.size) + len(END_OF_STREAM)


def write_stream(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch], codec: str, level: int | None = None
) -> StreamPart:
    """Encode `batches` (compressed with `codec`: none, lz4, zstd) and index their bytes."""
    # A growing sink copies what it holds again and again: half the cost of an uncompressed stream.
    content_bytes = sum(batch.nbytes for batch in batches)
    room = pa.allocate_buffer(
        content_bytes + content_bytes // END_SHARE + MESSAGE_ROOM_BYTES * (len(batches) + 1)
    )
    sink = pa.FixedSizeBufferWriter(room)
    if codec == "none" or not batches:
        _write_messages(sink, schema, batches, pa.ipc.IpcWriteOptions())
        size = sink.tell() - len(END_OF_STREAM)
    else:
        beginning, message = _beginning(schema, codec)
        sink.write(beginning)
        writer = BatchWriter(message, pa.Codec(codec, level if codec == "zstd" else None))
        for batch in batches:
            writer.write(sink, batch)
        size = sink.tell()
    data = room.slice(0, size)
    view = memoryview(data)
    head_end = STREAM_START + message_length(view, STREAM_START)
    head = Span(0, head_end, crc32c(view[:head_end]))
    stored = []
    at = head_end
    for _ in batches:
        batch, at = _index_batch(view, at, schema)
        stored.append(batch)
    return StreamPart(data, schema, head, tuple(stored), room)


def _write_messages(
    sink: pa.NativeFile,
    schema: pa.Schema,
    batches: Sequence[pa.RecordBatch],
    options: pa.ipc.IpcWriteOptions,
) -> None:
    """Have Arrow write the magic and the stream."""
    sink.write(MAGIC.ljust(STREAM_START, b"\0"))
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)


@lru_cache(maxsize=BEGINNINGS_KEPT_MAX)
def _beginning(schema: pa.Schema, codec: str) -> tuple[bytes, bytes]:
    """Return a compressed stream up to its first batch, and the message of a batch of one row."""
    row = pa.RecordBatch.from_arrays([pa.nulls(1, kind) for kind in schema.types], schema=schema)
    sink = pa.BufferOutputStream()
    _write_messages(sink, schema, [row], pa.ipc.IpcWriteOptions(compression=codec))
    data = sink.getvalue().to_pybytes()
    start = STREAM_START + message_length(data, STREAM_START)
    return data[:start], data[start : start + message_length(data, start)]


def finish_file(part: StreamPart, metadata: Mapping[str, str]) -> bytes:
    """Return the whole file: the stream, its end mark, and a footer that carries `metadata`."""
    return b"".join((part.data, _end(part, metadata)))


def finish_in_place(part: StreamPart, metadata: Mapping[str, str]) -> Data:
    """Return what `finish_file` does, in the memory of the stream if its end fits there.

    A part is finished so once at most: a second end would change the first file. For brokers, where
    a copy of tens of megabytes keeps everybody else from the interpreter for as many milliseconds.
    """
    end = _end(part, metadata)
    start, size = part.data.size, part.data.size + len(end)
    if size > part.room.size:
        return b"".join((part.data, end))
    file = memoryview(part.room).cast("B")[:size]
    file[start:] = end
    return file.toreadonly()


def _end(part: StreamPart, metadata: Mapping[str, str]) -> bytes:
    footer = footer_of(part.schema, part.batches, metadata)
    length = struct.pack("<i", len(footer))
    return b"".join((END_OF_STREAM, part.extra, footer, length, MAGIC))


def footer_start(tail: bytes, size_bytes: int, name: str) -> int:
    """Return the file position of the footer, from the file's last bytes.

    Raises:
        DataCorrupt: the file does not end as an Arrow file does; it was cut off or is foreign.
    """
    if len(tail) < TRAILER_BYTES or tail[-len(MAGIC) :] != MAGIC:
        raise DataCorrupt(
            "object does not end as an Arrow file: truncated or foreign; run verify. "
            f"object={name} bytes={size_bytes}"
        )
    (length,) = struct.unpack_from("<i", tail, len(tail) - TRAILER_BYTES)
    start = size_bytes - TRAILER_BYTES - int(length)
    if length <= 0 or start < STREAM_START:
        raise DataCorrupt(
            f"footer length is impossible; run verify. object={name} footer_length={length}"
        )
    return start


def footer_metadata(footer: bytes, name: str) -> dict[str, str]:
    """Return the custom metadata of a footer (its bytes up to and with the trailer).

    Raises:
        DataCorrupt: Arrow cannot read it.
    """
    # A footer without its blocks' bytes is still a file: Arrow reads blocks only when asked.
    blank = MAGIC.ljust(STREAM_START, b"\0") + END_OF_STREAM
    try:
        found = pa.ipc.open_file(pa.py_buffer(blank + footer)).metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataCorrupt(
            f"Arrow cannot read the footer: {error}; run verify. object={name}"
        ) from error
    try:
        return {key.decode(): value.decode() for key, value in (found or {}).items()}
    except UnicodeDecodeError as error:
        raise DataCorrupt(f"footer metadata is not text; run verify. object={name}") from error


def _index_batch(view: memoryview, start: int, schema: pa.Schema) -> tuple[StoredBatch, int]:
    """Return the batch that begins at `start`, and where it ends."""
    message = batch_message(view, start)
    buffers = message.buffers
    end = message.body + message.body_length
    body = view[message.body : end]
    assert len(body) == message.body_length, (len(body), message.body_length)
    columns = []
    at = 0
    for field in schema:
        mine = [span for span in buffers[at : at + buffer_count(field.type)] if span[1]]
        at += buffer_count(field.type)
        low = min((s[0] for s in mine), default=0)
        high = max((s[0] + s[1] for s in mine), default=0)
        columns.append(Span(low, high - low, crc32c(body[low:high])))
    assert at == len(buffers), (at, len(buffers))
    meta = Span(start, message.meta_length, crc32c(view[start : message.body]))
    return StoredBatch(start, meta, message.body_length, tuple(columns)), end


def footer_of(
    schema: pa.Schema, batches: Sequence[StoredBatch], metadata: Mapping[str, str]
) -> bytes:
    """Return Arrow's footer for `schema` and `metadata`, with the blocks of `batches`."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_file(sink, schema, metadata=dict(metadata)).close()
    empty = sink.getvalue().to_pybytes()
    (length,) = struct.unpack_from("<i", empty, len(empty) - TRAILER_BYTES)
    footer = bytearray(empty[-TRAILER_BYTES - length : -TRAILER_BYTES])
    root = struct.unpack_from("<I", footer, 0)[0]
    reference = field_position(bytes(footer), root, _FOOTER_BLOCKS_FIELD)
    # Flatbuffer references point forward, so the new vector goes to the end. Its elements hold
    # 64-bit numbers and must start at a multiple of eight; the count before them takes four bytes.
    footer += b"\0" * ((4 - len(footer)) % 8)
    struct.pack_into("<I", footer, reference, len(footer) - reference)
    footer += struct.pack("<I", len(batches))
    for batch in batches:
        footer += _BLOCK.pack(batch.position, batch.meta.length, batch.body_length)
    return bytes(footer)
