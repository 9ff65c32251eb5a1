"""Validates producers' batches: one record batch of magic 2, before the leader appends it.

It decides and never appends. It does not know producers' sequences (`producer_state`) or assigned
offsets (`tail`). Compiled code (`record_survey`) checks every record, because an acknowledged batch
must be readable. The producer's codec stays, even if `compression.type` is another one: a flush
encodes segments anew.

BATCH-VALIDATOR-1: Bytes from a client raise one of the errors below, or are a batch that every
    client can read.
BATCH-VALIDATOR-2: Offsets in a batch are dense: compaction leaves gaps, producers do not. An
    uncompressed batch with other offset deltas, which Kafka accepts, gets new deltas. A compressed
    one is rejected, as by Kafka.
BATCH-VALIDATOR-3: Coordinators write markers, clients never do.
BATCH-VALIDATOR-4: The header's max timestamp is that of the records, even if the producer wrote
    another one.
BATCH-VALIDATOR-5: With `sparklog.schema.validation` each record carries a schema that is known at
    the check.

Offsets count records, timestamps are milliseconds since the Unix epoch, sizes are bytes.
Source: Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.core.config.model import LONG_MAX
from sparklog.core.config.topic import TopicConfig
from sparklog.core.errors import (
    CorruptMessage,
    DataCorrupt,
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
    RecordTooLarge,
    SparklogError,
    UnknownSchema,
)
from sparklog.core.types import NO_PRODUCER_ID, NO_TIMESTAMP_MS, TimestampType
from sparklog.log.tail.references import ReferenceBatch, decode_references
from sparklog.protocol.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    OverBound,
    decompress_strictly,
)
from sparklog.protocol.records.decoder import RUN_BYTES, rows_of_batch
from sparklog.protocol.records.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    INT32_MAX,
    LAYOUT,
    MAGIC,
    MAGIC_AT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    check_crc,
    parse_header,
    seal_header,
)
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, encode
from sparklog.protocol.records.record_survey import Survey, survey
from sparklog.protocol.records.schema_check import (
    FAULTS,
    NO_SCHEMAS,
    KnownSchemas,
    SchemaFaults,
    find_faults,
)

RECORD_COST_BYTES: Final = 48
HEADER_COST_BYTES: Final = 16
"""Cost of a record and a header as columns, besides their bytes: offsets, timestamps, lengths."""


class NeedsTime(Exception):
    """A check would block an event loop: run it elsewhere."""


@dataclass(slots=True)
class LoopTime:
    """The bytes that a check may still decompress on an event loop."""

    left_bytes: int


class CheckedBatch(NamedTuple):
    """One whole batch and its header; header, checksum and records were checked."""

    header: BatchHeader
    data: BytesLike
    """Exactly the batch. It may be a view of a larger buffer: copy it before you keep it."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The requirements of one topic for a batch."""

    max_message_bytes: int
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    is_compacted: bool = False
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    value_schemas: bool = False
    key_schemas: bool = False

    @property
    def needs_schemas(self) -> bool:
        """Return True if values or keys must carry a schema."""
        return self.value_schemas or self.key_schemas

    @classmethod
    def of(cls, config: TopicConfig) -> BatchRules:
        """Return the rules that follow from a topic's settings."""
        is_append_time = config.text("message.timestamp.type") == "LogAppendTime"
        return cls(
            max_message_bytes=config.whole("max.message.bytes"),
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
            ),
            timestamp_before_max_ms=config.whole("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=config.whole("message.timestamp.after.max.ms"),
            is_compacted="compact" in config.words("cleanup.policy"),
            decompressed_bytes_max=min(
                config.whole("max.decompressed.message.bytes"), INT32_MAX - RUN_BYTES
            ),
            value_schemas=config.flag("sparklog.schema.validation"),
            key_schemas=config.flag("sparklog.key.schema.validation"),
        )


