"""Copies: a topic's shape as a new topic, and a range of records into another topic.

A replay keeps keys, values, headers and timestamps. On a root it is one append, of all records or
none. At brokers each record is sent on its own, so a failure may leave some of them there.
"""

from __future__ import annotations

import shlex
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from sparklog.client.values import ConfigResource
from sparklog.console.cluster_view import ClusterView, PartitionRange
from sparklog.console.payloads import HEADERS_SHOWN, SHOWN_BYTES
from sparklog.console.resources import (
    BoundedValues,
    ChangeAction,
    ChangeDone,
    ConsoleRole,
    FieldSpec,
)
from sparklog.core.errors import InvalidRequest, UnknownTopicOrPartition
from sparklog.core.terminal_text import printable
from sparklog.core.topic_names import LISTED_AS_INTERNAL
from sparklog.core.types import TopicPartition

REPLAYED_MAX: Final = 10_000
REPLAYED_BYTES_MAX: Final = 64 << 20
COPIED: Final = ("key", "value", "headers", "timestamp")


def clone_topic(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Create a topic with the partitions, replicas and settings of another; without records."""
    source, name = view.topic(values.text("topic")), values.text("name")
    if source.name in LISTED_AS_INTERNAL:
        raise InvalidRequest(f"only the cluster itself has such a topic. topic={source.name}")
    replicas = max([len(state.replicas) for state in source.partition_states] or [0]) or None
    with view.administered() as admin:
        found = admin.configs(ConfigResource.TOPIC, [source.name])[source.name]
        own = {one.name: one.value for one in found if one.set_here and one.value is not None}
        made = admin.create_topic(name, source.partitions, own, replicas)
    return ChangeDone(
        f"Created topic {name} with the partitions and settings of {source.name}.",
        f"/topics/{quote(name, safe='')}", {"topic": name, "topicId": made.topic_id},
    )  # fmt: skip


def replay_records(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Append the records of a range to another topic, in the same partition if it has that."""
    source = TopicPartition(values.text("topic"), values.whole("partition"))
    target = view.topic(values.text("target"))
    if target.name in LISTED_AS_INTERNAL:
        raise InvalidRequest(f"only the cluster itself writes this topic. topic={target.name}")
    if source.partition >= view.topic(source.topic).partitions:
        raise UnknownTopicOrPartition(f"no such partition. partition={source}")
    to = TopicPartition(target.name, min(source.partition, target.partitions - 1))
    base, end, limit = values.whole("base"), values.whole("end"), values.whole("limit")
    if end <= base:
        raise InvalidRequest(f"end lies after base. base={base} end={end}")
    taken = _read(view, PartitionRange(source, base, end), limit)
    rows = sum(one.num_rows for one in taken)
    if not rows:
        raise InvalidRequest(f"no record lies there. partition={source} base={base} end={end}")
    last: int = taken[-1].column("offset")[-1].as_py()
    view.append_copies(to, [one.select(COPIED) for one in taken])
    more = "" if rows < limit else f" Go on at offset {last + 1}."
    return ChangeDone(
        f"Appended {rows:,} records of {source} to {to}.{more}",
        f"/topics/{quote(target.name, safe='')}/records?partition={to.partition}",
        {"records": rows, "partition": to.partition, "nextOffset": last + 1},
    )


def _read(view: ClusterView, wanted: PartitionRange, limit: int) -> list[pa.RecordBatch]:
    taken: list[pa.RecordBatch] = []
    rows: int = 0
    size: int = 0

    def take(_: TopicPartition, batch: pa.RecordBatch) -> bool:
        nonlocal rows, size
        some = batch.slice(0, limit - rows)
        taken.append(some)
        rows, size = rows + some.num_rows, size + some.nbytes
        if size > REPLAYED_BYTES_MAX:
            raise InvalidRequest(
                f"the range is too large for one replay; make it smaller. "
                f"bytes_max={REPLAYED_BYTES_MAX}"
            )
        return rows < limit

    view.read([wanted], take)
    return [one for one in taken if one.num_rows]


def editable_record(record: pa.RecordBatch) -> dict[str, Any] | None:
    """Return a record as the fields of a form that appends the same bytes; None if too large.

    Text stays text if a form returns the same bytes; else key and value are in hex. A form has no
    header whose value is not such a text on one line; `headersLeftOut` counts those.
    """
    key, value = record.column("key")[0].as_py(), record.column("value")[0].as_py()
    if len(key or b"") + len(value or b"") > SHOWN_BYTES:
        return None
    texts = [_text(one) for one in (key, value)]
    in_hex = None in texts or "\n" in (texts[0] or "")
    shown = [(one or b"").hex() for one in (key, value)] if in_hex else texts
    headers = record.column("headers")[0].as_py() or []
    lines = [
        (str(one["key"]), _text(one["value"]))
        for one in headers[:HEADERS_SHOWN]
        if one["value"] is not None
    ]
    kept = [(n, t) for n, t in lines if t is not None and _fits(n) and _fits(t) and ":" not in n]
    return {
        "key": shown[0],
        "value": shown[1],
        "format": "hex" if in_hex else "text",
        "emptyKey": key == b"",
        "tombstone": value is None,
        "headers": [f"{name}: {text}" for name, text in kept],
        "headersLeftOut": len(headers) - len(kept),
    }


def _text(data: bytes | None) -> str | None:
    """Return bytes as text if a browser's form returns the same."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        return None
    return text if printable(text) == text and "\r" not in text else None


def _fits(text: str) -> bool:
    return "\n" not in text and text == text.strip()


def consume_command(
    view: ClusterView, topic: str, *, partition: int | None, offset: int | None, snapshot: str
) -> str:
    """Return the command that prints the same records in a terminal."""
    where = "--root" if view.kind == "root" else "--bootstrap-server"
    words = ["sparklog", "consume", where, view.place, "--topic", topic]
    if snapshot:
        return shlex.join([*words, "--snapshot", snapshot])
    if partition is not None:
        words += ["--partition", str(partition)]
    if partition is not None and offset is not None:
        words += ["--offset", str(offset), "--max-messages", "1"]
    else:
        words += ["--from-beginning"]
    return shlex.join(words)


COPY_CHANGES: Final = (
    ChangeAction(
        "/topics/{topic}/clone", "cloneTopic", "Create a topic like this one, without records.",
        ConsoleRole.EDITOR, clone_topic,
        (FieldSpec("name", "the new topic's name", required=True, length_max=249),),
    ),
    ChangeAction(
        "/topics/{topic}/replay", "replayRecords", "Append a range of records to another topic.",
        ConsoleRole.EDITOR, replay_records,
        (
            FieldSpec("target", "the other topic", required=True, length_max=249),
            FieldSpec("partition", "the partition to read", "integer", required=True),
            FieldSpec("base", "the first offset", "integer", required=True),
            FieldSpec("end", "the offset after the last", "integer", required=True),
            FieldSpec("limit", "at most so many records", "integer", default=str(REPLAYED_MAX),
                      least=1, most=REPLAYED_MAX),
        ),
    ),
)  # fmt: skip
