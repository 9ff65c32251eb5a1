"""Reference batches through brokers: taken once, replicated, recovered, shown as what they mean."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.broker.produce.request import ProducedPartition
from sparklog.broker.replication.offset_lookup import MAX_TIMESTAMP
from sparklog.core.errors import InvalidRecord, NotServing, Unavailable, UnknownSchema
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.segment import CommitKey, CommitStamp, Reference
from sparklog.log.tail.references import encode_references, reference_batch
from sparklog.protocol.records.memory_records import split_batches
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import TOPIC, TOPIC_ID, ReplicaCluster, batch

AWAY = StoreFaults(refused=1.0)
SELDOM = {"flush.ms": "600000"}


def staged(
    world: World, where: PartitionId, *values: bytes | None, stamp_ms: int = 2_000
) -> Reference:
    """Upload records as a task of a bulk writer does."""
    layout = PartitionLayout(TOPIC, TOPIC_ID, where.partition)
    stamps = pa.array([stamp_ms] * len(values), pa.int64()).cast(pa.timestamp("ms", "UTC"))
    rows = pa.record_batch({"timestamp": stamps, "value": pa.array(values, pa.binary())})
    return PartitionLog(world.objects.objects, layout).stage([rows])


def referring(*objects: Reference, commit: tuple[str, int] | None = None) -> bytes:
    key = CommitStamp(CommitKey(*commit), 1_000) if commit is not None else None
    return encode_references(reference_batch(objects, key))


async def several(
    world: World, brokers: int = 1, configs: dict[str, str] | None = None
) -> tuple[ReplicaCluster, PartitionId]:
    cluster = ReplicaCluster(world)
    for broker_id in range(1, brokers + 1):
        await cluster.start(broker_id)
    (where,) = cluster.create(list(range(1, brokers + 1)), 1, configs or SELDOM)
    return cluster, where


async def values(cluster: ReplicaCluster, where: PartitionId) -> list[bytes]:
    found = await asyncio.wait_for(cluster.consumed(where), 60)
    return [found[offset] for offset in sorted(found)]


def test_consumers_get_the_records_in_the_order_of_the_appends() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await several(world)
        first = await cluster.produced(where, batch(b"a"))
        objects = [staged(world, where, b"b", b"c"), staged(world, where, b"d")]
        at = await cluster.produced(where, referring(*objects))
        assert (first + 1, at + 3) == (at, await cluster.produced(where, batch(b"e")))
        assert await values(cluster, where) == [b"a", b"b", b"c", b"d", b"e"]
        view = cluster.stored(where)
        assert [e.object for e in view.covering(at, at + 3)] == [one.object for one in objects]
        middle = await cluster.fetch(where, at + 1)
        assert isinstance(middle, FetchedPartition)
        assert not any(b.header.is_reference for b in split_batches(b"".join(middle.batches)))

    world.run(story())


def test_no_consumer_is_ever_sent_one_however_slow_the_flush_is() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await several(world)
        base = await cluster.produced(where, batch(b"a"))
        data = referring(staged(world, where, b"b", b"c"))
        assert await cluster.produced(where, data) == base + 1
        world.objects.faults = AWAY
        for offset, count in ((base, 1), (base + 1, 0), (base + 2, 0), (base + 3, 0)):
            found = await cluster.fetch(where, offset)
            assert isinstance(found, FetchedPartition)
            assert (found.high_watermark, len(found.batches)) == (base + 3, count)
        waiting = asyncio.ensure_future(cluster.fetch(where, base + 2, max_wait_ms=30_000))
        await asyncio.sleep(1)
        world.objects.faults = StoreFaults()
        before = world.loop.time()
        found = await waiting
        assert isinstance(found, FetchedPartition)
        assert found.batches
        assert world.loop.time() - before < 10, "woken by the flush"
        assert await values(cluster, where) == [b"a", b"b", b"c"]

    world.run(story())


def test_times_are_those_of_the_records() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await several(world)
        base = await cluster.produced(where, batch(b"a", timestamp_ms=1_000))
        early, late = (staged(world, where, b"x", b"y", stamp_ms=ms) for ms in (2_000, 3_000))
        await cluster.produced(where, referring(early, late))
        look = cluster.leader(where).replicas.offset_lookup.list_offset
        run = cluster.leader(where).process.spawn
        assert (await run(look(where, 2_500, 0, -1))).offset == base + 3
        assert (await run(look(where, MAX_TIMESTAMP, 0, -1))).offset == base + 3

    world.run(story())


def test_repeated_reference_batch_is_applied_once() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await several(world)
        keyed = referring(staged(world, where, b"k"), commit=("query", 7))
        plain = referring(staged(world, where, b"p"))
        base = await cluster.produced(where, keyed)
        assert await cluster.produced(where, plain) == base + 1
        for _ in range(2):
            assert await cluster.produced(where, keyed) == base
            assert await cluster.produced(where, plain) == base + 1
            other = referring(staged(world, where, b"again"), commit=("query", 7))
            assert await cluster.produced(where, other) == base, "the key counts, not the objects"
            await asyncio.sleep(5)
        following = referring(staged(world, where, b"next"), commit=("query", 8))
        assert await cluster.produced(where, following) == base + 2
        assert await values(cluster, where) == [b"k", b"p", b"next"]

    world.run(story())


@pytest.mark.parametrize("commit", ["storage", "memory"])
def test_a_new_leader_has_it_and_knows_that_it_has(commit: str) -> None:
    world = World()

    async def story() -> None:
        configs = {**SELDOM, "sparklog.commit": commit}
        cluster, where = await several(world, 3, configs)
        data = referring(staged(world, where, b"b", b"c"), commit=("query", 1))
        await cluster.produced(where, batch(b"a"))
        at = await cluster.produced(where, data)
        assert cluster.stored(where).end_offset <= at, "not flushed yet"
        cluster.kill(1)
        await cluster.fence(1)
        assert await cluster.produced(where, data) == at
        await cluster.produced(where, batch(b"d"))
        assert await values(cluster, where) == [b"a", b"b", b"c", b"d"]

    world.run(story())


def test_reference_to_other_objects_is_rejected() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await several(world)
        good = staged(world, where, b"x")
        elsewhere = staged(world, PartitionId(TOPIC_ID, 1), b"x")
        gone = replace(good, object="staged/" + "0" * 32 + ".arrow", nonce="0" * 32)
        for wrong in (elsewhere, gone, replace(good, size_bytes=good.size_bytes - 1)):
            result = await cluster.produce(where, referring(good, wrong))
            assert isinstance(result, InvalidRecord), result
        damaged = bytearray(referring(good))
        damaged[-1] ^= 1
        result = await cluster.produce(where, bytes(damaged))
        assert result.__class__.__name__ == "CorruptMessage"
        world.objects.faults = AWAY
        result = await cluster.produce(where, referring(good), timeout_ms=2_000)
        assert isinstance(result, Unavailable), result
        world.objects.faults = StoreFaults()
        assert await values(cluster, where) == []

    world.run(story())


def test_reference_batch_needs_a_request_of_its_own() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        zero, one = cluster.create([1], 2, SELDOM)
        await cluster.produced(zero, batch(b"a"))
        await cluster.produced(one, batch(b"a"))
        broker = cluster.leader(zero)
        data = {zero: referring(staged(world, zero, b"b")), one: batch(b"c")}
        results = await broker.process.spawn(
            broker.replicas.produce_service.produce(data, -1, 30_000)
        )
        assert isinstance(results[zero], ProducedPartition)
        assert isinstance(results[one], InvalidRecord)

    world.run(story())


@pytest.mark.parametrize("seed", range(12))
def test_commits_are_there_once_and_in_order_after_any_death(seed: int) -> None:
    """Writers of both kinds retry what was not acknowledged; leaders are killed meanwhile."""
    world = World(seed)
    random = Random(seed)

    async def story() -> None:
        flush = {"flush.ms": random.choice(["300", "600000"])}
        cluster, where = await several(world, 3, flush)
        if seed % 2:
            world.objects.faults = StoreFaults(
                slow=0.05, refused=0.02, lost_request=0.01, lost_reply=0.02, own_exists=0.05
            )
        expected: list[bytes] = []
        alive = [1, 2, 3]

        async def send(data: bytes) -> None:
            while True:
                try:
                    result = await asyncio.wait_for(cluster.produce(where, data, -1, 3_000), 5)
                except (TimeoutError, KeyError, ConnectionResetError):
                    await asyncio.sleep(0.1)
                    continue
                if isinstance(result, ProducedPartition):
                    return
                assert isinstance(result, NotServing | Unavailable), result
                await asyncio.sleep(0.1)

        async def write() -> None:
            for n in range(25):
                some = [b"%d-%d" % (n, i) for i in range(random.randint(1, 4))]
                if random.random() < 0.5:
                    objects = [staged(world, where, value) for value in some]
                    await send(referring(*objects, commit=("q", n)))
                else:
                    sequence = sum(1 for value in expected if b"p" in value)
                    some = [b"p" + value for value in some]
                    await send(batch(*some, producer_id=3, sequence=sequence))
                expected.extend(some)
                await asyncio.sleep(random.random() * 0.2)

        async def break_things() -> None:
            for _ in range(3):
                await asyncio.sleep(random.random() * 2)
                state = cluster.metadata.image.partition(where)
                assert state is not None
                victim = state.leader
                if victim not in alive or len(state.isr) < 2:
                    continue
                cluster.kill(victim)
                await asyncio.sleep(random.random() * 0.3)
                await cluster.fence(victim)
                await cluster.start(victim)

        writing = asyncio.ensure_future(write())
        await break_things()
        await asyncio.wait_for(writing, 300)
        world.objects.faults = StoreFaults()
        assert await values(cluster, where) == expected

    world.run(story())


def test_leader_reads_referenced_records_that_need_a_schema() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await several(world, configs={"sparklog.schema.validation": "true"})
        refused = await cluster.produce(where, referring(staged(world, where, b"\0\0\0\0\1")))
        assert isinstance(refused, UnknownSchema)
        good, bare = staged(world, where, None, None), staged(world, where, None, b"bare")
        refused = await cluster.produce(where, referring(good, bare))
        assert isinstance(refused, InvalidRecord)
        assert refused.record_errors == ((3, "the value carries no id of a schema"),)
        assert await cluster.produced(where, referring(good)) == 0
        assert await values(cluster, where) == [None, None]
        assert isinstance(await cluster.produce(where, batch(b"\0\0\0\0\1")), InvalidRecord)

    world.run(story())
