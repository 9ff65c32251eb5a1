"""WalAppender: windows, order, notifications, fencing and trimming, on a virtual loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from statistics import median

import pytest

from sparklog.broker.runtime.environment import Environment
from sparklog.broker.wal.appender import WINDOWS_IDLE_MAX, WalAppender
from sparklog.broker.wal.batching import WalLimits
from sparklog.core.errors import Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.effects import Answer, Effect, Put, run
from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind, WalObject, decode
from sparklog.log.wal.sealing import read_tail, seal
from sparklog.testing.sim.store import SimStore, StoreFaults
from tests.harness.broker_world import World

LAYOUT = WalLayout(1, "0123456789abcdef" * 2)
TOPIC = "t" * 22


class Sink:
    """A partition that remembers its notifications."""

    def __init__(self, partition: int) -> None:
        self.where = PartitionId(TOPIC, partition)
        self.begun: list[int] = []
        self.told: list[int] = []
        self.end_offset = 0

    def wal_begun(self, end_offset: int) -> None:
        self.begun.append(end_offset)

    def wal_durable(self, end_offset: int) -> None:
        self.told.append(end_offset)

    def append(self, appender: WalAppender, size_bytes: int = 100, *, awaited: bool = True) -> None:
        batch = WalBatch(TOPIC, self.where.partition, self.end_offset, 1, b"x" * size_bytes)
        self.end_offset += 1
        appender.append(batch, self.end_offset, self, awaited=awaited)

    async def append_often(self, appender: WalAppender, times: int, *, every_s: float) -> None:
        for _ in range(times):
            self.append(appender)
            await asyncio.sleep(every_s)


class HearingSink(Sink):
    """One that can be waited for."""

    def __init__(self, partition: int) -> None:
        super().__init__(partition)
        self.heard: asyncio.Queue[int] = asyncio.Queue()

    def wal_durable(self, end_offset: int) -> None:
        super().wal_durable(end_offset)
        self.heard.put_nowait(end_offset)


def make_appender(
    world: World, limits: WalLimits | None = None, environment: Environment | None = None
) -> tuple[WalAppender, list[str]]:
    fenced: list[str] = []
    appender = WalAppender(
        environment if environment is not None else world.environment(),
        LAYOUT,
        limits if limits is not None else WalLimits(),
        metrics=world.metrics,
        on_fenced=fenced.append,
        on_crash=world.crashes.append,
    )
    return appender, fenced


def windows(world: World) -> list[WalObject]:
    store = world.objects.objects
    sequences = sorted(s for key in world.keys if (s := LAYOUT.sequence(key)) is not None)
    objects = [decode(store.get(LAYOUT.key(s)), LAYOUT, s) for s in sequences]
    return [one for one in objects if one.header.kind is WalKind.WINDOW]


def test_appends_of_one_moment_share_an_object_and_notify_each() -> None:
    world = World()

    async def story() -> None:
        appender, _ = make_appender(world)
        await appender.start()
        sinks = [Sink(n) for n in range(3)]
        for sink in sinks:
            sink.append(appender)
            sink.append(appender)
        assert [s.told for s in sinks] == [[], [], []]
        await asyncio.sleep(1)
        assert [s.told for s in sinks] == [[2], [2], [2]]
        assert [len(w.batches) for w in windows(world)] == [6]

    world.run(story())


class TidiedStore(SimStore):
    """Notes what is tidied, and may be away then."""

    def __init__(self, world: World, error: Exception | None = None) -> None:
        super().__init__(world.objects, "a")
        self.tidied: list[tuple[str, list[str]]] = []
        self._keys = world.objects.objects
        self._error = error

    async def tidy(self, prefix: str) -> None:
        self.tidied.append((prefix, [info.key for info in self._keys.list("")]))
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, Unavailable("away")])
def test_registration_cleans_up_after_earlier_incarnations_once(
    error: Exception | None,
) -> None:
    world = World()
    store = TidiedStore(world, error)

    async def story() -> None:
        appender, _ = make_appender(world, environment=replace(world.environment(), store=store))
        await appender.start()
        sink = Sink(0)
        sink.append(appender)
        await asyncio.sleep(1)
        assert sink.told == [1]

    world.run(story())
    assert store.tidied == [("wal/1-", [LAYOUT.key(0)])]


def test_age_of_the_oldest_batch_is_reported_during_a_store_outage() -> None:
    world = World()

    async def story() -> None:
        appender, _ = make_appender(world)
        await appender.start()
        sink = Sink(0)
        assert appender.waiting_s == 0
        world.objects.faults = StoreFaults(refused=1.0)
        sink.append(appender)
        await asyncio.sleep(10)
        sink.append(appender)
        await asyncio.sleep(10)
        assert 20 <= appender.waiting_s < 21
        world.objects.faults = StoreFaults()
        await asyncio.sleep(10)
        assert sink.told[-1] == 2
        assert appender.waiting_s == 0

    world.run(story())


def test_first_puts_start_at_once_and_later_batches_gather() -> None:
    world = World()

    async def story() -> None:
        limits = WalLimits(linger_s=0.004)
        appender, _ = make_appender(world, limits)
        await appender.start()
        sink = Sink(0)
        await sink.append_often(appender, limits.in_flight_max + 3, every_s=0.001)
        await asyncio.sleep(1)
        assert [len(w.batches) for w in windows(world)] == [1] * limits.in_flight_max + [3]
        assert sink.told == [1, 2, 3, 4, 7]

    world.run(story())


def test_batches_acknowledged_together_are_put_together_again() -> None:
    world = World()
    world.objects.faults = StoreFaults(latency_s=0.004)

    async def story() -> None:
        appender, _ = make_appender(world)
        await appender.start()
        sink = HearingSink(0)
        for _ in range(3):
            sink.append(appender)
        for again in (3, 1, 1):
            await sink.heard.get()
            for _ in range(again):
                sink.append(appender)
                await asyncio.sleep(0.0001)  # as a client's requests come, one after the other
        await sink.heard.get()
        assert [len(w.batches) for w in windows(world)] == [3, 3, 1, 1]

    world.run(story())


def test_partition_is_notified_once_when_its_put_starts() -> None:
    world = World()
    world.objects.faults = StoreFaults(latency_s=0.004)

    async def story() -> None:
        appender, _ = make_appender(world)
        await appender.start()
        sink = Sink(0)
        for _ in range(3):
            sink.append(appender)
        assert sink.begun == []
        await asyncio.sleep(0)
        assert (sink.begun, sink.told) == ([3], [])

    world.run(story())


def test_partition_is_notified_at_once_of_a_late_put() -> None:
    world = World()
    world.objects.faults = StoreFaults(latency_s=0.05)

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0.25, in_flight_max=2))
        await appender.start()
        unhurried, far, waiting = Sink(0), Sink(1), Sink(2)
        unhurried.append(appender, awaited=False)
        assert unhurried.begun == [1]
        far.append(appender)
        await asyncio.sleep(0.2)
        far.append(appender)  # the store has turned out to be slow: a linger after the put before
        assert far.begun == [1, 2]
        world.objects.faults = StoreFaults(refused=1.0)
        for _ in range(3):
            await asyncio.sleep(1)
            waiting.append(appender)
        assert waiting.begun[-1] == 3  # though no place is free for its put
        assert waiting.told == []

    world.run(story())


def test_a_full_window_does_not_wait_and_a_larger_burst_is_split() -> None:
    world = World()

    async def story() -> None:
        limits = WalLimits(linger_s=60, window_bytes=1000, in_flight_max=2)
        appender, _ = make_appender(world, limits)
        await appender.start()
        sink = Sink(0)
        for _ in range(25):
            sink.append(appender)
        await asyncio.sleep(1)
        assert [len(w.batches) for w in windows(world)] == [10, 10, 5]
        assert sink.told[-1] == 25

    world.run(story())


def test_partitions_are_notified_in_order_when_puts_end_out_of_order() -> None:
    world = World(seed=5)
    world.objects.faults = StoreFaults(slow=0.5, slow_s=3.0, lost_reply=0.1)

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0, in_flight_max=8))
        await appender.start()
        sink = Sink(0)
        await sink.append_often(appender, 200, every_s=0.01)
        await asyncio.sleep(60)
        assert sink.told == sorted(sink.told)
        assert sink.told[-1] == 200
        stored = [b.base_offset for w in windows(world) for b in w.batches]
        assert stored == list(range(200))

    world.run(story())


def test_sealed_log_acknowledges_nothing_more_and_reports_it_once() -> None:
    world = World()

    async def story() -> None:
        appender, fenced = make_appender(world, WalLimits(linger_s=0))
        await appender.start()
        sink = Sink(0)
        sink.append(appender)
        await asyncio.sleep(1)
        sealed = run(seal(LAYOUT, "f" * 32), world.objects.objects)
        await sink.append_often(appender, 5, every_s=0.001)
        await asyncio.sleep(5)
        assert sink.told == [1]
        assert len(fenced) == 1
        assert appender.stopped
        tail = run(read_tail(LAYOUT, sealed), world.objects.objects).windows
        assert [b.base_offset for w in tail for b in w.batches] == [0]

    world.run(story())


def test_window_is_trimmed_when_all_its_partitions_are_flushed() -> None:
    world = World()

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0))
        await appender.start()
        one, two = Sink(0), Sink(1)
        for _ in range(3):
            one.append(appender)
            two.append(appender)
            await asyncio.sleep(1)
        appender.flushed(one.where, 3)
        one.append(appender)
        await asyncio.sleep(1)
        assert [w.header.sequence for w in windows(world)] == [1, 2, 3, 4]
        appender.flushed(two.where, 2)
        one.append(appender)
        await asyncio.sleep(1)
        assert [w.header.sequence for w in windows(world)] == [3, 4, 5]
        appender.release(two.where)
        one.append(appender)
        await asyncio.sleep(1)
        assert [w.header.sequence for w in windows(world)] == [4, 5, 6]

    world.run(story())


def test_an_idle_broker_writes_one_empty_window_to_let_many_go() -> None:
    world = World()

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0))
        await appender.start()
        sink = Sink(0)
        await sink.append_often(appender, WINDOWS_IDLE_MAX + 4, every_s=0.1)
        appender.flushed(sink.where, sink.end_offset)
        await asyncio.sleep(60)
        left = windows(world)
        assert [len(w.batches) for w in left] == [1, 0]
        assert world.metrics.wal_puts == WINDOWS_IDLE_MAX + 5

    world.run(story())


def test_a_broker_survives_a_store_that_is_away_for_a_minute() -> None:
    world = World()

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0, in_flight_max=2))
        await appender.start()
        calm = world.objects.faults
        world.objects.faults = replace(calm, refused=0.5, lost_request=1.0)
        sink = Sink(0)
        await sink.append_often(appender, 10, every_s=6)
        assert sink.told == []
        world.objects.faults = calm
        await asyncio.sleep(30)
        assert sink.told[-1] == 10

    world.run(story())


def test_slow_puts_start_a_linger_apart_and_idle_ones_at_once() -> None:
    world = World()
    world.objects.faults = StoreFaults(latency_s=0.05)

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0.25))
        await appender.start()
        sink = Sink(0)
        for _ in range(2000):  # 20 s
            sink.append(appender)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert sink.told[-1] == 2000
        assert 78 <= world.metrics.wal_puts <= 84
        sink.append(appender)
        await asyncio.sleep(0.2)
        assert sink.told[-1] == 2001

    world.run(story())


def test_short_stall_of_a_disk_does_not_make_the_store_slow() -> None:
    near, stalled = zip(*(puts_before_and_in_a_stall(seed) for seed in range(9)), strict=True)
    assert min(near) >= 40
    assert median(stalled) >= 15  # as fast as they end; a linger apart they would be five


def puts_before_and_in_a_stall(seed: int) -> tuple[int, int]:
    """Append for half a second to a disk, and for half a second to one that stalls."""
    world = World(seed=seed)
    world.objects.faults = StoreFaults(latency_s=0.002)
    puts = [0]

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0.25))
        await appender.start()
        sink = Sink(0)
        for _ in range(2):
            await sink.append_often(appender, 50, every_s=0.01)
            puts.append(world.metrics.wal_puts)
            world.objects.faults = StoreFaults(latency_s=0.05)

    world.run(story())
    return puts[1] - puts[0], puts[2] - puts[1]


def test_batches_without_a_waiter_gather_for_three_lingers() -> None:
    world = World()
    world.objects.faults = StoreFaults(latency_s=0.002)

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0.25))
        await appender.start()
        sink = Sink(0)
        for _ in range(10):
            sink.append(appender, awaited=False)
            await asyncio.sleep(0.07)
        assert sink.told == []
        await asyncio.sleep(0.1)
        assert sink.told == [10]
        sink.append(appender, awaited=False)
        sink.append(appender)
        await asyncio.sleep(0.05)
        assert sink.told == [10, 12]

    world.run(story())


def test_names_the_store_did_not_delete_are_deleted_by_a_later_trim() -> None:
    world = World(seed=3)

    async def story() -> None:
        appender, _ = make_appender(world, WalLimits(linger_s=0))
        await appender.start()
        sink = Sink(0)
        await sink.append_often(appender, 100, every_s=0.1)
        for refused in (0.8, 0.0):
            world.objects.faults = StoreFaults(refused=refused)
            appender.flushed(sink.where, sink.end_offset)
            sink.append(appender)  # carries the boundary on
            await asyncio.sleep(60)
            left.append([w.header for w in windows(world)])
        assert sink.told[-1] == sink.end_offset

    left: list[list[WalHeader]] = []
    world.run(story())
    first, last = left
    assert len(first) > 20, "the store was asked to refuse"
    assert last[0].sequence == last[-1].boundary, "all below the newest boundary are gone"


class NotingStore(SimStore):
    """Notes which puts are to be forced to the disk."""

    def __init__(self, world: World) -> None:
        super().__init__(world.objects, "a")
        self.forced: list[bool] = []

    async def _perform(self, effect: Effect) -> Answer:
        if isinstance(effect, Put):
            self.forced.append(effect.forced)
        return await super()._perform(effect)


@pytest.mark.parametrize("forced", [True, False])
def test_unforced_log_forces_only_registration_and_boundaries(forced: bool) -> None:
    world = World()
    store = NotingStore(world)

    async def story() -> None:
        environment = replace(world.environment(), store=store)
        appender, _ = make_appender(world, WalLimits(linger_s=0, forced=forced), environment)
        await appender.start()
        sink = Sink(0)
        await sink.append_often(appender, 2, every_s=1)
        appender.flushed(sink.where, 2)
        await sink.append_often(appender, 3, every_s=1)
        assert sink.told == [1, 2, 3, 4, 5]

    world.run(story())
    new_boundaries = [True, True]  # the newest acknowledged window's, then beyond it
    assert store.forced == [True, forced, forced, *new_boundaries, forced]
    assert all(one.header.forced is forced for one in windows(world))
