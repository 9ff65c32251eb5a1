"""Repairs a partition: only changes that provably keep every readable record.

A repair changes the manifest and writes new objects; no name of the chain is ever written twice.

REPAIR-1: A damaged or wrong hint is deleted: the log has the same data.
REPAIR-2: If the newest manifest is damaged, the version before it and the chain become the next
    one. This does not apply if later records may exist or have been deleted. Objects of damaged
    versions are deleted when nothing depends on them.
REPAIR-3: A damaged merged object is replaced by copies of its source objects. An older manifest
    must name these, all must be whole, and no compaction may be in between. A compaction may have
    removed their rows, or the markers with the outcomes of their transactions. They are copied,
    because garbage collection may have found that nothing names them: an object never returns to
    the log.
REPAIR-4: A leader's damaged segment is rebuilt from a write-ahead log that has its batches.
REPAIR-5: An object with whole records and a damaged filter of keys is written anew.
REPAIR-6: A damaged fence is replaced by a manifest that continues after it, if the segment after
    it can be read. That segment itself says if only a leader may append from there on.

Nothing else changes: an object that holds the only copy of any data is never touched. An operator
can give up the rest with `drop_damaged`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import pyarrow as pa

from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import UNLED_EPOCH, OffsetRange, TimestampType
from sparklog.log.cleanup.garbage import DAY_MS
from sparklog.log.cleanup.merged_footer import MergedFooter, lineage_of
from sparklog.log.cleanup.rewriter import ROW_COLUMNS, Encoding, RewritePosition, rewritten
from sparklog.log.effects import Program, Result, create, run
from sparklog.log.layout import PartitionLayout, is_data_name, is_staged_name
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.change import (
    Plan,
    Replacement,
    change,
    is_published,
    publish_over_gap,
    swap,
    with_tail,
)
from sparklog.log.manifest.manifest import REWRITTEN_NONCE, Entry, Manifest
from sparklog.log.manifest.refresh import read_segment
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.log.repair.findings import Damage, DamageKind
from sparklog.log.repair.verify import Findings, batch_problem, clipped, entry_damages
from sparklog.log.repair.wal_refill import refilled, wal_batches
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.unread_batches import Unread
from sparklog.store.base import ObjectInfo, ObjectNotFound, ObjectStore


def keep_readable_rows(
    store: ObjectStore,
    view: PartitionView,
    entry: Entry,
    pool: Executor,
    encoding: Encoding,
    nonces: Iterator[str],
    *,
    given_up: Collection[OffsetRange] = (),
) -> Replacement:
    """Upload objects with the readable rows of an entry, for exactly the offsets that it covers.

    No manifest names them yet. An object with an unreadable footer has no readable rows. The footer
    keeps unreadable producers' batches, except those in `given_up`.

    Raises:
        OutcomeUnknown, Unavailable: the store failed; nothing was changed.
    """
    reader = SegmentReader(store, view.layout, pool)
    try:
        segment: Segment | None = reader.footer(entry)
        lineage = lineage_of([(entry, reader.footer(entry))], compacted=False)
    except DataCorrupt:
        segment, lineage = None, MergedFooter()
    place = RewritePosition(
        view.layout,
        entry.base_offset,
        entry.end_offset,
        entry.leader_epoch,
        view.is_led if segment is None else segment.led,
        TimestampType.CREATE_TIME if segment is None else segment.timestamp_type,
    )
    rows = iter(()) if segment is None else _readable(reader, view, entry, segment)
    lineage = replace(
        lineage,
        unread=tuple(
            u
            for u in lineage.unread
            if not any(u.base < r.end_offset and r.base_offset < u.end for r in given_up)
        ),
    )
    new = []
    for made, data in rewritten(place, rows, lineage, encoding, nonces):
        run(create(view.layout.key(made.object), data), store)
        new.append(made)
    return Replacement((entry,), tuple(new))


def _readable(
    reader: SegmentReader, view: PartitionView, entry: Entry, segment: Segment
) -> Iterator[pa.RecordBatch]:
    for batch in segment.batches:
        low, high = clipped(view, entry, batch.base, batch.end)
        if low < high and not batch_problem(reader, view, entry, batch):
            yield from reader.read(view, low, high, ROW_COLUMNS, unread=Unread.KEEP)


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair of one partition, after its verification."""

    store: ObjectStore
    found: Findings
    """The damages."""
    pool: Executor
    encoding: Encoding
    """Of the objects that are written."""
    dry_run: bool
    """Report the repairs, and change nothing."""
    entropy: Entropy = SYSTEM_ENTROPY

    @property
    def layout(self) -> PartitionLayout:
        """Return the names of the partition's objects."""
        return self.found.view.layout

    def nonces(self) -> Iterator[str]:
        """Yield nonces, one per object."""
        while True:
            yield new_nonce(self.entropy)

    def run(self, program: Program[Result]) -> Result:
        """Run a program on the partition's store."""
        return run(program, self.store, self.pool)

    def change(self, plan: Plan, *, over_manifests: bool = False) -> PartitionView:
        """Change the newest manifest; the plan runs again after every lost race.

        `over_manifests`: use the newest readable version.
        """
        view, nonce = PartitionView(self.layout), next(self.nonces())
        return self.run(change(view, plan, nonce, over_manifests=over_manifests))

    def rebuilt(
        self,
        entry: Entry,
        view: PartitionView | None = None,
        given_up: Collection[OffsetRange] = (),
    ) -> Replacement:
        """Write an object with the readable rows of one in `view`, or in the newest view.

        Unreadable batches stay in it, except those in `given_up`.
        """
        seen = view or self.found.view
        encoding, nonces = self.encoding, self.nonces()
        return keep_readable_rows(
            self.store, seen, entry, self.pool, encoding, nonces, given_up=given_up
        )


