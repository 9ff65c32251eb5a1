"""Pages of topics: the list, one topic with partitions and settings, the files of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from sparklog.cli.commands.topics import wanted_replicas
from sparklog.cli.target import AdminTarget
from sparklog.client.values import EARLIEST, LATEST, ConfigResource, ConfigValue, ListedOffset
from sparklog.cluster.metadata.image import Topic
from sparklog.console.cluster_view import ClusterView
from sparklog.console.name_filter import FILTER, matching_names
from sparklog.console.resources import PAGE, BoundedValues, FieldSpec, PageResource, RowPage
from sparklog.core.config.describe import CREATED_BY
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.errors import SparklogError, TopicAuthorizationFailed
from sparklog.core.topic_names import CLOSED_TOPICS, LISTED_AS_INTERNAL
from sparklog.core.types import NO_TIMESTAMP_MS, TopicPartition
from sparklog.log.manifest.manifest import Entry
from sparklog.log.partition.partition_log import PartitionLog

TOPIC_ROWS: Final = 50
PARTITION_ROWS: Final = 100
SEGMENT_ROWS: Final = 50
FOOTERS_AT_ONCE: Final = 8
CHART_POINTS: Final = 120
SORTS: Final = ("name", "-name", "partitions", "-partitions")

LIST_PARAMETERS: Final = (
    FILTER,
    FieldSpec("sort", "order; with a minus descending", choices=SORTS, default="name"),
    FieldSpec("internal", "1 shows internal topics too", choices=("0", "1"), default="0"),
    FieldSpec("sizes", "1 adds the stored bytes", choices=("0", "1"), default="0"),
    PAGE,
)


def list_topics(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of topics. Cost: two requests, and for sizes those of one page."""
    topics = view.topics()
    internal = values.flag("internal")
    listed = [name for name in topics if internal or name not in LISTED_AS_INTERNAL]
    names = matching_names(listed, values.text("filter"))
    sort = values.text("sort")
    names.sort(reverse=sort == "-name")
    if sort.endswith("partitions"):
        names.sort(key=lambda name: topics[name].partitions, reverse=sort.startswith("-"))
    page = RowPage.of(len(names), values.whole("page"), TOPIC_ROWS)
    shown = [topics[name] for name in names[page.first : page.first + TOPIC_ROWS]]
    creators = view.creators(shown)
    sizes = view.sizes(shown) if values.flag("sizes") else None
    activity = None if view.bill is None else view.bill.activity
    rates = None if activity is None else activity.topic_rates()
    return {
        **page.document(),
        "all": len(topics),
        "filter": values.text("filter"),
        "sort": sort,
        "internal": internal,
        "sized": sizes is not None,
        "rated": rates is not None,
        "topics": [
            {
                **_row(topic, sizes),
                "createdBy": creators.get(topic.name),
                "rate": None if rates is None else rates.get(topic.name, 0.0),
            }
            for topic in shown
        ],
    }


def _row(topic: Topic, sizes: Mapping[TopicPartition, int] | None) -> dict[str, Any]:
    states = topic.partition_states
    own = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    known = None if sizes is None else [sizes[tp] for tp in own if tp in sizes]
    return {
        "name": topic.name,
        "internal": topic.name in LISTED_AS_INTERNAL,
        "partitions": topic.partitions,
        "replicas": max([len(state.replicas) for state in states] or [0]),
        "underReplicated": sum(len(s.isr) < len(wanted_replicas(s)) for s in states),
        "leaderless": sum(s.leader < 0 and bool(s.replicas) for s in states),
        "cleanupPolicy": topic.settings.get("cleanup.policy"),
        "settings": len(topic.configs),
        "bytes": None if known is None or len(known) < len(own) else sum(known),
    }


TOPIC_PARAMETERS: Final = (PAGE,)


