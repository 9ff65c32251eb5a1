"""Retention: decides the new log start from a manifest and the tail alone. Pure.

As in Kafka, whole segments go, oldest first, while each is beyond a limit. An object is a segment
here. The newest one goes by time only when it has rolled: it is `segment.bytes` large, or its first
record `segment.ms` old. Objects without records (emptied by compaction) have no age, so they go
with the records after them. If the newest timestamp is negative, the age is that of the object
(`record_age`).

Times are milliseconds since the Unix epoch, sizes bytes. Source: Kafka's UnifiedLog,
deleteRetentionMsBreachedSegments and deleteRetentionSizeBreachedSegments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.core.config.topic import NO_LIMIT, TopicConfig
from sparklog.log.cleanup.record_age import WrittenTime, just_written, newest_ms, oldest_ms
from sparklog.log.manifest.change import Plan, open_references, with_start
from sparklog.log.manifest.manifest import Entry, Manifest
from sparklog.log.manifest.view import PartitionView


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The retention settings of a topic."""

    deletes: bool
    """True if `cleanup.policy` has `delete`; else only DeleteRecords moves the log start."""
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    file_delete_delay_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> RetentionPolicy:
        """Return the policy of a topic's settings."""
        return cls(
            deletes="delete" in config.words("cleanup.policy"),
            retention_ms=config.whole("retention.ms"),
            retention_bytes=config.whole("retention.bytes"),
            segment_bytes=config.whole("segment.bytes"),
            segment_ms=config.whole("segment.ms"),
            file_delete_delay_ms=config.whole("file.delete.delay.ms"),
        )


def retained_start(
    view: PartitionView,
    policy: RetentionPolicy,
    now_ms: int,
    written: WrittenTime = just_written,
) -> int:
    """Return the log start offset that the policy requires; never below the present one.

    Args:
        `view`: of the partition.
        `policy`: of its topic.
        `now_ms`: the time now.
        `written`: returns the write time of an object whose records have no usable timestamp.
    """
    start = view.log_start_offset
    if not policy.deletes:
        return start
    start = max(start, _beyond_size(view.entries, policy))
    kept = [e for e in view.entries if e.end_offset > start]
    return max(start, _expired(kept, policy, now_ms, written))


def raise_to_retained(
    policy: RetentionPolicy, now_ms: int, written: WrittenTime = just_written
) -> Plan:
    """Plan to delete the records that are beyond the policy at `now_ms`."""

    def plan(view: PartitionView) -> Manifest | None:
        start = retained_start(view, policy, now_ms, written)
        for one in open_references(view):
            if one.base_offset < start < one.end_offset:
                start = one.base_offset
        if start <= view.log_start_offset:
            return None
        return with_start(view, start)

    return plan


def has_rolled(
    entry: Entry, policy: RetentionPolicy, now_ms: int, written: WrittenTime = just_written
) -> bool:
    """Return True if a growing file in the segment's place would accept no more records."""
    is_old = entry.rows > 0 and now_ms - oldest_ms(entry, written) >= policy.segment_ms
    return is_old or entry.size_bytes >= policy.segment_bytes


def _expired(
    entries: Sequence[Entry], policy: RetentionPolicy, now_ms: int, written: WrittenTime
) -> int:
    """Return the offset of the first record that is not expired; 0 if none is expired."""
    end = 0
    if policy.retention_ms == NO_LIMIT:
        return end
    limit_ms = now_ms - policy.retention_ms
    for at, entry in enumerate(entries):
        if not entry.rows:
            continue
        is_newest = at + 1 == len(entries)
        if newest_ms(entry, written) >= limit_ms:
            break
        if is_newest and not has_rolled(entry, policy, now_ms, written):
            break
        end = entry.end_offset
    return end


def _beyond_size(entries: Sequence[Entry], policy: RetentionPolicy) -> int:
    """Return the offset of the first record that fits into `retention.bytes`; 0 if all do."""
    end = 0
    if policy.retention_bytes == NO_LIMIT:
        return end
    excess = sum(e.size_bytes for e in entries) - policy.retention_bytes
    for entry in entries:
        if excess < entry.size_bytes:
            break
        excess -= entry.size_bytes
        end = entry.end_offset
    return end
