"""What the page tells of flushes that are late: a store that is away, and not one that is busy."""

from __future__ import annotations

import asyncio

from sparklog.broker.metrics import Gauge
from sparklog.testing.sim_store import StoreWeather
from tests.unit.broker.replica_cluster import ReplicaCluster, batch
from tests.unit.broker.world import World


def overdue_s(cluster: ReplicaCluster) -> float:
    return cluster.brokers[1].metrics.gauges()[Gauge.FLUSH_OVERDUE_SECONDS]


def test_a_flush_is_overdue_for_as_long_as_the_store_is_away() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.ms": "1000"})
        base_offset = await cluster.produced(where, batch(b"a"))
        assert overdue_s(cluster) == 0
        world.objects.weather = StoreWeather(refused=1.0)
        for _ in range(3):
            before_s = overdue_s(cluster)
            await asyncio.sleep(20)
            assert 18 <= overdue_s(cluster) - before_s <= 20
        world.objects.weather = StoreWeather()
        await asyncio.sleep(10)
        assert cluster.stored(where).end_offset == base_offset + 1
        assert overdue_s(cluster) == 0

    world.run(story())


def test_no_flush_is_overdue_while_segment_after_segment_of_a_busy_partition_is_stored() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.bytes": "10000"})
        busy = batch(b"x" * 5000)
        newest = 0
        for _ in range(1000):
            newest = await cluster.produced(where, busy, acks=1)
            await asyncio.sleep(0.01)
            assert overdue_s(cluster) < 1
        assert newest - cluster.stored(where).end_offset > 10, "it is flushed all the time"

    world.run(story())
