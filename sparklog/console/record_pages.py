"""Pages of records: a page of them from any position, and one record whole.

A page holds previews of values, never whole ones. So records of any size cost no more memory than
one batch of their segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from sparklog.cli.commands.group_reset import datetime_ms
from sparklog.cli.console.record_format import timestamp_type_name
from sparklog.client.values import EARLIEST, LATEST
from sparklog.console.cluster_view import (
    RECORD_COLUMNS,
    Arrival,
    ClusterView,
    PartitionRange,
    milliseconds_of,
    offsets_of,
)
from sparklog.console.payloads import (
    DECODERS,
    HEADERS_SHOWN,
    PREVIEW_BYTES,
    SHOWN_BYTES,
    decoded_payload,
    shown_payload,
)
from sparklog.console.pinned_records import PinnedRecords
from sparklog.console.record_copies import consume_command, editable_record
from sparklog.console.resources import ROWS_MAX, BoundedValues, FieldSpec, PageResource
from sparklog.console.schema_decoder import DecodedPart, SchemaDecoding
from sparklog.core.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from sparklog.core.terminal_text import printable
from sparklog.core.types import TopicPartition

RECORD_ROWS: Final = 50
PARTITIONS_READ_MAX: Final = 32
STARTS: Final = ("newest", "oldest", "offset", "time", "after", "before")

POSITION = FieldSpec(
    "at", "an offset, a time in ISO 8601, or the positions of the last page", length_max=1500
)
SNAPSHOT = FieldSpec("snapshot", "read this named snapshot, not the present log", length_max=249)
DECODER = FieldSpec("decoder", "how keys and values are shown", choices=DECODERS, default="auto")
RECORDS_PARAMETERS: Final = (
    FieldSpec("partition", "only this partition", "integer"),
    FieldSpec("from", "where to start", choices=STARTS, default="newest"),
    POSITION,
    SNAPSHOT,
    DECODER,
    FieldSpec(
        "limit", "records of a page", "integer", default=str(RECORD_ROWS), least=1, most=ROWS_MAX
    ),
)


@dataclass(slots=True)
class RecordPreviews:
    """Collects previews of the first or the last records of each partition."""

    limit: int
    newest: bool
    decoder: str
    decoding: SchemaDecoding
    rows: dict[TopicPartition, list[dict[str, Any]]] = field(default_factory=dict)

    def take(self, tp: TopicPartition, batch: pa.RecordBatch) -> bool:
        """Take records; return False when the partition has enough."""
        found = self.rows.setdefault(tp, [])
        if self.newest:
            last = batch.slice(max(0, batch.num_rows - self.limit))
            found += record_rows(tp, last, self.decoder, self.decoding)
            del found[: -self.limit]
            return True
        some = batch.slice(0, self.limit - len(found))
        found += record_rows(tp, some, self.decoder, self.decoding)
        return len(found) < self.limit


def record_rows(
    tp: TopicPartition,
    batch: pa.RecordBatch,
    decoder: str,
    decoding: SchemaDecoding | None = None,
    *,
    full: bool = False,
) -> list[dict[str, Any]]:
    """Return records as JSON values with bounded previews; a `full` one has all it may show."""
    columns = [batch.column(name) for name in RECORD_COLUMNS]
    nothing: list[DecodedPart | None] = [None] * batch.num_rows
    keys = values = nothing
    if decoding is not None and decoder == "auto":
        keys, values = decoding.parts(batch, "key"), decoding.parts(batch, "value")
    return [
        _row(tp, [column[at].as_py() for column in columns], (keys[at], values[at]), decoder, full)
        for at in range(batch.num_rows)
    ]


def _row(
    tp: TopicPartition,
    fields: Sequence[Any],
    parts: tuple[DecodedPart | None, DecodedPart | None],
    decoder: str,
    full: bool,
) -> dict[str, Any]:
    offset, timestamp, key, value, headers, timestamp_type = fields
    most = SHOWN_BYTES if full else PREVIEW_BYTES
    given: list[Mapping[str, Any]] = list(headers or ())
    return {
        "partition": tp.partition,
        "offset": offset,
        "timestamp": milliseconds_of(timestamp),
        "timestampType": None if timestamp_type is None else timestamp_type_name(timestamp_type),
        "key": _payload(key, parts[0], decoder, most, pretty=False),
        "value": _payload(value, parts[1], decoder, most, pretty=full),
        "headerCount": len(given),
        "headers": [
            {
                "name": printable(str(header["key"]))[:PREVIEW_BYTES],
                "value": shown_payload(header["value"], pretty=False).document(),
            }
            for header in given[: HEADERS_SHOWN if full else 5]
        ],
    }


def _payload(
    data: bytes | None, part: DecodedPart | None, decoder: str, most: int, *, pretty: bool
) -> dict[str, Any]:
    if part is None:
        return shown_payload(data, decoder, bytes_max=most, pretty=pretty).document()
    if part.problem:
        plain = shown_payload(data, decoder, bytes_max=most, pretty=pretty)
        return replace(plain, schema_id=part.schema, problem=part.problem).document()
    size = 0 if data is None else len(data)
    return decoded_payload(
        size, part.kind, part.text, part.schema, bytes_max=most, pretty=pretty
    ).document()


@dataclass(frozen=True, slots=True)
class PageSource:
    """The partitions of a page of records, with their log starts and ends, and their reader."""

    partitions: int
    firsts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    found: Mapping[TopicPartition, int]
    """For a page from a time on: the first offsets; -1 if no record is that new."""
    led: bool
    read: Callable[[Sequence[PartitionRange], Arrival], None]

    @property
    def chosen(self) -> list[TopicPartition]:
        """Return the partitions that the page reads."""
        return list(self.firsts)

    def bounds(self, start: str, at: str) -> dict[TopicPartition, int]:
        """Return for each partition the first offset to read, or the end to read back from.

        Raises:
            InvalidRequest: `at` has no positions. OffsetOutOfRange: no such offset.
        """
        return _bounds(start, at, self.firsts, self.ends, self.found)


@contextmanager
def page_source(view: ClusterView, values: BoundedValues) -> Iterator[PageSource]:
    """Lend the partitions of a page: of the present log, or of the named snapshot.

    Raises:
        UnknownTopicOrPartition: no such topic or partition. InvalidRequest: no such snapshot.
    """
    name, only = values.text("topic"), values.optional_whole("partition")
    snapshot = values.text("snapshot")
    if snapshot:
        with PinnedRecords(view.storage(), snapshot) as pinned:
            count = pinned.partitions(name)
            chosen = _partitions(name, count, only)
            known = _known_offsets(pinned.offsets, chosen, values)
            yield PageSource(count, *known, led=False, read=pinned.read)
        return
    topic = view.topic(name)
    with view.administered() as admin:
        chosen = _partitions(name, topic.partitions, only)
        known = _known_offsets(admin.offsets, chosen, values)
    led = any(state.leader >= 0 for state in topic.partition_states)
    yield PageSource(topic.partitions, *known, led=led, read=view.read)


def _known_offsets(
    look: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, Any]],
    chosen: Sequence[TopicPartition],
    values: BoundedValues,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the log starts, the ends, and the offsets of the wanted time."""
    firsts = offsets_of(look(dict.fromkeys(chosen, EARLIEST)))
    ends = offsets_of(look(dict.fromkeys(chosen, LATEST)))
    if values.text("from") != "time":
        return firsts, ends, {}
    return firsts, ends, offsets_of(look(dict.fromkeys(chosen, time_of(values.text("at")))))


