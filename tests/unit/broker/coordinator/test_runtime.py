"""Running coordinators' shards on led partitions: a toy shard on real replicas."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sparklog.broker.coordinator.runtime import CoordinatorRuntime
from sparklog.broker.runtime.environment import TaskScope
from sparklog.coordinator.effects import (
    CoordinatorRecord,
    CoordinatorResult,
    ProducerIdentity,
    Token,
)
from sparklog.core.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidRequest,
    NotCoordinator,
    RecordTooLarge,
    SparklogError,
    TransactionCoordinatorFenced,
)
from sparklog.core.types import PartitionId
from sparklog.protocol.records.control import EndTransactionMarker
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World
from tests.harness.replica_cluster import TOPIC, Broker, ReplicaCluster

COMMIT, ABORT = EndTransactionMarker(True, 1), EndTransactionMarker(False, 1)


class Sums:
    """Adds numbers to names; a transaction's numbers when it commits. Names may run out."""

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition, self.leader_epoch = partition, leader_epoch
        self.sums: dict[bytes, int] = {}
        self.pending: dict[int, list[tuple[bytes, int]]] = {}
        self.deadlines: dict[bytes, int] = {}
        self.replayed = 0
        self.served = False

    def replay(
        self,
        record: CoordinatorRecord,
        *,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        transactional: bool,
    ) -> None:
        self.replayed += 1
        if transactional:
            assert record.value is not None
            self.pending.setdefault(producer_id, []).append((record.key, int(record.value)))
        elif record.value is None:
            self.sums.pop(record.key, None)
        else:
            self.sums[record.key] = int(record.value)

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        for key, number in self.pending.pop(producer_id, []):
            if commit:
                self.sums[key] = self.sums.get(key, 0) + number

    def loaded(self, now_ms: int) -> CoordinatorResult:
        self.served = True
        return CoordinatorResult()

    @property
    def next_deadline_ms(self) -> int | None:
        return min(self.deadlines.values(), default=None)

    def expire(self, now_ms: int) -> CoordinatorResult:
        gone = [key for key, at in self.deadlines.items() if at <= now_ms]
        for key in gone:
            del self.deadlines[key]
            self.sums.pop(key, None)
        return CoordinatorResult(tuple(CoordinatorRecord(key, None) for key in gone))

    def add(self, token: Token, key: bytes, number: int) -> CoordinatorResult:
        if number < 0:
            raise InvalidRequest("only up")
        self.sums[key] = self.sums.get(key, 0) + number
        record = CoordinatorRecord(key, b"%d" % self.sums[key])
        return CoordinatorResult((record,), ((token, self.sums[key]),))

    def add_when_committed(
        self, token: Token, key: bytes, number: int, producer: ProducerIdentity
    ) -> CoordinatorResult:
        self.pending.setdefault(producer.producer_id, []).append((key, number))
        record = CoordinatorRecord(key, b"%d" % number)
        return CoordinatorResult((record,), ((token, None),), transactional=producer)


class Coordinated:
    """Replicas of some brokers, and on each a runtime for their one topic."""

    def __init__(self, world: World, **settings: str) -> None:
        self.world = world
        self.cluster = ReplicaCluster(world, {k.replace("_", "."): v for k, v in settings.items()})
        self.runtimes: dict[int, CoordinatorRuntime[Sums]] = {}
        self.shards: list[Sums] = []

    async def start(self, broker_id: int) -> Broker:
        broker = await self.cluster.start(broker_id)

        def make(partition: int, leader_epoch: int) -> Sums:
            self.shards.append(Sums(partition, leader_epoch))
            return self.shards[-1]

        async def watch() -> None:
            runtime: CoordinatorRuntime[Sums] = CoordinatorRuntime(
                self.world.environment(f"host-{broker_id}"),
                self.cluster.metadata,
                TaskScope("coordinator", self.world.crashes.append),
                topic=TOPIC,
                broker_id=broker_id,
                make_shard=make,
                commit_timeout_s=5.0,
            )
            self.runtimes[broker_id] = runtime
            broker.replicas.watch(TOPIC, runtime)

        await broker.process.spawn(watch())
        return broker

    async def submit(self, broker_id: int, event: Any, **options: Any) -> Any:
        broker = self.cluster.brokers[broker_id]
        return await broker.process.spawn(self.runtimes[broker_id].submit(0, event, **options))

    async def add(self, broker_id: int, key: bytes, number: int) -> Any:
        return await self.submit(broker_id, lambda shard, token, _: shard.add(token, key, number))

    async def added(self, broker_id: int, key: bytes, number: int) -> Any:
        """Add, once the broker is the coordinator."""
        while True:
            try:
                return await self.add(broker_id, key, number)
            except (CoordinatorLoading, NotCoordinator, CoordinatorNotAvailable):
                await asyncio.sleep(0.05)

    async def sums(self, broker_id: int) -> dict[bytes, int]:
        def read(shard: Sums, token: Token, now_ms: int) -> CoordinatorResult:
            return CoordinatorResult(replies=((token, dict(shard.sums)),))

        found: dict[bytes, int] = await self.submit(broker_id, read)
        return found


