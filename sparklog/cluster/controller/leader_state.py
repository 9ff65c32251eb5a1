"""Leadership: a leader's view of its followers, of the ISR and of the high watermark.

Pure: the caller passes events with the time, and gets the consequences in order. The caller then
applies them: it wakes requests that wait for the high watermark, and appends ISR changes to the
metadata log. One object serves one leader epoch; offsets are log end offsets (exclusive).

LEADER-STATE-1: The high watermark never moves back.
LEADER-STATE-2: A broker counts as in sync from the proposal that adds it until the commit that
    removes it (the maximal ISR). So every ISR that the metadata log may hold has all committed
    records.
LEADER-STATE-3: With `sparklog.commit=storage` a record is committed only if the WAL holds it. With
    `memory` the same holds, unless the ISR surely has two brokers or more.
LEADER-STATE-4: One ISR change at a time, until its outcome is known.
LEADER-STATE-5: The leader does not remove the last other replica for lag while only its own
    memory, not storage, holds committed records.
LEADER-STATE-6: acks=1 succeeds below `copied_end`: the WAL, or a broker surely in sync, holds the
    record beside the leader. So the crash of one process loses no acknowledged record.

Storage is a replica that is always in sync: every broker can read the records below the flushed
end.
Source: DESIGN.md 4; Kafka's Partition and Replica; KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sparklog.core.config.topic import TopicConfig
from sparklog.core.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend

UNKNOWN_OFFSET = -1
"""Log end of a follower that has not fetched from this leader yet."""
NEVER_MS = -1


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """Records below `offset` are committed: complete requests, flush, notify followers."""

    offset: int


@dataclass(frozen=True, slots=True)
class ExpandIsr:
    """Propose to add `broker_id` to the ISR, unless it was fenced or restarted since its fetch.

    Only the process that fetched may join: a restarted broker has nothing in memory.
    """

    broker_id: int


@dataclass(frozen=True, slots=True)
class ShrinkIsr:
    """Propose to remove `broker_ids` from the ISR."""

    broker_ids: frozenset[int]


IsrChange = ExpandIsr | ShrinkIsr
Event = HighWatermark | ExpandIsr | ShrinkIsr


@dataclass(frozen=True, slots=True)
class CommitRules:
    """Settings of a topic that decide when records are committed, and when acks=all succeeds."""

    waits_for_storage: bool = True
    """True for `sparklog.commit=storage`, False for `memory`."""
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000

    @classmethod
    def of(cls, config: TopicConfig, replica_lag_time_max_ms: int) -> CommitRules:
        """Return the rules from a topic's settings and the broker's replica lag time."""
        return cls(
            waits_for_storage=config.text("sparklog.commit") == "storage",
            min_insync_replicas=config.whole("min.insync.replicas"),
            replica_lag_time_max_ms=replica_lag_time_max_ms,
        )


@dataclass(slots=True)
class FollowerState:
    """The leader's view of one follower."""

    log_end: int
    caught_up_ms: int
    """When it last had everything that the leader had at that time."""
    fetched_ms: int
    leader_end_when_fetched: int

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Record a fetch at `offset`: the follower has everything below.

        A follower may always be one round trip behind. It counts as caught up at its previous fetch
        if it now has the leader's log end of that time.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_when_fetched:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end = offset
        self.leader_end_when_fetched = leader_end
        self.fetched_ms = now_ms


