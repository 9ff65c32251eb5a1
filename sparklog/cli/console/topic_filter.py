"""Selection of topics and partitions by options, with Kafka's rules for patterns.

A pattern is a regular expression that must match the whole name; commas separate alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from sparklog.cli.arguments import UsageError
from sparklog.core.topic_names import LISTED_AS_INTERNAL

PartitionFilter = Callable[[str, int], bool]


def matching_topics(
    names: Iterable[str], pattern: str | None, *, exclude_internal: bool = False
) -> list[str]:
    """Return the names that match `pattern`, sorted; all of them without one.

    An existing topic's name selects only that topic, so deleting `a.b` never deletes `a-b`.

    Raises:
        UsageError: not a regular expression.
    """
    found = sorted(names)
    if exclude_internal:
        found = [name for name in found if name not in LISTED_AS_INTERNAL]
    if pattern is None:
        return found
    if pattern in found:
        return [pattern]
    matches = _name_filter(pattern)
    return [name for name in found if matches(name)]


def partition_numbers(text: str) -> tuple[int, ...]:
    """Return the partitions of a list such as `0,2`.

    Raises:
        UsageError: not numbers with commas between them.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"--partitions takes numbers with commas between them, not {text!r}")
    return tuple(int(word) for word in words)


def partition_filter(patterns: str) -> PartitionFilter:
    """Return the filter of `--topic-partitions`: `topic:1,topic:0-3,topic,topic:5-,topic:-3,:2`.

    The end of a range is exclusive, as in Kafka's tool.

    Raises:
        UsageError: not such a list.
    """
    rules = [_rule(word.strip()) for word in patterns.split(",")]
    return lambda topic, partition: any(rule(topic, partition) for rule in rules)


def _rule(word: str) -> PartitionFilter:
    name, _, partitions = word.partition(":")
    matches = _name_filter(name or ".*")
    match = re.fullmatch(r"(?:(\d*)(-?)(\d*))", partitions)
    if match is None:
        raise UsageError(f"not a topic and partition pattern: {word!r}")
    low, dash, high = match.groups()
    first = int(low) if low else 0
    end = int(high) if high else None
    if not dash:
        end = first + 1 if low else None
    return lambda topic, partition: (
        matches(topic) and first <= partition and (end is None or partition < end)
    )


def _name_filter(pattern: str) -> Callable[[str], bool]:
    alternatives = pattern.strip().strip("\"'").replace(",", "|").replace(" ", "")
    try:
        compiled = re.compile(alternatives)
    except re.error as error:
        raise UsageError(f"not a regular expression: {pattern!r}: {error}") from error
    return lambda name: compiled.fullmatch(name) is not None


def described(selection: Sequence[str | None]) -> str:
    """Return the selection as text, for a message that nothing matched."""
    return " ".join(word for word in selection if word)
