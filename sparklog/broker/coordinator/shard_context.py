"""ShardContext: a led partition of an internal topic, with its shard and its uncommitted effects.

Effects and markers gather in the order in which the shard applied them. An append takes all that
have gathered, as one batch if possible. Records of a transaction have batches of their own, because
the batch header names the producer. A batch stays below the topic's `max.message.bytes`.
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
"""First and longest pause before a log is read again; each is twice as long as the one before."""


class QueuedMarker(NamedTuple):
    """A transaction marker to append."""

    producer: ProducerIdentity
    marker: EndTransactionMarker
    token: Token


@dataclass(slots=True)
class PendingBatch:
    """A batch to append, with the replies and errands that follow its commit."""

    data: CheckedBatch | None
    """None: nothing to append; the replies keep their place behind earlier batches."""
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
        """Serve a partition from `log` once it is replayed; `expire` is called at deadlines."""
        self.partition = partition
        self.log = log
        self.shard: S | None = None
        """None while its log is being replayed."""
        self.retired = False
        self.gathered: deque[CoordinatorResult | QueuedMarker] = deque()
        self.waiting: dict[Token, asyncio.Future[object]] = {}
        self.appending = False
        self.timer = DeadlineTimer(partial(expire, self))
        self.served_s = 0.0
        """Time at which the shard was loaded, on the loop's clock."""
        self._backoff = Backoff(RELOAD_FIRST_S, RELOAD_LONGEST_S)

    def reply(self, replies: Iterable[tuple[Token, object]]) -> None:
        """Send replies to the callers that still wait."""
        for token, reply in replies:
            future = self.waiting.get(token)
            if future is None or future.done():
                continue
            if isinstance(reply, BaseException):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    def drop(self, why: SparklogError) -> None:
        """Drop the shard, and fail all waiting callers with `why`."""
        self.shard = None
        self.gathered.clear()
        self.timer.cancel()
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(type(why)(*why.args))

    def pause_after_failure(self, now_s: float) -> float:
        """Return the pause in seconds before a shard that its own event broke is loaded again.

        If a shard breaks soon after loading, the cause may be in its log. Then the next shard will
        break as well, so the pauses grow.
        """
        if now_s - self.served_s > RELOAD_LONGEST_S:
            self._backoff.reset()
        return self._backoff.next_s()

    def newest_epoch(self, producer_id: int) -> int:
        """Return the newest epoch of a producer in the gathered effects; -1 if there is none."""
        newest = -1
        for entry in self.gathered:
            other = entry.producer if isinstance(entry, QueuedMarker) else entry.transactional
            if other is not None and other.producer_id == producer_id:
                newest = max(newest, other.producer_epoch)
        return newest

    def has_marker(self, producer_id: int) -> bool:
        """Return True if a marker of the producer waits for an append."""
        return any(
            isinstance(entry, QueuedMarker) and entry.producer.producer_id == producer_id
            for entry in self.gathered
        )

    def take_gathered(self, timestamp_ms: int) -> list[PendingBatch]:
        """Remove all gathered effects and return them as batches."""
        gathering = _RecordBatcher(timestamp_ms, self.log.batch_bytes_max)
        while self.gathered:
            gathering.add(self.gathered.popleft())
        gathering.close()
        return gathering.batches


class _RecordBatcher:
    """Builds batches of effects and markers, in their order."""

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
        """Finish the batch under construction, if there is one."""
        if self._records or self._replies or self._errands:
            data = None
            if self._records:
                data = records_batch(self._records, self._timestamp_ms, self._producer)
            self.batches.append(PendingBatch(data, None, self._replies, self._errands))
        self._records, self._replies, self._errands, self._size_bytes = [], [], [], 0
