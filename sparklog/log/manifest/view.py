"""PartitionView: one partition at one moment: a manifest, and the chain above it.

An immutable value; `refresh` returns a newer one.

MANIFEST-VIEW-1: The tail joins the manifest's end: its first segment starts there, each next where
    one ends.
MANIFEST-VIEW-2: The name at a view's end offset was free after every name below it was taken,
    unless the view has damage there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sparklog.core.errors import DataCorrupt
from sparklog.log.layout import ChainPosition, PartitionLayout
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.manifest import EMPTY, Entry, Manifest, WriterState, entries_of
from sparklog.log.manifest.reference_transactions import gap, outcomes
from sparklog.log.segment.segment import CommitKey, Segment


@dataclass(frozen=True, slots=True)
class TailSegment:
    """A segment of the chain above the manifest."""

    segment: Segment
    name: str
    size_bytes: int
    generation: int = 0
    """Of its position: the number of fences before it in the chain at its base offset."""

    @property
    def position(self) -> ChainPosition:
        """Return its position in the chain."""
        return ChainPosition(self.segment.base_offset, self.generation)

    @property
    def next_position(self) -> ChainPosition:
        """Return the next chain position: a fence takes no offset but raises the generation."""
        if self.segment.kind == "fence":
            return ChainPosition(self.segment.base_offset, self.generation + 1)
        return ChainPosition(self.segment.end_offset)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The partition at the moment of the view. Later views only add to it."""

    layout: PartitionLayout
    manifest: Manifest = EMPTY
    manifest_name_version: int = 0
    """The highest manifest name seen, readable or not."""
    tail: tuple[TailSegment, ...] = ()
    manifest_damage: DataCorrupt | None = field(default=None, compare=False)
    """Why a newer manifest than this one was skipped, if one was."""
    damage: DataCorrupt | None = field(default=None, compare=False)
    """The reason why the view ends there, if more may follow. Only `readable` sets it."""

    def check_manifest(self) -> None:
        """Reject work that relies on this manifest if a newer one cannot be read.

        Raises:
            DataCorrupt: a newer one cannot be read.
        """
        if self.manifest_damage is not None:
            raise self.manifest_damage

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that may be read."""
        return self.manifest.log_start_offset

    @property
    def end_offset(self) -> int:
        """Return the offset the next record will get."""
        return self.tail[-1].segment.end_offset if self.tail else self.manifest.end_offset

    @property
    def position(self) -> ChainPosition:
        """Return the position of the next segment."""
        return self.tail[-1].next_position if self.tail else self.manifest.position

    @property
    def next_name(self) -> str:
        """Return the name, relative to the partition's folder, that the next segment takes."""
        return self.layout.chain_name(*self.position)

    @property
    def is_led(self) -> bool:
        """Return True if only a leader may append now. Source: FORMAT.md 5."""
        return self.tail[-1].segment.led if self.tail else self.manifest.led

    @property
    def leader_epoch(self) -> int:
        """Return the highest leader epoch in the log so far."""
        return max((self.manifest.leader_epoch, *(t.segment.leader_epoch for t in self.tail)))

    @property
    def is_unwritten(self) -> bool:
        """Return True if, in this view, it never had a record: it has fences at most."""
        return not self.manifest.end_offset and all(
            one.segment.kind in {"fence", "control"} for one in self.tail
        )

    def tail_entries(self) -> Iterator[Entry]:
        """Yield the entries of the tail, in offset order; aborted ones are gaps."""
        counts = outcomes([one.segment for one in self.tail])
        for one in self.tail:
            if one.segment.kind == "fence":
                continue
            if counts.get(one.segment.base_offset, True) is False:
                yield gap(one.segment, one.name, one.size_bytes)
            else:
                yield from entries_of(one.segment, one.name, one.size_bytes)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return every entry, in offset order."""
        return (*self.manifest.entries, *self.tail_entries())

    def covering(self, base_offset: int, end_offset: int) -> tuple[Entry, ...]:
        """Return the entries that hold any of [base_offset, end_offset)."""
        if base_offset >= end_offset:
            return ()
        entries = self.entries
        first = bisect_right(entries, base_offset, key=lambda e: e.end_offset)
        last = bisect_right(entries, end_offset - 1, key=lambda e: e.base_offset)
        return entries[first:last]

    def committed(self, key: CommitKey) -> WriterState | None:
        """Return the writer's last commit if it is `key` or a later one, else None."""
        for one in reversed(self.tail):
            commit = one.segment.commit
            if commit is not None and commit.key.writer == key.writer:
                if commit.key.sequence < key.sequence:
                    return None
                return WriterState(
                    commit.key.sequence,
                    one.segment.base_offset,
                    one.segment.end_offset,
                    commit.timestamp_ms,
                )
        return manifests.commit_state(self.manifest.writers, key)

    def extended(self, segment: Segment, size_bytes: int) -> PartitionView:
        """Return the view with one more segment, which has the next name, at its end.

        Raises:
            DataCorrupt: the segment does not start where the chain ends; or it has no length, or
                is a fence and has one.
        """
        name, (offset, generation) = self.next_name, self.position
        length = segment.end_offset - segment.base_offset
        has_length = length == 0 if segment.kind == "fence" else length > 0
        if segment.base_offset != offset or not has_length:
            raise DataCorrupt(
                "segment does not continue the chain; run verify. "
                f"object={self.layout.key(name)} kind={segment.kind} "
                f"base_offset={segment.base_offset} end_offset={segment.end_offset} "
                f"chain_end={offset}"
            )
        one = TailSegment(segment, name, size_bytes, generation)
        return replace(self, tail=(*self.tail, one))
