"""Windows of the write-ahead log after their root was emptied, on a virtual loop."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.broker.wal.appender import WalAppender
from sparklog.broker.wal.batching import WalLimits
from sparklog.broker.wal.root_check import CHECK_EVERY_S
from sparklog.core.errors import RootEmptied
from sparklog.core.types import PartitionId
from sparklog.log.effects import run
from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import WalBatch
from sparklog.log.wal.sealing import clear, seal
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World

LAYOUT = WalLayout(1, "0123456789abcdef" * 2)
TOPIC = "t" * 22


class Partition:
    """A partition that appends one batch after the other, and counts what is durable."""

    where = PartitionId(TOPIC, 0)

    def __init__(self, world: World) -> None:
        self.durable = 0
        self.end_offset = 0
        self.crashes: list[BaseException] = []
        self.fenced: list[str] = []
        self.appender = WalAppender(
            world.environment(),
            LAYOUT,
            WalLimits(),
            metrics=world.metrics,
            on_fenced=self.fenced.append,
            on_crash=self.crashes.append,
        )

    def wal_begun(self, end_offset: int) -> None:
        """Nothing fetches from here."""

    def wal_durable(self, end_offset: int) -> None:
        self.durable = end_offset

    async def append(self) -> None:
        batch = WalBatch(TOPIC, 0, self.end_offset, 1, b"x" * 100)
        self.end_offset += 1
        self.appender.append(batch, self.end_offset, self)
        await asyncio.sleep(1)


def empty(world: World) -> None:
    for key in world.keys:
        world.objects.objects.delete(key)


def test_emptied_root_ends_the_broker_before_the_acknowledgement() -> None:
    world = World()

    async def story() -> Partition:
        partition = Partition(world)
        await partition.appender.start()
        await partition.append()
        empty(world)
        await partition.append()
        assert partition.durable == 2, "the log is looked for once in a while"
        empty(world)
        await asyncio.sleep(CHECK_EVERY_S)
        await partition.append()
        return partition

    partition = world.run(story())
    assert partition.durable == 2
    (error,) = partition.crashes
    assert isinstance(error, RootEmptied)
    assert LAYOUT.key(0) in str(error)


def test_emptied_root_ends_a_broker_that_puts_all_the_time() -> None:
    world = World()

    async def story() -> Partition:
        partition = Partition(world)
        await partition.appender.start()
        await partition.append()
        empty(world)
        for _ in range(round(2 * CHECK_EVERY_S)):
            partition.appender.flushed(partition.where, partition.end_offset)
            await partition.append()
        return partition

    partition = world.run(story())
    assert partition.durable <= CHECK_EVERY_S + 1
    (error,) = partition.crashes
    assert isinstance(error, RootEmptied)


@pytest.mark.parametrize("faults", [StoreFaults(), StoreFaults(refused=0.5)])
def test_whole_root_passes_every_check_while_names_are_trimmed(faults: StoreFaults) -> None:
    world = World()

    async def story() -> Partition:
        partition = Partition(world)
        await partition.appender.start()
        world.objects.faults = faults
        for _ in range(30):
            partition.appender.flushed(partition.where, partition.end_offset)
            await partition.append()
            await asyncio.sleep(CHECK_EVERY_S / 3)
        world.objects.faults = StoreFaults()
        await asyncio.sleep(60)
        return partition

    partition = world.run(story())
    assert (partition.durable, partition.crashes) == (30, [])
    assert LAYOUT.key(1) not in world.keys, "names were trimmed"


def test_cleared_log_fences_its_broker_and_names_no_loss() -> None:
    world = World()

    async def story() -> Partition:
        partition = Partition(world)
        await partition.appender.start()
        await partition.append()
        store = world.objects.objects
        run(clear(LAYOUT, run(seal(LAYOUT, "b" * 32), store)), store)
        await asyncio.sleep(CHECK_EVERY_S)
        await partition.append()
        return partition

    partition = world.run(story())
    assert (partition.durable, partition.crashes) == (1, [])
    assert len(partition.fenced) == 1
