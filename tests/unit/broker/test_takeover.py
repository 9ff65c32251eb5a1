"""What taking over costs: requests to the store, one after the other and in all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from sparklog.core.types import PartitionId
from tests.unit.broker.replica_cluster import ReplicaCluster, batch
from tests.unit.broker.world import World

WITHIN_S = 30.0
ROUND_TRIP_S = 0.02
"""Of a request in the simulated store, on average."""
REQUESTS_PER_PARTITION = 6
"""Manifests, the chain, its footers, manifests again; the leader's mark, manifests once more."""
ROUND_TRIPS = 12
"""Three for the sealed log, those of a partition, and room for requests slower than others."""


@dataclass
class Cost:
    """Of a take-over."""

    requests: int
    took_s: float


def take_over(partitions: int, records: int = 0) -> Cost:
    """Kill the leader of so many partitions; each has records in the dead broker's log alone."""
    world = World()

    async def story() -> Cost:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        await cluster.start(2)
        created = cluster.create([1, 2], partitions)
        await until_led(cluster, created, 1)
        for n in range(records):
            for where in created:
                await cluster.produced(where, batch(b"%d" % n))
        cluster.kill(1)
        await cluster.fence(1)
        requests, started_s = world.objects.requests, world.loop.time()
        await until_led(cluster, created, 2)
        return Cost(world.objects.requests - requests, world.loop.time() - started_s)

    return world.run(story())


async def until_led(cluster: ReplicaCluster, created: list[PartitionId], broker_id: int) -> None:
    replicas = cluster.brokers[broker_id].replicas
    deadline_s = cluster.world.loop.time() + WITHIN_S
    while not all(r.led for where, r in replicas._replicas.items()) or not replicas._replicas:
        assert cluster.world.loop.time() < deadline_s
        await asyncio.sleep(0.001)
    assert set(replicas._replicas) == set(created)


def test_a_take_over_is_a_few_requests_one_after_the_other() -> None:
    assert take_over(1).took_s < ROUND_TRIPS * ROUND_TRIP_S


def test_the_dead_brokers_log_is_read_once_and_each_partition_by_few_requests() -> None:
    few, many = take_over(1), take_over(20)
    assert few.requests < 2 * REQUESTS_PER_PARTITION
    assert many.requests - few.requests == 19 * REQUESTS_PER_PARTITION


@pytest.mark.parametrize("records", [0, 3])
def test_many_partitions_are_taken_over_in_the_time_of_one(records: int) -> None:
    one, many = take_over(1, records), take_over(20, records)
    assert many.took_s < 1.5 * one.took_s


def test_what_was_written_costs_a_flush_of_each_partition() -> None:
    # A put and a look at manifests, however many records; and each window of the log is read once.
    few, many = take_over(1, 3), take_over(11, 3)
    assert many.requests - few.requests <= 10 * (REQUESTS_PER_PARTITION + 2 + 3)
