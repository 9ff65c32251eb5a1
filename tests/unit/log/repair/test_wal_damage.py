"""Damaged objects of sealed write-ahead logs: what is at stake, and the log after consent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.core.types import OffsetRange, PartitionId
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import Program, Result, run
from sparklog.log.layout import PartitionLayout, WalLayout
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.repair.wal_damage import (
    ASIDE_SUFFIX,
    DamagedWal,
    WaitingPartition,
    find_damage,
    give_up,
)
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind, encode
from sparklog.log.wal.recovery import recover_batches, seal_and_read
from sparklog.log.wal.sealing import seal
from sparklog.store.memory import MemoryStore
from tests.harness.wire_batches import produced

TOPIC_ID = "A" * 22
WAL = WalLayout(1, "a" * 32)
EPOCH = 1
FIRST, OTHER, IDLE = (PartitionLayout("orders", TOPIC_ID, number) for number in range(3))
WAITING = [WaitingPartition(layout, (WAL,), EPOCH + 1) for layout in (FIRST, OTHER, IDLE)]
ENCODING = Encoding("lz4")


def batch(layout: PartitionLayout, base_offset: int) -> WalBatch:
    made = produced([1_000] * 2, base_offset=base_offset, leader_epoch=EPOCH)
    return WalBatch(TOPIC_ID, layout.partition, base_offset, EPOCH, bytes(made.data))


class Damaged:
    """A sealed log of four windows. The second has batches of two partitions."""

    def __init__(self) -> None:
        self.store = MemoryStore("damaged")
        windows = [
            [],
            [batch(FIRST, 0), batch(IDLE, 0)],
            [batch(FIRST, 2), batch(OTHER, 0)],
            [batch(FIRST, 4)],
            [batch(FIRST, 6), batch(IDLE, 2)],
        ]
        for sequence, batches in enumerate(windows):
            kind = WalKind.WINDOW if sequence else WalKind.REGISTRATION
            acknowledged = sequence - 1 if sequence else -1
            header = WalHeader(kind, sequence, 0, "1" * 32, acknowledged=acknowledged)
            self.store.put_if_absent(WAL.key(sequence), encode(WAL, header, batches))
        for one in WAITING:
            self.run(take_leadership(self.view(one.layout), EPOCH, "2" * 32))
        self.run(seal(WAL, "3" * 32))

    def run(self, protocol: Program[Result]) -> Result:
        return run(protocol, self.store)

    def view(self, layout: PartitionLayout) -> PartitionView:
        return self.run(refresh(PartitionView(layout)))

    def harm(self, sequence: int, kind: str) -> None:
        data = self.store.get(WAL.key(sequence))
        self.store.delete(WAL.key(sequence))
        if kind == "flipped":
            at = len(data) // 3
            self.store.put_if_absent(
                WAL.key(sequence), data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            )
        elif kind == "truncated":
            self.store.put_if_absent(WAL.key(sequence), data[: len(data) // 2])

    def found(self) -> DamagedWal:
        (damaged,) = self.run(find_damage(WAITING))
        return damaged

    def stakes(self) -> list[tuple[int, int, int, bool]]:
        return [
            (s.waiting.layout.partition, s.base_offset, s.end_offset, s.end_known)
            for s in self.found().stakes
        ]

    def give_up(self, **ends: tuple[int, int]) -> None:
        ranges = {
            PartitionId(TOPIC_ID, layout.partition): [OffsetRange(*ends[name])]
            for name, layout in (("first", FIRST), ("other", OTHER))
            if name in ends
        }
        self.run(give_up(self.found(), ranges, ENCODING, nonces()))

    def recovered(self, layout: PartitionLayout) -> list[int]:
        tails = [self.run(seal_and_read(WAL, "4" * 32))]
        return [one.base_offset for one in recover_batches(tails, self.view(layout))]

    def offsets(self, layout: PartitionLayout) -> list[int]:
        view = self.view(layout)
        opened = PartitionLog(self.store, layout)
        return [
            offset
            for rows in opened.read(0, view.end_offset, ("offset",), view=view)
            for offset in rows.column("offset").to_pylist()
        ]


def nonces() -> Iterator[str]:
    return (f"{number:032x}" for number in count(100))


@pytest.fixture
def damaged() -> Damaged:
    return Damaged()


def test_whole_log_has_no_damage(damaged: Damaged) -> None:
    assert damaged.run(find_damage(WAITING)) == []


@pytest.mark.parametrize("kind", ["flipped", "truncated", "missing"])
def test_damage_names_the_object_and_the_offsets_at_stake(damaged: Damaged, kind: str) -> None:
    damaged.harm(2, kind)
    assert damaged.found().objects == (WAL.key(2),)
    assert damaged.found().acknowledged == 3
    assert damaged.stakes() == [(0, 2, 4, True), (1, 0, 1, False)]
    with pytest.raises(DataCorrupt):
        damaged.recovered(FIRST)


@pytest.mark.parametrize("kind", ["flipped", "truncated", "missing"])
def test_partitions_serve_again_after_consent_and_no_offset_returns(
    damaged: Damaged, kind: str
) -> None:
    damaged.harm(2, kind)
    bytes_before = None if kind == "missing" else damaged.store.get(WAL.key(2))
    damaged.give_up(first=(2, 4), other=(0, 50))
    assert damaged.offsets(FIRST) == [0, 1, 4, 5, 6, 7]
    assert damaged.view(OTHER).end_offset == 50, "the next record is beyond all that were read"
    assert damaged.run(find_damage(WAITING)) == []
    assert damaged.recovered(FIRST) == damaged.recovered(OTHER) == []
    assert damaged.recovered(IDLE) == [0, 2], "nothing of it was in the damaged window"
    aside = [info.key for info in damaged.store.list("wal/") if info.key.endswith(ASIDE_SUFFIX)]
    assert aside == ([] if kind == "missing" else [WAL.key(2) + ASIDE_SUFFIX])
    if bytes_before is not None:
        assert damaged.store.get(aside[0]) == bytes_before


@pytest.mark.parametrize(
    "ends",
    [{}, {"first": (2, 4)}, {"first": (2, 5), "other": (0, 9)}, {"first": (0, 4), "other": (0, 9)}],
)
def test_partial_or_wrong_consent_changes_nothing(
    damaged: Damaged, ends: dict[str, tuple[int, int]]
) -> None:
    damaged.harm(2, "flipped")
    before = {info.key: damaged.store.get(info.key) for info in damaged.store.list("")}
    with pytest.raises(InvalidRequest, match="given up together"):
        damaged.give_up(**ends)
    assert {info.key: damaged.store.get(info.key) for info in damaged.store.list("")} == before


def test_damaged_seal_is_replaced_and_the_log_sealed_again(damaged: Damaged) -> None:
    damaged.harm(5, "truncated")
    assert damaged.found().objects == (WAL.key(5),)
    ends = {
        PartitionId(TOPIC_ID, number): [OffsetRange(base, base + 10)]
        for number, base, _, _ in damaged.stakes()
    }
    assert [base for _, base, _, _ in damaged.stakes()] == [8, 2, 4]
    damaged.run(give_up(damaged.found(), ends, ENCODING, nonces()))
    assert damaged.recovered(FIRST) == []
    assert damaged.view(FIRST).end_offset == 18
