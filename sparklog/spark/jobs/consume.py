"""From records of topics to the console, to Parquet or to a Delta table: `jobs/consume.py`.

The source's options select the records, the job says what the bytes mean, and Spark writes them to
their target. Nothing is kept in memory but what is being printed.

The module parses the command line of `jobs/consume.py` to a `ConsumeJob`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from sparklog.core.terminal_text import printable_json
from sparklog.spark.access.json_text import STANDARD_JSON, readable
from sparklog.spark.jobs.arguments import (
    JobParser,
    add_log_options,
    add_pace_options,
    counting_number,
    key_values,
    log_root,
    pace_of,
)
from sparklog.spark.jobs.expressions import split_expressions
from sparklog.spark.jobs.jars import DELTA_COORDINATE, delta_conf
from sparklog.spark.jobs.job import OpenSession
from sparklog.spark.jobs.progress import JobProgress, ProgressReport, StageSampler, watched
from sparklog.spark.jobs.streaming import (
    TOTALS,
    StreamPace,
    await_query,
    observed,
    paced,
    totals_of,
)
from sparklog.spark.source.schema import SPARK_TYPES

CONSOLE = "console"
DELTA = "delta"
SINKS = (CONSOLE, "parquet", DELTA)
DECODINGS = ("string", "json", "binary")
EARLIEST_OFFSET = -2
LATEST_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """The start or end of reading: one of these, or none for the default."""

    name: str | None = None
    """`earliest`, `latest`, or JSON in the source's own spelling."""
    everywhere: int | None = None
    """The same offset in every partition."""
    partitions: Mapping[int, int] | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumeJob:
    """The records to read, their conversion, and their target."""

    root: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Edge = field(default_factory=Edge)
    end: Edge = field(default_factory=Edge)
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    headers: bool = False
    key_as: str = "string"
    key_schema: str | None = None
    value_as: str = "string"
    value_schema: str | None = None
    where: str | None = None
    select: tuple[str, ...] = ()
    limit: int | None = None
    sink: str = CONSOLE
    output: str | None = None
    mode: str = "append"
    pace: StreamPace | None = None
    max_per_batch: int | None = None
    json: bool = False

    @property
    def label(self) -> str:
        """Return what is read, for people."""
        return ", ".join(self.topics) if self.topics else f"topics like {self.pattern}"


def consume(job: ConsumeJob, open_session: OpenSession, progress: JobProgress) -> ProgressReport:
    """Move the records, and return what was moved.

    Raises:
        SparklogError: the topics or the log. PySparkException: an expression or the output.
    """
    with open_log(job.root) as log, reported_usage(log, "sparklog consume"):
        options = source_options(log, job)
    spark = open_session(delta_conf() if job.sink == DELTA else {})
    rows = rows_of(read_records(spark, job, options), job)
    progress.start()
    try:
        if job.pace is None:
            return _consume_once(spark, rows, job, progress)
        return _consume_stream(rows, job, job.pace, progress)
    except (PySparkException, Py4JError) as error:
        if job.sink == DELTA and "DATA_SOURCE_NOT_FOUND" in str(error):
            raise _without_delta() from error
        raise


def source_options(log: Log, job: ConsumeJob) -> dict[str, str]:
    """Return the options of the source, after a look at the topics before Spark starts.

    Raises:
        UnknownTopicOrPartition, InvalidRequest: the topics or an edge.
    """
    options = {"path": job.root}
    if job.pattern is not None:
        options["subscribePattern"] = job.pattern
    else:
        options["subscribe"] = ",".join(job.topics)
    partitions = {name: log.topic(name).partitions for name in job.topics}
    options |= _edge_options(job.start, "starting", EARLIEST_OFFSET, partitions)
    options |= _edge_options(job.end, "ending", LATEST_OFFSET, partitions)
    if "startingTimestamp" in options:
        # A partition whose records are all older has nothing to offer: that is no mistake.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if job.headers:
        options["includeHeaders"] = "true"
    if job.max_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(job.max_per_batch)
    return {**options, **job.options}


def _edge_options(
    edge: Edge, prefix: str, otherwise: int, partitions: Mapping[str, int]
) -> dict[str, str]:
    if edge.timestamp_ms is not None:
        return {f"{prefix}Timestamp": str(edge.timestamp_ms)}
    if edge.name is not None:
        return {f"{prefix}Offsets": edge.name}
    if edge.everywhere is None and edge.partitions is None:
        return {}
    if not partitions:
        raise InvalidRequest("offsets by partition need --topic; a pattern may match any topic")
    chosen = edge.partitions or {}
    for topic, count in partitions.items():
        unknown = [number for number in chosen if number >= count]
        if unknown:
            raise UnknownTopicOrPartition(
                f"no such partition. topic={topic} partition={unknown[0]} partitions={count}"
            )
    fallback = edge.everywhere if edge.everywhere is not None else otherwise
    document = {
        topic: {str(number): chosen.get(number, fallback) for number in range(count)}
        for topic, count in partitions.items()
    }
    return {f"{prefix}Offsets": json.dumps(document)}


