"""CoordinatorPartition: a led partition of an internal topic, with a coordinator's operations.

An object serves one leader epoch, like `LeaderPartition`; after the epoch its calls raise. Only the
coordinator appends to the partition. So the records that it read and those that it appended are all
records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.coordinator.effects import CoordinatorRecord, ProducerIdentity
from sparklog.core.errors import NotServing, OffsetOutOfRange, SparklogError
from sparklog.core.types import NO_PRODUCER_ID
from sparklog.log.manifest.refresh import refresh
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.log.tail.producer_state import Verification
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.encoder import SMALL_RECORDS_MAX, BatchSettings, encode, encode_small
from sparklog.protocol.records.header import NO_EPOCH, NO_SEQUENCE, parse_header


class LeaderListener(Protocol):
    """Gets the changes of leadership of an internal topic's partitions."""

    def on_elected(self, partition: int, log: CoordinatorPartition) -> None:
        """Handle that this broker leads the partition now."""
        ...

    def on_resigned(self, partition: int) -> None:
        """Handle that this broker no longer leads the partition."""
        ...


READ_BYTES: Final = 1 << 20
SEGMENTS_AHEAD: Final = 16
MEMORY_WAIT_S: Final = 5.0
"""Longest single wait of an append for memory; it waits again while the epoch lasts."""


