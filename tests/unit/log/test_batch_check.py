"""What a leader refuses from a producer, and with which of Kafka's errors."""

from __future__ import annotations

import pytest

from sparklog.core.errors import (
    CorruptMessage,
    DataCorrupt,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    SparklogError,
)
from sparklog.core.settings import parse_topic_configs
from sparklog.core.types import TimestampType
from sparklog.log.batch_check import BatchRules, CheckedBatch, check_batch, check_replicated
from sparklog.protocol.batch_header import (
    CONTROL_BIT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    Codec,
    parse_header,
    seal_header,
)
from tests.unit.log.wire import produced

NOW_MS = 1_000_000
RULES = BatchRules(max_message_bytes=10_000)
COMPACTED = BatchRules(max_message_bytes=10_000, is_compacted=True)


def changed(batch: CheckedBatch, **fields: int) -> bytes:
    """Return the batch with other header fields and the checksum that goes with them."""
    records = memoryview(batch.data)[HEADER_BYTES:]
    return seal_header(batch.header._replace(**fields), records) + bytes(records)


def with_attribute(batch: CheckedBatch, bit: int) -> bytes:
    return changed(batch, attributes=batch.header.attributes | bit)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_producers_batch_is_taken_as_it_is(codec: Codec) -> None:
    data = produced([NOW_MS] * 3, codec=codec).data
    checked = check_batch(memoryview(data), COMPACTED, NOW_MS)
    assert checked.header == parse_header(data)
    assert checked.data == data


@pytest.mark.parametrize("at", [8, 22, 40, 70])
def test_damaged_bytes_are_sent_again(at: int) -> None:
    data = bytearray(produced([NOW_MS] * 3).data)
    data[at] ^= 0x11
    with pytest.raises(CorruptMessage) as caught:
        check_batch(data, RULES, NOW_MS)
    assert (caught.value.kafka_code, caught.value.retriable) == (2, True)
    assert not isinstance(caught.value, DataCorrupt)


@pytest.mark.parametrize("size", [1, 16, 60, 61, 80])
def test_a_batch_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptMessage):
        check_batch(bytes(produced([NOW_MS] * 3).data)[:size], RULES, NOW_MS)


def test_nothing_and_more_than_one_batch_are_refused() -> None:
    data = bytes(produced().data)
    for records in (b"", data * 2, data + b"x"):
        with pytest.raises(InvalidRecord, match="exactly one"):
            check_batch(records, RULES, NOW_MS)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_named(magic: int) -> None:
    data = bytearray(produced().data)
    data[16] = magic
    with pytest.raises(InvalidRecord, match="that format ended"):
        check_batch(data, RULES, NOW_MS)


def test_a_batch_over_the_limit_is_too_large() -> None:
    batch = produced([NOW_MS] * 9)
    exact = BatchRules(max_message_bytes=batch.header.size_bytes)
    check_batch(batch.data, exact, NOW_MS)
    with pytest.raises(RecordTooLarge) as caught:
        check_batch(batch.data, BatchRules(batch.header.size_bytes - 1), NOW_MS)
    assert caught.value.kafka_code == 10


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 5},
        {"record_count": 2},
        {"last_offset_delta": 7},
        {"producer_id": 4},
        {"producer_id": 4, "producer_epoch": 0},
        {"producer_id": 4, "base_sequence": 0},
        {"attributes": CONTROL_BIT},
        {"attributes": 0x10},
        {"record_count": 0, "last_offset_delta": 0},
    ],
)
def test_headers_no_producer_writes_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord) as caught:
        check_batch(changed(produced([NOW_MS] * 3), **fields), RULES, NOW_MS)
    assert caught.value.kafka_code == 87


def test_a_producer_does_not_claim_the_append_time() -> None:
    data = with_attribute(produced([NOW_MS]), TIMESTAMP_TYPE_BIT)
    for kind in TimestampType:
        with pytest.raises(InvalidTimestamp):
            check_batch(data, BatchRules(10_000, timestamp_type=kind), NOW_MS)


