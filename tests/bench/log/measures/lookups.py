"""Requests and bytes, counted by the store: one record by offset and by time, and a small range.

Nothing is timed here. The partition is built twice, a tenth the size the first time, because what
matters is that the figures stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparklog import Log, PartitionLog, open_log
from sparklog.store.retrying import RetryingStore
from tests.bench.common.plan import SEED
from tests.bench.common.results import Measure, Results, progress
from tests.bench.common.targets import CostAtMost
from tests.bench.log.plan import LogPlan

TOPIC = "lookups"
FIRST_MS = 1_700_000_000_000
VALUE_BYTES = 16
GROUP = "lookups"
RANGE_SHARE = 0.01
RANGE_SHARE_MAX = 0.015
LONGEST_TAIL = 31
"""One more segment and an appender takes the tail into the manifest."""


@dataclass(frozen=True)
class Cost:
    """Requests that the store counted."""

    requests: int
    bytes_read: int


@dataclass(frozen=True)
class Built:
    """A partition with its size."""

    root: str
    rows: int
    bytes: int


Lookup = Callable[[PartitionLog, int], None]


def measure_lookups(plan: LogPlan, folder: Path, results: Results) -> None:
    """Count what lookups cost in a partition and in one ten times its size."""
    segments = plan.lookup_segments
    rows_each = plan.lookup_rows // segments
    tenth = build(folder / "tenth", segments // 10, rows_each)
    whole = build(folder / "whole", segments, rows_each)
    cold = {"by offset": _by_offset, "by timestamp": _by_time}
    for name, lookup in cold.items():
        for state, warm in (("cold", False), ("warm", True)):
            before = _cost(tenth, lookup, warm=warm).requests
            now = _cost(whole, lookup, warm=warm).requests
            same = CostAtMost(before, "requests", f"as with {segments // 10} segments")
            title = f"one record {name}, {state}, {segments} segments"
            results.add(Measure(title, "requests", (same,), GROUP), "sparklog", now)
    _measure_ranges(whole, results)
    _lengthen_tail(whole, rows_each)
    for name, lookup in cold.items():
        title = f"one record {name}, cold, tail of {LONGEST_TAIL} segments"
        cost = _cost(whole, lookup, warm=False)
        results.add(Measure(title, "requests", (), GROUP), "sparklog", cost.requests)


def build(folder: Path, segments: int, rows_each: int) -> Built:
    """Append the segments one by one, and take the tail into the manifest."""
    root = folder.as_uri()
    progress(f"building a partition of {segments} segments, {segments * rows_each:,} records")
    with open_log(root) as log:
        log.create_topic(TOPIC)
        partition = log.partition(TOPIC, 0)
        for segment in range(segments):
            partition.append([_records(segment * rows_each, rows_each)])
        partition.absorb_tail()
    stored = sum(f.stat().st_size for f in folder.glob(f"topics/{TOPIC}~*/0/log/*"))
    return Built(root, segments * rows_each, stored)


def _records(first: int, count: int) -> pa.RecordBatch:
    """Return records whose timestamp is their offset in milliseconds after the first."""
    data = np.random.default_rng(SEED + first).bytes(count * VALUE_BYTES)
    times = pa.array(np.arange(first, first + count) + FIRST_MS)
    ends = np.arange(0, len(data) + 1, VALUE_BYTES, dtype=np.int32)
    values = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.RecordBatch.from_arrays(
        [
            times.cast(pa.timestamp("ms", tz="UTC")),
            pa.Array.from_buffers(pa.binary(), count, values),
        ],
        ["timestamp", "value"],
    )


def _cost(built: Built, lookup: Lookup, *, warm: bool) -> Cost:
    """Return what one lookup costs: opening the log included, or with everything known."""
    with open_log(built.root) as log:
        wanted = built.rows // 3 + 17
        if warm:
            lookup(log.partition(TOPIC, 0), built.rows // 2)
        before = _counted(log)
        lookup(log.partition(TOPIC, 0), wanted)
        after = _counted(log)
    return Cost(after.requests - before.requests, after.bytes_read - before.bytes_read)


def _counted(log: Log) -> Cost:
    store = log.store
    assert isinstance(store, RetryingStore), "a log opened by its root counts its requests"
    kinds = store.counters.by_kind()
    requests = sum(count.requests for count in kinds.values())
    return Cost(requests, kinds["get"].bytes if "get" in kinds else 0)


def _by_offset(partition: PartitionLog, offset: int) -> None:
    (batch,) = partition.read(offset, offset + 1, ("offset", "timestamp", "value"))
    (row,) = batch.to_pylist()
    assert row["offset"] == offset, f"asked for {offset}, got {row}"
    at_ms = round(row["timestamp"].timestamp() * 1000)
    assert at_ms == FIRST_MS + offset, f"another record's timestamp: {row}"


def _by_time(partition: PartitionLog, offset: int) -> None:
    found = partition.offset_for_time(FIRST_MS + offset)
    assert found is not None, f"no record at that time: {offset}"
    assert found.offset == offset, f"asked for the time of {offset}, got {found}"
    _by_offset(partition, found.offset)


def _measure_ranges(whole: Built, results: Results) -> None:
    count = int(whole.rows * RANGE_SHARE)
    first = whole.rows // 3 + 17

    def read(partition: PartitionLog, offset: int) -> None:
        rows = sum(batch.num_rows for batch in partition.read(offset, offset + count))
        results.check_equal("a range holds its records", rows, count)

    def count_only(partition: PartitionLog, offset: int) -> None:
        batches = partition.read(offset, offset + count, ("offset",))
        results.check_equal("a counted range holds its records", sum(map(len, batches)), count)

    assert first + count <= whole.rows, "the range lies within the log"
    share = _cost(whole, read, warm=True).bytes_read / whole.bytes
    limit = CostAtMost(RANGE_SHARE_MAX * 100, "%")
    measure = Measure("bytes touched by a 1 % offset range", "%", (limit,), GROUP)
    results.add(measure, "sparklog", share * 100)
    body = _cost(whole, count_only, warm=True)
    measure = Measure(
        "bytes read to count a 1 % offset range", "bytes", (CostAtMost(0, "bytes"),), GROUP
    )
    results.add(measure, "sparklog", body.bytes_read)


def _lengthen_tail(built: Built, rows_each: int) -> None:
    with open_log(built.root) as log:
        partition = log.partition(TOPIC, 0)
        for segment in range(LONGEST_TAIL):
            partition.append([_records(built.rows + segment * rows_each, rows_each)])