SETTLED_MS = DAY_MS
"""Longer than any `file.delete.delay.ms`: a reader of an older version has finished."""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """One repair that was done, or that a dry run reports."""

    object: str
    what: str


class Repairer:
    """Repairs one partition."""

    def __init__(self, repair: Repair, now_ms: int) -> None:
        """Repair the damages that `repair` has found."""
        self._repair = repair
        self._found = repair.found
        self._layout = repair.layout
        self._now_ms = now_ms
        self._names: Mapping[str, ObjectInfo] = {
            self._layout.relative(info.key): info for info in self._found.listed
        }

    def repair_all(self) -> list[RepairResult]:
        """Do all safe repairs; verify again afterwards to find the remaining damages.

        Raises:
            Unavailable: the store failed, or other jobs were faster again and again; run it again.
        """
        done = [self._without_hint(d) for d in self._of(DamageKind.HINT)]
        broken = self._of(DamageKind.CHAIN)
        if broken:
            return [*done, *(one for damage in broken for one in self._rejoined(damage))]
        if self._newest_is_damaged():
            return [*done, *self._new_manifest()]  # no other change is allowed before
        for entry in self._entries_with(DamageKind.INDEX):
            done += self._reindexed(entry)
        for entry in self._entries_with(DamageKind.SEGMENT):
            done += list(self._restored(entry)) or self._refilled(entry)
        return done + self._new_manifest()

    def _of(self, kind: DamageKind) -> list[Damage]:
        return [d for d in self._found.damages if d.kind is kind]

    def _without_hint(self, damage: Damage) -> RepairResult:
        if not self._repair.dry_run:
            self._repair.store.delete(damage.object)
        return RepairResult(damage.object, "deleted: the log tells the same")

    def _entries_with(self, kind: DamageKind) -> list[Entry]:
        keys = {d.object for d in self._of(kind)}
        return [e for e in self._found.view.entries if self._layout.key(e.object) in keys]

    def _restored(self, entry: Entry) -> Iterator[RepairResult]:
        """Copy the objects that `entry` was merged from (REPAIR-3)."""
        for older in self._older_manifests():
            if older.cleaned != self._found.view.manifest.cleaned:
                return
            old = _covering(older, entry)
            if not old or sum(e.rows for e in old) != entry.rows or entry in old:
                continue
            if not all(self._is_whole(older, e) for e in old):
                continue
            if self._repair.dry_run or self._copied(entry, older, old):
                names = ", ".join(e.object for e in old)
                what = f"replaced by copies of what it held: {names}"
                yield RepairResult(self._layout.key(entry.object), what)
                return

    def _copied(self, entry: Entry, older: Manifest, old: Sequence[Entry]) -> bool:
        view = PartitionView(self._layout, older)
        new = [made for e in old for made in self._repair.rebuilt(e, view).new]
        if sum(e.rows for e in new) != entry.rows:
            return False  # collected meanwhile
        return self._swapped(Replacement((entry,), tuple(new)))

    def _refilled(self, entry: Entry) -> list[RepairResult]:
        """Rebuild a leader's segment from a write-ahead log (REPAIR-4)."""
        if entry.leader_epoch == UNLED_EPOCH or entry.nonce == REWRITTEN_NONCE:
            return []
        finding = wal_batches(self._layout, entry.base_offset, entry.end_offset, entry.leader_epoch)
        batches = self._repair.run(finding)
        if not batches:
            return []
        result = RepairResult(self._layout.key(entry.object), "made again from a write-ahead log")
        if self._repair.dry_run:
            return [result]
        new = self._remade(batches)
        return [result] if self._swapped(Replacement((entry,), tuple(new))) else []

    def _reindexed(self, entry: Entry) -> list[RepairResult]:
        """Write an object anew, because its filter is damaged (REPAIR-5)."""
        result = [
            RepairResult(self._layout.key(entry.object), "written anew, with its filter of keys")
        ]
        if self._repair.dry_run:
            return result
        made = self._repair.rebuilt(entry)
        return result if self._swapped(made) else []

    def _rejoined(self, damage: Damage) -> list[RepairResult]:
        """Rebuild a segment of the tail, so that the chain continues (REPAIR-4).

        Its epoch is known only if the segments before and after it have the same.
        """
        view = self._found.view
        if damage.lost_end == damage.lost_base:
            return self._unfenced(damage)
        after = self._segment_at(self._layout.chain_name(damage.lost_end))
        if after is None or after.leader_epoch != view.leader_epoch or not view.is_led:
            return []
        epoch = view.leader_epoch
        finding = wal_batches(self._layout, damage.lost_base, damage.lost_end, epoch)
        batches = self._repair.run(finding)
        if not batches:
            return []
        if not self._repair.dry_run:
            new = self._remade(batches)
            nonce = next(self._repair.nonces())
            self._repair.run(publish_over_gap(view, new, leader_epoch=epoch, led=True, nonce=nonce))
        return [RepairResult(damage.object, "made again from a write-ahead log")]

    def _unfenced(self, damage: Damage) -> list[RepairResult]:
        """Let the chain continue after a fence, of which only the name can be read (REPAIR-6)."""
        view = self._found.view
        offset, generation = view.position
        after = self._segment_at(self._layout.chain_name(offset, generation + 1))
        if after is None:
            return []
        if not self._repair.dry_run:
            epoch = max(view.leader_epoch, after.leader_epoch)
            nonce = next(self._repair.nonces())
            self._repair.run(
                publish_over_gap(view, (), leader_epoch=epoch, led=after.led, nonce=nonce)
            )
        return [
            RepairResult(damage.object, "passed over: the segment after it says who may append")
        ]

    def _segment_at(self, name: str) -> Segment | None:
        try:
            found = self._repair.run(read_segment(self._layout, name))
        except DataCorrupt:
            return None
        return None if found is None else found[0]

    def _remade(self, batches: Sequence[bytes]) -> Sequence[Entry]:
        """Write segments of batches."""
        repair = self._repair
        return repair.run(refilled(self._layout, batches, repair.encoding, repair.nonces()))

    def _older_manifests(self) -> Iterator[Manifest]:
        """Yield the readable versions before the newest one, newest first."""
        for key in sorted((info.key for info in self._found.listed), reverse=True):
            version = self._layout.manifest_version(key)
            if version is None or version >= self._found.view.manifest.version:
                continue
            try:
                yield manifests.decode(self._repair.store.get(key), self._layout, key)
            except (DataCorrupt, ObjectNotFound):
                continue

    def _is_whole(self, older: Manifest, entry: Entry) -> bool:
        reader = SegmentReader(self._repair.store, self._layout, self._repair.pool)
        view = PartitionView(self._layout, older)
        return not entry_damages(reader, view, entry, dict(self._names), deep=True)

    def _swapped(self, replacement: Replacement) -> bool:
        after = self._repair.change(swap([replacement]))
        return is_published(after, [replacement])

    def _new_manifest(self) -> list[RepairResult]:
        """Publish the older version's content anew, and delete the damaged ones (REPAIR-2)."""
        damaged = [d.object for d in self._of(DamageKind.MANIFEST)]
        done = []
        newest = self._newest_key()
        if newest in damaged:
            written_ms = self._names[self._layout.relative(newest)].modified_ms
            if self._may_be_longer(written_ms) or not self._is_kept(written_ms):
                return []
            if not self._repair.dry_run:
                self._repair.change(_as_read, over_manifests=True)
            done.append(RepairResult(newest, "its place is taken by a new version of what is read"))
        for key in damaged:
            if key != newest and self._is_settled(key):
                if not self._repair.dry_run:
                    self._repair.store.delete(key)
                done.append(RepairResult(key, "deleted: newer versions have taken its place"))
        return done

    def _newest_key(self) -> str:
        view = self._found.view
        return self._layout.key(self._layout.manifest_name(view.manifest_name_version))

    def _newest_is_damaged(self) -> bool:
        return any(d.object == self._newest_key() for d in self._of(DamageKind.MANIFEST))

    def _may_be_longer(self, written_ms: int) -> bool:
        """Return True if a manifest written then may name records after the readable end."""
        view = self._found.view
        named = {e.object for e in view.entries} | {one.name for one in view.tail}
        for name, info in self._names.items():
            if name in named or not is_data_name(name) or info.modified_ms > written_ms:
                continue
            if is_staged_name(name):
                return True  # a reference to it may be in that manifest only
            segment, at = self._segment_at(name), self._layout.chain_position(info.key)
            base = at.offset if at is not None else self._layout.rewritten_base(info.key)
            if segment is None or base is None:
                return True
            # A put by an old view may have taken a merged object's offsets: its append has failed.
            known = view.end_offset if at is not None else view.manifest.end_offset
            if base + segment.end_offset - segment.base_offset > known:
                return True
        return False

    def _is_kept(self, written_ms: int) -> bool:
        """Return True if an object proves that nothing was deleted from the older end on.

        Retention deletes from the start, so an object just before or after that end proves it.
        """
        view = self._found.view
        names = [view.tail[0].name] if view.tail else []
        names += [e.object for e in view.manifest.entries[-1:]]
        names += [n for n in self._names if self._merged_end(n) == view.manifest.end_offset]
        found = [info for name in names if (info := self._names.get(name)) is not None]
        return any(info.modified_ms <= written_ms for info in found)

    def _merged_end(self, name: str) -> int | None:
        base = self._layout.rewritten_base(self._layout.key(name))
        segment = self._segment_at(name) if base is not None else None
        if base is None or segment is None:
            return None
        return base + segment.end_offset - segment.base_offset

    def _is_settled(self, key: str) -> bool:
        info = self._names[self._layout.relative(key)]
        return info.modified_ms < self._now_ms - SETTLED_MS


def _as_read(view: PartitionView) -> Manifest | None:
    """Plan to publish the readable version anew, if the newest version is unreadable."""
    if view.manifest_name_version == view.manifest.version:
        return None
    return with_tail(view, 0)


def _covering(manifest: Manifest, entry: Entry) -> tuple[Entry, ...]:
    """Return the entries of a manifest that cover exactly the offsets of `entry`, or none."""
    found: Sequence[Entry] = [
        e
        for e in manifest.entries
        if e.base_offset < entry.end_offset and e.end_offset > entry.base_offset
    ]
    if not found:
        return ()
    covers = found[0].base_offset, found[-1].end_offset
    return tuple(found) if covers == (entry.base_offset, entry.end_offset) else ()
