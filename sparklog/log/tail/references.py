"""Reference batches: small record batches that stand for the records in staged objects.

A writer with much data for a partition that a leader owns uploads it as staged objects, as direct
appends do. It then produces a reference batch, which takes as many offsets as the objects have
rows. Leaders, followers and write-ahead logs handle it as any other batch. A flush turns it into a
reference segment, and consumers read the records themselves from there.

This module is pure. `decode_references` finds the errors of a batch, `check_references` those of
its objects.

REFERENCES-1: References are dense and in order, each object once. All are under `staged/` of the
    partition's own folder, and their names are relative to that folder.
REFERENCES-2: The objects of an accepted batch exist, their metadata is whole, and the batch
    describes them exactly.

`PendingReferences` recognises a reference batch that a writer sends again, so that the leader
appends it once. The log identifies a batch by its commit key and by its objects. Batches in the
tail are remembered until they are flushed. No rebuild is needed: a new leader's tail is empty.

REFERENCES-3: After a writer's sequence was appended, neither that nor a lower one of that writer
    is.
REFERENCES-4: Without a commit key, no batch is appended whose first object the log names (unless a
    rewrite has replaced that object since).

Source: FORMAT.md 5 and 9, "Reference batches".
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import DataCorrupt, InvalidRecord, InvalidRequest
from sparklog.core.types import NO_TIMESTAMP_MS, TimestampType
from sparklog.log.effects import Program
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.refresh import read_stored
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.footer import reference_document, reference_from_document
from sparklog.log.segment.segment import CommitKey, CommitStamp, Reference, Segment
from sparklog.protocol.records.header import (
    HEADER_BYTES,
    INT32_MAX,
    REFERENCE_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    parse_header,
    seal_header,
)
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode

VERSION: Final = 1
OBJECTS_MAX: Final = 8192
"""Objects of one batch: 128 GiB at the usual size of a staged object. It bounds the objects that a
leader must check before it appends any client's batch."""
TEXT_BYTES_MAX: Final = 4 << 20
"""Twice the size of OBJECTS_MAX references. It bounds the decompressed size of a small batch."""
_VALUES_PER_OBJECT: Final = 16
OBJECTS_CHECKED_AT_ONCE: Final = 32
_UNLIKE_THE_FORMAT: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
_WRITER: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class ReferenceBatch:
    """The content of a reference batch."""

    references: tuple[Reference, ...]
    """In order; their offsets are relative to the batch's base offset."""
    commit: CommitStamp | None = None
    """With it, the append happens at most once (FORMAT.md 5)."""

    @property
    def count(self) -> int:
        """Return the number of records, and offsets, that it stands for."""
        return self.references[-1].end if self.references else 0


def reference_batch(staged: Iterable[Reference], commit: CommitStamp | None) -> ReferenceBatch:
    """Put staged objects in order, one after the other."""
    placed: list[Reference] = []
    base = 0
    for reference in staged:
        end = base + reference.end - reference.base
        placed.append(replace(reference, base=base, end=end))
        base = end
    return ReferenceBatch(tuple(placed), commit)


@dataclass(frozen=True, slots=True)
class ReferencedObject:
    """The producer whose transaction a reference batch is part of."""

    producer_id: int
    producer_epoch: int
    base_sequence: int = 0


