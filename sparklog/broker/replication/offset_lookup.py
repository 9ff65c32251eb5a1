"""OffsetLookup: offsets of led partitions, by Kafka's special timestamps, time or leader epoch.

It looks up flushed records in the history on storage, and the newer ones in the tail. A consumer
gets no offset of a record at or above the high watermark (with `read_committed`: the last stable
offset).
Source: Kafka's ListOffsets, KIP-79, KIP-405 (-4), KIP-734 (-3), KIP-1005 (-5), KIP-1023 (-6);
KIP-320.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from sparklog.broker.fetch.fetch import VIEW_AGE_MAX_S
from sparklog.broker.fetch.read import READ_COMMITTED, Leaders, check_epoch
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.recovering import Find, RecoveringPartition
from sparklog.broker.replication.flusher import Flusher
from sparklog.broker.runtime.environment import Environment
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import InvalidRequest, NotServing, OffsetOutOfRange
from sparklog.core.types import NO_TIMESTAMP_MS, PartitionId
from sparklog.log.manifest.change import change, raise_log_start
from sparklog.log.manifest.refresh import refresh
from sparklog.log.partition import offset_lookup
from sparklog.log.tail.tail import NO_LEADER_EPOCH, NO_OFFSET, EpochEnd
from sparklog.log.tail.timestamp_lookup import TimestampedOffset, first_since
from sparklog.protocol.records.header import INT32_MAX
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
EPOCH_WAIT_MAX_S: Final = 1.0
"""A consumer's fetches of other partitions wait on the same connection."""
HIGH_WATERMARK = -1
"""In DeleteRecords: delete all committed records."""


