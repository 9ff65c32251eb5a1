"""Compactor: compacts and merges one partition.

It makes two passes over the cleanable part. It first reads the keys, to find the newest row of
each. It then copies the rows that stay, segment by segment, and one swap of the manifest publishes
all of them. If it is killed before the swap, the log is unchanged, and the uploaded objects are
orphans. It runs beside leaders, writers, retention and other compactions. The job that swaps first
wins; the other changes nothing.

Memory: one bit per row, a table of keys, and one object's rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import TimestampType
from sparklog.log.cleanup.compaction_policy import (
    CompactionPlan,
    CompactionPolicy,
    merge_runs,
    output_runs,
    plan_compaction,
)
from sparklog.log.cleanup.compaction_shares import CompactionShare, CompactionShares, ShareOutcome
from sparklog.log.cleanup.merged_footer import lineage_of
from sparklog.log.cleanup.offset_map import KeptOffsets, kept_rows, survivors
from sparklog.log.cleanup.record_age import WrittenTimes
from sparklog.log.cleanup.rewriter import PLAIN_BYTES_MAX, Encoding, RewritePosition, rewritten
from sparklog.log.effects import create, run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import (
    Replacement,
    absorb_tail,
    change,
    is_published,
    swap,
    with_tail,
)
from sparklog.log.manifest.manifest import Cleaning, Entry
from sparklog.log.manifest.quick_refresh import quick_refresh
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.read_committed import AbortedRange, aborted_stretches, decided
from sparklog.log.partition.segment_reader import Region, SegmentReader
from sparklog.log.segment.builder import BATCH_BYTES
from sparklog.log.segment.segment import Segment
from sparklog.protocol.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.store.base import ObjectStore


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows of a log that stay, and the objects to rewrite together."""

    segments: Mapping[Entry, Segment]
    survivors: KeptOffsets
    runs: tuple[tuple[Entry, ...], ...]

    @property
    def bytes_left(self) -> int:
        """Return about the bytes to write."""
        rows, kept = self.survivors.rows, self.survivors.kept
        entries = [e for one in self.runs for e in one]
        return round(sum(e.size_bytes * kept[e] / max(1, rows[e]) for e in entries))

    def outcome(self, plan: CompactionPlan) -> ShareOutcome:
        """Return the outcome as far as it is known before the rewrite."""
        before = [e for one in self.runs for e in one]
        return ShareOutcome(
            rows_before=sum(self.survivors.rows.values()),
            rows_after=sum(self.survivors.kept.values()),
            bytes_before=sum(e.size_bytes for e in before),
            objects_before=len(before),
            dirty_ratio=plan.dirty_ratio,
        )


