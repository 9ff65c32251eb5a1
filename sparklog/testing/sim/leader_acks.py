"""LeaderAcksProducer: a simulated producer with acks=1 and without idempotence.

Older clients work like this by default. It has one batch in flight for each partition and repeats
it until it is acknowledged. So the log may have a record twice. With one replica an acknowledged
record must never be lost: the leader's write-ahead log has it. With more, the next leader may lack
it, as in Kafka (`Send.durable`). Durations are virtual seconds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sparklog.broker.runtime.environment import Address
from sparklog.core.types import TopicPartition
from sparklog.protocol.records.encoder import BatchSettings
from sparklog.testing.history import Send, SendOutcome
from sparklog.testing.sim.clients import (
    BACKOFF_S,
    RECORDS_A_BATCH_MAX,
    RETRIABLE,
    ClientSide,
    batch_of,
    produce_request,
)

ACKS_LEADER: Final = 1


class LeaderAcksProducer:
    """Sends to every partition of a topic until `stopping`, then until all is acknowledged."""

    def __init__(
        self, side: ClientSide, topic: str, partitions: int, pause_s: float, *, replicas: int
    ) -> None:
        """Send a batch to each partition every `pause_s`, on average."""
        self.side = side
        self.stopping = False
        self._topic = topic
        self._partitions = [TopicPartition(topic, n) for n in range(partitions)]
        self._pause_s = pause_s
        self._durable = replicas == 1
        self._under_way: dict[TopicPartition, tuple[list[int], float]] = {}
        """Values without an acknowledgement, and the time of their first send."""

    @property
    def settled(self) -> bool:
        """Return True if every batch was acknowledged."""
        return not self._under_way

    async def run(self) -> None:
        """Send until `stopping`."""
        async with asyncio.TaskGroup() as group:
            for partition in self._partitions:
                group.create_task(self._fill(partition))

    def abandon(self) -> None:
        """Record pending values as UNKNOWN."""
        for partition, (values, since_s) in self._under_way.items():
            self._record(partition, values, since_s, None)
        self._under_way.clear()

    async def _fill(self, partition: TopicPartition) -> None:
        recorder, entropy = self.side.recorder, self.side.entropy
        while True:
            await asyncio.sleep(2 * self._pause_s * entropy.random())
            if self.stopping:
                return
            count = 1 + int(entropy.random() * RECORDS_A_BATCH_MAX)
            values = [recorder.new_value() for _ in range(count)]
            since_s = recorder.loop.time()
            self._under_way[partition] = values, since_s
            data = batch_of(values, self.side.clock.now_ms(), BatchSettings())
            base_offset = await self._send(partition, data)
            if self._under_way.pop(partition, None):
                self._record(partition, values, since_s, base_offset)

    async def _send(self, partition: TopicPartition, data: bytes) -> int:
        """Send a batch until it is acknowledged; return its base offset."""
        number, leader = partition.partition, None
        while True:
            leader = leader or await self._leader(partition)
            request = produce_request(self.side, self._topic, number, data, acks=ACKS_LEADER)
            answer = await self.side.ask(leader, request, f"produce {number}")
            if answer is not None:
                part = answer.responses[0].partition_responses[0]
                code = int(part.error_code)
                if not code:
                    return int(part.base_offset)
                assert code in RETRIABLE, f"acks=1 {partition} error={code} {part.error_message}"
            leader = None
            await asyncio.sleep(BACKOFF_S * (0.5 + self.side.entropy.random()))

    async def _leader(self, partition: TopicPartition) -> Address:
        while True:
            leaders = await self.side.leaders(self._topic)
            if partition.partition in leaders:
                return leaders[partition.partition]
            await asyncio.sleep(BACKOFF_S)

    def _record(
        self, partition: TopicPartition, values: list[int], since_s: float, base_offset: int | None
    ) -> None:
        recorder = self.side.recorder
        for index, value in enumerate(values):
            recorder.history.append(
                Send(
                    self.side.name,
                    partition,
                    value,
                    value,
                    since_s,
                    recorder.loop.time(),
                    SendOutcome.UNKNOWN if base_offset is None else SendOutcome.OK,
                    None if base_offset is None else base_offset + index,
                    idempotent=False,
                    durable=self._durable,
                )
            )
