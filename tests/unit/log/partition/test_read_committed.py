"""Aborted transactions in the response of a fetch."""

from __future__ import annotations

from sparklog.log.partition.read_committed import met
from sparklog.log.tail.producer_state import AbortedTransaction
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.record_batch import BatchSettings, encode
from tests.harness.log_records import numbered

ABORTED = AbortedTransaction(producer_id=7, first_offset=3, last_offset=8, last_stable_offset=9)


def wire(base_offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
    settings = BatchSettings(
        producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=transactional
    )
    return encode(numbered(base_offset, 2), settings, base_offset=base_offset)


def marker(base_offset: int) -> bytes:
    return encode_end_transaction(
        EndTransactionMarker(is_commit=False, coordinator_epoch=1),
        base_offset=base_offset,
        timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        leader_epoch=1,
    )


def test_aborted_transaction_is_returned_with_a_batch_of_it() -> None:
    assert met([ABORTED], [wire(3, 7), wire(5, 8)]) == [ABORTED]
    assert met([ABORTED], [wire(6, 7), marker(8)]) == [ABORTED]


def test_aborted_transaction_removed_by_compaction_is_not_returned() -> None:
    assert met([ABORTED], [wire(9, 7)]) == [], "of the producer's next transaction"
    assert met([ABORTED], [wire(3, 8), wire(5, 7, transactional=False)]) == []
    assert met([ABORTED], [marker(8)]) == []
    assert met([ABORTED], []) == []
    assert met([], [wire(3, 7)]) == []
