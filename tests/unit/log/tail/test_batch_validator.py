"""Batches that a leader rejects, and the error of Kafka for each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import (
    CorruptMessage,
    DataCorrupt,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    SparklogError,
    UnknownSchema,
)
from sparklog.core.types import TimestampType
from sparklog.log.tail.batch_validator import (
    BatchRules,
    CheckedBatch,
    LoopTime,
    NeedsTime,
    check_batch,
    check_replicated,
)
from sparklog.protocol.records.compression import compress
from sparklog.protocol.records.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    Codec,
    parse_header,
    seal_header,
)
from sparklog.protocol.records.record_batch import decode
from sparklog.protocol.records.schema_check import KnownSchemas
from tests.harness.wire_batches import produced, raw_batch, record, zigzag

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


def test_empty_data_and_more_than_one_batch_are_rejected() -> None:
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


BODY = b"".join(record(at) for at in range(3))
LZ4 = pa.Codec("lz4").compress(BODY, asbytes=True)
LINKED = pa.Codec("lz4").compress(BODY * 9000, asbytes=True)


def lz4_with_a_wrong_header_checksum() -> bytes:
    frame = bytearray(compress(BODY, Codec.LZ4))
    frame[6] ^= 0x77
    return bytes(frame)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.LZ4, lz4_with_a_wrong_header_checksum()),
        (Codec.LZ4, compress(BODY, Codec.LZ4) + bytes(4)),
        (Codec.LZ4, compress(BODY[:9], Codec.LZ4) + compress(BODY[9:], Codec.LZ4)),
        (Codec.LZ4, LINKED),
        (Codec.LZ4, LZ4[:-5]),
        (Codec.LZ4, b""),
        (Codec.ZSTD, compress(BODY, Codec.ZSTD) + bytes(9)),
        (Codec.ZSTD, compress(BODY, Codec.ZSTD)[:-3]),
        (Codec.ZSTD, b""),
        (Codec.GZIP, compress(BODY, Codec.GZIP)[:-9]),
        (Codec.GZIP, b""),
        (Codec.SNAPPY, compress(BODY, Codec.SNAPPY)[:-4]),
        (Codec.SNAPPY, b""),
    ],
)
def test_compressed_records_that_a_client_cannot_read_are_refused(
    codec: Codec, packed: bytes
) -> None:
    with pytest.raises(InvalidRecord) as caught:
        check_batch(raw_batch([], codec=codec, packed=packed, count=3), RULES, NOW_MS)
    assert not caught.value.retriable
    assert caught.value.record_errors == ()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.GZIP])
@pytest.mark.parametrize(
    "malformed",
    [
        {"records": [record(0), record(1)], "count": 3},
        {"records": [record(0), record(1)], "count": 1},
        {"records": [record(0, headers=b"\x02" + zigzag(-1))]},
        {"records": [record(0, headers=zigzag(-1))]},
        {"records": [record(0, headers=zigzag(1 << 30))]},
        {"records": [record(0, value_length=50)]},
        {"records": [record(0)[:-2]]},
        {"records": [record(0), b"\x02\x00"]},
    ],
)
def test_malformed_records_are_rejected_with_any_codec(
    codec: Codec, malformed: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRecord):
        check_batch(raw_batch(**malformed, codec=codec), RULES, NOW_MS)


@pytest.mark.parametrize("deltas", [(1, 2, 3), (0, 0, 0), (2, 1, 0)])
def test_offset_deltas_that_kafka_takes_are_numbered_anew(deltas: tuple[int, ...]) -> None:
    headers = b"\x02" + zigzag(1) + b"h" + zigzag(-1)
    sent = [record(delta, b"v%d" % delta, headers=headers) for delta in deltas]
    data = raw_batch(sent, producer_id=7, sequence=3)
    with pytest.raises(NeedsTime):
        check_batch(data, RULES, NOW_MS, loop_time=LoopTime(1 << 20))
    checked = check_batch(data, RULES, NOW_MS)
    rows = decode(checked.data).records
    assert rows.column("offset").to_pylist() == [0, 1, 2]
    assert rows.column("value").to_pylist() == [b"v%d" % delta for delta in deltas]
    assert rows.column("headers").to_pylist() == [[{"key": "h", "value": None}]] * 3
    kept = checked.header
    assert (kept.producer_id, kept.producer_epoch, kept.base_sequence) == (7, 0, 3)
    assert decode(data).records.equals(rows)
    for codec in (Codec.LZ4, Codec.ZSTD):
        with pytest.raises(InvalidRecord, match="offset deltas"):
            check_batch(raw_batch(sent, codec=codec), RULES, NOW_MS)


def test_gzip_padded_with_zeros_is_taken_as_java_takes_it() -> None:
    data = raw_batch([], codec=Codec.GZIP, packed=compress(BODY, Codec.GZIP) + bytes(8), count=3)
    assert check_batch(data, RULES, NOW_MS).data == data
    assert decode(data).records.num_rows == 3


def test_wrong_header_with_a_right_checksum_is_never_returned() -> None:
    good = produced([NOW_MS])
    for fields in ({"record_count": -1}, {"attributes": 5}, {"last_offset_delta": -1}):
        with pytest.raises(InvalidRecord):
            check_batch(changed(good, **fields), RULES, NOW_MS)


@pytest.mark.parametrize("claimed", [-1, 0, 7, NOW_MS * 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_the_newest_timestamp_is_that_of_the_records(codec: Codec, claimed: int) -> None:
    sent = [record(0, timestamp_delta=5), record(1, timestamp_delta=90), record(2)]
    data = raw_batch(sent, codec=codec, max_timestamp=claimed)
    checked = check_batch(data, RULES, NOW_MS)
    assert checked.header.max_timestamp == 1_090
    assert checked.header == parse_header(checked.data)
    assert decode(checked.data).records.equals(decode(data).records)
    old = raw_batch([record(0)], base_timestamp=-5_000, max_timestamp=claimed)
    assert check_batch(old, RULES, NOW_MS).header.max_timestamp == -1


def test_record_errors_name_only_the_invalid_records() -> None:
    keys = [b"a", None, b"b", None]
    with pytest.raises(InvalidRecord) as caught:
        check_batch(produced([NOW_MS] * 4, keys=keys).data, COMPACTED, NOW_MS)
    assert [one.batch_index for one in caught.value.record_errors] == [1, 3]
    rules = BatchRules(10_000, timestamp_before_max_ms=10, is_compacted=True)
    stamps = [NOW_MS, NOW_MS, NOW_MS - 11, NOW_MS]
    data = produced(stamps, keys=keys, codec=Codec.ZSTD).data
    with pytest.raises(InvalidTimestamp) as late:
        check_batch(data, rules, NOW_MS)
    assert [one.batch_index for one in late.value.record_errors] == [1, 2, 3]
    assert "out of range" in late.value.record_errors[1].message


def test_a_small_batch_does_not_unfold_beyond_its_topics_limit() -> None:
    limit = 1 << 20
    rules = BatchRules(10_000, decompressed_bytes_max=limit)
    fits = raw_batch([record(0, bytes(limit - 20))], codec=Codec.ZSTD)
    assert check_batch(fits, rules, NOW_MS).data == fits
    large = raw_batch([record(0, bytes(limit))], codec=Codec.ZSTD)
    empty_headers = raw_batch(
        [record(0, headers=zigzag(limit // 16) + b"\x00\x01" * (limit // 16))], codec=Codec.ZSTD
    )
    for hostile in (large, empty_headers):
        assert len(hostile) < 1_000
        with pytest.raises(InvalidRecord, match=r"max\.decompressed\.message\.bytes=1048576"):
            check_batch(hostile, rules, NOW_MS)


def test_an_event_loop_decompresses_no_more_than_it_has_time_for() -> None:
    data = raw_batch([record(0, bytes(1000))], codec=Codec.LZ4)
    time = LoopTime(2_500)
    for _ in range(2):
        check_batch(data, RULES, NOW_MS, loop_time=time)
    with pytest.raises(NeedsTime):
        check_batch(data, RULES, NOW_MS, loop_time=time)


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


def test_a_compacted_topic_takes_no_null_key() -> None:
    data = produced([NOW_MS] * 2, keys=[b"a", None], codec=Codec.ZSTD).data
    check_batch(data, RULES, NOW_MS)
    with pytest.raises(InvalidRecord, match=r"refused=1 records=2 first_refused=1: .* needs a key"):
        check_batch(data, COMPACTED, NOW_MS)


def test_records_that_do_not_decompress_are_refused() -> None:
    data = with_attribute(produced([NOW_MS] * 3), Codec.ZSTD)
    with pytest.raises(InvalidRecord):
        check_batch(data, RULES, NOW_MS)


def test_rules_come_from_the_topic() -> None:
    plain = BatchRules.of(parse_topic_configs({}))
    assert plain.timestamp_after_max_ms == 3_600_000
    assert plain.decompressed_bytes_max == 128 << 20
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


def test_records_without_a_known_schema_are_named_one_by_one() -> None:
    known = KnownSchemas.of([7], [])
    rules = BatchRules.of(parse_topic_configs({"sparklog.schema.validation": "true"}))

    def valued(delta: int, value: bytes | None) -> bytes:
        return record(delta, value or b"", value_length=-1 if value is None else None)

    values = [b"\0\0\0\0\7x", b"bare", None, b"\0\0\0\0\x08x"]
    for codec in (Codec.NONE, Codec.ZSTD):
        for sent, kind, at_fault in (
            (values[:2], InvalidRecord, {1: "the value carries no id of a schema"}),
            (values, UnknownSchema, {1: "the value carries no id of a schema",
                                     3: "the schema of the value is not registered"}),
        ):  # fmt: skip
            batch = raw_batch([valued(n, v) for n, v in enumerate(sent)], codec=codec)
            with pytest.raises(InvalidRecord) as refused:
                check_batch(batch, rules, 0, known=known)
            assert type(refused.value) is kind
            assert dict(refused.value.record_errors) == at_fault
        batch = raw_batch([valued(n, v) for n, v in enumerate((values[0], None))], codec=codec)
        assert check_batch(batch, rules, 0, known=known).data == batch
    keys = BatchRules.of(parse_topic_configs({"sparklog.key.schema.validation": "true"}))
    assert check_batch(produced([0], keys=[b"\0\0\0\0\7"]).data, keys, 0, known=known)
    with pytest.raises(UnknownSchema, match="the schema of the key is not registered"):
        check_batch(produced([0], keys=[b"\0\0\0\0\1"]).data, keys, 0, known=known)
