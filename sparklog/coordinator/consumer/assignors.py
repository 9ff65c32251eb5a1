"""Assignors of consumer groups (KIP-848): they compute which member reads which partition.

Both are pure functions, so every broker computes the same assignment:

- `range`: each topic in ranges over its readers. Equal numbers of different topics go to the same
  reader.
- `uniform`: as even as possible over all topics. It moves as few partitions as that allows.

ASSIGNORS-1: Every partition of a subscribed topic has exactly one reader, and that is a
    subscriber.
ASSIGNORS-2: uniform, equal subscriptions: the loads of two members differ by at most one
    partition.
ASSIGNORS-3: uniform, given its own result: it returns the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final
from uuid import UUID

from sparklog.coordinator.consumer.messages import NO_PARTS, Part, Parts

BALANCING_ROUNDS_MAX: Final = 20
"""Limit for members with different subscriptions.

Each round moves partitions to less loaded members.
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """A member, as an assignor sees it."""

    topics: frozenset[UUID]
    instance_id: str | None = None
    has: Parts = NO_PARTS
    """The target assignment of this member so far."""


Readers = Mapping[str, Reader]
Counts = Mapping[UUID, int]
"""Partitions of each topic."""
Assignor = Callable[[Readers, Counts], dict[str, Parts]]


def assign_ranges(readers: Readers, counts: Counts) -> dict[str, Parts]:
    """Return the partitions of every member; see `range` above."""
    found: dict[str, set[Part]] = {member_id: set() for member_id in readers}
    ordered = sorted(readers, key=lambda member_id: readers[member_id].instance_id or member_id)
    for topic, count in counts.items():
        subscribed = [member_id for member_id in ordered if topic in readers[member_id].topics]
        if not subscribed:
            continue
        least, more = divmod(count, len(subscribed))
        start = 0
        for place, member_id in enumerate(subscribed):
            end = start + least + (place < more)
            found[member_id].update((topic, number) for number in range(start, end))
            start = end
    return {member_id: frozenset(parts) for member_id, parts in found.items()}


def assign_uniformly(readers: Readers, counts: Counts) -> dict[str, Parts]:
    """Return the partitions of every member; see `uniform` above."""
    if not readers:
        return {}
    wanted = frozenset().union(*(reader.topics for reader in readers.values()))
    parts = {(t, number) for t, count in counts.items() if t in wanted for number in range(count)}
    kept = _kept(readers, parts)
    if all(reader.topics == wanted for reader in readers.values()):
        _cut(kept, len(parts))
    held = {part for has in kept.values() for part in has}
    _hand_out(kept, readers, sorted(parts - held))
    if any(reader.topics != wanted for reader in readers.values()):
        _balance(kept, readers)
    return {member_id: frozenset(has) for member_id, has in kept.items()}


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""Assignors under Kafka's names; the first one is the default."""


def _kept(readers: Readers, parts: set[Part]) -> dict[str, set[Part]]:
    """Return the partitions that each member may keep; no two members keep the same one."""
    left = set(parts)
    kept = {}
    for member_id in sorted(readers):
        reader = readers[member_id]
        has = {part for part in reader.has if part in left and part[0] in reader.topics}
        left -= has
        kept[member_id] = has
    return kept


def _cut(kept: dict[str, set[Part]], total: int) -> None:
    """Remove partitions beyond a member's even share. The largest members keep the odd ones."""
    share, more = divmod(total, len(kept))
    for member_id in sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id)):
        has = kept[member_id]
        limit = share + (more > 0)
        if len(has) >= limit:
            for part in sorted(has)[limit:]:
                has.discard(part)
            more -= limit > share


def _hand_out(kept: dict[str, set[Part]], readers: Readers, free: list[Part]) -> None:
    """Assign each free partition to the least loaded member that may read it."""
    by_topic: dict[UUID, list[Part]] = {}
    for part in free:
        by_topic.setdefault(part[0], []).append(part)
    # Topics with few subscribers come first: members that may read everything even out the rest.
    subscribers = {t: [m for m in kept if t in readers[m].topics] for t in by_topic}
    for topic in sorted(by_topic, key=lambda t: (len(subscribers[t]), t)):
        heap = [(len(kept[member_id]), member_id) for member_id in subscribers[topic]]
        heapify(heap)
        for part in by_topic[topic]:
            load, member_id = heappop(heap)
            kept[member_id].add(part)
            heappush(heap, (load + 1, member_id))


def _balance(kept: dict[str, set[Part]], readers: Readers) -> None:
    """Move partitions to members with at least two fewer, until no such pair is left."""
    for _ in range(BALANCING_ROUNDS_MAX):
        moved = False
        for member_id in sorted(kept, key=lambda m: (-len(kept[m]), m)):
            for topic in sorted({part[0] for part in kept[member_id]}):
                mine = sorted(part for part in kept[member_id] if part[0] == topic)
                heap = [(len(kept[m]), m) for m in kept if topic in readers[m].topics]
                heapify(heap)
                while mine and len(kept[member_id]) - heap[0][0] >= 2:
                    load, other = heappop(heap)
                    kept[member_id].discard(part := mine.pop())
                    kept[other].add(part)
                    heappush(heap, (load + 1, other))
                    moved = True
        if not moved:
            return
