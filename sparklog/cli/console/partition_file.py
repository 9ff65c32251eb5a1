"""Files with partitions, in the JSON formats of Kafka's tools."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidRequest
from sparklog.core.types import TopicPartition

VERSION = 1


def text_of(file: str) -> str:
    """Return the content of a file; `-` is standard input.

    Raises:
        InvalidRequest: it is not text. OSError: it cannot be read.
    """
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the file is not text in UTF-8. file={file}") from error


def entries_of(text: str, example: str, *, under: str = "partitions") -> list[dict[str, Any]]:
    """Return the entries of a file in the format of `example`.

    Raises:
        InvalidRequest: another format, or another version.
    """
    try:
        document = parse_json(text, "file")
    except ValueError as error:
        raise _unlike(example, str(error)) from error
    entries = document.get(under) if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _unlike(example, f"{under} must be a list of objects")
    version = document.get("version", VERSION)
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
        raise _unlike(example, f"topic must be a string: {topic!r}")
    return TopicPartition(topic, whole(entry, "partition", example))


def whole(entry: dict[str, Any], name: str, example: str) -> int:
    """Return a whole number of an entry.

    Raises:
        InvalidRequest: the value is not a whole number.
    """
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _unlike(example, f"{name} must be a whole number: {value!r}")
    return value


def once_each(partitions: Iterable[TopicPartition]) -> None:
    """Reject a file that names a partition twice.

    Raises:
        InvalidRequest: it does.
    """
    twice = [str(tp) for tp, count in Counter(partitions).items() if count > 1]
    if twice:
        raise InvalidRequest(
            f"the file names partitions more than once. partitions={','.join(twice)}"
        )


def _unlike(example: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"the file must look like {example}. problem={problem}")
