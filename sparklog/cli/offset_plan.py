"""Offset plans as CSV: `topic,partition,offset`, with a group before it for several groups."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from sparklog.cli.usage import UsageError
from sparklog.core.types import TopicPartition

FORMS = "topic,partition,offset or group,topic,partition,offset"


def parse_plan(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets of a plan by group; a plan without groups is for the only given one.

    Raises:
        UsageError: not such a plan.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    for row in csv.reader(io.StringIO(text)):
        if not row:
            continue
        fields = row
        if len(row) == 3 and len(groups) == 1:
            fields = [groups[0], *row]
        if len(fields) != 4 or not all(_is_number(word) for word in fields[2:]):
            raise UsageError(f"--from-file takes lines {FORMS}, not {','.join(row)!r}")
        group, topic, partition, offset = fields
        found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    return found


def plan_lines(rows: Iterable[tuple[str, TopicPartition, int]], *, one_group: bool) -> list[str]:
    """Return a plan for `parse_plan`; an empty line ends it, as in Kafka's tool."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, tp, offset in rows:
        fields = (tp.topic, tp.partition, offset)
        writer.writerow(fields if one_group else (group, *fields))
    return out.getvalue().split("\n")


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()
