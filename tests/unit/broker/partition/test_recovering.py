"""A partition whose own log is damaged says so, instead of sending its clients round for ever."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sparklog.broker.produce.request import ProducedPartition
from sparklog.broker.runtime.metrics import Gauge
from sparklog.core.errors import DataCorrupt, PartitionDamaged
from sparklog.log.effects import run
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.store.memory import MemoryStore
from tests.harness.broker_world import World
from tests.harness.replica_cluster import ReplicaCluster, batch


def test_leader_of_a_damaged_log_answers_with_an_error(
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


def test_leader_that_cannot_recover_rejects_and_serves_after_repair(
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
        assert isinstance(await cluster.produce(where, batch(b"b")), ProducedPartition)
        assert cluster.brokers[1].metrics.gauges()[Gauge.RECOVERING] == 0

    world.run(story())


WINDOWS = {"first window": 1, "middle window": 3, "newest window": 6}
"""Sequences of windows; the registration has 0."""


@pytest.mark.parametrize("kind", [*WINDOWS, "seal"])
@pytest.mark.parametrize("harm", ["flipped", "cut", "zeroed", "deleted"])
@pytest.mark.parametrize("when", ["at rest", "while serving"])
def test_damaged_write_ahead_log_causes_no_double_offset(kind: str, harm: str, when: str) -> None:
    world = World()

    async def scenario() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.ms": "600000"})
        wal = cluster.metadata.image.brokers[1].wal
        expected: dict[int, bytes] = {}

        async def produced(count: int) -> None:
            for _ in range(count):
                value = b"%d" % len(expected)
                offset = await cluster.produced(where, batch(value))
                assert offset not in expected, "an offset twice"
                expected[offset] = value
                await asyncio.sleep(0.1)

        await produced(6)
        if when == "at rest":
            cluster.kill(1)
        if kind == "seal":
            if when == "while serving":
                cluster.kill(1)
            await cluster.fence(1)
            key = max(key for key in world.keys if key.startswith(wal.folder))
        else:
            key = wal.key(WINDOWS[kind])
        whole = objects.get(key)
        damage(objects, key, harm)
        if kind != "seal":
            if when == "while serving":
                await produced(2)
                cluster.kill(1)
            refusal = ""
            try:
                await cluster.fence(1)
            except DataCorrupt as error:  # a damaged log shows no end
                refusal = str(error)
            if refusal:
                assert key in refusal
                restore(objects, key, whole)
                await cluster.fence(1)
                damage(objects, key, harm)
        await cluster.start(1)
        cluster.elect(where)
        await asyncio.sleep(1)
        outcome = await cluster.produce(where, batch(b"more"))
        if (kind, harm, when) == ("newest window", "deleted", "at rest"):
            # Nothing in the store shows that there was a newer object than those that are left.
            assert isinstance(outcome, ProducedPartition)
            return
        if kind == "seal" and harm == "deleted":
            assert isinstance(outcome, ProducedPartition), "it is sealed again, and nothing is lost"
            assert outcome.base_offset == len(expected)
            expected[outcome.base_offset] = b"more"
        else:
            assert isinstance(outcome, PartitionDamaged), outcome
            assert key in str(outcome)
            restore(objects, key, whole)
            await asyncio.sleep(60)
        assert await cluster.consumed(where) == expected

    objects = world.objects.objects
    world.run(scenario())


@pytest.mark.parametrize("kind", ["log", "manifest"])
@pytest.mark.parametrize("harm", ["flipped", "cut", "zeroed", "deleted"])
def test_object_damaged_while_serving_causes_no_double_offset(kind: str, harm: str) -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.ms": "100"})
        expected: dict[int, bytes] = {}

        async def produced(value: bytes) -> None:
            offset = await cluster.produced(where, batch(value))
            assert offset not in expected, "an offset twice"
            expected[offset] = value

        for number in range(6):
            await produced(b"%d" % number)
            await asyncio.sleep(1)
            if number in (1, 3):
                run(change(cluster.stored(where), absorb_tail(1, 0), f"{number:032x}"), objects)
        view = cluster.stored(where)
        name = view.tail[-2].name if kind == "log" else view.layout.manifest_name(2)
        key, whole = view.layout.key(name), objects.get(view.layout.key(name))
        damage(objects, key, harm)
        for number in range(6, 9):
            await produced(b"%d" % number)
            await asyncio.sleep(1)
        cluster.kill(1)
        await cluster.fence(1)
        await cluster.start(1)
        cluster.elect(where)
        await asyncio.sleep(1)
        refused = await cluster.produce(where, batch(b"9"))
        if isinstance(refused, ProducedPartition):  # the chain has what a lost manifest had
            assert (kind, harm) == ("manifest", "deleted")
            assert refused.base_offset == 9
            expected[9] = b"9"
        else:
            assert isinstance(refused, PartitionDamaged), refused
            assert key in str(refused)
            objects.delete(key)
            objects.put_if_absent(key, whole)
            await asyncio.sleep(60)
        assert await cluster.consumed(where) == expected

    objects = world.objects.objects
    world.run(story())


def restore(objects: MemoryStore, key: str, whole: bytes) -> None:
    """Put an object back, as from an older version in a bucket."""
    objects.delete(key)
    objects.put_if_absent(key, whole)


def damage(objects: MemoryStore, key: str, harm: str) -> None:
    """Change or delete an object behind everybody's back."""
    data = objects.get(key)
    objects.delete(key)
    middle = len(data) // 2
    changed = {
        "flipped": data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
        "cut": data[:middle],
        "zeroed": bytes(len(data)),
    }
    if harm in changed:
        objects.put_if_absent(key, changed[harm])
