"""One partition of an internal topic while it is served here: its shard, and what waits for commit.

Effects and markers gather in the order in which the shard took them in; an append takes all that
have gathered, as one batch where it can: records of a transaction are in batches of their own, as
the header says whose they are, and a batch stays below the topic's `max.message.bytes`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from sparklog.broker.coordinator.partition_log import (
    CoordinatorPartition,
    marker_batch,
    records_batch,
)
from sparklog.broker.runtime.deadline_timer import DeadlineTimer
from sparklog.coordinator.effects import (
    CoordinatorRecord,
    CoordinatorResult,
    ProducerIdentity,
    Shard,
    Token,
    size_bytes,
)
from sparklog.core.backoff import Backoff
from sparklog.core.errors import SparklogError
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.protocol.records.control import EndTransactionMarker

S = TypeVar("S", bound=Shard)

RELOAD_FIRST_S: Final = 0.05
RELOAD_LONGEST_S: Final = 5.0
"""Pauses before a log is read again: each twice as long as the one before."""


class QueuedMarker(NamedTuple):
    """The end of a transaction, to be appended."""

    producer: ProducerIdentity
    marker: EndTransactionMarker
    token: Token


@dataclass(slots=True)
class PendingBatch:
    """What is appended at once, and who hears of it."""

    data: CheckedBatch | None
    """None: nothing, but its replies have their place behind the batches before."""
    marker: EndTransactionMarker | None
    replies: Sequence[tuple[Token, object]]
    errands: Sequence[object] = ()


class ShardContext(Generic[S]):
    """See the module."""

    def __init__(
        self,
        partition: int,
        log: CoordinatorPartition,
        expire: Callable[[ShardContext[S], float], None],
    ) -> None:
        """Serve a partition from `log`, once it was read; `expire` is called at deadlines."""
        self.partition = partition
        self.log = log
        self.shard: S | None = None
        """None while its log is replayed."""
        self.retired = False
        self.gathered: deque[CoordinatorResult | QueuedMarker] = deque()
        self.waiting: dict[Token, asyncio.Future[object]] = {}
        self.appending = False
        self.timer = DeadlineTimer(partial(expire, self))
        self.served_s = 0.0
        """Since when there is a shard, by the loop's clock."""
        self._backoff = Backoff(RELOAD_FIRST_S, RELOAD_LONGEST_S)

    def reply(self, replies: Iterable[tuple[Token, object]]) -> None:
        """Answer those who still wait."""
        for token, reply in replies:
            future = self.waiting.get(token)
            if future is None or future.done():
                continue
            if isinstance(reply, BaseException):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    def drop(self, why: SparklogError) -> None:
        """Throw the shard away, and tell all who wait why."""
        self.shard = None
        self.gathered.clear()
        self.timer.cancel()
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(type(why)(*why.args))

    def pause_after_break(self, now_s: float) -> float:
        """Return how long to wait before a shard that broke unasked is made again.

        What breaks one that was just made may be in its log, and breaks the next one as well.
        """
        if now_s - self.served_s > RELOAD_LONGEST_S:
            self._backoff.reset()
        return self._backoff.next_s()

    def newest_epoch(self, producer_id: int) -> int:
        """Return the newest epoch of a producer in what has gathered, -1 without any."""
        newest = -1
        for entry in self.gathered:
            other = entry.producer if isinstance(entry, QueuedMarker) else entry.transactional
            if other is not None and other.producer_id == producer_id:
                newest = max(newest, other.producer_epoch)
        return newest

    def has_marker(self, producer_id: int) -> bool:
        """Say whether a producer's marker has gathered."""
        return any(
            isinstance(entry, QueuedMarker) and entry.producer.producer_id == producer_id
            for entry in self.gathered
        )

    def take_gathered(self, timestamp_ms: int) -> list[PendingBatch]:
        """Take what has gathered, as the batches that it makes."""
        gathering = _RecordBatcher(timestamp_ms, self.log.batch_bytes_max)
        while self.gathered:
            gathering.add(self.gathered.popleft())
        gathering.close()
        return gathering.batches


class _RecordBatcher:
    """Effects on their way into batches."""

    def __init__(self, timestamp_ms: int, batch_bytes_max: int) -> None:
        self.batches: list[PendingBatch] = []
        self._timestamp_ms = timestamp_ms
        self._batch_bytes_max = batch_bytes_max
        self._records: list[CoordinatorRecord] = []
        self._replies: list[tuple[Token, object]] = []
        self._errands: list[object] = []
        self._producer: ProducerIdentity | None = None
        self._size_bytes = 0

    def add(self, entry: CoordinatorResult | QueuedMarker) -> None:
        if isinstance(entry, QueuedMarker):
            self.close()
            data = marker_batch(entry.producer, entry.marker, self._timestamp_ms)
            self.batches.append(PendingBatch(data, entry.marker, ((entry.token, None),)))
            return
        if entry.records:
            more_bytes = size_bytes(entry.records)
            is_full = self._size_bytes + more_bytes > self._batch_bytes_max
            if self._records and (is_full or entry.transactional != self._producer):
                self.close()
            self._producer = entry.transactional
            self._size_bytes += more_bytes
            self._records.extend(entry.records)
        if not entry.at_once:
            self._replies.extend(entry.replies)
        self._errands.extend(entry.errands)

    def close(self) -> None:
        """End the batch that is being gathered."""
        if self._records or self._replies or self._errands:
            data = None
            if self._records:
                data = records_batch(self._records, self._timestamp_ms, self._producer)
            self.batches.append(PendingBatch(data, None, self._replies, self._errands))
        self._records, self._replies, self._errands, self._size_bytes = [], [], [], 0