class Compactor:
    """Compacts and merges one partition."""

    def __init__(
        self,
        store: ObjectStore,
        layout: PartitionLayout,
        policy: CompactionPolicy,
        encoding: Encoding,
        pool: Executor,
        *,
        keys_folder: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Work through `store`; keys that exceed the memory go to files under `keys_folder`."""
        self._store = store
        self._layout = layout
        self._policy = policy
        self._encoding = encoding
        self._pool = pool
        self._keys_folder = keys_folder
        self._clock = clock
        self._entropy = entropy

    def quick_view(self) -> PartitionView:
        """Return a view that suffices to decide that there is no work. Two listings and a GET.

        Raises:
            DataCorrupt: the tail of the log is damaged. Unavailable: try again.
        """
        return run(quick_refresh(self._layout), self._store, self._pool)

    def compact(self, *, force: bool = False) -> ShareOutcome | None:
        """Keep the newest record of each key; None if it is not worth the cost.

        Cost: a quick view. If that shows possible work, also a refresh of the view and
        `read_committed.decided`.

        Raises:
            DataCorrupt: an object is damaged; the log is unchanged. Unavailable: try again.
        """
        done = self.compact_or_share(None, force=force)
        assert not isinstance(done, CompactionShares), "nothing is too large for one"
        return done

    def compact_or_share(
        self,
        whole_bytes_max: int | None,
        *,
        force: bool = False,
        dry_run: bool = False,
        recent_view: PartitionView | None = None,
    ) -> ShareOutcome | CompactionShares | None:
        """Compact as `compact`, unless it would write more than `whole_bytes_max`.

        Then it changes nothing, and returns the argument for `share` and `publish`.
        `recent_view` is a recent result of `quick_refresh`.

        Raises:
            DataCorrupt, Unavailable: as `compact`.
        """
        recent_view = self.quick_view() if recent_view is None else recent_view
        if self._plan(recent_view, recent_view.end_offset, force=force) is None:
            return None
        view = run(refresh(recent_view), self._store, self._pool)
        known = run(decided(view), self._store, self._pool)
        plan = self._plan(view, known.stable_end, force=force)
        if plan is None:
            return None
        if not dry_run:
            absorbing = absorb_tail(1, 0)
            view = run(change(view, absorbing, self._nonce()), self._store, self._pool)
            plan = self._plan(view, known.stable_end, force=force)
            if plan is None:
                return ShareOutcome(overtaken=True)
        try:
            return self._compact(view, plan, known.aborted, whole_bytes_max, dry_run=dry_run)
        except DataCorrupt:
            if self._has_changed(view, plan.entries):
                return ShareOutcome(overtaken=True)
            raise

    def share(self, shares: CompactionShares, number: int, count: int) -> CompactionShare | None:
        """Do share `number` of `count` of a compaction; None if the log has changed.

        Each share finds the newest rows by itself, but copies only its own runs of objects.

        Raises:
            DataCorrupt: an object is damaged. Unavailable: try again.
        """
        view = run(refresh(PartitionView(self._layout)), self._store, self._pool)
        plan = shares.plan(view)
        if plan is None:
            return None
        known = run(decided(view), self._store, self._pool)
        try:
            found = self._look(view, plan, known.aborted)
            mine = found.runs[number::count]
            return CompactionShare(found.outcome(plan), tuple(self._rewrite_all(view, found, mine)))
        except DataCorrupt:
            if self._has_changed(view, plan.entries):
                return None
            raise

    def publish(self, shares: CompactionShares, done: Sequence[CompactionShare]) -> ShareOutcome:
        """Publish all shares of a compaction, by one swap of the manifest."""
        view = run(refresh(PartitionView(self._layout)), self._store, self._pool)
        replacements = sorted((r for one in done for r in one.replacements), key=_base_offset)
        cleaning = Cleaning(shares.end_offset, shares.started_ms)
        return self._publish(view, replacements, cleaning, done[0].outcome)

    def merge(
        self, *, dry_run: bool = False, recent_view: PartitionView | None = None
    ) -> ShareOutcome | None:
        """Merge many small neighbours into one object, run by run; None if there are none.

        `recent_view` is a recent result of `quick_refresh`.

        Raises:
            DataCorrupt: an object is damaged; finished merges stay. Unavailable: try again.
        """
        view = self.quick_view() if recent_view is None else recent_view
        runs = merge_runs(with_tail(view, 0), self._policy)
        if not runs:
            return None
        if dry_run:
            return _planned([e for one in runs for e in one], len(runs))
        view = run(change(view, absorb_tail(1, 0), self._nonce()), self._store, self._pool)
        done = ShareOutcome()
        for entries in merge_runs(view.manifest, self._policy):
            try:
                done = _sum(done, self._merge(view, entries))
            except DataCorrupt:
                if not self._has_changed(view, entries):
                    raise
                done = _sum(done, ShareOutcome(overtaken=True))
        return done

    def _plan(self, view: PartitionView, stable_end: int, *, force: bool) -> CompactionPlan | None:
        return plan_compaction(
            view,
            self._policy,
            stable_end,
            self._clock.now_ms(),
            force=force,
            written=WrittenTimes(self._store, self._layout),
        )

    def _compact(
        self,
        view: PartitionView,
        plan: CompactionPlan,
        aborted: Sequence[AbortedRange],
        whole_bytes_max: int | None,
        *,
        dry_run: bool,
    ) -> ShareOutcome | CompactionShares:
        started_ms = self._clock.now_ms()
        found = self._look(view, plan, aborted)
        if dry_run:
            return found.outcome(plan)
        if whole_bytes_max is not None and found.bytes_left > whole_bytes_max:
            return CompactionShares.of(view, plan, started_ms, found.bytes_left)
        replacements = list(self._rewrite_all(view, found, found.runs))
        cleaning = Cleaning(plan.end_offset, started_ms)
        return self._publish(view, replacements, cleaning, found.outcome(plan))

    def _look(
        self, view: PartitionView, plan: CompactionPlan, aborted: Sequence[AbortedRange]
    ) -> _Found:
        """Read the keys, and select the objects to rewrite."""
        region = Region(self._store, view, plan.entries, self._pool)
        segments = dict(region.segments())
        stretches = [
            s for e in plan.entries for s in aborted_stretches(segments[e], e.base_offset, aborted)
        ]
        found = survivors(region, stretches, plan.tombstones_below, self._keys_folder)
        transactional = {e for e, segment in segments.items() if _has_transactions(segment)}
        runs = output_runs(plan.entries, found.rows, found.kept, transactional, self._policy)
        return _Found(segments, found, tuple(runs))

    def _rewrite_all(
        self, view: PartitionView, found: _Found, runs: Sequence[Sequence[Entry]]
    ) -> Iterator[Replacement]:
        for entries in runs:
            segments = {e: found.segments[e] for e in entries}
            yield from self._rewrite(view, segments, found.survivors)

    def _merge(self, view: PartitionView, entries: Sequence[Entry]) -> ShareOutcome:
        segments = dict(Region(self._store, view, entries, self._pool).segments())
        if not _are_fewer_merged(segments.values()):
            return ShareOutcome()
        replacements = [r for r in self._rewrite(view, segments, None) if len(r.old) > 1]
        rows = sum(e.rows for r in replacements for e in r.old)
        before = [e for r in replacements for e in r.old]
        outcome = ShareOutcome(rows, rows, sum(e.size_bytes for e in before), 0, len(before))
        return self._publish(view, replacements, None, outcome)

    def _rewrite(
        self, view: PartitionView, segments: Mapping[Entry, Segment], found: KeptOffsets | None
    ) -> Iterator[Replacement]:
        """Upload the objects that replace neighbouring entries, by their timestamp types."""
        reader = SegmentReader(self._store, self._layout, self._pool)
        for entry, segment in segments.items():
            reader.keep(entry, segment)
        for some in _of_one_type(segments, found):
            if found is None and len(some) == 1:
                continue
            last = segments[some[-1]]
            place = RewritePosition(
                self._layout,
                some[0].base_offset,
                some[-1].end_offset,
                some[0].leader_epoch,
                last.led,
                _timestamp_type(some, segments),
            )
            lineage = lineage_of([(e, segments[e]) for e in some], compacted=found is not None)
            rows = kept_rows(reader, view, some, segments, found)
            made = []
            for entry, data in rewritten(place, rows, lineage, self._encoding, self._nonces()):
                run(create(self._layout.key(entry.object), data), self._store)
                made.append(entry)
            yield Replacement(tuple(some), tuple(made))

    def _publish(
        self,
        view: PartitionView,
        replacements: Sequence[Replacement],
        cleaning: Cleaning | None,
        outcome: ShareOutcome,
    ) -> ShareOutcome:
        started_ms = 0 if cleaning is None else cleaning.time_ms
        swapping = swap(replacements, cleaning, started_ms - self._policy.delete_retention_ms)
        after = run(change(view, swapping, self._nonce()), self._store, self._pool)
        new = [e for one in replacements for e in one.new]
        if not is_published(after, replacements):
            return replace(outcome, overtaken=True)
        return replace(outcome, bytes_after=sum(e.size_bytes for e in new), objects_after=len(new))

    def _has_changed(self, view: PartitionView, entries: Sequence[Entry]) -> bool:
        """Return True if another job has replaced some of these objects."""
        newer = run(refresh(view), self._store, self._pool)
        return not set(entries) <= set(newer.entries)

    def _nonce(self) -> str:
        return new_nonce(self._entropy)

    def _nonces(self) -> Iterator[str]:
        while True:
            yield self._nonce()


def _base_offset(one: Replacement) -> int:
    return one.base_offset


def _are_fewer_merged(segments: Collection[Segment]) -> bool:
    """Return True if a merge leaves few enough objects: well compressed data may fill many."""
    unfolded = sum(len(segment.batches) for segment in segments) * BATCH_BYTES
    return 2 * -(-unfolded // PLAIN_BYTES_MAX) <= len(segments)


def _has_transactions(segment: Segment) -> bool:
    kinds = CONTROL_BIT | TRANSACTIONAL_BIT
    return any(batch.attributes & kinds == TRANSACTIONAL_BIT for batch in segment.producers)


def _of_one_type(segments: Mapping[Entry, Segment], found: KeptOffsets | None) -> list[list[Entry]]:
    """Cut neighbours where the timestamp type changes; that of an entry without rows is ignored."""
    parts: list[list[Entry]] = [[]]
    kind: TimestampType | None = None
    for entry, segment in segments.items():
        has_rows = bool(found.kept[entry] if found is not None else entry.rows)
        if has_rows and kind is not None and segment.timestamp_type is not kind:
            parts.append([])
        if has_rows:
            kind = segment.timestamp_type
        parts[-1].append(entry)
    return parts


def _timestamp_type(some: Sequence[Entry], segments: Mapping[Entry, Segment]) -> TimestampType:
    types = [segments[e].timestamp_type for e in some if e.rows]
    return types[-1] if types else TimestampType.CREATE_TIME


def _planned(entries: Sequence[Entry], runs: int) -> ShareOutcome:
    rows = sum(e.rows for e in entries)
    return ShareOutcome(rows, rows, sum(e.size_bytes for e in entries), 0, len(entries), runs)


def _sum(one: ShareOutcome, other: ShareOutcome) -> ShareOutcome:
    numbers = ("rows_before", "rows_after", "bytes_before", "bytes_after", "objects_before",
               "objects_after")  # fmt: skip
    total = {name: getattr(one, name) + getattr(other, name) for name in numbers}
    return ShareOutcome(**total, overtaken=one.overtaken or other.overtaken)
