"""Memory of produce requests: exactly what is held, for every outcome of a request's batches."""

from __future__ import annotations

import asyncio

from sparklog.broker.produce.request import ProducedPartition
from sparklog.broker.runtime.metrics import Gauge
from sparklog.core.errors import CorruptMessage, OutOfOrderSequence
from tests.harness.broker_world import World
from tests.harness.replica_cluster import ACKS_ALL, ReplicaCluster, batch


def test_partly_rejected_request_keeps_the_memory_of_the_rest() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        good, damaged, early = cluster.create([1], 3, {"flush.ms": "60000"})
        await asyncio.sleep(1)
        first = batch(b"first", producer_id=7, sequence=0)
        assert isinstance(await cluster.produce(early, first), ProducedPartition)
        replicas = cluster.brokers[1].replicas
        sent = {
            good: batch(b"good" * 100),
            damaged: batch(b"damaged" * 100)[:-1] + b"?",
            early: batch(b"early" * 100, producer_id=7, sequence=5),
        }
        answers = await cluster.brokers[1].process.spawn(
            replicas.produce_service.produce(sent, ACKS_ALL, 1000)
        )
        assert isinstance(answers[good], ProducedPartition)
        assert isinstance(answers[damaged], CorruptMessage)
        assert isinstance(answers[early], OutOfOrderSequence)
        held_bytes = sum(one.held.tail.size_bytes for one in replicas.roles.replicas.values())
        assert held_bytes == len(first) + len(sent[good])
        assert cluster.brokers[1].metrics.gauges()[Gauge.TAIL_BYTES] == held_bytes

    world.run(story())
