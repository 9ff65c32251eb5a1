"""Rejected batches: each comes before later batches when the producer sends it again."""

from __future__ import annotations

import pytest

from sparklog.broker.produce.rejected_batches import (
    KEPT_S,
    REJECTED_MAX,
    STRAGGLER_S,
    RejectedBatches,
    is_retried,
)
from sparklog.core.errors import (
    NotServing,
    OutOfOrderSequence,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId
from sparklog.protocol.records.header import parse_header
from tests.harness.replica_cluster import batch

WHERE = PartitionId("topic", 0)


def _sent(sequence: int, producer_id: int = 7) -> bytes:
    return batch(b"x", producer_id=producer_id, sequence=sequence)


def _check(
    refusals: RejectedBatches,
    sequence: int,
    now_s: float = 1.0,
    *,
    may_have_stragglers: bool = False,
    where: PartitionId = WHERE,
    producer_id: int = 7,
) -> None:
    header = parse_header(_sent(sequence, producer_id))
    refusals.check_ahead(where, header, now_s, may_have_stragglers=may_have_stragglers)


def test_a_batch_waits_for_the_refused_one_before_it() -> None:
    refusals = RejectedBatches()
    refusals.note(WHERE, _sent(3), now_s=0.0, is_retried=True)
    refusals.note(WHERE, _sent(4), now_s=0.0, is_retried=True)
    for sequence in (4, 5):
        with pytest.raises(NotServing):
            _check(refusals, sequence)
    _check(refusals, 3)
    refusals.settle(WHERE, parse_header(_sent(2)))  # sent twice; 3 is still missing
    with pytest.raises(NotServing):
        _check(refusals, 4)
    refusals.settle(WHERE, parse_header(_sent(3)))
    assert not refusals.rejected
    _check(refusals, 4)


def test_a_batch_after_one_that_was_refused_for_good_is_out_of_order() -> None:
    refusals = RejectedBatches()
    refusals.note(WHERE, _sent(3), now_s=0.0, is_retried=True)
    refusals.note(WHERE, _sent(3), now_s=0.5, is_retried=False)
    for may_have_stragglers in (False, True):
        with pytest.raises(OutOfOrderSequence):
            _check(refusals, 4, may_have_stragglers=may_have_stragglers)
    _check(refusals, 3)


def test_a_batch_waits_for_one_that_may_be_at_an_earlier_leader() -> None:
    refusals = RejectedBatches()
    with pytest.raises(NotServing):
        _check(refusals, 3, 0.0, may_have_stragglers=True)
    refusals.note(WHERE, _sent(3), now_s=0.0, is_retried=True)
    refusals.note(
        WHERE, _sent(3), now_s=STRAGGLER_S - 1, is_retried=True
    )  # it asks again and again
    with pytest.raises(NotServing):
        _check(refusals, 3, STRAGGLER_S - 1, may_have_stragglers=True)
    _check(refusals, 3, STRAGGLER_S + 1, may_have_stragglers=True)


def test_batch_waits_for_one_rejected_before_its_topic_was_known() -> None:
    refusals = RejectedBatches()
    named = PartitionId("by name", 0)
    refusals.note(named, _sent(3), now_s=0.0, is_retried=True)
    later = parse_header(_sent(4))
    refusals.learn(PartitionId("by name", 1), PartitionId("topic", 1), later)
    _check(refusals, 4)
    refusals.learn(named, WHERE, later)
    with pytest.raises(NotServing):
        _check(refusals, 4)
    refusals.note(named, _sent(5), now_s=0.0, is_retried=True)  # what is known stays
    refusals.learn(named, WHERE, later)
    with pytest.raises(NotServing):
        _check(refusals, 4)
    refusals.settle(WHERE, parse_header(_sent(3)))
    assert not refusals.rejected


def test_producer_repeats_batches_for_an_unknown_topic() -> None:
    errors = [UnknownTopicOrPartition("no"), NotServing("no"), RecordTooLarge("no")]
    assert [is_retried(e) for e in errors] == [True, True, False]


def test_other_producers_and_partitions_do_not_wait() -> None:
    refusals = RejectedBatches()
    refusals.note(WHERE, _sent(0), now_s=0.0, is_retried=True)
    _check(refusals, 1, producer_id=8)
    _check(refusals, 1, where=PartitionId("topic", 1))
    assert len(refusals.rejected) == 1


def test_batch_without_a_sequence_or_unreadable_is_not_remembered() -> None:
    refusals = RejectedBatches()
    refusals.note(WHERE, batch(b"x"), now_s=0.0, is_retried=True)
    refusals.note(WHERE, b"short", now_s=0.0, is_retried=True)
    refusals.note(WHERE, b"", now_s=0.0, is_retried=True)
    refusals.note(WHERE, b"\xff" * 200, now_s=0.0, is_retried=True)
    assert not refusals.rejected


def test_rejected_batches_expire_and_have_a_memory_bound() -> None:
    refusals = RejectedBatches()
    for now_s in (0.0, KEPT_S - 1):
        refusals.note(WHERE, _sent(0), now_s, is_retried=True)
        refusals.note(WHERE, _sent(1), now_s, is_retried=True)
    _check(refusals, 1, KEPT_S + 1)
    data = _sent(0)
    for number in range(REJECTED_MAX + 10):
        refusals.note(PartitionId("topic", number), data, now_s=0.0, is_retried=True)
    assert len(refusals.rejected) == REJECTED_MAX
