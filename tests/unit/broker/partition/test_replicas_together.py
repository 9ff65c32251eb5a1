"""Several brokers' replicas: replication, in-sync replicas, failover, divergence, handing over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.broker.partition.follower import FollowerPartition
from sparklog.broker.partition.tail import PartitionTail
from sparklog.broker.produce.request import ProducedPartition
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.cluster.controller import election
from sparklog.cluster.metadata.image import PartitionState
from sparklog.core.errors import NotServing, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.tail.tail import EpochEnd, Tail
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import Broker, ReplicaCluster, batch, together
from tests.harness.wire_batches import produced

IN_MEMORY = {"sparklog.commit": "memory"}


def state_of(cluster: ReplicaCluster, where: PartitionId) -> PartitionState:
    state = cluster.metadata.image.partition(where)
    assert state is not None
    return state


def held(broker: Broker, where: PartitionId) -> Tail:
    return broker.replicas.roles.replicas[where].held.tail


async def values(cluster: ReplicaCluster, where: PartitionId) -> list[bytes]:
    return list((await asyncio.wait_for(cluster.consumed(where), 60)).values())


def test_followers_copy_the_tail_and_release_flushed_records() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, configs={"flush.ms": "2000"})
        for n in range(5):
            await cluster.produced(where, batch(b"%d" % n))
        leader = held(cluster.brokers[1], where)
        for broker_id in (2, 3):
            assert held(cluster.brokers[broker_id], where).end_offset == leader.end_offset
            assert held(cluster.brokers[broker_id], where).size_bytes == leader.size_bytes > 0
        await asyncio.sleep(6)
        for broker in cluster.brokers.values():
            assert held(broker, where).size_bytes == 0
            assert held(broker, where).start_offset == leader.end_offset
            assert broker.replicas.budget.used_bytes == 0

    world.run(story())


def test_in_memory_mode_two_brokers_acknowledge_without_the_storage() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2, IN_MEMORY)
        await cluster.produced(where, batch(b"a"))
        world.objects.faults = replace(world.objects.faults, lost_request=1.0)
        before = world.loop.time()
        assert isinstance(await cluster.produce(where, batch(b"b")), ProducedPartition)
        assert world.loop.time() - before < 0.05

    world.run(story())


@pytest.mark.parametrize("mode", ["storage", "memory"])
def test_acks_1_waits_for_the_wal_or_one_follower(mode: str) -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 3, {"sparklog.commit": mode})
        await cluster.produced(where, batch(b"a"))
        calm, away = world.objects.faults, replace(world.objects.faults, lost_request=1.0)

        cluster.brokers[2].process.pause()
        world.objects.faults = away
        assert isinstance(
            await cluster.produce(where, batch(b"one follower"), acks=1), ProducedPartition
        )
        cluster.brokers[3].process.pause()
        alone = await cluster.produce(where, batch(b"nobody"), acks=1, timeout_ms=3_000)
        assert isinstance(alone, Unavailable)
        world.objects.faults = calm
        assert isinstance(
            await cluster.produce(where, batch(b"the wal"), acks=1), ProducedPartition
        )
        assert cluster.leader(where).replicas.roles.leader(where).high_watermark == 1 + (
            cluster.stored(where).end_offset
        ), "followers that are in sync have nothing of it, so consumers are not shown it"

    world.run(story())


def test_in_memory_mode_a_leader_alone_waits_for_the_storage() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2, IN_MEMORY)
        await cluster.produced(where, batch(b"a"))
        cluster.kill(2)
        await cluster.fence(2)
        await asyncio.sleep(0.1)
        world.objects.faults = replace(world.objects.faults, lost_request=1.0)
        late = await cluster.produce(where, batch(b"b"), timeout_ms=2_000)
        assert isinstance(late, Unavailable)

    world.run(story())


def test_last_broker_to_leave_waits_until_its_partitions_are_flushed() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2, {})
        await cluster.produced(where, batch(b"a"))
        leader = state_of(cluster, where).leader
        for broker_id, left in ((leader, []), (3 - leader, [where])):
            incarnation = cluster.brokers[broker_id].incarnation
            leave = partial(election.begin_shutdown, broker_id=broker_id, incarnation=incarnation)
            await cluster.metadata.decide(leave)
            assert election.leaderless_without(cluster.metadata.image, leader, ()) == left
        leaving = cluster.brokers[leader]
        drained = await leaving.process.spawn(leaving.replicas.drain())
        assert election.leaderless_without(cluster.metadata.image, leader, drained) == []

    world.run(story())


def test_in_memory_mode_a_leaving_broker_flushes_its_own_records() -> None:
    world = World()

    async def story() -> None:
        configs = {**IN_MEMORY, "min.insync.replicas": "2", "flush.ms": "500"}
        cluster, where = await together(world, 3, configs)
        await cluster.produced(where, batch(b"a"))
        await cluster.fence(3)
        cluster.kill(3)
        await asyncio.sleep(1)
        await cluster.start(3)  # joins again in a while, and has nothing yet
        world.objects.faults = replace(world.objects.faults, lost_request=1.0)
        assert isinstance(await cluster.produce(where, batch(b"b")), ProducedPartition)
        leaving = cluster.brokers[2]
        who = 2, leaving.incarnation
        await cluster.metadata.decide(lambda image: election.begin_shutdown(image, *who))
        cluster.kill(1)
        await cluster.fence(1)
        assert state_of(cluster, where).leader == 2
        assert election.only_holds(cluster.metadata.image, 2, ()) == [where]
        world.objects.faults = StoreFaults()
        drained = await leaving.process.spawn(leaving.replicas.drain())
        assert election.only_holds(cluster.metadata.image, 2, drained) == []
        await cluster.metadata.decide(
            lambda image: election.controlled_shutdown(image, *who, drained)
        )
        cluster.kill(2)
        assert state_of(cluster, where).leader == 3
        assert await values(cluster, where) == [b"a", b"b"]

    world.run(story())


def test_leaving_broker_is_not_elected_when_storage_has_all() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 3)
        await cluster.produced(where, batch(b"a"))
        who = 2, cluster.brokers[2].incarnation
        await cluster.metadata.decide(lambda image: election.begin_shutdown(image, *who))
        cluster.kill(1)
        await cluster.fence(1)
        assert state_of(cluster, where).leader == 3
        assert await values(cluster, where) == [b"a"]

    world.run(story())


@pytest.mark.parametrize("mode", ["storage", "memory"])
def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(mode: str) -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, configs={"sparklog.commit": mode})
        for n in range(30):
            await cluster.produced(where, batch(b"%d" % n, producer_id=3, sequence=n))
        cluster.kill(1)
        await cluster.fence(1)
        killed_at = world.loop.time()
        assert state_of(cluster, where).leader == 2
        await cluster.produced(where, batch(b"30", producer_id=3, sequence=30))
        assert world.loop.time() - killed_at < 1
        assert await values(cluster, where) == [b"%d" % n for n in range(31)]
        await asyncio.sleep(1)
        assert not state_of(cluster, where).recovering
        assert set(state_of(cluster, where).isr) == {2, 3}

    world.run(story())


def test_in_memory_mode_records_of_followers_survive_the_leader() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2, IN_MEMORY)
        await cluster.produced(where, batch(b"a"))
        cluster.world.objects.cut_off.add("host-1")
        for n in range(5):
            await cluster.produced(where, batch(b"memory-%d" % n))
        cluster.kill(1)
        await cluster.fence(1)
        assert await values(cluster, where) == [b"a", *(b"memory-%d" % n for n in range(5))]

    world.run(story())


def test_storage_alone_is_enough_when_every_broker_dies() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world)
        for n in range(10):
            await cluster.produced(where, batch(b"%d" % n))
        for broker_id in (1, 2, 3):
            cluster.kill(broker_id)
        for broker_id in (2, 3, 1):
            await cluster.fence(broker_id)
        assert state_of(cluster, where).leader == -1
        await cluster.start(3)
        cluster.elect(where)
        assert await values(cluster, where) == [b"%d" % n for n in range(10)]

    world.run(story())


def test_a_chain_of_leaders_that_die_while_they_recover_loses_nothing() -> None:
    world = World(seed=11)

    async def story() -> None:
        cluster, where = await together(world, 5)
        for n in range(10):
            await cluster.produced(where, batch(b"%d" % n))
        for broker_id in (1, 2, 3):
            cluster.kill(broker_id)
            await cluster.fence(broker_id)
            await asyncio.sleep(0.03)
        assert state_of(cluster, where).leader == 4
        await cluster.produced(where, batch(b"10"))
        assert await values(cluster, where) == [b"%d" % n for n in range(11)]

    world.run(story())


def test_paused_leader_wakes_deposed_and_loses_unacknowledged_records() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world)
        await cluster.produced(where, batch(b"a"))
        old = cluster.brokers[1]
        old.process.pause()
        pending = old.process.spawn(
            old.replicas.produce_service.produce({where: batch(b"lost")}, -1, 60_000)
        )
        await cluster.fence(1)
        await cluster.produced(where, batch(b"b"))
        old.process.resume()
        refused = await pending
        assert isinstance(refused[where], NotServing)
        assert await values(cluster, where) == [b"a", b"b"]

    world.run(story())


def test_follower_that_diverged_continues_from_the_flushed_end() -> None:
    world = World()

    async def story() -> None:
        flushing = {"flush.ms": "1000"}
        cluster, where = await together(world, 3, flushing, replica_lag_time_max_ms="4000")
        await cluster.produced(where, batch(b"a"))
        await asyncio.sleep(3)
        second, third = cluster.brokers[2], cluster.brokers[3]
        second.process.pause()
        world.objects.faults = replace(world.objects.faults, lost_request=1.0)
        lost = asyncio.ensure_future(cluster.produce(where, batch(*[b"lost"] * 30)))
        await asyncio.sleep(0.5)
        third.process.pause()
        cluster.kill(1)
        lost.cancel()
        world.objects.faults = StoreFaults()
        second.process.resume()
        await cluster.fence(1)
        assert state_of(cluster, where).leader == 2
        await cluster.produced(where, batch(b"b"), acks=1)
        await asyncio.sleep(12)
        flushed = held(second, where).start_offset
        assert held(second, where).size_bytes == 0, "all is flushed, and nobody writes"
        assert held(third, where).start_offset < flushed < held(third, where).end_offset
        third.process.resume()
        await asyncio.sleep(3)
        assert held(third, where).end_offset == flushed
        assert 3 in state_of(cluster, where).isr
        assert await values(cluster, where) == [b"a", b"b"]

    world.run(story())


def test_lagging_follower_leaves_the_isr_and_rejoins() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2, replica_lag_time_max_ms="4000")
        await cluster.produced(where, batch(b"a"))
        cluster.brokers[2].process.pause()
        task = asyncio.ensure_future(cluster.produce(where, batch(b"b"), timeout_ms=60_000))
        await asyncio.sleep(3)
        assert not task.done()
        assert isinstance(await task, ProducedPartition)
        assert state_of(cluster, where).isr == (1,)
        cluster.brokers[2].process.resume()
        await asyncio.sleep(8)
        assert set(state_of(cluster, where).isr) == {1, 2}
        await cluster.produced(where, batch(b"c"))
        assert (
            held(cluster.brokers[2], where).end_offset == held(cluster.brokers[1], where).end_offset
        )

    world.run(story())


def test_restarted_follower_rejoins_the_isr_once_it_has_all_records() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2, IN_MEMORY)
        for n in range(5):
            await cluster.produced(where, batch(b"%d" % n))
        cluster.kill(2)
        await cluster.fence(2)
        await cluster.start(2)
        await asyncio.sleep(3)
        assert set(state_of(cluster, where).isr) == {1, 2}
        assert (
            held(cluster.brokers[2], where).size_bytes == held(cluster.brokers[1], where).size_bytes
        )

    world.run(story())


def test_fetches_of_an_earlier_incarnation_do_not_count() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 2, IN_MEMORY)
        await cluster.produced(where, batch(b"a"))
        led = cluster.brokers[1].replicas.roles.leader(where)
        end = led.tail.end_offset
        cluster.kill(2)
        stale = led.follower_epochs[2]
        await cluster.fence(2)
        await asyncio.sleep(0.1)
        led.follower_fetched(2, stale, end, 10**9)
        assert led.leadership.maximal_isr == {1}

    world.run(story())


def test_a_led_partition_is_handed_over_without_losing_a_beat() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world)

        async def client() -> list[int]:
            return [await cluster.produced(where, batch(b"%d" % n)) for n in range(100)]

        producing = asyncio.ensure_future(client())
        await asyncio.sleep(0.5)
        state = state_of(cluster, where)
        moved = replace(state, next_leader=3, partition_epoch=state.partition_epoch + 1)
        cluster.metadata.append([moved.record(where.topic_id, where.partition)])
        await producing
        assert state_of(cluster, where).leader == 3
        assert state_of(cluster, where).wals == ()
        assert await values(cluster, where) == [b"%d" % n for n in range(100)]

    world.run(story())


def test_drained_broker_leaves_nothing_to_recover() -> None:
    world = World()

    async def story() -> None:
        cluster, where = await together(world, 1)
        for n in range(5):
            await cluster.produced(where, batch(b"%d" % n))
        broker = cluster.brokers[1]
        drained = await broker.replicas.drain()
        assert drained == {where}
        assert isinstance(await cluster.produce(where, batch(b"late")), NotServing)
        image = cluster.metadata.image
        records = election.controlled_shutdown(image, 1, broker.incarnation, drained)
        cluster.metadata.append(records)
        await broker.replicas.hand_back(election.handed_back(records))
        assert not cluster.stored(where).is_led
        await broker.replicas.stop()
        await cluster.start(2)
        state = state_of(cluster, where)
        assert (state.leader, state.wals) == (-1, ())
        cluster.elect(where)
        assert await values(cluster, where) == [b"%d" % n for n in range(5)]

    world.run(story())


def test_a_slow_store_holds_up_replication_of_nothing() -> None:
    world = World()
    world.objects.faults = StoreFaults(latency_s=0.4)

    async def story() -> None:
        cluster, where = await together(world, 2)
        await cluster.produced(where, batch(b"a"))
        results = await asyncio.gather(
            *(cluster.produce(where, batch(b"%d" % n)) for n in range(50))
        )
        assert all(isinstance(r, ProducedPartition) for r in results)
        fetched = await cluster.fetch(where, 1)
        assert isinstance(fetched, FetchedPartition)
        assert fetched.high_watermark == held(cluster.brokers[2], where).end_offset

    world.run(story())


def test_take_over_of_many_partitions_reads_the_sealed_log_once() -> None:
    world = World()

    async def story() -> None:
        cluster = ReplicaCluster(world)
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        wheres = cluster.create([1, 2], 40)
        await asyncio.gather(*(cluster.produced(w, batch(b"%d" % w.partition)) for w in wheres))
        cluster.kill(1)
        await cluster.fence(1)
        before = world.objects.requests
        found = await asyncio.gather(*(values(cluster, w) for w in wheres))
        assert found == [[b"%d" % w.partition] for w in wheres]
        # Of each partition: the log's end, a flush, a mark; of the sealed log: once for all.
        assert world.objects.requests - before < 40 * 16
        await asyncio.sleep(2)
        assert not any(state_of(cluster, w).recovering for w in wheres)

    world.run(story())


class TestDivergence:
    """Records that a follower truncates."""

    def followed(self, *epochs: int) -> FollowerPartition:
        """Return a follower whose record n was sent by the leader of epoch epochs[n]."""
        tail = PartitionTail(Tail(0), MemoryBudget(1 << 20))
        for offset, epoch in enumerate(epochs):
            tail.append_followed(produced(base_offset=offset, leader_epoch=epoch))
        return FollowerPartition(PartitionId("t" * 22, 0), "t", 1, 9, tail, 0.2)

    def test_follower_truncates_records_that_differ_from_the_leader(self) -> None:
        follower = self.followed(1, 1, 2, 2)
        follower.diverged(EpochEnd(2, 3))
        assert (follower.fetch_offset, follower.last_fetched_epoch) == (3, 2)

    def test_a_whole_epoch_that_the_leader_does_not_know(self) -> None:
        follower = self.followed(1, 1, 3, 3)
        follower.diverged(EpochEnd(2, 4))
        assert (follower.fetch_offset, follower.last_fetched_epoch) == (2, 1)

    def test_errors_without_end_make_pauses_of_one_length(self) -> None:
        follower = self.followed(1)
        for _ in range(2_000):
            follower.pause(100.0)
        assert follower.paused_until == 100.2

    def test_follower_truncates_everything_without_a_common_epoch(self) -> None:
        follower = self.followed(1, 1, 1)
        follower.held.trim(2)
        follower.diverged(EpochEnd(1, 1))
        assert (follower.fetch_offset, follower.last_fetched_epoch) == (0, -1)
        follower.flushed(2)
        assert follower.fetch_offset == 2
