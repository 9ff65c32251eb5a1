"""SegmentDump: prints the contents of a segment, with the fields of Kafka's DumpLogSegments.

A line is a list of `name: value`, and its JSON form has the same names. An Arrow record batch
replaces Kafka's record batch, and `format` replaces `magic`. `position` and `size` are those in the
object; `crc` is that of the batch's metadata. Memory: one batch at a time. Secrets in records of
the metadata log are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from sparklog.cli.console.record_format import JSON_COLUMNS, timestamp_type_name
from sparklog.cli.output import Output, readable, spelled
from sparklog.cluster.metadata.records import without_secrets
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import NO_PRODUCER_ID
from sparklog.log.layout import METADATA_TOPIC_ID
from sparklog.log.segment.column_reader import ColumnPiece, decode
from sparklog.log.segment.file import Span
from sparklog.log.segment.footer import FORMAT_VERSION
from sparklog.log.segment.segment import BatchIndex, Marker, ProducerBatch, Segment
from sparklog.protocol.records.control import control_record, end_transaction
from sparklog.store.base import ObjectStore

TRANSACTIONAL = 0x10
CONTROL = 0x20
"""Bits of Kafka's record batch attributes."""
NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class Depth:
    """The printed parts of a segment."""

    records: bool
    """`--deep-iteration`"""
    data: bool
    """`--print-data-log`: keys and values, too."""
    record_metadata: bool = True
    """Off by `--skip-record-metadata`."""


class SegmentDump:
    """Prints segments of one store and records the damaged ones."""

    def __init__(self, store: ObjectStore, output: Output, depth: Depth) -> None:
        """Print to `output`."""
        self._store = store
        self._output = output
        self._depth = depth
        self.damaged: list[str] = []

    def print(self, key: str, segment: Segment, object_base: int, size_bytes: int) -> None:
        """Print a segment whose first offset is `object_base`."""
        self._output.line(f"Log starting offset: {object_base}")
        shift = object_base - segment.base_offset
        self._output.fields("Segment", "segment", _segment_fields(segment, shift, size_bytes))
        for append in segment.appends:
            fields = {
                **_offsets(append.base_offset, append.end_offset),
                "partitionLeaderEpoch": append.leader_epoch,
                "nonce": append.nonce,
            }
            self._output.fields("Append", "append", fields)
        for reference in segment.references:
            fields = {
                "object": reference.object,
                **_offsets(object_base + reference.base, object_base + reference.end),
                "count": reference.rows,
                "size": reference.size_bytes,
                "nonce": reference.nonce,
            }
            self._output.fields("Reference", "reference", fields)
        for produced in segment.producers:
            self._output.fields("Producer", "producer", _producer_fields(produced, object_base))
        for marker in segment.markers:
            self._output.fields("Marker", "marker", _marker_fields(marker, object_base))
        length, crc = segment.head
        head = self._store.get(key, 0, length)
        if len(head) < length or crc32c(head) != crc:
            self._damage(f"{key} position=0 length={length}")
        for batch in segment.batches:
            self._print_batch(key, segment, batch, object_base)

    def _print_batch(self, key: str, segment: Segment, batch: BatchIndex, object_base: int) -> None:
        start = batch.stored.position
        size = batch.stored.meta.length + batch.stored.body_length
        data = self._store.get(key, start, start + size)
        wrong = _broken_span(batch, data)
        fields = {
            **_batch_fields(segment, batch, object_base),
            "crc": batch.stored.meta.crc,
            "isvalid": wrong is None,
        }
        self._output.fields("", "batch", fields)
        if wrong is not None:
            self._damage(f"{key} position={wrong.start} length={wrong.length}")
        elif self._depth.records:
            try:
                self._print_records(key, segment, batch, object_base, data)
            except DataCorrupt as error:
                self._damage(str(error))

    def _print_records(
        self, key: str, segment: Segment, batch: BatchIndex, object_base: int, data: bytes
    ) -> None:
        piece = ColumnPiece(
            object=key,
            segment=segment,
            object_base=object_base,
            batches=(batch,),
            columns=tuple(segment.column_names),
            base_offset=object_base + batch.base,
            end_offset=object_base + batch.end,
        )
        producers = _Producers(segment, object_base)
        for found in decode(piece, [(batch.stored.position, data)], JSON_COLUMNS):
            stamps = found.column("timestamp").cast("int64").to_pylist()
            rows = found.drop_columns(["timestamp"]).to_pylist()
            for row, stamp in zip(rows, stamps, strict=True):
                row["timestamp"] = stamp
                row["payload"] = row["value"]
                if segment.topic_id == METADATA_TOPIC_ID and row["value"] is not None:
                    row["payload"] = without_secrets(row["value"])
                row["sequence"] = producers.sequence(row["offset"])
                self._print_record(row)

    def _print_record(self, row: dict[str, Any]) -> None:
        key, value, payload = row["key"], row["value"], row["payload"]
        fields = {
            "offset": row["offset"],
            timestamp_type_name(row["timestampType"]): row["timestamp"],
            "keySize": -1 if key is None else len(key),
            "valueSize": -1 if value is None else len(value),
            "sequence": row["sequence"],
            "headerKeys": [header["key"] for header in row["headers"] or ()],
        }
        if not self._depth.record_metadata:
            fields = {}
        if not self._output.as_json:
            parts = [spelled(fields).encode("utf-8", "surrogateescape")] if fields else []
            if self._depth.data:
                parts += [b"key: " + key] if key is not None else []
                parts += [b"payload: " + payload] if payload is not None else []
            self._output.line(b"| " + b" ".join(parts))
            return
        if self._depth.data:
            fields |= {"key": readable(key), "payload": readable(payload)}
        self._output.document({"type": "record", **fields})

    def _damage(self, where: str) -> None:
        self.damaged.append(where)


