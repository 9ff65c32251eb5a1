"""History over a slow store: loaded before consumers ask, once, and within half of the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.broker.fetch.read_ahead import AHEAD_BYTES_MAX, IDLE_S
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.history_reader import BLOCKS_READ, GROUP_BYTES
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.schema import TIMESTAMP
from sparklog.log.tail.references import encode_references, reference_batch
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import TOPIC, TOPIC_ID, ReplicaCluster

RECORD = bytes((1 << 20) - 100)
"""One fills a record batch of a segment, and so a block of history."""
SLOW = StoreFaults(latency_s=0.5, timeout_s=10.0)
MEGABYTE_S = 0.6
"""A consumer takes 2.4 s for what a request returns in 0.5 to 1.5 s."""


async def flushed(cluster: ReplicaCluster, partitions: Sequence[PartitionId], records: int) -> None:
    """Have each partition hold this number of large records, all of them in one object."""
    world = cluster.world
    for where in partitions:
        layout = PartitionLayout(TOPIC, TOPIC_ID, where.partition)
        stamps = pa.array([1_000] * records, pa.int64()).cast(TIMESTAMP)
        values = pa.array([RECORD] * records, pa.binary())
        rows = pa.record_batch({"timestamp": stamps, "value": values})
        staged = PartitionLog(world.objects.objects, layout).stage([rows])
        await cluster.produced(where, encode_references(reference_batch([staged], None)))
    await asyncio.sleep(5)
    assert {cluster.stored(where).end_offset for where in partitions} == {records}


async def cluster_with(world: World, records: int, partitions: int = 1) -> ReplicaCluster:
    cluster = ReplicaCluster(world)
    await cluster.start(1)
    await flushed(cluster, cluster.create([1], partitions), records)
    return cluster


async def read(cluster: ReplicaCluster, partition: int, offset: int) -> float:
    """Fetch one record; return the seconds that it took."""
    loop = cluster.world.loop
    began = loop.time()
    found = await cluster.fetch(PartitionId(TOPIC_ID, partition), offset)
    assert isinstance(found, FetchedPartition), found
    assert len(found.batches) == 1
    return loop.time() - began


def ahead_bytes(cluster: ReplicaCluster) -> int:
    return cluster.brokers[1].replicas.fetch_service.ahead.size_bytes


def test_slow_store_delays_no_fetch_but_the_first() -> None:
    world = World()

    async def story() -> None:
        records = 10 * BLOCKS_READ
        cluster = await cluster_with(world, records)
        world.objects.faults = SLOW
        before = world.objects.requests
        waits = []
        for offset in range(records):
            waits.append(await read(cluster, 0, offset))
            assert ahead_bytes(cluster) <= AHEAD_BYTES_MAX + GROUP_BYTES // 100
            await asyncio.sleep(MEGABYTE_S)
        assert waits[0] > 0.5
        assert max(waits[1:]) < 0.1
        assert world.objects.requests - before <= records // BLOCKS_READ + 2, "each block once"

    world.run(story())


def test_fetch_waits_for_a_load_under_way_and_sends_no_second_request() -> None:
    world = World()

    async def story() -> None:
        records = 4 * BLOCKS_READ
        cluster = await cluster_with(world, records)
        world.objects.faults = SLOW
        before = world.objects.requests
        for offset in range(records):
            await read(cluster, 0, offset)
        assert world.objects.requests - before <= records // BLOCKS_READ + 2

    world.run(story())


def test_consumers_share_half_of_the_cache_and_idle_ones_hold_none() -> None:
    world = World()

    async def story() -> None:
        partitions = 10
        cluster = await cluster_with(world, 3 * BLOCKS_READ, partitions)
        half = cluster.settings.whole("history.cache.bytes") // 2
        world.objects.faults = SLOW
        await asyncio.gather(*(read(cluster, number, 0) for number in range(partitions)))
        await asyncio.sleep(5)
        held = ahead_bytes(cluster)
        assert half - GROUP_BYTES < held <= half + GROUP_BYTES // 10
        await asyncio.sleep(IDLE_S)
        await read(cluster, 0, 1)
        await asyncio.sleep(5)
        assert 0 < ahead_bytes(cluster) <= AHEAD_BYTES_MAX + GROUP_BYTES // 100

    world.run(story())


def test_failed_load_fails_no_fetch_once_the_store_is_back() -> None:
    world = World()

    async def story() -> None:
        cluster = await cluster_with(world, 4 * BLOCKS_READ)
        await read(cluster, 0, 0)
        world.objects.faults = StoreFaults(refused=1.0)
        await read(cluster, 0, 1)  # cached; the loads ahead of it fail
        await asyncio.sleep(5)
        world.objects.faults = StoreFaults()
        for offset in range(2, 4 * BLOCKS_READ):
            await read(cluster, 0, offset)

    world.run(story())