def read_records(spark: SparkSession, job: ConsumeJob, options: Mapping[str, str]) -> DataFrame:
    """Return the records as the source gives them; only the columns that the job reads.

    Raises:
        InvalidConfig: a column that records do not have.
    """
    columns = job.columns
    for name in columns:
        if name not in SPARK_TYPES:
            raise InvalidConfig(f"records have {', '.join(SPARK_TYPES)}. column={name}")
    schema = ", ".join(f"{name} {SPARK_TYPES[name].simpleString()}" for name in columns)
    if job.pace is None:
        reader = spark.read.format("sparklog").options(**dict(options))
        return (reader.schema(schema) if schema else reader).load()
    stream = spark.readStream.format("sparklog").options(**dict(options))
    return (stream.schema(schema) if schema else stream).load()


def rows_of(records: DataFrame, job: ConsumeJob) -> DataFrame:
    """Return what is written: decoded, filtered and selected as the job says."""
    decoded = {
        name: _decoded(name, kind, schema)
        for name, kind, schema in (
            ("key", job.key_as, job.key_schema),
            ("value", job.value_as, job.value_schema),
        )
        if name in records.columns
    }
    rows = records.withColumns(decoded)
    if job.where is not None:
        rows = rows.where(job.where)
    if job.select:
        rows = rows.selectExpr(*job.select)
    return rows if job.limit is None else rows.limit(job.limit)


def _decoded(name: str, kind: str, schema: str | None) -> Column:
    if kind == "string":
        return sf.col(name).cast("string")
    if kind == "json" and schema is not None:
        return sf.from_json(readable(sf.col(name).cast("string")), schema, STANDARD_JSON)
    return sf.col(name)


def _consume_once(
    spark: SparkSession, rows: DataFrame, job: ConsumeJob, progress: JobProgress
) -> ProgressReport:
    if job.output is None:
        count = _print(rows)
        return ProgressReport("consumed", job.label, count, 0, progress.elapsed_s(), printed=True)
    seen = Observation(TOTALS)
    counted = observed(rows, sf.lit(0), seen)
    with watched(progress, StageSampler(spark)):
        counted.write.format(job.sink).mode(job.mode).save(job.output)
    return ProgressReport("consumed", job.label, totals_of(seen.get).rows, 0, progress.elapsed_s())


def _consume_stream(
    rows: DataFrame, job: ConsumeJob, pace: StreamPace, progress: JobProgress
) -> ProgressReport:
    counted = observed(rows, sf.lit(0), TOTALS)
    writer = paced(counted.writeStream, pace)
    if job.output is None:
        query = writer.foreachBatch(_print_batch).start()
    else:
        query = writer.format(job.sink).option("path", job.output).start()
    ended = await_query(query, progress)
    return ProgressReport(
        "consumed",
        job.label,
        ended.tally.rows,
        0,
        progress.elapsed_s(),
        {"batches": ended.batches},
        printed=job.output is None,
        ended_by=ended.ended_by,
    )


def _print_batch(batch: DataFrame, number: int) -> None:
    _print(batch)


def _print(rows: DataFrame) -> int:
    """Write each row as one line of JSON to standard output; returns how many there were."""
    count = 0
    lines = rows.select(sf.to_json(sf.struct("*"))).toLocalIterator(prefetchPartitions=True)
    escapes = sys.stdout.isatty()
    for (line,) in lines:
        sys.stdout.write(f"{printable_json(line) if escapes else line}\n")
        count += 1
    sys.stdout.flush()
    return count


def _without_delta() -> InvalidRequest:
    return InvalidRequest(
        "this Spark has no Delta Lake: a session that spark-submit prepares must be given it there."
        f" Run `spark-submit --packages {DELTA_COORDINATE} jobs/consume.py …`, or "
        "`python jobs/consume.py …`, which brings its own"
    )


_BY_PARTITION = re.compile(r"\d+:-?\d+(,\d+:-?\d+)*")

_EXAMPLES = """
examples:
  spark-submit jobs/consume.py --root s3://bucket/log --topic flights --limit 10
  spark-submit jobs/consume.py --topic flights --from-time 2013-07-01T00:00:00Z \\
      --to parquet --output july/ --value-as json \\
      --value-schema "carrier STRING, dep_delay DOUBLE" --select "value.*, timestamp"
  spark-submit jobs/consume.py --topic flights --from-offset 0:1000,1:1000 --to-offset 0:2000,1:2000
  python jobs/consume.py --topic flights --to delta --output tables/flights \\
      --stream --from-offset earliest --checkpoint checkpoints/flights
"""


def parse_consume(argv: Sequence[str]) -> ConsumeJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    return _parser().parsed(argv, _job)


