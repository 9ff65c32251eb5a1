"""The command line of `jobs/consume.py`: from words to a `ConsumeJob`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from sparklog.core.errors import InvalidRequest
from sparklog.spark.arguments import (
    JobParser,
    add_log_options,
    add_pace_options,
    counting_number,
    key_values,
    log_root,
    pace_of,
)
from sparklog.spark.consume import CONSOLE, DECODINGS, SINKS, ConsumeJob, Edge
from sparklog.spark.expressions import split_expressions
from sparklog.spark.read_schema import SPARK_TYPES

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
        document = json.loads(text)
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
