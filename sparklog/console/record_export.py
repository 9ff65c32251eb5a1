"""Export of records as JSON lines, CSV or Parquet: from a position on, or those of a key.

JSON lines are those of `sparklog consume --json`. CSV is for spreadsheets: control characters are
escapes there, and no cell begins a formula. JSON lines and Parquet have the exact bytes.

RECORD-EXPORT-1: An export has at most `limit` records, and at most `bytes` bytes of keys, values
    and headers. A record is whole or left out.
RECORD-EXPORT-2: The end of an export says how much it left out. Parquet has that in its metadata.
    The others have a last line if `summary` asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.cli.console.record_format import record_documents
from sparklog.console.cluster_view import RECORD_COLUMNS, ClusterView, PartitionRange
from sparklog.console.export import PieceQueue
from sparklog.console.openapi import StreamDescription
from sparklog.console.record_pages import (
    POSITION,
    SNAPSHOT,
    STARTS,
    PageSource,
    page_source,
    positions_text,
)
from sparklog.console.resources import BoundedValues, FieldSpec
from sparklog.console.result_files import MEDIA_TYPES, PieceFile
from sparklog.console.search_page import (
    EVERYWHERE,
    KEY_FORMATS,
    LATEST,
    PARTITION,
    key_bytes,
    searched_partitions,
)
from sparklog.core.types import TopicPartition
from sparklog.log.schema import read_schema, record_bytes

PIECE_ROWS: Final = 1_000
PIECE_BYTES: Final = 1 << 20
RECORDS_MAX: Final = 10_000_000
BYTES_MAX: Final = 10 << 30
SUMMARY: Final = "sparklog.export"
"""The name of the summary in the metadata of a Parquet file."""
_BOUNDS: Final = (
    FieldSpec("format", "the format of the file", choices=tuple(MEDIA_TYPES), default="json"),
    FieldSpec("limit", "at most so many records", "integer", default="10000", least=1,
              most=RECORDS_MAX),
    FieldSpec("bytes", "at most so many bytes of keys, values and headers", "integer",
              default=str(256 << 20), least=1, most=BYTES_MAX),
    FieldSpec("summary", "1 ends the file with what it left out", choices=("0", "1"), default="0"),
)  # fmt: skip
EXPORT_PARAMETERS: Final = (
    PARTITION,
    FieldSpec("from", "where to start", choices=STARTS, default="oldest"),
    POSITION,
    SNAPSHOT,
    *_BOUNDS,
)
FOUND_PARAMETERS: Final = (
    FieldSpec("key", "the whole key", required=True),
    FieldSpec("keyFormat", "how the key is written", choices=KEY_FORMATS, default="text"),
    PARTITION,
    EVERYWHERE,
    LATEST,
    *_BOUNDS,
)


@dataclass(slots=True)
class ExportedRecords:
    """Writes records as pieces of a file until a bound is reached."""

    form: str
    pieces: PieceQueue
    records_max: int
    bytes_max: int
    records: int = 0
    bytes: int = 0
    bound: str | None = None
    """The bound that ended it: `limit` or `bytes`."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset behind the last written record of each partition."""
    _file: PieceFile = field(init=False)

    def __post_init__(self) -> None:
        """Begin the file."""
        self._file = PieceFile(self.form, self.pieces)

    def take(self, tp: TopicPartition, batch: pa.RecordBatch) -> bool:
        """Write records, and wait while the queue is full; return False when no more are wanted."""
        totals = np.cumsum(record_bytes(batch).to_numpy())
        at = before = 0
        while at < batch.num_rows:
            rows = self._fitting(totals, at, before)
            if rows == 0:
                return False
            if not self._write(tp, batch.slice(at, rows)):
                return False
            at += rows
            self.records += rows
            self.bytes += int(totals[at - 1]) - before
            before = int(totals[at - 1])
            self.ends[tp] = batch.column("offset")[at - 1].as_py() + 1
        return True

    def _fitting(self, totals: Any, at: int, before: int) -> int:
        """Return the number of records of the next piece; 0 and `bound` if the file is full."""
        left = min(PIECE_ROWS, self.records_max - self.records)
        if left == 0:
            self.bound = "limit"
            return 0
        room = self.bytes_max - self.bytes
        rows = int(np.searchsorted(totals, before + min(room, PIECE_BYTES), side="right")) - at
        if rows == 0 and int(totals[at]) - before <= room:
            rows = 1  # larger than a piece
        if rows == 0:
            self.bound = "bytes"
        return min(rows, left)

    def _write(self, tp: TopicPartition, some: pa.RecordBatch) -> bool:
        if self.form == "json":
            lines = [json.dumps(one, ensure_ascii=True) for one in record_documents(tp, some)]
            return self.pieces.put(("\n".join(lines) + "\n").encode())
        return self._file.put(_with_partition(tp.partition, some))

    def finish(self, left_out: Mapping[str, Any], *, wanted: bool) -> None:
        """End the file, with its summary if `wanted`; an empty one has the columns' names."""
        summary = {"records": self.records, "bytes": self.bytes, "bound": self.bound, **left_out}
        if self.form == "json":
            if wanted:
                self.pieces.put(f"{json.dumps({SUMMARY: summary})}\n".encode())
            return
        if not self.records:
            nothing = pa.RecordBatch.from_pylist([], read_schema(RECORD_COLUMNS))
            self._file.put(_with_partition(0, nothing))
        self._file.finish({SUMMARY: json.dumps(summary)})
        if wanted and self.form == "csv":
            words = ", ".join(f"{name} {value}" for name, value in summary.items() if value)
            self.pieces.put(f'"{SUMMARY}: {words}"\n'.encode())


