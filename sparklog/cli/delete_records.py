"""`sparklog delete-records`: kafka-delete-records, with its file format and its output."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from sparklog.cli.output import Output, say
from sparklog.cli.root import add_root_options, opened_log
from sparklog.cli.usage import Arguments, CommandParser
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition

FORMAT_VERSION = 1
TO_THE_END = -1

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
    add_root_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Delete records of every partition in the file; go on after a partition that fails."""
    wanted = parse_offsets(_text(args.offset_json_file))
    failures = 0
    with opened_log(args) as log:
        output.line("Executing records delete operation")
        output.line("Records delete operation completed:")
        for tp, offset in wanted.items():
            document: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition}
            try:
                start = log.partition(tp.topic, tp.partition).delete_records(offset)
            except SparklogError as error:
                failures += 1
                output.put(f"partition: {tp}\terror: {error}", {**document, "error": str(error)})
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
        InvalidRequest: not in that format, or a partition twice.
    """
    try:
        document = json.loads(text)
        version = document.get("version", FORMAT_VERSION)
        entries = [(_partition(entry), _whole(entry, "offset")) for entry in document["partitions"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidRequest(
            f"the offset file must look like {_EXAMPLE}. problem={error!r}"
        ) from error
    if version != FORMAT_VERSION:
        raise InvalidRequest(
            f"the offset file's version must be {FORMAT_VERSION}. version={version}"
        )
    twice = [str(tp) for tp, count in Counter(tp for tp, _ in entries).items() if count > 1]
    if twice:
        raise InvalidRequest(
            f"the offset file names partitions more than once. partitions={','.join(twice)}"
        )
    return dict(entries)


def _partition(entry: dict[str, Any]) -> TopicPartition:
    topic = entry["topic"]
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a string: {topic!r}")
    return TopicPartition(topic, _whole(entry, "partition"))


def _whole(entry: dict[str, Any], name: str) -> int:
    value = entry[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number: {value!r}")
    return value


def _text(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    return Path(file).read_text(encoding="utf-8")
