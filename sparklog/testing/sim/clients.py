"""Simulated clients that use Kafka's messages and record their observations.

The producer is idempotent with up to five batches in flight. It never gives up, and repeats failed
batches in the order it sent them. Like librdkafka, it sends to a new leader before the old one has
responded, and takes a batch as written when a later one is. Then an out-of-order error for that
batch is a fault of the broker. The consumer assigns its partitions itself and never resets its
position. `Recorder.errors` collects errors that no client should get. Durations are virtual
seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.core.entropy import Entropy
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.header import parse_header
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from sparklog.testing.history import Poll, Send, SendOutcome
from sparklog.testing.sim.network import SimNetwork
from sparklog.testing.virtual_loop import VirtualLoop
from sparklog.testing.virtual_world import VirtualClock

IN_FLIGHT_MAX: Final = 5
TIMEOUTS_S: Final = (0.8, 2.5)
"""Time-outs of clients: short ones, and long ones.

With a long one a paused broker can still respond after it was deposed.
"""
BACKOFF_S: Final = 0.05
MOVES: Final = 0.05
"""Probability, at each step of a producer, that it looks up the leader before any failure."""
FETCH_WAIT_S: Final = 0.2
RECORDS_A_BATCH_MAX: Final = 4

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
METADATA_VERSION: Final = 9
INIT_PRODUCER_ID_VERSION: Final = 4
CREATE_TOPICS_VERSION: Final = 7

OFFSET_OUT_OF_RANGE: Final = 1
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_REPLICATION_FACTOR: Final = 38
DUPLICATE_SEQUENCE: Final = 46
RETRIABLE: Final = frozenset({3, 5, 6, 7, 8, 9, 13, 14, 15, 19, 20, 41, 56, 74, 75, 76, 78, 100})
"""Kafka's retriable errors.

They include unknown topic (not there yet), leader not available, not leader, timed out and not
enough replicas. Store errors, fenced or unknown leader epoch, and offset not available are further
ones.
"""


class Recorder:
    """The observations of all clients, and the source of unique values."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Start empty."""
        self.history: list[Send | Poll] = []
        self.errors: list[str] = []
        self.loop = loop
        self._next_value = 0

    def new_value(self) -> int:
        """Return an integer that no client has sent yet."""
        self._next_value += 1
        return self._next_value

    def acknowledged_end(self, partition: TopicPartition) -> int:
        """Return the end of the acknowledged offsets that no fault may remove."""
        ends = (
            one.offset + 1
            for one in self.history
            if isinstance(one, Send)
            and one.partition == partition
            and one.durable
            and one.offset is not None
        )
        return max(ends, default=0)


