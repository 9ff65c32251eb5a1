"""The command line of `jobs/produce.py`: from words to a `ProduceArguments`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path, PurePath

from sparklog.client.security import (
    CONFIG_VARIABLE,
    SecuritySettings,
    process_security,
    read_client_file,
)
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import InvalidRequest
from sparklog.spark.jobs.arguments import (
    JobParser,
    add_log_options,
    add_pace_options,
    counting_number,
    key_values,
    log_root,
    pace_of,
)
from sparklog.spark.jobs.expressions import split_expressions, split_named
from sparklog.spark.jobs.produce import ProduceArguments

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".orc": "orc",
    ".txt": "text",
}
_PACKED = {".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate"}

_EXAMPLES = """
examples:
  spark-submit jobs/produce.py --root s3://bucket/log --topic flights --create --partitions 3 \\
      --input flights.csv --option nullValue=NA --key tailnum --timestamp time_hour
  spark-submit jobs/produce.py --topic clicks --input clicks.jsonl --key user \\
      --value "to_json(struct(user, page))" --headers "source='web',country=country"
  spark-submit jobs/produce.py --topic orders --format jdbc --option url=jdbc:… \\
      --option dbtable=orders --key id
  spark-submit jobs/produce.py --topic events --input incoming/ --format json --stream \\
      --schema "id BIGINT, name STRING" --checkpoint checkpoints/events
"""


def parse_produce(argv: Sequence[str]) -> ProduceArguments:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    return _parser().parsed(argv, _job)


def _parser() -> JobParser:
    parser = JobParser(
        "produce.py",
        "Send rows to a topic: of CSV, JSON lines, Parquet or any other source that Spark has.",
        _EXAMPLES,
    )
    add_log_options(parser)
    parser.add_argument("--topic", required=True, help="where the records go")
    rows = parser.add_argument_group("rows")
    rows.add_argument(
        "--input", action="append", default=[], metavar="PATH",
        help="file or folder to read; may be given more than once",
    )  # fmt: skip
    rows.add_argument("--format", help="csv, json, parquet or any source (default: by the name)")
    rows.add_argument(
        "--option", action="append", default=[], metavar="K=V",
        help="option of the source; CSV starts with header=true and inferSchema=true, and quotes "
        "as in RFC 4180",
    )  # fmt: skip
    rows.add_argument(
        "--malformed", metavar="FOLDER",
        help="write malformed lines of CSV or JSON there, as JSON with the reason, and send the "
        "others (default: they fail the job, and nothing is sent)",
    )  # fmt: skip
    rows.add_argument("--schema", metavar="DDL", help='columns: "id BIGINT, name STRING"')
    rows.add_argument("--where", metavar="EXPR", help="take only rows for which this holds")
    rows.add_argument(
        "--select", metavar="EXPR,…", help='columns to go on with: "*, upper(name) AS shout"'
    )
    records = parser.add_argument_group("records (SQL expressions over the rows)")
    records.add_argument("--key", metavar="EXPR", help="default: no key")
    records.add_argument(
        "--value", metavar="EXPR", default="to_json(struct(*))", help="default: %(default)s"
    )
    records.add_argument("--headers", metavar="NAME=EXPR,…", help="default: no headers")
    records.add_argument(
        "--timestamp", metavar="EXPR", help="event time; a number is in ms (default: now)"
    )
    records.add_argument(
        "--partition", metavar="EXPR", help="default: by the key, as Kafka's clients choose"
    )
    brokers = parser.add_argument_group("brokers")
    brokers.add_argument(
        "--bootstrap-server", metavar="HOST:PORT,…",
        help="append through brokers instead of --root: needed where they lead the topic; each "
        "record arrives at least once, and exactly once unless a task is repeated",
    )  # fmt: skip
    brokers.add_argument(
        "--command-config", type=Path, metavar="FILE",
        help="properties file with security.protocol, sasl.* and ssl.*; ${file:/path:key} refers "
        f"to a secret that each executor reads (default ${CONFIG_VARIABLE})",
    )  # fmt: skip
    brokers.add_argument(
        "--replication-factor", type=counting_number, metavar="N", help="with --create"
    )
    topic = parser.add_argument_group("the topic")
    topic.add_argument("--create", action="store_true", help="create it if it does not exist")
    topic.add_argument("--partitions", type=counting_number, metavar="N", help="with --create")
    topic.add_argument(
        "--config", action="append", default=[], metavar="K=V", help="setting of a new topic"
    )
    topic.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="codec, where the topic leaves it to the producer",
    )  # fmt: skip
    add_pace_options(parser, "follow the source instead of reading it once")
    return parser


def _job(given: argparse.Namespace) -> ProduceArguments:
    source = given.format or _format_of(given.input)
    if not given.create and (given.partitions is not None or given.config):
        raise InvalidRequest("--partitions and --config are for a new topic: add --create")
    if given.replication_factor is not None and not (given.create and given.bootstrap_server):
        raise InvalidRequest("--replication-factor is for --create with --bootstrap-server")
    configs = key_values(given.config, "--config")
    # An existing topic keeps its settings, so a misspelled one would never be reported.
    parse_topic_configs(configs)
    pace = pace_of(given)
    if given.bootstrap_server is not None and given.root is not None:
        raise InvalidRequest("--root and --bootstrap-server are two ways to a log: give one")
    if given.command_config is not None and given.bootstrap_server is None:
        raise InvalidRequest("--command-config is for --bootstrap-server")
    if given.bootstrap_server is not None and pace is not None:
        raise InvalidRequest("a stream that sends each record once needs --root")
    if pace is not None and given.malformed is not None:
        raise InvalidRequest(
            "--malformed is for input that is read once; a malformed line ends a stream"
        )
    if pace is not None and len(given.input) > 1:
        raise InvalidRequest("a stream reads one --input: a folder or a pattern such as 'in/*.csv'")
    return ProduceArguments(
        root=log_root(given) if given.bootstrap_server is None else None,
        topic=given.topic,
        paths=tuple(given.input),
        source=source,
        options=key_values(given.option, "--option"),
        schema=given.schema,
        malformed=given.malformed,
        where=given.where,
        select=tuple(split_expressions(given.select)) if given.select else (),
        key=given.key,
        value=given.value,
        headers=tuple(split_named(given.headers)) if given.headers else (),
        timestamp=given.timestamp,
        partition=given.partition,
        create=given.create,
        partitions=given.partitions,
        configs=configs,
        compression=given.compression,
        bootstrap_servers=given.bootstrap_server,
        security=_security(given.command_config),
        replication_factor=given.replication_factor,
        pace=pace,
        json=given.json,
    )


def _security(path: Path | None) -> SecuritySettings:
    if path is None:
        return process_security()
    return read_client_file(path, "--command-config")[0]


def _format_of(paths: Sequence[str]) -> str:
    """Return the format that the names of all inputs share."""
    found = set()
    for path in paths:
        suffixes = [s.lower() for s in PurePath(path).suffixes]
        while suffixes and suffixes[-1] in _PACKED:
            suffixes.pop()
        found.add(FORMATS.get(suffixes[-1] if suffixes else ""))
    if len(found) == 1 and (only := found.pop()) is not None:
        return only
    raise InvalidRequest(
        "which format? give --format csv, json, parquet or the name of a source"
        + ("" if paths else ", and --input if it reads files")
    )
