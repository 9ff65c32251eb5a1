"""Rebuilds the state of a partition's producers from its log, or from a snapshot.

A new leader starts from a snapshot if there is one. It then replays the segments after it, and then
the batches that are in no segment yet. The replay checks nothing: these batches are in the log, so
they count. Older batches are unknown. The further back the replay begins, the older the retries
that the leader recognises. Offsets are absolute here; a segment's own are relative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import NO_PRODUCER_ID, NO_TIMESTAMP_MS, TimestampType
from sparklog.log.segment.segment import ProducerBatch, Segment
from sparklog.log.tail.producer_state import (
    AbortedTransaction,
    AppendedBatchMetadata,
    ProducerEntry,
    ProducerStates,
)
from sparklog.protocol.records.control import (
    ControlRecord,
    control_record,
    end_transaction,
    read_control,
)
from sparklog.protocol.records.header import (
    CONTROL_BIT,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    increment_sequence,
    parse_header,
)
from sparklog.protocol.records.record_batch import decode

SNAPSHOT_FORMAT: Final = 1

Document = dict[str, Any]


def rebuilt(
    segments: Iterable[Segment], batches: Iterable[BytesLike], now_ms: int
) -> ProducerStates:
    """Return the state after these segments and then these batches, both in order.

    All count as written now, so that a late replay expires no producer.

    Raises:
        DataCorrupt: a marker that cannot be read.
    """
    states = ProducerStates()
    for segment in segments:
        replay_segment(states, segment, now_ms)
    for batch in batches:
        replay_batch(states, batch, now_ms)
    return states


def replay_segment(states: ProducerStates, segment: Segment, now_ms: int) -> None:
    """Replay the producers' batches and markers in a segment's footer.

    Raises:
        DataCorrupt: a marker that cannot be read.
    """
    markers = {marker.base: marker for marker in segment.markers}
    for one in segment.producers:
        if not one.attributes & CONTROL_BIT:
            _take_stored(states, one, segment.base_offset, now_ms)
        elif one.base in markers:
            marker = markers[one.base]
            record = control_record(segment.base_offset + one.base, marker.key, marker.value)
            _take_marker(states, one.producer_id, one.producer_epoch, record, now_ms)


def replay_batch(states: ProducerStates, data: BytesLike, now_ms: int) -> None:
    """Replay a batch that has its offset.

    Raises:
        DataCorrupt: a marker that cannot be read.
    """
    header = parse_header(data)
    if header.producer_id == NO_PRODUCER_ID:
        return
    if not header.is_control:
        _take_batch(states, header, now_ms)
        return
    for record in read_control(decode(data, verify_crc=False)):
        _take_marker(states, header.producer_id, header.producer_epoch, record, now_ms)


def snapshot(states: ProducerStates) -> Document:
    """Return the whole state as JSON values.

    It is valid for the present end of the log. Store it with that offset, and only after the
    partition's own log has all records below it.
    """
    return {
        "format": SNAPSHOT_FORMAT,
        "producers": [
            [
                producer_id,
                known.epoch,
                known.last_sequence,
                known.coordinator_epoch,
                known.written_ms,
                [list(batch) for batch in known.batches],
            ]
            for producer_id, known in states
        ],
        "open": [list(entry) for entry in states.transactions.open()],
        "aborted": [list(one) for one in states.transactions.aborted],
    }


def restored(document: Document) -> ProducerStates:
    """Return the state from the result of `snapshot`; then replay the log from its offset on.

    Raises:
        DataCorrupt: it is no snapshot, or of a newer format; rebuild from the log.
    """
    states = ProducerStates()
    try:
        if document["format"] != SNAPSHOT_FORMAT:
            raise ValueError(f"format {document['format']}")
        for producer_id, epoch, last, coordinator_epoch, written_ms, batches in document[
            "producers"
        ]:
            known = ProducerEntry(int(epoch), None if last is None else int(last))
            known.coordinator_epoch, known.written_ms = int(coordinator_epoch), int(written_ms)
            known.batches.extend(AppendedBatchMetadata(*_whole(batch)) for batch in batches)
            states.restore(int(producer_id), known)
        for producer_id, first_offset in document["open"]:
            states.transactions.begin(int(producer_id), int(first_offset))
        states.transactions.aborted.extend(
            AbortedTransaction(*_whole(one)) for one in document["aborted"]
        )
    except (TypeError, KeyError, ValueError) as error:
        raise DataCorrupt(
            f"snapshot of producers cannot be read: {error!r}; rebuild it from the log."
        ) from error
    return states


def _take_batch(states: ProducerStates, header: BatchHeader, now_ms: int) -> None:
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    taken = AppendedBatchMetadata(
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.end_offset,
        header.max_timestamp if is_append_time else NO_TIMESTAMP_MS,
    )
    states.take(
        header.producer_id,
        header.producer_epoch,
        taken,
        now_ms,
        is_transactional=header.is_transactional,
    )


def _take_stored(
    states: ProducerStates, stored: ProducerBatch, base_offset: int, now_ms: int
) -> None:
    first = stored.base_sequence
    count = stored.end - stored.base
    taken = AppendedBatchMetadata(
        first,
        first if first == NO_SEQUENCE else increment_sequence(first, count - 1),
        base_offset + stored.base,
        base_offset + stored.end,
        NO_TIMESTAMP_MS,
    )
    states.take(
        stored.producer_id,
        stored.producer_epoch,
        taken,
        now_ms,
        is_transactional=bool(stored.attributes & TRANSACTIONAL_BIT),
    )


def _take_marker(
    states: ProducerStates,
    producer_id: int,
    producer_epoch: int,
    record: ControlRecord,
    now_ms: int,
) -> None:
    marker = end_transaction(record)
    if marker is not None:
        states.record_marker(producer_id, producer_epoch, marker, record.offset, now_ms)


def _whole(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values]
