"""A tail against a plain list of batches: appends, reads, cuts at both ends, epochs, timestamps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.core.errors import DataCorrupt, OffsetOutOfRange
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.log.tail.tail import NO_LEADER_EPOCH, NO_OFFSET, Tail
from sparklog.protocol.records.header import parse_header
from sparklog.protocol.records.record_batch import decode
from tests.harness.tail_lookups import find_timestamp, max_timestamp
from tests.harness.wire_batches import produced

timestamp_lists = st.lists(st.integers(0, 40), min_size=1, max_size=4)
share = st.integers(0, 8).map(lambda eighths: eighths / 8)


@dataclass(frozen=True)
class Kept:
    """One batch of the model."""

    base: int
    end: int
    epoch: int
    data: bytes
    records: tuple[tuple[int, int], ...]
    """(offset, timestamp) of each."""


class TailMachine(RuleBasedStateMachine):
    """The model is a list of batches and a list of (epoch, first offset)."""

    @initialize(start=st.integers(0, 1_000))
    def begin(self, start: int) -> None:
        self.tail = Tail(start)
        self.kept: list[Kept] = []
        self.start = start
        self.epochs: list[tuple[int, int]] = []
        self.epoch = 1

    @property
    def end(self) -> int:
        return self.kept[-1].end if self.kept else self.start

    def between(self, part: float) -> int:
        return self.start + round(part * (self.end - self.start))

    def keep(self, data: bytes) -> None:
        header = parse_header(data)
        rows = decode(data).records
        stamps = [int(t.timestamp() * 1000) for t in rows.column("timestamp").to_pylist()]
        records = tuple(zip(rows.column("offset").to_pylist(), stamps, strict=True))
        if not self.epochs or self.epochs[-1][0] != header.leader_epoch:
            self.epochs.append((header.leader_epoch, header.base_offset))
        self.kept.append(
            Kept(header.base_offset, header.end_offset, header.leader_epoch, data, records)
        )

    @rule(several=st.lists(timestamp_lists, min_size=1, max_size=6))
    def append_several(self, several: list[list[int]]) -> None:
        for stamps in several:
            self.append_as_leader(stamps, None)

    @rule(stamps=timestamp_lists, append_time=st.none() | st.integers(0, 40))
    def append_as_leader(self, stamps: list[int], append_time: int | None) -> None:
        end = self.end
        data = self.tail.append_as_leader(produced(stamps), self.epoch, append_time)
        self.keep(data)
        assert self.kept[-1].base == end
        assert [at for at, _ in self.kept[-1].records] == list(range(end, end + len(stamps)))
        expected = stamps if append_time is None else [append_time] * len(stamps)
        assert [t for _, t in self.kept[-1].records] == expected

    @rule(stamps=timestamp_lists)
    def append_as_follower(self, stamps: list[int]) -> None:
        batch = produced(stamps, base_offset=self.end, leader_epoch=self.epoch)
        self.tail.append(CheckedBatch(batch.header, memoryview(batch.data)))
        self.keep(bytes(batch.data))

    @rule(off_by=st.sampled_from([-1, 1]))
    def a_batch_elsewhere_is_refused(self, off_by: int) -> None:
        batch = produced(base_offset=max(0, self.end + off_by), leader_epoch=self.epoch)
        if batch.header.base_offset != self.end:
            with pytest.raises(DataCorrupt):
                self.tail.append(batch)

    @precondition(lambda self: self.epochs)
    @rule()
    def a_batch_of_an_older_epoch_is_refused(self) -> None:
        with pytest.raises(DataCorrupt):
            self.tail.append(
                produced(base_offset=self.end, leader_epoch=self.tail.latest_epoch - 1)
            )

    @rule(by=st.integers(1, 3))
    def next_epoch(self, by: int) -> None:
        self.epoch += by
        self.tail.start_epoch(self.epoch)
        self.epochs = [(e, s) for e, s in self.epochs if s < self.end]
        self.epochs.append((self.epoch, self.end))

    @rule(part=share)
    def trim(self, part: float) -> None:
        to = self.between(part)
        self.tail.trim(to)
        gone = [one for one in self.kept if one.end <= to]
        if gone:
            self.kept = self.kept[len(gone) :]
            self.start = gone[-1].end

    @rule(part=share)
    def truncate(self, part: float) -> None:
        to = self.between(part)
        self.tail.truncate(to)
        self.kept = [one for one in self.kept if one.end <= to]
        self.epochs = [(e, s) for e, s in self.epochs if s < self.end]
        self.epoch += 1

    @rule(ahead=st.integers(0, 50))
    def reset(self, ahead: int) -> None:
        self.start = self.end + ahead
        self.tail.reset(self.start)
        self.kept, self.epochs = [], []

    @rule(part=share, max_bytes=st.integers(0, 600), limit=share, one=st.booleans())
    def read(self, part: float, max_bytes: int, limit: float, one: bool) -> None:
        offset, limit_offset = self.between(part), self.between(limit)
        expected: list[bytes] = []
        for kept in self.kept:
            if kept.end <= offset:
                continue
            fits = sum(map(len, expected)) + len(kept.data) <= max_bytes
            if kept.end > limit_offset or not (fits or (one and not expected)):
                break
            expected.append(kept.data)
        found = self.tail.read(offset, max_bytes, limit_offset, at_least_one=one)
        assert found == expected

    @rule()
    def reading_beyond_the_end_is_refused(self) -> None:
        assert self.tail.read(self.end, 1, self.end) == []
        with pytest.raises(OffsetOutOfRange):
            self.tail.read(self.end + 1, 1, self.end)

    @rule(one=share, other=share)
    def batches_of_a_range(self, one: float, other: float) -> None:
        low, high = sorted((self.between(one), self.between(other)))
        expected = [k.data for k in self.kept if k.base >= low and k.end <= high]
        assert self.tail.batches(low, high) == expected

    @rule(timestamp=st.integers(0, 45), limit=share)
    def look_up_a_timestamp(self, timestamp: int, limit: float) -> None:
        below = self.between(limit)
        records = [r for k in self.kept if k.end <= below for r in k.records]
        expected = next(((at, t) for at, t in records if t >= timestamp), None)
        found = find_timestamp(self.tail, timestamp, below)
        assert (found and found[:2]) == expected
        highest = max((t for _, t in records), default=None)
        newest = max_timestamp(self.tail, below)
        first = next(((at, t) for at, t in records if t == highest), None)
        assert (newest and newest[:2]) == first

    @rule(epoch=st.integers(0, 30))
    def where_an_epoch_ended(self, epoch: int) -> None:
        found = self.tail.end_of_epoch(epoch)
        later = [first for e, first in self.epochs if e > epoch]
        known = [e for e, _ in self.epochs if e <= epoch]
        if not later:
            is_latest = epoch in known
            assert found == ((epoch, self.end) if is_latest else (NO_LEADER_EPOCH, NO_OFFSET))
        elif later[0] >= self.start:
            assert found.end_offset == later[0]
        else:
            assert found.end_offset <= self.start
        assert found.leader_epoch <= epoch

    @invariant()
    def ends_sizes_and_epochs_agree(self) -> None:
        assert (self.tail.start_offset, self.tail.end_offset) == (self.start, self.end)
        assert len(self.tail) == len(self.kept)
        assert self.tail.size_bytes == sum(len(k.data) for k in self.kept)
        assert self.tail.latest_epoch == (self.epochs[-1][0] if self.epochs else NO_LEADER_EPOCH)
        for kept in self.kept:
            assert self.tail.epoch_at(kept.base) == kept.epoch


TestTail = TailMachine.TestCase
TestTail.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
