"""MergedFooter: data that a rewritten segment keeps from the footers of those it replaces. Pure.

It keeps the append of each offset (a stalled writer may look for it), the state of producers,
markers, and unreadable batches. Offsets are absolute here; a segment's own are relative.

MERGED-FOOTER-1: The append of an offset is recorded while it is among the last APPENDS_KEPT. Older
    ones are dropped. A writer that stalled that long gets OutcomeUnknown.
MERGED-FOOTER-2: Each producer's last batches stay: a leader recognises retries by them.
MERGED-FOOTER-3: A merge keeps transaction markers. A compaction drops them: below the last stable
    offset every transaction has ended. Records of aborted ones are removed, and the others become
    plain records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparklog.log.manifest.manifest import REWRITTEN_NONCE, Entry
from sparklog.log.segment.segment import Append, Marker, ProducerBatch, Segment, UnreadBatch
from sparklog.log.tail.producer_state import REMEMBERED_BATCHES
from sparklog.protocol.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, increment_sequence

APPENDS_KEPT: Final = 4096
PRODUCERS_KEPT: Final = 10_000
"""Number of producers, those that wrote last, whose state a compacted segment keeps."""


@dataclass(frozen=True, slots=True)
class MergedFooter:
    """See the module. All in order of offsets, which are absolute."""

    appends: tuple[Append, ...] = ()
    producers: tuple[ProducerBatch, ...] = ()
    markers: tuple[Marker, ...] = ()
    unread: tuple[UnreadBatch, ...] = ()

    def within(self, base_offset: int, end_offset: int) -> MergedFooter:
        """Return the part within [base_offset, end_offset); batches are cut at its edges."""
        return MergedFooter(
            tuple(
                replace(
                    a,
                    base_offset=max(a.base_offset, base_offset),
                    end_offset=min(a.end_offset, end_offset),
                )
                for a in self.appends
                if a.base_offset < end_offset and a.end_offset > base_offset
            ),
            tuple(
                _cut(p, base_offset, end_offset)
                for p in self.producers
                if p.base < end_offset and p.end > base_offset
            ),
            tuple(m for m in self.markers if base_offset <= m.base < end_offset),
            tuple(u for u in self.unread if base_offset <= u.base < end_offset),
        )

    def relative(self, segment: Segment, base_offset: int) -> Segment:
        """Return a segment that begins at `base_offset` with this data in its footer."""
        return replace(
            segment,
            # Without an entry, the segment would look like an append of its own.
            appends=self.appends or (Append(base_offset, base_offset, 0, REWRITTEN_NONCE),),
            producers=tuple(
                replace(p, base=p.base - base_offset, end=p.end - base_offset)
                for p in self.producers
            ),
            markers=tuple(replace(m, base=m.base - base_offset) for m in self.markers),
            unread=tuple(
                replace(u, base=u.base - base_offset, end=u.end - base_offset) for u in self.unread
            ),
        )


def lineage_of(sources: Iterable[tuple[Entry, Segment]], *, compacted: bool) -> MergedFooter:
    """Return the data to keep from neighbouring entries, in order of offsets."""
    appends: list[Append] = []
    producers: list[ProducerBatch] = []
    markers: list[Marker] = []
    unread: list[UnreadBatch] = []
    for entry, segment in sources:
        base, end = entry.base_offset, entry.end_offset
        if entry.nonce == REWRITTEN_NONCE:
            appends += [a for a in segment.appends if a.base_offset < end and a.end_offset > base]
        else:
            appends.append(Append(base, end, entry.leader_epoch, entry.nonce))
        producers += [
            replace(p, base=p.base + base, end=p.end + base)
            for p in segment.producers
            if 0 <= p.base < end - base
        ]
        markers += [
            replace(m, base=m.base + base) for m in segment.markers if 0 <= m.base < end - base
        ]
        unread += [
            replace(u, base=u.base + base, end=u.end + base)
            for u in segment.unread
            if 0 <= u.base < end - base
        ]
    if compacted:
        kept = _compacted(producers)
        ends = {p.base for p in kept if p.attributes & CONTROL_BIT}
        markers = [m for m in markers if m.base in ends]
    else:
        kept = _merged(producers)
    return MergedFooter(tuple(appends[-APPENDS_KEPT:]), tuple(kept), tuple(markers), tuple(unread))


def _compacted(producers: Sequence[ProducerBatch]) -> list[ProducerBatch]:
    """Keep the last batches of each producer, as plain ones, and its last marker."""
    batches: defaultdict[int, list[ProducerBatch]] = defaultdict(list)
    ends: dict[int, ProducerBatch] = {}
    for one in producers:
        if one.attributes & CONTROL_BIT:
            ends[one.producer_id] = one
        else:
            batches[one.producer_id].append(
                replace(one, attributes=one.attributes & ~TRANSACTIONAL_BIT)
            )
    kept: list[list[ProducerBatch]] = []
    for producer_id in batches.keys() | ends.keys():
        last = batches[producer_id][-REMEMBERED_BATCHES:]
        kept.append(sorted((*last, *filter(None, [ends.get(producer_id)])), key=_base))
    kept.sort(key=lambda some: some[-1].base)
    return sorted((one for some in kept[-PRODUCERS_KEPT:] for one in some), key=_base)


def _merged(producers: Sequence[ProducerBatch]) -> list[ProducerBatch]:
    """Keep the last batches of each producer, and the offsets of its transactions before them."""
    left: defaultdict[int, int] = defaultdict(lambda: REMEMBERED_BATCHES)
    recent: set[int] = set()
    for one in reversed(producers):
        if not one.attributes & CONTROL_BIT and left[one.producer_id]:
            left[one.producer_id] -= 1
            recent.add(one.base)
    kept: list[ProducerBatch] = []
    for one in producers:
        special = one.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)
        if one.base in recent or one.attributes & CONTROL_BIT:
            kept.append(one)
        elif special and kept and kept[-1].base not in recent and _continues(kept[-1], one):
            kept[-1] = replace(kept[-1], end=one.end)
        elif special:
            kept.append(one)
    return kept


def _continues(before: ProducerBatch, one: ProducerBatch) -> bool:
    return (
        before.end == one.base
        and before.producer_id == one.producer_id
        and before.producer_epoch == one.producer_epoch
        and before.attributes == one.attributes
        and increment_sequence(before.base_sequence, before.end - before.base) == one.base_sequence
    )


def _cut(one: ProducerBatch, base_offset: int, end_offset: int) -> ProducerBatch:
    base, end = max(one.base, base_offset), min(one.end, end_offset)
    sequence = one.base_sequence
    if base > one.base and not one.attributes & CONTROL_BIT:
        sequence = increment_sequence(sequence, base - one.base)
    return replace(one, base=base, end=end, base_sequence=sequence)


def _base(one: ProducerBatch) -> int:
    return one.base
