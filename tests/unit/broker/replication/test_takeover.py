"""Cost of a take-over: requests to the store, one after the other and in all."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from sparklog.broker.partition.config import TopicRules
from sparklog.broker.partition.recovering import RecoveringPartition
from sparklog.broker.partition.tail import PartitionTail
from sparklog.broker.replication import recovery as takeover
from sparklog.broker.replication.recovery import INTERNAL_BESIDE_OTHERS
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.cluster.metadata.image import PartitionState
from sparklog.core.types import PartitionId
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.leader_append import take_leadership
from sparklog.log.tail.batch_validator import check_replicated
from sparklog.log.tail.tail import Tail
from sparklog.log.tail.to_segment import FlushBuilder, build_flush
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.live_cluster import LiveCluster
from tests.harness.replica_cluster import ReplicaCluster, batch
from tests.harness.wire_batches import placed

WITHIN_S = 30.0
ROUND_TRIP_S = 0.02
"""Of a request in the simulated store, on average."""
REQUESTS_PER_PARTITION = 6
"""Manifests, the chain, its footers, manifests again; the leader's fence, manifests once more."""
ROUND_TRIPS = 12
"""Three for the sealed log, those of a partition, and a margin for slow requests."""
SLOW_REQUEST_S = 0.06
UNFLUSHED_WINDOWS = 20
SUCCEEDED_WITHIN_S = 2.0
READ_EARLY_S = 0.4
LAST_SUCCEEDED_WITHIN_S = 2.5
"""Less than 1 s is for the wait for the other two to show themselves in the metadata log."""


@dataclass
class Cost:
    """Of a take-over."""

    requests: int
    took_s: float


def take_over(partitions: int, records: int = 0, brokers: int = 2) -> Cost:
    """Kill the leader of `partitions` partitions, of which nothing is flushed.

    Of two brokers the other is left alone in sync, as a stand-in would be, and reads the dead one's
    write-ahead log.
    """
    world = World()

    async def story() -> Cost:
        cluster = ReplicaCluster(world)
        for broker_id in range(1, brokers + 1):
            await cluster.start(broker_id)
        created = cluster.create(list(range(1, brokers + 1)), partitions)
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
    while (
        not all(r.led for where, r in replicas.roles.replicas.items())
        or not replicas.roles.replicas
    ):
        assert cluster.world.loop.time() < deadline_s
        await asyncio.sleep(0.001)
    assert set(replicas.roles.replicas) == set(created)


def test_a_take_over_is_a_few_requests_one_after_the_other() -> None:
    assert take_over(1).took_s < ROUND_TRIPS * ROUND_TRIP_S


def test_recovery_reads_a_dead_brokers_log_once() -> None:
    few, many = take_over(1), take_over(20)
    assert few.requests < 2 * REQUESTS_PER_PARTITION
    assert many.requests - few.requests == 19 * REQUESTS_PER_PARTITION


@pytest.mark.parametrize("records", [0, 3])
def test_take_over_of_many_partitions_takes_the_time_of_one(records: int) -> None:
    one, many = take_over(1, records), take_over(20, records)
    assert many.took_s < 1.5 * one.took_s


def test_take_over_of_written_partitions_costs_a_flush_each() -> None:
    # A put and a look at manifests, however many records; and each window of the log is read once.
    few, many = take_over(1, 3), take_over(11, 3)
    assert many.requests - few.requests <= 10 * (REQUESTS_PER_PARTITION + 2 + 3)


def test_in_sync_replica_reads_no_write_ahead_log() -> None:
    none, few, many = (take_over(1, records, brokers=3).requests for records in (0, 1, 9))
    assert none == REQUESTS_PER_PARTITION
    assert few == many == none + 2, "a flush: a put, and a look at manifests"


