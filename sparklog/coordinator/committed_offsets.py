"""Committed offsets of the groups of one shard, and those that wait for their transaction.

O1  of two commits of one partition the one later in the log counts, even if the earlier one was
    in a transaction that ends after it
O2  a transaction's offsets are seen by nobody until it commits, and never if it aborts
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparklog.coordinator.group_records import OffsetKey, OffsetValue


class Committed(NamedTuple):
    """A committed offset, and where in the log it stands."""

    value: OffsetValue
    position: int


class CommittedOffsets:
    """See the module."""

    def __init__(self) -> None:
        """Start without any."""
        self._groups: dict[str, dict[tuple[str, int], Committed]] = {}
        self._pending: dict[int, dict[OffsetKey, Committed]] = {}
        """By producer id."""
        self._producers: dict[str, dict[int, None]] = {}
        """Group id -> producers with pending offsets of it, as an ordered set."""

    def put(self, key: OffsetKey, value: OffsetValue, position: int) -> None:
        """Take in a commit."""
        of_group = self._groups.setdefault(key.group_id, {})
        of_group[key.topic, key.partition] = Committed(value, position)

    def put_pending(
        self, key: OffsetKey, value: OffsetValue, position: int, producer_id: int
    ) -> None:
        """Take in a commit that counts when its producer's transaction commits."""
        self._pending.setdefault(producer_id, {})[key] = Committed(value, position)
        self._producers.setdefault(key.group_id, {})[producer_id] = None

    def remove(self, key: OffsetKey) -> None:
        """Forget a committed offset, if there is one."""
        of_group = self._groups.get(key.group_id)
        if of_group is not None:
            of_group.pop((key.topic, key.partition), None)
            if not of_group:
                del self._groups[key.group_id]

    def end_transaction(self, producer_id: int, *, commit: bool) -> set[str]:
        """Make a producer's pending offsets count, or forget them; return whose they were."""
        pending = self._pending.pop(producer_id, {})
        group_ids = {key.group_id for key in pending}
        for group_id in group_ids:
            producers = self._producers[group_id]
            del producers[producer_id]
            if not producers:
                del self._producers[group_id]
        if commit:
            for key, committed in pending.items():
                known = self.get(key)
                if known is None or known.position < committed.position:
                    self.put(key, *committed)
        return group_ids

    def get(self, key: OffsetKey) -> Committed | None:
        """Return a committed offset."""
        return self._groups.get(key.group_id, {}).get((key.topic, key.partition))

    def of(self, group_id: str) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """Yield a group's committed offsets; they may be removed meanwhile."""
        for (topic, partition), committed in list(self._groups.get(group_id, {}).items()):
            yield OffsetKey(group_id, topic, partition), committed.value

    def group_ids(self) -> list[str]:
        """Return the groups that have committed offsets."""
        return list(self._groups)

    def is_pending(self, key: OffsetKey) -> bool:
        """Return whether an open transaction may change an offset."""
        return any(key in self._pending[p] for p in self._producers.get(key.group_id, ()))

    def holds(self, group_id: str) -> bool:
        """Return whether a group has offsets, committed or pending."""
        return group_id in self._groups or group_id in self._producers
