"""Broker nodes in a virtual world, with replicas that only record their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from sparklog.broker import handlers
from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.environment import Address, Environment
from sparklog.broker.runtime.identity import Identity
from sparklog.cluster.controller import isr
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.wal.writer import register
from sparklog.testing.sim.network import SimNet, SimNetwork
from sparklog.testing.sim.store import SimObjects, SimStore
from sparklog.testing.virtual_loop import Process, new_virtual_loop
from sparklog.testing.virtual_world import Trace, VirtualClock, VirtualCompute


class ToyReplicas:
    """Holds nothing: registers a WAL, recovers at once, and remembers."""

    def __init__(
        self,
        environment: Environment,
        settings: Any,
        identity: Identity,
        metadata: MetadataLog,
        **told: Any,
    ) -> None:
        self.environment, self.identity, self.metadata = environment, identity, metadata
        self.images: list[MetadataImage] = []
        self.drained = self.stopped = False
        self.broken: Exception | None = None
        """Error for every further image."""
        self.handed_back: dict[PartitionId, int] = {}
        self.crash: Callable[[BaseException], None] = told["on_crash"]

    async def start(self) -> None:
        await self.environment.store.run(register(self.identity.wal, self.identity.incarnation))

    txn_markers: Any = None
    services: Any = SimpleNamespace(leaders=None, fetches=None, produces=None, offsets=None)
    """It leads nothing, so share groups use none of them."""

    def watch(self, topic: str, watcher: Any) -> None:
        pass

    def apply(self, image: MetadataImage) -> None:
        if self.broken is not None:
            raise self.broken
        self.images.append(image)

    def suspect(self, broker: Broker) -> None:
        pass

    def led(self) -> dict[PartitionId, int]:
        return {
            where: p.leader_epoch
            for where, p in self.metadata.image.partitions()
            if p.leader == self.identity.broker_id
        }

    async def recover(self) -> None:
        """Say that everything led is recovered, as a leader does some time after it was elected."""
        led, broker_id = list(self.led().items()), self.identity.broker_id
        await self.metadata.decide(lambda image: isr.recovered(image, led, broker_id))

    async def drain(self) -> set[PartitionId]:
        self.drained = True
        return set(self.led())

    async def hand_back(self, unled: Mapping[PartitionId, int]) -> None:
        self.handed_back.update(unled)

    async def stop(self) -> None:
        self.stopped = True

    def sizes(self) -> dict[PartitionId, int]:
        return {}


class Started:
    """One process of a broker."""

    def __init__(self, process: Process, node: BrokerNode, lives: list[ToyReplicas]) -> None:
        self.process, self.node, self.lives = process, node, lives
        self.ended: list[SparklogError] = []


class ToyCluster:
    """Processes with nodes, one store, one network."""

    def __init__(self, seed: int = 1, **settings: str) -> None:
        self.loop = new_virtual_loop()
        self.entropy = SeededEntropy(seed)
        trace = Trace(self.loop)
        self.objects = SimObjects(self.loop, self.entropy, trace)
        self.net = SimNet(self.loop, self.entropy, trace)
        self.settings = {k.replace("_", "."): v for k, v in settings.items()}
        self.watcher = MetadataLog(self.environment("watcher"))

    def environment(self, host: str) -> Environment:
        return Environment(
            store=SimStore(self.objects, host),
            network=SimNetwork(self.net, host),
            clock=VirtualClock(self.loop),
            entropy=self.entropy,
            compute=VirtualCompute(self.entropy),
        )

    def start(self, broker_id: int, host: str = "", rack: str = "") -> Started:
        """Start a process; a second one of the same id may stand on another host."""
        host = host or f"b{broker_id}"
        config = parse_broker_configs(
            {"node.id": str(broker_id), "broker.rack": rack, **self.settings}
        )
        process, address = Process(self.loop, host), Address(host, 9092)
        lives: list[ToyReplicas] = []

        def make(*arguments: Any, **named: Any) -> Any:
            lives.append(ToyReplicas(*arguments, **named))
            return lives[-1]

        node = BrokerNode(config, self.environment(host), address, make_replicas=make)
        return self.serve(address, Started(process, node, lives))

    def serve(self, address: Address, started: Started) -> Started:
        """Have a node serve in its process until it ends."""
        node = started.node

        async def live() -> None:
            await node.start()
            try:
                await node.run()
            except SparklogError as error:
                started.ended.append(error)

        self.net.listen(address, started.process, partial(handlers.handle, node))
        started.process.spawn(live())
        return started

    async def image(self) -> MetadataImage:
        return await self.watcher.catch_up()

    async def until(
        self, holds: Callable[[MetadataImage], bool], *, within_s: float = 20.0
    ) -> MetadataImage:
        """Wait until the metadata log says so."""
        async with asyncio.timeout(within_s):
            while not holds(image := await self.image()):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.02)
        return image

    def live_ids(self, image: MetadataImage) -> list[int]:
        return [b.broker_id for b in image.live_brokers()]

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a story to its end."""

        async def whole() -> None:
            await self.watcher.open()
            await story

        try:
            self.loop.run_until_complete(whole())
        finally:
            self.loop.close()
            assert not self.loop.complaints, self.loop.complaints
            assert not self.net.errors, self.net.errors


def broker(broker_id: int, rack: str | None = None, host: str = "", **state: Any) -> Broker:
    """Return a registration, for tests of decisions."""
    incarnation = f"{broker_id:032x}"
    return Broker(broker_id, incarnation, host or f"b{broker_id}", 9092, rack, broker_id, **state)


async def three(cluster: ToyCluster) -> list[Started]:
    """Start three brokers and wait until they are at rest."""
    started = [cluster.start(i) for i in (1, 2, 3)]
    await cluster.until(lambda image: len(image.live_brokers()) == 3)
    await asyncio.sleep(1.5)
    return started