@dataclass(frozen=True, slots=True)
class ClientSide:
    """The environment of a client: its name, its connections to brokers, and its recorder."""

    name: str
    network: SimNetwork
    bootstrap: Callable[[], Sequence[Address]]
    """Returns brokers' addresses; called anew each time, as restarted brokers may move."""
    clock: VirtualClock
    entropy: Entropy
    recorder: Recorder
    timeout_s: float

    async def ask(self, peer: Address, request: Any, purpose: str = "") -> Any | None:
        """Return the response; None if there is none."""
        try:
            return await self.network.call(
                peer, request, timeout_s=self.timeout_s, purpose=f"{self.name} {purpose}"
            )
        except (Unreachable, TimeoutError):
            return None

    async def ask_anybody(self, request: Any) -> Any:
        """Return the first response of any broker."""
        while True:
            known = self.bootstrap()
            peer = known[int(self.entropy.random() * len(known))]
            answer = await self.ask(peer, request, "any")
            if answer is not None:
                return answer
            await asyncio.sleep(BACKOFF_S)

    async def leaders(self, topic: str) -> dict[int, Address]:
        """Return the leaders of the topic's partitions from any broker's metadata."""
        named = build_request_part(
            Api.METADATA, METADATA_VERSION, "MetadataRequestTopic", name=topic, topic_id=None
        )
        answer = await self.ask_anybody(
            build_request(
                Api.METADATA,
                METADATA_VERSION,
                topics=(named,),
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
        )
        addresses = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        return {
            p.partition_index: addresses[p.leader_id]
            for found in answer.topics
            for p in found.partitions
            if p.leader_id in addresses
        }

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        """Create a topic, or find that it exists."""
        version = CREATE_TOPICS_VERSION
        settings = tuple(
            build_request_part(
                Api.CREATE_TOPICS, version, "CreatableTopicConfig", name=name, value=value
            )
            for name, value in configs.items()
        )
        wanted = build_request_part(
            Api.CREATE_TOPICS,
            version,
            "CreatableTopic",
            name=topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=(),
            configs=settings,
        )
        request = build_request(
            Api.CREATE_TOPICS,
            version,
            topics=(wanted,),
            timeout=timedelta(seconds=self.timeout_s),
            validate_only=False,
        )
        while True:
            answer = await self.ask_anybody(request)
            code = int(answer.topics[0].error_code)
            if code in (0, TOPIC_ALREADY_EXISTS):
                return
            if code != INVALID_REPLICATION_FACTOR:  # not all brokers are registered yet
                self.complain("create topic", code, answer.topics[0].error_message)
            await asyncio.sleep(BACKOFF_S)

    def complain(self, what: str, code: int, *why: object) -> None:
        """Record an error code unless clients must expect it."""
        if code not in RETRIABLE:
            reason = " ".join(map(str, why))
            self.recorder.errors.append(f"{self.name}: {what}: error {code} {reason}")


def batch_of(values: Sequence[int], now_ms: int, settings: BatchSettings) -> bytes:
    """Return a batch with a record of each value."""
    rows = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([now_ms] * len(values), TIMESTAMP_TYPE),
            "value": pa.array([str(value).encode() for value in values], pa.binary()),
        }
    )
    return bytes(encode(rows, settings, base_offset=0))


def produce_request(side: ClientSide, topic: str, number: int, data: bytes, *, acks: int) -> Any:
    """Return the request that appends one batch to partition `number` of a topic."""
    version = PRODUCE_VERSION
    part = build_request_part(
        Api.PRODUCE, version, "PartitionProduceData", index=number, records=data
    )
    named = build_request_part(
        Api.PRODUCE, version, "TopicProduceData", name=topic, partition_data=(part,)
    )
    return build_request(
        Api.PRODUCE,
        version,
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=side.timeout_s),
        topic_data=(named,),
    )


@dataclass(slots=True, eq=False)
class _Batch:
    data: bytes
    base_sequence: int
    values: list[int]
    invoked_s: float
    in_flight: bool = False
    base_offset: int | None = None
    is_recorded: bool = False
    """Its outcome is recorded: further responses add nothing."""


