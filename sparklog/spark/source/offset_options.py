"""Offset options: the start and end of a read, as values and as text. Resolves nothing.

Spelling and meaning are those of Spark's Kafka source: `earliest`, `latest`, or JSON by topic and
partition. In the JSON -2 is earliest and -1 latest; times are milliseconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparklog.core.bounded_json import OBJECT_BYTES_MAX, parse_json
from sparklog.core.errors import InvalidConfig
from sparklog.core.types import TopicPartition

TOPIC_IDS: Final = "~topicIds"
"""Stands beside topics in a checkpoint's offsets and holds their ids. No topic has such a name."""
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same place in every partition: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A place for each partition; EARLIEST and LATEST may be among them."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after one time, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]


OffsetLimit = Everywhere | AtOffsets | AtTime | AtTimes


def parse_limit(
    option: str, *, time: str | None, times: str | None, offsets: str | None, default: int
) -> OffsetLimit:
    """Return the limit that the three options of one end say; a time goes before offsets.

    Args:
        option: `starting` or `ending`, for messages.
        default: EARLIEST or LATEST, where none of the options is given.

    Raises:
        InvalidConfig: not a time, an offset or the JSON expected.
    """
    if time is not None:
        return AtTime(_parse_time(f"{option}Timestamp", time))
    if times is not None:
        example = '{"topicA": {"0": 1700000000000, "1": 1700000000000}}'
        return AtTimes(_parse_places(f"{option}OffsetsByTimestamp", times, example, lowest=0))
    if offsets is None:
        return Everywhere(default)
    word = offsets.strip().lower()
    if word in ("earliest", "latest"):
        return Everywhere(EARLIEST if word == "earliest" else LATEST)
    example = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
    return AtOffsets(_parse_places(f"{option}Offsets", offsets, example, lowest=EARLIEST))


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions that the option `assign` names.

    Raises:
        InvalidConfig: not the JSON expected, or no partition.
    """
    if not text.strip().startswith("{"):
        raise InvalidConfig(
            f"No topicpartitions to assign as specified value for option 'assign' is '{text}'"
        )
    document = _parse_json("assign", text, example := '{"topicA":[0,1],"topicB":[2,4]}')
    found: list[TopicPartition] = []
    for topic, numbers in document.items():
        if not isinstance(numbers, list) or not all(_is_whole(n) and n >= 0 for n in numbers):
            raise _unexpected("assign", text, example)
        found.extend(TopicPartition(topic, number) for number in numbers)
    if not found:
        raise _unexpected("assign", text, example)
    return tuple(sorted(set(found)))


def parse_offsets(document: Any, what: str) -> dict[TopicPartition, int]:
    """Return the offsets in `{"topic": {"0": 123}}`, as a stream's checkpoint has them.

    Ids of topics beside them are passed over; see `parse_topic_ids`.

    Raises:
        InvalidConfig: another shape.
    """
    example = '{"topicA": {"0": 23, "1": 0}}'
    if not isinstance(document, dict):
        raise _unexpected(what, json.dumps(document), example)
    return _places(what, document, example, lowest=0)


def parse_topic_ids(document: Mapping[str, Any], what: str) -> dict[str, str]:
    """Return the topic ids by name that a stream's checkpoint has; none in one of before them.

    Raises:
        InvalidConfig: another shape.
    """
    found = document.get(TOPIC_IDS, {})
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        example = '{"topicA": "nxQ7cDLPRRWKZEnZiT2xXg"}'
        raise _unexpected(f"{TOPIC_IDS} in the {what}", json.dumps(found), example)
    return found


def format_offsets(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return offsets in the shape that Spark's Kafka source writes into checkpoints.

    Args:
        offsets: by partition.
        topic_ids: by name, of the topics that the offsets are of; none are written if None.
    """
    document: dict[str, dict[str, Any]] = {}
    for place in sorted(offsets):
        document.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    if topic_ids:
        named = sorted(document.keys() & topic_ids.keys())
        document[TOPIC_IDS] = {topic: topic_ids[topic] for topic in named}
    return document


def check_limits(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Refuse a start and an end that contradict each other before anything is resolved.

    Raises:
        InvalidConfig: other partitions at the end than at the start, or an end before its start.
    """
    match starting, ending:
        case AtOffsets(first), AtOffsets(last):
            pass
        case AtTimes(first), AtTimes(last):
            pass
        case _:
            return
    if first.keys() != last.keys():
        raise InvalidConfig(
            "The specified start offset and end offset should have the same topic-partitions. "
            f"start={spell(first)} end={spell(last)}"
        )
    for place, start in first.items():
        if start > last[place] and start >= 0 and last[place] >= 0:
            raise InvalidConfig(
                f"The specified start offset {start} is greater than the end offset {last[place]} "
                f"for topic {place.topic} partition {place.partition}."
            )


def spell(places: Iterable[TopicPartition]) -> str:
    """Return partitions for a message."""
    return "[" + ", ".join(str(place) for place in sorted(places)) + "]"


def _parse_time(option: str, text: str) -> int:
    try:
        timestamp_ms = int(text.strip())
    except ValueError:
        raise InvalidConfig(
            f"Expected a single long value (milliseconds since the epoch). {option}={text!r}"
        ) from None
    if timestamp_ms < 0:
        raise InvalidConfig(f"a time is not negative. {option}={text}")
    return timestamp_ms


def _parse_places(option: str, text: str, example: str, lowest: int) -> dict[TopicPartition, int]:
    return _places(option, _parse_json(option, text, example), example, lowest)


def _places(
    option: str, document: Mapping[str, Any], example: str, lowest: int
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in document.items():
        if topic == TOPIC_IDS:
            continue  # as when an option is given what a checkpoint has
        if not isinstance(by_partition, dict):
            raise _unexpected(option, json.dumps(document), example)
        for number, value in by_partition.items():
            if not number.isdecimal() or not _is_whole(value) or value < lowest:
                raise _unexpected(option, json.dumps(document), example)
            found[TopicPartition(topic, int(number))] = value
    return found


def _parse_json(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        document = parse_json(text, option, bytes_max=OBJECT_BYTES_MAX)
    except ValueError:
        raise _unexpected(option, text, example) from None
    if not isinstance(document, dict):
        raise _unexpected(option, text, example)
    return document


def _unexpected(option: str, text: str, example: str) -> InvalidConfig:
    return InvalidConfig(f"Expected e.g. {example}, got {text}. option={option}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