async def three(world: World) -> tuple[ReplicaCluster, PartitionId]:
    """Three brokers in sync, the first of which leads a partition with a record."""
    cluster = ReplicaCluster(world)
    for broker_id in (1, 2, 3):
        await cluster.start(broker_id)
    (where,) = cluster.create([1, 2, 3])
    await cluster.produced(where, batch(b"first"))
    return cluster, where


def test_end_of_an_epoch_is_known_once_a_new_leader_has_recovered() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await three(world)
        cluster.kill(1)
        await cluster.fence(1)
        state = cluster.metadata.image.partition(where)
        assert state is not None
        replicas = cluster.leader(where).replicas
        await asyncio.sleep(0.001)  # until it has the image; a request takes longer
        assert isinstance(replicas.roles.find(where), RecoveringPartition)
        end = replicas.offset_lookup.end_of_epoch(where, state.leader_epoch, 0)
        assert await end == (0, 1)

    world.run(story())


def test_replica_with_too_few_records_reads_the_write_ahead_log() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await three(world)
        held = cluster.brokers[2].replicas.roles.replicas[where].held
        held.reset(held.tail.end_offset)
        await cluster.produced(where, batch(b"second"))
        cluster.kill(1)
        await cluster.fence(1)
        assert list((await cluster.consumed(where)).values()) == [b"first", b"second"]

    world.run(story())


def test_fence_of_a_deposed_leader_amid_a_take_over_ends_uncommitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    def draft_slowly(layout: Any, *arguments: Any, **settings: Any) -> FlushBuilder:
        """Encode, while one that was elected with less in memory marks the log."""
        if not marked:
            view = cluster.stored(PartitionId(layout.topic_id, layout.partition))
            marked.append(run(take_leadership(view, 1, "d" * 32), world.objects.objects))
        return build_flush(layout, *arguments, **settings)

    marked: list[object] = []
    monkeypatch.setattr(takeover, "build_flush", draft_slowly)
    cluster = ReplicaCluster(world)

    async def story() -> None:
        for broker_id in (1, 2, 3, 4):
            await cluster.start(broker_id)
        (where,) = cluster.create([1, 3, 2, 4])
        await until_led(cluster, [where], 1)
        await asyncio.sleep(1)
        cluster.kill(1)
        cluster.kill(3)
        held = cluster.brokers[2].replicas.roles.replicas[where].held
        late = placed(batch(b"never committed"), held.tail.end_offset, 0)
        (checked,) = check_replicated(late)
        held.append_followed(checked)
        await cluster.fence(1)
        await cluster.fence(3)
        state = cluster.metadata.image.partition(where)
        assert state is not None
        assert (state.leader, state.leader_epoch) == (2, 2)
        begun_s = world.loop.time()
        await cluster.produced(where, batch(b"second"))
        assert world.loop.time() - begun_s < takeover.RETRY_LONGEST_S, "it is no damage"
        assert list((await cluster.consumed(where)).values()) == [b"second"]

    world.run(story())
    assert marked


def test_sealed_log_is_released_when_no_partition_needs_it() -> None:
    world = World()

    def role(partition: int, wal: str) -> RecoveringPartition:
        where, layout = PartitionId("i" * 22, partition), PartitionLayout("t", "i" * 22, partition)
        state = PartitionState((2,), (2,), leader=2, leader_epoch=2, recovering=True, wals=(wal,))
        held = PartitionTail(Tail(0), MemoryBudget(1 << 20))
        return RecoveringPartition(where, layout, state, held, TopicRules.of({}, 1000))

    async def story() -> None:
        recovery = takeover.LeaderRecovery(world.environment())
        damaged, whole = role(0, f"1-{'a' * 32}"), role(1, f"1-{'b' * 32}")
        world.objects.objects.put(damaged.layout.key(damaged.layout.chain_name(0)), b"damaged")
        stuck = asyncio.ensure_future(recovery.recover(damaged))
        assert await recovery.recover(whole) is not None
        await asyncio.sleep(1)
        assert damaged.damage is not None
        assert list(recovery._sealed) == [*damaged.wals]
        # While it waits to be tried again, internal partitions are not held up for its sake.
        async with asyncio.timeout(1), AsyncExitStack() as places:
            for _ in range(INTERNAL_BESIDE_OTHERS + 1):
                await places.enter_async_context(recovery._queue.slot(internal=True))
        damaged.retire()
        assert await stuck is None
        assert not recovery._sealed

    world.run(story())


