"""Rebuilds a lost segment from a write-ahead log that still has its batches.

A leader assigns each offset once in its epoch, and a segment holds batches of one epoch. So if any
write-ahead log has batches of that epoch for exactly these offsets, they are those of the segment.
The log may be acknowledged, sealed or left behind. Source: WAL.md 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparklog.core.errors import DataCorrupt
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import Program, Range, create, get_many, list_after
from sparklog.log.layout import WALS_PREFIX, PartitionLayout, wal_of_key
from sparklog.log.manifest.manifest import Entry, entries_of
from sparklog.log.tail.to_segment import build_flush
from sparklog.log.wal.objects import decode
from sparklog.protocol.records.header import REFERENCE_BIT, parse_header

OBJECTS_READ_AT_ONCE = 16


def wal_batches(
    layout: PartitionLayout, base_offset: int, end_offset: int, leader_epoch: int
) -> Program[list[bytes]]:
    """Return the batches of one epoch for exactly these offsets, in order; or none.

    It reads every object of every write-ahead log: use it for repairs only.
    """
    keys = [info.key for info in (yield from list_after(WALS_PREFIX, ""))]
    known: dict[int, tuple[int, bytes]] = {}
    for at in range(0, len(keys), OBJECTS_READ_AT_ONCE):
        some = keys[at : at + OBJECTS_READ_AT_ONCE]
        stored = yield from get_many(tuple(Range(key) for key in some))
        for key, data in zip(some, stored, strict=True):
            place = wal_of_key(key)
            if place is None or data is None:
                continue
            try:
                batches = decode(data, *place).batches
            except DataCorrupt:
                continue
            for one in batches:
                if (one.topic_id, one.partition) != (layout.topic_id, layout.partition):
                    continue
                is_there = base_offset <= one.base_offset < end_offset
                if one.leader_epoch == leader_epoch and is_there:
                    header = parse_header(one.data)
                    if not header.attributes & REFERENCE_BIT:
                        known[one.base_offset] = header.end_offset, one.data
    return _joined(known, base_offset, end_offset)


def _joined(known: dict[int, tuple[int, bytes]], base_offset: int, end_offset: int) -> list[bytes]:
    found: list[bytes] = []
    at = base_offset
    while at < end_offset:
        if at not in known:
            return []
        at, data = known[at]
        found.append(data)
    return found if at == end_offset else []


def refilled(
    layout: PartitionLayout, batches: Sequence[bytes], encoding: Encoding, nonces: Iterator[str]
) -> Program[list[Entry]]:
    """Upload segments that hold these batches; return their entries.

    Raises:
        DataCorrupt: a batch contradicts itself. OutcomeUnknown: the result of a put is unknown.
    """
    entries: list[Entry] = []
    left = list(batches)
    while left:
        nonce = next(nonces)
        draft = build_flush(
            layout, left, nonce,
            codec=encoding.codec, level=encoding.level, indexes_keys=encoding.indexes_keys,
        )  # fmt: skip
        name = layout.rewritten_name(draft.base_offset, nonce)
        yield from create(layout.key(name), draft.data)
        entries += entries_of(draft.segment, name, len(draft.data))
        left = left[draft.batches :]
    return entries
