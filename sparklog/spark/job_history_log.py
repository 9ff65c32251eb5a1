"""Writing and reading the history of upkeep jobs, with brokers and without.

A record goes where every record goes: into the log directly, or through the leader where brokers
lead the topic. Writing a record twice is harmless, since the last one of a key counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.values import EARLIEST, LATEST
from sparklog.cluster.image import MetadataImage, Topic
from sparklog.cluster.open import Log
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

PARTITION: Final = TopicPartition(HISTORY_TOPIC, 0)
AGAIN_S: Final = 0.5
SEND_TIMEOUT_S: Final = 10.0
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
    while True:
        try:
            _ensure(log)
            _append(log, record)
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
        log.create_topic(HISTORY_TOPIC, 1, HISTORY_CONFIGS)
    except TopicAlreadyExists:
        pass  # another application did


def _append(log: Log, record: JobRun | KnownJob | JobRequest) -> None:
    key, value = key_of(record), encode(record)
    row = pa.RecordBatch.from_pydict(
        {"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())}
    )
    try:
        log.partition(HISTORY_TOPIC, 0).append([row])
    except NotServing:
        addresses = registered(log.refresh())
        if not addresses:
            raise
        settings = {"message.timeout.ms": round(SEND_TIMEOUT_S * 1000)}
        with Producer(addresses, settings) as producer:
            producer.send(HISTORY_TOPIC, value, key=key, partition=0).result(SEND_TIMEOUT_S)


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