def test_timestamps_stay_within_the_topics_limits() -> None:
    rules = BatchRules(10_000, timestamp_before_max_ms=100, timestamp_after_max_ms=50)
    check_batch(produced([NOW_MS - 100, NOW_MS + 50]).data, rules, NOW_MS)
    for stamps in ([NOW_MS, NOW_MS - 101, NOW_MS], [NOW_MS + 51]):
        with pytest.raises(InvalidTimestamp, match=r"message\.timestamp"):
            check_batch(produced(stamps).data, rules, NOW_MS)
    assert InvalidTimestamp.kafka_code == 32


def test_records_without_a_timestamp_are_not_too_old() -> None:
    rules = BatchRules(10_000, timestamp_before_max_ms=100)
    check_batch(produced([-1, -1]).data, rules, NOW_MS)
    with pytest.raises(InvalidTimestamp):
        check_batch(produced([-1, NOW_MS - 101]).data, rules, NOW_MS)


def test_the_append_time_makes_the_producers_timestamps_irrelevant() -> None:
    rules = BatchRules(
        10_000,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        timestamp_before_max_ms=1,
        timestamp_after_max_ms=1,
    )
    check_batch(produced([5, NOW_MS * 9]).data, rules, NOW_MS)
    assert not rules.reads_records


def test_a_compacted_topic_takes_no_null_key() -> None:
    data = produced([NOW_MS] * 2, keys=[b"a", None], codec=Codec.ZSTD).data
    check_batch(data, RULES, NOW_MS)
    with pytest.raises(InvalidRecord, match="records_without_key=1"):
        check_batch(data, COMPACTED, NOW_MS)


def test_records_that_do_not_decompress_are_corrupt_where_they_are_read() -> None:
    batch = produced([NOW_MS] * 3)
    data = with_attribute(batch, Codec.ZSTD)
    check_batch(data, RULES, NOW_MS)
    with pytest.raises(CorruptMessage):
        check_batch(data, COMPACTED, NOW_MS)


def test_rules_come_from_the_topic() -> None:
    plain = BatchRules.of(parse_topic_configs({}))
    assert plain.timestamp_after_max_ms == 3_600_000
    assert not plain.reads_records
    special = BatchRules.of(
        parse_topic_configs(
            {
                "cleanup.policy": "compact,delete",
                "message.timestamp.type": "LogAppendTime",
                "max.message.bytes": "77",
            }
        )
    )
    assert special.is_compacted
    assert special.reads_records
    assert special.max_message_bytes == 77
    assert special.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_replicated_batches_come_with_gaps_markers_and_epochs() -> None:
    first = produced([1, 2], base_offset=7, leader_epoch=3)
    gap = changed(produced([1], base_offset=9), last_offset_delta=4)
    found = list(check_replicated(bytes(first.data) + gap))
    assert [(one.header.base_offset, one.header.end_offset) for one in found] == [(7, 9), (9, 14)]


def test_a_replicated_batch_that_was_damaged_is_fetched_again() -> None:
    data = bytearray(produced([1, 2], base_offset=7).data)
    data[-1] ^= 1
    with pytest.raises(DataCorrupt):
        list(check_replicated(data))
    with pytest.raises(DataCorrupt):
        list(check_replicated(bytes(produced().data)[:-1]))


def test_no_header_is_let_through_that_a_reader_would_refuse() -> None:
    """Every single changed byte of a header is refused, or leaves a batch that can be read."""
    data = bytes(produced([NOW_MS] * 3).data)
    whole = parse_header(data)._replace(leader_epoch=0)
    answers = set()
    for at in range(HEADER_BYTES):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            one = bytearray(data)
            one[at] = value
            try:
                checked = check_batch(bytes(one), RULES, NOW_MS)
            except SparklogError as error:
                answers.add(error.kafka_code)
            else:
                assert checked.header._replace(leader_epoch=0) == whole
    assert answers == {2, 87}
