"""A partition whose own log is damaged says so, instead of sending its clients round for ever."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sparklog.broker.metrics import Gauge
from sparklog.broker.produce_job import Produced
from sparklog.core.errors import PartitionDamaged
from tests.unit.broker.replica_cluster import ReplicaCluster, batch
from tests.unit.broker.world import World


def test_a_leader_that_finds_its_log_damaged_tells_everybody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.ms": "100"})
        await cluster.produced(where, batch(b"a"))
        await asyncio.sleep(1)
        led = cluster.brokers[1].replicas.roles.find(where)
        end_offset = cluster.stored(where).end_offset
        name = led.layout.key(f"log/{end_offset:020d}.arrow")
        world.objects.objects.put_if_absent(name, b"no segment")
        await cluster.produce(where, batch(b"b"))
        await asyncio.sleep(1)
        for _ in range(2):
            assert isinstance(await cluster.produce(where, batch(b"c")), PartitionDamaged)
            assert isinstance(await cluster.fetch(where, 0), PartitionDamaged)
        gauges = cluster.brokers[1].metrics.gauges()
        assert gauges[Gauge.OFFLINE_REPLICAS] == 1
        told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert any(f"{end_offset:020d}" in line and "verify" in line for line in told)

    world.run(story())


def test_a_leader_that_cannot_recover_tells_everybody_and_serves_when_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.ms": "100"})
        await cluster.produced(where, batch(b"a"))
        await asyncio.sleep(1)
        cluster.kill(1)
        await cluster.fence(1)
        view = cluster.stored(where)
        name = view.layout.key(f"log/{view.end_offset:020d}.arrow")
        world.objects.objects.put_if_absent(name, b"no segment")
        await cluster.start(1)
        cluster.elect(where)
        await asyncio.sleep(1)
        refused = await cluster.fetch(where, 0)
        assert isinstance(refused, PartitionDamaged), refused
        assert name in str(refused)
        await asyncio.sleep(60)
        gauges = cluster.brokers[1].metrics.gauges()
        assert gauges[Gauge.RECOVERING] == 1
        assert gauges[Gauge.RECOVERING_SECONDS] > 60
        # It is tried again all the time, and said once.
        assert sum("recovery is impossible" in line for line in caplog.messages) == 1
        world.objects.objects.delete(name)
        await asyncio.sleep(10)
        assert isinstance(await cluster.produce(where, batch(b"b")), Produced)
        assert cluster.brokers[1].metrics.gauges()[Gauge.RECOVERING] == 0

    world.run(story())
