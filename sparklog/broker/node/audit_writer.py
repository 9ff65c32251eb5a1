"""Audit writer: a background task that writes decisions and failed logins to the audit topic.

  AUDIT-WRITER-1: no request waits for the topic, and writing to it is not audited
  AUDIT-WRITER-2: a batch is written until it is acknowledged, so a record may be there twice after
      a fault
  AUDIT-WRITER-3: while the topic takes nothing, the buffer fills; what does not fit is counted as
      lost

The topic has one partition, so all brokers' records are in one order. A broker writes to its
leader: to itself, or by a produce request under the cluster's identity. Source: decision 62.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.internal_topics import InternalTopic
from sparklog.broker.node.replicas import Replicas
from sparklog.broker.runtime.audit_buffer import AuditBuffer, AuditEvent, encode_event
from sparklog.broker.runtime.environment import Address, Environment, Unreachable
from sparklog.broker.runtime.failed_logins import FailedLoginEvent
from sparklog.broker.runtime.log_limiter import RateLimitedLog
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.cluster.metadata.records import NO_LEADER
from sparklog.core.backoff import Backoff
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import SparklogError
from sparklog.core.topic_names import AUDIT_TOPIC
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.encoder import BatchSettings, encode
from sparklog.protocol.records.header import Codec

logger = logging.getLogger(__name__)

LINGER_S: Final = 0.2
"""The time for which events gather: a write costs about one put to the storage."""
BATCH_EVENTS: Final = 500
BATCH_BYTES: Final = 256 * 1024
"""Bytes of values from which on a batch is complete, far below `max.message.bytes`."""
WRITE_TIMEOUT_S: Final = 30.0
RETRY_FIRST_S: Final = 0.1
RETRY_LONGEST_S: Final = 5.0
ALL: Final = -1
PRODUCE_VERSION: Final = 9
PURPOSE: Final = "audit"
UNKNOWN_FAULTS: Final = frozenset({ErrorCode.unknown_server_error})
"""Errors that are no verdict about the batch, besides Kafka's retriable ones."""


