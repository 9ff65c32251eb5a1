"""Brokers' replicas without the rest: real managers, one shared metadata image, a virtual world.

The controller's part is played by the test: it seals, fences and elects with the real decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa

from sparklog.broker.fetch.read import CONSUMER, FetchedPartition, FetchResult, FetchSpec
from sparklog.broker.fetch.session import FetchSessionCache
from sparklog.broker.handlers import fetch as fetch_handler
from sparklog.broker.network.quotas import ClientQuotas
from sparklog.broker.node.replicas import Replicas
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.produce.request import ProducedPartition, ProduceResult
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.identity import Identity
from sparklog.broker.runtime.metadata_access import Decision
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import INTERNAL
from sparklog.cluster.controller import election
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.entropy import SeededEntropy, new_nonce
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.wal.sealing import seal
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, Codec, decode, encode
from sparklog.testing.virtual_loop import Process
from tests.harness.broker_world import World

Result = TypeVar("Result")
TOPIC = "events"
TOPIC_ID = "Zm9vYmFyYmF6cXV4cXV1eA"
ACKS_ALL = -1
CONSUMED_WITHIN_S = 120.0
"""Virtual seconds within which a test's log is read to its end."""


async def answered(process: Process, work: Coroutine[Any, Any, Result]) -> Result:
    """Run a request in a process, as over a connection that breaks if the process is killed."""
    answering = process.spawn(work)
    broken = asyncio.get_running_loop().create_future()
    process.when_killed(lambda: None if broken.done() else broken.set_result(None))
    await asyncio.wait([answering, broken], return_when=asyncio.FIRST_COMPLETED)
    if not answering.done() or answering.cancelled():
        raise ConnectionResetError("the broker was killed")
    return answering.result()


class SharedMetadata:
    """The metadata log, as one image that every broker sees a moment after it changed."""

    def __init__(self, world: World) -> None:
        self.image = MetadataImage()
        self.listeners: list[Callable[[MetadataImage], None]] = []
        self._world = world

    async def decide(self, decision: Decision) -> MetadataImage:
        await asyncio.sleep(0.01)
        records = decision(self.image)
        if records:
            self.append(records)
        return self.image

    async def beyond(self, end_offset: int) -> MetadataImage:
        news = asyncio.Event()
        self.listeners.append(tell := lambda _: news.set())
        while self.image.end_offset <= end_offset:
            news.clear()
            await news.wait()
        self.listeners.remove(tell)
        return self.image

    async def catch_up(self) -> MetadataImage:
        await asyncio.sleep(0.001)
        return self.image

    def append(self, records: list[Record]) -> None:
        end_offset = self.image.end_offset + len(records)
        self.image = self.image.applied(records, end_offset)
        for listener in list(self.listeners):
            listener(self.image)


@dataclass
class Broker:
    """One broker: a process with a replica manager."""

    broker_id: int
    incarnation: str
    process: Process
    metrics: BrokerMetrics = field(default_factory=BrokerMetrics)
    fenced: list[str] = field(default_factory=list)
    manager: Any = None
    sessions: FetchSessionCache = field(
        default_factory=lambda: FetchSessionCache(10, SeededEntropy(1))
    )

    @property
    def replicas(self) -> Replicas:
        manager: Replicas = self.manager
        return manager


