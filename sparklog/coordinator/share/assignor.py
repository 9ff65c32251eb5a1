"""The assignor `simple` of share groups (KIP-932). Pure.

Several members may have the same partition. Topics with the same subscribers are assigned together.

ASSIGNOR-1: A partition has ceil(members / partitions) members of those that subscribe to its topic,
    so with more partitions than members it has one.
ASSIGNOR-2: With equal subscriptions the loads of two members differ by at most one partition.
ASSIGNOR-3: Given its own result, it returns the same result. Members keep what balance allows.

Source: Kafka's `SimpleAssignor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final
from uuid import UUID

from sparklog.coordinator.consumer.messages import NO_PARTS, Part, Parts

SIMPLE: Final = "simple"


@dataclass(frozen=True, slots=True)
class Sharer:
    """A member, as the assignor sees it."""

    topics: frozenset[UUID]
    has: Parts = NO_PARTS
    """The target assignment of this member so far."""


def assign_simply(sharers: Mapping[str, Sharer], parts: Parts) -> dict[str, Parts]:
    """Return the partitions of every member, of all partitions that may be assigned."""
    by_topic: dict[UUID, list[Part]] = {}
    for part in sorted(parts):
        by_topic.setdefault(part[0], []).append(part)
    together: dict[tuple[str, ...], list[Part]] = {}
    for topic, found in by_topic.items():
        subscribers = tuple(sorted(m for m, sharer in sharers.items() if topic in sharer.topics))
        if subscribers:
            together.setdefault(subscribers, []).extend(found)
    loads = dict.fromkeys(sharers, 0)
    assigned: dict[str, set[Part]] = {member_id: set() for member_id in sharers}
    for members in sorted(together, key=lambda members: (len(members), members)):
        share = _SharedTopics(members, together[members], sharers, loads)
        for member_id, has in share.assigned().items():
            assigned[member_id] |= has
            loads[member_id] += len(has)
    return {member_id: frozenset(has) for member_id, has in assigned.items()}


class _SharedTopics:
    """Members with the same subscription to some topics, and the partitions of those."""

    def __init__(
        self,
        members: tuple[str, ...],
        parts: list[Part],
        sharers: Mapping[str, Sharer],
        loads: Mapping[str, int],
    ) -> None:
        """Begin with what members may keep; `loads` are their partitions of other topics."""
        self._sharing = -(-len(members) // len(parts))
        self._holders: dict[Part, set[str]] = {part: set() for part in parts}
        kept = {m: {part for part in sharers[m].has if part in self._holders} for m in members}
        # The odd partitions go to those with least of other topics, then to who has them already.
        order = sorted(members, key=lambda m: (loads[m], -len(kept[m]), m))
        least, more = divmod(self._sharing * len(parts), len(members))
        self._limits = {m: least + (place < more) for place, m in enumerate(order)}
        self._has: dict[str, set[Part]] = {m: set() for m in members}
        for member_id in order:
            for part in sorted(kept[member_id]):
                has_room = len(self._has[member_id]) < self._limits[member_id]
                if has_room and len(self._holders[part]) < self._sharing:
                    self._give(part, member_id)

    def assigned(self) -> dict[str, set[Part]]:
        """Return the partitions of each member."""
        heap = [(len(holders), part) for part, holders in self._holders.items()]
        heapify(heap)
        for member_id, has in self._has.items():
            skipped = []
            while len(has) < self._limits[member_id]:
                load, part = heappop(heap)
                if part not in has:
                    self._give(part, member_id)
                    load += 1
                skipped.append((load, part))
            for entry in skipped:
                heappush(heap, entry)
        self._even_out()
        return self._has

    def _even_out(self) -> None:
        """Move partitions with too many members to those with too few.

        One with too many members has at least one that does not have the other partition.
        """
        few = [part for part, holders in self._holders.items() if len(holders) < self._sharing]
        for part, holders in self._holders.items():
            while len(holders) > self._sharing:
                other = few[-1]
                member_id = min(holders - self._holders[other])
                holders.discard(member_id)
                self._has[member_id].discard(part)
                self._give(other, member_id)
                if len(self._holders[other]) == self._sharing:
                    few.pop()

    def _give(self, part: Part, member_id: str) -> None:
        self._holders[part].add(member_id)
        self._has[member_id].add(part)
