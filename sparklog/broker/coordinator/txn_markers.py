"""TxnMarkers: appends transaction markers to the partitions that this broker leads.

It also begins the verification that must precede a transaction's first records.
  TXN-MARKERS-1: a marker is appended at once, between the batches of producers; the response
      follows its commit
  TXN-MARKERS-2: a transaction's first records are appended only if its coordinator has the
      partition in the transaction. The coordinator must have confirmed that after the last marker
      (KIP-890)

MarkerWriter: writes the markers of a request, from any coordinator. Markers for
`__consumer_offsets` go through the group coordinator. It applies the transaction's offsets at a
commit and drops them at an abort.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.broker.coordinator.partition_log import marker_batch
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.purgatory import DelayedProduce
from sparklog.broker.partition.recovering import RECOVERY_WAIT_MAX_S, Find, RecoveringPartition
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.internal_topics import GROUPS_TOPIC
from sparklog.coordinator.transaction.shard import WriteMarkers
from sparklog.coordinator.transaction.state import Partition
from sparklog.coordinator.transaction.transaction import EPOCH_BUMP_SINCE
from sparklog.core.errors import SparklogError, Unavailable, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.log.tail.producer_state import Verification
from sparklog.protocol.records.control import EndTransactionMarker
from sparklog.protocol.records.header import NO_SEQUENCE

NO_OFFSET: Final = -1


class PlacedMarker(NamedTuple):
    """The marker of one producer's transaction for one partition."""

    where: PartitionId
    producer: ProducerIdentity
    marker: EndTransactionMarker
    ends_older: bool
    """The epoch was raised for this marker; see `ProducerStates.check_marker`."""


class KnownProducer(NamedTuple):
    """The state of a producer in a partition. Source: DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    written_ms: int
    coordinator_epoch: int
    transaction_start: int
    """First offset of its open transaction, or NO_OFFSET."""


class TxnMarkers:
    """See the module."""

    def __init__(self, environment: Environment, find: Find, budget: MemoryBudget) -> None:
        """Append to the partitions that `find` returns, with memory from `budget`."""
        self._environment = environment
        self._find = find
        self._budget = budget

    async def append(
        self, markers: Sequence[PlacedMarker], timeout_s: float
    ) -> list[SparklogError | None]:
        """Append markers and wait until they are committed; return each one's error or None."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        results: list[SparklogError | None] = []
        ends: dict[PartitionId, tuple[LeaderPartition, int]] = {}
        for placed in markers:
            try:
                led = await self._leader(placed.where)
                ends[placed.where] = led, await self._append(led, placed, deadline)
                results.append(None)
            except SparklogError as error:
                results.append(error)
        request = DelayedProduce()
        for led, end_offset in ends.values():
            led.wait_committed(end_offset, request)
        if request.waiting:
            await request.wait(deadline - asyncio.get_running_loop().time())
        late = {where: _late(where) for where in request.waiting}
        for number, placed in enumerate(markers):
            if results[number] is None:
                results[number] = request.failed.get(placed.where) or late.get(placed.where)
        return results

    async def begin_verification(
        self, where: PartitionId, producer: ProducerIdentity, sequence: int
    ) -> tuple[int, Verification] | None:
        """Return the leader epoch and a verification; None if nothing needs verification.

        Raises:
            NotServing, UnknownTopicOrPartition: this broker does not lead the partition.
        """
        led = await self._leader(where)
        led.check_open()
        now_ms = self._environment.clock.now_ms()
        found = led.producers.begin_verification(*producer, sequence, now_ms)
        return None if found is None else (led.leader_epoch, found)

    async def producers(self, where: PartitionId) -> list[KnownProducer]:
        """Return the states of the producers in a partition that this broker leads.

        Raises:
            NotServing, UnknownTopicOrPartition: this broker does not lead it.
        """
        led = await self._leader(where)
        starts = dict(led.producers.transactions.open())
        return [
            KnownProducer(
                producer_id,
                known.epoch,
                NO_SEQUENCE if known.last_sequence is None else known.last_sequence,
                known.written_ms,
                known.coordinator_epoch,
                starts.get(producer_id, NO_OFFSET),
            )
            for producer_id, known in led.producers
        ]

    async def _append(self, led: LeaderPartition, placed: PlacedMarker, deadline: float) -> int:
        now_ms = self._environment.clock.now_ms()
        batch = marker_batch(placed.producer, placed.marker, now_ms)
        size_bytes = len(batch.data)
        if not self._budget.try_take(size_bytes):
            left_s = deadline - asyncio.get_running_loop().time()
            await self._budget.take(size_bytes, max(0.0, left_s))
        try:
            led.leadership.check_enough()
            return led.append_marker(batch, placed.marker, now_ms, ends_older=placed.ends_older)
        except SparklogError:
            self._budget.give_back(size_bytes)
            raise

    async def _leader(self, where: PartitionId) -> LeaderPartition:
        """Return the leader object of a partition; wait for it while it recovers."""
        role = self._find(where)
        if isinstance(role, RecoveringPartition):
            await role.wait_ended(RECOVERY_WAIT_MAX_S)
            role = self._find(where)
        if isinstance(role, RecoveringPartition):
            raise role.not_ready_error()
        return role


