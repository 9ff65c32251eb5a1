"""`sparklog delete-records`: kafka-delete-records, with its file format and its output."""

from __future__ import annotations

from typing import Any

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.console.partition_file import (
    entries_of,
    named_partition,
    once_each,
    text_of,
    whole,
)
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_log_options, administered
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition

_EXAMPLE = '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}'


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--offset-json-file",
        required=True,
        metavar="FILE",
        help="the first offset to keep of each partition, -1 for none; - reads standard input. "
        f"Such as {_EXAMPLE}",
    )
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Delete records of every partition in the file; continue after a partition that fails."""
    wanted = parse_offsets(text_of(args.offset_json_file))
    failures = 0
    with administered(args) as log:
        output.line("Executing records delete operation")
        output.line("Records delete operation completed:")
        for tp, start in log.delete_records(wanted).items():
            document: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition}
            if isinstance(start, SparklogError):
                failures += 1
                output.put(f"partition: {tp}\terror: {start}", {**document, "error": str(start)})
            else:
                output.put(
                    f"partition: {tp}\tlow_watermark: {start}", {**document, "lowWatermark": start}
                )
    if failures:
        output.flush()
        say(f"error: records of {failures} of {len(wanted)} partitions were not deleted")
    return 1 if failures else 0


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets in Kafka's JSON format.

    Raises:
        InvalidRequest: another format, or a partition twice.
    """
    entries = [
        (named_partition(entry, _EXAMPLE), whole(entry, "offset", _EXAMPLE))
        for entry in entries_of(text, _EXAMPLE)
    ]
    once_each(tp for tp, _ in entries)
    return dict(entries)
