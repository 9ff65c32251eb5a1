"""Transactional producers and `read_committed` consumers of a simulated cluster.

Two producers share each transactional id, so they fence each other repeatedly. A fenced producer
continues for a while as if it were current. Half of the ids use the first protocol of transactions,
the others the second (KIP-890). Durations are virtual seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from sparklog.broker.runtime.environment import Address
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.control import end_transaction, read_control
from sparklog.protocol.records.header import BatchHeader, parse_header
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from sparklog.testing.history import CommittedRead, Fate, Send, SendOutcome, TransactionHistory
from sparklog.testing.sim.clients import (
    BACKOFF_S,
    INIT_PRODUCER_ID_VERSION,
    RECORDS_A_BATCH_MAX,
    RETRIABLE,
    ClientSide,
    SimConsumer,
)

READ_COMMITTED: Final = 1
COMMIT_SHARE: Final = 0.7
FENCE_SHARE: Final = 0.2
"""Share of transactions after which the other producer of the id takes over."""
TIMEOUT_S: Final = 4.0
"""Time-out of a transaction: the coordinator aborts it then."""
WRITES_MAX: Final = 4

NOT_COORDINATOR: Final = 16
CONCURRENT_TRANSACTIONS: Final = 51
FENCED: Final = frozenset({47, 49, 90})
INVALID_TXN_STATE: Final = 48
TRANSACTION_KEY: Final = 1


@dataclass(slots=True)
class TransactionLog:
    """The observations of all transactional clients of a run."""

    transactions: list[TransactionHistory] = field(default_factory=list)
    reads: list[CommittedRead] = field(default_factory=list)


class _Fenced(Exception):
    """Another producer has the id, or the coordinator has ended the transaction."""


@dataclass(frozen=True, slots=True)
class _Speech:
    """Request versions of one protocol of transactions."""

    produce: int
    end: int
    adds_partitions: bool


FIRST: Final = _Speech(produce=9, end=3, adds_partitions=True)
SECOND: Final = _Speech(produce=12, end=5, adds_partitions=False)


class SimTransactions:
    """One producer of a transactional id that it shares with others."""

    def __init__(
        self, side: ClientSide, log: TransactionLog, topic: str, partitions: int, number: int
    ) -> None:
        """Act as one of the producers of id `number // 2`."""
        self.side = side
        self.stopping = False
        self.settled = False
        self._log = log
        self._id = f"transactions-{number // 2}"
        self._speech = FIRST if number // 2 % 2 == 0 else SECOND
        self._partitions = [TopicPartition(topic, n) for n in range(partitions)]
        self._coordinator: Address | None = None
        self._leaders: dict[int, Address] = {}
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._numbers = dict.fromkeys(self._partitions, 0)

    async def run(self) -> None:
        """Write transactions until `stopping`."""
        try:
            while not self.stopping:
                try:
                    await self._initialise()
                    while not self.stopping:
                        await self._transact()
                        if self.side.entropy.random() < FENCE_SHARE:
                            break
                except _Fenced:
                    pass
                await asyncio.sleep(self.side.entropy.random())
        finally:
            self.settled = True

    async def _initialise(self) -> None:
        request = build_request(
            Api.INIT_PRODUCER_ID,
            INIT_PRODUCER_ID_VERSION,
            transactional_id=self._id,
            transaction_timeout=timedelta(seconds=TIMEOUT_S),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await self._coordinated(request, lambda answer: int(answer.error_code))
        self._begin(int(answer.producer_id), int(answer.producer_epoch))

    def _begin(self, producer_id: int, epoch: int) -> None:
        self._producer = (producer_id, epoch)
        self._sequences = dict.fromkeys(self._partitions, 0)

    async def _transact(self) -> None:
        entropy = self.side.entropy
        transaction = TransactionHistory(self.side.name)
        self._log.transactions.append(transaction)
        commits = entropy.random() < COMMIT_SHARE
        asked = False
        try:
            for _ in range(1 + int(entropy.random() * WRITES_MAX)):
                where = self._partitions[int(entropy.random() * len(self._partitions))]
                if self._speech.adds_partitions:
                    await self._add(where)
                await self._write(transaction, where)
                await asyncio.sleep(0.1 * entropy.random())
            asked = True
            await self._end(commits)
        except _Fenced:
            transaction.fate = Fate.UNKNOWN if asked and commits else Fate.ABORTED
            raise
        transaction.fate = Fate.COMMITTED if commits else Fate.ABORTED

    async def _add(self, where: TopicPartition) -> None:
        topic = build_request_part(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            "AddPartitionsToTxnTopic",
            name=where.topic,
            partitions=(where.partition,),
        )
        request = build_request(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=(topic,),
        )

        def code(answer: Any) -> int:
            result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            return int(result.partition_error_code)

        await self._coordinated(request, code)

    async def _end(self, commits: bool) -> None:
        request = build_request(
            Api.END_TXN,
            self._speech.end,
            transactional_id=self._id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commits,
        )
        answer = await self._coordinated(request, lambda answer: int(answer.error_code))
        if self._speech is SECOND:
            self._begin(int(answer.producer_id), int(answer.producer_epoch))

    async def _coordinated(self, request: Any, code_of: Any) -> Any:
        """Send a request to the coordinator until it succeeds.

        Raises:
            _Fenced: another producer has the id, or the transaction is over.
        """
        while True:
            if self._coordinator is None:
                self._coordinator = await find_coordinator(self.side, self._id, TRANSACTION_KEY)
            answer = await self.side.ask(self._coordinator, request, "coordinator")
            code = -1 if answer is None else code_of(answer)
            if code == 0:
                return answer
            self._refused(type(request).__name__, code)
            if code != CONCURRENT_TRANSACTIONS:
                self._coordinator = None
            await asyncio.sleep(BACKOFF_S * (0.5 + self.side.entropy.random()))

    def _refused(self, what: str, code: int) -> None:
        if code in FENCED or code == INVALID_TXN_STATE:
            raise _Fenced
        if code not in (-1, CONCURRENT_TRANSACTIONS, NOT_COORDINATOR):
            self.side.complain(what, code)

    async def _write(self, transaction: TransactionHistory, where: TopicPartition) -> None:
        side = self.side
        count = 1 + int(side.entropy.random() * RECORDS_A_BATCH_MAX)
        values = [side.recorder.new_value() for _ in range(count)]
        rows = pa.RecordBatch.from_pydict(
            {
                "timestamp": pa.array([side.clock.now_ms()] * count, TIMESTAMP_TYPE),
                "value": pa.array([str(value).encode() for value in values], pa.binary()),
            }
        )
        settings = BatchSettings(
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequences[where],
            is_transactional=True,
        )
        invoked_s = side.recorder.loop.time()
        outcome, base_offset = SendOutcome.UNKNOWN, None
        try:
            base_offset = await self._produce(where, bytes(encode(rows, settings, base_offset=0)))
            outcome = SendOutcome.OK
            transaction.written += [(where, value) for value in values]
        finally:
            now_s = side.recorder.loop.time()
            for index, value in enumerate(values):
                number = self._numbers[where] = self._numbers[where] + 1
                offset = None if base_offset is None else base_offset + index
                sent = Send(side.name, where, value, number, invoked_s, now_s, outcome, offset)
                side.recorder.history.append(sent)
        self._sequences[where] += count

    async def _produce(self, where: TopicPartition, data: bytes) -> int | None:
        """Append a batch, repeating until it succeeds; return its base offset, if known."""
        version = self._speech.produce
        part = build_request_part(
            Api.PRODUCE, version, "PartitionProduceData", index=where.partition, records=data
        )
        topic = build_request_part(
            Api.PRODUCE, version, "TopicProduceData", name=where.topic, partition_data=(part,)
        )
        request = build_request(
            Api.PRODUCE,
            version,
            transactional_id=self._id,
            acks=-1,
            timeout=timedelta(seconds=self.side.timeout_s),
            topic_data=(topic,),
        )
        while True:
            leader = self._leaders.get(where.partition)
            if leader is not None:
                answer = await self.side.ask(leader, request, f"produce {where.partition}")
                if answer is not None:
                    partition = answer.responses[0].partition_responses[0]
                    code = int(partition.error_code)
                    if code == 0:
                        return int(partition.base_offset) if partition.base_offset >= 0 else None
                    self._refused(f"transactional produce {where}", code)
            await asyncio.sleep(BACKOFF_S * (0.5 + self.side.entropy.random()))
            self._leaders = await self.side.leaders(where.topic)


async def find_coordinator(side: ClientSide, key: str, key_type: int) -> Address:
    """Return the coordinator of a group (0) or of a transactional id (1), once there is one."""
    request = build_request(Api.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=(key,))
    while True:
        answer = await side.ask_anybody(request)
        found = answer.coordinators[0]
        code = int(found.error_code)
        if code == 0:
            return Address(found.host, found.port)
        if code not in RETRIABLE:
            side.complain("find coordinator", code)
        await asyncio.sleep(BACKOFF_S * (0.5 + side.entropy.random()))


class CommittedConsumer(SimConsumer):
    """Reads committed records: it drops aborted transactions that the fetch responses list."""

    isolation = READ_COMMITTED

    def __init__(
        self, side: ClientSide, log: TransactionLog, topic: str, partitions: int, *, final: bool
    ) -> None:
        """Record the records that it reads in `log`."""
        super().__init__(side, topic, partitions, final=final)
        self._log = log

    def _at_end(self, partition: TopicPartition, found: Any) -> bool:
        is_stable = found.last_stable_offset >= found.high_watermark
        return is_stable and super()._at_end(partition, found)

    def _take(self, partition: TopicPartition, found: Any) -> bool:
        position = self.positions[partition]
        aborts = sorted(
            (int(one.first_offset), int(one.producer_id))
            for one in found.aborted_transactions or ()
        )
        aborted: set[int] = set()
        for header, batch in _batches(found.records):
            while aborts and aborts[0][0] <= header.last_offset:
                aborted.add(aborts.pop(0)[1])
            if header.is_control:
                if any(map(end_transaction, read_control(decode(batch)))):
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                self._show(partition, position, batch)
            self.positions[partition] = max(self.positions[partition], header.last_offset + 1)
        return self.positions[partition] > position

    def _show(self, partition: TopicPartition, position: int, batch: memoryview) -> None:
        rows = decode(batch).records
        offsets, values = rows.column("offset").to_pylist(), rows.column("value").to_pylist()
        for offset, value in zip(offsets, values, strict=True):
            if offset >= position:
                read = CommittedRead(partition, offset, int(value), self._final)
                self._log.reads.append(read)


def _batches(data: Any) -> Iterator[tuple[BatchHeader, memoryview]]:
    rest = memoryview(b"".join(data) if isinstance(data, list | tuple) else data or b"")
    while rest:
        header = parse_header(rest)
        yield header, rest[: header.size_bytes]
        rest = rest[header.size_bytes :]
