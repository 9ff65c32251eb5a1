"""What a leader takes from a producer: one record batch of magic 2, checked before its append.

Decides and never appends; knows neither producers' sequences (`producer_state`) nor offsets given
out (`tail`). Nothing is decompressed unless a rule needs the records: then it costs a decode, and
a shell runs the check off its event loop (`BatchRules.reads_records`). The codec stays what the
producer chose, whatever `compression.type` says: segments are encoded anew when they are flushed.

  B1  bytes from a client raise one of the four errors below, or are a batch fit to append
  B2  offsets in a batch are dense: compaction leaves gaps, producers do not
  B3  markers are written by coordinators, never by clients

Offsets count records, timestamps are milliseconds since the Unix epoch, sizes are bytes.
Source: Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from sparklog.core.config import LONG_MAX
from sparklog.core.errors import (
    CorruptMessage,
    DataCorrupt,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
)
from sparklog.core.settings import TopicConfig
from sparklog.core.types import NO_PRODUCER_ID, NO_TIMESTAMP_MS, TimestampType
from sparklog.log.reference_batch import decode_references
from sparklog.protocol.batch_header import (
    CONTROL_BIT,
    MAGIC,
    MAGIC_AT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    check_crc,
    parse_header,
)
from sparklog.protocol.memory_records import split_batches
from sparklog.protocol.record_batch import decode


class CheckedBatch(NamedTuple):
    """One whole batch and its header; header and checksum were looked at."""

    header: BatchHeader
    data: BytesLike
    """Exactly the batch. It may be a view of a larger buffer: whoever keeps it copies it."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What one topic asks of a batch."""

    max_message_bytes: int
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    is_compacted: bool = False
    reads_records: bool = field(init=False)
    """Whether a check decompresses and scans the records, header and checksum aside."""

    def __post_init__(self) -> None:
        """Note whether a header tells enough: of timestamps it has only the newest."""
        is_create_time = self.timestamp_type is TimestampType.CREATE_TIME
        has_oldest = is_create_time and self.timestamp_before_max_ms < LONG_MAX
        object.__setattr__(self, "reads_records", self.is_compacted or has_oldest)

    @classmethod
    def of(cls, config: TopicConfig) -> BatchRules:
        """Return the rules that a topic's settings make."""
        is_append_time = config.text("message.timestamp.type") == "LogAppendTime"
        return cls(
            max_message_bytes=config.whole("max.message.bytes"),
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
            ),
            timestamp_before_max_ms=config.whole("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=config.whole("message.timestamp.after.max.ms"),
            is_compacted="compact" in config.words("cleanup.policy"),
        )


def check_batch(records: BytesLike, rules: BatchRules, now_ms: int) -> CheckedBatch:
    """Check what a Produce request carries for one partition: exactly one batch, as in Kafka.

    One batch, because a request is answered per partition: half of it appended has no answer.

    Raises:
        CorruptMessage: no batch, damaged or cut short.
        InvalidRecord: a batch that no client may send, or one this topic does not take.
        InvalidTimestamp: outside `message.timestamp.before.max.ms` or `.after.max.ms`.
        RecordTooLarge: over `max.message.bytes`.
    """
    header = _only_header(records)
    size_bytes = header.size_bytes
    if size_bytes > rules.max_message_bytes:
        raise RecordTooLarge(
            "record batch is over max.message.bytes; send smaller batches or raise the limit. "
            f"batch_bytes={size_bytes} max.message.bytes={rules.max_message_bytes}"
        )
    if header.is_reference:
        _check_reference(header, records, rules, now_ms)
        return CheckedBatch(header, records)
    _check_fields(header)
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        _check_newest(header.max_timestamp, rules, now_ms)
    if rules.reads_records:
        _check_records(records, rules, now_ms)
    return CheckedBatch(header, records)


def check_replicated(records: BytesLike) -> Iterator[CheckedBatch]:
    """Yield the batches a leader sent to its follower, each with its checksum compared.

    Raises:
        DataCorrupt: not whole batches, or damaged on the way; fetch them again.
    """
    for one in split_batches(records):
        check_crc(one.data, one.header)
        yield CheckedBatch(one.header, one.data)