def check_batch(
    records: BytesLike,
    rules: BatchRules,
    now_ms: int,
    *,
    loop_time: LoopTime | None = None,
    known: KnownSchemas = NO_SCHEMAS,
) -> CheckedBatch:
    """Check the records of a Produce request for one partition: exactly one batch, as in Kafka.

    One batch, because the response has one result per partition: there is none for half an append.

    Args:
        `records`: the bytes of the request for this partition.
        `rules`: of the topic.
        `now_ms`: the time.
        `loop_time`: the bytes left for checks on an event loop; None: the caller is not on one.
        `known`: the registered schemas, for a topic that needs them.

    Raises:
        NeedsTime: the check does not fit into `loop_time`.
        UnknownSchema: a record names a schema that is not among the known ones.
        CorruptMessage: no batch, damaged or cut short.
        InvalidRecord: a batch that no client may send, that some client could not read, or that
            this topic does not accept.
        InvalidTimestamp: outside `message.timestamp.before.max.ms` or `.after.max.ms`.
        RecordTooLarge: over `max.message.bytes`.
    """
    header = _sized_header(records, rules)
    if header.is_reference:
        if rules.needs_schemas:
            raise InvalidRecord("the schemas of referenced records were not checked")
        return _reference(header, records, rules, now_ms)[0]
    _check_fields(header)
    return _checked_records(header, records, rules, now_ms, loop_time, known)


def check_reference(
    records: BytesLike, rules: BatchRules, now_ms: int
) -> tuple[CheckedBatch, ReferenceBatch]:
    """Check a reference batch as `check_batch` does; also return its decoded content.

    The objects are left to `check_references`, and for a topic that needs schemas to
    `referenced_schemas`.

    Raises:
        InvalidRecord: it is no reference batch. Others: as `check_batch`.
    """
    header = _sized_header(records, rules)
    if not header.is_reference:
        raise InvalidRecord("not a reference batch")
    return _reference(header, records, rules, now_ms)


def _sized_header(records: BytesLike, rules: BatchRules) -> BatchHeader:
    """Return the header of the one batch, which is not too large.

    It verifies the checksum before it blames the client.
    """
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
    except DataCorrupt as error:
        raise _misuse_or_damage(view, error) from error
    try:
        check_crc(view, header)
    except DataCorrupt as error:
        raise CorruptMessage(str(error)) from error
    if header.size_bytes < view.nbytes:
        raise InvalidRecord(
            "more than one record batch for one partition; send exactly one. "
            f"bytes={view.nbytes} batch_bytes={header.size_bytes}"
        )
    if header.size_bytes > rules.max_message_bytes:
        raise RecordTooLarge(
            "record batch is over max.message.bytes; send smaller batches or raise the limit. "
            f"batch_bytes={header.size_bytes} max.message.bytes={rules.max_message_bytes}"
        )
    return header


def _checked_records(
    header: BatchHeader,
    records: BytesLike,
    rules: BatchRules,
    now_ms: int,
    loop_time: LoopTime | None,
    known: KnownSchemas,
) -> CheckedBatch:
    """Check every record; return the batch with a header that agrees with them."""
    if header.codec is Codec.NONE:
        data, first_byte = records, HEADER_BYTES
    else:
        data, first_byte = _decompressed(header, records, rules, loop_time), 0
    found = survey(header, data, first_byte)
    if found.fault is not None:
        raise InvalidRecord(
            f"record batch is malformed: {found.fault}; nobody could read it. "
            f"record={found.record} record_count={header.record_count} codec={header.codec.name}"
        )
    if header.codec is not Codec.NONE:
        _check_unfolded(header, found, rules)
    is_create_time = rules.timestamp_type is TimestampType.CREATE_TIME
    is_late = is_create_time and (
        found.newest_ms - now_ms > rules.timestamp_after_max_ms
        or now_ms - found.oldest_ms > rules.timestamp_before_max_ms
    )
    if is_late or (rules.is_compacted and found.null_keys):
        raise _record_errors(header, data, first_byte, rules, now_ms)
    if rules.value_schemas or rules.key_schemas:  # no call for each batch of other topics
        faults = find_faults(
            header, data, first_byte, known, values=rules.value_schemas, keys=rules.key_schemas
        )
        if faults is not None:
            raise _schema_error(header, faults)
    if not found.is_dense:
        if header.codec is not Codec.NONE:
            raise InvalidRecord(
                "offset deltas of compressed records are not 0, 1, 2 and so on. "
                f"record_count={header.record_count} codec={header.codec.name}"
            )
        if loop_time is not None:
            raise NeedsTime
        return _renumbered(header, data, first_byte)
    if is_create_time and header.max_timestamp != found.newest_ms:
        stamped = header._replace(max_timestamp=found.newest_ms)
        body = memoryview(records)[HEADER_BYTES:]
        data = b"".join((seal_header(stamped, body), body))
        return CheckedBatch(parse_header(data), data)
    return CheckedBatch(header, records)


