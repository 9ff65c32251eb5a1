"""TopicSender: sends records to brokers, and yields acknowledgements as they arrive.

`append` hands all records to librdkafka, which builds batches of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sparklog.cli.console.line_reader import LineRecord
from sparklog.cli.console.record_sinks import SinkDelivery
from sparklog.client.producer import Delivered, Producer
from sparklog.client.producer import ProducerDelivery as Pending
from sparklog.core.errors import SparklogError

WAITING_MAX: Final = 200_000
"""Limit for unacknowledged records, beyond which sending waits: bounds the memory for them."""


class TopicSender:
    """Sends to one topic through brokers."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        """Create the producer; `settings` are librdkafka's.

        Raises:
            InvalidConfig: librdkafka rejects a setting.
        """
        self._topic = topic
        self._producer = Producer(bootstrap, dict(settings))
        self._waiting: deque[Pending] = deque()

    def append(self, records: Sequence[LineRecord]) -> Iterator[SinkDelivery]:
        """Send the records and yield new acknowledgements, of these or earlier ones.

        Raises:
            SparklogError: a record was rejected or not acknowledged; the class says what to do.
        """
        for record in records:
            self._waiting.append(
                self._producer.send(
                    self._topic, record.value, key=record.key, headers=record.headers
                )
            )
            if len(self._waiting) >= WAITING_MAX:
                yield from self._answered()
                if len(self._waiting) >= WAITING_MAX:
                    self._waiting[0].result()
        yield from self._answered()

    def finish(self) -> Iterator[SinkDelivery]:
        """Wait for all outcomes, and yield the remaining acknowledgements. Raises as `append`."""
        failure: SparklogError | None = None
        try:
            self._producer.flush()
        except SparklogError as error:
            failure = error
        yield from self._answered(failing=False)
        if failure is not None:
            raise failure

    def _answered(self, *, failing: bool = True) -> Iterator[SinkDelivery]:
        """Yield one delivery per run of offsets, for outcomes in the order of sending."""
        runs: dict[int, SinkDelivery] = {}
        failure: SparklogError | None = None
        while self._waiting and (outcome := self._waiting[0].outcome) is not None:
            self._waiting.popleft()
            if isinstance(outcome, Delivered):
                run = runs.get(outcome.topic_partition.partition)
                longer = _longer(run, outcome)
                if run is not None and longer is None:
                    yield run
                runs[outcome.topic_partition.partition] = longer or _run_of(outcome)
            else:
                failure = failure or outcome
        yield from (runs[partition] for partition in sorted(runs))
        if failing and failure is not None:
            raise failure


def _run_of(outcome: Delivered) -> SinkDelivery:
    return SinkDelivery(outcome.topic_partition, outcome.offset, 1)


def _longer(run: SinkDelivery | None, outcome: Delivered) -> SinkDelivery | None:
    """Return the run with one more record, or None if that record is not the next one."""
    if run is None:
        return None
    expected = -1 if run.base_offset < 0 else run.base_offset + run.count
    if outcome.offset != expected:
        return None
    return SinkDelivery(run.topic_partition, run.base_offset, run.count + 1)
