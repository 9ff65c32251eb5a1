"""Work on many partitions, spread over Spark's tasks.

A job names the partitions and what to do with one; a task does that for its share and says of each
how it went. A failure of one partition is part of the answer and stops no other. The work of a
partition is safe to repeat, as Spark may do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.changes import topic_named
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.named_snapshots import SnapshotRecords
from sparklog.core.bounded_json import OBJECT_BYTES_MAX, parse_json
from sparklog.core.counters import by_kind, diff
from sparklog.core.errors import InvalidRequest, SparklogError, TopicDeleted
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout
from sparklog.spark.access.log_access import job_log
from sparklog.spark.jobs.low_priority import packed

TASKS_PER_SLOT = 4
"""Partitions differ in size, so there are more tasks than run at once."""
SLOTS_GUESSED = 8
_ANSWER_SCHEMA = "answer STRING"


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """One partition, and what a job knows of it."""

    topic: str
    topic_id: str
    partition: int
    configs: Mapping[str, str]
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters of the task; JSON values."""

    @property
    def layout(self) -> PartitionLayout:
        """Return the names of its objects."""
        return PartitionLayout(self.topic, self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The outcome of one partition."""

    topic: str
    partition: int
    result: Mapping[str, Any]
    """JSON values; empty if it failed."""
    error: str = ""
    requests: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Requests to the store and the bytes that they moved, by kind."""


PartitionFunction = Callable[[Log, PartitionWork], Mapping[str, Any]]
"""Does the work of one partition. Raises SparklogError or OSError: that one failed."""


def chosen_topics(image: MetadataImage, names: Sequence[str]) -> list[Topic]:
    """Return the topics with these names, or all.

    Raises:
        InvalidRequest: there is no log. UnknownTopicOrPartition: one does not exist.
    """
    if image.end_offset == 0:  # a misspelled root, night after night, would look like success
        raise InvalidRequest(
            "there is no log under this root, not even an empty one; check --root: a log begins "
            "with its first topic or broker"
        )
    return [topic_named(image.topics, name) for name in sorted(set(names or image.topics))]


def work_on(topics: Iterable[Topic]) -> list[PartitionWork]:
    """Return the work of every partition of these topics."""
    return [
        PartitionWork(topic.name, topic.topic_id, number, topic.settings)
        for topic in topics
        for number in range(topic.partitions)
    ]


def with_pins(works: Iterable[PartitionWork], snapshots: SnapshotRecords) -> list[PartitionWork]:
    """Return the work with the pins that named snapshots have of each partition."""
    pins = snapshots.pins()
    return [
        replace(
            work,
            details={
                **work.details,
                "pins": None
                if pins is None
                else sorted(pins.get(PartitionId(work.topic_id, work.partition), ())),
            },
        )
        for work in works
    ]


def run_tasks(
    spark: SparkSession, root: str, works: Sequence[PartitionWork], function: PartitionFunction
) -> list[PartitionAnswer]:
    """Do the work of every partition, and return the answers by topic and number.

    Raises:
        PySparkException: Spark could not run the tasks.
    """
    if not works:
        return []

    documents = [json.dumps(_work_document(work)) for work in works]
    tasks = min(len(documents), TASKS_PER_SLOT * slots(spark))

    def answers_of(numbers: list[int]) -> list[str]:
        mine = [text for number in numbers for text in documents[number::tasks]]
        return [_answered(root, text, function) for text in mine]

    work = packed(answers_of)
    context = _context(spark)
    if context is None:
        found = _by_table(spark, tasks, work)
    else:
        # Not by a table: the first query of a process brings up an engine that this does not need.
        found = context.parallelize(range(tasks), tasks).mapPartitions(work).collect()
    answers = [
        PartitionAnswer(**parse_json(text, "share of a job", bytes_max=OBJECT_BYTES_MAX))
        for text in found
    ]
    return sorted(answers, key=lambda one: (one.topic, one.partition))


def slots(spark: SparkSession) -> int:
    """Return about how many tasks run at once; a guess where Spark does not report it."""
    context = _context(spark)
    return SLOTS_GUESSED if context is None else int(context.defaultParallelism)


def _context(spark: SparkSession) -> SparkContext | None:
    try:
        return spark.sparkContext
    except PySparkException:  # Spark Connect has none
        return None


def _by_table(
    spark: SparkSession, tasks: int, answered: Callable[[Iterable[int]], list[str]]
) -> list[str]:
    """Return the answers of tasks, by what every kind of session offers."""

    def share(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"answer": answered(batch.column(0).to_pylist())})

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(share, _ANSWER_SCHEMA).collect()
    return [row.answer for row in rows]


def _answered(root: str, text: str, function: PartitionFunction) -> str:
    work = PartitionWork(**parse_json(text, "share of a job", bytes_max=OBJECT_BYTES_MAX))
    answer = answered(job_log(root), work, function)
    return json.dumps(
        {name: getattr(answer, name) for name in PartitionAnswer.__slots__}, separators=(",", ":")
    )


def answered(log: Log, work: PartitionWork, function: PartitionFunction) -> PartitionAnswer:
    """Do the work of one partition here, and return the answer, with an error as a part of it."""
    before = log.requests()
    try:
        result, error = dict(function(log, work)), ""
    except TopicDeleted:
        result, error = {}, ""
    except (SparklogError, OSError) as failure:
        result, error = {}, f"{type(failure).__name__}: {failure}"
    counts = by_kind(diff(before, log.requests()))
    requests = {kind: (count.requests, count.bytes) for kind, count in counts.items()}
    return PartitionAnswer(work.topic, work.partition, result, error, requests)


def _work_document(work: PartitionWork) -> dict[str, Any]:
    return {name: getattr(work, name) for name in PartitionWork.__slots__}
