"""Writing and reading the history of upkeep jobs, with brokers and without.

A record is appended to the log directly, or through the leader where brokers lead the topic. The
leader takes no record of the history from a client, only a reference to an object in the storage:
so what the history says comes from somebody who can write the storage. Source: decision 49.
Writing a record twice is harmless, since the last one of a key counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer
from sparklog.client.values import EARLIEST, LATEST
from sparklog.cluster.image import MetadataImage, Topic
from sparklog.cluster.open import Log
from sparklog.cluster.publication_record import StagedPartition
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import (
    NotServing,
    OutcomeUnknown,
    SparklogError,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.spark.job_history import (
    HISTORY_CONFIGS,
    HISTORY_TOPIC,
    History,
    JobRequest,
    JobRun,
    KnownJob,
    encode,
    key_of,
)
from sparklog.spark.leaders import registered
from sparklog.spark.led_sink import LeaderAppends

PARTITION: Final = TopicPartition(HISTORY_TOPIC, 0)
AGAIN_S: Final = 0.5
READ_TIMEOUT_S: Final = 10.0
CLOCKS_DIFFER_MS: Final = 3_600_000

MAY_PASS: Final = (NotServing, OutcomeUnknown, Unavailable, UnknownTopicOrPartition)
"""What is raised while leaders change."""


def write_history(
    log: Log,
    record: JobRun | KnownJob | JobRequest,
    *,
    patience_s: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Add a record; the topic is made if nobody has yet.

    Raises:
        Unavailable, NotServing, OutcomeUnknown: not within `patience_s`, or nobody knows.
        SparklogError: the topic does not take it.
    """
    deadline_s = clock.monotonic_s() + patience_s
    writing = HistoryAppend(log, _row(record), clock)
    while True:
        try:
            writing.append()
            return
        except MAY_PASS:
            if clock.monotonic_s() >= deadline_s:
                raise
            clock.sleep_s(AGAIN_S)


def read_history(log: Log, since_ms: int | None = None) -> History:
    """Return what the log has of it, the leader's part included if a leader answers.

    `since_ms`: leave out what was written before, or for clocks that differ an hour earlier.

    Raises:
        Unavailable: the store does not answer. DataCorrupt: the topic is damaged.
    """
    history = History()
    image = log.refresh()
    topic = image.topics.get(HISTORY_TOPIC)
    if topic is None:
        return history
    partition = log.partition(HISTORY_TOPIC, 0)
    view = partition.view()
    start = view.log_start_offset
    if since_ms is not None:
        found = partition.offset_for_time(since_ms - CLOCKS_DIFFER_MS, view=view)
        start = view.end_offset if found is None else found.offset
    for batch in partition.read(start, view.end_offset, ("key", "value"), view=view):
        history.take(zip(*(batch.column(n).to_pylist() for n in ("key", "value")), strict=True))
    if addresses := leading(image):
        try:
            history.take(_consumed(addresses, view.end_offset))
        except MAY_PASS:
            pass  # the leader is going, and what it has comes with the next look
    return history


def consume_history(bootstrap: str) -> History:
    """Return what brokers have of it.

    Raises:
        Unavailable: nobody answers, or nobody has the topic.
    """
    history = History()
    history.take(_consumed(bootstrap, EARLIEST))
    return history


def leading(image: MetadataImage) -> str:
    """Return the brokers to ask for the history, as bootstrap servers; '' if none leads it."""
    topic = image.topics.get(HISTORY_TOPIC)
    return registered(image) if topic is not None and is_led(topic) else ""


def history_end(bootstrap: str) -> int:
    """Return the offset behind the last record that brokers have.

    Raises:
        SparklogError: the leader does not say.
    """
    with Admin(bootstrap) as admin:
        found = admin.offsets({PARTITION: LATEST})[PARTITION]
    if isinstance(found, SparklogError):
        raise found
    return found.offset


def is_led(topic: Topic) -> bool:
    """Return whether a broker leads the topic."""
    return any(state.leader >= 0 for state in topic.partition_states)


def _ensure(log: Log) -> None:
    if HISTORY_TOPIC in log.refresh().topics:
        return
    try:
        log.create_topic(HISTORY_TOPIC, 1, HISTORY_CONFIGS, by_cluster=True)
    except TopicAlreadyExists:
        pass  # another application did


def _row(record: JobRun | KnownJob | JobRequest) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key_of(record)], pa.binary()),
            "value": pa.array([encode(record)], pa.binary()),
        }
    )


class HistoryAppend:
    """One record while it is appended; however often that is tried, it is staged once."""

    def __init__(self, log: Log, row: pa.RecordBatch, clock: Clock = SYSTEM_CLOCK) -> None:
        """Append `row`, with columns `key` and `value`; nothing happens before `append`."""
        self._log = log
        self._row = row
        self._append_led = LeaderAppends(log, None, clock)
        self._staged: StagedPartition | None = None

    def append(self) -> None:
        """Append directly, or through the leader. Raises as `write_history`."""
        _ensure(self._log)
        partition = self._log.partition(HISTORY_TOPIC, 0)
        try:
            partition.append([self._row])
            return
        except NotServing:
            if not registered(self._log.refresh()):
                raise
        if self._staged is None:
            reference = partition.stage([self._row])
            topic_id = partition.layout.topic_id
            self._staged = StagedPartition(HISTORY_TOPIC, topic_id, 0, (reference,))
        outcome = self._append_led([self._staged], None)[PARTITION]
        if isinstance(outcome, SparklogError):
            raise outcome


def _consumed(bootstrap: str, start: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values from an offset to the end.

    Raises:
        Unavailable: the end does not come.
    """
    deadline_s = SYSTEM_CLOCK.monotonic_s() + READ_TIMEOUT_S
    with Consumer(bootstrap) as consumer:
        consumer.assign({PARTITION: start})
        while PARTITION not in consumer.ends_reached:
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise Unavailable(f"the leader of a topic does not answer. topic={HISTORY_TOPIC}")
            for record in consumer.poll(timeout_s=0.2):
                yield record.key, record.value