def breaks(shard: Sums, token: Token, now_ms: int) -> CoordinatorResult:
    """Happen by half."""
    shard.sums[b"a"] = 7
    raise ZeroDivisionError


async def coordinated(
    world: World, brokers: int = 1, flush_ms: int = 10_000
) -> tuple[Coordinated, PartitionId]:
    cluster = Coordinated(world)
    for broker_id in range(1, brokers + 1):
        await cluster.start(broker_id)
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": "20000",
        "flush.ms": str(flush_ms),
    }
    (where,) = cluster.cluster.create(list(range(1, brokers + 1)), 1, configs)
    return cluster, where


def test_answered_request_is_known_to_the_next_coordinator() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world, 2)
        with pytest.raises(NotCoordinator):
            await cluster.add(2, b"a", 1)
        assert await cluster.added(1, b"a", 1) == 1
        assert await cluster.add(1, b"a", 2) == 3
        cluster.cluster.kill(1)
        await cluster.cluster.fence(1)
        assert await cluster.added(2, b"b", 5) == 5
        assert await cluster.sums(2) == {b"a": 3, b"b": 5}

    world.run(story())


def test_a_log_of_many_small_segments_is_read_side_by_side() -> None:
    world = World()
    world.objects.faults = world.objects.calm = StoreFaults(latency_s=0.05)

    async def story() -> None:
        cluster, where = await coordinated(world, 2, flush_ms=0)
        for number in range(120):  # some are flushed together
            await cluster.added(1, b"%d" % number, number)
        await asyncio.sleep(2)
        assert len(cluster.cluster.stored(where).entries) >= 50
        cluster.cluster.kill(1)
        began_s = world.loop.time()
        await cluster.cluster.fence(1)
        await cluster.added(2, b"0", 1)
        # One after the other, the segments alone would take 50 x 0.1 s at least.
        assert world.loop.time() - began_s < 4
        assert len(await cluster.sums(2)) == 120

    world.run(story())


def test_events_that_come_together_are_one_append() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world)
        await cluster.added(1, b"first", 1)
        log = cluster.runtimes[1]._shards.contexts[0].log
        before = len(log._led.tail)
        answers = await asyncio.gather(*(cluster.add(1, b"%d" % (n % 7), 1) for n in range(140)))
        assert sorted(answers) == sorted(list(range(1, 21)) * 7)
        assert len(log._led.tail) - before == 1
        assert await cluster.sums(1) == {b"first": 1, **{b"%d" % n: 20 for n in range(7)}}

    world.run(story())


def test_a_reply_waits_for_the_commit_of_all_that_was_decided_before() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world)
        await cluster.added(1, b"a", 1)
        adding = asyncio.ensure_future(cluster.add(1, b"a", 1))
        reading = asyncio.ensure_future(cluster.sums(1))

        def beat(shard: Sums, token: Token, now_ms: int) -> CoordinatorResult:
            return CoordinatorResult(replies=((token, "here"),), at_once=True)

        assert await cluster.submit(1, beat) == "here"
        assert not adding.done()
        assert not reading.done()
        assert await reading == {b"a": 2}
        assert adding.done()

    world.run(story())


def test_coordinator_rejects_callers_and_keeps_state_during_an_outage() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world)
        await cluster.added(1, b"a", 1)
        calm = world.objects.faults
        world.objects.faults = replace(calm, lost_request=1.0)
        with pytest.raises(CoordinatorNotAvailable):
            await cluster.add(1, b"a", 1)
        world.objects.faults = calm
        await asyncio.sleep(10)
        assert await cluster.sums(1) == {b"a": 2}
        assert len(cluster.shards) == 1

    world.run(story())


def test_deposed_coordinator_fails_its_late_requests() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world, 2)
        await cluster.added(1, b"a", 1)
        deposed = cluster.cluster.brokers[1]
        cluster.cluster.metadata.listeners.pop(0)  # it gets no more metadata
        await cluster.cluster.fence(1)
        late = asyncio.ensure_future(cluster.add(1, b"a", 10))
        assert await cluster.added(2, b"a", 100) == 101
        with pytest.raises(SparklogError):
            await late
        assert deposed.fenced
        with pytest.raises(NotCoordinator):
            await cluster.add(1, b"a", 10)

    world.run(story())


