"""Files that name partitions, in the JSON formats of Kafka's tools."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sparklog.core.errors import InvalidRequest
from sparklog.core.types import TopicPartition

VERSION = 1


def text_of(file: str) -> str:
    """Return the content of a file; `-` is standard input."""
    if file == "-":
        return sys.stdin.read()
    return Path(file).read_text(encoding="utf-8")


def entries_of(text: str, example: str, *, under: str = "partitions") -> list[dict[str, Any]]:
    """Return the entries of a file that looks like `example`.

    Raises:
        InvalidRequest: it does not, or is of another version.
    """
    try:
        document = json.loads(text)
        version = document.get("version", VERSION)
        entries = [dict(entry) for entry in document[under]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidRequest(f"the file must look like {example}. problem={error!r}") from error
    if version != VERSION:
        raise InvalidRequest(f"the file's version must be {VERSION}. version={version}")
    return entries


def named_partition(entry: dict[str, Any], example: str) -> TopicPartition:
    """Return the partition of an entry.

    Raises:
        InvalidRequest: it has none.
    """
    topic = entry.get("topic")
    if not isinstance(topic, str):
        raise InvalidRequest(
            f"the file must look like {example}. problem=topic must be a string: {topic!r}"
        )
    return TopicPartition(topic, whole(entry, "partition", example))


def whole(entry: dict[str, Any], name: str, example: str) -> int:
    """Return a whole number of an entry.

    Raises:
        InvalidRequest: it is none.
    """
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(
            f"the file must look like {example}. problem={name} must be a whole number: {value!r}"
        )
    return value


def once_each(partitions: Iterable[TopicPartition]) -> None:
    """Refuse a file that names a partition twice.

    Raises:
        InvalidRequest: it does.
    """
    twice = [str(tp) for tp, count in Counter(partitions).items() if count > 1]
    if twice:
        raise InvalidRequest(
            f"the file names partitions more than once. partitions={','.join(twice)}"
        )
