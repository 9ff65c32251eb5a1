"""DeadLetterWriter: writes the records that a share group gives up to its dead letter topic.

  DEAD-LETTERS-1: a record is archived after its dead letter is acknowledged by all in-sync
      replicas. So a failure may write a dead letter twice, but loses none
  DEAD-LETTERS-2: while the topic takes nothing, members go on with other records. Those that wait
      keep their places in the group's window, so they are bounded
  DEAD-LETTERS-3: the writer writes only to a topic whose `errors.deadletterqueue.group.enable` is
      true

A dead letter of partition p goes to partition p modulo the topic's partitions. Its headers say
where the record is and why the group has given it up. With
`errors.deadletterqueue.copy.record.enable` it has the record's key, value and headers, too.
Source: KIP-1191.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.internal_topics import InternalTopic
from sparklog.broker.fetch.fetch import FetchService
from sparklog.broker.fetch.read import CONSUMER, FetchSpec
from sparklog.broker.partition.config import TopicRules
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.produce.produce import ProduceService
from sparklog.broker.runtime.environment import Address, Environment, TaskScope, Unreachable
from sparklog.broker.runtime.log_limiter import RateLimitedLog
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.share.partition import SharePartition
from sparklog.cluster.metadata.image import Topic
from sparklog.cluster.metadata.records import NO_LEADER
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.in_flight import DeadLetters
from sparklog.coordinator.share.settings import ShareGroupSettings, ShareSettings
from sparklog.core.backoff import Backoff
from sparklog.core.errors import (
    NotServing,
    OffsetOutOfRange,
    RecordTooLarge,
    SparklogError,
    TopicAuthorizationFailed,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.columns import HEADERS_TYPE, RECORDS_SCHEMA
from sparklog.protocol.records.decoder import decode
from sparklog.protocol.records.encoder import encode_many
from sparklog.protocol.records.header import INT32_MAX
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max

logger = logging.getLogger(__name__)

ENABLED: Final = "errors.deadletterqueue.group.enable"
HEADER_PREFIX: Final = "__dlq.errors."
READ_BYTES: Final = 1024 * 1024
"""Read at once, or one batch if that is larger."""
WRITE_TIMEOUT_S: Final = 30.0
RETRY_FIRST_S: Final = 0.1
RETRY_LONGEST_S: Final = 5.0
ALL: Final = -1
PRODUCE_VERSION: Final = 9
PURPOSE: Final = "dead letters"
REJECTED: Final = "a member of the share group has rejected the record"
_NO_RECORDS: Final = pa.RecordBatch.from_pylist([], RECORDS_SCHEMA)
TOO_OFTEN: Final = "the record was delivered as often as share.delivery.count.limit allows"


@dataclass(slots=True, eq=False)
class _Queue:
    """The dead letters of one share partition that are not written yet."""

    part: SharePartition
    letters: deque[DeadLetters] = field(default_factory=deque)


class DeadLetterWriter:
    """The writer of one incarnation of a broker."""

    def __init__(
        self,
        environment: Environment,
        metadata: MetadataAccess,
        fetch_service: FetchService,
        produce_service: ProduceService,
        tasks: TaskScope,
        metrics: BrokerMetrics,
        *,
        broker_id: int,
        replication_factor: int,
        settings: ShareSettings,
        settings_of: Callable[[str], ShareGroupSettings],
    ) -> None:
        """Write nothing yet: see `bury`."""
        self._environment = environment
        self._metadata = metadata
        self._fetch_service = fetch_service
        self._produce_service = produce_service
        self._tasks = tasks
        self._metrics = metrics
        self._broker_id = broker_id
        self._replication_factor = replication_factor
        self._settings = settings
        self._settings_of = settings_of
        self.all_written: Callable[[SharePartition], None] = lambda part: None
        """Called with a share partition that has no dead letters left to write."""
        self._queues: dict[SharePartitionKey, _Queue] = {}
        self._failed = RateLimitedLog()

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for their dead letters."""
        letters = (one for queue in self._queues.values() for one in queue.letters)
        return sum(one.last_offset - one.first_offset + 1 for one in letters)

    def has(self, part: SharePartition) -> bool:
        """Return whether dead letters of a share partition wait."""
        queue = self._queues.get(part.key)
        return queue is not None and queue.part is part

    def bury(self, part: SharePartition, letters: Sequence[DeadLetters]) -> None:
        """Write dead letters of a share partition, then archive their records."""
        queue = self._queues.get(part.key)
        if queue is None or queue.part is not part:
            queue = self._queues[part.key] = _Queue(part)
            self._tasks.start(self._write_all(queue), f"dead letters of {part.key}")
        queue.letters.extend(letters)

    async def _write_all(self, queue: _Queue) -> None:
        backoff = Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
        await asyncio.sleep(0)  # `bury` fills the queue after it has started this task
        while queue.letters and queue.part.live:
            letters = queue.letters[0]
            try:
                written = await self._write_some(queue.part, letters)
            except (SparklogError, Unreachable, TimeoutError) as error:
                self._metrics.dead_letters_failed()
                self._failed.warn(
                    logger,
                    "a share group's dead letters cannot be written now; they wait. group=%s "
                    "offsets=%d-%d error=%s",
                    queue.part.key.group_id,
                    letters.first_offset,
                    letters.last_offset,
                    error,
                )
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            queue.part.buried(written)
            queue.letters.popleft()
            if written.last_offset < letters.last_offset:
                rest = letters._replace(first_offset=written.last_offset + 1)
                queue.letters.appendleft(rest)
        if self._queues.get(queue.part.key) is queue:
            del self._queues[queue.part.key]
        self.all_written(queue.part)

    async def _write_some(self, part: SharePartition, letters: DeadLetters) -> DeadLetters:
        """Write dead letters of the first of these records; return which records they were."""
        settings = self._settings_of(part.key.group_id)
        if not settings.dead_letter_topic:
            return letters  # the group had one before
        topic = await self._topic(settings.dead_letter_topic)
        records, end_offset = await self._read(part, letters)
        done = letters._replace(last_offset=min(letters.last_offset, end_offset - 1))
        if not records.num_rows:
            return done
        copied = settings.copies_records
        number = part.key.partition % topic.partitions
        source = part.led.layout.topic
        for tries_left in (1, 0):
            rows = dead_letter_rows(records, source, part.key, letters, copies=copied)
            limit = TopicRules.of(topic.settings, 0).batches.max_message_bytes
            try:
                for batch in encode_many(rows, base_offset=0, max_batch_bytes=limit):
                    await self._produce(topic, number, batch)
            except RecordTooLarge:
                if not (tries_left and copied):
                    raise
                copied = False  # a dead letter without its record is better than none
            else:
                break
        self._metrics.dead_letters_written(topic.name, records.num_rows)
        return done

    async def _topic(self, name: str) -> Topic:
        """Return the dead letter topic.

        Raises:
            UnknownTopicOrPartition: there is none.
            TopicAuthorizationFailed: it does not accept dead letters.
            CoordinatorNotAvailable: it cannot be created now.
        """
        topic = self._metadata.image.topics.get(name)
        if topic is None and self._settings.creates_dead_letter_topics:
            made = InternalTopic(name, 1, self._replication_factor, {ENABLED: "true"})
            topic = await made.ensure(self._metadata, self._environment)
        if topic is None:
            raise UnknownTopicOrPartition(
                f"the dead letter topic does not exist; create it with {ENABLED}=true. topic={name}"
            )
        if topic.settings.get(ENABLED) != "true":
            raise TopicAuthorizationFailed(
                f"the topic takes no dead letters; set {ENABLED}=true on it. topic={name}"
            )
        return topic

    async def _read(self, part: SharePartition, letters: DeadLetters) -> tuple[pa.RecordBatch, int]:
        """Read some of the records; return them, and the offset before which none is missing."""
        where, first = part.led.where, letters.first_offset
        at = FetchPosition(first, READ_BYTES, part.led.leader_epoch, -1)
        spec = FetchSpec(CONSUMER, 0, 1, READ_BYTES, 0, {where: at})
        result = (await self._fetch_service.fetch(spec))[where]
        if isinstance(result, OffsetOutOfRange) and first < part.led.log_start_offset:
            return _NO_RECORDS, part.led.log_start_offset
        if isinstance(result, SparklogError):
            raise result
        tables: list[pa.RecordBatch] = []
        end_offset = first
        for data in result.batches:
            for batch in split_batches(data):
                header = batch.header
                if header.base_offset > letters.last_offset:
                    return _joined(tables), letters.last_offset + 1
                if not header.is_control:
                    rows = await self._rows(bytes(batch.data), first, letters.last_offset)
                    tables.append(rows)
                end_offset = max(end_offset, header.end_offset)
        if end_offset == first:
            end_offset = letters.last_offset + 1  # compaction has removed them all
        return _joined(tables), end_offset

    async def _rows(self, batch: bytes, first: int, last: int) -> pa.RecordBatch:
        size_bytes = unfolded_bytes_max(batch, INT32_MAX)
        return await self._environment.unfold(size_bytes, None, _rows_between, batch, first, last)

    async def _produce(self, topic: Topic, number: int, data: bytes) -> None:
        """Append a batch; return when all in-sync replicas have it.

        Raises:
            SparklogError, Unreachable, TimeoutError: it is not there, as far as is known.
        """
        leader = topic.partition_states[number].leader
        if leader == self._broker_id:
            where = PartitionId(topic.topic_id, number)
            timeout_ms = round(WRITE_TIMEOUT_S * 1000)
            produced = await self._produce_service.produce({where: data}, ALL, timeout_ms)
            outcome = produced[where]
            if isinstance(outcome, SparklogError):
                raise outcome
            return
        peer = self._metadata.image.brokers.get(leader)
        if leader == NO_LEADER or peer is None:
            raise NotServing(f"the dead letter topic has no leader now. topic={topic.name}")
        response = await self._environment.network.call(
            Address(peer.host, peer.port),
            _request(topic.name, number, data),
            timeout_s=WRITE_TIMEOUT_S,
            purpose=PURPOSE,
        )
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code in (ErrorCode.message_too_large, ErrorCode.record_list_too_large):
            raise RecordTooLarge(f"the dead letter topic takes no record so large. {topic.name}")
        if code is not ErrorCode.none:
            raise Unavailable(f"the dead letter was not written: {code.name}. topic={topic.name}")