def _only_header(records: BytesLike) -> BatchHeader:
    """Return the header of the one batch. Its checksum comes first, or damage looks like misuse."""
    view = memoryview(records)
    if not view.nbytes:
        raise InvalidRecord("no record batch for this partition; send exactly one. bytes=0")
    if view.nbytes > MAGIC_AT and view[MAGIC_AT] < MAGIC:
        raise InvalidRecord(
            f"message set of magic {view[MAGIC_AT]} refused: that format ended with Kafka 4.0; use "
            "a client that speaks Produce version 3 or newer (any since Kafka 0.11). "
            f"wanted={MAGIC}"
        )
    try:
        header = parse_header(view)
        check_crc(view, header)
    except DataCorrupt as error:
        raise CorruptMessage(str(error)) from error
    if header.size_bytes < view.nbytes:
        raise InvalidRecord(
            "more than one record batch for one partition; send exactly one. "
            f"bytes={view.nbytes} batch_bytes={header.size_bytes}"
        )
    return header


def _check_fields(header: BatchHeader) -> None:
    """Refuse what a header alone shows to be no producer's batch."""
    base, _, _, _, _, attributes, delta, _, _, producer, epoch, sequence, count = header
    problem = None
    if base != 0:
        problem = "a producer's batch starts at offset 0, and the leader gives the offsets"
    elif attributes & CONTROL_BIT:
        problem = "clients do not write markers"
    elif count == 0 or count != delta + 1:
        problem = "record count and last offset delta contradict each other, or there is no record"
    elif producer > NO_PRODUCER_ID and (sequence < 0 or epoch < 0):
        problem = "a producer id comes with an epoch and a sequence number"
    elif attributes & TRANSACTIONAL_BIT and producer <= NO_PRODUCER_ID:
        problem = "a transactional batch needs a producer id"
    if problem is not None:
        raise InvalidRecord(
            f"record batch refused: {problem}. base_offset={base} attributes={attributes} "
            f"record_count={count} last_offset_delta={delta} producer_id={producer} "
            f"producer_epoch={epoch} base_sequence={sequence}"
        )
    if attributes & TIMESTAMP_TYPE_BIT:
        raise InvalidTimestamp(
            "a producer does not set the timestamp type LogAppendTime: the topic's "
            f"message.timestamp.type does. attributes={attributes}"
        )


def _check_reference(
    header: BatchHeader, records: BytesLike, rules: BatchRules, now_ms: int
) -> None:
    """Check what a reference batch says by itself; the objects it names are looked at elsewhere.

    What the records are like, their sizes and that they have keys, is up to who staged them.
    """
    if header.base_offset != 0:
        raise InvalidRecord(
            "a reference batch starts at offset 0, and the leader gives the offsets. "
            f"base_offset={header.base_offset}"
        )
    try:
        batch = decode_references(records, header)
    except DataCorrupt as error:
        raise InvalidRecord(str(error)) from error
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        _check_newest(header.max_timestamp, rules, now_ms)
        _check_oldest(min(one.min_timestamp_ms for one in batch.references), rules, now_ms)


def _check_newest(timestamp_ms: int, rules: BatchRules, now_ms: int) -> None:
    if timestamp_ms - now_ms > rules.timestamp_after_max_ms:
        raise InvalidTimestamp(
            "timestamp is too far in the future; set the producer's clock, or raise the limit. "
            f"timestamp={timestamp_ms} now={now_ms} "
            f"message.timestamp.after.max.ms={rules.timestamp_after_max_ms}"
        )


def _check_records(records: BytesLike, rules: BatchRules, now_ms: int) -> None:
    """Look at the records themselves: null keys, and the timestamps no header tells."""
    try:
        rows = decode(records, verify_crc=False).records
    except DataCorrupt as error:
        raise CorruptMessage(str(error)) from error
    nulls = rows.column("key").null_count
    if rules.is_compacted and nulls:
        raise InvalidRecord(
            "a compacted topic takes no record without a key; give every record one. "
            f"records_without_key={nulls} records={rows.num_rows}"
        )
    if rules.timestamp_type is not TimestampType.CREATE_TIME:
        return
    timestamps = rows.column("timestamp").cast(pa.int64()).to_numpy()
    _check_newest(int(timestamps.max()), rules, now_ms)
    told = timestamps[timestamps != NO_TIMESTAMP_MS]
    oldest = int(told.min()) if len(told) else now_ms
    _check_oldest(oldest, rules, now_ms)


def _check_oldest(timestamp_ms: int, rules: BatchRules, now_ms: int) -> None:
    if now_ms - timestamp_ms > rules.timestamp_before_max_ms:
        raise InvalidTimestamp(
            "timestamp is too far in the past; check the producer, or raise the limit. "
            f"timestamp={timestamp_ms} now={now_ms} "
            f"message.timestamp.before.max.ms={rules.timestamp_before_max_ms}"
        )
