"""Topics: the cluster's topics, and the patterns of their names, as consumer groups need them.

Clients send patterns. RE2 matches them, in time linear in the name; Python's own engine takes
unbounded time for malicious patterns. RE2, which Kafka's brokers use as well, comes with Arrow. A
pattern must match the whole name. Source: KIP-848.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import InvalidRegularExpression

_HASH_BYTES: Final = 8


class Topics(Protocol):
    """All topics at one moment."""

    @property
    def version(self) -> int:
        """Return a number that rises with every change."""
        ...

    def names(self) -> Iterable[str]:
        """Return all names."""
        ...

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Return a topic's id and the number of its partitions."""
        ...

    def name_of(self, topic_id: UUID) -> str | None:
        """Return a topic's name."""
        ...


class NoTopics:
    """No topics at all."""

    version: Final = -1

    def names(self) -> Iterable[str]:
        """Return none."""
        return ()

    def find(self, name: str) -> None:
        """Find nothing."""

    def name_of(self, topic_id: UUID) -> None:
        """Know nothing."""


def subscription_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a number that changes when a subscribed topic is created, grows, or is deleted.

    64 bits with a sign, as Kafka's record has it; 0 when none of the topics exists.
    """
    found = [(name, *there) for name in sorted(names) if (there := topics.find(name)) is not None]
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for name, topic_id, partitions in found:
        digest.update(f"{name}\0{topic_id.hex}\0{partitions}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


PATTERN_BYTES_MAX: Final = 10_000
"""A pattern is compiled for every match; RE2 itself bounds its expansion."""


def check_pattern(pattern: str) -> None:
    """Reject an invalid pattern.

    Raises:
        InvalidRegularExpression: RE2 rejects it, or it is too long.
    """
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        raise InvalidRegularExpression(
            f"a pattern of topic names is too long. bytes_max={PATTERN_BYTES_MAX}"
        )
    matching(pattern, ("",))  # without any name, nothing would be compiled


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a pattern matches from end to end.

    Raises:
        InvalidRegularExpression: RE2 rejects it.
    """
    array = pa.array(list(names), pa.string())
    try:
        pc.match_substring_regex(array, pattern)  # alone first: it must not close the group below
        found = pc.match_substring_regex(array, f"^(?:{pattern})$")
    except pa.ArrowInvalid as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex is no pattern that RE2 takes: {error}. pattern={pattern!r}"
        ) from error
    return frozenset(array.filter(found).to_pylist())
