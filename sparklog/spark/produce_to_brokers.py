"""Rows of a Spark source sent to brokers, as a Kafka client does: `produce.py --bootstrap-server`.

Each task has a producer with acks=all and idempotence: what it sends arrives once and in order. A
task that Spark repeats sends again, so a record arrives at least once; only the sink with a root
can tell the copies from each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from sparklog.client.admin import Admin
from sparklog.client.producer import Producer
from sparklog.client.values import LATEST
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.header_names import name_of
from sparklog.spark.job import OpenSession
from sparklog.spark.produce_job import (
    ProduceJob,
    chosen_rows,
    input_of,
    is_to_be_created,
    records_of,
    set_aside,
    with_offsets,
)
from sparklog.spark.produce_rows import CheckedRows, read_input, refusal
from sparklog.spark.progress import Progress, Report, StageSampler, watched

SENT = "rows BIGINT, bytes BIGINT"


def produce_to_brokers(
    job: ProduceJob, bootstrap_servers: str, open_session: OpenSession, progress: Progress
) -> Report:
    """Send the rows, and return what was sent.

    Raises:
        SparklogError: the topic or the brokers. PySparkException: the source or an expression.
    """
    with Admin(bootstrap_servers) as admin:
        created = _prepare_topic(admin, job)
        before = _end_offsets(admin, job.topic)
        spark = open_session({})
        progress.start()
        rows = read_input(spark, input_of(job))
        aside = _checked(rows, job, progress)
        records = None if rows.is_empty else records_of(chosen_rows(rows.good(), job), job)
        settings = {"compression.type": job.compression} if job.compression else {}
        totals = (0, 0)
        if records is not None:
            with watched(progress, StageSampler(spark)):
                sent = send(records, bootstrap_servers, job.topic, settings)
                totals = sent.agg(sf.sum("rows"), sf.sum("bytes")).collect()[0]
        seconds = progress.elapsed_s()
        after = _end_offsets(admin, job.topic)
    report = Report(
        "produced", job.topic, totals[0] or 0, totals[1] or 0, seconds, {"malformed": aside}
    )
    return with_offsets(report, created, before, after)


def _checked(rows: CheckedRows, job: ProduceJob, progress: Progress) -> int:
    """Look for malformed lines before anything is sent; returns how many were set aside.

    Raises:
        InvalidRequest: there are some, and no folder for them.
    """
    if job.malformed is not None:
        return set_aside(rows, job, progress)
    refused = refusal(rows) if rows.checked else None
    if refused is not None:
        raise refused
    return 0


def send(
    records: DataFrame, bootstrap_servers: str, topic: str, settings: Mapping[str, str]
) -> DataFrame:
    """Return a frame that sends the records when it is evaluated, with a row for each task."""
    given = dict(settings)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = size = 0
        with Producer(bootstrap_servers, given) as producer:
            for batch in batches:
                rows += batch.num_rows
                size += send_batch(producer, topic, batch)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "bytes": [size]})

    return records.mapInArrow(run, SENT)


def send_batch(producer: Producer, topic: str, batch: pa.RecordBatch) -> int:
    """Send the records of a batch; returns their bytes of keys and values.

    Raises:
        SparklogError: a record was refused at once.
    """
    size = 0
    columns = [_column(batch, name) for name in ("value", "key", "headers", "partition")]
    for value, key, headers, partition, at_ms in zip(*columns, _times(batch), strict=True):
        producer.send(
            topic,
            value,
            key=key,
            headers=[(_sent_name(one["key"]), one["value"]) for one in headers]
            if headers
            else None,
            partition=partition,
            timestamp_ms=at_ms,
        )
        size += len(value or b"") + len(key or b"")
    return size


def _sent_name(text: str) -> str:
    """Return a header's name as librdkafka's Python client takes it: text alone.

    Raises:
        InvalidRequest: the text stands for a name that is not UTF-8.
    """
    try:
        return name_of(text).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(
            "a header name is not UTF-8, which the Kafka client cannot send; write to the root "
            f"instead, or rename the header. name={text}"
        ) from None


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    found: list[Any] = column.to_pylist()
    return found


def _times(batch: pa.RecordBatch) -> list[int | None]:
    if "timestamp" not in batch.schema.names:
        return [None] * batch.num_rows
    in_ms = pc.cast(batch.column("timestamp"), pa.timestamp("ms", tz="UTC"), safe=False)
    found: list[int | None] = in_ms.cast(pa.int64()).to_pylist()
    return found


def _prepare_topic(admin: Admin, job: ProduceJob) -> bool:
    """Make sure that the topic is there before Spark starts; returns whether it was created.

    Raises:
        UnknownTopicOrPartition, InvalidPartitions: as `is_to_be_created`.
        SparklogError: it cannot be created like this, or no broker answers.
    """
    exists = job.topic in admin.topic_names()
    if not is_to_be_created(job, admin.topic(job.topic).partitions if exists else None):
        return False
    admin.create_topic(job.topic, job.partitions, job.configs, job.replication_factor)
    return True


def _end_offsets(admin: Admin, topic: str) -> dict[int, int]:
    partitions = admin.topic(topic).partitions
    wanted = {TopicPartition(topic, number): LATEST for number in range(partitions)}
    found = {}
    for tp, offset in sorted(admin.offsets(wanted).items()):
        if isinstance(offset, SparklogError):
            raise offset
        found[tp.partition] = offset.offset
    return found
