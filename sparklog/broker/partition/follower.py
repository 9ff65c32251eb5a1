"""FollowerPartition: a follower's copy of a partition that another broker leads.

The tail is a copy of the leader's tail. It begins where the partition's own log on storage ends. A
follower acknowledges nothing: the leader learns the follower's end from the fetch offsets.
  FOLLOWER-1: only batches from the leader of this epoch are appended, and only at the end of the
      tail
  FOLLOWER-2: records that diverge from the leader's are truncated before anything is appended
  FOLLOWER-3: nothing below the leader's flushed end is kept: storage has it
  FOLLOWER-4: a retired object does not change the tail; a new epoch or leader is a new object
Source: DESIGN.md 4; KIP-101, KIP-279, KIP-595.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.broker.partition.tail import PartitionTail
from sparklog.core.backoff import Backoff
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.log.tail.tail import NO_LEADER_EPOCH, EpochEnd


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The position of a fetch in one partition, and the most bytes to return."""

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


FIRST_PAUSE_S = 0.02
SHORTEST_PAUSE_S = 0.001
"""The pause where `replica.fetch.backoff.ms` is 0, so that the loop does not keep a broker busy."""


class FollowerPartition:
    """See the module. Not thread-safe: the event loop's only."""

    def __init__(
        self,
        where: PartitionId,
        topic: str,
        leader: int,
        leader_epoch: int,
        held: PartitionTail,
        longest_pause_s: float,
    ) -> None:
        """Follow `leader`, from the present content of the tail.

        After errors pauses double up to `longest_pause_s`.
        """
        self.where = where
        self.topic = topic
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.held = held
        self.live = True
        self.paused_until = 0.0
        """Earliest time of the next fetch, on the loop's clock."""
        longest_s = max(longest_pause_s, SHORTEST_PAUSE_S)
        self._backoff = Backoff(min(FIRST_PAUSE_S, longest_s), longest_s)
        self._at: FetchPosition | None = None

    def fetch_at(self, max_bytes: int) -> FetchPosition:
        """Return the position of the next fetch: the same object while the position is the same."""
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
        """Return the offset at which the next fetch begins."""
        return self.held.tail.end_offset

    @property
    def last_fetched_epoch(self) -> int:
        """Return the epoch of the newest batch held; -1 when none is known."""
        return self.held.tail.latest_epoch

    def pause(self, now: float) -> None:
        """Pause after an error: shortly at first, because a new leader serves soon."""
        self.paused_until = now + self._backoff.next_s()

    def leader_responded(self) -> None:
        """Record that the leader serves: the next pause is short again."""
        self._backoff.reset()

    def append(self, batches: Iterable[CheckedBatch]) -> int:
        """Append what the leader sent; return its bytes.

        Raises:
            DataCorrupt: a batch does not continue the tail; fetch again.
        """
        size_bytes = 0
        for batch in batches:
            self.held.append_followed(batch)
            size_bytes += batch.header.size_bytes
        return size_bytes

    def flushed(self, end_offset: int) -> None:
        """Trim the tail to the leader's flushed end, or begin there if the tail ends below it."""
        tail = self.held.tail
        if end_offset > tail.end_offset:
            self.held.reset(end_offset)
        elif end_offset > tail.start_offset:
            self.held.trim(end_offset)

    def diverged(self, leader: EpochEnd) -> None:
        """Truncate the records in which this tail differs from the leader's log.

        `leader` is the newest epoch that the leader knows and that is not above ours, with its end
        offset. If this tail does not know that epoch, it is truncated to the end of an older one.
        The next fetch then compares again.
        """
        tail = self.held.tail
        ours = tail.end_of_epoch(leader.leader_epoch)
        end = leader.end_offset
        if ours.leader_epoch != NO_LEADER_EPOCH:
            end = min(end, ours.end_offset)
        if end < tail.start_offset:
            # No common record is known: begin at the leader's flushed end.
            self.held.reset(0)
        else:
            self.held.truncate(min(end, tail.end_offset))

    def out_of_range(self) -> None:
        """Drop the tail and begin anew: the leader has no record at the end of this tail."""
        self.held.reset(0)

    def retire(self) -> None:
        """Stop changing the tail."""
        self.live = False
