"""Record batches written as Arrow IPC has them compressed, each buffer only if that pays.

Arrow's writer compresses every buffer, and keeps the result where it is larger, too. Here a buffer
that does not become smaller is stored raw, with -1 for its uncompressed length: a reader takes it
as it lies. A large one is sampled before, so that letters drawn at random, or what producers have
encrypted, cost a copy and no more.

  C1  arrays and buffers are those that Arrow writes, but that none is padded
  C2  a buffer is never stored in more bytes than it has and eight
  C3  no sample became smaller of a buffer that is stored raw without having been compressed

Sizes are bytes. Source: Arrow columnar format, "Encapsulated message format", "Buffer compression".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.log.arrow_message import (
    UNCOMPRESSED_LENGTH,
    BatchTemplate,
    batch_message,
    buffer_count,
    node_count,
    padding_after,
)

LZ4_WINDOW_BYTES: Final = 64 << 10
"""How far back LZ4 sees: what repeats only farther away it does not make smaller."""
SAMPLED_BYTES_MIN: Final = 4 * LZ4_WINDOW_BYTES
"""Smaller buffers are compressed to see."""
SPOT_BYTES: Final = 2 << 10
"""Of each window's worth, so that a stretch as long as that is not passed over. In half of it LZ4,
which takes long steps after noise, may miss what repeats."""
STRETCH_BYTES: Final = 2 * LZ4_WINDOW_BYTES
"""Long enough to show what repeats within the window."""
SAMPLED_TOGETHER_BYTES: Final = 1 << 20
"""Has one such stretch, and its spots in one piece: the more noise, the longer are LZ4's steps."""

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
        """Which buffers became smaller in the last batch: these are not sampled in the next."""

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
    """Tell whether any sample of `data` becomes smaller.

    Only of LZ4: ZSTD finds what repeats far away, and is there to make things small.
    """
    for start in range(0, data.size, SAMPLED_TOGETHER_BYTES):
        part = data.slice(start, min(SAMPLED_TOGETHER_BYTES, data.size - start))
        view = memoryview(part)
        spots = range(0, part.size, LZ4_WINDOW_BYTES)
        samples = [
            pa.py_buffer(b"".join(view[at : at + SPOT_BYTES] for at in spots)),
            part.slice(max(0, part.size - STRETCH_BYTES) // 2, min(part.size, STRETCH_BYTES)),
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
    bits = valid.slice(first // 8, (rows + 7) // 8) if nulls else None
    if is_wide:
        width = kind.bit_width // 8
        return _Laid([(rows, nulls)], [bits, others[0].slice(first * width, rows * width)])
    ends = np.frombuffer(others[0], np.int32, rows + 1, first * 4)
    start, end = int(ends[0]), int(ends[-1])
    if start:
        ends = ends - start
    data = others[1].slice(start, end - start) if end > start else None
    return _Laid([(rows, nulls)], [bits, pa.py_buffer(ends), data])


def _by_arrow(array: pa.Array) -> _Laid:
    """Have Arrow lay out a column that has rows: a nested one, or bits that begin amid a byte."""
    message = pa.RecordBatch.from_arrays([array], ["column"]).serialize()
    found = batch_message(memoryview(message), 0)
    buffers = [message.slice(found.body + at, size) for at, size in found.buffers]
    return _Laid(found.nodes, buffers)