@dataclass(slots=True)
class _Lane:
    """A producer's state for one partition."""

    partition: TopicPartition
    batches: deque[_Batch] = field(default_factory=deque)
    """Batches without an acknowledgement."""
    next_sequence: int = 0
    leader: Address | None = None
    """The broker for all requests, until one fails."""
    failed: bool = False
    """A request failed: repeat it after those in flight, and in order."""
    broken: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class SimProducer:
    """Sends to every partition of a topic until `stopping`, then until all is acknowledged."""

    def __init__(self, side: ClientSide, topic: str, partitions: int, pause_s: float) -> None:
        """Send a batch to each partition every `pause_s`, on average."""
        self.side = side
        self._lanes = [_Lane(TopicPartition(topic, n)) for n in range(partitions)]
        self._topic = topic
        self._pause_s = pause_s
        self._producer_id = -1
        self._producer_epoch = -1
        self.stopping = False

    @property
    def settled(self) -> bool:
        """Return True if no acknowledgement is pending that may still come."""
        return not any(lane.batches for lane in self._lanes if not lane.broken)

    async def run(self) -> None:
        """Send until `stopping` is set and everything is acknowledged."""
        await self._initialise()
        async with asyncio.TaskGroup() as group:
            for lane in self._lanes:
                group.create_task(self._fill(lane))
                group.create_task(self._drain(lane, group))

    def abandon(self) -> None:
        """Record pending batches as UNKNOWN, when the producer is dead or out of time."""
        for lane in self._lanes:
            for batch in lane.batches:
                self._record(lane, batch, SendOutcome.UNKNOWN)
            lane.batches.clear()

    async def _initialise(self) -> None:
        request = build_request(
            Api.INIT_PRODUCER_ID,
            INIT_PRODUCER_ID_VERSION,
            transactional_id=None,
            transaction_timeout=timedelta(seconds=60),
            producer_id=-1,
            producer_epoch=-1,
        )
        while True:
            answer = await self.side.ask_anybody(request)
            code = int(answer.error_code)
            if code == 0:
                break
            self.side.complain("init producer id", code)
            await asyncio.sleep(BACKOFF_S)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    async def _fill(self, lane: _Lane) -> None:
        while not self.stopping:
            await asyncio.sleep(2 * self._pause_s * self.side.entropy.random())
            if len(lane.batches) < IN_FLIGHT_MAX and not self.stopping:
                self._add(lane)
                lane.wake.set()
        lane.wake.set()

    def _add(self, lane: _Lane) -> None:
        count = 1 + int(self.side.entropy.random() * RECORDS_A_BATCH_MAX)
        values = [self.side.recorder.new_value() for _ in range(count)]
        settings = BatchSettings(
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=lane.next_sequence,
        )
        now_s = self.side.recorder.loop.time()
        data = batch_of(values, self.side.clock.now_ms(), settings)
        lane.batches.append(_Batch(data, lane.next_sequence, values, now_s))
        lane.next_sequence += count

    async def _drain(self, lane: _Lane, group: asyncio.TaskGroup) -> None:
        while not lane.broken and not (self.stopping and not lane.batches):
            await lane.wake.wait()
            lane.wake.clear()
            if lane.failed:
                if any(batch.in_flight for batch in lane.batches):
                    continue
                lane.failed = False
                await asyncio.sleep(BACKOFF_S * (0.5 + self.side.entropy.random()))
                lane.leader = None
            elif self.side.entropy.random() < MOVES:
                lane.leader = None
            if lane.leader is None:
                leaders = await self.side.leaders(self._topic)
                lane.leader = leaders.get(lane.partition.partition)
            if lane.leader is None:
                lane.failed = True
                lane.wake.set()
                continue
            for batch in lane.batches:
                if not batch.in_flight:
                    batch.in_flight = True
                    group.create_task(self._send(lane, batch, lane.leader))

    async def _send(self, lane: _Lane, batch: _Batch, leader: Address) -> None:
        number = lane.partition.partition
        request = produce_request(self.side, self._topic, number, batch.data, acks=-1)
        answer = await self.side.ask(leader, request, f"produce {number}")
        batch.in_flight = False
        if answer is None:
            lane.failed = True
        else:
            self._settle(lane, batch, answer.responses[0].partition_responses[0])
        lane.wake.set()

    def _settle(self, lane: _Lane, batch: _Batch, answer: Any) -> None:
        if batch.is_recorded:
            return
        code = int(answer.error_code)
        if code in (0, DUPLICATE_SEQUENCE):
            batch.base_offset = answer.base_offset if answer.base_offset >= 0 else None
            for _ in range(lane.batches.index(batch) + 1):
                self._record(lane, lane.batches.popleft(), SendOutcome.OK)
            return
        lane.failed = True
        if code not in RETRIABLE:
            lane.broken = True
            what = f"produce {lane.partition} sequence={batch.base_sequence}"
            self.side.complain(what, code, answer.error_message)

    def _record(self, lane: _Lane, batch: _Batch, outcome: SendOutcome) -> None:
        batch.is_recorded = True
        now_s = self.side.recorder.loop.time()
        for index, value in enumerate(batch.values):
            offset = None if batch.base_offset is None else batch.base_offset + index
            self.side.recorder.history.append(
                Send(
                    self.side.name,
                    lane.partition,
                    value,
                    batch.base_sequence + index,
                    batch.invoked_s,
                    now_s,
                    outcome,
                    offset,
                )
            )


