"""Pages of records: a page of them from any position, one record whole, and a search by key.

A page holds previews of values, never whole ones. So records of any size cost no more memory than
one batch of their segment.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from sparklog.cli.commands.group_reset import datetime_ms
from sparklog.client.values import EARLIEST, LATEST, ListedOffset
from sparklog.cluster.metadata.image import Topic
from sparklog.console.cluster_view import RECORD_COLUMNS, ClusterView, RecordRange
from sparklog.console.resources import ROWS_MAX, BoundedValues, FieldSpec, PageResource
from sparklog.console.value_decoder import DECODERS, PREVIEW_BYTES, SHOWN_BYTES, shown_payload
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    SparklogError,
    UnknownTopicOrPartition,
)
from sparklog.core.terminal_text import printable
from sparklog.core.types import TopicPartition
from sparklog.protocol.partitioner.partitioner import partition_for_key

RECORD_ROWS: Final = 50
PARTITIONS_READ_MAX: Final = 32
HEADERS_SHOWN: Final = 100
STARTS: Final = ("newest", "oldest", "offset", "time", "after", "before")
KEY_FORMATS: Final = ("text", "hex", "integer", "long")
FOUND_MAX: Final = 200

POSITION = FieldSpec(
    "at", "an offset, a time in ISO 8601, or the positions of the last page", length_max=1500
)
DECODER = FieldSpec("decoder", "how keys and values are shown", choices=DECODERS, default="auto")
RECORDS_PARAMETERS: Final = (
    FieldSpec("partition", "only this partition", "integer"),
    FieldSpec("from", "where to start", choices=STARTS, default="newest"),
    POSITION,
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
    rows: dict[TopicPartition, list[dict[str, Any]]] = field(default_factory=dict)

    def take(self, tp: TopicPartition, batch: pa.RecordBatch) -> bool:
        """Take records; return False when the partition has enough."""
        found = self.rows.setdefault(tp, [])
        if self.newest:
            found += record_rows(tp, batch.slice(max(0, batch.num_rows - self.limit)), self.decoder)
            del found[: -self.limit]
            return True
        found += record_rows(tp, batch.slice(0, self.limit - len(found)), self.decoder)
        return len(found) < self.limit


def record_rows(tp: TopicPartition, batch: pa.RecordBatch, decoder: str) -> list[dict[str, Any]]:
    """Return records as JSON values with bounded previews."""
    columns = [batch.column(name) for name in RECORD_COLUMNS]
    return [
        _row(tp, *(column[at].as_py() for column in columns), decoder=decoder, full=False)
        for at in range(batch.num_rows)
    ]


def _row(
    tp: TopicPartition,
    offset: int,
    timestamp: Any,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Mapping[str, Any]] | None,
    *,
    decoder: str,
    full: bool,
) -> dict[str, Any]:
    most = SHOWN_BYTES if full else PREVIEW_BYTES
    given = list(headers or ())
    return {
        "partition": tp.partition,
        "offset": offset,
        "timestamp": _milliseconds(timestamp),
        "key": shown_payload(key, decoder, bytes_max=most, pretty=False).document(),
        "value": shown_payload(value, decoder, bytes_max=most, pretty=full).document(),
        "headerCount": len(given),
        "headers": [
            {
                "name": printable(str(header["key"]))[:PREVIEW_BYTES],
                "value": shown_payload(header["value"], pretty=False).document(),
            }
            for header in given[: HEADERS_SHOWN if full else 5]
        ],
    }


def _milliseconds(timestamp: Any) -> int | None:
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime):
        return round(timestamp.timestamp() * 1000)
    return int(timestamp)


def list_records(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of records, of one partition or of several together.

    `before` and `after` continue from the positions of a page that was shown.
    """
    name, start = values.text("topic"), values.text("from")
    with view.administered() as admin:
        topic = admin.topic(name)
        chosen = _partitions(topic, values.optional_whole("partition"))
        firsts = _offsets(admin.offsets(dict.fromkeys(chosen, EARLIEST)))
        ends = _offsets(admin.offsets(dict.fromkeys(chosen, LATEST)))
        at = values.text("at")
        found: Mapping[TopicPartition, int] = {}
        if start == "time":
            found = _offsets(admin.offsets(dict.fromkeys(chosen, _time_of(at))))
    limit = values.whole("limit")
    newest = start in {"newest", "before"}
    bounds = _bounds(start, at, firsts, ends, found)
    previews = RecordPreviews(limit, newest, values.text("decoder"))
    if newest:
        _read_back(view, bounds, firsts, previews)
    else:
        view.read([RecordRange(tp, bounds[tp], ends[tp]) for tp in chosen], previews.take)
    rows = sorted(
        (row for some in previews.rows.values() for row in some),
        key=lambda row: (row["timestamp"] or 0, row["partition"], row["offset"]),
        reverse=newest,
    )[:limit]
    return {
        "topic": name,
        "partition": values.optional_whole("partition"),
        "partitions": topic.partitions,
        "readPartitions": len(chosen),
        "from": start,
        "at": at,
        "decoder": values.text("decoder"),
        "limit": limit,
        "storage": view.kind == "root",
        "led": any(state.leader >= 0 for state in topic.partition_states),
        "logStartOffsets": {str(tp.partition): offset for tp, offset in firsts.items()},
        "endOffsets": {str(tp.partition): offset for tp, offset in ends.items()},
        "records": rows,
        **_continuations(rows, bounds, firsts, ends, newest=newest),
    }


