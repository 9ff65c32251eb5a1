"""CommittedOffsets: the offsets of one shard's groups, and those that wait for a transaction.

O1: Of two commits for one partition the later one in the log wins. That holds even if the earlier
    one belongs to a transaction that ends after it.
O2: A transaction's offsets are invisible until it commits, and for ever if it aborts.
O3: A deleted offset stays deleted. A transaction that ends later does not restore an older commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparklog.coordinator.group_records import OffsetKey, OffsetValue


class Committed(NamedTuple):
    """A committed offset and its position in the log."""

    value: OffsetValue
    position: int


Place = tuple[str, int]
"""Topic and partition."""


class CommittedOffsets:
    """Offsets of the groups of one shard; see the module."""

    def __init__(self) -> None:
        """Start without any."""
        self._groups: dict[str, dict[Place, Committed]] = {}
        self._pending: dict[int, dict[str, dict[Place, Committed]]] = {}
        """By producer id and group id."""
        self._producers: dict[str, dict[int, None]] = {}
        """Group id -> producers with pending offsets of it, as an ordered set."""

    def put(self, key: OffsetKey, value: OffsetValue, position: int) -> None:
        """Store a commit."""
        of_group = self._groups.setdefault(key.group_id, {})
        of_group[key.topic, key.partition] = Committed(value, position)

    def put_pending(
        self, key: OffsetKey, value: OffsetValue, position: int, producer_id: int
    ) -> None:
        """Store a commit that becomes visible when its producer's transaction commits."""
        of_group = self._pending.setdefault(producer_id, {}).setdefault(key.group_id, {})
        of_group[key.topic, key.partition] = Committed(value, position)
        self._producers.setdefault(key.group_id, {})[producer_id] = None

    def remove(self, key: OffsetKey) -> None:
        """Remove a partition's committed offset, and those that wait for a transaction."""
        group_id, place = key.group_id, (key.topic, key.partition)
        of_group = self._groups.get(group_id)
        if of_group is not None:
            of_group.pop(place, None)
            if not of_group:
                del self._groups[group_id]
        for producer_id in list(self._producers.get(group_id, ())):
            waiting = self._pending[producer_id][group_id]
            waiting.pop(place, None)
            if not waiting:
                self._forget_pending(producer_id, group_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> set[str]:
        """Apply or drop a producer's pending offsets; return their group ids."""
        group_ids = set(self._pending.get(producer_id, ()))
        for group_id in group_ids:
            waiting = self._forget_pending(producer_id, group_id)
            for place, committed in waiting.items() if commit else ():
                key = OffsetKey(group_id, *place)
                known = self.get(key)
                if known is None or known.position < committed.position:
                    self.put(key, *committed)
        return group_ids

    def get(self, key: OffsetKey) -> Committed | None:
        """Return a committed offset."""
        return self._groups.get(key.group_id, {}).get((key.topic, key.partition))

    def of(self, group_id: str) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """Yield a group's committed offsets; the caller may remove them meanwhile."""
        for place, committed in list(self._groups.get(group_id, {}).items()):
            yield OffsetKey(group_id, *place), committed.value

    def keys(self, group_id: str) -> list[OffsetKey]:
        """Return the keys of a group's offsets, committed or pending."""
        places = dict.fromkeys(self._groups.get(group_id, ()))
        for producer_id in self._producers.get(group_id, ()):
            places |= dict.fromkeys(self._pending[producer_id][group_id])
        return [OffsetKey(group_id, *place) for place in places]

    def group_ids(self) -> list[str]:
        """Return the groups that have offsets, committed or pending."""
        return list(dict.fromkeys((*self._groups, *self._producers)))

    def is_pending(self, key: OffsetKey) -> bool:
        """Return True if an open transaction may change an offset."""
        place = key.topic, key.partition
        producers = self._producers.get(key.group_id, ())
        return any(place in self._pending[p][key.group_id] for p in producers)

    def holds(self, group_id: str) -> bool:
        """Return True if a group has offsets, committed or pending."""
        return group_id in self._groups or group_id in self._producers

    def _forget_pending(self, producer_id: int, group_id: str) -> dict[Place, Committed]:
        """Remove and return a group's offsets that wait for a producer's transaction."""
        of_producer, producers = self._pending[producer_id], self._producers[group_id]
        waiting = of_producer.pop(group_id)
        if not of_producer:
            del self._pending[producer_id]
        del producers[producer_id]
        if not producers:
            del self._producers[group_id]
        return waiting