class ReplicaCluster:
    """Several brokers and one topic."""

    def __init__(self, world: World, settings: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.metadata = SharedMetadata(world)
        self.settings = parse_broker_configs(settings or {})
        self.brokers: dict[int, Broker] = {}

    async def start(self, broker_id: int) -> Broker:
        """Start a broker, or a new incarnation of it, and register it."""
        incarnation = new_nonce(self.world.entropy)
        process = Process(self.world.loop, f"broker-{broker_id}")
        broker = Broker(broker_id, incarnation, process)
        record = RegisterBrokerRecord(broker_id, incarnation, f"host-{broker_id}", 9092)
        await self.metadata.decide(lambda image: election.register(image, record))
        epoch = self.metadata.image.brokers[broker_id].epoch
        environment = self.world.environment(f"host-{broker_id}")

        async def live() -> None:
            broker.manager = Replicas(
                environment,
                self.settings,
                Identity(broker_id, incarnation, epoch),
                self.metadata,
                metrics=broker.metrics,
                on_fenced=broker.fenced.append,
                on_crash=self.world.crashes.append,
            )
            await broker.manager.start()
            self.metadata.listeners.append(listen)
            broker.manager.apply(self.metadata.image)

        def listen(image: MetadataImage) -> None:
            process.call_soon(broker.manager.apply, image)

        await process.spawn(live())
        process.when_killed(lambda: self.metadata.listeners.remove(listen))
        node: Any = SimpleNamespace(
            broker_id=broker_id,
            metadata=self.metadata,
            replicas=broker.manager,
            config=self.settings,
            fetch_sessions=broker.sessions,
            throttle=ClientQuotas(self.settings, broker.metrics),
            is_broker=lambda context: context is INTERNAL,
            image_for=lambda _: self.metadata.image,
        )

        async def serve(request: Any) -> Any:
            return await process.spawn(fetch_handler.handle(node, request, INTERNAL))

        address = Address(f"host-{broker_id}", 9092)
        self.world.wires.listeners[address] = serve
        process.when_killed(lambda: self.world.wires.hang_up(address))
        self.brokers[broker_id] = broker
        return broker

    def create(
        self, replicas: list[int], partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> list[PartitionId]:
        """Create the topic, led by the first of `replicas`, all in sync."""
        records: list[Record] = [TopicRecord(TOPIC, TOPIC_ID)]
        records += [ConfigRecord(TOPIC, k, v) for k, v in (configs or {}).items()]
        for number in range(partitions):
            records.append(
                PartitionRecord(
                    TOPIC_ID,
                    number,
                    tuple(replicas),
                    tuple(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    recovering=True,
                    take_lead=True,
                )
            )
        self.metadata.append(records)
        return [PartitionId(TOPIC_ID, number) for number in range(partitions)]

    async def fence(self, broker_id: int) -> None:
        """Depose a broker, dead or alive, as a controller does."""
        wal = self.metadata.image.brokers[broker_id].wal
        run(seal(wal, new_nonce(self.world.entropy)), self.world.objects.objects)
        await self.metadata.decide(lambda image: election.fence(image, [broker_id]))

    def elect(self, where: PartitionId) -> None:
        """Give a partition without a leader one."""
        image = self.metadata.image
        state = image.partition(where)
        assert state is not None
        self.metadata.append(election.elect_unled(image, [(where, state)]))

    def kill(self, broker_id: int) -> None:
        """End a broker's process at once."""
        self.brokers.pop(broker_id).process.kill()

    def leader(self, where: PartitionId) -> Broker:
        """Return who leads a partition, as the metadata has it."""
        state = self.metadata.image.partition(where)
        assert state is not None
        return self.brokers[state.leader]

    async def produce(
        self, where: PartitionId, data: bytes, acks: int = ACKS_ALL, timeout_ms: int = 30_000
    ) -> ProduceResult:
        """Send one batch to the leader. Raises ConnectionResetError if it is killed meanwhile."""
        broker = self.leader(where)
        work = broker.replicas.produce_service.produce({where: data}, acks, timeout_ms)
        return (await answered(broker.process, work))[where]

    async def produced(self, where: PartitionId, data: bytes, acks: int = ACKS_ALL) -> int:
        """Send one batch until it is taken; return its base offset."""
        while True:
            result = await self.produce(where, data, acks)
            if isinstance(result, ProducedPartition):
                return result.base_offset
            if not result.retriable:
                raise result
            await asyncio.sleep(0.1)

    async def fetch(self, where: PartitionId, offset: int, **options: Any) -> FetchResult:
        """Fetch from the leader as a consumer."""
        broker = self.leader(where)
        spec = FetchSpec(
            replica_id=CONSUMER,
            max_wait_ms=options.pop("max_wait_ms", 100),
            min_bytes=options.pop("min_bytes", 1),
            max_bytes=1 << 20,
            isolation=options.pop("isolation", 0),
            partitions={where: FetchPosition(offset, 1 << 20, **options)},
        )
        return (await answered(broker.process, broker.replicas.fetch_service.fetch(spec)))[where]

    async def consumed(self, where: PartitionId) -> dict[int, bytes]:
        """Return every committed record's value by offset, as a consumer reads from the start."""
        return await self.consumed_from(where, 0)

    async def consumed_from(self, where: PartitionId, offset: int) -> dict[int, bytes]:
        """Return the committed records from an offset on."""
        found: dict[int, bytes] = {}
        deadline = self.world.loop.time() + CONSUMED_WITHIN_S
        while self.world.loop.time() < deadline:
            result = await self.fetch(where, offset)
            if isinstance(result, SparklogError):
                if not result.retriable:
                    raise result
                await asyncio.sleep(0.1)
                continue
            if not result.batches:
                if offset >= result.high_watermark:
                    return found
                continue
            before, offset = offset, self.take(result, offset, found)
            assert offset > before, f"the same batches again, at offset {before}"
        raise AssertionError(f"not read to the end. offset={offset} found={len(found)}")

    @staticmethod
    def take(fetched: FetchedPartition, offset: int, found: dict[int, bytes]) -> int:
        """Add the records at or beyond `offset` to `found`; return the next offset."""
        wanted = offset
        for one in split_batches(b"".join(fetched.batches)):
            offset = max(offset, one.header.end_offset)
            if one.header.is_control:
                continue
            records = decode(one.data).records
            offsets = records.column("offset").to_pylist()
            values = records.column("value").to_pylist()
            found.update((o, v) for o, v in zip(offsets, values, strict=True) if o >= wanted)
        return offset

    def stored(self, where: PartitionId) -> PartitionView:
        """Return the partition's own log as storage has it now."""
        layout = PartitionLayout(TOPIC, TOPIC_ID, where.partition)
        return run(refresh(PartitionView(layout)), self.world.objects.objects)


async def alone(
    world: World, configs: dict[str, str] | None = None
) -> tuple[ReplicaCluster, PartitionId]:
    """Return a broker alone, and a partition that it leads."""
    cluster = ReplicaCluster(world)
    await cluster.start(1)
    (where,) = cluster.create([1], 1, configs)
    return cluster, where


async def together(
    world: World, brokers: int = 3, configs: dict[str, str] | None = None, **settings: str
) -> tuple[ReplicaCluster, PartitionId]:
    """Return a cluster of `brokers` brokers, and a partition with a replica on each."""
    cluster = ReplicaCluster(world, {k.replace("_", "."): v for k, v in settings.items()})
    for broker_id in range(1, brokers + 1):
        await cluster.start(broker_id)
    (where,) = cluster.create(list(range(1, brokers + 1)), 1, configs)
    return cluster, where


def batch(
    *values: bytes, producer_id: int = -1, sequence: int = -1, timestamp_ms: int = 1_000
) -> bytes:
    """Return a producer's batch of these values."""
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([timestamp_ms] * len(values), pa.int64()).view(TIMESTAMP_TYPE),
            pa.array([None] * len(values), pa.binary()),
            pa.array(values, pa.binary()),
        ],
        names=["timestamp", "key", "value"],
    )
    epoch = -1 if producer_id < 0 else 0
    settings = BatchSettings(
        codec=Codec.NONE, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return bytes(encode(rows, settings, base_offset=0))