def _with_partition(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
    return batch.select(RECORD_COLUMNS).add_column(0, "partition", column)


def read_export(view: ClusterView, values: BoundedValues, pieces: PieceQueue) -> None:
    """Write the records of a position on, partition by partition. Raises as the page of records."""
    exported = _exported(values, pieces)
    with page_source(view, values) as source:
        ranges = _ranges(source, values)
        for one in ranges:
            if pieces.stopped or exported.bound:
                break
            source.read([one], exported.take)
            if exported.bound is None:
                exported.ends[one.partition] = one.end
    if pieces.stopped:
        return
    nexts = {one.partition: exported.ends.get(one.partition, one.base) for one in ranges}
    left = sum(one.end - nexts[one.partition] for one in ranges)
    summary: dict[str, Any] = {"leftOutOffsets": left}
    if _is_backward(values):
        summary["leftOutOffsets"] += sum(o.base - source.firsts[o.partition] for o in ranges)
    elif left:
        summary["next"] = positions_text({tp.partition: at for tp, at in nexts.items()})
    summary["leftOutPartitions"] = source.partitions - len(source.chosen)
    exported.finish(summary, wanted=values.flag("summary"))


def read_found(view: ClusterView, values: BoundedValues, pieces: PieceQueue) -> None:
    """Write the records of a key, by the key index. Raises as the page of the search."""
    log = view.storage()
    topic = log.topic(values.text("topic"))
    key = key_bytes(values.text("key"), values.text("keyFormat"))
    exported = _exported(values, pieces)
    total = 0
    for number in searched_partitions(values, key, topic.partitions):
        found = log.partition(topic.name, number).find(
            key, RECORD_COLUMNS, newest_only=values.flag("latest")
        )
        total += found.rows
        tp = TopicPartition(topic.name, number)
        for batch in found.records:
            if exported.bound or not exported.take(tp, batch):
                break
        if pieces.stopped:
            return
    exported.finish({"leftOutRecords": total - exported.records}, wanted=values.flag("summary"))


def _exported(values: BoundedValues, pieces: PieceQueue) -> ExportedRecords:
    return ExportedRecords(
        values.text("format"), pieces, values.whole("limit"), values.whole("bytes")
    )


def _is_backward(values: BoundedValues) -> bool:
    return values.text("from") in {"newest", "before"}


def _ranges(source: PageSource, values: BoundedValues) -> list[PartitionRange]:
    """Return the offsets to read; backward, each partition has its share of the limit."""
    bounds = source.bounds(values.text("from"), values.text("at"))
    if not _is_backward(values):
        return [PartitionRange(tp, bounds[tp], source.ends[tp]) for tp in source.chosen]
    share = max(1, values.whole("limit") // max(1, len(source.chosen)))
    return [
        PartitionRange(tp, max(source.firsts[tp], bounds[tp] - share), bounds[tp])
        for tp in source.chosen
    ]


@dataclass(frozen=True, slots=True)
class RecordExport(StreamDescription):
    """An export of records, and the function that writes it."""

    write: Callable[[ClusterView, BoundedValues, PieceQueue], None]


RECORD_EXPORTS: Final = (
    RecordExport(
        "/topics/{topic}/export", "export", "Send records as JSON lines, CSV or Parquet.",
        EXPORT_PARAMETERS, read_export,
    ),
    RecordExport(
        "/topics/{topic}/search/export", "exportFound",
        "Send the records of a key as JSON lines, CSV or Parquet.", FOUND_PARAMETERS, read_found,
    ),
)  # fmt: skip
