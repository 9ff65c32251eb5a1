"""Records of sealed write-ahead logs for the partitions that their brokers led."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import PartitionId
from sparklog.log.effects import Program, Result, run
from sparklog.log.layout import PartitionLayout, WalLayout
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.tail.to_segment import build_flush
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind, encode
from sparklog.log.wal.recovery import SealedTail, recover_batches, seal_and_read
from sparklog.log.wal.sealing import clear
from sparklog.store.memory import MemoryStore
from tests.harness.wire_batches import produced

LAYOUT = PartitionLayout("flights", "A" * 22, 0)
OTHER = PartitionLayout("flights", "A" * 22, 1)
WAL = WalLayout(1, "a" * 32)
NEXT_WAL = WalLayout(2, "b" * 32)


class Recovery:
    """A store with windows that brokers left in it."""

    def __init__(self) -> None:
        """Begin with nothing but two registrations."""
        self.store = MemoryStore("memory://recover")
        self._next = {WAL: 1, NEXT_WAL: 1}
        for wal in self._next:
            header = WalHeader(WalKind.REGISTRATION, 0, 0, "0" * 32)
            self.store.put_if_absent(wal.key(0), encode(wal, header))

    def run(self, protocol: Program[Result]) -> Result:
        return run(protocol, self.store)

    def window(self, wal: WalLayout, *batches: WalBatch, boundary: int = 0) -> None:
        header = WalHeader(WalKind.WINDOW, self._next[wal], boundary, "1" * 32)
        self.store.put_if_absent(wal.key(header.sequence), encode(wal, header, batches))
        self._next[wal] += 1

    def sealed(self, *wals: WalLayout) -> list[SealedTail]:
        return [self.run(seal_and_read(wal, "5" * 32)) for wal in wals or (WAL,)]

    def view(self, layout: PartitionLayout = LAYOUT) -> PartitionView:
        return self.run(refresh(PartitionView(layout)))

    def flush(self, *batches: WalBatch, leader_epoch: int) -> None:
        data = [batch.data for batch in batches]
        draft = build_flush(LAYOUT, data, "f" * 32, codec="none")
        self.run(flush_at(self.view(), draft, leader_epoch))

    def recovered(self, *wals: WalLayout) -> list[tuple[int, int]]:
        """Return base offset and epoch of what is recovered."""
        tails = self.sealed(*wals)
        found = recover_batches(tails, self.view())
        return [(batch.base_offset, batch.leader_epoch) for batch in found]


@pytest.fixture
def recovery() -> Recovery:
    return Recovery()


def taken(base_offset: int, count: int = 2, epoch: int = 1, partition: int = 0) -> WalBatch:
    made = produced([1_000] * count, base_offset=base_offset, leader_epoch=epoch)
    return WalBatch(LAYOUT.topic_id, partition, base_offset, epoch, bytes(made.data))


def test_each_partition_gets_its_own_batches_of_a_log_read_once(recovery: Recovery) -> None:
    recovery.window(WAL, taken(0), taken(0, partition=1))
    recovery.window(WAL, taken(2), taken(2, partition=1), taken(4))
    tails = recovery.sealed()
    assert [b.base_offset for b in recover_batches(tails, recovery.view())] == [0, 2, 4]
    assert [b.base_offset for b in recover_batches(tails, recovery.view(OTHER))] == [0, 2]
    assert set(tails[0].batches) == {PartitionId("A" * 22, 0), PartitionId("A" * 22, 1)}
    assert tails[0].size_bytes == sum(len(b.data) for bs in tails[0].batches.values() for b in bs)


def test_flushed_batches_are_left_out(recovery: Recovery) -> None:
    batches = [taken(0), taken(2), taken(4)]
    recovery.run(take_leadership(PartitionView(LAYOUT), 1, "d" * 32))
    for batch in batches:
        recovery.window(WAL, batch)
    recovery.flush(*batches[:2], leader_epoch=1)
    assert recovery.recovered() == [(4, 1)]
    recovery.flush(batches[2], leader_epoch=2)
    assert recovery.recovered() == []


def test_recovered_batches_are_ordered_by_epoch_not_by_log(recovery: Recovery) -> None:
    recovery.window(WAL, taken(0, epoch=1))
    recovery.window(NEXT_WAL, taken(2, epoch=2))
    recovery.window(WAL, taken(4, epoch=3))
    assert recovery.recovered(WAL, NEXT_WAL) == [(0, 1), (2, 2), (4, 3)]
    assert recovery.recovered(NEXT_WAL, WAL) == [(0, 1), (2, 2), (4, 3)]


def test_records_beyond_the_successors_start_are_left_out(
    recovery: Recovery,
) -> None:
    recovery.window(WAL, taken(0, epoch=1), taken(2, epoch=1), taken(4, epoch=1))
    recovery.window(NEXT_WAL, taken(2, epoch=2))
    assert recovery.recovered(WAL, NEXT_WAL) == [(0, 1), (2, 2)]


def test_the_partitions_log_knows_of_successors_too(recovery: Recovery) -> None:
    recovery.window(WAL, taken(0, epoch=1), taken(2, epoch=1))
    recovery.flush(taken(0, epoch=1), leader_epoch=1)
    recovery.run(take_leadership(PartitionView(LAYOUT), 2, "d" * 32))
    assert recovery.recovered() == []


def test_a_hole_is_damage(recovery: Recovery) -> None:
    recovery.window(WAL, taken(2))
    with pytest.raises(DataCorrupt, match=r"leave a hole.*expected_offset=0 base_offset=2"):
        recovery.recovered()
    recovery.flush(taken(0, count=1), leader_epoch=1)
    with pytest.raises(DataCorrupt, match="leave a hole"):
        recovery.recovered()


def test_batches_of_one_epoch_at_one_offset_are_damage(recovery: Recovery) -> None:
    recovery.window(WAL, taken(0), taken(0, count=3))
    with pytest.raises(DataCorrupt, match="two batches for the same offset"):
        recovery.recovered()


def test_batch_that_contradicts_its_row_is_damage(recovery: Recovery) -> None:
    recovery.window(WAL, taken(0)._replace(base_offset=3))
    with pytest.raises(DataCorrupt, match="not what its row says"):
        recovery.recovered()


def test_a_log_that_was_cleared_leaves_nothing(recovery: Recovery) -> None:
    recovery.window(WAL, taken(0))
    (tail,) = recovery.sealed()
    recovery.flush(taken(0), leader_epoch=1)
    recovery.run(clear(WAL, tail.sealed))
    assert recovery.sealed()[0].batches == {}
    assert recovery.recovered() == []
