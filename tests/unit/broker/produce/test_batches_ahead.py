"""A batch that comes ahead of an earlier one of its producer waits until that one cannot come."""

from __future__ import annotations

import asyncio

from sparklog.broker.produce.rejected_batches import STRAGGLER_S
from sparklog.broker.produce.request import ProducedPartition
from sparklog.core.errors import (
    NotServing,
    OutOfOrderSequence,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import TOPIC, alone, batch, together


def test_batch_is_not_appended_before_an_earlier_rejected_one() -> None:
    world = World()

    async def story() -> None:
        world.objects.faults = StoreFaults(latency_s=0.1)
        cluster, where = await alone(world)
        sent = [batch(b"%d" % n, producer_id=5, sequence=n) for n in range(3)]
        await asyncio.sleep(0.1)
        # The leader still recovers: the first is in a hurry, the second waits for it to serve.
        first = asyncio.ensure_future(cluster.produce(where, sent[0], timeout_ms=50))
        second = asyncio.ensure_future(cluster.produce(where, sent[1]))
        assert isinstance(await first, NotServing)
        assert isinstance(await second, NotServing)
        for data in sent:
            assert isinstance(await cluster.produce(where, data), ProducedPartition)
        assert list((await cluster.consumed(where)).values()) == [b"0", b"1", b"2"]

    world.run(story())


def test_first_leader_accepts_any_first_sequence_of_a_producer() -> None:
    """As one does whose topic was deleted and created again: librdkafka keeps counting."""
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        for n in (7, 8):
            later = batch(b"%d" % n, producer_id=5, sequence=n)
            assert isinstance(await cluster.produce(where, later), ProducedPartition)
        gap = batch(b"10", producer_id=5, sequence=10)
        assert isinstance(await cluster.produce(where, gap), OutOfOrderSequence)
        assert list((await cluster.consumed(where)).values()) == [b"7", b"8"]

    world.run(story())


def test_later_leader_of_an_empty_partition_requires_sequence_0() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2)
        leader = cluster.leader(where)
        cluster.kill(leader.broker_id)
        await cluster.fence(leader.broker_id)
        await asyncio.sleep(1)
        later = batch(b"1", producer_id=5, sequence=1)
        assert isinstance(await cluster.produce(where, later), NotServing)
        await asyncio.sleep(STRAGGLER_S + 1)
        assert isinstance(await cluster.produce(where, later), OutOfOrderSequence)
        await cluster.produced(where, batch(b"another's"))
        await cluster.produced(where, batch(b"goes on", producer_id=6, sequence=9))
        assert list((await cluster.consumed(where)).values()) == [b"another's", b"goes on"]

    world.run(story())


def test_batch_waits_for_one_that_came_before_its_topic_was_known() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await alone(world)
        sent = [batch(b"%d" % n, producer_id=5, sequence=n) for n in range(3)]
        named = PartitionId(TOPIC, where.partition)
        leader = cluster.leader(where).replicas
        leader.produce_service.refused(named, sent[0], UnknownTopicOrPartition("not heard of yet"))
        assert isinstance(await cluster.produce(where, sent[1]), NotServing)
        for data in sent:
            assert isinstance(await cluster.produce(where, data), ProducedPartition)
        assert list((await cluster.consumed(where)).values()) == [b"0", b"1", b"2"]

    world.run(story())


def test_new_leader_waits_for_batches_at_the_previous_leader() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2)
        await cluster.produced(where, batch(b"0", producer_id=5, sequence=0))
        leader = cluster.leader(where)
        cluster.kill(leader.broker_id)
        await cluster.fence(leader.broker_id)
        await cluster.produced(where, batch(b"another's"))
        known = [batch(b"%d" % n, producer_id=5, sequence=n) for n in (1, 2)]
        unknown = [batch(b"%d" % (10 + n), producer_id=6, sequence=n) for n in range(2)]
        for missing, early in (known, unknown):
            assert isinstance(await cluster.produce(where, early), NotServing)
            await cluster.produced(where, missing)
            await cluster.produced(where, early)
        values = list((await cluster.consumed(where)).values())
        assert values == [b"0", b"another's", b"1", b"2", b"10", b"11"]

        lost = batch(b"later", producer_id=5, sequence=9)
        assert isinstance(await cluster.produce(where, lost), NotServing)
        await asyncio.sleep(STRAGGLER_S + 1)  # what it waits for is lost then
        assert isinstance(await cluster.produce(where, lost), OutOfOrderSequence)

    world.run(story())


def test_batch_after_a_finally_rejected_one_is_out_of_order_at_once() -> None:
    """Clients that leave out what was too large would send the next one until they give up."""
    world = World()

    async def story() -> None:
        cluster, where = await alone(world, {"max.message.bytes": "1000"})
        values = (b"first", b"large" * 1000, b"next")
        sent = [batch(value, producer_id=7, sequence=n) for n, value in enumerate(values)]
        answers = [await cluster.produce(where, data) for data in sent]
        assert [type(one) for one in answers] == [
            ProducedPartition,
            RecordTooLarge,
            OutOfOrderSequence,
        ]

    world.run(story())
