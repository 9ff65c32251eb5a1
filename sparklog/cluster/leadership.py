"""A leader's view of one partition: what its followers have, who is in sync, what is committed.

Pure: told what happened, with the time, it returns what follows from it, in order. The shell does
it: it wakes whoever waits for the high watermark, and appends ISR changes to the metadata log. One
object serves one leader epoch; offsets are log end offsets (exclusive).

  L1  the high watermark never moves back
  L2  a broker counts as in sync from the moment its joining is proposed until its leaving is
      committed (the maximal ISR), so every ISR the metadata log may hold has what is committed
  L3  under `sparklog.commit=storage` nothing is committed that the WAL does not hold; under
      `memory` the same, unless the ISR surely has two brokers or more
  L4  one ISR change at a time, until it is known what became of it
  L5  the leader does not ask the last other broker out for being slow while it alone, not storage,
      would hold what is committed
  L6  acks=1 succeeds for what the WAL or a broker that is surely in sync holds besides the leader
      (`copied_end`): the end of one process loses nothing that no other place had

Storage is a replica that is always in sync: what lies below the flushed end is everywhere.
Source: DESIGN.md 4; Kafka's Partition and Replica; KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sparklog.core.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend
from sparklog.core.settings import TopicConfig

UNKNOWN_OFFSET = -1
"""Log end of a follower that did not fetch from this leader yet."""
NEVER_MS = -1


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """Records below `offset` are committed: answer who waits, flush, tell followers."""

    offset: int


@dataclass(frozen=True, slots=True)
class ExpandIsr:
    """Propose that `broker_id` joins the ISR, unless it was fenced or began anew since it fetched.

    What counts is the process that fetched: a restarted broker has nothing in memory.
    """

    broker_id: int


@dataclass(frozen=True, slots=True)
class ShrinkIsr:
    """Propose that `broker_ids` leave the ISR."""

    broker_ids: frozenset[int]


IsrChange = ExpandIsr | ShrinkIsr
Event = HighWatermark | ExpandIsr | ShrinkIsr


@dataclass(frozen=True, slots=True)
class CommitRules:
    """When records of a topic are committed, and when acks=all succeeds."""

    waits_for_storage: bool = True
    """`sparklog.commit` is `storage`, not `memory`."""
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000

    @classmethod
    def of(cls, config: TopicConfig, replica_lag_time_max_ms: int) -> CommitRules:
        """Return the rules that a topic's settings, and one of the broker's, make."""
        return cls(
            waits_for_storage=config.text("sparklog.commit") == "storage",
            min_insync_replicas=config.whole("min.insync.replicas"),
            replica_lag_time_max_ms=replica_lag_time_max_ms,
        )


@dataclass(slots=True)
class Follower:
    """What the leader knows of one follower."""

    log_end: int
    caught_up_ms: int
    """When it last had everything the leader had at that time."""
    fetched_ms: int
    leader_end_when_fetched: int

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Note a fetch at `offset`: it has what lies below.

        A follower that is always a round trip behind is caught up as of its fetch before, when it
        has now what the leader had then.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_when_fetched:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end = offset
        self.leader_end_when_fetched = leader_end
        self.fetched_ms = now_ms


class Leadership:
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
            start_offset: the end of the log, all of it on storage: whoever takes over flushes
                first. So this epoch begins here, and everything below is committed.
            replicas: see `metadata_changed`, as the three below.
            isr: the committed ISR.
            joinable: the brokers that may join it.
            rules: when records are committed.
            now_ms: the time.
        """
        assert broker_id in isr, (broker_id, isr)
        self.broker_id = broker_id
        self.start_offset = start_offset
        self.log_end = start_offset
        self.durable_end = start_offset
        """What the WAL, or the partition's log on storage, holds."""
        self.flushed_end = start_offset
        self.high_watermark = start_offset
        self.copied_end = start_offset
        """What the WAL, or a broker that is surely in sync, held besides this leader (L6). It never
        moves back, and the high watermark is never beyond it."""
        self.isr = frozenset(isr)
        """As committed in the metadata log."""
        self.pending: IsrChange | None = None
        """Proposed, and not known to have failed."""
        self.rules = rules
        self._joinable: frozenset[int] = frozenset()
        self._followers: dict[int, Follower] = {}
        self._required: tuple[Follower, ...] = ()
        """Followers that every commit waits for: the maximal ISR."""
        self._copying: tuple[Follower, ...] = ()
        """Followers whose copy counts for acks=1: the minimal ISR."""
        self.metadata_changed(replicas=replicas, isr=isr, joinable=joinable, now_ms=now_ms)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Return every broker that an ISR in the metadata log may hold now."""
        if isinstance(self.pending, ExpandIsr):
            return self.isr | {self.pending.broker_id}
        return self.isr

    @property
    def minimal_isr(self) -> frozenset[int]:
        """Return the brokers that every ISR in the metadata log holds now, this leader included."""
        if isinstance(self.pending, ShrinkIsr):
            return self.isr - self.pending.broker_ids
        return self.isr

    @property
    def needs_wal(self) -> bool:
        """Tell whether nothing is committed before the WAL holds it."""
        return self.rules.waits_for_storage or len(self.minimal_isr) < 2

    def follower(self, broker_id: int) -> Follower | None:
        """Return what is known of a follower, None for a broker that is no replica."""
        return self._followers.get(broker_id)

    def appended(self, log_end: int) -> None:
        """Note the new end of the log. Nothing is committed by that alone."""
        assert log_end >= self.log_end, (log_end, self.log_end)
        self.log_end = log_end

    def durable(self, end_offset: int) -> tuple[Event, ...]:
        """Note that the WAL acknowledged everything below `end_offset`."""
        assert end_offset <= self.log_end, (end_offset, self.log_end)
        self.durable_end = max(self.durable_end, end_offset)
        return self._advance()

    def flushed(self, end_offset: int) -> None:
        """Note that the partition's log on storage has everything below `end_offset`."""
        assert end_offset <= self.high_watermark, (end_offset, self.high_watermark)
        self.flushed_end = max(self.flushed_end, end_offset)
        self.durable_end = max(self.durable_end, end_offset)

    def follower_fetched(self, broker_id: int, offset: int, now_ms: int) -> tuple[Event, ...]:
        """Note that a follower fetches at `offset`: it has everything below.

        Call it only when epochs were compared and agree, and the follower was not sent elsewhere
        (truncate, or start at the flushed end). A broker that is no replica, and an offset this
        leader never gave out, are ignored.

        A member of the ISR whose log ends below the high watermark has lost its memory: it is asked
        out at once, as a leader elected from it would miss what was committed.
        """
        follower = self._followers.get(broker_id)
        if follower is None or offset > self.log_end:
            return ()
        follower.fetched(offset, self.log_end, now_ms)
        if broker_id in self.maximal_isr:
            if offset < self.high_watermark and offset < self.flushed_end:
                return ()  # it goes on at the flushed end, where storage has the rest
            if offset < self.high_watermark and broker_id in self.isr:
                return self._propose(ShrinkIsr(frozenset({broker_id})))
            return self._advance()
        if self._may_join(broker_id, follower):
            return self._propose(ExpandIsr(broker_id))
        return ()

    def follower_waits(self, broker_id: int, offset: int, now_ms: int) -> bool:
        """Note that a follower fetches again with nothing new to be had; False if it is not so.

        Then, and only then, nothing can follow from it: it is in sync and has everything, as it had
        before, and everything is committed. See `follower_fetched` for the rest.
        """
        follower = self._followers.get(broker_id)
        if follower is None or broker_id not in self.isr:
            return False
        if not follower.log_end == offset == self.log_end == self.high_watermark:
            return False
        follower.fetched(offset, offset, now_ms)
        return True

    def tick(self, now_ms: int) -> tuple[Event, ...]:
        """Ask out followers that were not caught up for `replica.lag.time.max.ms`.

        Call it at least every half of that time, and again when a proposal failed.
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
        """Take in the partition as the metadata log has it, whoever changed it.

        A pending change stays pending until the ISR shows it, or `isr_refused`.

        Args:
            replicas: the brokers assigned.
            isr: the committed ISR, this leader included.
            joinable: the brokers that may join the ISR: neither fenced nor shutting down.
            now_ms: new members of the ISR count as caught up at this time.
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
            self._followers[broker_id] = Follower(
                UNKNOWN_OFFSET, caught_up_ms, NEVER_MS, self.log_end
            )
        return self._required_changed()

    def isr_refused(self) -> tuple[Event, ...]:
        """Drop the pending change: it is known that it was not, and will not be, committed.

        When that is not known (an append whose outcome is unknown), do not call this: read the
        metadata log, and call it when the log went on without the change.
        """
        self.pending = None
        return self._required_changed()

    def forget(self, broker_id: int) -> None:
        """Note that a follower began anew, with nothing in memory."""
        follower = self._followers.get(broker_id)
        if follower is not None:
            follower.log_end = UNKNOWN_OFFSET

    def rules_changed(self, rules: CommitRules) -> tuple[Event, ...]:
        """Take in changed settings. What was committed stays committed."""
        self.rules = rules
        return self._advance()

    def check_enough(self) -> None:
        """Check before an append with acks=all that enough brokers are in sync.

        Raises:
            NotEnoughReplicas: nothing may be appended.
        """
        if len(self.isr) < self.min_isr:
            raise NotEnoughReplicas(
                "fewer brokers are in sync than min.insync.replicas, so nothing was appended; try "
                f"again when brokers are back. isr={sorted(self.isr)} "
                f"min.insync.replicas={self.rules.min_insync_replicas}"
            )

    def is_committed(self, end_offset: int) -> bool:
        """Tell whether an append with acks=all that ended at `end_offset` succeeded.

        Raises:
            NotEnoughReplicasAfterAppend: committed, but too few brokers are in sync by now.
        """
        if self.high_watermark < end_offset:
            return False
        if len(self.maximal_isr) < self.min_isr:
            raise NotEnoughReplicasAfterAppend(
                "appended and on storage, but fewer brokers are in sync than min.insync.replicas; "
                f"it may be sent again. isr={sorted(self.isr)} "
                f"min.insync.replicas={self.rules.min_insync_replicas}"
            )
        return True

    @property
    def min_isr(self) -> int:
        """Return `min.insync.replicas`, at most the brokers there are (as Kafka since 4.0)."""
        return min(self.rules.min_insync_replicas, len(self._followers) + 1)

    def _required_changed(self) -> tuple[Event, ...]:
        self._required = tuple(self._followers[b] for b in self.maximal_isr - {self.broker_id})
        self._copying = tuple(self._followers[b] for b in self.minimal_isr - {self.broker_id})
        return self._advance()

    def _advance(self) -> tuple[Event, ...]:
        """Move the high watermark as far as L2 and L3 allow, and the copied end by L6."""
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

    def _may_join(self, broker_id: int, follower: Follower) -> bool:
        has_all = follower.log_end >= max(self.high_watermark, self.start_offset)
        return has_all and broker_id in self._joinable

    def _would_strand(self, isr: frozenset[int]) -> bool:
        """Tell whether the leader alone would hold something committed, if `isr` were the ISR."""
        return len(isr) < 2 and self.durable_end < self.high_watermark

    def _is_behind(self, follower: Follower | None, oldest_ms: int) -> bool:
        if follower is None:
            return True
        return follower.log_end != self.log_end and follower.caught_up_ms < oldest_ms

    def _propose(self, change: IsrChange) -> tuple[Event, ...]:
        if self.pending is not None:
            return ()
        self.pending = change
        return (change, *self._required_changed())
