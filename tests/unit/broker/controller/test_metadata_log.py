"""The metadata log: decided on the newest image, appended once, seen by everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparklog.broker.controller.metadata_log import DAMAGE_PAUSE_S, LAYOUT, MetadataLog
from sparklog.broker.runtime.async_store import ThreadedStore
from sparklog.cluster.log import Log
from sparklog.cluster.metadata import changes, snapshot
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import ControllerChangeRecord, ProducerIdsRecord, Record
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import OutcomeUnknown, TopicAlreadyExists, Unavailable
from sparklog.store.memory import MemoryStore
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World


def ids(how_many: int) -> Callable[[MetadataImage], list[Record]]:
    """Return a decision that takes `how_many` producer ids; it depends on the image alone."""
    return lambda image: [ProducerIdsRecord(1, 0, image.next_producer_id + how_many)]


def test_loser_of_a_metadata_race_decides_again() -> None:
    world = World()

    async def story() -> None:
        logs = [MetadataLog(world.environment()) for _ in range(4)]
        await asyncio.gather(*(log.open() for log in logs))
        await asyncio.gather(*(log.decide(ids(10)) for log in logs for _ in range(5)))
        images = [await log.catch_up() for log in logs]
        assert {i.next_producer_id for i in images} == {200}
        assert len({i.end_offset for i in images}) == 1

    world.run(story())


def test_concurrent_decisions_share_an_append_and_see_each_other() -> None:
    world = World()

    async def story() -> None:
        log = MetadataLog(world.environment())
        await log.open()
        names = [f"t{i}" for i in range(20)]

        def create(name: str) -> Callable[[MetadataImage], list[Record]]:
            return lambda image: changes.create_topic(image, name, name.ljust(22, "x"), 1, {})

        first = asyncio.ensure_future(log.decide(ids(1)))
        await asyncio.sleep(0)
        twice = [*names, "t7"]
        done = await asyncio.gather(*(log.decide(create(n)) for n in twice), return_exceptions=True)
        await first
        assert isinstance(done[-1], TopicAlreadyExists)
        assert sorted(log.image.topics) == sorted(names)
        segments = [k for k in world.keys if "/log/" in k]
        assert len(segments) == 2

    world.run(story())


def test_a_decision_that_is_refused_or_empty_appends_nothing() -> None:
    world = World()

    async def story() -> None:
        log = MetadataLog(world.environment())
        await log.open()

        def refuse(image: MetadataImage) -> list[Record]:
            raise TopicAlreadyExists("no")

        with pytest.raises(TopicAlreadyExists):
            await log.decide(refuse)
        assert (await log.decide(lambda image: [])).end_offset == 0
        assert not [k for k in world.keys if "/log/" in k]

    world.run(story())


def test_cancelled_decision_leaves_the_other_decisions() -> None:
    world = World()

    async def story() -> None:
        log = MetadataLog(world.environment())
        await log.open()
        tasks = [asyncio.ensure_future(log.decide(ids(1))) for _ in range(3)]
        await asyncio.sleep(0.001)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert tasks[0].cancelled()
        assert not tasks[1].cancelled()
        # The one that was cancelled may have been appended all the same.
        assert log.image.next_producer_id in (2, 3)

    world.run(story())


def test_metadata_changes_wake_waiters_and_reach_listeners_in_order() -> None:
    world = World()

    async def story() -> None:
        log, other = MetadataLog(world.environment()), MetadataLog(world.environment())
        await log.open()
        await other.open()
        told: list[int] = []
        log.subscribe(lambda image: told.append(image.end_offset))
        waiting = asyncio.ensure_future(log.beyond(1))
        await other.decide(ids(1))
        await log.catch_up()
        await asyncio.sleep(0)
        assert not waiting.done()
        await other.decide(ids(1))
        await log.catch_up()
        assert (await waiting).end_offset == 2
        await log.catch_up()
        assert told == [1, 2]

    world.run(story())


def test_callers_of_a_damaged_log_wait_at_the_same_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def story() -> None:
        log = MetadataLog(world.environment())
        await log.open()
        await log.decide(ids(1))
        next_name = LAYOUT.key(LAYOUT.chain_name(log.image.end_offset))
        world.objects.objects.put_if_absent(next_name, b"no segment")
        began_s = world.loop.time()
        asked = [*(log.catch_up() for _ in range(10)), *(log.decide(ids(1)) for _ in range(10))]
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(one, Unavailable) and "damaged" in str(one) for one in told)
        assert DAMAGE_PAUSE_S <= world.loop.time() - began_s < 2 * DAMAGE_PAUSE_S
        assert len([m for m in caplog.messages if "damaged" in m]) == 1

        pausing = asyncio.ensure_future(log.catch_up())
        await asyncio.sleep(DAMAGE_PAUSE_S / 2)
        world.objects.objects.delete(next_name)
        assert (await log.decide(ids(1))).next_producer_id == 2
        assert not pausing.done(), "whoever pauses holds up nobody"
        await asyncio.gather(pausing, return_exceptions=True)

    world.run(story())


@pytest.mark.parametrize("seed", range(6))
def test_a_moody_store_loses_and_doubles_nothing(seed: int) -> None:
    world = World(seed)

    async def one(log: MetadataLog, name: str) -> None:
        def create(image: MetadataImage) -> list[Record]:
            if name in image.topics:
                return []
            return changes.create_topic(image, name, name.ljust(22, "x"), 1, {})

        while True:
            try:
                await log.decide(create)
                return
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.1)

    async def story() -> None:
        logs = [MetadataLog(world.environment()) for _ in range(3)]
        await asyncio.gather(*(log.open() for log in logs))
        world.objects.faults = StoreFaults(
            slow=0.1, refused=0.1, lost_request=0.05, lost_reply=0.1, late=0.1, own_exists=0.2
        )
        names = [f"t{i}" for i in range(60)]
        await asyncio.gather(*(one(logs[i % 3], n) for i, n in enumerate(names)))
        world.objects.faults = StoreFaults()
        images = [await log.catch_up() for log in logs]
        fresh = await MetadataLog(world.environment()).open()
        assert all(i == fresh for i in images)
        assert sorted(fresh.topics) == sorted(names)
        assert len({t.topic_id for t in fresh.topics.values()}) == 60

    world.run(story())


def test_a_newcomer_reads_a_snapshot_and_few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_EVERY", 16)
    world = World()

    async def story() -> None:
        log = MetadataLog(world.environment())
        await log.open()
        for _ in range(70):
            await log.decide(ids(1))
        assert await MetadataLog(world.environment()).open() == log.image
        for key in [k for k in world.keys if "/snapshot/" in k]:
            world.objects.objects.put(key, b"damaged")
        assert await MetadataLog(world.environment()).open() == log.image

    world.run(story())
    assert [k for k in world.keys if "/manifest/" in k]


def test_brokers_and_direct_writers_share_one_log() -> None:
    store = MemoryStore("shared")
    world = World()

    async def story() -> None:
        threaded = ThreadedStore(store)
        log = MetadataLog(replace(world.environment(), store=threaded, clock=SYSTEM_CLOCK))
        await log.open()
        direct = Log(store)
        await asyncio.to_thread(direct.create_topic, "made-directly", 2)
        assert sorted((await log.catch_up()).topics) == ["made-directly"]
        await log.decide(lambda image: [ControllerChangeRecord(1, "0" * 32, 1)])
        await asyncio.to_thread(direct.create_topic, "another")
        assert direct.refresh() == await log.catch_up()
        threaded.close()

    asyncio.run(story())
