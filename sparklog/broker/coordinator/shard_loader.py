"""ShardLoader: replays the logs of one internal topic into shards, and retries until it succeeds.

A shard is made of its whole log or not at all. Some causes of failure pass: the store does not
respond, or too few brokers are in sync. The loader also retries a damaged log, but seldom, because
the operator may repair it.

`load` first waits until all records are committed that are in the log when it begins. Then it
replays them. They may include records of an earlier shard of the same leader epoch, which was
dropped before it saw their commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic

import numpy as np
import pyarrow as pa

from sparklog.broker.coordinator.partition_log import CoordinatorPartition
from sparklog.broker.coordinator.shard_context import (
    RELOAD_FIRST_S,
    RELOAD_LONGEST_S,
    S,
    ShardContext,
)
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.log_summary import GatheredNotes
from sparklog.coordinator.effects import CoordinatorRecord, Shard
from sparklog.core.backoff import Backoff
from sparklog.core.errors import DataCorrupt, NotEnoughReplicas, NotServing, SparklogError
from sparklog.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from sparklog.protocol.records.control import end_transaction, read_control
from sparklog.protocol.records.decoder import DecodedBatch
from sparklog.protocol.records.header import BatchHeader, parse_header
from sparklog.protocol.records.record_batch import decode
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max

COMMIT_WAIT_S: Final = 5.0
REREAD_S: Final = 0.01
DECODED_INLINE_BYTES: Final = 16 << 10
DEDUPLICATED_MIN: Final = 16
"""Below this number of records, replaying all is faster than finding the newest of each key."""
REPLAYED_AT_ONCE: Final = 1000
"""Records that are replayed before the event loop runs other tasks: about 5 ms."""


async def load(log: CoordinatorPartition, shard: Shard, environment: Environment) -> int:
    """Replay the whole log into an empty shard; return the number of its records.

    Raises:
        NotServing: the leader epoch ended.
        Unavailable: the store does not respond.
        DataCorrupt: a segment is damaged.
    """
    end_offset = log.end_offset
    while not await log.wait_committed(end_offset, COMMIT_WAIT_S):
        logger.debug("coordinator waits for its log to be committed end_offset=%d", end_offset)
    offset, count = log.log_start_offset, 0
    ahead = offset
    while offset < end_offset:
        if offset >= ahead:
            ahead = await log.read_ahead(offset)
        batches = await log.read(offset, ahead)
        if not batches:  # flushed or replaced meanwhile: read again
            ahead = offset
            await asyncio.sleep(REREAD_S)
        for data in batches:
            header = parse_header(data)
            count += await _replay(shard, header, data, offset, environment)
            offset = max(offset, header.end_offset)
    return count


async def _replay(
    shard: Shard, header: BatchHeader, data: bytes, start_offset: int, environment: Environment
) -> int:
    if header.is_control:
        _replay_control(shard, decode(data, verify_crc=False))
        return 0
    unfolded = unfolded_bytes_max(data, DECOMPRESSED_BYTES_MAX)
    if _is_decoded_inline(data, unfolded):
        rows = decode(data, verify_crc=False).records
    else:
        rows = (await environment.unfold(2 * unfolded, None, decode, data)).records
    newest = _newest_of_each_key(rows)
    for at in range(0, newest.num_rows, REPLAYED_AT_ONCE):
        some = newest.slice(at, REPLAYED_AT_ONCE)
        times_ms = some.column("timestamp").cast("int64").to_pylist()
        for offset, timestamp_ms, key, value in zip(
            some.column("offset").to_pylist(),
            times_ms,
            some.column("key").to_pylist(),
            some.column("value").to_pylist(),
            strict=True,
        ):
            if offset < start_offset:
                continue
            if key is None:
                logger.error("skipping a coordinator's record without a key offset=%d", offset)
                continue
            try:
                shard.replay(
                    CoordinatorRecord(key, value),
                    offset=offset,
                    timestamp_ms=-1 if timestamp_ms is None else timestamp_ms,
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                    transactional=header.is_transactional,
                )
            except DataCorrupt as error:
                logger.error(
                    "skipping a coordinator's unreadable record offset=%d %s",
                    offset,
                    error,
                )
        await asyncio.sleep(0)
    return int(rows.num_rows)


def _newest_of_each_key(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records of one batch that compaction would keep, in their order.

    The topic is compacted, so these records must give the same state. They are few even if one
    member commits thousands of times. This holds for a transaction's batch too, because one marker
    decides all of it. A batch with a tombstone is returned unchanged.
    """
    keys = rows.column("key")
    if rows.num_rows < DEDUPLICATED_MIN or keys.null_count or rows.column("value").null_count:
        return rows
    codes = keys.dictionary_encode().indices.to_numpy()
    newest = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    newest[codes] = np.arange(len(codes))  # the last record of a key wins
    return rows.take(pa.array(np.sort(newest)))


def _replay_control(shard: Shard, batch: DecodedBatch) -> None:
    header = batch.header
    for record in read_control(batch):
        marker = end_transaction(record)
        if marker is not None:
            shard.replay_marker(header.producer_id, header.producer_epoch, marker.is_commit)


logger = logging.getLogger(__name__)

LOADS_AT_ONCE: Final = 8


class ShardLoader(Generic[S]):
    """See the module."""

    def __init__(
        self, environment: Environment, topic: str, make_shard: Callable[[int, int], S]
    ) -> None:
        """Load partitions of `topic`; `make_shard` gets partition and leader epoch."""
        self._environment = environment
        self._topic = topic
        self._make_shard = make_shard
        self._notes = GatheredNotes(logger)
        self._slots = asyncio.Semaphore(LOADS_AT_ONCE)

    async def load(self, context: ShardContext[S]) -> S | None:
        """Return the shard of a partition's log; None once this broker no longer leads it."""
        backoff = Backoff(RELOAD_FIRST_S, RELOAD_LONGEST_S)
        while not context.retired and context.log.live:
            try:
                async with self._slots:
                    return await self._load_once(context)
            except (NotServing, NotEnoughReplicas):
                pass  # the epoch is over, or enough brokers will be in sync later
            except DataCorrupt:
                logger.exception(
                    "a coordinator's log is damaged topic=%s-%d; run verify",
                    self._topic,
                    context.partition,
                )
                backoff.skip_to_longest()
            except SparklogError as error:
                logger.warning(
                    "a coordinator's log cannot be read topic=%s-%d %s",
                    self._topic,
                    context.partition,
                    error,
                )
            await asyncio.sleep(backoff.next_s())
        return None

    async def _load_once(self, context: ShardContext[S]) -> S | None:
        context.log.check_ready()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        shard = self._make_shard(context.partition, context.log.leader_epoch)
        replayed = await load(context.log, shard, self._environment)
        details = f" records={replayed} seconds={loop.time() - began_s:.3f}"
        self._notes.add(
            "coordinating", self._topic, context.partition, context.log.leader_epoch, details
        )
        return shard if context.log.live else None


def _is_decoded_inline(data: bytes, unfolded_bytes: int) -> bool:
    """Return True if a batch is small enough for the event loop, stored and decompressed."""
    return max(len(data), unfolded_bytes) <= DECODED_INLINE_BYTES
