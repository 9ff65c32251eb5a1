"""Fetches of followers: the time at which they see a batch, and the number of fetches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sparklog.broker.partition.follower import FollowerPartition
from sparklog.core.errors import Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import ReplicaCluster, batch, together


def ends(cluster: ReplicaCluster, where: PartitionId) -> list[int]:
    """Return the end of the partition's tail at each broker, the leader first."""
    return [b.replicas.roles.replicas[where].held.tail.end_offset for b in cluster.brokers.values()]


def test_followers_fetch_a_batch_during_its_put_and_an_outage() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world)
        await cluster.produced(where, batch(b"a"))
        for faults in (StoreFaults(latency_s=2.0), StoreFaults(refused=1.0)):
            world.objects.faults = faults
            for value in (b"b", b"c", b"d", b"e", b"f"):  # more than puts under way
                late = await cluster.produce(where, batch(value), timeout_ms=200)
                assert isinstance(late, Unavailable)
            assert len(set(ends(cluster, where))) == 1

    world.run(story())


def test_batches_of_one_put_are_fetched_together() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world)
        await cluster.produced(where, batch(b"a"))
        leader = cluster.brokers[1]
        fetched: list[int] = []
        follower = cluster.brokers[2].replicas.roles.replicas[where].role
        assert isinstance(follower, FollowerPartition)
        append = follower.append

        def heard(batches: Iterable[CheckedBatch]) -> int:
            several = list(batches)
            fetched.append(len(several))
            return append(several)

        follower.append = heard  # type: ignore[method-assign]
        before = leader.metrics.wal_puts
        await asyncio.gather(*(cluster.produced(where, batch(b"%d" % n)) for n in range(8)))
        assert (leader.metrics.wal_puts - before, fetched) == (1, [8])

    world.run(story())


def test_resting_partition_is_returned_once_it_changes() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world)
        await cluster.produced(where, batch(b"a"))
        await asyncio.sleep(5)
        session, _ = cluster.brokers[1].sessions._sessions.values()
        assert session.watch is not None
        assert list(session.watch.resting) == [where]
        epoch, before = session.epoch, world.loop.time()
        await cluster.produced(where, batch(b"b"))
        assert world.loop.time() - before < 0.1
        assert session.epoch <= epoch + 2, "the fetch that waited had it"

    world.run(story())
