"""Objects whose checksums are right, and whose Arrow arrays contradict themselves."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from crc32c import crc32c

from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import MANIFEST_KEY
from sparklog.log.schema import COLUMN_TYPES
from sparklog.log.segment.arrow_ipc import PAIR, BatchMessage, batch_message
from sparklog.log.segment.file import (
    Span,
    StreamPart,
    finish_file,
    footer_metadata,
    footer_start,
    write_stream,
)
from sparklog.log.segment.footer import CRC_KEY, from_metadata, to_metadata
from sparklog.log.segment.segment import BatchIndex, Segment
from sparklog.store.memory import MemoryStore

Change = Callable[[bytearray, BatchMessage], None]
"""Changes a file in place; its first record batch lies where the message says."""


@dataclass(frozen=True, slots=True)
class Craft:
    """A change of an uncompressed segment, and the reason that its readers must give."""

    name: str
    change: Change
    reason: str
    """A regular expression."""


def numbers(buffer: int, at: int, *items: int, kind: str = "i") -> Change:
    """Return the change that writes items of a type of `struct` into a buffer, from `at` on."""

    def written(file: bytearray, message: BatchMessage) -> None:
        position, length = message.buffers[buffer]
        size = struct.calcsize(f"<{kind}")
        assert (at + len(items)) * size <= length, "the items are within their buffer"
        start = message.body + position + at * size
        struct.pack_into(f"<{len(items)}{kind}", file, start, *items)

    return written


def node(array: int, length: int, nulls: int) -> Change:
    """Return the change that gives an array another length and number of nulls."""

    def written(file: bytearray, message: BatchMessage) -> None:
        PAIR.pack_into(file, message.nodes_at + array * PAIR.size, length, nulls)

    return written


def craft(store: MemoryStore, layout: PartitionLayout, name: str, change: Change) -> str:
    """Change the first record batch of an object, with checksums that fit; return its key."""
    key = layout.key(name)
    data = store.get(key)
    end = footer_start(data, len(data), key)
    segment = from_metadata(footer_metadata(data[end:], key), layout, key)
    first = segment.batches[0]
    file = bytearray(data)
    message = batch_message(memoryview(data), first.stored.position)
    change(file, message)
    batches = (_checksummed(first, file), *segment.batches[1:])
    last = batches[-1].stored
    stop = last.position + last.meta.length + last.body_length
    store.put(key, _file(replace(segment, batches=batches), pa.py_buffer(bytes(file[:stop]))))
    return key


def crafted_manifest(data: bytes, change: Change) -> bytes:
    """Return a manifest's file with its record batch uncompressed and changed."""
    with pa.ipc.open_file(pa.py_buffer(data)) as file:
        rows, metadata = file.get_batch(0), file.metadata
    part = write_stream(rows.schema, [rows], "none")
    plain = bytearray(part.data)
    change(plain, batch_message(memoryview(part.data), part.batches[0].position))
    document = json.loads(metadata[MANIFEST_KEY.encode()])
    text = json.dumps(document | {"body": [len(plain), crc32c(bytes(plain))]})
    part = replace(part, data=pa.py_buffer(bytes(plain)))
    return finish_file(part, {MANIFEST_KEY: text, CRC_KEY: str(crc32c(text.encode()))})


def _checksummed(batch: BatchIndex, file: bytearray) -> BatchIndex:
    stored = batch.stored
    body = stored.position + stored.meta.length

    def again(span: Span, start: int) -> Span:
        return replace(span, crc=crc32c(bytes(file[start : start + span.length])))

    columns = tuple(again(span, body + span.start) for span in stored.columns)
    meta = again(stored.meta, stored.meta.start)
    return replace(batch, stored=replace(stored, meta=meta, columns=columns))


def _file(segment: Segment, data: pa.Buffer) -> bytes:
    schema = pa.schema([pa.field(n, COLUMN_TYPES[n]) for n in segment.column_names])
    stored = tuple(batch.stored for batch in segment.batches)
    part = StreamPart(data, schema, Span(0, *segment.head), stored, data)
    return finish_file(part, to_metadata(segment))
