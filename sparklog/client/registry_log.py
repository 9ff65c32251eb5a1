"""BrokerSchemaLog: the topic of schemas behind brokers, which one registry at a time may write.

Brokers have no append at a given offset. A transactional id gives the same: who takes it over
fences the one before, whose open transaction is aborted. So a commit proves that no other registry
took over since this one did, and none has committed since. Source: KIP-98, KIP-890, decision 72.

  REGISTRY-LOG-1: an append follows a read up to the last stable offset, which is checked after the
      take-over
  REGISTRY-LOG-2: an append is acknowledged once readers of committed records see it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Final

from sparklog.client.addresses import TIMEOUT_S, bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.batch_fetcher import FetchedSpan, fetch_span, kept
from sparklog.client.batch_producer import (
    TransactionalProducer,
    append_batches,
    begin_producer,
    end_transaction,
)
from sparklog.client.connections import BrokerConnections
from sparklog.client.metadata import read_metadata
from sparklog.client.offsets import find_offsets
from sparklog.client.security import SecuritySettings
from sparklog.client.values import EARLIEST, LATEST
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import (
    Fenced,
    InvalidTxnState,
    OutcomeUnknown,
    SparklogError,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.topic_names import SCHEMAS_TOPIC
from sparklog.core.types import TopicPartition
from sparklog.protocol.records.decoder import decode
from sparklog.protocol.records.encoder import encode_small
from sparklog.protocol.records.header import check_crc
from sparklog.registry.schema_log import PARTITION, TOPIC_CONFIGS, Row

TRANSACTIONAL_ID: Final = "sparklog-schema-registry"
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""A transaction takes milliseconds; one that is left open is ended at the next take-over."""
PATIENCE_S: Final = 20.0
VISIBLE_S: Final = 20.0
AGAIN_S: Final = 0.005
FENCED_PAUSE_S: Final = 0.2
FENCED_PAUSE_MAX_S: Final = 1.6
"""A random part of this time belongs to the registry that took over; the bound doubles."""


