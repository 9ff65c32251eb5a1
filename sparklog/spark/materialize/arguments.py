"""The command line of `jobs/materialize.py`: from words to a `MaterializeJob`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparklog.core.errors import InvalidRequest
from sparklog.spark.jobs.arguments import (
    JobParser,
    add_dry_run,
    add_log_options,
    counting_number,
    key_values,
    log_root,
)
from sparklog.spark.jobs.expressions import split_expressions
from sparklog.spark.jobs.metrics_option import add_metrics_option
from sparklog.spark.materialize.commit import (
    APPEND,
    AVRO,
    FORMATS,
    JSON,
    MODES,
    REGISTRY,
    UPSERT,
    avro_fields,
)
from sparklog.spark.materialize.schema import DATE_COLUMN, RECORD_COLUMNS

MAX_PER_BATCH: Final = 10_000_000
"""Offsets in a commit: so much is read again when a job is killed, and none if it is not."""
OPTIMIZE_EVERY: Final = 20
REJECTED_SUFFIX: Final = "_rejected"
STARTS: Final = ("earliest", "latest")
ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
_OWN_OPTIONS: Final = re.compile(
    r"path|subscribe|subscribepattern|assign|starting.*|ending.*|isolationlevel|kafka\."
    r"isolation\.level|includeheaders|failondataloss|maxoffsetspertrigger",
    re.IGNORECASE,
)
_INTERVAL: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|(?:milli)?seconds?|minutes?|hours?)?")
_UNIT_S: Final = {"m": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0, "s": 1.0, "second": 1.0,
                  "ms": 0.001, "millisecond": 0.001}  # fmt: skip

_EXAMPLES = """
examples:
  spark-submit jobs/materialize.py --root s3://bucket/log --topic flights --table tables/flights
  spark-submit jobs/materialize.py --topic flights --table tables/flights --dry-run
  spark-submit jobs/materialize.py --topic flights --table tables/flights --trigger "10 seconds" \\
      --schema "carrier STRING, dep_delay DOUBLE" --partition-by _date
  spark-submit jobs/materialize.py --topic customers --table tables/customers --mode upsert