def _parser() -> JobParser:
    parser = JobParser(
        "consume.py",
        "Take records of topics to the console, to Parquet or to a Delta table.",
        _EXAMPLES,
    )
    add_log_options(parser)
    _add_range(parser)
    records = parser.add_argument_group("records")
    for name in ("key", "value"):
        records.add_argument(
            f"--{name}-as", choices=DECODINGS, default="string",
            help=f"what the bytes of a {name} are (default: %(default)s)",
        )  # fmt: skip
        records.add_argument(
            f"--{name}-schema", metavar="DDL", help=f"fields of a JSON {name}: 'id BIGINT, …'"
        )
    records.add_argument("--headers", action="store_true", help="have a column of headers, too")
    records.add_argument(
        "--columns", metavar="NAME,…", help=f"read only these of {', '.join(SPARK_TYPES)}"
    )
    records.add_argument("--where", metavar="EXPR", help="take only records for which this holds")
    records.add_argument(
        "--select", metavar="EXPR,…", help='columns to write: "value.*, timestamp"'
    )
    records.add_argument("--limit", type=counting_number, metavar="N", help="at most so many")
    where = parser.add_argument_group("where to")
    where.add_argument(
        "--to", choices=SINKS, default=CONSOLE,
        help="console prints one JSON object per record (default: %(default)s)",
    )  # fmt: skip
    where.add_argument("--output", metavar="PATH", help="folder of the files or of the table")
    where.add_argument(
        "--mode", choices=("append", "overwrite", "error"), default="append",
        help="what to do when the output exists (default: %(default)s)",
    )  # fmt: skip
    add_pace_options(parser, "follow the topics instead of reading what is there")
    parser.add_argument(
        "--max-per-batch", type=counting_number, metavar="N", help="records per batch of a stream"
    )
    return parser


def _add_range(parser: JobParser) -> None:
    group = parser.add_argument_group("which records")
    which = group.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="NAME,…", help="one topic or several")
    which.add_argument("--topic-pattern", metavar="REGEX", help="all topics whose name matches")
    offset = "earliest, latest, N (in every partition), PARTITION:N,… or JSON by topic"
    moment = "2013-07-01T00:00:00Z, or milliseconds since 1970"
    for edge, default in (("from", "earliest; a stream: latest"), ("to", "latest")):
        one = group.add_mutually_exclusive_group()
        one.add_argument(
            f"--{edge}-offset", metavar="OFFSET", help=f"{offset} (default: {default})"
        )
        one.add_argument(f"--{edge}-time", metavar="TIME", help=moment)
    group.add_argument(
        "--option", action="append", default=[], metavar="K=V", help="option of the source"
    )


def _job(given: argparse.Namespace) -> ConsumeJob:
    pace = pace_of(given, needs_checkpoint=given.to != CONSOLE)
    if (given.to == CONSOLE) != (given.output is None):
        raise InvalidRequest(
            "--output is where --to parquet and --to delta write; the console needs none"
        )
    for name in ("key", "value"):
        has_schema = getattr(given, f"{name}_schema") is not None
        if has_schema != (getattr(given, f"{name}_as") == "json"):
            raise InvalidRequest(f"--{name}-as json and --{name}-schema go together")
    if pace is not None and (given.to_offset is not None or given.to_time is not None):
        raise InvalidRequest("a stream has no end: leave --to-offset and --to-time out")
    if pace is not None and given.limit is not None:
        raise InvalidRequest("--limit is for reading once; a stream has --max-per-batch")
    if pace is None and given.max_per_batch is not None:
        raise InvalidRequest("--max-per-batch is for a stream: add --stream")
    return ConsumeJob(
        root=log_root(given),
        topics=tuple(split_expressions(given.topic)) if given.topic else (),
        pattern=given.topic_pattern,
        start=_edge(given.from_offset, given.from_time),
        end=_edge(given.to_offset, given.to_time),
        options=key_values(given.option, "--option"),
        columns=tuple(split_expressions(given.columns)) if given.columns else (),
        headers=given.headers,
        key_as=given.key_as,
        key_schema=given.key_schema,
        value_as=given.value_as,
        value_schema=given.value_schema,
        where=given.where,
        select=tuple(split_expressions(given.select)) if given.select else (),
        limit=given.limit,
        sink=given.to,
        output=given.output,
        mode=given.mode,
        pace=pace,
        max_per_batch=given.max_per_batch,
        json=given.json,
    )


def _edge(offset: str | None, moment: str | None) -> Edge:
    if moment is not None:
        return Edge(timestamp_ms=_milliseconds(moment))
    if offset is None:
        return Edge()
    text = offset.strip()
    if text in ("earliest", "latest"):
        return Edge(name=text)
    if text.isascii() and text.isdigit():
        return Edge(everywhere=int(text))
    if _BY_PARTITION.fullmatch(text):
        pairs = [part.split(":") for part in text.split(",")]
        return Edge(partitions={int(number): int(at) for number, at in pairs})
    try:
        document = parse_json(text, "offset")
    except ValueError:
        document = None
    if isinstance(document, dict):
        return Edge(name=text)
    raise InvalidRequest(
        f"an offset is earliest, latest, a number, PARTITION:N,… or JSON by topic. given={text!r}"
    )


def _milliseconds(moment: str) -> int:
    text = moment.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"a time is like 2013-07-01T00:00:00Z, or milliseconds since 1970. given={moment!r}"
        ) from None
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1000)
