"""Times of flushes, and the metrics of flushes that are late."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from sparklog.broker.replication.flusher import FIRST_PART
from sparklog.broker.runtime.metrics import Gauge
from sparklog.core.types import PartitionId
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import ReplicaCluster, batch

FLUSH_S = 10.0
PARTITIONS = 8
LOOK_S = 0.05


def overdue_s(cluster: ReplicaCluster) -> float:
    return cluster.brokers[1].metrics.gauges()[Gauge.FLUSH_OVERDUE_SECONDS]


def test_a_flush_is_overdue_for_as_long_as_the_store_is_away() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.ms": "1000"})
        began_s = world.loop.time()
        base_offset = await cluster.produced(where, batch(b"a"))
        assert overdue_s(cluster) == 0
        world.objects.faults = StoreFaults(refused=1.0)
        for _ in range(3):
            await asyncio.sleep(20)
            due_after_s = world.loop.time() - began_s - overdue_s(cluster)
            assert FIRST_PART <= due_after_s <= 1.1
        world.objects.faults = StoreFaults()
        await asyncio.sleep(10)
        assert cluster.stored(where).end_offset == base_offset + 1
        assert overdue_s(cluster) == 0

    world.run(story())


def test_busy_partition_is_not_overdue_while_segments_are_stored() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.bytes": "10000"})
        busy = batch(b"x" * 5000)
        newest = 0
        for _ in range(1000):
            newest = await cluster.produced(where, busy, acks=0)
            await asyncio.sleep(0.01)
            assert overdue_s(cluster) < 1
        assert newest - cluster.stored(where).end_offset > 10, "it is flushed all the time"

    world.run(story())


def test_flushes_of_partitions_written_together_are_spread() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        configs = {"flush.ms": str(int(FLUSH_S * 1000))}
        places = cluster.create([1], PARTITIONS, configs)
        began_s = world.loop.time()
        ends = dict.fromkeys(places, 0)
        flushes: dict[PartitionId, list[float]] = {where: [] for where in places}
        while world.loop.time() < began_s + 4 * FLUSH_S:
            for where in places:
                await cluster.produced(where, batch(b"x"), acks=0)
                end_offset = cluster.stored(where).end_offset
                if end_offset > ends[where]:
                    ends[where] = end_offset
                    flushes[where].append(world.loop.time() - began_s)
            await asyncio.sleep(LOOK_S)
        firsts = sorted(times[0] for times in flushes.values())
        assert firsts[0] >= FIRST_PART * FLUSH_S
        assert firsts[-1] <= FLUSH_S + 1
        assert firsts[-1] - firsts[0] > FLUSH_S * FIRST_PART / 4, "they are apart"
        for times in flushes.values():
            waits = [b - a for a, b in pairwise(times)]
            assert waits
            assert all(abs(wait - FLUSH_S) <= 2 * LOOK_S for wait in waits), (
                "then in their own turn"
            )

    world.run(story())