class LeaderState:
    """One leader epoch of one partition; see the module. Not thread-safe."""

    def __init__(
        self,
        broker_id: int,
        start_offset: int,
        *,
        replicas: Collection[int],
        isr: Collection[int],
        joinable: Collection[int],
        rules: CommitRules,
        now_ms: int,
    ) -> None:
        """Begin to lead.

        Args:
            broker_id: the leader itself.
            start_offset: the log end. A new leader flushes first: storage has all records below.

            replicas: as in `metadata_changed`.
            isr: likewise.
            joinable: likewise.
            rules: commit settings.
            now_ms: the current time.
        """
        assert broker_id in isr, (broker_id, isr)
        self.broker_id = broker_id
        self.start_offset = start_offset
        self.log_end = start_offset
        self.durable_end = start_offset
        """End of the records that the WAL, or the partition's log on storage, holds."""
        self.flushed_end = start_offset
        self.high_watermark = start_offset
        self.copied_end = start_offset
        """End of the records that the WAL, or a broker surely in sync, held beside this leader
        (LEADER-STATE-6). It never moves back, and the high watermark is never beyond it.
        """
        self.isr = frozenset(isr)
        """The ISR that the metadata log has."""
        self.pending: IsrChange | None = None
        """Proposed, and not known to have failed."""
        self.rules = rules
        self._joinable: frozenset[int] = frozenset()
        self._followers: dict[int, FollowerState] = {}
        self._required: tuple[FollowerState, ...] = ()
        """Followers that every commit waits for: the maximal ISR."""
        self._copying: tuple[FollowerState, ...] = ()
        """Followers whose copy counts for acks=1: the minimal ISR."""
        self.metadata_changed(replicas=replicas, isr=isr, joinable=joinable, now_ms=now_ms)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Return every broker that the ISR in the metadata log may hold now."""
        if isinstance(self.pending, ExpandIsr):
            return self.isr | {self.pending.broker_id}
        return self.isr

    @property
    def minimal_isr(self) -> frozenset[int]:
        """Return the brokers, this one too, that the ISR in the metadata log surely holds now."""
        if isinstance(self.pending, ShrinkIsr):
            return self.isr - self.pending.broker_ids
        return self.isr

    @property
    def needs_wal(self) -> bool:
        """Return True if a record is committed only after the WAL holds it."""
        return self.rules.waits_for_storage or len(self.minimal_isr) < 2

    def follower(self, broker_id: int) -> FollowerState | None:
        """Return the state of a follower, None for a broker that is not a replica."""
        return self._followers.get(broker_id)

    def appended(self, log_end: int) -> None:
        """Record the new log end. This alone commits nothing."""
        assert log_end >= self.log_end, (log_end, self.log_end)
        self.log_end = log_end

    def durable(self, end_offset: int) -> tuple[Event, ...]:
        """Record that the WAL acknowledged everything below `end_offset`."""
        assert end_offset <= self.log_end, (end_offset, self.log_end)
        self.durable_end = max(self.durable_end, end_offset)
        return self._advance()

    def flushed(self, end_offset: int) -> None:
        """Record that the partition's log on storage has everything below `end_offset`."""
        assert end_offset <= self.high_watermark, (end_offset, self.high_watermark)
        self.flushed_end = max(self.flushed_end, end_offset)
        self.durable_end = max(self.durable_end, end_offset)

    def follower_fetched(self, broker_id: int, offset: int, now_ms: int) -> tuple[Event, ...]:
        """Record that a follower fetches at `offset`: it has everything below.

        Call it only if the epochs agree, and the follower need not truncate or start at the flushed
        end. It ignores a broker that is not a replica, and an offset beyond the log end.

        A member of the ISR whose log ends below the high watermark has lost its memory. The leader
        removes it at once: if it were elected, it would miss committed records.
        """
        follower = self._followers.get(broker_id)
        if follower is None or offset > self.log_end:
            return ()
        follower.fetched(offset, self.log_end, now_ms)
        if broker_id in self.maximal_isr:
            if offset < self.high_watermark and offset < self.flushed_end:
                return ()  # it continues at the flushed end: storage has the rest
            if offset < self.high_watermark and broker_id in self.isr:
                return self._propose(ShrinkIsr(frozenset({broker_id})))
            return self._advance()
        if self._may_join(broker_id, follower):
            return self._propose(ExpandIsr(broker_id))
        return ()

    def follower_waits(self, broker_id: int, offset: int, now_ms: int) -> bool:
        """Record a repeated fetch without news; return False if the fetch is something else.

        True means that the follower is in sync and complete, as before, and everything is
        committed. So no event results. `follower_fetched` describes the rest.
        """
        follower = self._followers.get(broker_id)
        if follower is None or broker_id not in self.isr:
            return False
        if not follower.log_end == offset == self.log_end == self.high_watermark:
            return False
        follower.fetched(offset, offset, now_ms)
        return True

    def tick(self, now_ms: int) -> tuple[Event, ...]:
        """Propose to remove followers that were not caught up for `replica.lag.time.max.ms`.

        Call it at least every half of that time, and again after a proposal failed.
        """
        oldest_ms = now_ms - self.rules.replica_lag_time_max_ms
        behind = frozenset(
            broker_id
            for broker_id in self.isr - {self.broker_id}
            if self._is_behind(self._followers.get(broker_id), oldest_ms)
        )
        if not behind or self._would_strand(self.isr - behind):
            return ()
        return self._propose(ShrinkIsr(behind))

    def metadata_changed(
        self,
        *,
        replicas: Collection[int],
        isr: Collection[int],
        joinable: Collection[int],
        now_ms: int,
    ) -> tuple[Event, ...]:
        """Apply the partition's state in the metadata log.

        A pending change stays pending until the ISR shows it, or until `isr_refused`.

        Args:
            replicas: the assigned brokers.
            isr: the committed ISR with this leader.
            joinable: brokers neither fenced nor shutting down.

            now_ms: when new members of the ISR count as caught up.
        """
        assert self.broker_id in isr, (self.broker_id, isr)
        self.isr = frozenset(isr)
        self._joinable = frozenset(joinable)
        match self.pending:
            case ExpandIsr(broker_id) if broker_id in self.isr:
                self.pending = None
            case ShrinkIsr(broker_ids) if not broker_ids & self.isr:
                self.pending = None
            case _:
                pass
        wanted = (frozenset(replicas) | self.maximal_isr) - {self.broker_id}
        for broker_id in self._followers.keys() - wanted:
            del self._followers[broker_id]
        for broker_id in wanted - self._followers.keys():
            caught_up_ms = now_ms if broker_id in self.isr else NEVER_MS
            self._followers[broker_id] = FollowerState(
                UNKNOWN_OFFSET, caught_up_ms, NEVER_MS, self.log_end
            )
        return self._required_changed()

    def isr_refused(self) -> tuple[Event, ...]:
        """Drop the pending change, which was not and will not be committed.

        If the outcome of the append is unknown, read the metadata log first. Call this when the log
        has continued without the change.
        """
        self.pending = None
        return self._required_changed()

    def forget(self, broker_id: int) -> None:
        """Record that a follower restarted with nothing in memory."""
        follower = self._followers.get(broker_id)
        if follower is not None:
            follower.log_end = UNKNOWN_OFFSET

    def rules_changed(self, rules: CommitRules) -> tuple[Event, ...]:
        """Apply changed settings. Committed records stay committed."""
        self.rules = rules
        return self._advance()

    def check_enough(self) -> None:
        """Check before an append with acks=all that enough brokers are in sync.

        Raises:
            NotEnoughReplicas: the append is rejected.
        """
        if len(self.isr) < self.min_isr:
            raise NotEnoughReplicas(
                "fewer brokers are in sync than min.insync.replicas, so nothing was appended; try "
                f"again when brokers are back. isr={sorted(self.isr)} "
                f"min.insync.replicas={self.rules.min_insync_replicas}"
            )

    def late_error(self) -> NotEnoughReplicasAfterAppend | None:
        """Return the error of committed appends with acks=all, if too few brokers are in sync."""
        if len(self.maximal_isr) >= self.min_isr:
            return None
        return NotEnoughReplicasAfterAppend(
            "appended and on storage, but fewer brokers are in sync than min.insync.replicas; "
            f"it may be sent again. isr={sorted(self.isr)} "
            f"min.insync.replicas={self.rules.min_insync_replicas}"
        )

    @property
    def min_isr(self) -> int:
        """Return `min.insync.replicas`, capped at the number of brokers (as Kafka since 4.0)."""
        return min(self.rules.min_insync_replicas, len(self._followers) + 1)

    def _required_changed(self) -> tuple[Event, ...]:
        self._required = tuple(self._followers[b] for b in self.maximal_isr - {self.broker_id})
        self._copying = tuple(self._followers[b] for b in self.minimal_isr - {self.broker_id})
        return self._advance()

    def _advance(self) -> tuple[Event, ...]:
        """Move the high watermark (LEADER-STATE-2, -3) and the copied end (LEADER-STATE-6)."""
        copied = self.durable_end
        for follower in self._copying:
            copied = max(copied, follower.log_end)
        self.copied_end = max(self.copied_end, copied)
        committed = self.durable_end if self.needs_wal else self.log_end
        for follower in self._required:
            committed = min(committed, follower.log_end)
        if committed <= self.high_watermark:
            return ()
        self.high_watermark = committed
        return (HighWatermark(committed),)

    def _may_join(self, broker_id: int, follower: FollowerState) -> bool:
        has_all = follower.log_end >= max(self.high_watermark, self.start_offset)
        return has_all and broker_id in self._joinable

    def _would_strand(self, isr: frozenset[int]) -> bool:
        """Return True if, with this ISR, only the leader's memory would hold committed records."""
        return len(isr) < 2 and self.durable_end < self.high_watermark

    def _is_behind(self, follower: FollowerState | None, oldest_ms: int) -> bool:
        if follower is None:
            return True
        return follower.log_end != self.log_end and follower.caught_up_ms < oldest_ms

    def _propose(self, change: IsrChange) -> tuple[Event, ...]:
        if self.pending is not None:
            return ()
        self.pending = change
        return (change, *self._required_changed())