def test_store_outage_is_logged_for_few_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        await cluster.start(1)
        world.objects.faults = StoreFaults(refused=1.0)
        wheres = cluster.create([1], 50)
        await asyncio.sleep(20)
        told = [line for line in caplog.messages if "recovery interrupted" in line]
        assert 1 < len(told) < 10
        assert "suppressed_before=49" in told[-1]
        world.objects.faults = StoreFaults()
        await until_led(cluster, wheres, 1)

    world.run(story())


def test_log_has_one_line_for_many_partitions_and_details_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    caplog.set_level(logging.DEBUG, "sparklog.broker.node.roles")

    def lines(level: int) -> list[str]:
        return [
            r.getMessage()
            for r in caplog.records
            if r.name == "sparklog.broker.node.roles" and r.levelno == level
        ]

    async def story() -> None:
        cluster = ReplicaCluster(world)
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        wheres = cluster.create([1, 2], 40)
        await until_led(cluster, wheres, 1)
        await asyncio.sleep(1)  # in simulated time: the notes gather
        five = "events-0, events-1, events-2, events-3, events-4"
        assert f"following 40 partitions epoch 0: {five} and 35 more" in lines(logging.INFO)
        led = [line for line in lines(logging.INFO) if line.startswith("leading")]
        assert 1 <= len(led) <= 3
        assert sum(line.startswith("leading") for line in lines(logging.DEBUG)) == 40
        caplog.clear()
        await cluster.fence(1)
        await until_led(cluster, wheres, 2)
        await asyncio.sleep(1)  # in simulated time: the notes gather
        told = lines(logging.INFO)
        assert f"taking over 40 partitions epoch 1: {five} and 35 more" in told
        assert any(line.startswith("giving up (this incarnation is deposed) 40") for line in told)

    world.run(story())


def test_killed_leader_has_a_successor_in_2_s_over_a_slow_store() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        cluster.objects.faults = StoreFaults(latency_s=SLOW_REQUEST_S / 2)
        await cluster.begin(3, flush_ms="60000")
        for _ in range(UNFLUSHED_WINDOWS):
            await cluster.send(b"x")
        killed_s = cluster.loop.time()
        cluster.kill(await cluster.leader("t", 0))
        await cluster.send(b"x")
        assert cluster.loop.time() - killed_s < SUCCEEDED_WITHIN_S

    cluster.run(story())


def test_last_of_three_reads_windows_before_it_takes_over() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        cluster.objects.faults = StoreFaults(latency_s=SLOW_REQUEST_S / 2)
        await cluster.begin(3, flush_ms="60000")
        for _ in range(UNFLUSHED_WINDOWS):
            await cluster.send(b"x")
        leader = await cluster.leader("t", 0)
        last = next(one for one in cluster.nodes if one != leader)
        roles = cluster.nodes[last].node.current_incarnation.replicas.roles
        killed_s = cluster.loop.time()
        for one in [one for one in cluster.nodes if one != last]:
            cluster.kill(one)
        await asyncio.sleep(READ_EARLY_S)
        (early,) = (e for wal, e in roles._takeover._early.items() if wal.broker_id == leader)
        assert len(early.result()) > UNFLUSHED_WINDOWS
        image = cluster.nodes[last].node.metadata.image
        assert len(image.live_brokers()) == 3
        await cluster.send(b"x")
        assert cluster.loop.time() - killed_s < LAST_SUCCEEDED_WITHIN_S
        assert len(await cluster.read()) == UNFLUSHED_WINDOWS + 1

    cluster.run(story())
