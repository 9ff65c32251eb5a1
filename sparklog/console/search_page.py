"""The search of records by key, by the key index, with what it cost."""

from __future__ import annotations

import struct
from typing import Any, Final

from sparklog.cluster.log import Log
from sparklog.console.cluster_view import RECORD_COLUMNS, ClusterView
from sparklog.console.record_pages import DECODER, record_rows
from sparklog.console.resources import BoundedValues, FieldSpec, PageResource
from sparklog.console.schema_decoder import SchemaDecoding
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import InvalidRequest
from sparklog.core.types import TopicPartition
from sparklog.protocol.partitioner.partitioner import partition_for_key

KEY_FORMATS: Final = ("text", "hex", "integer", "long")
FOUND_MAX: Final = 200

PARTITION: Final = FieldSpec("partition", "only this partition", "integer")
EVERYWHERE: Final = FieldSpec(
    "everywhere", "1 looks in all partitions", choices=("0", "1"), default="0"
)
LATEST: Final = FieldSpec(
    "latest", "1 returns the newest record only", choices=("0", "1"), default="0"
)
SEARCH_PARAMETERS: Final = (
    FieldSpec("key", "the whole key"),
    FieldSpec("format", "how the key is written", choices=KEY_FORMATS, default="text"),
    PARTITION,
    EVERYWHERE,
    LATEST,
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
    numbers = searched_partitions(values, key, topic.partitions)
    began_s, before = SYSTEM_CLOCK.monotonic_s(), _requests(log)
    rows: list[dict[str, Any]] = []
    decoding = SchemaDecoding(view.schemas)
    total = segments = skipped = 0
    for number in numbers:
        found = log.partition(topic.name, number).find(
            key, RECORD_COLUMNS, newest_only=values.flag("latest")
        )
        tp, shown = TopicPartition(topic.name, number), 0
        for batch in found.records[::-1]:
            if shown < FOUND_MAX:
                some = batch.slice(max(0, batch.num_rows - FOUND_MAX + shown))
                rows += record_rows(tp, some, values.text("decoder"), decoding)
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


def searched_partitions(values: BoundedValues, key: bytes, partitions: int) -> list[int]:
    """Return the partitions to look in: by default the one where Kafka's producers put the key."""
    if values.flag("everywhere"):
        return list(range(partitions))
    only = values.optional_whole("partition")
    return [partition_for_key(key, partitions) if only is None else only]


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


def _requests(log: Log) -> int:
    return sum(count.requests for count in log.requests().values())


PAGES: Final = (
    PageResource(
        "/topics/{topic}/search", "search", "Find the records of a key by the key index.",
        "search.html", search_key, SEARCH_PARAMETERS, root_only=True,
    ),
)  # fmt: skip