class SimConsumer:
    """Reads partitions of a topic from their start, uncommitted transactions too."""

    isolation = 0

    def __init__(self, side: ClientSide, topic: str, partitions: int, *, final: bool) -> None:
        """Read for ever, or, if `final`, up to an end that covers all acknowledged records."""
        self.side = side
        self.positions = dict.fromkeys((TopicPartition(topic, n) for n in range(partitions)), 0)
        self._topic = topic
        self._final = final
        self._leaders: dict[int, Address] = {}

    async def run(self) -> None:
        """Read all partitions."""
        async with asyncio.TaskGroup() as group:
            for partition in self.positions:
                group.create_task(self._read(partition))

    async def _read(self, partition: TopicPartition) -> None:
        while True:
            leader = self._leaders.get(partition.partition)
            if leader is None:
                self._leaders = await self.side.leaders(self._topic)
                await asyncio.sleep(BACKOFF_S * (0.5 + self.side.entropy.random()))
                continue
            answer = await self.side.ask(
                leader, self._request(partition), f"fetch {partition.partition}"
            )
            if answer is None or int(answer.error_code):
                self._leaders.pop(partition.partition, None)
                continue
            found = answer.responses[0].partitions[0]
            code = int(found.error_code)
            if code:
                self._leaders.pop(partition.partition, None)
                where = f"fetch {partition} at {self.positions[partition]}"
                self.side.complain(where, code, f"high_watermark={found.high_watermark}")
                if code == OFFSET_OUT_OF_RANGE:
                    return
                continue
            moved = self._take(partition, found)
            if self._final and not moved and self._at_end(partition, found):
                return

    def _at_end(self, partition: TopicPartition, found: Any) -> bool:
        position = self.positions[partition]
        acknowledged_end = self.side.recorder.acknowledged_end(partition)
        return position >= max(int(found.high_watermark), acknowledged_end)

    def _request(self, partition: TopicPartition) -> Any:
        part = build_request_part(
            Api.FETCH,
            FETCH_VERSION,
            "FetchPartition",
            partition=partition.partition,
            fetch_offset=self.positions[partition],
            partition_max_bytes=4096,
        )
        topic = build_request_part(
            Api.FETCH, FETCH_VERSION, "FetchTopic", topic=partition.topic, partitions=(part,)
        )
        return build_request(
            Api.FETCH,
            FETCH_VERSION,
            max_wait=timedelta(seconds=FETCH_WAIT_S),
            min_bytes=1,
            isolation_level=self.isolation,
            topics=(topic,),
            forgotten_topics_data=(),
        )

    def _take(self, partition: TopicPartition, found: Any) -> bool:
        position = self.positions[partition]
        records = []
        for offset, value in values_of(found.records):
            if value is not None and offset >= position:
                records.append((offset, value))
            self.positions[partition] = max(self.positions[partition], offset + 1)
        if records:
            now_s = self.side.recorder.loop.time()
            self.side.recorder.history.append(
                Poll(self.side.name, partition, position, tuple(records), now_s, self._final)
            )
        return self.positions[partition] > position


def values_of(data: Any) -> Iterator[tuple[int, int | None]]:
    """Yield the offset and value of each record; None for records that consumers do not get."""
    rest = memoryview(b"".join(data) if isinstance(data, list | tuple) else data or b"")
    while rest:
        header = parse_header(rest)
        batch, rest = rest[: header.size_bytes], rest[header.size_bytes :]
        if header.is_control:
            yield header.last_offset, None
            continue
        decoded = decode(batch)
        rows = decoded.records
        for offset, value in zip(
            rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True
        ):
            yield offset, int(value)
        yield header.last_offset, None
