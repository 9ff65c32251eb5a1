"""State of a partition's producers: cases that lists do not show."""

from __future__ import annotations

import json

import pytest

from sparklog.core.errors import (
    DataCorrupt,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from sparklog.core.types import NO_TIMESTAMP_MS
from sparklog.log.segment.segment import Marker, ProducerBatch, Segment
from sparklog.log.tail.producer_rebuild import rebuilt, replay_segment, restored, snapshot
from sparklog.log.tail.producer_state import Duplicate, ProducerStates
from sparklog.log.tail.tail import Tail
from sparklog.protocol.records.control import EndTransactionMarker
from sparklog.protocol.records.header import CONTROL_BIT, INT32_MAX, TRANSACTIONAL_BIT, BatchHeader
from tests.harness.wire_batches import produced

ABORT = b"\x00\x00\x00\x00"
COORDINATOR_7 = b"\x00\x00\x00\x00\x00\x07"


def header(sequence: int, count: int = 1, *, producer_id: int = 9, epoch: int = 0) -> BatchHeader:
    """Return the header of an idempotent producer's batch."""
    return produced(
        [1] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    ).header


def segment(
    base: int, end: int, *producers: ProducerBatch, markers: tuple[Marker, ...] = ()
) -> Segment:
    """Return a segment's metadata as far as producers are concerned."""
    return Segment(
        topic_id="topic",
        partition=0,
        base_offset=base,
        end_offset=end,
        rows=end - base,
        nonce="0" * 32,
        producers=producers,
        markers=markers,
    )


def test_batches_without_a_producer_id_leave_no_trace() -> None:
    states = ProducerStates()
    plain = produced().header
    assert states.check(plain) is None
    states.record(plain, 0, 1)
    assert len(states) == 0


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    states = ProducerStates()
    assert states.check(header(41)) is None
    states.record(header(41), 0, 1)
    with pytest.raises(OutOfOrderSequence):
        states.check(header(43))


def test_a_duplicate_is_answered_with_its_first_place() -> None:
    states = ProducerStates()
    states.record(header(0, 3), 100, 77)
    assert states.check(header(0, 3)) == Duplicate(100, 103, 77)


def test_a_batch_that_only_overlaps_an_old_one_is_no_duplicate() -> None:
    states = ProducerStates()
    states.record(header(0, 3), 100, 77)
    with pytest.raises(OutOfOrderSequence):
        states.check(header(0, 4))


def test_sequences_go_on_at_zero_after_the_last() -> None:
    states = ProducerStates()
    states.record(header(INT32_MAX - 1, 4), 0, 1)
    assert states.check(header(2)) is None
    assert states.check(header(INT32_MAX - 1, 4)) == Duplicate(0, 4, 1)
    with pytest.raises(OutOfOrderSequence):
        states.check(header(3))


def test_expired_producers_are_forgotten_unless_in_a_transaction() -> None:
    states = ProducerStates()
    states.record(header(0), 0, 1_000)
    states.record(header(0, producer_id=10), 1, 1_500)
    transactional = produced(
        producer_id=11, producer_epoch=0, base_sequence=0, is_transactional=True
    ).header
    states.record(transactional, 2, 1_000)
    assert states.expire(2_001, 1_000) == 1
    assert [producer_id for producer_id, _ in states] == [10, 11]
    assert states.check(header(5)) is None


def test_old_coordinator_or_fenced_producer_ends_no_transaction() -> None:
    states = ProducerStates()
    states.record_marker(9, 4, EndTransactionMarker(is_commit=False, coordinator_epoch=7), 0, 1)
    states.check_marker(9, 4, 7)
    with pytest.raises(TransactionCoordinatorFenced):
        states.check_marker(9, 4, 6)
    with pytest.raises(InvalidProducerEpoch):
        states.check_marker(9, 3, 7)
    with pytest.raises(InvalidProducerEpoch):
        states.check(header(0, epoch=3))


def test_a_marker_with_a_new_epoch_starts_sequences_anew() -> None:
    states = ProducerStates()
    states.record(header(0), 0, 1)
    states.record_marker(9, 1, EndTransactionMarker(is_commit=True, coordinator_epoch=0), 1, 1)
    with pytest.raises(OutOfOrderSequence):
        states.check(header(1, epoch=1))
    assert states.check(header(0, epoch=1)) is None


def test_segments_and_then_the_tail_rebuild_the_state() -> None:
    tail = Tail(205)
    batch = produced([1, 1], producer_id=9, producer_epoch=0, base_sequence=5)
    data = tail.append_as_leader(batch, 1, append_time_ms=88)
    stored = segment(200, 205, ProducerBatch(9, 0, 0, 0, 3, 0), ProducerBatch(9, 0, 3, 3, 5, 0))
    states = rebuilt([stored], [data], now_ms=1_000)
    assert states.check(header(0, 3)) == Duplicate(200, 203, NO_TIMESTAMP_MS)
    assert states.check(header(3, 2)) == Duplicate(203, 205, NO_TIMESTAMP_MS)
    assert states.check(header(5, 2)) == Duplicate(205, 207, 88)
    assert states.check(header(7)) is None
    assert states.expire(1_500, 1_000) == 0


def test_transactions_are_rebuilt_from_segments() -> None:
    states = ProducerStates()
    written = ProducerBatch(9, 0, 0, 0, 3, TRANSACTIONAL_BIT)
    replay_segment(states, segment(100, 103, written), 1)
    assert states.transactions.open() == [(9, 100)]
    assert states.transactions.last_stable_offset(103) == 100
    control = ProducerBatch(9, 0, -1, 2, 3, TRANSACTIONAL_BIT | CONTROL_BIT)
    marker = Marker(2, 1, ABORT, COORDINATOR_7)
    replay_segment(states, segment(103, 106, control, markers=(marker,)), 1)
    assert states.transactions.open() == []
    assert states.transactions.last_stable_offset(106) == 106
    assert states.transactions.aborted_between(101, 102)[0][:3] == (9, 100, 105)
    with pytest.raises(TransactionCoordinatorFenced):
        states.check_marker(9, 0, 6)


def test_sequence_after_a_marker_of_unknown_batches_may_be_any() -> None:
    control = ProducerBatch(9, 4, -1, 0, 1, TRANSACTIONAL_BIT | CONTROL_BIT)
    stored = segment(10, 11, control, markers=(Marker(0, 1, ABORT, COORDINATOR_7),))
    states = rebuilt([stored], [], now_ms=1)
    assert states.check(header(12, epoch=4)) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(header(12, epoch=5))
    with pytest.raises(InvalidProducerEpoch):
        states.check(header(0, epoch=3))


def test_transaction_that_encloses_another_is_found_with_it() -> None:
    states = ProducerStates()
    states.transactions.begin(9, 0)
    states.transactions.begin(10, 1)
    states.transactions.end(10, 5, is_commit=False)
    states.transactions.end(9, 9, is_commit=False)
    found = states.transactions.aborted_between(0, 4)
    assert [(one.producer_id, one.last_stable_offset) for one in found] == [(10, 0), (9, 10)]
    assert states.transactions.aborted_between(6, 8) == found[1:]


def test_aborted_transactions_below_the_log_start_are_forgotten() -> None:
    states = ProducerStates()
    for base in (0, 10):
        states.transactions.begin(9, base)
        states.transactions.end(9, base + 5, is_commit=False)
    states.transactions.forget_below(6)
    assert [one.first_offset for one in states.transactions.aborted] == [10]


def test_a_snapshot_survives_json() -> None:
    states = ProducerStates()
    states.record(header(0, 3), 100, 77)
    states.transactions.begin(9, 100)
    again = restored(json.loads(json.dumps(snapshot(states))))
    assert snapshot(again) == snapshot(states)
    assert again.check(header(0, 3)) == Duplicate(100, 103, 77)


@pytest.mark.parametrize(
    "document", [{}, {"format": 2}, {"format": 1, "producers": [[1]], "open": [], "aborted": []}]
)
def test_a_snapshot_that_is_none_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(DataCorrupt, match="rebuild"):
        restored(document)
