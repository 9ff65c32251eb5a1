"""`sparklog sql`: a query over topics, from the storage and the leaders, or through brokers."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparklog.cli.arguments import Arguments, CommandParser, UsageError, counting_number
from sparklog.cli.console.query_thread import QueryThread
from sparklog.cli.console.result_output import FORMATS, result_output
from sparklog.cli.console.sql_server import add_serve_options, serve
from sparklog.cli.output import Output, say
from sparklog.cli.query_target import (
    add_query_options,
    add_registry_option,
    add_value_schema_option,
    opened_topics,
    value_schemas_of,
)
from sparklog.cli.target import add_log_options, bootstrap_of, client_settings_of
from sparklog.log.segment.unread_batches import Unread
from sparklog.sql.engine import DecodeRules, Query, QueryLimits
from sparklog.sql.result_values import json_value
from sparklog.sql.topics import TopicReader

if TYPE_CHECKING:
    from sparklog.cli.console.line_reader import LineRecord
    from sparklog.cli.console.record_sinks import LineSink

_EPILOG = """
A topic is a table; sparklog/docs/SQL.md has the columns. Examples:
  sparklog sql "SELECT partition, count(*) FROM orders GROUP BY ALL"
  sparklog sql "SELECT offset, value FROM orders WHERE key = 'ann'"
  sparklog sql "SELECT carrier, avg(dep_delay) FROM json.flights GROUP BY carrier"
  sparklog sql --serve 8099
  sparklog sql "EXPLAIN SELECT * FROM orders WHERE offset > 1000"
"""
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "statement", metavar="STATEMENT", nargs="?", help="SELECT, DESCRIBE, SHOW or EXPLAIN"
    )
    parser.add_argument(
        "--output", choices=FORMATS, default=None, help="how to print rows (default table)"
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="of --output parquet")
    parser.add_argument(
        "--to-topic", metavar="TOPIC", help="append the rows to this topic instead of printing them"
    )
    parser.add_argument(
        "--max-rows", type=counting_number, metavar="N", help="print at most so many rows"
    )
    parser.add_argument(
        "--timeout", type=counting_number, metavar="SECONDS", help="stop the query after this time"
    )
    parser.add_argument(
        "--memory", type=byte_size, metavar="SIZE", default=1 << 30,
        help="the most memory of the query, such as 512MB (default 1GB)",
    )  # fmt: skip
    parser.add_argument(
        "--decode-errors", choices=["fail", "null"], default="fail",
        help="what a value becomes in json, text, registry and bare that does not decode "
        "(default fail)",
    )  # fmt: skip
    parser.add_argument(
        "--skip-unreadable", action="store_true",
        help="pass over batches that cannot be read, with a warning",
    )  # fmt: skip
    parser.add_argument(
        "--follow", action="store_true",
        help="print the rows of records as they arrive; the query selects, computes and filters",
    )  # fmt: skip
    parser.add_argument(
        "--from-beginning", action="store_true", help="with --follow: start at the first record"
    )
    add_serve_options(parser)
    add_query_options(parser)
    add_registry_option(parser)
    add_value_schema_option(parser)
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Run the statement, and print or append its rows."""
    form = _form(args)
    limits = QueryLimits(timeout_s=args.timeout, memory_bytes=args.memory, rows_max=args.max_rows)
    unread = Unread.PASS_OVER if args.skip_unreadable else Unread.FAIL
    rules = DecodeRules(args.decode_errors == "fail", unread, value_schemas_of(args))
    if args.serve is not None:
        return serve(args, output, limits, rules)
    if args.follow:
        return _follow(args, output, form, limits, rules)
    with opened_topics(args) as topics, Query(topics, args.statement, limits, rules) as query:
        batches = QueryThread(query).batches()
        if args.to_topic is not None:
            _append(args, topics, batches)
        else:
            results = result_output(form, output, args.file)
            try:
                for batch in batches:
                    results.put(batch)
            finally:
                results.finish()
        if query.is_truncated:
            say(f"note: there are more rows; --max-rows {args.max_rows} left them out")
    return 0


def _follow(
    args: Arguments, output: Output, form: str, limits: QueryLimits, rules: DecodeRules
) -> int:
    # Most statements follow nothing, and shall start at once.
    from sparklog.cli.console.arrival_printer import print_arrivals  # noqa: PLC0415
    from sparklog.sql.arrivals import ArrivalQuery  # noqa: PLC0415

    results = result_output(form, output, args.file)
    with (
        opened_topics(args) as topics,
        ArrivalQuery(topics, args.statement, limits, rules) as query,
    ):
        try:
            print_arrivals(args, topics, query, results, output)
        finally:
            results.finish()
    return 0


def byte_size(text: str) -> int:
    """Return the bytes of a size such as 512MB, for `type=`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"not a size: {text!r}; write 512MB or 2GB")
    return int(match[1]) << 10 * _POWERS[match[2].lower()]


def _form(args: Arguments) -> str:
    if (args.statement is None) == (args.serve is None):
        raise UsageError("give a statement, or --serve [HOST:]PORT")
    if args.serve is not None and (args.output or args.file or args.to_topic or args.follow):
        raise UsageError("--serve prints no rows; leave out --output, --file, --to-topic, --follow")
    if args.json and args.output not in (None, "json"):
        raise UsageError("--json and --output say different formats; use one")
    if args.to_topic is not None and (args.output or args.json):
        raise UsageError("--to-topic prints no rows; leave out --output and --json")
    if args.follow and (args.to_topic is not None or args.timeout is not None):
        raise UsageError("--follow prints rows until an interrupt; leave out --to-topic, --timeout")
    if args.from_beginning and not args.follow:
        raise UsageError("--from-beginning goes with --follow")
    return "json" if args.json else args.output or "table"


def _append(args: Arguments, topics: TopicReader, batches: Iterable[pa.RecordBatch]) -> None:
    sink = _sink(args, topics)
    rows = 0
    for batch in batches:
        records = list(_records(batch))
        if records:
            rows += sum(delivery.count for delivery in sink.append(records))
    rows += sum(delivery.count for delivery in sink.finish())
    say(f"appended {rows:,} records to {args.to_topic}")


def _sink(args: Arguments, topics: TopicReader) -> LineSink:
    if topics.log is not None:
        from sparklog.cli.console.record_sinks import TopicAppender  # noqa: PLC0415 - seldom

        return TopicAppender(topics.log, topics.log.topic(args.to_topic), None)
    from sparklog.cli.console.broker_sink import TopicSender  # noqa: PLC0415 - a root needs none

    bootstrap = bootstrap_of(args)
    assert bootstrap is not None, "there is a root or there are brokers"
    return TopicSender(bootstrap, args.to_topic, client_settings_of(args))


def _records(batch: pa.RecordBatch) -> Iterator[LineRecord]:
    """Yield the records of a result: its key, value and headers, or each row as JSON."""
    from sparklog.cli.console.line_reader import LineRecord  # noqa: PLC0415 - seldom

    has_value = "value" in batch.schema.names
    for row in batch.to_pylist():
        key = _bytes(row.get("key"))
        if not has_value:
            fields = {name: json_value(value) for name, value in row.items() if name != "key"}
            text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
            yield LineRecord(key, text.encode("utf-8", "surrogateescape"), None)
            continue
        headers = row.get("headers")
        pairs = None if headers is None else tuple((h["key"], _bytes(h["value"])) for h in headers)
        yield LineRecord(key, _bytes(row["value"]), pairs)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else str(json_value(value))).encode()
