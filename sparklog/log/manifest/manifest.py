"""The manifest: the objects below the tail, and their offsets. Source: FORMAT.md 3.

An immutable value: every change returns a new one, with the next version.

MANIFEST-1: Entries are sorted, contiguous and never overlap.
MANIFEST-2: The first entry starts at or below the log start offset; the last ends at `end_offset`.
MANIFEST-3: Neither log start offset nor end offset ever moves back from one version to the next.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import UNLED_EPOCH
from sparklog.log.layout import ChainPosition, PartitionLayout, is_data_name
from sparklog.log.segment.file import finish_file, footer_metadata, footer_start, write_stream
from sparklog.log.segment.footer import CRC_KEY, FORMAT_VERSION, checked_document, leader_epoch
from sparklog.log.segment.segment import CommitKey, Segment

MANIFEST_KEY = "sparklog.manifest"
REWRITTEN_NONCE = "*"

_SCHEMA = pa.schema(
    [
        pa.field("base", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("object", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("min_timestamp", pa.int64()),
        pa.field("max_timestamp", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("nonce", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of the log and the offsets [base_offset, end_offset) that readers read from it."""

    base_offset: int
    end_offset: int
    object: str
    """Name relative to the partition's folder. Relative offsets in it count from `base_offset`."""
    size_bytes: int
    rows: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    leader_epoch: int
    nonce: str


@dataclass(frozen=True, slots=True)
class WriterState:
    """The last commit of one writer of idempotent commits."""

    sequence: int
    base_offset: int
    end_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A compaction: at `time_ms` only the newest record of each key was left below `end_offset`."""

    end_offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of the manifest; version 0 is the empty one that is never stored."""

    version: int = 0
    nonce: str = ""
    log_start_offset: int = 0
    end_offset: int = 0
    entries: tuple[Entry, ...] = ()
    writers: Mapping[str, WriterState] = field(default_factory=dict)
    leader_epoch: int = UNLED_EPOCH
    """The highest of any segment so far, including deleted ones."""
    led: bool = False
    """True if at `end_offset` only a leader may append."""
    generation: int = 0
    """Number of fences in the chain at `end_offset`, before its tail begins."""
    deleted: bool = False
    """True if the topic was deleted: then this is the last version."""

    cleaned: tuple[Cleaning, ...] = ()
    """By end offset. They date each tombstone: since that time it has no older record to hide."""

    @property
    def position(self) -> ChainPosition:
        """Return the chain position where the tail begins; entries cover all names before it."""
        return ChainPosition(self.end_offset, self.generation)

    @property
    def cleaned_end(self) -> int:
        """Return the offset below which the log was compacted; 0 if it never was."""
        return self.cleaned[-1].end_offset if self.cleaned else 0

    def find(self, offset: int) -> Entry | None:
        """Return the entry that covers `offset`, or None."""
        at = bisect_right(self.entries, offset, key=lambda e: e.base_offset) - 1
        if at >= 0 and offset < self.entries[at].end_offset:
            return self.entries[at]
        return None


EMPTY = Manifest()


def entries_of(segment: Segment, name: str, size_bytes: int) -> tuple[Entry, ...]:
    """Return the entries of a segment with offsets: its own, or those of its references."""
    if segment.kind == "reference":
        return tuple(
            Entry(
                base_offset=segment.base_offset + r.base,
                end_offset=segment.base_offset + r.end,
                object=r.object,
                size_bytes=r.size_bytes,
                rows=r.rows,
                min_timestamp_ms=r.min_timestamp_ms,
                max_timestamp_ms=r.max_timestamp_ms,
                leader_epoch=segment.leader_epoch,
                nonce=segment.nonce,
            )
            for r in segment.references
        )
    return (
        Entry(
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            object=name,
            size_bytes=size_bytes,
            rows=segment.rows,
            min_timestamp_ms=segment.min_timestamp_ms,
            max_timestamp_ms=segment.max_timestamp_ms,
            leader_epoch=segment.leader_epoch,
            nonce=segment.nonce if not segment.appends else REWRITTEN_NONCE,
        ),
    )


def with_log_start(manifest: Manifest, log_start_offset: int) -> Manifest:
    """Return the manifest with a higher log start; entries wholly below it are dropped."""
    start = max(manifest.log_start_offset, log_start_offset)
    assert start <= manifest.end_offset, (start, manifest.end_offset)
    kept = tuple(e for e in manifest.entries if e.end_offset > start)
    return replace(manifest, log_start_offset=start, entries=kept)


