"""Fetched batches as a share group sees them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.broker.share.acquired_batches import DeliverableBatches
from sparklog.coordinator.share.in_flight import AcquiredBatch
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.encoder import BatchSettings, encode


def batch(base: int, records: int, producer_id: int = -1) -> bytes:
    rows = pa.RecordBatch.from_pydict({"value": [b"v"] * records})
    settings = BatchSettings()
    if producer_id >= 0:
        settings = BatchSettings(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    return encode(rows, settings, base_offset=base)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return encode_end_transaction(
        EndTransactionMarker(commit, 0),
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=0,
    )


def fetched(
    batches: Sequence[bytes], aborted: tuple[tuple[int, int], ...] | None = None
) -> FetchedPartition:
    return FetchedPartition(batches, 100, 100, 0, aborted=aborted)


def bases(found: DeliverableBatches) -> list[int]:
    return [one.header.base_offset for one in found.batches]


def test_offsets_without_records_are_skipped() -> None:
    data = batch(5, 3) + batch(10, 2)
    found = DeliverableBatches.of(fetched([data, batch(12, 1)]), 2)
    assert bases(found) == [5, 10, 12]
    assert found.skipped == [(2, 4), (8, 9)]


def test_a_read_that_begins_within_a_batch_skips_nothing_before_it() -> None:
    found = DeliverableBatches.of(fetched([batch(5, 5)]), 7)
    assert (bases(found), found.skipped) == ([5], [])


def test_markers_and_aborted_records_are_skipped_by_isolation() -> None:
    batches = [
        batch(0, 2, 1),
        marker(2, 1, commit=False),
        batch(3, 1, 2),
        marker(4, 2, commit=True),
    ]
    every = DeliverableBatches.of(fetched(batches), 0)
    assert (bases(every), every.skipped) == ([0, 3], [(2, 2), (4, 4)])
    committed = DeliverableBatches.of(fetched(batches, ((1, 0),)), 0)
    assert (bases(committed), committed.skipped) == ([3], [(0, 2), (4, 4)])


def test_last_offset_is_that_of_a_whole_batch() -> None:
    found = DeliverableBatches.of(fetched([batch(0, 4), batch(4, 4), batch(8, 4)]), 2)
    assert [found.last_offset(2, n) for n in (1, 2, 3, 6, 7, 99)] == [3, 3, 7, 7, 11, 11]


def test_members_get_the_batches_that_have_their_records() -> None:
    batches = [batch(0, 4), batch(4, 4), batch(8, 4)]
    found = DeliverableBatches.of(fetched(batches), 0)
    assert found.bytes_of([AcquiredBatch(2, 2, 1), AcquiredBatch(9, 20, 1)]) == [
        batches[0],
        batches[2],
    ]
    assert found.bytes_of([]) == []
