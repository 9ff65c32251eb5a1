"""A partition's tail in this broker's memory, and the room it takes of the broker's budget.

Whoever changes a tail's size does so here, so that what was taken is given back exactly once,
whatever role the partition has at the time.
"""

from __future__ import annotations

from sparklog.broker.memory_budget import MemoryBudget
from sparklog.broker.turns import Turns
from sparklog.log.batch_check import CheckedBatch
from sparklog.log.tail import Tail


class HeldTail:
    """One partition's tail; it outlives the roles that the partition has here."""

    def __init__(self, tail: Tail, budget: MemoryBudget) -> None:
        """Hold `tail`, which is empty."""
        assert tail.size_bytes == 0, tail.size_bytes
        self.tail = tail
        self.order = Turns()
        """A request's turn lasts from its batch's check to its append, so that requests append as
        they came; while a leader still recovers the first of those that wait keeps it."""
        self._budget = budget

    def append_as_leader(
        self, batch: CheckedBatch, leader_epoch: int, append_time_ms: int | None
    ) -> bytes:
        """Append a producer's batch for which room was taken; return it as it is kept."""
        return self.tail.append_as_leader(batch, leader_epoch, append_time_ms)

    def append_followed(self, batch: CheckedBatch) -> None:
        """Append what a leader sent.

        Raises:
            DataCorrupt: it does not continue the tail; nothing was appended.
        """
        before = self.tail.size_bytes
        self.tail.append(batch)
        self._budget.take_followed(self.tail.size_bytes - before)

    def trim(self, to_offset: int) -> None:
        """Forget what the partition's own log has."""
        before = self.tail.size_bytes
        self.tail.trim(to_offset)
        self._budget.give_back(before - self.tail.size_bytes)

    def truncate(self, to_offset: int) -> None:
        """Forget what the leader has otherwise."""
        before = self.tail.size_bytes
        self.tail.truncate(to_offset)
        self._budget.give_back(before - self.tail.size_bytes)

    def reset(self, start_offset: int) -> None:
        """Forget everything and begin at `start_offset`."""
        before = self.tail.size_bytes
        self.tail.reset(start_offset)
        self._budget.give_back(before)
