"""Topics: the cluster's topics, as consumer groups need them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, Protocol
from uuid import UUID

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
