"""A new leader knows the producers that the old one knew, from a snapshot or without one."""

from __future__ import annotations

import pytest

from sparklog.core.errors import Unavailable
from sparklog.log.effects import Effect, GetMany, Program, Result
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.tail.producer_rebuild import replay_batch, snapshot
from sparklog.log.tail.producer_snapshot import decode, load_producers, save_producers
from sparklog.log.tail.producer_state import ProducerStates
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.header import parse_header
from sparklog.store.memory import MemoryStore
from tests.harness.counted_requests import run_noting
from tests.harness.wire_batches import produced

LAYOUT = PartitionLayout("flights", "A" * 22, 0)
NOW_MS = 1_000


class Leader:
    """Flushes producers' batches one by one, and knows what a leader would know."""

    def __init__(self) -> None:
        """Take the lead of an empty partition."""
        self.store = MemoryStore("memory://producers")
        self.effects: list[Effect] = []
        self.states = ProducerStates()
        self.view = self.run(take_leadership(PartitionView(LAYOUT), 1, "a" * 32))

    def run(self, protocol: Program[Result]) -> Result:
        return run_noting(protocol, self.store, self.effects)

    def flush(self, *batches: bytes) -> None:
        draft = build_flush(LAYOUT, batches, "b" * 32, codec="none")
        self.view = self.run(flush_at(self.view, draft, 1))
        for batch in batches:
            replay_batch(self.states, batch, NOW_MS)

    def produce(self, producer: int, sequence: int, *, transactional: bool = False) -> bytes:
        made = produced(
            [1] * 2,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=transactional,
            base_offset=self.view.end_offset,
            leader_epoch=1,
        )
        return bytes(made.data)

    def abort(self, producer: int) -> bytes:
        return encode_end_transaction(
            EndTransactionMarker(is_commit=False, coordinator_epoch=2),
            base_offset=self.view.end_offset,
            timestamp_ms=5,
            producer_id=producer,
            producer_epoch=0,
            leader_epoch=1,
        )

    def save(self) -> None:
        document = snapshot(self.states)
        self.run(save_producers(LAYOUT, self.view.end_offset, document))

    def absorb(self) -> None:
        self.view = self.run(change(self.view, absorb_tail(1, 0), "c" * 32))

    def loaded(self) -> ProducerStates:
        return self.run(load_producers(self.view, NOW_MS))

    @property
    def objects_read(self) -> int:
        return sum(len(e.ranges) for e in self.effects if isinstance(e, GetMany))


@pytest.fixture
def leader() -> Leader:
    one = Leader()
    for turn in range(3):
        one.flush(one.produce(7, 2 * turn))
        one.flush(one.produce(8, 2 * turn, transactional=True))
    one.flush(one.abort(8))
    one.flush(one.produce(8, 6, transactional=True))
    return one


def check_same(leader: Leader) -> None:
    again = leader.loaded()
    assert snapshot(again) == snapshot(leader.states)
    assert again.transactions.open() == [(8, leader.view.end_offset - 2)]
    assert len(again.transactions.aborted) == 1
    retried = parse_header(leader.produce(7, 4))
    assert again.check(retried) is not None


def test_producers_load_from_all_segments_without_a_snapshot(leader: Leader) -> None:
    check_same(leader)
    leader.absorb()
    check_same(leader)
    leader.loaded()
    assert leader.objects_read == len(leader.view.entries)


@pytest.mark.parametrize("absorbed", [False, True])
def test_snapshot_spares_reading_earlier_segments(leader: Leader, absorbed: bool) -> None:
    leader.save()
    leader.flush(leader.produce(7, 6))
    if absorbed:
        leader.absorb()
    again = leader.loaded()
    assert snapshot(again) == snapshot(leader.states)
    assert leader.objects_read == (2 if absorbed else 0), "the snapshot, and a footer after it"


def test_a_snapshot_within_a_segment_is_not_counted_twice() -> None:
    leader = Leader()
    first = leader.produce(7, 0)
    second = bytes(
        produced(
            [1] * 2,
            producer_id=7,
            producer_epoch=0,
            base_sequence=2,
            base_offset=leader.view.end_offset + 2,
            leader_epoch=1,
        ).data
    )
    early = ProducerStates()
    replay_batch(early, first, NOW_MS)
    leader.flush(first, second)
    leader.run(save_producers(LAYOUT, leader.view.end_offset - 2, snapshot(early)))
    assert snapshot(leader.loaded()) == snapshot(leader.states)


@pytest.mark.parametrize("spoiled", [b"", b"{}", b"[1]", b'{"format": 1, "body": "{}"}'])
def test_a_snapshot_that_cannot_be_read_is_passed_over(leader: Leader, spoiled: bytes) -> None:
    leader.store.put(LAYOUT.key(LAYOUT.snapshot_name(leader.view.end_offset)), spoiled)
    check_same(leader)


def test_a_changed_snapshot_is_not_believed(leader: Leader) -> None:
    leader.save()
    key = LAYOUT.key(LAYOUT.snapshot_name(leader.view.end_offset))
    data = leader.store.get(key)
    assert decode(data, leader.view.end_offset) is not None
    assert decode(data, leader.view.end_offset + 1) is None
    changed = data.replace(b"[[7,0,", b"[[9,0,")
    assert changed != data
    assert decode(changed, leader.view.end_offset) is None


def test_a_snapshot_beyond_the_view_is_of_a_later_leader(leader: Leader) -> None:
    view = leader.view
    leader.flush(leader.produce(7, 6))
    leader.save()
    states = leader.run(load_producers(view, NOW_MS))
    assert states.check(parse_header(leader.produce(7, 6))) is None


def test_old_snapshots_are_deleted(leader: Leader) -> None:
    for turn in range(4):
        leader.flush(leader.produce(7, 6 + 2 * turn))
        leader.save()
    kept = [LAYOUT.snapshot_end(info.key) for info in leader.store.list(LAYOUT.snapshot_prefix)]
    assert kept == [leader.view.end_offset - 2, leader.view.end_offset]


def test_an_object_that_was_replaced_is_looked_for_again(leader: Leader) -> None:
    leader.absorb()
    leader.store.delete(LAYOUT.key(leader.view.manifest.entries[1].object))
    with pytest.raises(Unavailable, match="look again"):
        leader.loaded()