def commit_state(writers: Mapping[str, WriterState], key: CommitKey) -> WriterState | None:
    """Return the writer's state if it committed `key` or something later, else None."""
    state = writers.get(key.writer)
    return state if state is not None and state.sequence >= key.sequence else None


def encode(manifest: Manifest, layout: PartitionLayout) -> bytes:
    """Return the manifest as a file."""
    columns = [
        pa.array([getattr(e, attribute) for e in manifest.entries], f.type)
        for attribute, f in zip(Entry.__slots__, _SCHEMA, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
    part = write_stream(_SCHEMA, [batch], "zstd")
    document = {
        "format": FORMAT_VERSION,
        "topic_id": layout.topic_id,
        "partition": layout.partition,
        "version": manifest.version,
        "nonce": manifest.nonce,
        "log_start_offset": manifest.log_start_offset,
        "end_offset": manifest.end_offset,
        "writers": {
            name: [s.sequence, s.base_offset, s.end_offset, s.timestamp_ms]
            for name, s in manifest.writers.items()
        },
        "leader_epoch": manifest.leader_epoch,
        "led": manifest.led,
        "generation": manifest.generation,
        "deleted": manifest.deleted,
        "body": [part.data.size, crc32c(part.data)],
    }
    if manifest.cleaned:
        document["cleaned"] = [[c.end_offset, c.time_ms] for c in manifest.cleaned]
    text = json.dumps(document, separators=(",", ":"))
    return finish_file(part, {MANIFEST_KEY: text, CRC_KEY: str(crc32c(text.encode()))})


def decode(data: bytes, layout: PartitionLayout, name: str) -> Manifest:
    """Return the manifest in a file.

    Raises:
        DataCorrupt: damaged, foreign, of another partition, or of a newer format.
    """
    footer = data[footer_start(data, len(data), name) :]
    document = checked_document(footer_metadata(footer, name), MANIFEST_KEY, name)
    try:
        length, crc = document["body"]
        if crc32c(data[:length]) != crc:
            raise DataCorrupt(f"manifest fails its checksum; run verify. object={name}")
        if (document["topic_id"], document["partition"]) != (layout.topic_id, layout.partition):
            raise DataCorrupt(f"manifest belongs to another partition. object={name}")
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        manifest = _manifest(document, table)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise DataCorrupt(
            f"manifest is not as the format says: {error!r}; run verify. object={name}"
        ) from error
    problem = broken_invariant(manifest)
    if problem:
        raise DataCorrupt(f"manifest breaks its invariant: {problem}; run verify. object={name}")
    return manifest


def broken_invariant(manifest: Manifest) -> str:
    """Return how the manifest breaks MANIFEST-1 or MANIFEST-2, as text, or ''."""
    entries = manifest.entries
    for one, next_one in pairwise(entries):
        if one.end_offset != next_one.base_offset:
            return f"entries do not join at offset {one.end_offset}"
    if any(e.base_offset >= e.end_offset or not is_data_name(e.object) for e in entries):
        return "an entry is empty or names something that is no data object"
    if not entries:
        ok = manifest.log_start_offset == manifest.end_offset
        return "" if ok else "no entry covers what lies between log start and end"
    if entries[-1].end_offset != manifest.end_offset:
        return "the last entry does not end at the end offset"
    if not entries[0].base_offset <= manifest.log_start_offset <= manifest.end_offset:
        return "the log start offset lies outside"
    return ""


def _check_object_bases(table: pa.Table) -> None:
    """Reject a column of older manifests whose values, which always were `base`, are others."""
    if "object_base" in table.column_names and table["object_base"] != table["base"]:
        raise ValueError("object_base is not base")


def _manifest(document: dict[str, Any], table: pa.Table) -> Manifest:
    _check_object_bases(table)
    columns: Sequence[list[Any]] = [
        [leader_epoch(document, stored) for stored in column]
        if f.name == "leader_epoch"
        else column
        for f in _SCHEMA
        for column in (table.column(f.name).to_pylist(),)
    ]
    return Manifest(
        version=int(document["version"]),
        nonce=str(document["nonce"]),
        log_start_offset=int(document["log_start_offset"]),
        end_offset=int(document["end_offset"]),
        entries=tuple(Entry(*row) for row in zip(*columns, strict=True)),
        writers={name: WriterState(*state) for name, state in document["writers"].items()},
        leader_epoch=leader_epoch(document, document.get("leader_epoch", UNLED_EPOCH)),
        led=bool(document.get("led", False)),
        generation=int(document.get("generation", 0)),
        deleted=bool(document.get("deleted", False)),
        cleaned=tuple(Cleaning(int(e), int(t)) for e, t in document.get("cleaned", ())),
    )
