"""A tail with wrong headers and unreadable records."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt, InvalidRecord
from sparklog.core.types import UNLED_EPOCH
from sparklog.log.tail.batch_validator import BatchRules, CheckedBatch, check_batch
from sparklog.log.tail.tail import Tail
from sparklog.protocol.records.header import HEADER_BYTES, parse_header, seal_header
from sparklog.protocol.records.record_batch import decode
from tests.harness.golden_batches import data_of, describe_batch
from tests.harness.tail_lookups import find_timestamp, max_timestamp
from tests.harness.wire_batches import produced

RULES = BatchRules(max_message_bytes=10_000)


def unreadable(timestamp_ms: int) -> CheckedBatch:
    """Return a batch with a right checksum around records that are none."""
    header = produced([timestamp_ms]).header
    records = b"\xff" * 40
    data = seal_header(header, records) + records
    with pytest.raises(DataCorrupt):
        decode(data)
    with pytest.raises(InvalidRecord):
        check_batch(data, RULES, 0)
    return CheckedBatch(parse_header(data), data)  # as versions before took it


def claiming(timestamp_ms: int, batch: CheckedBatch) -> CheckedBatch:
    """Return the batch with another max timestamp in its header."""
    records = bytes(memoryview(batch.data)[HEADER_BYTES:])
    data = seal_header(batch.header._replace(max_timestamp=timestamp_ms), records) + records
    return CheckedBatch(parse_header(data), data)


def test_lookups_by_timestamp_skip_unreadable_batches() -> None:
    tail = Tail(10)
    tail.append_as_leader(unreadable(900), 1)
    tail.append_as_leader(produced([100, 300, 200]), 1)
    assert find_timestamp(tail, 200, tail.end_offset) == (12, 300, 1)
    assert max_timestamp(tail, tail.end_offset) == (12, 300, 1)
    assert max_timestamp(tail, 11) is None


def test_lookups_by_timestamp_believe_records_not_headers() -> None:
    tail = Tail(0)
    tail.append_as_leader(claiming(900, produced([100])), 1)
    tail.append_as_leader(produced([200]), 1)
    assert find_timestamp(tail, 150, 2) == (1, 200, 1)
    assert max_timestamp(tail, 2) == (1, 200, 1)


def test_the_append_time_is_the_time_of_every_record() -> None:
    tail = Tail(0)
    data = tail.append_as_leader(produced([100, 900]), 1, append_time_ms=500)
    assert decode(data).records.column("timestamp").to_pylist()[0].timestamp() == 0.5
    assert find_timestamp(tail, 400, 2) == (0, 500, 1)
    assert find_timestamp(tail, 501, 2) is None


def test_tail_keeps_a_copy_of_the_producers_buffer() -> None:
    buffer = bytearray(produced([1]).data)
    tail = Tail(0)
    kept = tail.append_as_leader(check_batch(memoryview(buffer), RULES, 0), 1)
    buffer[-1] ^= 0xFF
    assert decode(kept).header.leader_epoch == 1
    assert tail.read(0, 1 << 20, 1) == [kept]


def test_new_leader_epoch_ends_the_previous_without_a_record() -> None:
    tail = Tail(0)
    tail.append_as_leader(produced([1]), 3)
    tail.start_epoch(5)
    assert tail.end_of_epoch(3) == (3, 1)
    assert tail.end_of_epoch(4) == (3, 1)
    assert tail.end_of_epoch(5) == (5, 1)
    assert tail.end_of_epoch(6) == (-1, -1)


def test_a_batch_with_append_time_is_as_java_makes_it() -> None:
    data = data_of("mixed-zstd")
    batch = CheckedBatch(parse_header(data), data)
    stamped = Tail(7).append_as_leader(batch, UNLED_EPOCH, 1_700_000_005_000)
    # Java's broker-side builder made the same batch with LogAppendTime from the start.
    java = describe_batch(decode(data_of("append-time-zstd")))
    assert describe_batch(decode(stamped)) == java