def _decompressed(
    header: BatchHeader, records: BytesLike, rules: BatchRules, loop_time: LoopTime | None
) -> BytesLike:
    """Return the records decompressed, if every client can do so and they are not too many."""
    most = rules.decompressed_bytes_max
    bound = most if loop_time is None else min(most, loop_time.left_bytes)
    try:
        plain = decompress_strictly(memoryview(records)[HEADER_BYTES:], header.codec, bound)
    except OverBound as error:
        if bound < most:
            raise NeedsTime from error
        raise _too_large(header, most) from error
    except DataCorrupt as error:
        raise InvalidRecord(str(error)) from error
    if loop_time is not None:
        loop_time.left_bytes -= len(plain)
    return plain


def _check_unfolded(header: BatchHeader, found: Survey, rules: BatchRules) -> None:
    """Reject a batch whose rows take far more memory than its bytes: millions of empty headers."""
    costs = RECORD_COST_BYTES * header.record_count + HEADER_COST_BYTES * found.headers
    if costs > rules.decompressed_bytes_max:
        raise _too_large(header, rules.decompressed_bytes_max, headers=found.headers)


def _too_large(header: BatchHeader, limit_bytes: int, headers: int = 0) -> InvalidRecord:
    return InvalidRecord(
        "record batch unfolds to more than the topic's limit; send smaller batches or raise it. "
        f"batch_bytes={header.size_bytes} record_count={header.record_count} headers={headers} "
        f"max.decompressed.message.bytes={limit_bytes}"
    )


def _record_errors(
    header: BatchHeader, data: BytesLike, first_byte: int, rules: BatchRules, now_ms: int
) -> InvalidRecord | InvalidTimestamp:
    """Return the error that names every record which the topic does not accept."""
    rows = rows_of_batch(header, data, first_byte)
    problems: dict[int, str] = {}
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        stamps = rows.column("timestamp").cast(pa.int64()).to_numpy()
        problems.update(_out_of_time(stamps, rules, now_ms))
    has_bad_time = bool(problems)
    if rules.is_compacted:
        keyless = np.flatnonzero(rows.column("key").is_null().to_numpy(zero_copy_only=False))
        problems.update(dict.fromkeys(keyless.tolist(), "a compacted topic needs a key"))
    errors = tuple(RecordError(at, problems[at]) for at in sorted(problems))
    kind = InvalidTimestamp if has_bad_time else InvalidRecord
    first = errors[0]
    return kind(
        "records refused, and with them their batch; send the others again. "
        f"refused={len(errors)} records={header.record_count} "
        f"first_refused={first.batch_index}: {first.message}",
        errors,
    )


def _schema_error(header: BatchHeader, faults: SchemaFaults) -> InvalidRecord:
    """Return the error that names every record without a known schema."""
    at_fault = np.flatnonzero(faults.of_records)
    errors = tuple(
        RecordError(at, FAULTS[fault])
        for at, fault in zip(at_fault.tolist(), faults.of_records[at_fault].tolist(), strict=True)
    )
    kind = InvalidRecord if faults.first_unknown is None else UnknownSchema
    unknown = f" first_unknown_schema={faults.first_unknown!r}" if faults.first_unknown else ""
    return kind(
        "records refused, and with them their batch; the topic has schema validation, so send the "
        f"others again. refused={faults.refused} records={header.record_count} "
        f"first_refused={errors[0].batch_index}: {errors[0].message}{unknown}",
        errors,
    )


