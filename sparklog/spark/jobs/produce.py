"""From rows of any Spark source to records of a topic: what `jobs/produce.py` does.

The expressions of key, value, headers and time are Spark SQL over the rows; partitions, staging and
publication are the sink's.

`ProduceJob` holds the rows to read, the records to make of them, and the report at the end.

With `produce.py --bootstrap-server` it sends rows of a Spark source to brokers, as a Kafka client
does.

Each task has a producer with acks=all and idempotence: what it sends arrives once and in order. A
task that Spark repeats sends again, so a record arrives at least once. Only the sink with a root
can recognise copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from sparklog.client.admin import Admin
from sparklog.client.producer import Producer
from sparklog.client.security import NO_SECURITY, SecuritySettings
from sparklog.client.values import LATEST
from sparklog.cluster.log import Log, open_log
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.errors import (
    InvalidPartitions,
    InvalidRequest,
    SparklogError,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.protocol.records.header_names import name_of
from sparklog.spark.jobs.expressions import as_header_value, as_payload, as_timestamp
from sparklog.spark.jobs.job import OpenSession
from sparklog.spark.jobs.produce_rows import MALFORMED, CheckedRows, Input, read_input, refusal
from sparklog.spark.jobs.progress import JobProgress, ProgressReport, StageSampler, watched
from sparklog.spark.jobs.streaming import (
    TOTALS,
    StreamPace,
    await_query,
    observed,
    paced,
    totals_of,
)


@dataclass(frozen=True, slots=True)
class ProduceArguments:
    """The rows to read, their conversion, and their target."""

    root: str | None
    """None where brokers are asked to append."""
    topic: str
    source: str
    paths: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    where: str | None = None
    select: tuple[str, ...] = ()
    key: str | None = None
    value: str = "to_json(struct(*))"
    headers: tuple[tuple[str, str], ...] = ()
    timestamp: str | None = None
    partition: str | None = None
    create: bool = False
    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    compression: str | None = None
    bootstrap_servers: str | None = None
    security: SecuritySettings = NO_SECURITY
    """TLS and SASL of the connections to them; each task reads the secrets itself."""
    replication_factor: int | None = None
    pace: StreamPace | None = None
    """The way the stream runs; None reads the source once."""
    malformed: str | None = None
    """Folder for malformed lines of CSV and JSON; None: they fail the job."""
    json: bool = False


def is_to_be_created(job: ProduceArguments, partitions: int | None) -> bool:
    """Return whether the job's topic is still to be created; `partitions`: those it has, if any.

    Raises:
        UnknownTopicOrPartition: it does not exist, and the arguments do not ask to create it.
        InvalidPartitions: it exists, with another number of partitions.
    """
    if partitions is None and not job.create:
        raise UnknownTopicOrPartition(
            f"no such topic; add --create to have it created. topic={job.topic}"
        )
    if partitions is not None and job.partitions not in (None, partitions):
        raise InvalidPartitions(
            "the topic exists with another number of partitions; leave --partitions out, or use "
            f"`sparklog topics --alter`. topic={job.topic} partitions={partitions} "
            f"asked={job.partitions}"
        )
    return partitions is None


def input_of(job: ProduceArguments) -> Input:
    """Return what the job reads."""
    return Input(job.source, job.paths, job.options, job.schema, streams=job.pace is not None)


def chosen_rows(rows: DataFrame, job: ProduceArguments) -> DataFrame:
    """Return the rows of the source, filtered and selected as the job says."""
    if job.where is not None:
        rows = rows.where(job.where)
    return rows.selectExpr(*job.select) if job.select else rows


def set_aside(rows: CheckedRows, job: ProduceArguments, progress: JobProgress) -> int:
    """Write the malformed lines into the job's folder, and return how many there are."""
    assert job.malformed is not None, "asked for only where there is a folder"
    count = rows.malformed().count() if rows.checked else 0
    if count:
        rows.malformed().write.mode("append").json(job.malformed)
        progress.say(f"warning: {count:,} malformed lines were set aside in {job.malformed}")
    return count


def records_of(rows: DataFrame, job: ProduceArguments) -> DataFrame:
    """Return the sink's columns: value, and what the job gives of the others."""
    columns = {"value": as_payload(rows, job.value)}
    if job.key is not None:
        columns["key"] = as_payload(rows, job.key)
    if job.headers:
        columns["headers"] = sf.array(
            *(
                sf.struct(
                    sf.lit(name).alias("key"), as_header_value(rows, expression).alias("value")
                )
                for name, expression in job.headers
            )
        )
    if job.timestamp is not None:
        columns["timestamp"] = as_timestamp(rows, job.timestamp)
    if job.partition is not None:
        columns["partition"] = sf.expr(job.partition).cast("int")
    return rows.select(*(column.alias(name) for name, column in columns.items()))


def size_of(records: DataFrame) -> Column:
    """Return how many bytes of key and value a record has."""
    size = sf.coalesce(sf.octet_length("value"), sf.lit(0))
    if "key" in records.columns:
        size = size + sf.coalesce(sf.octet_length("key"), sf.lit(0))
    return size


def with_offsets(
    report: ProgressReport, created: bool, before: Mapping[int, int], after: Mapping[int, int]
) -> ProgressReport:
    """Return the report with the offsets of every partition before and after the work."""
    partitions = [
        {"partition": number, "base_offset": before.get(number, 0), "end_offset": end}
        for number, end in after.items()
    ]
    lines = [
        f"  partition {one['partition']}: offsets {one['base_offset']:,} to {one['end_offset']:,}"
        for one in partitions
        if one["end_offset"] > one["base_offset"]
    ]
    details = {**report.details, "created": created, "partitions": partitions}
    return replace(report, details=details, lines=(*report.lines, *lines))