class LookedUpOffset(NamedTuple):
    """A result of ListOffsets. A field is -1 if there is no such value."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


NOTHING = LookedUpOffset(NO_TIMESTAMP_MS, NO_OFFSET, NO_LEADER_EPOCH)


class OffsetLookup:
    """Answers ListOffsets, OffsetForLeaderEpoch and DeleteRecords of one broker."""

    def __init__(
        self, environment: Environment, find: Find, leaders: Leaders, flusher: Flusher
    ) -> None:
        """Look up in the partitions that `leaders` finds; `flusher` flushes before deletions.

        `find` also finds those that do not serve yet.
        """
        self._environment = environment
        self._find = find
        self._leaders = leaders
        self._flusher = flusher

    async def list_offset(
        self, where: PartitionId, timestamp: int, isolation: int, current_leader_epoch: int
    ) -> LookedUpOffset:
        """Return the offset for a time in milliseconds, or for a special timestamp.

        Raises:
            NotServing, Fenced, UnknownLeaderEpoch: ask the leader.
            InvalidRequest: no such special timestamp.
        """
        led = self._leaders(where)
        check_epoch(led, current_leader_epoch)
        committed = isolation == READ_COMMITTED
        limit = led.last_stable_offset if committed else led.high_watermark
        if timestamp == LATEST:
            return _at(led, limit)
        if timestamp == EARLIEST:
            if asyncio.get_running_loop().time() - led.viewed_s > VIEW_AGE_MAX_S:
                led.update_view(await self._environment.store.run(refresh(led.view)))
            return _at(led, led.log_start_offset)
        if timestamp == EARLIEST_LOCAL:
            return _at(led, max(led.log_start_offset, led.tail.start_offset))
        if timestamp == LATEST_TIERED:
            last = led.flushed_end - 1
            return _at(led, last) if last >= led.log_start_offset else NOTHING
        if timestamp == EARLIEST_PENDING_UPLOAD:
            return NOTHING  # no record waits for an upload: the log itself is remote storage
        if timestamp < 0 and timestamp != MAX_TIMESTAMP:
            raise InvalidRequest(f"no such special timestamp. timestamp={timestamp}")
        if led.has_references_to_flush:  # their records' timestamps are unknown before the flush
            await self._flusher.flush_to(led, led.high_watermark)
        if timestamp == MAX_TIMESTAMP:
            return await self._newest(led, limit)
        return await self._since(led, timestamp, limit)

    async def end_of_epoch(
        self, where: PartitionId, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEnd:
        """Return the newest epoch up to `leader_epoch` that has records, with its end offset.

        A consumer asks a new leader before it reads on. After an error librdkafka would ask again
        in half a second. So this waits `EPOCH_WAIT_MAX_S` at most for a leader that recovers.

        Raises:
            NotServing, Fenced, UnknownLeaderEpoch: ask the leader.
        """
        role = self._find(where)
        if isinstance(role, RecoveringPartition) and role.damage is None:
            await role.wait_ended(EPOCH_WAIT_MAX_S)
        led = self._leaders(where)
        check_epoch(led, current_leader_epoch)
        in_tail = led.tail.end_of_epoch(leader_epoch)
        if leader_epoch >= led.tail.epoch_at(led.tail.start_offset):
            return in_tail
        return EpochEnd(*offset_lookup.end_of_epoch(led.view, leader_epoch))

    async def delete_records(self, where: PartitionId, offset: int) -> int:
        """Make `offset` the log start offset and return the new one.

        Args:
            where: the partition.
            offset: the first offset to keep; `HIGH_WATERMARK` stands for the high watermark.

        Raises:
            NotServing: ask the leader.
            OffsetOutOfRange: `offset` is beyond the high watermark.
            Unavailable, OutcomeUnknown: the store does not respond; ask again.
        """
        led = self._leaders(where)
        start = led.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= start <= led.high_watermark:
            raise OffsetOutOfRange(
                "cannot delete records that are not committed. "
                f"partition={led.layout.topic}-{led.layout.partition} offset={offset} "
                f"high_watermark={led.high_watermark}"
            )
        if start > led.flushed_end:
            await self._flusher.flush_to(led, start)
        nonce = new_nonce(self._environment.entropy)
        async with led.flushing:
            plan = raise_log_start(start)
            view = await self._environment.store.run(change(led.view, plan, nonce))
            led.update_view(view)
        if not led.live:
            raise NotServing(f"another broker leads the partition now. partition={where}")
        return view.log_start_offset

    async def _since(self, led: LeaderPartition, timestamp_ms: int, limit: int) -> LookedUpOffset:
        """Return the first record at or after a time, below `limit`."""
        if led.view.end_offset > led.view.log_start_offset:
            found = await self._environment.store.run(
                led.history.find_timestamp(led.view, timestamp_ms)
            )
            if found is not None and found.offset < limit:
                return LookedUpOffset(
                    found.timestamp_ms, found.offset, _epoch_at(led, found.offset)
                )
        for batch in led.tail.batches_since(timestamp_ms, limit):
            newer = await self._first_since(batch, timestamp_ms)
            if newer is not None:
                return LookedUpOffset(newer.timestamp_ms, newer.offset, newer.leader_epoch)
        return NOTHING

    async def _newest(self, led: LeaderPartition, limit: int) -> LookedUpOffset:
        """Return the first record that has the highest timestamp, below `limit`."""
        best = NOTHING
        if led.view.end_offset > led.view.log_start_offset:
            found = await self._environment.store.run(led.history.find_max_timestamp(led.view))
            if found is not None and found.offset < limit:
                best = LookedUpOffset(
                    found.timestamp_ms, found.offset, _epoch_at(led, found.offset)
                )
        for newest_ms, batch in led.tail.newest_batches(limit):
            if newest_ms <= best.timestamp_ms:
                break
            newer = await self._first_since(batch, newest_ms)
            if newer is not None:  # else the header claims a timestamp that no record has
                return LookedUpOffset(newer.timestamp_ms, newer.offset, newer.leader_epoch)
        return best

    async def _first_since(self, batch: bytes, timestamp_ms: int) -> TimestampedOffset | None:
        """Search a batch off the event loop, once there is memory for its records."""
        size_bytes = unfolded_bytes_max(batch, INT32_MAX)
        return await self._environment.unfold(size_bytes, None, first_since, batch, timestamp_ms)


def _at(led: LeaderPartition, offset: int) -> LookedUpOffset:
    return LookedUpOffset(NO_TIMESTAMP_MS, offset, _epoch_at(led, offset))


def _epoch_at(led: LeaderPartition, offset: int) -> int:
    """Return the leader epoch of the record at an offset, or of the next one to come."""
    if offset >= led.tail.end_offset:
        return led.leader_epoch
    if offset >= led.tail.start_offset:
        return led.tail.epoch_at(offset)
    return offset_lookup.epoch_at(led.view, offset)
