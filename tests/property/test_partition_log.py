"""The partition log against a plain Python list, in any order of operations."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparklog.core.errors import OffsetOutOfRange
from sparklog.log.partition.partition_log import LogConfig, PartitionLog
from sparklog.log.segment.segment import CommitKey, Reference
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch

RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=8),
        st.none() | st.binary(max_size=12),
        st.integers(0, 1000),
    ),
    min_size=1,
    max_size=5,
)
Record = tuple[bytes | None, bytes | None, int]


class PartitionLogAgainstAList(RuleBasedStateMachine):
    """Several openings of one partition must all show the same records."""

    @initialize(codec=st.sampled_from(["none", "lz4", "zstd"]), tail=st.integers(1, 5))
    def start(self, codec: str, tail: int) -> None:
        self.store = MemoryStore("stateful")
        self.config = LogConfig(codec=codec, tail_segments_max=tail)
        self.logs = [PartitionLog(self.store, LAYOUT, self.config) for _ in range(3)]
        self.records: list[Record] = []
        self.log_start = 0
        self.staged: list[tuple[Reference, list[Record]]] = []
        self.sequence = 0
        self.last_commit: tuple[int, int] | None = None

    @rule(which=st.integers(0, 2), records=RECORDS)
    def append(self, which: int, records: list[Record]) -> None:
        done = self.logs[which].append([_batch(records)])
        assert (done.base_offset, done.end_offset) == self._took(records)

    @rule(which=st.integers(0, 2), records=RECORDS)
    def commit_twice(self, which: int, records: list[Record]) -> None:
        key = CommitKey("query", self.sequence)
        self.sequence += 1
        first = self.logs[which].append([_batch(records)], key=key)
        assert (first.base_offset, first.end_offset) == self._took(records)
        again = self.logs[(which + 1) % 3].append([_batch(records)], key=key)
        assert again.repeated
        assert again.base_offset == first.base_offset

    @rule(which=st.integers(0, 2), records=RECORDS)
    def stage(self, which: int, records: list[Record]) -> None:
        self.staged.append((self.logs[which].stage([_batch(records)]), records))

    @rule(which=st.integers(0, 2))
    def append_staged(self, which: int) -> None:
        if not self.staged:
            return
        done = self.logs[which].append_staged([reference for reference, _ in self.staged])
        records = [r for _, some in self.staged for r in some]
        assert (done.base_offset, done.end_offset) == self._took(records)
        self.staged = []

    @rule(which=st.integers(0, 2), share=st.floats(0, 1))
    def delete_records(self, which: int, share: float) -> None:
        before = int(share * len(self.records))
        self.log_start = max(self.log_start, before)
        assert self.logs[which].delete_records(before) == self.log_start

    @rule(which=st.integers(0, 2))
    def absorb(self, which: int) -> None:
        self.logs[which].absorb_tail()

    @rule(which=st.integers(0, 2))
    def reopen(self, which: int) -> None:
        self.logs[which] = PartitionLog(self.store, LAYOUT, self.config)

    @rule(which=st.integers(0, 2), ends=st.tuples(st.integers(0, 30), st.integers(0, 30)))
    def read(self, which: int, ends: tuple[int, int]) -> None:
        low, high = sorted(ends)
        log = self.logs[which]
        log.view()
        if low < self.log_start or high > len(self.records):
            with pytest.raises(OffsetOutOfRange):
                list(log.read(low, high))
            return
        assert _read(log, low, high) == [
            (low + i, *r) for i, r in enumerate(self.records[low:high])
        ]

    @rule(which=st.integers(0, 2), timestamp_ms=st.integers(-1, 1001))
    def find_time(self, which: int, timestamp_ms: int) -> None:
        expected = next(
            (
                (at, stamp)
                for at, (_, _, stamp) in enumerate(self.records)
                if at >= self.log_start and stamp >= timestamp_ms
            ),
            None,
        )
        found = self.logs[which].offset_for_time(timestamp_ms)
        assert (found and (found.offset, found.timestamp_ms)) == expected

    @invariant()
    def a_newcomer_sees_everything(self) -> None:
        log = PartitionLog(self.store, LAYOUT, self.config)
        view = log.view()
        assert (view.log_start_offset, view.end_offset) == (self.log_start, len(self.records))
        assert _read(log, self.log_start, len(self.records)) == [
            (self.log_start + i, *r) for i, r in enumerate(self.records[self.log_start :])
        ]

    def _took(self, records: list[Record]) -> tuple[int, int]:
        base = len(self.records)
        self.records.extend(records)
        return base, len(self.records)


def _batch(records: list[Record]) -> object:
    return batch(
        [value for _, value, _ in records],
        keys=[key for key, _, _ in records],
        timestamps_ms=[stamp for _, _, stamp in records],
    )


def _read(
    log: PartitionLog, low: int, high: int
) -> list[tuple[int, bytes | None, bytes | None, int]]:
    found: list[tuple[int, bytes | None, bytes | None, int]] = []
    for one in log.read(low, high, ("offset", "key", "value", "timestamp")):
        columns = [one.column(i) for i in range(3)]
        stamps = one.column(3).cast("int64")
        found.extend(zip(*(c.to_pylist() for c in (*columns, stamps)), strict=True))
    return found


TestPartitionLogAgainstAList = PartitionLogAgainstAList.TestCase
