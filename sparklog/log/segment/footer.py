"""The custom metadata of a segment's footer: a `Segment` as text, and back. Source: FORMAT.md 2."""

from __future__ import annotations

import base64
import json
from typing import Any

from crc32c import crc32c

from sparklog.core.bounded_json import OBJECT_BYTES_MAX, parse_json
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import UNLED_EPOCH, TimestampType
from sparklog.log.layout import PartitionLayout, is_data_name
from sparklog.log.segment.file import Span, StoredBatch
from sparklog.log.segment.key_index import BLOCK_BYTES, PAGE_BYTES, KeyIndex
from sparklog.log.segment.segment import (
    Append,
    BatchIndex,
    CommitKey,
    CommitStamp,
    Marker,
    ProducerBatch,
    Reference,
    Segment,
    UnreadBatch,
)

STORED_ROWS_MAX = 1 << 20
"""Rows of one stored record batch; sparklog's writers store at most 16,384."""
FORMAT_VERSION = 2
"""The version that is written. Format 1 is also read: FORMAT.md 10."""
SEGMENT_KEY = "sparklog.segment"
CRC_KEY = "sparklog.crc32c"


def to_metadata(segment: Segment) -> dict[str, str]:
    """Return the footer's custom metadata."""
    batches = segment.batches
    document: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "kind": segment.kind,
        "topic_id": segment.topic_id,
        "partition": segment.partition,
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "rows": segment.rows,
        "leader_epoch": segment.leader_epoch,
        "nonce": segment.nonce,
        "min_timestamp": segment.min_timestamp_ms,
        "max_timestamp": segment.max_timestamp_ms,
        "timestamp_type": int(segment.timestamp_type),
        "codec": segment.codec,
        "head": list(segment.head),
        "batches": {
            "base": [b.base for b in batches],
            "end": [b.end for b in batches],
            "rows": [b.rows for b in batches],
            "at": [b.stored.position for b in batches],
            "meta": [[b.stored.meta.length, b.stored.meta.crc] for b in batches],
            "body": [b.stored.body_length for b in batches],
            "min_timestamp": [b.min_timestamp_ms for b in batches],
            "max_timestamp": [b.max_timestamp_ms for b in batches],
            "columns": {
                name: [
                    [span.start, span.length, span.crc]
                    for span in (b.stored.columns[i] for b in batches)
                ]
                for i, name in enumerate(segment.column_names)
            },
        },
        "producers": [
            [p.producer_id, p.producer_epoch, p.base_sequence, p.base, p.end, p.attributes]
            for p in segment.producers
        ],
        "commit": _commit_document(segment.commit),
    }
    if segment.appends:
        document["appends"] = [
            [a.base_offset, a.end_offset, a.leader_epoch, a.nonce] for a in segment.appends
        ]
    if segment.led or segment.kind == "fence":
        document["led"] = segment.led
    if segment.markers:
        document["markers"] = [
            [m.base, m.timestamp_ms, m.key.hex(), None if m.value is None else m.value.hex()]
            for m in segment.markers
        ]
    if segment.unread:
        document["unread"] = [
            [u.base, u.end, base64.b64encode(u.data).decode()] for u in segment.unread
        ]
    if segment.keys is not None:
        document["keys"] = _keys_document(segment.keys)
    if segment.references:
        document["references"] = [reference_document(r) for r in segment.references]
    text = json.dumps(document, separators=(",", ":"))
    return {SEGMENT_KEY: text, CRC_KEY: str(crc32c(text.encode()))}


def reference_document(reference: Reference) -> dict[str, Any]:
    """Return a reference as JSON values, as segments and publication records store it."""
    return {
        "object": reference.object,
        "base": reference.base,
        "end": reference.end,
        "rows": reference.rows,
        "bytes": reference.size_bytes,
        "nonce": reference.nonce,
        "min_timestamp": reference.min_timestamp_ms,
        "max_timestamp": reference.max_timestamp_ms,
    }


def reference_from_document(document: dict[str, Any]) -> Reference:
    """Return the reference that `reference_document` wrote.

    Raises:
        ValueError, KeyError, TypeError: it is not one; the caller names the object it came from.
    """
    name = str(document["object"])
    if not is_data_name(name):
        raise ValueError(f"reference to something that is no data object: {name}")
    return Reference(
        object=name,
        base=int(document["base"]),
        end=int(document["end"]),
        rows=int(document["rows"]),
        size_bytes=int(document["bytes"]),
        nonce=str(document["nonce"]),
        min_timestamp_ms=int(document["min_timestamp"]),
        max_timestamp_ms=int(document["max_timestamp"]),
    )


def from_metadata(metadata: dict[str, str], layout: PartitionLayout, name: str) -> Segment:
    """Return the segment that a footer describes.

    Raises:
        DataCorrupt: no such metadata, a checksum that does not fit, another partition's segment,
            an index that contradicts itself, or a format newer than this reader.
    """
    document = checked_document(metadata, SEGMENT_KEY, name)
    try:
        segment = _segment(document)
        _check_rows(segment)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataCorrupt(
            f"segment metadata is not as the format says: {error!r}; run verify. object={name}"
        ) from error
    if (segment.topic_id, segment.partition) != (layout.topic_id, layout.partition):
        raise DataCorrupt(
            "segment belongs to another partition; it was copied or renamed by hand. "
            f"object={name} topic_id={segment.topic_id} partition={segment.partition}"
        )
    return segment


