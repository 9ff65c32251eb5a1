"""Arrow IPC files assembled from a stream and a footer that carries sparklog's metadata.

pyarrow fixes a file's footer metadata when it opens the file, before the batches are known. But a
file consists only of `ARROW1`, an IPC stream and a footer. So this module writes the stream first.
It then takes Arrow's own footer of an empty file with that schema, and fills in the list of blocks.
The result is an ordinary Arrow file.

`BatchWriter` compresses a buffer only if that makes it smaller. Arrow's writer compresses every
buffer, and keeps a result that is larger than the original, too. Here such a buffer is stored raw,
with -1 for its uncompressed length: a reader uses it in place. The writer samples a large buffer
first, so random or encrypted data costs only a copy.

SEGMENT-FILE-1: Arrays and buffers are those that Arrow writes, except that no buffer is padded.
SEGMENT-FILE-2: A stored buffer has at most eight bytes more than the original.
SEGMENT-FILE-3: If a buffer is stored raw without a try at compression, no sample of it became
    smaller.

This module does not know records or offsets. Sizes and positions are bytes from the file's start.
Source: Arrow columnar format, "IPC File Format"; format/File.fbs and Message.fbs.

Sizes are bytes. Source: Arrow columnar format, "Encapsulated message format", "Buffer compression".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log.segment.arrow_ipc import (
    UNCOMPRESSED_LENGTH,
    BatchTemplate,
    batch_message,
    buffer_count,
    field_position,
    message_length,
    node_count,
    padding_after,
)
from sparklog.store.base import Data

LZ4_WINDOW_BYTES: Final = 64 << 10
"""Distance of LZ4's matches: a repetition farther away makes nothing smaller."""
SAMPLED_BYTES_MIN: Final = 4 * LZ4_WINDOW_BYTES
"""Smaller buffers are compressed without sampling."""
SPOT_BYTES: Final = 2 << 10
"""Bytes sampled of each window, so that no run as long as a window is skipped. LZ4 takes long steps
after noise, so with half as many bytes it may miss repetitions."""
SAMPLE_BYTES: Final = 2 * LZ4_WINDOW_BYTES
"""Long enough to show repetitions within the window."""
SAMPLED_TOGETHER_BYTES: Final = 1 << 20
"""Each piece of this size has one stretch, and all its spots: LZ4's steps grow with noise."""

_NOT_COMPRESSED: Final = UNCOMPRESSED_LENGTH.pack(-1)


class _Laid(NamedTuple):
    """A column as Arrow IPC lists it."""

    nodes: Sequence[tuple[int, int]]
    """Length and number of nulls of each array."""
    buffers: Sequence[pa.Buffer | None]
    """None: empty."""


