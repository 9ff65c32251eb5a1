"""Outcomes of reference segments that are part of a transaction. Pure.

Footers of staged objects are written before the transaction, so they do not name it. A manifest
names the objects instead of the reference segment. So it absorbs such a segment only after the
transaction has ended, by a marker later in the chain. An aborted segment becomes a gap. While the
segment is in the tail, its own footer names the producer.
Source: FORMAT.md 9, "Reference batches".

REFERENCE-TRANSACTIONS-1: No manifest names objects of an open or aborted transaction by reference.
REFERENCE-TRANSACTIONS-2: A marker is in the tail as long as a reference segment that it ends is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import NO_TIMESTAMP_MS
from sparklog.log.manifest.manifest import Entry
from sparklog.log.segment.segment import ProducerBatch, Segment
from sparklog.protocol.records.control import control_record, end_transaction
from sparklog.protocol.records.header import CONTROL_BIT, increment_sequence


def outcomes(chain: Sequence[Segment]) -> Mapping[int, bool | None]:
    """Return, by base offset, True if a transactional reference segment's records are committed.

    False: aborted. None: the chain has no marker for it yet.
    """
    waiting: dict[int, list[int]] = {}
    """Producer id to the base offsets of its segments since its last marker."""
    found: dict[int, bool | None] = {}
    for segment in chain:
        if is_transactional(segment):
            found[segment.base_offset] = None
            waiting.setdefault(segment.producers[0].producer_id, []).append(segment.base_offset)
        elif waiting:
            for producer_id, is_commit in _ends(segment):
                for base_offset in waiting.pop(producer_id, ()):
                    found[base_offset] = is_commit
    return found


def is_transactional(segment: Segment) -> bool:
    """Return True if it is a reference segment of a transaction."""
    return segment.kind == "reference" and bool(segment.producers)


def gap(segment: Segment, name: str, size_bytes: int) -> Entry:
    """Return the entry of an aborted reference segment: offsets without rows."""
    return Entry(
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        object=name,
        size_bytes=size_bytes,
        rows=0,
        min_timestamp_ms=NO_TIMESTAMP_MS,
        max_timestamp_ms=NO_TIMESTAMP_MS,
        leader_epoch=segment.leader_epoch,
        nonce=segment.nonce,
    )


def written_by(chain: Sequence[Segment], entry: Entry) -> ProducerBatch | None:
    """Return the producer's batch of an entry, if a transactional reference segment names it.

    Its offsets are relative to the entry's object. None for all other entries.
    """
    for segment in chain:
        if not segment.base_offset <= entry.base_offset < segment.end_offset:
            continue
        if not is_transactional(segment):
            return None
        batch = segment.producers[0]
        first = entry.base_offset - segment.base_offset
        return replace(
            batch,
            base_sequence=increment_sequence(batch.base_sequence, first),
            base=0,
            end=entry.end_offset - entry.base_offset,
        )
    return None


def _ends(segment: Segment) -> Iterator[tuple[int, bool]]:
    """Yield the producers whose transactions end in a segment, in order, and True for a commit."""
    markers = {marker.base: marker for marker in segment.markers}
    for batch in segment.producers:
        marker = markers.get(batch.base) if batch.attributes & CONTROL_BIT else None
        if marker is None:
            continue
        try:
            record = control_record(segment.base_offset + batch.base, marker.key, marker.value)
            ended = end_transaction(record)
        except DataCorrupt:  # the rebuild of producer state reports it
            continue
        if ended is not None:
            yield batch.producer_id, ended.is_commit