def _partitions(topic: Topic, only: int | None) -> list[TopicPartition]:
    if only is None:
        count = min(topic.partitions, PARTITIONS_READ_MAX)
        return [TopicPartition(topic.name, number) for number in range(count)]
    if not 0 <= only < topic.partitions:
        raise UnknownTopicOrPartition(
            f"no such partition. topic={topic.name} partition={only} partitions={topic.partitions}"
        )
    return [TopicPartition(topic.name, only)]


def _offsets(
    answers: Mapping[TopicPartition, ListedOffset | SparklogError],
) -> dict[TopicPartition, int]:
    found = {}
    for tp, answer in answers.items():
        if isinstance(answer, SparklogError):
            raise answer
        found[tp] = answer.offset
    return found


def _time_of(text: str) -> int:
    try:
        return datetime_ms(text)
    except Exception as error:
        raise InvalidRequest(f"at is a time such as 2026-01-31T23:59:59, not {text!r}") from error


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
    view: ClusterView,
    bounds: Mapping[TopicPartition, int],
    firsts: Mapping[TopicPartition, int],
    previews: RecordPreviews,
) -> None:
    """Read the last records before the bounds: further back where offsets have gaps."""
    kept: dict[TopicPartition, list[dict[str, Any]]] = {}
    uppers = dict(bounds)
    span = previews.limit
    while uppers:
        ranges = [
            RecordRange(tp, max(firsts[tp], upper - span), upper) for tp, upper in uppers.items()
        ]
        previews.rows = {}
        view.read(ranges, previews.take)
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
        "older": _spelled(low) if older else None,
        "newer": _spelled(high) if newer else None,
    }


def _spelled(positions: Mapping[int, int]) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))