class BatchWriter:
    """Writes the record batches of one file, compressed. Not thread-safe."""

    def __init__(self, message: bytes, codec: pa.Codec) -> None:
        """Learn from the message (see `BatchTemplate`) of a batch that Arrow has compressed."""
        self._message = BatchTemplate(message)
        self._codec = codec
        self._shrank = set[int]()
        """Buffers that became smaller in the last batch: the next batch does not sample them."""

    def write(self, sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
        """Write one batch of the schema: its message, then its body."""
        laid = [_laid_out(column) for column in batch.columns]
        parts: list[pa.Buffer | bytes] = []
        spans: list[int] = []
        at = 0
        for index, buffer in enumerate(buffer for column in laid for buffer in column.buffers):
            if buffer is None or not buffer.size:
                spans += (at, 0)
                continue
            prefix, content = _NOT_COMPRESSED, buffer
            packed = packed_smaller(buffer, self._codec, sampled=index not in self._shrank)
            self._shrank.discard(index)
            if packed is not None:
                self._shrank.add(index)
                prefix, content = UNCOMPRESSED_LENGTH.pack(buffer.size), packed
            length = len(prefix) + content.size
            padding = padding_after(length)
            parts += (prefix, content, padding)
            spans += (at, length)
            at += length + len(padding)
        nodes = [number for column in laid for node in column.nodes for number in node]
        sink.write(self._message.filled(batch.num_rows, nodes, spans, at))
        for part in parts:
            sink.write(part)


def packed_smaller(data: pa.Buffer, codec: pa.Codec, *, sampled: bool = True) -> pa.Buffer | None:
    """Return `data` compressed, or None if it is not smaller or samples say so."""
    is_sampled = sampled and codec.name == "lz4" and data.size >= SAMPLED_BYTES_MIN
    if is_sampled and not _shrinks(data, codec):
        return None
    packed = codec.compress(data, asbytes=False)
    return packed if packed.size < data.size else None


def _shrinks(data: pa.Buffer, codec: pa.Codec) -> bool:
    """Return True if any sample of `data` becomes smaller.

    For LZ4 only: ZSTD finds distant repetitions, and its purpose is a small result.
    """
    for start in range(0, data.size, SAMPLED_TOGETHER_BYTES):
        part = data.slice(start, min(SAMPLED_TOGETHER_BYTES, data.size - start))
        view = memoryview(part)
        spots = range(0, part.size, LZ4_WINDOW_BYTES)
        samples = [
            pa.py_buffer(b"".join(view[at : at + SPOT_BYTES] for at in spots)),
            part.slice(max(0, part.size - SAMPLE_BYTES) // 2, min(part.size, SAMPLE_BYTES)),
        ]
        if any(codec.compress(sample, asbytes=False).size < sample.size for sample in samples):
            return True
    return False


def _laid_out(array: pa.Array) -> _Laid:
    """Return the arrays and buffers of a column, starting where it starts."""
    rows, first, nulls = len(array), array.offset, array.null_count
    kind = array.type
    is_bytes = pa.types.is_binary(kind) or pa.types.is_string(kind)
    is_wide = pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
    if not rows:
        return _Laid([(0, 0)] * node_count(kind), [None] * buffer_count(kind))
    if not (is_bytes or is_wide) or (nulls and first % 8):
        return _by_arrow(array)
    valid, *others = array.buffers()
    bits = _validity(valid, first, rows) if nulls else None
    if is_wide:
        width = kind.bit_width // 8
        return _Laid([(rows, nulls)], [bits, others[0].slice(first * width, rows * width)])
    ends = np.frombuffer(others[0], np.int32, rows + 1, first * 4)
    start, end = int(ends[0]), int(ends[-1])
    if start:
        ends = ends - start
    data = others[1].slice(start, end - start) if end > start else None
    return _Laid([(rows, nulls)], [bits, pa.py_buffer(ends), data])


def _validity(valid: pa.Buffer, first: int, rows: int) -> pa.Buffer:
    """Return the bits of `rows` rows from `first`, a multiple of 8, without those of later rows."""
    bits = valid.slice(first // 8, (rows + 7) // 8)
    spare = -rows % 8
    if not spare:
        return bits
    own = bytearray(memoryview(bits))
    own[-1] &= 0xFF >> spare
    return pa.py_buffer(bytes(own))


def _by_arrow(array: pa.Array) -> _Laid:
    """Have Arrow lay out a column that has rows: a nested one, or bits that begin amid a byte."""
    message = pa.RecordBatch.from_arrays([array], ["column"]).serialize()
    found = batch_message(memoryview(message), 0)
    buffers = [message.slice(found.body + at, size) for at, size in found.buffers]
    return _Laid(found.nodes, buffers)


MAGIC = b"ARROW1"
STREAM_START = 8
"""File position of the IPC stream: it follows the magic, padded to eight bytes."""
MESSAGE_SPARE_BYTES = 8192
"""Most bytes of the schema, or of a batch's metadata and padding: a few hundred a column."""
BEGINNINGS_KEPT_MAX = 64
"""Schemas, each with a codec, whose streams' beginnings are kept: Arrow takes 0.1 ms for one."""
END_SHARE = 16
"""The buffer has a spare part of 1/END_SHARE of the content for the file's end. Spare pages that
are not written take no memory."""
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
    """Position of one record batch: its message metadata, its body, each column in the body."""

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
    target: pa.Buffer
    """The memory that `data` is the beginning of: the file's end may be written behind it."""
    extra: bytes = b""
    """Bytes between the end mark and the footer, which Arrow's readers ignore."""

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
    target = pa.allocate_buffer(
        content_bytes + content_bytes // END_SHARE + MESSAGE_SPARE_BYTES * (len(batches) + 1)
    )
    sink = pa.FixedSizeBufferWriter(target)
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
    data = target.slice(0, size)
    view = memoryview(data)
    head_end = STREAM_START + message_length(view, STREAM_START)
    head = Span(0, head_end, crc32c(view[:head_end]))
    stored = []
    at = head_end
    for _ in batches:
        batch, at = _index_batch(view, at, schema)
        stored.append(batch)
    return StreamPart(data, schema, head, tuple(stored), target)


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
    """Return the same file as `finish_file`, in the memory of the stream if its end fits there.

    Call it once only for a part: a second end would change the first file. Brokers use it because a
    copy of tens of megabytes would hold the interpreter lock for as many milliseconds.
    """
    end = _end(part, metadata)
    start, size = part.data.size, part.data.size + len(end)
    if size > part.target.size:
        return b"".join((part.data, end))
    file = memoryview(part.target).cast("B")[:size]
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