def _segment_fields(segment: Segment, shift: int, size_bytes: int) -> dict[str, Any]:
    commit = segment.commit
    return {
        "kind": segment.kind,
        "topicId": segment.topic_id,
        "partition": segment.partition,
        **_offsets(segment.base_offset + shift, segment.end_offset + shift),
        "count": segment.rows,
        "partitionLeaderEpoch": segment.leader_epoch,
        "isLed": segment.led,
        timestamp_type_name(int(segment.timestamp_type)): segment.max_timestamp_ms,
        "size": size_bytes,
        "format": FORMAT_VERSION,
        "compresscodec": segment.codec,
        "nonce": segment.nonce,
        "commit": f"{commit.key.writer}/{commit.key.sequence}" if commit is not None else None,
        "columns": list(segment.column_names),
    }


def _batch_fields(segment: Segment, batch: BatchIndex, object_base: int) -> dict[str, Any]:
    base, end = object_base + batch.base, object_base + batch.end
    producers = _Producers(segment, object_base)
    producer = producers.of_range(base, end)
    attributes = producer.attributes if producer is not None else 0
    return {
        **_offsets(base, end),
        "count": batch.rows,
        "baseSequence": producers.sequence(base) if producer is not None else NO_SEQUENCE,
        "lastSequence": producers.sequence(end - 1) if producer is not None else NO_SEQUENCE,
        "producerId": producer.producer_id if producer is not None else NO_PRODUCER_ID,
        "producerEpoch": producer.producer_epoch if producer is not None else NO_PRODUCER_ID,
        "partitionLeaderEpoch": segment.leader_epoch,
        "isTransactional": bool(attributes & TRANSACTIONAL),
        "isControl": bool(attributes & CONTROL),
        "deleteHorizonMs": None,
        "position": batch.stored.position,
        timestamp_type_name(int(segment.timestamp_type)): batch.max_timestamp_ms,
        "size": batch.stored.meta.length + batch.stored.body_length,
        "format": FORMAT_VERSION,
        "compresscodec": segment.codec,
    }


def _producer_fields(produced: ProducerBatch, object_base: int) -> dict[str, Any]:
    return {
        "producerId": produced.producer_id,
        "producerEpoch": produced.producer_epoch,
        "baseSequence": produced.base_sequence,
        **_offsets(object_base + produced.base, object_base + produced.end),
        "isTransactional": bool(produced.attributes & TRANSACTIONAL),
        "isControl": bool(produced.attributes & CONTROL),
    }


def _marker_fields(marker: Marker, object_base: int) -> dict[str, Any]:
    record = control_record(object_base + marker.base, marker.key, marker.value)
    end = end_transaction(record)
    return {
        "offset": record.offset,
        "CreateTime": marker.timestamp_ms,
        "endTxnMarker": record.type.name,
        "coordinatorEpoch": end.coordinator_epoch if end is not None else None,
    }


class _Producers:
    """The idempotent producers of a segment, by offset."""

    def __init__(self, segment: Segment, object_base: int) -> None:
        self._batches = sorted(segment.producers, key=lambda p: p.base)
        self._base = object_base

    def of_range(self, base_offset: int, end_offset: int) -> ProducerBatch | None:
        """Return the producer of a whole record batch; None if it has none, or several."""
        first = max(0, self._at(base_offset))
        last = self._at(end_offset - 1)
        found = [p for p in self._batches[first : last + 1] if self._base + p.end > base_offset]
        same = {(p.producer_id, p.producer_epoch, p.attributes) for p in found}
        return found[0] if len(same) == 1 else None

    def sequence(self, offset: int) -> int:
        """Return a record's sequence number, -1 without a producer."""
        at = self._at(offset)
        if at < 0:
            return NO_SEQUENCE
        produced = self._batches[at]
        inside = offset - self._base < produced.end and produced.base_sequence >= 0
        return produced.base_sequence + offset - self._base - produced.base if inside else -1

    def _at(self, offset: int) -> int:
        """Return the last batch that starts at or before `offset`, -1 if none does."""
        return bisect_right(self._batches, offset - self._base, key=lambda p: p.base) - 1


def _broken_span(batch: BatchIndex, data: bytes) -> Span | None:
    """Return the first span of a batch that is missing or fails its CRC, by file position."""
    start = batch.stored.position
    body = start + batch.stored.meta.length
    spans = [batch.stored.meta]
    spans += [Span(body + s.start, s.length, s.crc) for s in batch.stored.columns]
    for span in spans:
        found = data[span.start - start : span.start - start + span.length]
        if len(found) < span.length or crc32c(found) != span.crc:
            return span
    return None


def _offsets(base_offset: int, end_offset: int) -> dict[str, int]:
    return {"baseOffset": base_offset, "lastOffset": end_offset - 1}
