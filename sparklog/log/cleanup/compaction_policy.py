"""Plans of compactions and merges, from a manifest alone. Pure.

As in Kafka, a log has a clean part and a dirty part after it. In the clean part, every record was
the newest of its key at the last compaction. A compaction reads both, up to the first segment that
is too young or lies beyond the last stable offset. It runs when the dirty part is large enough, or
too old. A segment here is an object. A compaction includes the newest one: it is written whole and
does not grow.

Times are milliseconds, sizes bytes. Source: Kafka's LogCleanerManager, KIP-58, KIP-354, KIP-534.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.core.config.model import LONG_MAX
from sparklog.core.config.topic import TopicConfig
from sparklog.log.cleanup.record_age import WrittenTime, just_written, newest_ms, oldest_ms
from sparklog.log.manifest.manifest import Entry, Manifest
from sparklog.log.manifest.view import PartitionView

OFFSETS_MAX: Final = 1 << 30
"""Most offsets that one rewritten object covers. Its remaining records must fit into batches, whose
offsets count up to 2**31."""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """The settings of a topic for compactions and merges."""

    compacts: bool
    """True if `cleanup.policy` has `compact`."""
    dirty_ratio_min: float
    lag_min_ms: int
    lag_max_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> CompactionPolicy:
        """Return the policy of a topic's settings."""
        return cls(
            compacts="compact" in config.words("cleanup.policy"),
            dirty_ratio_min=config.number("min.cleanable.dirty.ratio"),
            lag_min_ms=config.whole("min.compaction.lag.ms"),
            lag_max_ms=config.whole("max.compaction.lag.ms"),
            delete_retention_ms=config.whole("delete.retention.ms"),
            segment_bytes=config.whole("segment.bytes"),
            segment_ms=config.whole("segment.ms"),
        )


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The scope of one compaction of a partition."""

    entries: tuple[Entry, ...]
    """From the log start on, clean and dirty."""
    dirty_bytes: int
    dirty_ratio: float
    tombstones_below: int
    """Tombstones at lower offsets were kept for `delete.retention.ms`: they go."""

    @property
    def end_offset(self) -> int:
        """Return the end offset of the clean part afterwards."""
        return self.entries[-1].end_offset


def plan_compaction(
    view: PartitionView,
    policy: CompactionPolicy,
    stable_end: int,
    now_ms: int,
    *,
    force: bool,
    written: WrittenTime = just_written,
) -> CompactionPlan | None:
    """Return the compaction to run now, or None if it is not worth the cost.

    Args:
        `view`: of the partition.
        `policy`: of the topic.
        `stable_end`: the last stable offset: later records may still be aborted.
        `now_ms`: the time now.
        `force`: compact at any dirty ratio, if there is a dirty part.
        `written`: returns the write time of an object whose records have no usable timestamp.
    """
    if not policy.compacts:
        return None
    entries = _cleanable(view.entries, policy, stable_end, now_ms, written)
    dirty = [e for e in entries if e.end_offset > view.manifest.cleaned_end]
    if not dirty:
        return None
    dirty_bytes = sum(e.size_bytes for e in dirty)
    ratio = dirty_bytes / max(1, sum(e.size_bytes for e in entries))
    since_ms = LONG_MAX
    if policy.lag_max_ms < LONG_MAX:
        since_ms = min((oldest_ms(e, written) for e in dirty if e.rows), default=LONG_MAX)
    is_overdue = since_ms < now_ms - policy.lag_max_ms
    if ratio <= policy.dirty_ratio_min and not is_overdue and not force:
        return None
    return CompactionPlan(
        entries, dirty_bytes, ratio, tombstones_below(view.manifest, policy, now_ms)
    )


def tombstones_below(manifest: Manifest, policy: CompactionPolicy, now_ms: int) -> int:
    """Return the offset below which tombstones were kept long enough.

    The time counts from a tombstone's first compaction: before that, the log had the records that
    it hides.
    """
    ends = [
        c.end_offset for c in manifest.cleaned if c.time_ms <= now_ms - policy.delete_retention_ms
    ]
    return max(ends, default=0)


def _cleanable(
    entries: tuple[Entry, ...],
    policy: CompactionPolicy,
    stable_end: int,
    now_ms: int,
    written: WrittenTime,
) -> tuple[Entry, ...]:
    found = []
    for entry in entries:
        is_young = (
            policy.lag_min_ms > 0
            and entry.rows > 0
            and newest_ms(entry, written) > now_ms - policy.lag_min_ms
        )
        if entry.end_offset > stable_end or is_young:
            break
        found.append(entry)
    return tuple(found)


def merge_runs(manifest: Manifest, policy: CompactionPolicy) -> list[tuple[Entry, ...]]:
    """Return runs of neighbouring entries, each to be merged into one object.

    A run stays within one leader epoch, `segment.bytes` and `segment.ms`, and on one side of the
    clean part's end. A run that can still grow is merged when it has RUN_MIN entries. An entry is
    not copied for later entries that together are smaller than it. So each byte is copied few
    times.
    """
    runs: list[tuple[Entry, ...]] = []
    run: list[Entry] = []
    for entry in manifest.entries:
        if run and not _goes_on(run, entry, manifest, policy):
            runs.append(tuple(run))
            run = []
        if entry.size_bytes < policy.segment_bytes // 2:
            run.append(entry)
        elif run:
            runs.append(tuple(run))
            run = []
    found = [one for one in runs if len(one) > 1]
    while run and run[0].size_bytes > sum(e.size_bytes for e in run[1:]):
        run.pop(0)
    return [*found, tuple(run)] if len(run) >= RUN_MIN else found


RUN_MIN: Final = 8
"""Entries at the end of the log that are worth a merge, although more will follow."""


def _goes_on(run: list[Entry], entry: Entry, manifest: Manifest, policy: CompactionPolicy) -> bool:
    first = run[0]
    clean = manifest.cleaned_end
    both = ((e.min_timestamp_ms, e.max_timestamp_ms) for e in (*run, entry) if e.rows)
    times = [time for pair in both for time in pair if time >= 0]
    return (
        entry.leader_epoch == first.leader_epoch
        and (entry.end_offset <= clean) == (first.end_offset <= clean)
        and sum(e.size_bytes for e in run) + entry.size_bytes <= policy.segment_bytes
        and entry.end_offset - first.base_offset <= OFFSETS_MAX
        and (not times or max(times) - min(times) <= policy.segment_ms)
    )


def output_runs(
    entries: Sequence[Entry],
    rows: Mapping[Entry, int],
    kept: Mapping[Entry, int],
    transactional: Collection[Entry],
    policy: CompactionPolicy,
) -> list[tuple[Entry, ...]]:
    """Return the neighbours to rewrite together, from the number of rows that stay of each.

    Args:
        `entries`: the compacted entries.
        `rows`: the number of rows of each.
        `kept`: the number of rows of each that stay.
        `transactional`: entries with batches of transactions. They are rewritten even if all rows
            stay: a rewrite omits markers, so the batches that these end must become plain ones.
        `policy`: of the topic.
    """
    changed = {e for e in entries if kept[e] < rows[e] or e in transactional}
    runs: list[list[Entry]] = [[]]
    size = 0.0
    for entry in entries:
        left = entry.size_bytes * kept[entry] / max(1, rows[entry])
        run = runs[-1]
        fits = not run or (
            entry.leader_epoch == run[0].leader_epoch
            and size + left <= policy.segment_bytes
            and entry.end_offset - run[0].base_offset <= OFFSETS_MAX
        )
        if entry not in changed and entry.size_bytes >= policy.segment_bytes // 2:
            runs.append([])
            continue
        if not fits:
            runs.append([])
            size = 0.0
        runs[-1].append(entry)
        size = size + left if len(runs[-1]) > 1 else left
    return [tuple(run) for run in runs if not changed.isdisjoint(run)]
