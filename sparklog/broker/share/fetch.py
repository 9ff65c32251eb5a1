"""ShareFetchService: acquires records for members of share groups, or waits for some.

A fetch reads each partition from the first offset on that the group may deliver. If nothing is
there to acquire, it waits for new records, and for records that other members give back.
  SHARE-FETCH-1: a session that has ended acquires nothing, since no member gets the answer
  SHARE-FETCH-2: members get what is below the high watermark; `read_committed` groups what is
      below the last stable offset, without aborted records
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from sparklog.broker.fetch.fetch import LONGEST_WAIT_S, FetchService
from sparklog.broker.fetch.read import (
    CONSUMER,
    READ_COMMITTED,
    FetchedPartition,
    FetchResult,
    FetchSpec,
)
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.runtime.environment import spawn
from sparklog.broker.share.acquired_batches import DeliverableBatches
from sparklog.broker.share.partition import SharePartition
from sparklog.broker.share.sessions import ShareSession, TopicPartition
from sparklog.coordinator.share.in_flight import AcquiredBatch
from sparklog.core.errors import OffsetOutOfRange, SparklogError

PARTITION_BYTES_MAX: Final = 1024 * 1024
"""Bytes that one partition adds to an answer, or one batch: Kafka's `max.partition.fetch.bytes`."""


@dataclass(frozen=True, slots=True)
class ShareFetchLimits:
    """The limits of one request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    strict: bool
    """Never more records than that; else whole batches."""


@dataclass(slots=True)
class SharedRecords:
    """The records of one partition that a member gets."""

    acquired: Sequence[AcquiredBatch]
    batches: Sequence[memoryview]


@dataclass(slots=True)
class ShareFetched:
    """The result of a fetch."""

    records: dict[TopicPartition, SharedRecords] = field(default_factory=dict)
    errors: dict[TopicPartition, SparklogError] = field(default_factory=dict)


class _ReadPart(NamedTuple):
    """The result of a read from `offset` on; meanwhile the window may have changed."""

    offset: int
    result: FetchResult

    @property
    def has_batches(self) -> bool:
        return isinstance(self.result, FetchedPartition) and bool(self.result.batches)


class ShareFetchService:
    """Answers share fetches of one broker."""

    def __init__(self, fetch_service: FetchService) -> None:
        """Read by `fetch_service`."""
        self._fetch_service = fetch_service

    async def fetch(
        self,
        session: ShareSession,
        parts: Mapping[TopicPartition, SharePartition],
        limits: ShareFetchLimits,
        *,
        committed: bool,
    ) -> ShareFetched:
        """Acquire records of `parts` for the session's member, or wait for some.

        `committed`: the group reads committed records only.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(limits.max_wait_ms / 1000, LONGEST_WAIT_S)
        found, event, wait_s = ShareFetched(), asyncio.Event(), 0.0
        for part in parts.values():
            part.wake(event)
        try:
            while True:
                event.clear()
                results = await self._read(parts, limits, found, event, wait_s, committed)
                self._acquire(session, parts, results, limits, found)
                wait_s = deadline_s - loop.time()
                if found.records or found.errors or session.ended or wait_s <= 0:
                    return found
                if any(one.has_batches for one in results.values()):
                    await asyncio.sleep(0)  # other members took them; look again at once
        finally:
            for part in parts.values():
                part.forget(event)

    async def _read(
        self,
        parts: Mapping[TopicPartition, SharePartition],
        limits: ShareFetchLimits,
        found: ShareFetched,
        event: asyncio.Event,
        wait_s: float,
        committed: bool,
    ) -> dict[TopicPartition, _ReadPart]:
        """Read what may be acquired; wait until there is something, or `event` is set."""
        asked: dict[TopicPartition, FetchPosition] = {}
        for where, part in parts.items():
            if not part.live:
                found.errors[where] = part.failure or part.resigned()
                continue
            part.follow_log_start()
            if part.may_acquire:
                most = min(limits.max_bytes, PARTITION_BYTES_MAX)
                asked[where] = FetchPosition(
                    offset=part.window.next_offset,
                    max_bytes=most,
                    current_leader_epoch=part.led.leader_epoch,
                    last_fetched_epoch=-1,
                )
        spec = FetchSpec(
            replica_id=CONSUMER,
            max_wait_ms=max(0, ceil(wait_s * 1000)),
            min_bytes=max(1, min(limits.min_bytes, limits.max_bytes)),
            max_bytes=limits.max_bytes,
            isolation=READ_COMMITTED if committed else 0,
            partitions={parts[where].led.where: at for where, at in asked.items()},
        )
        if found.errors:
            return {}
        fetching = spawn(self._fetch_service.fetch(spec)) if asked else None
        waking = spawn(event.wait()) if wait_s > 0 else None
        try:
            waited = [one for one in (fetching, waking) if one is not None]
            if fetching is not None and waking is None:
                await fetching
            elif waited:
                await asyncio.wait(
                    waited, timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            for task in (fetching, waking):
                if task is not None and not task.done():
                    task.cancel()
        if fetching is None or not fetching.done() or fetching.cancelled():
            return {}
        results = fetching.result()
        return {
            where: _ReadPart(at.offset, results[parts[where].led.where])
            for where, at in asked.items()
        }

    def _acquire(
        self,
        session: ShareSession,
        parts: Mapping[TopicPartition, SharePartition],
        results: Mapping[TopicPartition, _ReadPart],
        limits: ShareFetchLimits,
        found: ShareFetched,
    ) -> None:
        left = limits.max_records
        for where, (offset, result) in results.items():
            part = parts[where]
            if session.ended or left <= 0 or not part.live:
                return
            if isinstance(result, SparklogError):
                if not isinstance(result, OffsetOutOfRange) or not part.is_behind_log:
                    found.errors[where] = result
                continue
            try:
                batches = DeliverableBatches.of(result, offset)
            except SparklogError as error:
                found.errors[where] = error
                continue
            acquired = part.acquire(
                session.key.member_id, offset, batches, left, strict=limits.strict
            )
            if not acquired:
                continue
            left -= sum(one.last_offset - one.first_offset + 1 for one in acquired)
            found.records[where] = SharedRecords(acquired, batches.bytes_of(acquired))
            session.served(where)