def test_an_event_that_breaks_costs_a_look_at_the_log_and_no_more() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world)
        await cluster.added(1, b"a", 1)

        with pytest.raises(CoordinatorNotAvailable):
            await cluster.submit(1, breaks)
        assert await cluster.added(1, b"a", 1) == 2
        with pytest.raises(InvalidRequest):
            await cluster.add(1, b"a", -1)
        assert len(cluster.shards) == 2

    world.run(story())


@pytest.mark.parametrize("what", ["a bug", "too much for one batch"])
def test_shard_that_breaks_at_load_is_reloaded_with_growing_pauses(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    made = Sums.loaded

    def loaded(shard: Sums, now_ms: int) -> CoordinatorResult:
        if what == "a bug":
            raise ZeroDivisionError
        return CoordinatorResult((CoordinatorRecord(b"x" * 30_000, b"1"),))

    async def story() -> None:
        cluster, _ = await coordinated(world)
        await cluster.added(1, b"a", 1)
        monkeypatch.setattr(Sums, "loaded", loaded)
        with pytest.raises(CoordinatorNotAvailable):
            await cluster.submit(1, breaks)
        await asyncio.sleep(60.0)
        assert 10 < len(cluster.shards) < 25, "pauses of 50 ms to 5 s"
        with pytest.raises(CoordinatorLoading):
            await cluster.sums(1)
        monkeypatch.setattr(Sums, "loaded", made)
        assert await cluster.added(1, b"a", 1) == 2

    world.run(story())


def test_too_much_for_one_batch_is_refused_and_undone() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world)
        await cluster.added(1, b"a", 1)
        with pytest.raises(RecordTooLarge):
            await cluster.add(1, b"x" * 30_000, 1)
        assert await cluster.added(1, b"a", 1) == 2
        assert await cluster.sums(1) == {b"a": 2}

    world.run(story())


def test_expiry_by_time_is_written_to_the_log() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world, 2)
        await cluster.added(1, b"short", 1)
        await cluster.added(1, b"long", 1)

        def lives(shard: Sums, token: Token, now_ms: int) -> CoordinatorResult:
            shard.deadlines = {b"short": now_ms + 1000, b"long": now_ms + 60_000}
            return CoordinatorResult(replies=((token, None),))

        await cluster.submit(1, lives)
        await asyncio.sleep(0.9)
        assert await cluster.sums(1) == {b"short": 1, b"long": 1}
        await asyncio.sleep(0.5)
        assert await cluster.sums(1) == {b"long": 1}
        cluster.cluster.kill(1)
        await cluster.cluster.fence(1)
        await cluster.added(2, b"long", 1)
        assert await cluster.sums(2) == {b"long": 2}

    world.run(story())


def test_records_of_transactions_count_after_their_commit_marker() -> None:
    world = World()

    async def story() -> None:
        cluster, _ = await coordinated(world, 2)
        await cluster.added(1, b"a", 1)
        runtime = cluster.runtimes[1]

        async def pend(broker_id: int, number: int, who: ProducerIdentity) -> None:
            await cluster.submit(
                broker_id,
                lambda shard, token, _: shard.add_when_committed(token, b"a", number, who),
                producer=who,
            )

        def end(runtime: Any, who: ProducerIdentity, marker: EndTransactionMarker) -> Any:
            return runtime.end_transaction(0, who, marker)

        one, two, three = (ProducerIdentity(n, 0) for n in (1, 2, 3))
        plain = asyncio.ensure_future(cluster.add(1, b"b", 1))
        await asyncio.gather(pend(1, 10, one), pend(1, 100, two), pend(1, 1000, three))
        await plain
        await end(runtime, one, COMMIT)
        await end(runtime, two, ABORT)
        assert await cluster.sums(1) == {b"a": 11, b"b": 1}
        with pytest.raises(InvalidProducerEpoch):
            await end(runtime, ProducerIdentity(1, -1), COMMIT)
        with pytest.raises(TransactionCoordinatorFenced):
            await end(runtime, one, EndTransactionMarker(True, 0))
        cluster.cluster.kill(1)
        await cluster.cluster.fence(1)
        await cluster.added(2, b"c", 1)
        assert await cluster.sums(2) == {b"a": 11, b"b": 1, b"c": 1}
        await end(cluster.runtimes[2], ProducerIdentity(3, 1), COMMIT)
        assert (await cluster.sums(2))[b"a"] == 1011
        with pytest.raises(InvalidProducerEpoch):
            await pend(2, 1, three)

    world.run(story())
