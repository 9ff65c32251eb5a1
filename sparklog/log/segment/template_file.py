"""Arrow IPC files of one plain record batch, made from a template that Arrow wrote once.

Arrow takes half a millisecond to write a file of a few small columns, because it sets up a writer
and a footer each time. A broker writes such files hundreds of times a second. Files of one schema
differ only in their buffers, in the positions of the buffers, and in the text of the footer. So
Arrow writes one file, once, and this module replaces the numbers and texts in it. The bytes are the
same as Arrow's.

Plain: no nulls, no compression, at least one row, columns of a fixed width or of text or binary.
Source: Arrow columnar format, "IPC File Format"; format/Message.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from crc32c import crc32c

from sparklog.log.segment.arrow_ipc import BatchTemplate, buffer_count, padding_after
from sparklog.log.segment.file import END_OF_STREAM, MAGIC, StoredBatch, footer_of, write_stream

FOOTERS_KEPT_MAX = 64
"""Templates of footers differ in the lengths of their texts: in the digits of a few numbers."""
_NUMBER = struct.Struct("<q")
_LENGTH = struct.Struct("<i")

Pieces = Sequence[bytes]
"""A buffer, in one piece or several that follow each other: large ones are joined only once."""


@dataclass(frozen=True, slots=True)
class PlainBody:
    """Everything of a file before its end-of-stream mark."""

    parts: tuple[bytes, ...]
    batch_length: int
    """Of the record batch's buffers with their padding."""
    size: int
    crc: int


class PlainFile:
    """Writes the files of one schema. Thread-safe."""

    def __init__(self, schema: pa.Schema, row: Mapping[str, object]) -> None:
        """Learn from a file of one row; any values that are not empty will do."""
        columns = [pa.array([row[field.name]], field.type) for field in schema]
        sample = write_stream(schema, [pa.RecordBatch.from_arrays(columns, schema=schema)], "none")
        data = sample.data.to_pybytes()
        (batch,) = sample.batches
        self._schema = schema
        self._batch: StoredBatch = batch
        self._head = data[: sample.head.length]
        self._message = BatchTemplate(data[batch.position : batch.position + batch.meta.length])
        self._counts = tuple(buffer_count(field.type) for field in schema)
        assert self._message.arrays == len(self._counts), (self._message.arrays, self._counts)
        assert self._message.buffers == sum(self._counts), (self._message.buffers, self._counts)
        self._footers: dict[tuple[tuple[str, int], ...], _Footer] = {}

    def body(self, rows: int, columns: Sequence[Sequence[Pieces]]) -> PlainBody:
        """Return a file without its end.

        Args:
            rows: how many; one at least.
            columns: of each the buffers as Arrow has them in memory, without the one for nulls.
        """
        assert rows > 0, "a file without rows is written by Arrow"
        parts, spans, at = [self._head, b""], list[int](), 0
        for count, buffers in zip(self._counts, columns, strict=True):
            assert len(buffers) == count - 1, (len(buffers), count)
            spans += (at, 0)
            for pieces in buffers:
                length = sum(map(len, pieces))
                spans += (at, length)
                padding = padding_after(length)
                at += length + len(padding)
                parts += (*pieces, padding)
        parts[1] = self._message.filled(rows, (rows, 0) * len(self._counts), spans, at)
        crc = 0
        for part in parts:
            crc = crc32c(part, crc)
        return PlainBody(tuple(parts), at, len(self._head) + self._message.size_bytes + at, crc)

    def finish(self, body: PlainBody, metadata: Mapping[str, str]) -> bytes:
        """Return the whole file; its footer carries `metadata`, which is ASCII."""
        shape = tuple(zip(metadata, map(len, metadata.values()), strict=True))
        footer = self._footers.get(shape)
        if footer is None:
            if len(self._footers) >= FOOTERS_KEPT_MAX:
                self._footers.clear()
            footer = self._footers[shape] = _Footer(self._schema, self._batch, shape)
        end = footer.filled(metadata, body.batch_length)
        return b"".join((*body.parts, END_OF_STREAM, end, _LENGTH.pack(len(end)), MAGIC))


class _Footer:
    """Arrow's footer for texts of given lengths, and where these and the batch's length are."""

    def __init__(
        self, schema: pa.Schema, batch: StoredBatch, shape: Sequence[tuple[str, int]]
    ) -> None:
        marks = {key: chr(0x7F - i) * length for i, (key, length) in enumerate(shape)}
        self._bytes = footer_of(schema, [batch], marks)
        self._places = []
        for key, mark in marks.items():
            # A text has its length before it and a zero after it.
            text = _LENGTH.pack(len(mark)) + mark.encode() + b"\0"
            assert self._bytes.count(text) == 1, f"no single place for {key!r} in the footer"
            at = self._bytes.index(text) + _LENGTH.size
            self._places.append((key, at, at + len(mark)))

    def filled(self, metadata: Mapping[str, str], batch_length: int) -> bytes:
        footer = bytearray(self._bytes)
        for key, start, end in self._places:
            footer[start:end] = metadata[key].encode("ascii")
        assert len(footer) == len(self._bytes), "a text is not as long as it was said to be"
        _NUMBER.pack_into(footer, len(footer) - _NUMBER.size, batch_length)
        return bytes(footer)