"""


@dataclass(frozen=True, slots=True)
class MaterializeJob:
    """The topic, the table to write it into, and the way to do it."""

    root: str
    topic: str
    table: str
    rejected: str
    format: str = JSON
    schema: str | None = None
    """Fields of JSON in DDL; None: from the values. For Avro, the text of the schema."""
    subject: str | None = None
    """The subject of the values' schemas; None: the topic's name and `-value`."""
    message: str | None = None
    """The full name of the message of Protobuf values; None: that of the table, or the only one."""
    mode: str = APPEND
    start: str = "earliest"
    isolation: str = ISOLATION_LEVELS[0]
    fail_on_data_loss: bool = True
    headers: bool = True
    each_document: bool = False
    partition_by: tuple[str, ...] = ()
    max_per_batch: int = MAX_PER_BATCH
    optimize_every: int = OPTIMIZE_EVERY
    interval_s: float | None = None
    """Time between batches that follow the topic; None: what is there now, then end."""
    options: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False
    json: bool = False


def parse_materialize(argv: Sequence[str]) -> MaterializeJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    return _parser().parsed(argv, _job)


def _parser() -> JobParser:
    parser = JobParser(
        "materialize.py",
        "Keep a Delta table of a topic: every record once, whatever is killed. The table itself\n"
        "says how far it has come; there is no checkpoint to keep or to lose.",
        _EXAMPLES,
    )
    add_log_options(parser)
    add_metrics_option(parser)
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic")
    parser.add_argument(
        "--table", required=True, metavar="PATH", help="folder or URL of the Delta table"
    )
    parser.add_argument(
        "--rejected", metavar="PATH",
        help=f"table of records whose value cannot be read (default: the table's{REJECTED_SUFFIX})",
    )  # fmt: skip
    _add_values(parser)
    parser.add_argument(
        "--mode", choices=MODES, default=APPEND,
        help="append: a row per record; upsert: a row per key, the newest, and none where that has "
        "no value (default: %(default)s)",
    )  # fmt: skip
    _add_reading(parser)
    pace = parser.add_argument_group("pace")
    pace.add_argument(
        "--available-now", action="store_true", help="take what is there now, then end (default)"
    )
    pace.add_argument(
        "--trigger", metavar="INTERVAL", help='follow the topic, a batch every "10 seconds"'
    )
    pace.add_argument(
        "--max-per-batch", type=counting_number, default=MAX_PER_BATCH, metavar="N",
        help="records per commit, about (default: %(default)s)",
    )  # fmt: skip
    add_dry_run(parser)
    return parser


def _add_values(parser: JobParser) -> None:
    values = parser.add_argument_group("values and the table")
    values.add_argument(
        "--format", choices=FORMATS, default=JSON,
        help="what the bytes of a value are (default: %(default)s)",
    )  # fmt: skip
    values.add_argument(
        "--schema", metavar="DDL",
        help="fields of JSON to take: 'id BIGINT, …' (default: all there are; new ones become "
        "columns)",
    )  # fmt: skip
    values.add_argument(
        "--each-document", action="store_true",
        help="a row for each JSON document where a value holds several (default: they are parked)",
    )  # fmt: skip
    values.add_argument("--avro-schema", metavar="FILE", help="schema of Avro, as JSON")
    values.add_argument(
        "--subject", metavar="NAME",
        help="with --format registry: the subject of the schemas (default: TOPIC-value)",
    )  # fmt: skip
    values.add_argument(
        "--message", metavar="NAME",
        help="with --format registry and Protobuf: the message of the values, with its package "
        "(default: the only one that is no part of another)",
    )  # fmt: skip
    values.add_argument("--no-headers", action="store_true", help="leave the column _headers out")
    values.add_argument(
        "--partition-by", metavar="COLUMN,…",
        help=f"columns that divide the table into folders; {DATE_COLUMN} is the record's day",
    )  # fmt: skip
    values.add_argument(
        "--optimize-every", type=_whole_number, default=OPTIMIZE_EVERY, metavar="N",
        help="merge small files after so many commits; 0: never (default: %(default)s)",
    )  # fmt: skip


def _add_reading(parser: JobParser) -> None:
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--from-offset", choices=STARTS, default=STARTS[0],
        help="where a new table begins (default: %(default)s)",
    )  # fmt: skip
    reading.add_argument(
        "--isolation-level", choices=ISOLATION_LEVELS, default=ISOLATION_LEVELS[0],
        help="whether to leave out what transactions took back (default: %(default)s)",
    )  # fmt: skip
    reading.add_argument(
        "--fail-on-data-loss", choices=("true", "false"), default="true",
        help="refuse a gap between the table and the log, and a topic that was created again; "
        "false: go on without what is gone (default: %(default)s)",
    )  # fmt: skip
    reading.add_argument(
        "--option", action="append", default=[], metavar="K=V",
        help="option of the source, such as minPartitions=8",
    )  # fmt: skip


def _job(given: argparse.Namespace) -> MaterializeJob:
    options = key_values(given.option, "--option")
    for name in options:
        if _OWN_OPTIONS.fullmatch(name):
            raise InvalidRequest(f"the job sets this option of the source itself. option={name}")
    if given.available_now and given.trigger is not None:
        raise InvalidRequest("--available-now ends by itself: leave --trigger out")
    if given.schema is not None and given.format != JSON:
        raise InvalidRequest("--schema is for --format json")
    if given.each_document and (given.format != JSON or given.mode == UPSERT):
        raise InvalidRequest("--each-document is for --format json and --mode append")
    if (given.avro_schema is not None) != (given.format == AVRO):
        raise InvalidRequest("--format avro and --avro-schema go together")
    if (given.subject or given.message) is not None and given.format != REGISTRY:
        raise InvalidRequest("--subject and --message are for --format registry")
    partition_by = tuple(split_expressions(given.partition_by)) if given.partition_by else ()
    if given.mode == UPSERT and partition_by:
        raise InvalidRequest("--mode upsert keeps one row per key; --partition-by is for append")
    table = absolute(given.table)
    rejected = absolute(given.rejected) if given.rejected else table + REJECTED_SUFFIX
    if rejected == table:
        raise InvalidRequest("--rejected must be another table than --table")
    job = MaterializeJob(
        root=log_root(given),
        topic=given.topic,
        table=table,
        rejected=rejected,
        format=given.format,
        schema=given.schema if given.avro_schema is None else _text_of(given.avro_schema),
        subject=given.subject,
        message=given.message,
        mode=given.mode,
        start=given.from_offset,
        isolation=given.isolation_level,
        fail_on_data_loss=given.fail_on_data_loss == "true",
        headers=not given.no_headers,
        each_document=given.each_document,
        partition_by=partition_by,
        max_per_batch=given.max_per_batch,
        optimize_every=given.optimize_every,
        interval_s=None if given.trigger is None else interval_s(given.trigger),
        options=options,
        dry_run=given.dry_run,
        json=given.json,
    )
    _check_partitioning(job)
    return job


def _check_partitioning(job: MaterializeJob) -> None:
    if not set(job.partition_by) - {*RECORD_COLUMNS, DATE_COLUMN}:
        return
    if job.start == "latest" and job.format == JSON and job.schema is None:
        raise InvalidRequest(
            "a table that begins at the latest offset is made before any field is known: give "
            "--schema, or partition by columns of the record"
        )


def absolute(path: str) -> str:
    """Return a table's path, absolute: tasks have folders of their own."""
    text = path.strip().rstrip("/")
    if not text:
        raise InvalidRequest("a table needs a path")
    return text if "://" in text else str(Path(text).absolute())


def interval_s(text: str) -> float:
    """Return the seconds that `10 seconds`, `500 ms` or `2m` mean.

    Raises:
        InvalidRequest: anything else.
    """
    found = _INTERVAL.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidRequest(f'an interval is like "10 seconds" or 500ms. given={text!r}')
    unit = found.group(2) or "s"
    seconds = float(found.group(1)) * _UNIT_S[unit if unit in _UNIT_S else unit.rstrip("s")]
    if not seconds:  # the storage would be asked for news without a pause
        raise InvalidRequest(f"an interval is longer than nothing. given={text!r}")
    return seconds


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"must be a whole number: {text!r}")
    return int(text)


def _text_of(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
        avro_fields(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"the Avro schema cannot be read. file={path} reason={error}"
        ) from error
    return text