def list_records(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of records, of one partition or of several together.

    `before` and `after` continue from the positions of a page that was shown.
    """
    start, at, limit = values.text("from"), values.text("at"), values.whole("limit")
    newest = start in {"newest", "before"}
    decoding = SchemaDecoding(view.schemas)
    previews = RecordPreviews(limit, newest, values.text("decoder"), decoding)
    with page_source(view, values) as source:
        bounds = source.bounds(start, at)
        if newest:
            _read_back(source, bounds, previews)
        else:
            source.read(
                [PartitionRange(tp, bounds[tp], source.ends[tp]) for tp in source.chosen],
                previews.take,
            )
    rows = sorted(
        (row for some in previews.rows.values() for row in some),
        key=lambda row: (row["timestamp"] or 0, row["partition"], row["offset"]),
        reverse=newest,
    )[:limit]
    return {
        "topic": values.text("topic"),
        "partition": values.optional_whole("partition"),
        "snapshot": values.text("snapshot"),
        "partitions": source.partitions,
        "readPartitions": len(source.chosen),
        "from": start,
        "at": at,
        "decoder": values.text("decoder"),
        "limit": limit,
        "storage": view.kind == "root",
        "led": source.led,
        "logStartOffsets": {str(tp.partition): at for tp, at in source.firsts.items()},
        "endOffsets": {str(tp.partition): at for tp, at in source.ends.items()},
        "records": rows,
        "command": consume_command(
            view,
            values.text("topic"),
            partition=values.optional_whole("partition"),
            offset=None,
            snapshot=values.text("snapshot"),
        ),
        **_continuations(rows, bounds, source.firsts, source.ends, newest=newest),
    }


def _partitions(topic: str, count: int, only: int | None) -> list[TopicPartition]:
    if only is None:
        read = min(count, PARTITIONS_READ_MAX)
        return [TopicPartition(topic, number) for number in range(read)]
    if not 0 <= only < count:
        raise UnknownTopicOrPartition(
            f"no such partition. topic={topic} partition={only} partitions={count}"
        )
    return [TopicPartition(topic, only)]


def time_of(text: str) -> int:
    """Return a time in ISO 8601 as ms since 1970. Raises InvalidRequest."""
    try:
        return datetime_ms(text)
    except Exception as error:
        raise InvalidRequest(f"a time is written as 2026-01-31T23:59:59, not {text!r}") from error


def _bounds(
    start: str,
    at: str,
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return for each partition the first offset to read, or the end to read back from."""
    if start == "newest":
        return dict(ends)
    if start == "oldest":
        return dict(firsts)
    if start == "time":
        return {tp: offset if offset >= 0 else ends[tp] for tp, offset in found.items()}
    positions = _positions(at, start)
    chosen = {}
    for tp in firsts:
        wanted = positions.get(tp.partition, positions.get(-1))
        if wanted is None:
            wanted = ends[tp] if start == "before" else firsts[tp]
        if start == "offset" and len(firsts) == 1 and not firsts[tp] <= wanted <= ends[tp]:
            raise OffsetOutOfRange(
                "there is no such offset. "
                f"offset={wanted} log_start_offset={firsts[tp]} log_end_offset={ends[tp]}"
            )
        chosen[tp] = min(max(wanted, firsts[tp]), ends[tp])
    return chosen


def _positions(text: str, start: str) -> dict[int, int]:
    """Return offsets by partition from `0:17,1:40`; under -1 a single offset for all."""
    found: dict[int, int] = {}
    for word in text.split(","):
        left, colon, right = word.strip().partition(":")
        numbers = (left, right) if colon else ("-1", left)
        spec = FieldSpec("at", "", "integer", least=-1)
        if not numbers[1]:
            raise InvalidRequest(f"from={start} needs at: an offset, or partition:offset,…")
        for number in numbers:
            spec.check(number)
        found[int(numbers[0])] = int(numbers[1])
    return found


def _read_back(
    source: PageSource, bounds: Mapping[TopicPartition, int], previews: RecordPreviews
) -> None:
    """Read the last records before the bounds: further back where offsets have gaps."""
    kept: dict[TopicPartition, list[dict[str, Any]]] = {}
    firsts, uppers = source.firsts, dict(bounds)
    span = previews.limit
    while uppers:
        ranges = [
            PartitionRange(tp, max(firsts[tp], upper - span), upper) for tp, upper in uppers.items()
        ]
        previews.rows = {}
        source.read(ranges, previews.take)
        for one in ranges:
            earlier = previews.rows.get(one.partition, [])
            kept[one.partition] = [*earlier, *kept.get(one.partition, [])][-previews.limit :]
        uppers = {
            one.partition: one.base
            for one in ranges
            if one.base > firsts[one.partition] and len(kept[one.partition]) < previews.limit
        }
        span = min(span * 8, 1 << 20)
    previews.rows = kept


def _continuations(
    rows: Sequence[Mapping[str, Any]],
    bounds: Mapping[TopicPartition, int],
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    newest: bool,
) -> dict[str, str | None]:
    """Return the positions of the older and the newer page; None where the log ends."""
    low = {tp.partition: offset for tp, offset in bounds.items()}
    high = dict(low)
    for row in rows:
        number, offset = row["partition"], row["offset"]
        low[number] = min(low[number], offset)
        high[number] = max(high[number], offset + 1)
    older = any(low[tp.partition] > first for tp, first in firsts.items()) and bool(rows)
    newer = any(high[tp.partition] < end for tp, end in ends.items())
    if newest and not rows:
        older = False
    return {
        "older": positions_text(low) if older else None,
        "newer": positions_text(high) if newer else None,
    }


def positions_text(positions: Mapping[int, int]) -> str:
    """Return offsets by partition as the parameter `at` has them: `0:17,1:40`."""
    return ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))