def dead_letter_rows(
    records: pa.RecordBatch,
    topic: str,
    key: SharePartitionKey,
    letters: DeadLetters,
    *,
    copies: bool,
) -> pa.RecordBatch:
    """Return the dead letters of some records, by the columns of RECORDS_SCHEMA.

    Args:
        records: the records, by the same columns.
        topic: the name of their topic.
        key: the group and their partition.
        letters: says why the group has given them up.
        copies: dead letters have the keys, values and headers of their records.
    """
    reason = REJECTED if letters.rejected else TOO_OFTEN
    same = {
        "topic": topic,
        "partition": str(key.partition),
        "group": key.group_id,
        "delivery.count": str(letters.delivery_count),
        "message": reason,
    }
    fixed = {f"{HEADER_PREFIX}{name}": text.encode() for name, text in same.items()}
    own = records.column("headers").to_pylist() if copies else [None] * records.num_rows
    headers = []
    for offset, kept in zip(records.column("offset").to_pylist(), own, strict=True):
        said = {**fixed, f"{HEADER_PREFIX}offset": str(offset).encode()}
        added = [{"key": name, "value": value} for name, value in said.items()]
        headers.append([*(kept or ()), *added])
    nulls = pa.nulls(records.num_rows, pa.binary())
    return pa.RecordBatch.from_arrays(
        [
            records.column("timestamp"),
            records.column("key") if copies else nulls,
            records.column("value") if copies else nulls,
            pa.array(headers, HEADERS_TYPE),
        ],
        names=["timestamp", "key", "value", "headers"],
    )


def _rows_between(batch: bytes, first: int, last: int) -> pa.RecordBatch:
    """Return the records of a batch from offset `first` to `last`."""
    records = decode(batch).records
    offsets = records.column("offset").to_numpy()
    begin, end = np.searchsorted(offsets, (first, last + 1))
    return records.slice(int(begin), int(end - begin))


def _joined(tables: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(tables) if tables else _NO_RECORDS


def _request(topic: str, number: int, data: bytes) -> Any:
    api, version = Api.PRODUCE, PRODUCE_VERSION
    part = build_request_part(api, version, "PartitionProduceData", index=number, records=data)
    asked = build_request_part(api, version, "TopicProduceData", name=topic, partition_data=(part,))
    timeout = timedelta(seconds=WRITE_TIMEOUT_S)
    return build_request(api, version, acks=ALL, timeout=timeout, topic_data=(asked,))
