"""Brokers decide on the metadata log through a moody store, pauses and deaths.

Each takes blocks of producer ids for as long as the storm lasts. Under all faults no id is assigned
twice, and every broker's image ends equal to the log.
"""

from __future__ import annotations

import asyncio

import pytest

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.runtime.environment import Environment
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import ProducerIdsRecord, Record
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import OutcomeUnknown, Unavailable
from sparklog.testing.sim.network import SimNet, SimNetwork
from sparklog.testing.sim.store import CALM, SimObjects, SimStore, StoreFaults
from sparklog.testing.virtual_loop import Process, new_virtual_loop
from sparklog.testing.virtual_world import Trace, VirtualClock, VirtualCompute

BLOCK = 10
STORM_S = 20.0


class World:
    """A store and brokers that know nothing but the metadata log."""

    def __init__(self, seed: int) -> None:
        self.loop = new_virtual_loop()
        self.entropy = SeededEntropy(seed)
        trace = Trace(self.loop)
        self.store = SimObjects(self.loop, self.entropy, trace)
        self.net = SimNet(self.loop, self.entropy, trace)
        self.taken: list[int] = []
        self.processes: list[Process] = []

    def environment(self, host: str) -> Environment:
        return Environment(
            store=SimStore(self.store, host),
            network=SimNetwork(self.net, host),
            clock=VirtualClock(self.loop),
            entropy=self.entropy,
            compute=VirtualCompute(self.entropy),
        )

    def start(self, number: int) -> None:
        process = Process(self.loop, f"b{number}")
        self.processes.append(process)
        process.spawn(self._take_blocks(MetadataLog(self.environment(process.name))))

    async def _take_blocks(self, log: MetadataLog) -> None:
        while True:
            try:
                await log.open()
                break
            except Unavailable:
                await asyncio.sleep(0.1)
        while True:
            await asyncio.sleep(self.entropy.random() * 0.5)
            first = -1

            def decide(image: MetadataImage) -> list[Record]:
                nonlocal first
                first = image.next_producer_id
                return [ProducerIdsRecord(0, 0, first + BLOCK)]

            try:
                await log.decide(decide)
            except (Unavailable, OutcomeUnknown):
                continue
            self.taken.append(first)

    async def story(self) -> MetadataImage:
        for number in range(3):
            self.start(number)
        self.store.faults = StoreFaults(
            slow=0.05, refused=0.02, lost_request=0.01, lost_reply=0.03, late=0.05, own_exists=0.2
        )
        end_s = self.loop.time() + STORM_S
        while self.loop.time() < end_s:
            await asyncio.sleep(2 * self.entropy.random())
            victim = self.processes[int(self.entropy.random() * len(self.processes))]
            if self.entropy.random() < 0.5:
                victim.pause()
                self.loop.call_later(3 * self.entropy.random(), victim.resume)
            else:
                victim.kill()
                self.start(len(self.processes))
        for process in self.processes:
            process.kill()
        self.store.faults = CALM
        await asyncio.sleep(10.0)
        return await MetadataLog(self.environment("reader")).open()


@pytest.mark.parametrize("seed", range(8))
def test_no_id_is_given_out_twice(seed: int) -> None:
    world = World(seed)
    image = world.loop.run_until_complete(world.story())
    world.loop.close()
    assert len(world.taken) > 20
    assert len(set(world.taken)) == len(world.taken)
    assert image.next_producer_id >= max(world.taken) + BLOCK
    assert world.loop.complaints == []