SENT = "rows BIGINT, bytes BIGINT"


def produce_to_brokers(
    job: ProduceArguments, bootstrap_servers: str, open_session: OpenSession, progress: JobProgress
) -> ProgressReport:
    """Send the rows, and return what was sent.

    Raises:
        SparklogError: the topic or the brokers. PySparkException: the source or an expression.
    """
    security = job.security.given
    with Admin(bootstrap_servers, settings=security) as admin:
        created = _prepare_topic(admin, job)
        before = _end_offsets(admin, job.topic)
        spark = open_session({})
        progress.start()
        rows = read_input(spark, input_of(job))
        aside = _checked(rows, job, progress)
        records = None if rows.is_empty else records_of(chosen_rows(rows.good(), job), job)
        codec = {"compression.type": job.compression} if job.compression else {}
        settings = {**security, **codec}
        totals = (0, 0)
        if records is not None:
            with watched(progress, StageSampler(spark)):
                sent = send(records, bootstrap_servers, job.topic, settings)
                totals = sent.agg(sf.sum("rows"), sf.sum("bytes")).collect()[0]
        seconds = progress.elapsed_s()
        after = _end_offsets(admin, job.topic)
    report = ProgressReport(
        "produced", job.topic, totals[0] or 0, totals[1] or 0, seconds, {"malformed": aside}
    )
    return with_offsets(report, created, before, after)


def _checked(rows: CheckedRows, job: ProduceArguments, progress: JobProgress) -> int:
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


def _prepare_topic(admin: Admin, job: ProduceArguments) -> bool:
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


def produce(
    job: ProduceArguments, open_session: OpenSession, progress: JobProgress
) -> ProgressReport:
    """Send the rows, and return what was sent.

    Raises:
        SparklogError: the topic or the log. PySparkException: the source or an expression.
    """
    if job.bootstrap_servers is not None:
        return produce_to_brokers(job, job.bootstrap_servers, open_session, progress)
    if job.root is None:
        raise InvalidRequest("which log? give its root, or the addresses of its brokers")
    with open_log(job.root) as log, reported_usage(log, "sparklog produce"):
        created = prepare_topic(log, job)
        before = end_offsets(log, job.topic)
        spark = open_session({})
        progress.start()
        rows = read_input(spark, input_of(job))
        if job.pace is not None:
            records = records_of(chosen_rows(rows.all_or_none(), job), job)
            report = _produce_stream(records, job, job.pace, progress)
        else:
            report = _produce_rows(spark, rows, job, progress)
        after = end_offsets(log, job.topic)
    return with_offsets(report, created, before, after)


def prepare_topic(log: Log, job: ProduceArguments) -> bool:
    """Make sure that the topic is there before Spark starts; returns whether it was created.

    Raises:
        UnknownTopicOrPartition, InvalidPartitions: as `is_to_be_created`.
        InvalidTopic, InvalidConfig: it cannot be created like this.
    """
    topic = log.topics().get(job.topic)
    if not is_to_be_created(job, None if topic is None else topic.partitions):
        return False
    log.create_topic(job.topic, job.partitions or 1, dict(job.configs))
    return True


def end_offsets(log: Log, topic: str) -> dict[int, int]:
    """Return the end offset of every partition of a topic."""
    partitions = log.topic(topic).partitions
    return {n: log.partition(topic, n).view().end_offset for n in range(partitions)}


def _sink_options(job: ProduceArguments) -> dict[str, str]:
    assert job.root is not None, "without a root, brokers append"
    options = {"path": job.root, "topic": job.topic}
    if job.compression is not None:
        options["kafka.compression.type"] = job.compression
    return options


def _produce_rows(
    spark: SparkSession, rows: CheckedRows, job: ProduceArguments, progress: JobProgress
) -> ProgressReport:
    """Send the rows of files: all of them, or none if a line is malformed and has no folder."""
    aside = set_aside(rows, job, progress) if job.malformed is not None else 0
    if rows.is_empty:
        refused = refusal(rows)
        if refused is not None and job.malformed is None:
            raise refused
        return ProgressReport(
            "produced", job.topic, 0, 0, progress.elapsed_s(), {"malformed": aside}
        )
    chosen = rows.good() if job.malformed is not None else rows.all_or_none()
    records = records_of(chosen_rows(chosen, job), job)
    try:
        report = _produce_once(spark, records, job, progress)
    except (PySparkException, Py4JError) as error:
        refused = refusal(rows) if MALFORMED in str(error) else None
        if refused is None:
            raise
        raise refused from error
    return replace(report, details={**report.details, "malformed": aside})


def _produce_once(
    spark: SparkSession, records: DataFrame, job: ProduceArguments, progress: JobProgress
) -> ProgressReport:
    seen = Observation(TOTALS)
    counted = observed(records, size_of(records), seen)
    with watched(progress, StageSampler(spark)):
        counted.write.format("sparklog").mode("append").options(**_sink_options(job)).save()
    totals = totals_of(seen.get)
    return ProgressReport(
        "produced", job.topic, totals.rows, totals.size_bytes, progress.elapsed_s()
    )


def _produce_stream(
    records: DataFrame, job: ProduceArguments, pace: StreamPace, progress: JobProgress
) -> ProgressReport:
    counted = observed(records, size_of(records), TOTALS)
    writer = counted.writeStream.format("sparklog").options(**_sink_options(job))
    ended = await_query(paced(writer, pace).start(), progress)
    return ProgressReport(
        "produced",
        job.topic,
        ended.tally.rows,
        ended.tally.size_bytes,
        progress.elapsed_s(),
        {"batches": ended.batches},
        ended_by=ended.ended_by,
    )