def show_record(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one record, its value up to `SHOWN_BYTES`."""
    tp, offset, fields = find_record(view, values)
    row = _row(tp, *fields, decoder=values.text("decoder"), full=True)
    return {
        "topic": tp.topic,
        "decoder": values.text("decoder"),
        "valueShownMax": SHOWN_BYTES,
        "offsetWanted": offset,
        **row,
    }


def find_record(
    view: ClusterView, values: BoundedValues
) -> tuple[TopicPartition, int, tuple[Any, ...]]:
    """Return a record's partition, offset and columns.

    Raises:
        OffsetOutOfRange: no record has this offset: it was compacted, deleted, or is a marker.
    """
    tp = TopicPartition(values.text("topic"), values.whole("partition"))
    offset = values.whole("offset")
    found: list[tuple[Any, ...]] = []

    def take(_: TopicPartition, batch: pa.RecordBatch) -> bool:
        for at, number in enumerate(batch.column("offset").to_pylist()):
            if number == offset:
                found.append(tuple(batch.column(name)[at].as_py() for name in RECORD_COLUMNS))
        return not found

    with view.administered() as admin:
        _partitions(admin.topic(tp.topic), tp.partition)
    if offset >= 0:
        view.read([RecordRange(tp, offset, offset + 1)], take)
    if not found:
        raise OffsetOutOfRange(
            "no record has this offset: it was deleted or compacted, is a transaction's marker, "
            f"or does not exist yet. partition={tp} offset={offset}"
        )
    return tp, offset, found[0]


SEARCH_PARAMETERS: Final = (
    FieldSpec("key", "the whole key"),
    FieldSpec("format", "how the key is written", choices=KEY_FORMATS, default="text"),
    FieldSpec("partition", "only this partition", "integer"),
    FieldSpec("everywhere", "1 looks in all partitions", choices=("0", "1"), default="0"),
    FieldSpec("latest", "1 returns the newest record only", choices=("0", "1"), default="0"),
    DECODER,
)


def search_key(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the records of a key, by the key index, with what the search cost."""
    log = view.storage()
    topic = log.topic(values.text("topic"))
    document: dict[str, Any] = {
        "topic": topic.name,
        "key": values.text("key"),
        "format": values.text("format"),
        "partition": values.optional_whole("partition"),
        "everywhere": values.flag("everywhere"),
        "latest": values.flag("latest"),
        "decoder": values.text("decoder"),
        "indexed": topic.settings.get("sparklog.key.index") == "bloom",
        "led": any(state.leader >= 0 for state in topic.partition_states),
        "partitions": topic.partitions,
        "records": None,
    }
    if not values.text("key"):
        return document
    key = key_bytes(values.text("key"), values.text("format"))
    numbers = [partition_for_key(key, topic.partitions)]
    if values.flag("everywhere"):
        numbers = list(range(topic.partitions))
    elif (only := values.optional_whole("partition")) is not None:
        numbers = [only]
    began_s, before = SYSTEM_CLOCK.monotonic_s(), _requests(log)
    rows: list[dict[str, Any]] = []
    total = segments = skipped = 0
    for number in numbers:
        found = log.partition(topic.name, number).find(
            key, RECORD_COLUMNS, newest_only=values.flag("latest")
        )
        tp, shown = TopicPartition(topic.name, number), 0
        for batch in found.records[::-1]:
            if shown < FOUND_MAX:
                some = batch.slice(max(0, batch.num_rows - FOUND_MAX + shown))
                rows += record_rows(tp, some, values.text("decoder"))
                shown += some.num_rows
        total += found.rows
        segments += found.segments
        skipped += found.out_of_bounds + found.filtered
    rows.sort(key=lambda row: (row["timestamp"] or 0, row["offset"]), reverse=True)
    return {
        **document,
        "records": rows[:FOUND_MAX],
        "found": total,
        "searchedPartitions": numbers,
        "cost": {
            "segments": segments,
            "skipped": skipped,
            "requests": _requests(log) - before,
            "milliseconds": round((SYSTEM_CLOCK.monotonic_s() - began_s) * 1000),
        },
    }


def key_bytes(text: str, form: str) -> bytes:
    """Return a key's bytes. Raises InvalidRequest: the text has another format."""
    try:
        match form:
            case "hex":
                return bytes.fromhex(text)
            case "integer":
                return struct.pack(">i", int(text))
            case "long":
                return struct.pack(">q", int(text))
    except (ValueError, struct.error) as error:
        raise InvalidRequest(f"the key is no {form}: {text[:80]!r}") from error
    return text.encode("utf-8", "surrogateescape")


def _requests(log: Any) -> int:
    counters = getattr(log.store, "counters", None)
    return 0 if counters is None else sum(c.requests for c in counters.by_kind().values())


PAGES: Final = (
    PageResource(
        "/topics/{topic}/records", "records", "List records.", "records.html", list_records,
        RECORDS_PARAMETERS,
    ),
    PageResource(
        "/topics/{topic}/partitions/{partition}/records/{offset}", "record", "Show one record.",
        "record.html", show_record, (DECODER,),
    ),
    PageResource(
        "/topics/{topic}/search", "search", "Find the records of a key by the key index.",
        "search.html", search_key, SEARCH_PARAMETERS, root_only=True,
    ),
)  # fmt: skip