def _out_of_time(stamps: npt.NDArray[np.int64], rules: BatchRules, now_ms: int) -> dict[int, str]:
    """Return the records with timestamps outside the topic's limits, and the reason."""
    oldest_ms = now_ms - rules.timestamp_before_max_ms
    newest_ms = min(LONG_MAX, now_ms + rules.timestamp_after_max_ms)
    wrong = (stamps != NO_TIMESTAMP_MS) & ((stamps > newest_ms) | (stamps < oldest_ms))
    limits = (
        f"message.timestamp.before.max.ms={rules.timestamp_before_max_ms} "
        f"message.timestamp.after.max.ms={rules.timestamp_after_max_ms}"
    )
    return {
        at: f"timestamp is out of range. timestamp={stamps[at]} now={now_ms} {limits}"
        for at in np.flatnonzero(wrong).tolist()
    }


def _renumbered(header: BatchHeader, data: BytesLike, first_byte: int) -> CheckedBatch:
    """Return an uncompressed batch whose deltas are 0, 1, 2 and so on (BATCH-VALIDATOR-2)."""
    rows = rows_of_batch(header, data, first_byte)
    settings = BatchSettings(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    again = encode(rows.drop_columns(["offset"]), settings, base_offset=0)
    return CheckedBatch(parse_header(again), again)


def check_replicated(records: BytesLike) -> Iterator[CheckedBatch]:
    """Yield the batches that a leader sent to its follower, each with its checksum verified.

    Raises:
        DataCorrupt: not whole batches, or damaged on the way; fetch them again.
    """
    for one in split_batches(records):
        check_crc(one.data, one.header)
        yield CheckedBatch(one.header, one.data)


def _misuse_or_damage(view: memoryview, error: DataCorrupt) -> SparklogError:
    """Return the error for a header that contradicts itself: with a valid checksum it is misuse.

    A client sends a damaged batch again. A batch that the client itself wrote wrongly stays wrong.
    """
    if view.nbytes >= HEADER_BYTES and view[MAGIC_AT] == MAGIC:
        header = BatchHeader._make(LAYOUT.unpack_from(view))
        if HEADER_BYTES <= header.size_bytes <= view.nbytes:
            try:
                check_crc(view, header)
            except DataCorrupt:
                return CorruptMessage(str(error))
            return InvalidRecord(str(error))
    return CorruptMessage(str(error))


def _check_fields(header: BatchHeader) -> None:
    """Reject a batch whose header shows that no producer may send it."""
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


def _reference(
    header: BatchHeader, records: BytesLike, rules: BatchRules, now_ms: int
) -> tuple[CheckedBatch, ReferenceBatch]:
    """Check the content of a reference batch; `check_references` checks the objects that it names.

    The writer that staged the objects is responsible for the records: their sizes and keys.
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
    return CheckedBatch(header, records), batch


def _check_newest(timestamp_ms: int, rules: BatchRules, now_ms: int) -> None:
    if timestamp_ms - now_ms > rules.timestamp_after_max_ms:
        raise InvalidTimestamp(
            "timestamp is too far in the future; set the producer's clock, or raise the limit. "
            f"timestamp={timestamp_ms} now={now_ms} "
            f"message.timestamp.after.max.ms={rules.timestamp_after_max_ms}"
        )


def _check_oldest(timestamp_ms: int, rules: BatchRules, now_ms: int) -> None:
    if now_ms - timestamp_ms > rules.timestamp_before_max_ms:
        raise InvalidTimestamp(
            "timestamp is too far in the past; check the producer, or raise the limit. "
            f"timestamp={timestamp_ms} now={now_ms} "
            f"message.timestamp.before.max.ms={rules.timestamp_before_max_ms}"
        )