class BrokerSchemaLog:
    """A `registry.schema_log.SchemaLog` behind brokers. Thread-safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
        *,
        topic: str = SCHEMAS_TOPIC,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Prepare the connections; nothing is sent yet.

        Args:
            bootstrap_servers: brokers, as `host:port,host:port`.
            settings: `security.protocol`, `sasl.*` and `ssl.*` by Kafka's names.
            topic: the topic's name; the transactional id has it at its end if it is another one.
            clock: for waits.
            entropy: for the length of waits.

        Raises:
            InvalidRequest: not host:port. InvalidConfig: an unknown setting.
        """
        security = SecuritySettings(settings)
        addresses = bootstrap_addresses(bootstrap_servers)
        self._reading = BrokerConnections(addresses, TIMEOUT_S, security)
        self._writing = BrokerConnections(addresses, TIMEOUT_S, security)
        self._admin = (bootstrap_servers, settings)
        self._place = TopicPartition(topic, PARTITION)
        self._topic_id: str | None = None
        self._transactional_id = TRANSACTIONAL_ID + ("" if topic == SCHEMAS_TOPIC else f"-{topic}")
        self._producer: TransactionalProducer | None = None
        self._times_fenced = 0
        """Since the last commit."""
        self._clock, self._entropy = clock, entropy
        self._read_lock, self._write_lock = Lock(), Lock()

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()
        self._writing.close()

    def read(self, base_offset: int) -> tuple[int, Iterator[Row]]:
        """See `SchemaLog`. Cost: a request for the last stable offset, and fetches behind it."""
        with self._read_lock:
            topic_id = self._known_topic(self._reading)
            if topic_id is None:
                return base_offset, iter(())
            end = self._offset(self._reading, LATEST)
            if end <= base_offset:
                return base_offset, iter(())
            start = base_offset or self._offset(self._reading, EARLIEST)
            span = FetchedSpan(self._place, topic_id, start, end)
            return end, iter(self._rows(span))

    def append_at(self, rows: Sequence[Row], offset: int) -> int | None:
        """See `SchemaLog`. Cost: a transaction of one batch; a take-over after another registry."""
        with self._write_lock:
            topic_id = self._known_topic(self._writing) or self._created()
            while self._offset(self._writing, LATEST) == offset:
                known, self._producer = self._producer, None
                producer = known or self._taken_over()
                # A transaction of another one that was just aborted moved the offset, too.
                if known is None and self._offset(self._writing, LATEST) != offset:
                    self._producer = producer
                    return None
                try:
                    end = self._committed(producer, topic_id, rows, offset)
                except (Fenced, InvalidTxnState):
                    self._let_others_write()
                    if known is None:  # another one took over at the same time
                        return None
                    continue
                self._times_fenced = 0
                return end
            return None

    def _let_others_write(self) -> None:
        """Wait a random time: a take-over at once would abort what the other one writes."""
        most_s = min(FENCED_PAUSE_MAX_S, FENCED_PAUSE_S * 2**self._times_fenced)
        self._times_fenced += 1
        self._clock.sleep_s(self._entropy.random() * most_s)

    def _taken_over(self) -> TransactionalProducer:
        return begin_producer(
            self._writing, self._transactional_id, TRANSACTION_TIMEOUT_MS, self._clock
        )

    def _committed(
        self, producer: TransactionalProducer, topic_id: str, rows: Sequence[Row], offset: int
    ) -> int | None:
        batch = encode_small(
            rows,
            self._clock.now_ms(),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,  # each transaction has an epoch of its own
            is_transactional=True,
        )
        (base,) = append_batches(
            self._writing,
            {self._place: batch},
            {self._place.topic: topic_id},
            self._clock,
            patience_s=PATIENCE_S,
            transactional_id=producer.transactional_id,
        ).values()
        if isinstance(base, SparklogError):
            raise base
        # A writer that is no registry of ours may have come between: then nothing is kept.
        ours = base == offset
        try:
            self._producer = end_transaction(self._writing, producer, self._clock, commit=ours)
        except Unavailable as error:
            raise OutcomeUnknown(f"the schemas may have been committed: {error}") from error
        if not ours:
            return None
        return self._visible(base + len(rows))

    def _visible(self, end: int) -> int:
        """Wait until readers see the records below `end`; return the end of the log."""
        deadline_s = self._clock.monotonic_s() + VISIBLE_S
        while True:
            found = self._offset(self._writing, LATEST)
            if found > end:  # behind the marker of the transaction
                return end + 1
            if self._clock.monotonic_s() >= deadline_s:
                raise OutcomeUnknown(
                    "the schemas are committed, and no reader sees them yet. "
                    f"partition={self._place} offset={end} last_stable_offset={found}"
                )
            self._clock.sleep_s(AGAIN_S)

    def _rows(self, span: FetchedSpan) -> Iterator[Row]:
        for fetched in fetch_span(self._reading, span, committed_only=True, clock=self._clock):
            for batch in kept(fetched, committed_only=True):
                check_crc(batch.data, batch.header)
                rows = decode(batch.data).records
                offsets = rows.column("offset").to_pylist()
                keys, values = (rows.column(name).to_pylist() for name in ("key", "value"))
                for at, key, value in zip(offsets, keys, values, strict=True):
                    if span.base_offset <= at < span.end_offset:
                        yield key, value

    def _offset(self, brokers: BrokerConnections, wanted: int) -> int:
        found = find_offsets(
            brokers,
            {self._place: wanted},
            self._clock,
            committed_only=True,
            patience_s=PATIENCE_S,
        )[self._place]
        if isinstance(found, SparklogError):
            raise found
        return found.offset

    def _known_topic(self, brokers: BrokerConnections) -> str | None:
        if self._topic_id is None:
            topic = read_metadata(brokers, [self._place.topic]).topics.get(self._place.topic)
            self._topic_id = None if topic is None else topic.topic_id
        return self._topic_id

    def _created(self) -> str:
        bootstrap, settings = self._admin
        with Admin(bootstrap, settings=settings) as admin:
            try:
                admin.create_topic(self._place.topic, 1, TOPIC_CONFIGS)
            except TopicAlreadyExists:
                pass
        found = self._known_topic(self._writing)
        if found is None:
            raise UnknownTopicOrPartition(f"the topic is not there. topic={self._place.topic}")
        return found
