"""One partition that another broker leads, as a follower here holds it.

The tail is a copy of the leader's, from what the partition's own log on storage has onwards. It is
never acknowledged to anybody: the leader learns from the offsets it is asked for how far it goes.
  G1  only what the leader of this epoch sent is appended, and only where the tail ends
  G2  what the leader says to diverge is forgotten before anything is appended after it
  G3  below the leader's flushed end nothing is kept: storage has it
  G4  a retired object changes the tail no more; a new epoch or leader is a new object
Source: DESIGN.md 4; KIP-101, KIP-279, KIP-595.

Where a fetch begins in one partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.broker.partition.tail import PartitionTail
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.log.tail.tail import NO_LEADER_EPOCH, EpochEnd


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Where one partition is read, and how much of it."""

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


FIRST_PAUSE_S = 0.02
FAILURES_COUNTED = 32
"""Beyond so many the pause grows no more, nor does the number."""


class FollowerPartition:
    """See the module. Not thread-safe: the event loop's only."""

    def __init__(
        self, where: PartitionId, topic: str, leader: int, leader_epoch: int, held: PartitionTail
    ) -> None:
        """Follow `leader`, with whatever is in the tail already."""
        self.where = where
        self.topic = topic
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.held = held
        self.live = True
        self.paused_until = 0.0
        """When it may be fetched again, on the loop's clock."""
        self._failures = 0
        self._at: FetchPosition | None = None

    def fetch_at(self, max_bytes: int) -> FetchPosition:
        """Return where the next fetch begins: the same object as long as it is the same place."""
        tail, at = self.held.tail, self._at
        offset, epoch = tail.end_offset, tail.latest_epoch
        if (
            at is None
            or at.offset != offset
            or at.last_fetched_epoch != epoch
            or at.max_bytes != max_bytes
        ):
            at = self._at = FetchPosition(offset, max_bytes, self.leader_epoch, epoch)
        return at

    @property
    def fetch_offset(self) -> int:
        """Return where the next fetch begins."""
        return self.held.tail.end_offset

    @property
    def last_fetched_epoch(self) -> int:
        """Return the epoch of the newest batch held; -1 when none is known."""
        return self.held.tail.latest_epoch

    def pause(self, now: float, longest_s: float) -> None:
        """Wait after an error: shortly at first, as a new leader serves in a moment."""
        self.paused_until = now + min(longest_s, FIRST_PAUSE_S * 2**self._failures)
        self._failures = min(self._failures + 1, FAILURES_COUNTED)

    def answered(self) -> None:
        """Take in that the leader serves."""
        self._failures = 0

    def append(self, batches: Iterable[CheckedBatch]) -> int:
        """Append what the leader sent; return its bytes.

        Raises:
            DataCorrupt: it does not continue the tail; fetch again.
        """
        size_bytes = 0
        for batch in batches:
            self.held.append_followed(batch)
            size_bytes += batch.header.size_bytes
        return size_bytes

    def flushed(self, end_offset: int) -> None:
        """Take in the leader's flushed end: forget what lies below, and begin there if need be."""
        tail = self.held.tail
        if end_offset > tail.end_offset:
            self.held.reset(end_offset)
        elif end_offset > tail.start_offset:
            self.held.trim(end_offset)

    def diverged(self, leader: EpochEnd) -> None:
        """Forget what the leader has otherwise.

        `leader` is the newest epoch, not above ours, that the leader knows, and where it ended. If
        this tail does not know that epoch it goes back to where an older one ended; the next fetch
        then compares again.
        """
        tail = self.held.tail
        ours = tail.end_of_epoch(leader.leader_epoch)
        end = leader.end_offset
        if ours.leader_epoch != NO_LEADER_EPOCH:
            end = min(end, ours.end_offset)
        if end < tail.start_offset:
            # Nothing is known to agree: begin where the leader's flushed end is.
            self.held.reset(0)
        else:
            self.held.truncate(min(end, tail.end_offset))

    def out_of_range(self) -> None:
        """Begin anew: the leader has nothing where this tail ends."""
        self.held.reset(0)

    def retire(self) -> None:
        """Change the tail no more."""
        self.live = False
