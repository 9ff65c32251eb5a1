"""Producer: sends records, with an outcome for every record.

    with Producer("localhost:9092") as producer:
        delivery = producer.send("flights", b"hello", key=b"UA1545")
        delivery.result().offset

A background thread sends records in batches. With acks=all and idempotence each one arrives once
and in order. A record with a key goes to the partition that Kafka's Java client would choose;
sparklog's own appenders do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka import KafkaException

from sparklog.client.librdkafka_errors import of_exception, of_kafka
from sparklog.client.settings import SecurityProblem, Settings, client_settings, refused
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import OutcomeUnknown, SparklogError
from sparklog.core.types import TopicPartition

Header = tuple[str, bytes | None]

SAFE: Final[Settings] = {
    "acks": "all",
    "enable.idempotence": True,
    # librdkafka's own default spreads keys by CRC-32; Kafka's, and ours, by murmur2.
    "partitioner": "murmur2_random",
}
FLUSH_TIMEOUT_S: Final = 150.0
"""Above `delivery.timeout.ms` (120 s), after which librdkafka itself fails a record."""
FLUSH_STEP_S: Final = 1.0
POLL_S: Final = 0.1
ANY_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class Delivered:
    """The position of a record. With acks=0 the broker does not return it, and the offset is -1."""

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int


class ProducerDelivery:
    """The pending outcome of one record."""

    __slots__ = ("_outcome", "_producer")

    def __init__(self, producer: Producer) -> None:
        """Start without an outcome; `Producer.send` creates deliveries."""
        self._producer = producer
        self._outcome: Delivered | SparklogError | None = None

    @property
    def outcome(self) -> Delivered | SparklogError | None:
        """Return the outcome so far, without waiting."""
        return self._outcome

    def result(self, timeout_s: float = FLUSH_TIMEOUT_S) -> Delivered:
        """Wait for the acknowledgement and return it.

        Raises:
            OutcomeUnknown: no response came; the record may be in the log.
            SparklogError: it is not in the log; the class says what to do.
        """
        outcome = self._producer.wait_for(self, timeout_s)
        if isinstance(outcome, SparklogError):
            raise outcome
        return outcome

    def _answered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        tp = TopicPartition(message.topic() or "", message.partition() or 0)
        if error is not None:
            where = tp if tp.partition >= 0 else tp.topic
            self._outcome = self._producer.reason_for(error) or of_kafka(
                error, "the record was not acknowledged", partition=where
            )
            self._producer.failed(self._outcome)
            return
        self._producer.acknowledged()
        offset = message.offset()
        timestamp_ms = message.timestamp()[1]
        self._outcome = Delivered(tp, -1 if offset is None else offset, timestamp_ms)


class Producer:
    """Sends records. A context manager: leaving it waits for every outcome. Not thread-safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Settings | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create the client; `settings` are librdkafka's and override the safe defaults.

        TLS and SASL may have Java's names, too, and refer to secrets: `${file:/path:key}`.

        Raises:
            InvalidConfig: librdkafka rejects a setting.
        """
        self._clock = clock
        self._failure: SparklogError | None = None
        self._problem = SecurityProblem()
        self._acknowledged = False
        given = client_settings(bootstrap_servers, SAFE, settings or {}, problem=self._problem)
        try:
            self._client = ck.Producer(given)
        except KafkaException as error:
            raise refused(error) from error

    def __enter__(self) -> Producer:
        """Return the producer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for every outcome; after an exception drop the records not sent yet."""
        if error is None:
            self.flush()
            return
        self._client.purge()
        with suppress(KafkaException):  # the first error says more
            self._client.flush(POLL_S)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ProducerDelivery:
        """Queue a record for the background sender; waits only while its buffer is full.

        Raises:
            RecordTooLarge, UnknownTopicOrPartition: known at once.
            OutcomeUnknown: the buffer stayed full; this record was not sent, others may have been.
            Fenced: another producer took over this one's identity.
        """
        delivery = ProducerDelivery(self)
        given: dict[str, Any] = {"headers": list(headers)} if headers else {}
        if timestamp_ms is not None:
            given["timestamp"] = timestamp_ms
        deadline_s: float | None = None
        while True:
            try:
                self._client.produce(
                    topic,
                    value,
                    key,
                    ANY_PARTITION if partition is None else partition,
                    on_delivery=delivery._answered,  # noqa: SLF001 - the two are one
                    **given,
                )
            except BufferError as error:
                now_s = self._clock.monotonic_s()
                deadline_s = now_s + FLUSH_TIMEOUT_S if deadline_s is None else deadline_s
                if now_s >= deadline_s:
                    raise OutcomeUnknown(
                        "brokers take no records, and the buffer is full; this record was not "
                        f"sent. topic={topic} waiting={len(self._client)}"
                    ) from error
                self._client.poll(POLL_S)
            except KafkaException as error:
                raise of_exception(error, "the record was not sent", topic=topic) from error
            else:
                self._client.poll(0)
                return delivery

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Wait until every record sent so far has its outcome.

        Raises:
            SparklogError: the first failure since the last flush, even if `result` has raised it.
            OutcomeUnknown: some outcomes did not come in time.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        left = self._client.flush(min(timeout_s, FLUSH_STEP_S))
        while left and self._clock.monotonic_s() < deadline_s:
            self._give_up_unsent()
            left = self._client.flush(FLUSH_STEP_S)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if left:
            raise OutcomeUnknown(
                "records were not acknowledged in time; look before sending them again. "
                f"left={left}"
            )

    def poll(self, timeout_s: float = 0.0) -> None:
        """Handle acknowledgements that have arrived."""
        self._client.poll(timeout_s)

    def wait_for(self, delivery: ProducerDelivery, timeout_s: float) -> Delivered | SparklogError:
        """Wait for a record's outcome and return it; see `ProducerDelivery.result`."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while delivery.outcome is None:
            if self._clock.monotonic_s() >= deadline_s:
                return OutcomeUnknown(
                    "the record was not acknowledged in time; look before sending it again. "
                    f"timeout_s={timeout_s}"
                )
            try:
                self._client.poll(min(POLL_S, timeout_s))
            except KafkaException as error:  # the client cannot go on, as without a producer id
                return of_exception(error, "the record was not acknowledged")
            self._give_up_unsent()
        return delivery.outcome

    def _give_up_unsent(self) -> None:
        """Fail the records that were not sent, if the client cannot log in."""
        if self._problem.found is not None:
            self._client.purge(in_queue=True, in_flight=False, blocking=False)

    def reason_for(self, error: ck.KafkaError) -> SparklogError | None:
        """Return why `_give_up_unsent` failed a record, or None for another error."""
        problem = self._problem.found
        if problem is None or error.name() != "_PURGE_QUEUE":
            return None
        # After an acknowledgement the record may have been sent before, and be in the log.
        return OutcomeUnknown(str(problem)) if self._acknowledged else problem

    def acknowledged(self) -> None:
        """Note that a broker accepted the login."""
        self._acknowledged = True

    def failed(self, error: SparklogError) -> None:
        """Keep the first failure for `flush`."""
        self._failure = self._failure or error