def show_record(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one record, its value up to `SHOWN_BYTES`."""
    tp, offset, found = find_record(view, values)
    decoding = SchemaDecoding(view.schemas)
    (row,) = record_rows(tp, found, values.text("decoder"), decoding, full=True)
    return {
        "edit": editable_record(found),
        "command": consume_command(
            view, tp.topic, partition=tp.partition, offset=offset, snapshot=values.text("snapshot")
        ),
        "topic": tp.topic,
        "decoder": values.text("decoder"),
        "snapshot": values.text("snapshot"),
        "valueShownMax": SHOWN_BYTES,
        "offsetWanted": offset,
        **row,
    }


def find_record(
    view: ClusterView, values: BoundedValues
) -> tuple[TopicPartition, int, pa.RecordBatch]:
    """Return a record's partition, its offset, and a batch with it alone.

    Raises:
        OffsetOutOfRange: no record has this offset: it was compacted, deleted, or is a marker.
    """
    tp = TopicPartition(values.text("topic"), values.whole("partition"))
    offset = values.whole("offset")
    found: list[pa.RecordBatch] = []

    def take(_: TopicPartition, batch: pa.RecordBatch) -> bool:
        for at, number in enumerate(batch.column("offset").to_pylist()):
            if number == offset:
                found.append(batch.slice(at, 1))
        return not found

    wanted = PartitionRange(tp, offset, offset + 1)
    if snapshot := values.text("snapshot"):
        with PinnedRecords(view.storage(), snapshot) as pinned:
            pinned.read([wanted], take)
    else:
        _partitions(tp.topic, view.topic(tp.topic).partitions, tp.partition)
        view.read([wanted], take)
    if not found:
        raise OffsetOutOfRange(
            "no record has this offset: it was deleted or compacted, is a transaction's marker, "
            f"or does not exist yet. partition={tp} offset={offset}"
        )
    return tp, offset, found[0]


PAGES: Final = (
    PageResource(
        "/topics/{topic}/records", "records", "List records.", "records.html", list_records,
        RECORDS_PARAMETERS,
    ),
    PageResource(
        "/topics/{topic}/partitions/{partition}/records/{offset}", "record", "Show one record.",
        "record.html", show_record, (DECODER, SNAPSHOT),
    ),
)  # fmt: skip