def _check_rows(segment: Segment) -> None:
    """Raise ValueError if the index has other rows than the segment: readers rely on both."""
    for one in segment.batches:
        if not 0 <= one.rows <= min(STORED_ROWS_MAX, one.end - one.base):
            raise ValueError(f"a record batch cannot have so many rows: {one.rows}")
    found = sum(one.rows for one in segment.batches)
    if segment.kind == "data" and found != segment.rows:
        raise ValueError(f"the index has {found} rows, and the segment {segment.rows}")


def checked_document(
    metadata: dict[str, str], key: str, name: str, known: int = FORMAT_VERSION
) -> dict[str, Any]:
    """Return a footer's JSON object after checking its CRC and format version.

    Raises:
        DataCorrupt: missing, damaged, or of a newer format.
    """
    text = metadata.get(key)
    if text is None:
        raise DataCorrupt(f"object has no {key} in its footer; it is foreign. object={name}")
    if metadata.get(CRC_KEY) != str(crc32c(text.encode())):
        raise DataCorrupt(f"footer fails its checksum; run verify. object={name} entry={key}")
    try:
        document = parse_json(text, f"footer of {name}", bytes_max=OBJECT_BYTES_MAX)
    except ValueError as error:
        raise DataCorrupt(f"footer is not JSON; run verify. object={name} entry={key}") from error
    version = document.get("format") if isinstance(document, dict) else None
    if not isinstance(version, int) or not isinstance(document, dict):
        raise DataCorrupt(f"footer has no format version; run verify. object={name}")
    if version > known:
        raise DataCorrupt(
            "object was written by a newer sparklog; upgrade this reader. "
            f"object={name} format={version} known={known}"
        )
    return document


def leader_epoch(document: dict[str, Any], stored: int) -> int:
    """Return the leader epoch in a document of any format.

    In format 1 leader epochs began at 1, and 0 meant a direct append.
    """
    return UNLED_EPOCH if stored == 0 and document["format"] == 1 else int(stored)


def _segment(document: dict[str, Any]) -> Segment:
    index = document["batches"]
    names = tuple(index["columns"])
    return Segment(
        topic_id=document["topic_id"],
        partition=int(document["partition"]),
        base_offset=int(document["base_offset"]),
        end_offset=int(document["end_offset"]),
        rows=int(document["rows"]),
        nonce=document["nonce"],
        kind=document["kind"],
        leader_epoch=leader_epoch(document, document["leader_epoch"]),
        led=bool(document.get("led", False)),
        min_timestamp_ms=int(document["min_timestamp"]),
        max_timestamp_ms=int(document["max_timestamp"]),
        timestamp_type=TimestampType(document["timestamp_type"]),
        codec=document["codec"],
        head=(int(document["head"][0]), int(document["head"][1])),
        column_names=names,
        batches=tuple(_batch(index, names, i) for i in range(len(index["at"]))),
        appends=tuple(
            Append(base, end, leader_epoch(document, epoch), nonce)
            for base, end, epoch, nonce in document.get("appends", ())
        ),
        producers=tuple(ProducerBatch(*entry) for entry in document["producers"]),
        markers=tuple(_marker(entry) for entry in document.get("markers", ())),
        unread=tuple(_unread(entry) for entry in document.get("unread", ())),
        commit=_commit(document["commit"]),
        references=tuple(reference_from_document(r) for r in document.get("references", ())),
        keys=_keys(document.get("keys")),
    )


def _batch(index: dict[str, Any], names: tuple[str, ...], i: int) -> BatchIndex:
    position = int(index["at"][i])
    length, crc = index["meta"][i]
    return BatchIndex(
        base=index["base"][i],
        end=index["end"][i],
        rows=index["rows"][i],
        min_timestamp_ms=index["min_timestamp"][i],
        max_timestamp_ms=index["max_timestamp"][i],
        stored=StoredBatch(
            position=position,
            meta=Span(position, int(length), int(crc)),
            body_length=int(index["body"][i]),
            columns=tuple(Span(*index["columns"][name][i]) for name in names),
        ),
    )


def _marker(entry: list[Any]) -> Marker:
    base, timestamp_ms, key, value = entry
    return Marker(
        int(base),
        int(timestamp_ms),
        bytes.fromhex(key),
        None if value is None else bytes.fromhex(value),
    )


def _unread(entry: list[Any]) -> UnreadBatch:
    base, end, text = entry
    return UnreadBatch(int(base), int(end), base64.b64decode(text, validate=True))


def _keys_document(keys: KeyIndex) -> dict[str, Any]:
    highest = None if keys.highest is None else base64.b64encode(keys.highest).decode()
    return {
        "min": base64.b64encode(keys.lowest).decode(),
        "max": highest,
        "at": keys.start,
        "length": keys.length,
        "crcs": list(keys.crcs),
    }


def _keys(document: dict[str, Any] | None) -> KeyIndex | None:
    if document is None:
        return None
    highest = document["max"]
    length, crcs = int(document["length"]), tuple(map(int, document["crcs"]))
    if length <= 0 or length % BLOCK_BYTES or len(crcs) != -(-length // PAGE_BYTES):
        raise ValueError(f"key filter of an impossible size: {length} bytes, {len(crcs)} pages")
    return KeyIndex(
        base64.b64decode(document["min"], validate=True),
        None if highest is None else base64.b64decode(highest, validate=True),
        int(document["at"]),
        length,
        crcs,
    )


def _commit_document(commit: CommitStamp | None) -> list[Any] | None:
    if commit is None:
        return None
    return [commit.key.writer, commit.key.sequence, commit.timestamp_ms]


def _commit(document: list[Any] | None) -> CommitStamp | None:
    if document is None:
        return None
    writer, sequence, timestamp_ms = document
    return CommitStamp(CommitKey(str(writer), int(sequence)), int(timestamp_ms))
