"""States of share groups while brokers die, leave, lose each other and their store.

Each state has one writer at a time. It asks at any broker, writes what its members have finished,
and sometimes a new leader takes over and reads. The next leader reads all that earlier writes were
answered for. A fenced leader writes nothing.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import pytest

from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.core.errors import Fenced, SparklogError
from sparklog.testing.sim.store import StoreFaults
from tests.harness.share_cluster import ShareCluster, share_key

BROKERS: Final = 3
KEYS: Final = 6
TROUBLES: Final = 3
STORM: Final = StoreFaults(latency_s=0.03, lost_request=0.1, lost_reply=0.1)
WINDOW: Final = 12
FINAL: Final = {DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED}


class Writer:
    """The leaders of one partition, one after the other."""

    def __init__(self, storm: Storm, key: SharePartitionKey) -> None:
        self.storm, self.key, self.random = storm, key, storm.random
        self.leader_epoch = 0
        self.start = 0
        self.finished: set[int] = set()
        """Offsets that a write was answered for, and that so are finished for ever."""
        self.tried: set[int] = set()
        self.answered = 0

    async def run(self) -> None:
        while not self.storm.over:
            try:
                await self.lead()
            except (SparklogError, ConnectionError):
                await asyncio.sleep(0.05)

    async def lead(self) -> None:
        """Take over, and write until something fails."""
        earlier, self.leader_epoch = self.leader_epoch, self.leader_epoch + 1
        state = await self.read()
        with pytest.raises(Fenced):
            await self.storm.write(self.update(0, (), earlier))
        self.start = max(self.start, state.start_offset)
        while not self.storm.over and self.random.random() < 0.95:
            offsets = [self.start + self.random.randrange(WINDOW) for _ in range(3)]
            batches = tuple(
                StateBatch(one, one, self.random.choice(sorted(FINAL)), 1) for one in offsets
            )
            self.tried |= set(offsets)
            start = self.start
            while start in self.finished:
                start += 1
            update = self.update(start, batches, self.leader_epoch)
            await self.storm.write(update)
            self.start = start
            self.finished |= set(offsets)
            self.answered += 1
            await asyncio.sleep(self.random.random() * 0.05)

    async def read(self) -> ShareState:
        """Return the state for this leader, after a check."""
        state = await self.storm.read(self.key, self.leader_epoch)
        found = {
            offset
            for batch in state.batches
            if batch.state in FINAL
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        lost = {one for one in self.finished if one >= state.start_offset} - found
        assert not lost, f"answered, and lost. key={self.key} offsets={sorted(lost)}"
        assert found <= self.tried, "nobody has finished these"
        assert state.start_offset >= self.start, "the start offset went back"
        assert set(range(state.start_offset)) <= self.tried
        return state

    def update(
        self, start: int, batches: tuple[StateBatch, ...], leader_epoch: int
    ) -> ShareStateUpdate:
        return ShareStateUpdate(self.key, 1, leader_epoch, start, batches)


class Storm:
    """One seed's run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = ShareCluster(
            seed,
            share_coordinator_snapshot_update_records_per_snapshot=str(seed % 3 * 4),
            share_coordinator_write_timeout_ms="2000",
        )
        self.over = False

    async def story(self) -> None:
        await self.cluster.begin(BROKERS)
        keys = [share_key("g", number) for number in range(KEYS)]
        states = dict.fromkeys(keys, (1, 0))
        found = await self.cluster.at(1, lambda client: client.initialize(states))
        assert found == dict.fromkeys(keys)
        writers = [Writer(self, key) for key in keys]
        writing = [asyncio.ensure_future(writer.run()) for writer in writers]
        for _ in range(TROUBLES):
            await asyncio.sleep(0.5 + self.random.random())
            await self.trouble()
        await asyncio.sleep(3)
        self.over = True
        await asyncio.gather(*writing)
        for writer in writers:
            writer.leader_epoch += 1
            await writer.read()
            assert writer.answered > 10, "the state was hardly written"

    async def asker(self) -> int:
        """Return any broker that lives, once it has started."""
        broker_id = self.random.choice(sorted(self.cluster.nodes))
        await self.cluster.nodes[broker_id].node.wait_started()
        return broker_id

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        return await self.cluster.read_state(await self.asker(), key, leader_epoch)

    async def write(self, update: ShareStateUpdate) -> None:
        await self.cluster.write_state(await self.asker(), update)

    async def trouble(self) -> None:
        cluster, broker_id = self.cluster, self.random.randint(1, BROKERS)
        match self.random.choice(["kill", "kill", "leave", "cut", "store"]):
            case "kill":
                cluster.kill(broker_id)
                await asyncio.sleep(self.random.random() * 2)
                cluster.start(broker_id)
            case "leave":
                await cluster.leave(broker_id)
                cluster.start(broker_id)
            case "cut":
                other = broker_id % BROKERS + 1
                cluster.net.cut(f"b{broker_id}", f"b{other}")
                await asyncio.sleep(self.random.random() * 3)
                cluster.net.heal()
            case _:
                calm, cluster.objects.faults = cluster.objects.faults, STORM
                await asyncio.sleep(1)
                cluster.objects.faults = calm


@pytest.mark.parametrize("seed", range(4))
def test_no_answered_write_of_a_state_is_lost(seed: int) -> None:
    storm = Storm(seed)
    storm.cluster.run(storm.story())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_no_answered_write_of_a_state_is_lost_in_many_storms(seed: int) -> None:
    storm = Storm(seed)
    storm.cluster.run(storm.story())
