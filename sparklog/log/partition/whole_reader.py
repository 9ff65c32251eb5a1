"""Reads small objects whole, for logs such as the metadata log. Pure protocols.

One request has the footer and the records of an object. Readers of much data read ranges instead
(`segment_reader`, `column_reader`). Offsets: base inclusive, end exclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Program, Range, get_many
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment import column_reader
from sparklog.log.segment.file import footer_metadata, footer_start
from sparklog.log.segment.footer import from_metadata

OBJECTS_READ_AT_ONCE: Final = 64


def read_whole(
    view: PartitionView, base_offset: int, end_offset: int, columns: Sequence[str]
) -> Program[list[pa.RecordBatch]]:
    """Return the records of [base_offset, end_offset), in order. One request per object.

    Raises:
        DataCorrupt: an object is missing or damaged.
    """
    entries = view.covering(base_offset, end_offset)
    found: list[pa.RecordBatch] = []
    for at in range(0, len(entries), OBJECTS_READ_AT_ONCE):
        some = entries[at : at + OBJECTS_READ_AT_ONCE]
        wanted = tuple(Range(view.layout.key(e.object)) for e in some)
        objects = yield from get_many(wanted)
        for entry, data in zip(some, objects, strict=True):
            found += _records(view, entry, data, base_offset, end_offset, columns)
    return found


def _records(
    view: PartitionView,
    entry: Entry,
    data: bytes | None,
    base_offset: int,
    end_offset: int,
    columns: Sequence[str],
) -> list[pa.RecordBatch]:
    key = view.layout.key(entry.object)
    if data is None:
        raise DataCorrupt(f"object is missing though the log names it; run verify. object={key}")
    footer = data[footer_start(data, len(data), key) :]
    segment = from_metadata(footer_metadata(footer, key), view.layout, key)
    low, high = max(base_offset, entry.base_offset), min(end_offset, entry.end_offset)
    pieces = column_reader.pieces(key, segment, entry.base_offset, low, high, columns)
    return [batch for p in pieces for batch in column_reader.decode(p, [(0, data)], columns)]
