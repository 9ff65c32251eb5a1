"""Reads for a fetch in the tails of partitions, and the results it returns, without waiting.

Rules FETCH-1, FETCH-2 and FETCH-4 are kept here.
Source: Kafka's ReplicaManager; KIP-74 on sizes, KIP-320 on epochs, KIP-595.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparklog.broker.fetch.watch import FetchSubscription
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.core.errors import Fenced, OffsetOutOfRange, SparklogError, UnknownLeaderEpoch
from sparklog.core.types import PartitionId
from sparklog.log.partition.read_committed import met
from sparklog.log.tail.tail import NO_OFFSET, EpochEnd

CONSUMER = -1
READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FetchSpec:
    """One fetch request."""

    replica_id: int
    """The follower's broker id, CONSUMER for consumers."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    """READ_COMMITTED or 0."""
    partitions: Mapping[PartitionId, FetchPosition]
    replica_epoch: int = -1
    """The follower's broker epoch."""
    known: Mapping[PartitionId, FetchedPartition] = field(default_factory=dict)
    """The last answers about partitions that had no records for the client; see `session`."""
    watch: FetchSubscription | None = None
    """Gets the news of a follower's partitions; those that rest there are asked for, too."""

    @property
    def is_consumer(self) -> bool:
        """Say whether it is a client's, not a follower's."""
        return self.replica_id < 0


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer of one partition."""

    batches: Sequence[bytes]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    """To a follower: the leader's flushed end, below which it keeps nothing."""
    diverging: EpochEnd | None = None
    """To a follower whose log differs: where it still agreed."""
    aborted: tuple[tuple[int, int], ...] | None = None
    """Producer ids and first offsets of aborted transactions; None if the client did not ask."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its batches."""
        return sum(map(len, self.batches))

    def is_of(self, led: LeaderPartition) -> bool:
        """Return True if a follower without news would get the same answer of a partition now."""
        same = self.high_watermark == led.high_watermark
        return same and self.log_start_offset == led.flushed_end


FetchResult = FetchedPartition | SparklogError
Leaders = Callable[[PartitionId], LeaderPartition]
"""Returns a led partition, or raises why it is none."""


class FetchRead:
    """One fetch while it is answered."""

    def __init__(self, spec: FetchSpec, leaders: Leaders) -> None:
        """Answer `spec`; nothing is read before `look`."""
        self.spec = spec
        self.results: dict[PartitionId, FetchResult] = {}
        self.led: dict[PartitionId, LeaderPartition] = {}
        self.historic: dict[PartitionId, LeaderPartition] = {}
        """Partitions that are read below the tail."""
        self.size_bytes = 0
        """Of all batches read so far."""
        self._leaders = leaders
        self._urgent = False
        """There is something to say besides records."""

    def take(self, where: PartitionId, result: FetchResult) -> None:
        """Note what a partition has to say."""
        self.results[where] = result
        if isinstance(result, FetchedPartition) and result.batches:
            self.size_bytes += result.size_bytes

    @property
    def is_enough(self) -> bool:
        """Say whether there is no reason to wait."""
        spec = self.spec
        if self._urgent or self.size_bytes >= spec.min_bytes:
            return True
        return not spec.partitions and (spec.watch is None or not spec.watch.resting)

    def look(self, partitions: Collection[PartitionId], now_ms: int | None = None) -> None:
        """Read these partitions' tails; with a time given, take note of a follower's offsets."""
        if self.results:
            for where in partitions:
                self._drop(where)
        for where in partitions:
            at = self._place(where)
            if at is None:
                continue  # a later request of the session asks for it
            left = self.spec.max_bytes - self.size_bytes
            try:
                result = self._look_at(where, at, left, now_ms)
            except SparklogError as error:
                self.results[where] = error
                self._urgent = True
                continue
            if result is not None:
                self.take(where, result)

    def beyond_end(self) -> dict[PartitionId, LeaderPartition]:
        """Return the partitions that end before what is asked for."""
        return {
            where: led
            for where, led in self.led.items()
            if isinstance(self.results.get(where), OffsetOutOfRange)
            and self.spec.partitions[where].offset > led.tail.end_offset
        }

    def _drop(self, where: PartitionId) -> None:
        result = self.results.pop(where, None)
        if isinstance(result, FetchedPartition) and result.batches:
            self.size_bytes -= result.size_bytes

    def _place(self, where: PartitionId) -> FetchPosition | None:
        """Return where a partition is read; it rests no more."""
        watch = self.spec.watch
        rested = None if watch is None else watch.rouse(where)
        return self.spec.partitions.get(where, rested)

    def _look_at(
        self, where: PartitionId, at: FetchPosition, left: int, now_ms: int | None
    ) -> FetchedPartition | None:
        led = self._leaders(where)
        check_epoch(led, at.current_leader_epoch)
        self.led[where] = led
        if self.spec.is_consumer:
            return self._for_consumer(led, at, left)
        return self._for_follower(led, at, left, now_ms)

    def _for_consumer(
        self, led: LeaderPartition, at: FetchPosition, left: int
    ) -> FetchedPartition | None:
        if not led.log_start_offset <= at.offset <= led.tail.end_offset:
            raise out_of_range(led, at.offset)
        if at.offset < led.tail.start_offset:
            self.historic[led.where] = led
            return None
        limit = _tail_limit(led, self.spec)
        batches = self._read(led, at, left, limit)
        end = led.tail.end_offset if not batches else limit
        return answer_of(led, self.spec, batches, at.offset, end)

    def _for_follower(
        self, led: LeaderPartition, at: FetchPosition, left: int, now_ms: int | None
    ) -> FetchedPartition:
        diverging = _divergence(led, at)
        if diverging is not None or at.offset < led.tail.start_offset:
            self._urgent = True
            return replace(answer_of(led, self.spec, (), at.offset, at.offset), diverging=diverging)
        if at.offset > led.tail.end_offset:
            raise out_of_range(led, at.offset)
        if now_ms is not None:
            who = self.spec.replica_id, self.spec.replica_epoch
            if led.follower_waits(*who, at.offset, now_ms):
                known = self.spec.known.get(led.where)
                if known is not None and known.is_of(led):
                    if self.spec.watch is not None:
                        self.spec.watch.rest(led.follower_fetches, at)
                    return known
            else:
                led.follower_fetched(*who, at.offset, now_ms)
        batches = self._read(led, at, left, led.fetchable_end)
        return answer_of(led, self.spec, batches, at.offset, at.offset)

    def _read(
        self, led: LeaderPartition, at: FetchPosition, left: int, limit: int
    ) -> Sequence[bytes]:
        first = left == self.spec.max_bytes
        if left <= 0 and not first:
            return ()
        return led.tail.read(at.offset, min(at.max_bytes, left), limit, at_least_one=first)