def show_topic(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return a topic: one page of its partitions with offsets, and all its settings."""
    name = values.text("topic")
    topic = view.topic(name)
    with view.administered() as admin:
        page = RowPage.of(topic.partitions, values.whole("page"), PARTITION_ROWS)
        numbers = range(page.first, min(topic.partitions, page.first + PARTITION_ROWS))
        own = [TopicPartition(name, number) for number in numbers]
        starts = admin.offsets(dict.fromkeys(own, EARLIEST))
        ends = admin.offsets(dict.fromkeys(own, LATEST))
        configs, problem = _settings(admin, name)
    creator = next((one.value for one in configs if one.name == CREATED_BY), None)
    sizes = view.sizes([topic]) if topic.partitions <= PARTITION_ROWS else {}
    rows = [_partition(topic, tp, starts[tp], ends[tp], sizes.get(tp)) for tp in own]
    counted = [row["records"] for row in rows if row["records"] is not None]
    return {
        **page.document(),
        "name": name,
        "topicId": topic.topic_id,
        "createdBy": creator,
        "internal": name in LISTED_AS_INTERNAL,
        "closed": name in CLOSED_TOPICS,
        "partitions": rows,
        "records": sum(counted) if page.pages == 1 and len(counted) == len(rows) else None,
        "bytes": sum(sizes.values()) if sizes else None,
        "led": any(state.leader >= 0 for state in topic.partition_states),
        "settings": [setting_document(one) for one in configs if one.name != CREATED_BY],
        "settingsProblem": problem,
        "storage": view.kind == "root",
        "chart": _topic_chart(view, topic) if view.kind == "root" else None,
    }


def _settings(admin: AdminTarget, name: str) -> tuple[Sequence[ConfigValue], str | None]:
    """Return a topic's settings; without the right to see them, none and the reason."""
    try:
        return admin.configs(ConfigResource.TOPIC, [name])[name], None
    except TopicAuthorizationFailed as error:
        return (), str(error)


def _partition(
    topic: Topic,
    tp: TopicPartition,
    start: ListedOffset | SparklogError,
    end: ListedOffset | SparklogError,
    size_bytes: int | None,
) -> dict[str, Any]:
    state = topic.partition_states[tp.partition]
    problem = next((str(one) for one in (start, end) if isinstance(one, SparklogError)), None)
    low = start.offset if isinstance(start, ListedOffset) else None
    high = end.offset if isinstance(end, ListedOffset) else None
    return {
        "partition": tp.partition,
        "logStartOffset": low,
        "endOffset": high,
        "records": None if low is None or high is None else high - low,
        "bytes": size_bytes,
        "leader": None if state.leader < 0 else state.leader,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "problem": problem,
    }


def setting_document(value: ConfigValue) -> dict[str, Any]:
    """Return a setting with its default, limits and reason, as JSON values."""
    known = TOPIC_SETTINGS.get(value.name)
    return {
        "name": value.name,
        "value": "[hidden]" if value.sensitive else value.value,
        "own": value.set_here,
        "source": value.source,
        "default": value.synonyms[-1][2] if value.synonyms else None,
        "unit": "" if known is None else known.unit,
        "reason": "" if known is None else known.reason,
        "choices": [] if known is None else list(known.choices),
        "atLeast": None if known is None else known.at_least,
        "atMost": None if known is None else known.at_most,
    }


def _topic_chart(view: ClusterView, topic: Topic) -> dict[str, list[float]] | None:
    """Return records by time from the manifests alone: no record is read."""
    log = view.storage()
    entries: list[Entry] = []
    for number in range(min(topic.partitions, PARTITION_ROWS)):
        entries += log.partition(topic.name, number).view(refreshed=False).entries
    return records_by_time(entries)


def records_by_time(entries: Sequence[Entry]) -> dict[str, list[float]] | None:
    """Return the middle of time slices in s since 1970, and records a second in each.

    The records of a segment count as spread evenly over its time. None without two times.
    """
    timed = [e for e in entries if e.rows and e.min_timestamp_ms > NO_TIMESTAMP_MS]
    if not timed:
        return None
    first = min(e.min_timestamp_ms for e in timed)
    last = max(e.max_timestamp_ms for e in timed)
    if last <= first:
        return None
    width = (last - first) / CHART_POINTS
    rows = [0.0] * CHART_POINTS
    for entry in timed:
        low = min(CHART_POINTS - 1, int((entry.min_timestamp_ms - first) / width))
        high = min(CHART_POINTS - 1, int((entry.max_timestamp_ms - first) / width))
        for number in range(low, high + 1):
            rows[number] += entry.rows / (high - low + 1)
    return {
        "times": [(first + (number + 0.5) * width) / 1000 for number in range(CHART_POINTS)],
        "rates": [count / (width / 1000) for count in rows],
    }


FILES_PARAMETERS: Final = (PAGE,)


def show_files(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the manifest and one page of segments of a partition, the newest first.

    Cost: a refresh, and a footer for each shown segment.
    """
    name, number = values.text("topic"), values.whole("partition")
    log = view.storage()
    partition = log.partition(name, number)
    seen = partition.readable()
    entries = seen.entries[::-1]
    page = RowPage.of(len(entries), values.whole("page"), SEGMENT_ROWS)
    shown = entries[page.first : page.first + SEGMENT_ROWS]
    manifested = len(seen.manifest.entries)
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        segments = list(pool.map(partial(_segment, partition, seen.manifest.end_offset), shown))
    return {
        **page.document(),
        "topic": name,
        "partition": number,
        "partitions": log.topic(name).partitions,
        "folder": seen.layout.folder,
        "root": view.place,
        "manifest": {
            "version": seen.manifest.version,
            "object": seen.layout.manifest_name(seen.manifest.version)
            if seen.manifest.version
            else None,
            "segments": manifested,
            "logStartOffset": seen.log_start_offset,
            "endOffset": seen.manifest.end_offset,
            "cleanedEnd": seen.manifest.cleaned_end,
            "problem": None if seen.manifest_damage is None else str(seen.manifest_damage),
        },
        "tail": len(seen.entries) - manifested,
        "endOffset": seen.end_offset,
        "leaderEpoch": seen.leader_epoch,
        "led": seen.is_led,
        "bytes": sum({e.object: e.size_bytes for e in seen.entries}.values()),
        "rows": sum(e.rows for e in seen.entries),
        "problem": None if seen.damage is None else str(seen.damage),
        "segments": segments,
        "chart": records_by_time(seen.entries),
    }


def _segment(partition: PartitionLog, manifest_end: int, entry: Entry) -> dict[str, Any]:
    document: dict[str, Any] = {
        "object": entry.object,
        "baseOffset": entry.base_offset,
        "endOffset": entry.end_offset,
        "rows": entry.rows,
        "bytes": entry.size_bytes,
        "minTimestamp": _time(entry.min_timestamp_ms),
        "maxTimestamp": _time(entry.max_timestamp_ms),
        "leaderEpoch": entry.leader_epoch,
        "inManifest": entry.end_offset <= manifest_end,
    }
    try:
        footer = partition.footer(entry)
    except SparklogError as error:
        return {**document, "problem": str(error)}
    return {
        **document,
        "kind": footer.kind,
        "codec": footer.codec,
        "batches": len(footer.batches),
        "producerBatches": len(footer.producers),
        "columns": list(footer.column_names),
        "keyIndex": footer.keys is not None,
        "problem": None,
    }


def _time(timestamp_ms: int) -> int | None:
    return None if timestamp_ms <= NO_TIMESTAMP_MS else timestamp_ms


PAGES: Final = (
    PageResource(
        "/topics", "topics", "List topics.", "topics.html", list_topics, LIST_PARAMETERS
    ),
    PageResource(
        "/topics/{topic}", "topic", "Show a topic with partitions and settings.", "topic.html",
        show_topic, TOPIC_PARAMETERS,
    ),
    PageResource(
        "/topics/{topic}/partitions/{partition}/files", "files",
        "Show the manifest and the segments of a partition.", "files.html", show_files,
        FILES_PARAMETERS, root_only=True,
    ),
)  # fmt: skip
