"""One broker's replicas: produce, fetch, flush, restart, list offsets, delete records."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sparklog.broker.fetch.read import CONSUMER, FetchedPartition, FetchSpec
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.produce.request import ProducedPartition
from sparklog.broker.replication.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import RemoveTopicRecord
from sparklog.core.errors import (
    Fenced,
    InvalidRecord,
    NotEnoughReplicas,
    NotServing,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Unavailable,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import ACKS_ALL, ReplicaCluster, alone, batch

QUICK = {"flush.ms": "1000"}


def test_produced_records_are_acknowledged_by_the_wal_and_fetched() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        base = await cluster.produced(where, batch(b"a", b"b"))
        assert any("wal/" in key and key.endswith("1.arrow") for key in world.keys)
        assert await cluster.produced(where, batch(b"c")) == base + 2
        found = await cluster.consumed(where)
        assert [found[o] for o in sorted(found)] == [b"a", b"b", b"c"]

    world.run(story())


def test_records_are_not_acknowledged_or_visible_during_an_outage() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        base = await cluster.produced(where, batch(b"a"))
        calm = world.objects.faults
        world.objects.faults = replace(calm, lost_request=1.0)
        for value, acks in ((b"b", ACKS_ALL), (b"c", 1)):
            result = await cluster.produce(where, batch(value), acks, timeout_ms=3_000)
            assert isinstance(result, Unavailable)
        assert isinstance(await cluster.produce(where, batch(b"d"), acks=0), ProducedPartition)
        fetched = await cluster.fetch(where, base + 1)
        assert isinstance(fetched, FetchedPartition)
        assert (fetched.batches, fetched.high_watermark) == ([], base + 1)
        world.objects.faults = calm
        await asyncio.sleep(10)
        assert list((await cluster.consumed(where)).values()) == [b"a", b"b", b"c", b"d"]

    world.run(story())


@pytest.mark.parametrize("commit", ["storage", "memory"])
def test_acks_1_of_one_replica_waits_until_the_record_is_readable(commit: str) -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world, {"sparklog.commit": commit})
        for n in range(20):
            base = await cluster.produced(where, batch(b"%d" % n), acks=1)
            led = cluster.leader(where).replicas.roles.leader(where)
            assert led.high_watermark == base + 1

    world.run(story())


def test_committed_records_are_flushed_and_read_from_storage() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world, QUICK)
        for n in range(10):
            await cluster.produced(where, batch(b"%d" % n))
        led = cluster.leader(where).replicas.roles.leader(where)
        await asyncio.sleep(3)
        assert cluster.stored(where).end_offset == led.high_watermark
        assert (led.tail.size_bytes, led.tail.start_offset) == (0, led.high_watermark)
        assert cluster.leader(where).replicas.budget.used_bytes == 0
        found = await cluster.consumed(where)
        assert list(found.values()) == [b"%d" % n for n in range(10)]

    world.run(story())


def test_an_idle_broker_makes_no_requests() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world, QUICK)
        await cluster.produced(where, batch(b"a"))
        await asyncio.sleep(10)
        before = world.objects.requests
        await asyncio.sleep(3600)
        assert world.objects.requests == before

    world.run(story())


@pytest.mark.parametrize("wait_s", [0.0, 5.0])
def test_new_incarnation_recovers_acknowledged_records(wait_s: float) -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world, QUICK)
        for n in range(20):
            await cluster.produced(where, batch(b"%d" % n, producer_id=7, sequence=n))
        await asyncio.sleep(wait_s)
        last = await cluster.produced(where, batch(b"last", producer_id=7, sequence=20))
        cluster.kill(1)
        await cluster.fence(1)
        await cluster.start(1)
        cluster.elect(where)
        again = await cluster.produced(where, batch(b"last", producer_id=7, sequence=20))
        assert again == last, "a retry across the crash is recognised"
        await cluster.produced(where, batch(b"next", producer_id=7, sequence=21))
        found = await cluster.consumed(where)
        assert list(found.values()) == [*(b"%d" % n for n in range(20)), b"last", b"next"]
        await asyncio.sleep(1)
        state = cluster.metadata.image.partition(where)
        assert state is not None
        assert not state.recovering
        assert state.wals == ()

    world.run(story())


def test_sealed_incarnation_stops_and_acknowledges_nothing() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.produced(where, batch(b"a"))
        broker = cluster.brokers[1]
        await cluster.fence(1)
        result = await broker.replicas.produce_service.produce({where: batch(b"b")}, -1, 5_000)
        assert isinstance(result[where], NotServing)
        result = await broker.replicas.produce_service.produce({where: batch(b"b")}, 1, 5_000)
        assert isinstance(result[where], NotServing)

    world.run(story())


def test_zombie_finds_the_seal_before_it_learns_of_its_end() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.produced(where, batch(b"a"))
        broker = cluster.brokers[1]
        cluster.metadata.listeners.clear()
        await cluster.fence(1)
        result = await broker.replicas.produce_service.produce({where: batch(b"b")}, -1, 5_000)
        assert isinstance(result[where], NotServing)
        assert len(broker.fenced) == 1

    world.run(story())


def test_requests_in_a_wrong_epoch_or_to_a_stranger_are_refused() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.fence(1)
        cluster.kill(1)
        await cluster.start(1)
        cluster.elect(where)
        await cluster.produced(where, batch(b"a"))
        assert isinstance(await cluster.fetch(where, 0, current_leader_epoch=0), Fenced)
        newer = await cluster.fetch(where, 0, current_leader_epoch=9)
        assert isinstance(newer, UnknownLeaderEpoch)
        assert isinstance(await cluster.fetch(where, 99), OffsetOutOfRange)
        stranger = PartitionId(where.topic_id, 9)
        manager = cluster.brokers[1].replicas
        refused = await manager.produce_service.produce({stranger: batch(b"a")}, -1, 1000)
        assert isinstance(refused[stranger], UnknownTopicOrPartition)
        assert isinstance(await cluster.produce(where, b""), InvalidRecord)

    world.run(story())


def test_acks_all_needs_enough_replicas_in_sync() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        await cluster.start(2)
        (where,) = cluster.create([1, 2], 1, {"min.insync.replicas": "2"})
        await cluster.produced(where, batch(b"a"))
        cluster.kill(2)
        await cluster.fence(2)
        await asyncio.sleep(0.1)
        assert isinstance(await cluster.produce(where, batch(b"b")), NotEnoughReplicas)
        assert isinstance(await cluster.produce(where, batch(b"c"), acks=1), ProducedPartition)

    world.run(story())


def test_offsets_are_found_by_name_and_by_time() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world, QUICK)
        first = await cluster.produced(where, batch(b"a", timestamp_ms=1_000))
        await cluster.produced(where, batch(b"b", timestamp_ms=5_000))
        await asyncio.sleep(3)
        await cluster.produced(where, batch(b"c", timestamp_ms=3_000))
        manager = cluster.brokers[1].replicas

        async def offset(timestamp: int) -> int:
            return (await manager.offset_lookup.list_offset(where, timestamp, 0, -1)).offset

        assert await offset(EARLIEST) == 0
        assert await offset(LATEST) == first + 3
        assert await offset(EARLIEST_LOCAL) == first + 2
        assert await offset(LATEST_TIERED) == first + 1
        assert await offset(MAX_TIMESTAMP) == first + 1
        assert await offset(2_000) == first + 1
        assert await offset(1) == first
        assert await offset(9_000) == -1
        end = await manager.offset_lookup.end_of_epoch(where, -1, 0)
        assert end == (0, first + 3)

    world.run(story())


def test_records_are_deleted_up_to_an_offset_even_unflushed_ones() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        first = await cluster.produced(where, batch(b"a", b"b", b"c"))
        await cluster.produced(where, batch(b"d"))
        manager = cluster.brokers[1].replicas
        # Inside a batch, too.
        assert await manager.offset_lookup.delete_records(where, first + 2) == first + 2
        found = await cluster.consumed_from(where, first + 2)
        assert [found[o] for o in found if o >= first + 2] == [b"c", b"d"]
        assert isinstance(await cluster.fetch(where, first + 1), OffsetOutOfRange)
        with pytest.raises(OffsetOutOfRange):
            await manager.offset_lookup.delete_records(where, first + 9)
        assert await manager.offset_lookup.delete_records(where, -1) == first + 4

    world.run(story())


def test_producers_wait_for_memory_when_the_storage_is_slow() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world, {"tail.bytes": str(1 << 20)})
        await cluster.start(1)
        (where,) = cluster.create([1], 1, {"flush.ms": "100000"})
        await cluster.produced(where, batch(b"first"))
        world.objects.faults = StoreFaults(latency_s=0.5)
        big = b"x" * 200_000
        results = await asyncio.gather(
            *(cluster.produce(where, batch(b"%d" % n, big), timeout_ms=60_000) for n in range(30))
        )
        assert all(isinstance(r, ProducedPartition) for r in results)
        budget = cluster.brokers[1].replicas.budget
        assert budget.used_bytes <= budget.limit_bytes
        found = list((await cluster.consumed(where)).values())
        assert found[1::2] == [b"%d" % n for n in range(30)]

    world.run(story())


def test_batches_of_a_partition_are_appended_in_call_order() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.produced(where, batch(b"first"))
        large = b"x" * 900_000
        sizes = [large, b"", large, b"", b"", large]
        batches = [batch(b"%d" % n, data[:500_000]) for n, data in enumerate(sizes)]
        await asyncio.gather(*(cluster.produce(where, data) for data in batches))
        found = list((await cluster.consumed(where)).values())
        assert found[1::2] == [b"%d" % n for n in range(6)]

    world.run(story())


def test_deposed_leader_that_slept_rejects_no_producer_for_good() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.produced(where, batch(b"0", producer_id=5, sequence=0))
        missing = batch(b"2", producer_id=5, sequence=2)
        assert isinstance(await cluster.produce(where, missing), OutOfOrderSequence)

        async def hear_of_the_end() -> MetadataImage:
            await cluster.fence(1)
            await asyncio.sleep(0.01)
            return cluster.metadata.image

        produce = cluster.brokers[1].replicas.produce_service.produce
        cluster.metadata.catch_up = hear_of_the_end  # type: ignore[method-assign]
        assert isinstance((await produce({where: missing}, -1, 1000))[where], NotServing)

    world.run(story())


@pytest.mark.parametrize("answers", [True, False])
def test_leader_that_may_be_deposed_resets_no_consumer(answers: bool) -> None:
    """Seed 3190 of consumers: cut off from the store, a deposed leader sent one back by 30."""
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.produced(where, batch(b"0"))
        assert isinstance(await cluster.fetch(where, 99), OffsetOutOfRange)

        async def hear_of_the_end() -> MetadataImage:
            if not answers:
                raise Unavailable("the store does not answer")
            await cluster.fence(1)
            await asyncio.sleep(0.01)
            return cluster.metadata.image

        fetch = cluster.brokers[1].replicas.fetch_service.fetch
        cluster.metadata.catch_up = hear_of_the_end  # type: ignore[method-assign]
        spec = FetchSpec(CONSUMER, 0, 1, 1024, 0, {where: FetchPosition(99, 1024)})
        assert isinstance((await fetch(spec))[where], NotServing)

    world.run(story())


def test_leader_that_cannot_read_metadata_rejects_no_producer() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.produced(where, batch(b"0", producer_id=5, sequence=0))

        async def no_answer() -> MetadataImage:
            raise Unavailable("the store does not answer")

        cluster.metadata.catch_up = no_answer  # type: ignore[method-assign]
        result = await cluster.produce(where, batch(b"2", producer_id=5, sequence=2))
        assert isinstance(result, Unavailable)
        assert result.retriable

    world.run(story())


def test_multi_partition_request_is_not_overtaken_in_any_partition() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        one, other = cluster.create([1], 2)
        for where in (one, other):
            await cluster.produced(where, batch(b"first"))
        slow = cluster.brokers[1].replicas.roles.find(one).append_queue.take()
        produce = cluster.brokers[1].replicas.produce_service.produce
        data = {where: batch(b"0", producer_id=5, sequence=0) for where in (one, other)}
        both = asyncio.ensure_future(produce(data, -1, 1000))
        await asyncio.sleep(0)
        later = {other: batch(b"1", producer_id=5, sequence=1)}
        after = asyncio.ensure_future(produce(later, -1, 1000))
        await asyncio.sleep(0.5)
        assert not after.done()
        slow.end()
        results = [*(await both).values(), *(await after).values()]
        assert all(isinstance(result, ProducedPartition) for result in results)
        assert list((await cluster.consumed(other)).values()) == [b"first", b"0", b"1"]

    world.run(story())


def test_a_deleted_topic_is_forgotten() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        await cluster.produced(where, batch(b"a"))
        manager = cluster.brokers[1].replicas
        cluster.metadata.append([RemoveTopicRecord(where.topic_id)])
        await asyncio.sleep(0.1)
        gone = await manager.produce_service.produce({where: batch(b"b")}, -1, 1000)
        assert isinstance(gone[where], UnknownTopicOrPartition)
        assert manager.budget.used_bytes == 0
        assert manager.sizes() == {}

    world.run(story())


def test_new_leader_loads_producers_from_snapshot_and_later_records() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world, {"flush.bytes": "1"})
        bases = []
        for n in range(40):
            data = batch(b"%d" % n, producer_id=9, sequence=n)
            bases.append(await cluster.produced(where, data))
            await asyncio.sleep(1)
        view = cluster.stored(where)
        assert view.manifest.entries, "the chain was never taken in"
        snapshots = [key for key in world.keys if key.startswith(view.layout.snapshot_prefix)]
        assert snapshots
        cluster.kill(1)
        await cluster.fence(1)
        await cluster.start(1)
        cluster.elect(where)
        for n in (36, 39):
            data = batch(b"%d" % n, producer_id=9, sequence=n)
            assert await cluster.produced(where, data) == bases[n]
        data = batch(b"40", producer_id=9, sequence=40)
        assert await cluster.produced(where, data) > bases[-1]

    world.run(story())
