"""Verified transactions of a partition: each counts until its marker, and no longer."""

from __future__ import annotations

import pytest

from sparklog.core.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from sparklog.log.tail.producer_state import ProducerStates
from sparklog.protocol.records.control import EndTransactionMarker
from sparklog.protocol.records.header import BatchHeader
from tests.harness.wire_batches import produced

COMMIT = EndTransactionMarker(True, 3)


def header(sequence: int, epoch: int = 0, *, is_transactional: bool = True) -> BatchHeader:
    return produced(
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    ).header


def test_the_first_records_need_an_answer_and_those_after_them_none() -> None:
    states = ProducerStates()
    with pytest.raises(InvalidTxnState):
        states.check(header(0), None)
    verification = states.begin_verification(7, 0, 0, 1)
    assert states.check(header(0), verification) is None
    states.record(header(0), 0, 1)
    assert states.begin_verification(7, 0, 1, 1) is None
    assert states.check(header(1), None) is None


def test_an_answer_that_comes_after_the_marker_is_worth_nothing() -> None:
    states = ProducerStates()
    verification = states.begin_verification(7, 0, 0, 1)
    states.record_marker(7, 0, COMMIT, 4, 1)
    with pytest.raises(InvalidTxnState):
        states.check(header(0), verification)
    again = states.begin_verification(7, 0, 0, 1)
    assert again is not verification
    assert states.check(header(0), again) is None


def test_a_marker_that_is_about_to_come_ends_answers_too() -> None:
    states = ProducerStates()
    states.record(header(0), 0, 1)
    verification = states.begin_verification(7, 0, 1, 1, is_over=True)
    assert verification is not None
    states.end_verification(7)
    states.record_marker(7, 0, COMMIT, 4, 1)
    with pytest.raises(InvalidTxnState):
        states.check_verified(7, 0, verification)


def test_a_batch_that_overtook_the_first_of_its_transaction_waits() -> None:
    states = ProducerStates()
    verification = states.begin_verification(7, 0, 0, 1)
    assert states.begin_verification(7, 0, 1, 1) is verification
    with pytest.raises(OutOfOrderSequence):
        states.check(header(1), verification)
    assert states.check(header(0), verification) is None


def test_fenced_producer_is_not_verified() -> None:
    states = ProducerStates()
    states.record_marker(7, 5, COMMIT, 0, 1)
    assert states.begin_verification(7, 4, 0, 1) is None
    with pytest.raises(InvalidProducerEpoch):
        states.check(header(0, epoch=4), None)


def test_a_marker_sent_again_does_not_end_the_next_transaction() -> None:
    states = ProducerStates()
    states.record(header(0, epoch=0), 0, 1)
    states.check_marker(7, 1, 3, ends_older=True)
    states.record_marker(7, 1, COMMIT, 1, 1)
    states.check_marker(7, 1, 3, ends_older=True)  # lost answer: again is no harm
    states.record(header(0, epoch=1), 2, 1)
    with pytest.raises(InvalidProducerEpoch):
        states.check_marker(7, 1, 3, ends_older=True)
    states.check_marker(7, 1, 3)  # protocol version 1 cannot distinguish them
    states.check_marker(7, 2, 3, ends_older=True)


def test_unanswered_verifications_are_forgotten() -> None:
    states = ProducerStates()
    verification = states.begin_verification(7, 0, 0, now_ms=1_000)
    states.expire(1_500, 1_000)
    assert states.begin_verification(7, 0, 0, 1_500) is verification
    states.expire(2_500, 1_000)
    assert states.begin_verification(7, 0, 0, 2_500) is not verification


def test_records_without_sequence_keep_the_order_of_the_others() -> None:
    states = ProducerStates()
    states.record(header(0, is_transactional=True), 0, 1)
    states.record(produced(producer_id=7, producer_epoch=0, is_transactional=True).header, 1, 1)
    assert states.check(header(1)) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(header(3))