def _late(where: PartitionId) -> Unavailable:
    return Unavailable(
        "the marker is not committed in time: the storage or a follower is slow; send it again. "
        f"partition={where}"
    )


WRITE_TIMEOUT_S: Final = 8.0
"""Shorter than a coordinator waits for the response."""


class MarkerWriter:
    """See the module."""

    def __init__(
        self, metadata: MetadataAccess, groups: GroupCoordinator, txn_markers: TxnMarkers
    ) -> None:
        """Find topics in `metadata`; append by `txn_markers`, or through `groups`."""
        self._metadata = metadata
        self._groups = groups
        self._txn_markers = txn_markers

    async def write(self, wanted: Sequence[WriteMarkers]) -> list[dict[Partition, ErrorCode]]:
        """Write markers and wait until they are committed; return a code for every partition."""
        codes: list[dict[Partition, ErrorCode]] = [{} for _ in wanted]
        placed: list[PlacedMarker] = []
        places: list[tuple[int, Partition]] = []
        offsets: list[tuple[int, Partition]] = []
        for number, one in enumerate(wanted):
            for partition in sorted(one.partitions):
                where = self._find(partition)
                if where is None:
                    codes[number][partition] = ErrorCode(UnknownTopicOrPartition.kafka_code)
                elif partition[0] == GROUPS_TOPIC:
                    offsets.append((number, partition))
                else:
                    placed.append(PlacedMarker(where, one.producer, _marker(one), _ends_older(one)))
                    places.append((number, partition))
        results, group_results = await asyncio.gather(
            self._txn_markers.append(placed, WRITE_TIMEOUT_S),
            asyncio.gather(*(self._write_to_group(wanted[n], p[1]) for n, p in offsets)),
        )
        for (number, partition), error in zip(
            [*places, *offsets], [*results, *group_results], strict=True
        ):
            code = ErrorCode.none if error is None else ErrorCode(error.kafka_code)
            codes[number][partition] = code
        return codes

    async def _write_to_group(self, one: WriteMarkers, number: int) -> SparklogError | None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._groups.runtime.end_transaction(
                    number, one.producer, _marker(one), ends_older=_ends_older(one)
                )
        except TimeoutError:
            return Unavailable("the marker is not committed in time; send it again")
        except SparklogError as error:
            return error
        return None

    def _find(self, partition: Partition) -> PartitionId | None:
        topic = self._metadata.image.topics.get(partition[0])
        if topic is None or not 0 <= partition[1] < topic.partitions:
            return None
        return PartitionId(topic.topic_id, partition[1])


def _marker(one: WriteMarkers) -> EndTransactionMarker:
    return EndTransactionMarker(one.is_commit, one.coordinator_epoch)


def _ends_older(one: WriteMarkers) -> bool:
    return one.client_version >= EPOCH_BUMP_SINCE