class CoordinatorPartition:
    """See the module."""

    def __init__(
        self, led: LeaderPartition, environment: Environment, budget: MemoryBudget
    ) -> None:
        """Use `led`; its appends take their memory from `budget`."""
        self._led = led
        self._environment = environment
        self._budget = budget

    @property
    def leader_epoch(self) -> int:
        """Return the leader epoch of this object."""
        return self._led.leader_epoch

    @property
    def live(self) -> bool:
        """Return True while the epoch lasts."""
        return self._led.live

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that can be read."""
        return self._led.log_start_offset

    @property
    def end_offset(self) -> int:
        """Return the end of the log, committed or not."""
        return self._led.tail.end_offset

    @property
    def batch_bytes_max(self) -> int:
        """Return the topic's `max.message.bytes`."""
        return self._led.rules.batches.max_message_bytes

    def check_ready(self) -> None:
        """Raise if an append would be rejected now.

        Raises:
            NotServing: another broker leads the partition, or will in a moment.
            NotEnoughReplicas: too few brokers are in sync.
        """
        self._led.check_open()
        self._led.leadership.check_enough()

    def check_producer(self, producer: ProducerIdentity) -> None:
        """Raise if a newer producer has replaced this one.

        Raises:
            InvalidProducerEpoch: a newer producer has the id.
        """
        self._led.producers.check_epoch(*producer)

    def begin_verification(
        self, producer: ProducerIdentity, *, is_over: bool
    ) -> Verification | None:
        """Return a verification for the question whether a transaction has this partition.

        None: no question is needed. See `ProducerStates.begin_verification`.
        """
        now_ms = self._environment.clock.now_ms()
        return self._led.producers.begin_verification(
            *producer, NO_SEQUENCE, now_ms, is_over=is_over
        )

    def check_verified(self, producer: ProducerIdentity, verification: Verification | None) -> None:
        """Raise for a transaction's first records if its coordinator did not confirm them.

        Raises:
            InvalidTxnState: see `ProducerStates.check_verified`.
        """
        self._led.producers.check_verified(*producer, verification)

    def prepare_marker(
        self, producer: ProducerIdentity, marker: EndTransactionMarker, *, ends_older: bool
    ) -> None:
        """Check a marker before its append, and invalidate the producer's pending verification.

        Raises:
            InvalidProducerEpoch, TransactionCoordinatorFenced: see `ProducerStates.check_marker`.
        """
        producers = self._led.producers
        producers.check_marker(*producer, marker.coordinator_epoch, ends_older=ends_older)
        producers.end_verification(producer.producer_id)

    async def reserve_memory(self, size_bytes: int) -> None:
        """Reserve memory for an append; wait for it as long as the epoch lasts.

        Raises:
            NotServing: the epoch ended.
        """
        while not self._budget.try_take(size_bytes):
            self._led.check_open()
            try:
                await self._budget.take(size_bytes, MEMORY_WAIT_S)
            except SparklogError:
                continue
            return

    def release_memory(self, size_bytes: int) -> None:
        """Return the memory of a batch that is not appended after all."""
        self._budget.give_back(size_bytes)

    def append(self, batch: CheckedBatch, marker: EndTransactionMarker | None) -> int:
        """Append a batch or a marker whose memory is reserved; return its end offset.

        If it raises, nothing was appended, and the memory is returned.

        Raises:
            NotServing, NotEnoughReplicas: see `check_ready`.
            InvalidProducerEpoch: see `check_producer`.
            TransactionCoordinatorFenced: see `prepare_marker`.
        """
        now_ms = self._environment.clock.now_ms()
        try:
            self.check_ready()
            if marker is not None:
                return self._led.append_marker(batch, marker, now_ms, ends_older=False)
            return self._led.append_as_coordinator(batch, now_ms)
        except SparklogError:
            self.release_memory(len(batch.data))
            raise

    async def wait_committed(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until all below `end_offset` is committed; return False at the timeout.

        Raises:
            NotServing: the epoch ended; it is unknown if the records will be committed.
        """
        return await self._led.wait_until_committed(end_offset, timeout_s)

    async def read_ahead(self, offset: int) -> int:
        """Read the next segments concurrently; return the end offset of the last one.

        Internal topics have many small segments, and a loading coordinator reads all of them.
        """
        led = self._led
        entries = [e for e in led.view.entries if e.end_offset > offset][:SEGMENTS_AHEAD]
        run = self._environment.store.run
        loads = [run(led.history.load(led.view, max(e.base_offset, offset))) for e in entries]
        for outcome in await asyncio.gather(*loads, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, SparklogError):
                raise outcome
        # `read` reads a segment that failed here again, and raises its error.
        return entries[-1].end_offset if entries else self.end_offset

    async def read(self, offset: int, limit_offset: int) -> Sequence[bytes]:
        """Return committed batches from the one that holds `offset` on.

        No batch begins at `limit_offset` or later: the segments read ahead end there.

        Raises:
            NotServing: the epoch ended.
            OffsetOutOfRange: the offset was deleted meanwhile; begin again.
            Unavailable: the store does not respond.
            DataCorrupt: a segment is damaged.
        """
        led, run = self._led, self._environment.store.run
        if not led.live:
            raise NotServing(f"another broker leads the partition now. partition={led.where}")
        if offset >= led.tail.start_offset:
            return led.tail.read(offset, READ_BYTES, min(led.high_watermark, limit_offset))
        try:
            history = await run(led.history.read(led.view, offset, READ_BYTES, limit_offset))
        except OffsetOutOfRange:
            led.update_view(await run(refresh(led.view)))
            raise
        led.update_view(history.view)
        return history.batches


def records_batch(
    records: Sequence[CoordinatorRecord], timestamp_ms: int, producer: ProducerIdentity | None
) -> CheckedBatch:
    """Return a batch of these records; with a producer it belongs to its transaction."""
    if len(records) <= SMALL_RECORDS_MAX:
        small = encode_small(
            records,
            timestamp_ms,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_EPOCH if producer is None else producer.producer_epoch,
            is_transactional=producer is not None,
        )
        return CheckedBatch(parse_header(small), small)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([timestamp_ms] * len(records), pa.int64()).view(TIMESTAMP_TYPE),
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
        ],
        names=["timestamp", "key", "value"],
    )
    if producer is None:
        settings = BatchSettings()
    else:
        settings = BatchSettings(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=True,
        )
    data = encode(rows, settings, base_offset=0)
    return CheckedBatch(parse_header(data), data)


def marker_batch(
    producer: ProducerIdentity, marker: EndTransactionMarker, timestamp_ms: int
) -> CheckedBatch:
    """Return the batch that ends a producer's transaction."""
    data = encode_end_transaction(
        marker,
        base_offset=0,
        timestamp_ms=timestamp_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        leader_epoch=NO_EPOCH,
    )
    return CheckedBatch(parse_header(data), data)
