"""Cutting what is to be read into tasks. Pure.

`minPartitions` and `maxRecordsPerPartition` cut as Spark's Kafka source does, by offsets. Without
them tasks are cut by the bytes they read: unlike a broker, the store serves one partition to many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparklog.core.types import OffsetRange, TopicPartition
from sparklog.log.manifest.manifest import Entry
from sparklog.spark.source.readable_partition import ReadablePartition

TASK_BYTES_MAX = 128 << 20
"""Stored bytes of a task: what Spark's file sources take (`spark.sql.files.maxPartitionBytes`)."""
TASK_BYTES_MIN = 16 << 20
"""Below this a task's start costs more than what it saves."""
TASK_ROWS_MAX = 2_000_000
COUNTED_ROWS_MAX = 32_000_000
"""Rows of a task that reads no records, only where they are."""
TASKS_WANTED = 4
"""Number of tasks of a read while they stay between the two sizes. The planner does not know how
many cores there are; this keeps a laptop busy, and the largest size a cluster. Each further task
costs some 40 ms of a core. With 16 tasks instead of 4 a read of 0.5 GB takes 1.5 times longer.
"""


@dataclass(frozen=True, slots=True)
class Task:
    """One task's share: some offsets of one partition."""

    place: TopicPartition
    offsets: OffsetRange


def split(
    ranges: Mapping[TopicPartition, OffsetRange],
    views: Mapping[TopicPartition, ReadablePartition],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    counted: bool = False,
) -> list[Task]:
    """Return the tasks that read `ranges`, each range whole, in order, without overlap.

    `counted`: the tasks need offsets only, which cost no reading.
    """
    tasks = [Task(place, offsets) for place, offsets in sorted(ranges.items()) if len(offsets)]
    if min_partitions is None and max_records is None:
        if counted:
            return [
                part
                for task in tasks
                for part in _evenly(task, -(-len(task.offsets) // COUNTED_ROWS_MAX))
            ]
        return _by_bytes(tasks, views)
    if max_records is not None:
        tasks = [
            part for task in tasks for part in _evenly(task, -(-len(task.offsets) // max_records))
        ]
    if min_partitions is not None and len(tasks) < min_partitions:
        tasks = _at_least(tasks, min_partitions)
    return tasks


def _at_least(tasks: Sequence[Task], wanted: int) -> list[Task]:
    """Cut the large tasks so that there are about `wanted`, as Spark's Kafka source does."""
    total = sum(len(task.offsets) for task in tasks)
    small = {task for task in tasks if _share(task, total, wanted) == 1}
    rest = total - sum(len(task.offsets) for task in small)
    wanted_rest = max(wanted - len(small), 1)
    return [
        part
        for task in tasks
        for part in _evenly(task, 1 if task in small else _share(task, rest, wanted_rest))
    ]


def _share(task: Task, total: int, wanted: int) -> int:
    # As Java rounds: halves up.
    return max(math.floor(len(task.offsets) / total * wanted + 0.5), 1)


def _evenly(task: Task, parts: int) -> Iterable[Task]:
    low, remaining = task.offsets.base_offset, len(task.offsets)
    for part in range(parts):
        size = remaining // (parts - part)
        remaining -= size
        if size:
            yield Task(task.place, OffsetRange(low, low + size))
        low += size


def _by_bytes(
    tasks: Sequence[Task], views: Mapping[TopicPartition, ReadablePartition]
) -> list[Task]:
    covered = [views[t.place].covering(t.offsets.base_offset, t.offsets.end_offset) for t in tasks]
    weights = [
        [_part_of(entry, task.offsets) for entry in entries]
        for task, entries in zip(tasks, covered, strict=True)
    ]
    total = sum(size for sizes in weights for size, _ in sizes)
    task_bytes = min(max(total / TASKS_WANTED, TASK_BYTES_MIN), TASK_BYTES_MAX)
    found: list[Task] = []
    for task, entries, sizes in zip(tasks, covered, weights, strict=True):
        size_bytes = sum(size for size, _ in sizes)
        rows = sum(rows for _, rows in sizes)
        parts = max(math.ceil(rows / TASK_ROWS_MAX), round(size_bytes / task_bytes), 1)
        cuts = _cuts(entries, task.offsets, [s for s, _ in sizes], parts)
        found.extend(
            Task(task.place, OffsetRange(low, high)) for low, high in pairwise(cuts) if low < high
        )
    return found


def _part_of(entry: Entry, offsets: OffsetRange) -> tuple[float, float]:
    """Return the bytes and rows of an entry that lie in a range, taken as spread evenly."""
    low = max(entry.base_offset, offsets.base_offset)
    high = min(entry.end_offset, offsets.end_offset)
    part = (high - low) / (entry.end_offset - entry.base_offset)
    return entry.size_bytes * part, entry.rows * part


def _cuts(
    entries: Sequence[Entry], offsets: OffsetRange, sizes: Sequence[float], parts: int
) -> list[int]:
    """Return `parts` + 1 offsets between which about the same number of bytes lie.

    Records that no segment holds yet go to the last part: they are few, and one broker has them.
    """
    cuts = [offsets.base_offset]
    each = sum(sizes) / parts
    passed = 0.0
    for entry, size in zip(entries, sizes, strict=True):
        low = max(entry.base_offset, offsets.base_offset)
        high = min(entry.end_offset, offsets.end_offset)
        while len(cuts) < parts and passed + size >= each * len(cuts):
            within = (each * len(cuts) - passed) / size if size else 0.0
            cuts.append(low + round((high - low) * within))
        passed += size
    return [*cuts, offsets.end_offset]