def encode_references(batch: ReferenceBatch, enlisted: ReferencedObject | None = None) -> bytes:
    """Return the batch as a Produce request carries it.

    Raises:
        InvalidRequest: no records, more than the offsets of one batch can count, or too many
            objects.
    """
    if not 0 < batch.count <= INT32_MAX or len(batch.references) > OBJECTS_MAX:
        raise InvalidRequest(
            "a reference batch stands for 1 to 2,147,483,647 records in 8,192 staged objects at "
            "most; write in smaller portions, or with fewer tasks. "
            f"records={batch.count} objects={len(batch.references)}"
        )
    commit = batch.commit
    document = {
        "format": VERSION,
        "commit": None
        if commit is None
        else [commit.key.writer, commit.key.sequence, commit.timestamp_ms],
        "references": [reference_document(one) for one in batch.references],
    }
    text = json.dumps(document, separators=(",", ":")).encode()
    newest_ms = max(one.max_timestamp_ms for one in batch.references)
    stamps = pa.array([newest_ms], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    row = pa.record_batch({"timestamp": stamps, "value": pa.array([text], pa.binary())})
    settings = BatchSettings(codec=Codec.ZSTD)
    if enlisted is not None:
        settings = replace(
            settings,
            producer_id=enlisted.producer_id,
            producer_epoch=enlisted.producer_epoch,
            base_sequence=enlisted.base_sequence,
            is_transactional=True,
        )
    data = encode(row, settings, base_offset=0, last_offset=batch.count - 1)
    header = parse_header(data)
    marked = header._replace(attributes=header.attributes | REFERENCE_BIT)
    records = data[HEADER_BYTES:]
    return seal_header(marked, records) + records


def decode_references(data: BytesLike, header: BatchHeader | None = None) -> ReferenceBatch:
    """Return the content of a batch with the reference bit; its checksum was verified before.

    Raises:
        DataCorrupt: it does not follow the format.
    """
    header = header or parse_header(data)
    _check_header(header)
    try:
        document = parse_json(_text(data), "reference batch")
        if document["format"] > VERSION:
            raise DataCorrupt(
                "reference batch was written by a newer sparklog; upgrade. "
                f"format={document['format']} known={VERSION}"
            )
        batch = ReferenceBatch(
            tuple(reference_from_document(one) for one in document["references"]),
            _commit(document["commit"]),
        )
        if batch.commit is not None and header.is_transactional:
            raise ValueError("a commit key, though the transaction makes it happen once")
    except _UNLIKE_THE_FORMAT as error:
        raise DataCorrupt(f"reference batch is not as the format says: {error!r}") from error
    _check_references(batch, header)
    return batch


def _text(data: BytesLike) -> bytes:
    """Return the text of a batch, if it has no more JSON values than a valid batch needs.

    Raises:
        DataCorrupt: it decompresses to too much. ValueError: it is not one record with a value.
    """
    rows = decode(data, verify_crc=False, max_decompressed_bytes=TEXT_BYTES_MAX).records
    (value,) = rows.column("value").to_pylist()
    if not isinstance(value, bytes):
        raise ValueError("no text")
    values = value.count(b",") + value.count(b"[") + value.count(b"{")
    if values > OBJECTS_MAX * _VALUES_PER_OBJECT:
        raise DataCorrupt(f"reference batch holds too many values. values={values}")
    return value


def check_references(layout: PartitionLayout, batch: ReferenceBatch) -> Program[None]:
    """Compare the references of a batch with the objects' own metadata.

    Cost: a request per object, for its footer.

    Raises:
        InvalidRecord: an object is missing or damaged, or differs from its reference.
    """
    for at in range(0, len(batch.references), OBJECTS_CHECKED_AT_ONCE):
        yield from open_referenced(layout, batch.references[at : at + OBJECTS_CHECKED_AT_ONCE])


def open_referenced(
    layout: PartitionLayout, references: Sequence[Reference]
) -> Program[list[Segment]]:
    """Return the objects' own metadata for at most OBJECTS_CHECKED_AT_ONCE references.

    Raises:
        InvalidRecord: as `check_references`.
    """
    try:
        found = yield from read_stored(layout, [one.object for one in references])
    except DataCorrupt as error:
        raise InvalidRecord(f"reference batch refused: {error}") from error
    segments = []
    for one, stored in zip(references, found, strict=True):
        problem = "it does not exist" if stored is None else _mismatch(one, *stored)
        if stored is None or problem is not None:
            raise InvalidRecord(
                f"reference batch refused, as of an object it names {problem}. "
                f"object={layout.key(one.object)}"
            )
        segments.append(stored[0])
    return segments


def _check_header(header: BatchHeader) -> None:
    problem = None
    if header.is_control:
        problem = "it can be no marker"
    elif header.has_producer_id != header.is_transactional:
        problem = "outside of transactions its commit key, not a producer id, makes it happen once"
    elif header.is_transactional and (header.producer_epoch < 0 or header.base_sequence < 0):
        problem = "a producer id comes with an epoch and a sequence number"
    elif header.record_count != 1:
        problem = f"it holds one record, not {header.record_count}"
    elif header.timestamp_type is not TimestampType.CREATE_TIME:
        problem = "the objects, not it, tell of which type their timestamps are"
    if problem is not None:
        raise DataCorrupt(
            f"reference batch is malformed: {problem}. attributes={header.attributes}"
        )


def _check_references(batch: ReferenceBatch, header: BatchHeader) -> None:
    """Check REFERENCES-1, and that the header agrees with the references."""
    if len(batch.references) > OBJECTS_MAX:
        raise DataCorrupt(f"reference batch names too many objects. max={OBJECTS_MAX}")
    end = 0
    names = set()
    for one in batch.references:
        if one.object != PartitionLayout.staged_name(one.nonce) or one.object in names:
            raise DataCorrupt(f"reference batch names a wrong object. object={one.object[:80]!r}")
        names.add(one.object)
        if one.base != end or one.rows <= 0 or one.end != end + one.rows:
            raise DataCorrupt(
                "references are not dense and in order. "
                f"object={one.object} base={one.base} end={one.end} rows={one.rows} expected={end}"
            )
        end = one.end
    # As Kafka computes it, a batch's newest timestamp is at least -1.
    newest_ms = max(NO_TIMESTAMP_MS, *(one.max_timestamp_ms for one in batch.references))
    if end != header.last_offset_delta + 1 or newest_ms != header.max_timestamp:
        raise DataCorrupt(
            "references are not what the batch's header says. "
            f"records={end} last_offset_delta={header.last_offset_delta} "
            f"newest={newest_ms} max_timestamp={header.max_timestamp}"
        )


def _mismatch(claimed: Reference, stored: Segment, size_bytes: int) -> str | None:
    """Return the difference between a reference and its object, or None."""
    if stored.kind != "data" or (stored.base_offset, stored.end_offset) != (0, stored.rows):
        return "the kind or the offsets are not those of a staged object"
    pairs: Sequence[tuple[str, Any, Any]] = (
        ("rows", claimed.rows, stored.rows),
        ("nonce", claimed.nonce, stored.nonce),
        ("bytes", claimed.size_bytes, size_bytes),
        ("min_timestamp", claimed.min_timestamp_ms, stored.min_timestamp_ms),
        ("max_timestamp", claimed.max_timestamp_ms, stored.max_timestamp_ms),
    )
    return next((f"`{name}` differs" for name, said, is_ in pairs if said != is_), None)


def _commit(document: list[Any] | None) -> CommitStamp | None:
    if document is None:
        return None
    writer, sequence, timestamp_ms = document
    if not isinstance(writer, str) or not _WRITER.fullmatch(writer) or int(sequence) < 0:
        raise ValueError("not a commit key")
    return CommitStamp(CommitKey(writer, int(sequence)), int(timestamp_ms))


class KnownReferences(NamedTuple):
    """A batch in the tail."""

    base_offset: int
    end_offset: int
    first_object: str
    writer: str | None
    sequence: int


class PendingReferences:
    """The reference batches in one leader's tail. Not thread-safe."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        """Begin with none."""
        self._taken: deque[KnownReferences] = deque()

    def find(self, batch: ReferenceBatch, view: PartitionView) -> tuple[int, int] | None:
        """Return the base and end offset of the batch if it was appended before, or None.

        Cost: without a commit key, a comparison with every entry of the log.
        """
        name = batch.references[0].object
        if batch.commit is None:
            for one in self._taken:
                if one.first_object == name:
                    return one.base_offset, one.end_offset
            return _place_of(name, batch, view)
        key = batch.commit.key
        for one in reversed(self._taken):
            if one.writer == key.writer and one.sequence >= key.sequence:
                return one.base_offset, one.end_offset
        known = view.committed(key)
        return None if known is None else (known.base_offset, known.end_offset)

    def took(self, batch: ReferenceBatch, base_offset: int) -> None:
        """Record a batch that was appended to the tail."""
        key = batch.commit.key if batch.commit is not None else None
        self._taken.append(
            KnownReferences(
                base_offset,
                base_offset + batch.count,
                batch.references[0].object,
                key.writer if key is not None else None,
                key.sequence if key is not None else -1,
            )
        )

    def flushed(self, end_offset: int) -> bool:
        """Drop batches that the log has below `end_offset`; return True if there were any."""
        before = len(self._taken)
        while self._taken and self._taken[0].end_offset <= end_offset:
            self._taken.popleft()
        return len(self._taken) < before


def _place_of(name: str, batch: ReferenceBatch, view: PartitionView) -> tuple[int, int] | None:
    for entry in view.entries:
        if entry.object == name:
            return entry.base_offset, entry.base_offset + batch.count
    return None