class AuditWriter:
    """One broker's; it lives on from incarnation to incarnation."""

    def __init__(
        self,
        buffer: AuditBuffer,
        environment: Environment,
        metadata: MetadataAccess,
        config: BrokerConfig,
        broker_id: int,
        metrics: BrokerMetrics,
    ) -> None:
        """Write what `buffer` has, once `run` runs."""
        self._buffer = buffer
        self._environment = environment
        self._metadata = metadata
        self._broker_id = broker_id
        self._metrics = metrics
        factor = config.whole("default.replication.factor")
        self._topic = InternalTopic(AUDIT_TOPIC, 1, factor, {"cleanup.policy": "delete"})
        self._batches: deque[tuple[bytes, int]] = deque()
        """Encoded batches that are not acknowledged, and how many records each has."""
        self._gathering = 0
        """Events that are being encoded."""
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
        self._failed = RateLimitedLog()
        self._went = asyncio.Event()
        """Set when a batch is written or lost."""

    @property
    def unwritten(self) -> int:
        """Return the number of events that are not in the topic yet."""
        return len(self._buffer) + self._gathering + sum(count for _, count in self._batches)

    async def run(self, replicas: Replicas) -> None:
        """Write until cancelled; `replicas` are those of the incarnation."""
        while True:
            if not self._batches:
                await self._buffer.wait()
                await asyncio.sleep(LINGER_S)
                await self._gather()
            await self._write_next(replicas)

    async def flush(self, within_s: float) -> None:
        """Wait until all is written, for so long at most; `run` goes on meanwhile."""
        self._buffer.flush_logins()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.unwritten:
                    self._went.clear()
                    await self._went.wait()

    def end(self) -> None:
        """Count what is left as lost: the broker ends."""
        if self.unwritten:
            self._buffer.lose(self.unwritten, "the broker ended first")

    async def _gather(self) -> None:
        events = self._buffer.take(BATCH_EVENTS)
        self._gathering = len(events)
        try:
            encoded = self._environment.compute(encode_batches, events, self._broker_id)
            self._batches.extend(await encoded)
        except asyncio.CancelledError:
            self._buffer.lose(len(events), "the incarnation ended while it encoded them")
            raise
        except Exception:
            logger.exception("audit records cannot be encoded")
            self._buffer.lose(len(events), "they cannot be encoded")
        finally:
            self._gathering = 0
            self._went.set()

    async def _write_next(self, replicas: Replicas) -> None:
        """Write the oldest batch, or wait a while if the topic does not take it now."""
        if not self._batches:
            return
        data, count = self._batches[0]
        code = await self._code_of_write(replicas, data)
        if code is ErrorCode.none:
            self._metrics.audit_written(count)
            self._backoff.reset()
        elif code.retriable or code in UNKNOWN_FAULTS:
            self._failed.warn(logger, "audit records cannot be written now error=%s", code.name)
            await asyncio.sleep(self._backoff.next_s())
            return
        else:
            self._buffer.lose(count, f"the topic rejects them, error={code.name}")
        self._batches.popleft()
        self._went.set()

    async def _code_of_write(self, replicas: Replicas, data: bytes) -> ErrorCode:
        try:
            return await self._write(replicas, data)
        except (Unreachable, TimeoutError):
            return ErrorCode.network_exception
        except SparklogError as error:
            return ErrorCode(error.kafka_code)
        except Exception:
            logger.exception("audit records were not written")
            return ErrorCode.unknown_server_error

    async def _write(self, replicas: Replicas, data: bytes) -> ErrorCode:
        topic = await self._topic.ensure(self._metadata, self._environment)
        leader = topic.partition_states[0].leader
        if leader == self._broker_id:
            where = PartitionId(topic.topic_id, 0)
            timeout_ms = round(WRITE_TIMEOUT_S * 1000)
            produced = await replicas.produce_service.produce({where: data}, ALL, timeout_ms)
            outcome = produced[where]
            if isinstance(outcome, SparklogError):
                raise outcome
            return ErrorCode.none
        peer = self._metadata.image.brokers.get(leader)
        if leader == NO_LEADER or peer is None:
            return ErrorCode.leader_not_available
        address = Address(peer.host, peer.port)
        response = await self._environment.network.call(
            address, _request(data), timeout_s=WRITE_TIMEOUT_S, purpose=PURPOSE
        )
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


def encode_batches(
    events: Sequence[AuditEvent | FailedLoginEvent], broker_id: int
) -> list[tuple[bytes, int]]:
    """Return the records of events in batches, each with its number of records."""
    batches: list[tuple[bytes, int]] = []
    rows: list[tuple[int, bytes, bytes]] = []
    size_bytes = 0
    for event in events:
        key, value = encode_event(event, broker_id)
        rows.append((event.time_ms, key, value))
        size_bytes += len(key) + len(value)
        if size_bytes >= BATCH_BYTES:
            batches.append((_batch(rows), len(rows)))
            rows, size_bytes = [], 0
    if rows:
        batches.append((_batch(rows), len(rows)))
    return batches


def _batch(rows: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    times, keys, values = zip(*rows, strict=True)
    columns = [
        pa.array(times, pa.int64()).view(TIMESTAMP_TYPE),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    table = pa.RecordBatch.from_arrays(columns, names=["timestamp", "key", "value"])
    return bytes(encode(table, BatchSettings(codec=Codec.LZ4), base_offset=0))


def _request(data: bytes) -> Any:
    api, version = Api.PRODUCE, PRODUCE_VERSION
    part = build_request_part(api, version, "PartitionProduceData", index=0, records=data)
    topic = build_request_part(
        api, version, "TopicProduceData", name=AUDIT_TOPIC, partition_data=(part,)
    )
    timeout = timedelta(seconds=WRITE_TIMEOUT_S)
    return build_request(api, version, acks=ALL, timeout=timeout, topic_data=(topic,))