def check_epoch(led: LeaderPartition, current_leader_epoch: int) -> None:
    """Refuse who knows another leader epoch; -1 knows none.

    Raises:
        Fenced: an older one (Kafka's FENCED_LEADER_EPOCH). UnknownLeaderEpoch: a newer one.
    """
    if current_leader_epoch < 0 or current_leader_epoch == led.leader_epoch:
        return
    facts = (
        f"partition={led.layout.topic}-{led.layout.partition} "
        f"leader_epoch={current_leader_epoch} current={led.leader_epoch}"
    )
    if current_leader_epoch < led.leader_epoch:
        raise Fenced(f"the partition has a later leader epoch; refresh metadata. {facts}")
    raise UnknownLeaderEpoch(f"this broker does not know that leader epoch yet; try again. {facts}")


def _divergence(led: LeaderPartition, at: FetchPosition) -> EpochEnd | None:
    """Return where a follower's log and this one still agree, when they differ before its end."""
    if at.last_fetched_epoch < 0 or at.offset < led.tail.start_offset:
        return None
    if at.last_fetched_epoch == led.tail.latest_epoch and at.offset <= led.tail.end_offset:
        return None  # as it is nearly always
    end = led.tail.end_of_epoch(at.last_fetched_epoch)
    if end.end_offset == NO_OFFSET:
        raise UnknownLeaderEpoch(
            "the follower has records of a leader epoch that this leader does not know. "
            f"partition={led.where} epoch={at.last_fetched_epoch} current={led.leader_epoch}"
        )
    agrees = end.leader_epoch == at.last_fetched_epoch and end.end_offset >= at.offset
    return None if agrees else end


def limit_of(led: LeaderPartition, spec: FetchSpec) -> int:
    """Return below which offset a consumer may read (FETCH-1)."""
    is_committed = spec.isolation == READ_COMMITTED
    return led.last_stable_offset if is_committed else led.high_watermark


def _tail_limit(led: LeaderPartition, spec: FetchSpec) -> int:
    """Return where the tail ends for a consumer: references are history (FETCH-4)."""
    limit, reference = limit_of(led, spec), led.tail.first_reference
    return limit if reference is None else min(limit, reference)


def answer_of(
    led: LeaderPartition, spec: FetchSpec, batches: Sequence[bytes], offset: int, end_offset: int
) -> FetchedPartition:
    """Return the answer for batches that were found in [offset, end_offset)."""
    aborted = None
    if spec.is_consumer and spec.isolation == READ_COMMITTED:
        found = led.producers.transactions.aborted_between(offset, end_offset)
        aborted = tuple((one.producer_id, one.first_offset) for one in met(found, batches))
    return FetchedPartition(
        batches,
        led.high_watermark,
        led.last_stable_offset,
        led.log_start_offset if spec.is_consumer else led.flushed_end,
        aborted=aborted,
    )


def out_of_range(led: LeaderPartition, offset: int) -> OffsetOutOfRange:
    """Return the error that sends a consumer to its reset policy."""
    return OffsetOutOfRange(
        "the offset is not in the log any more, or not yet; apply the reset policy. "
        f"partition={led.layout.topic}-{led.layout.partition} offset={offset} "
        f"log_start_offset={led.log_start_offset} log_end_offset={led.tail.end_offset}"
    )
