"""Page of a share group's dead letters: the settings, and the newest letters of this group.

The headers say which record each letter is about. Anyone with Write on the topic can write any
headers, so the page shows them as text. A link leads to a record only if they name a place.
Source: KIP-1191.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from sparklog.client.values import EARLIEST, LATEST
from sparklog.console.cluster_view import (
    ClusterView,
    PartitionRange,
    milliseconds_of,
    offsets_of,
)
from sparklog.console.payloads import PREVIEW_BYTES, shown_payload
from sparklog.console.record_pages import PARTITIONS_READ_MAX
from sparklog.console.resources import WHOLE_MAX, BoundedValues, PageResource
from sparklog.console.share_pages import dead_letter_settings
from sparklog.core.errors import InvalidTopic, SparklogError
from sparklog.core.topic_names import check_topic_name
from sparklog.core.types import TopicPartition

LETTERS_SHOWN: Final = 10
RECORDS_READ_MAX: Final = 10_000
READ_BYTES_MAX: Final = 16 * 1024 * 1024
HEADER_PREFIX: Final = "__dlq.errors."
_DIGITS_MAX: Final = 19


@dataclass(slots=True)
class LetterSearch:
    """The newest dead letters of one group, in the records that were read."""

    group: bytes
    records: int = 0
    size_bytes: int = 0
    found: dict[TopicPartition, list[dict[str, Any]]] = field(default_factory=dict)
    """The letters of the range that is read, in order of offsets."""
    cut: set[TopicPartition] = field(default_factory=set)
    """The partitions whose range was not read to its end."""

    @property
    def is_spent(self) -> bool:
        """Return True if no more may be read."""
        return self.records >= RECORDS_READ_MAX or self.size_bytes >= READ_BYTES_MAX

    def take(self, tp: TopicPartition, batch: pa.RecordBatch) -> bool:
        """Take records; return False behind the bounds."""
        if self.is_spent:
            self.cut.add(tp)
            return False
        self.records += batch.num_rows
        self.size_bytes += batch.nbytes
        letters = self.found.setdefault(tp, [])
        offsets, times = batch.column("offset"), batch.column("timestamp")
        for at, given in enumerate(batch.column("headers").to_pylist()):
            # Copied headers come first, so of two with one name the last is the broker's.
            headers = {one["key"]: one["value"] for one in given or ()}
            if headers.get(f"{HEADER_PREFIX}group") == self.group:
                letters.append(
                    {
                        "partition": tp.partition,
                        "offset": offsets[at].as_py(),
                        "timestamp": milliseconds_of(times[at].as_py()),
                        **_said(headers),
                    }
                )
        del letters[:-LETTERS_SHOWN]
        return True


def _said(headers: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Return what the headers say: texts, and the place of the record if they name one."""
    texts = {
        name: _text(headers.get(f"{HEADER_PREFIX}{name}"))
        for name in ("topic", "partition", "offset", "delivery.count", "message")
    }
    return {
        "source": _place(headers),
        "sourceText": f"{texts['topic']}-{texts['partition']}@{texts['offset']}",
        "deliveryCount": texts["delivery.count"],
        "message": texts["message"],
    }


def _text(value: bytes | None) -> str:
    shown = shown_payload(value, "auto", bytes_max=PREVIEW_BYTES, pretty=False)
    if shown.decoder == "null":
        return ""
    return f"{shown.text}…" if shown.shortened else shown.text


def _place(headers: Mapping[str, bytes | None]) -> dict[str, Any] | None:
    """Return the topic, the partition and the offset; None if the headers name no place."""
    topic = (headers.get(f"{HEADER_PREFIX}topic") or b"").decode("utf-8", "replace")
    try:
        check_topic_name(topic)
    except InvalidTopic:
        return None
    numbers = [_number(headers.get(f"{HEADER_PREFIX}{name}")) for name in ("partition", "offset")]
    if None in numbers:
        return None
    return {"topic": topic, "partition": numbers[0], "offset": numbers[1]}


def _number(value: bytes | None) -> int | None:
    if value is None or not value.isdigit() or len(value) > _DIGITS_MAX:
        return None
    return found if (found := int(value)) <= WHOLE_MAX else None


def list_dead_letters(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the newest dead letters of a share group, and where its others are."""
    group_id = values.text("group")
    settings = dead_letter_settings(view, group_id)
    document: dict[str, Any] = {
        "group": group_id,
        **settings,
        "problem": None,
        "records": None,
        "letters": [],
        "readRecords": 0,
        "isComplete": True,
        "partitions": None,
        "readPartitions": None,
    }
    topic = settings["deadLetterTopic"]
    if not topic:
        return document
    try:
        return document | _letters(view, topic, group_id)
    except SparklogError as error:
        return document | {"problem": str(error)}


def _letters(view: ClusterView, name: str, group_id: str) -> dict[str, Any]:
    topic = view.topic(name)
    every = [TopicPartition(name, number) for number in range(topic.partitions)]
    chosen = every[:PARTITIONS_READ_MAX]
    with view.administered() as admin:
        firsts = offsets_of(admin.offsets(dict.fromkeys(chosen, EARLIEST)))
        ends = offsets_of(admin.offsets(dict.fromkeys(chosen, LATEST)))
    search = LetterSearch(group_id.encode())
    letters, is_complete = _newest(view, search, firsts, ends)
    return {
        "records": sum(max(0, ends[tp] - firsts[tp]) for tp in chosen),
        "letters": letters,
        "readRecords": search.records,
        "isComplete": is_complete,
        "partitions": len(every),
        "readPartitions": len(chosen),
    }


def _newest(
    view: ClusterView,
    search: LetterSearch,
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> tuple[list[dict[str, Any]], bool]:
    """Return the newest letters, and True if no older record had to be left out.

    It reads each partition back from its end, in growing steps, until it has enough letters. A step
    that was cut has only its older records, so its letters are left out.
    """
    kept: dict[TopicPartition, list[dict[str, Any]]] = {}
    uppers = {tp: end for tp, end in ends.items() if end > firsts[tp]}
    span = LETTERS_SHOWN
    while uppers and not search.is_spent:
        ranges = [
            PartitionRange(tp, max(firsts[tp], upper - span), upper) for tp, upper in uppers.items()
        ]
        search.found = {}
        view.read(ranges, search.take)
        uppers = {}
        for one in ranges:
            tp = one.partition
            if tp in search.cut:
                uppers[tp] = one.end
                continue
            kept[tp] = [*search.found.get(tp, []), *kept.get(tp, [])][-LETTERS_SHOWN:]
            if one.base > firsts[tp] and len(kept[tp]) < LETTERS_SHOWN:
                uppers[tp] = one.base
        span = min(span * 8, RECORDS_READ_MAX)
    found = [letter for letters in kept.values() for letter in letters]
    found.sort(key=lambda one: (one["timestamp"] or 0, one["partition"], one["offset"]))
    return found[::-1][:LETTERS_SHOWN], not uppers


PAGES: Final = (
    PageResource(
        "/dead-letters/{group}", "deadLetters", "List the newest dead letters of a share group.",
        "dead_letters.html", list_dead_letters,
    ),
)  # fmt: skip
