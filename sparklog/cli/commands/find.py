"""`sparklog find`: the records of one key, without reading a whole topic.

Kafka has no such tool. It reads the storage, not brokers. It prints records as `sparklog consume`
does.
"""

from __future__ import annotations

import base64
import binascii
import struct

from sparklog.cli.arguments import Arguments, CommandParser, UsageError, key_values, whole_number
from sparklog.cli.console.record_format import (
    JSON_COLUMNS,
    PROPERTIES,
    RecordFormat,
    record_documents,
    record_format,
)
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_root_options, opened_log
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import Topic
from sparklog.core.types import TopicPartition
from sparklog.log.partition.key_lookup import FoundKey
from sparklog.protocol.partitioner.partitioner import partition_for_key

KEY_FORMATS = ("string", "hex", "base64", "integer", "long")


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument("--topic", required=True, help="topic to look in")
    parser.add_argument("--key", required=True, help="the key, whole")
    parser.add_argument(
        "--key-format",
        choices=KEY_FORMATS,
        default="string",
        help="how the key is written here; integer and long are four and eight bytes, "
        "the highest first, as Kafka's serializers write them (default %(default)s)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--partition",
        type=whole_number,
        metavar="N",
        help="look here (default: where Kafka's producers put the key)",
    )
    where.add_argument("--all-partitions", action="store_true", help="look in every partition")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="print all its records (the default)")
    which.add_argument("--latest", action="store_true", help="print its newest record only")
    parser.add_argument(
        "--formatter-property",
        dest="formatter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"how to print a record: {', '.join(PROPERTIES)}",
    )
    add_root_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print the records found; none is not an error."""
    key = parse_key(args.key, args.key_format)
    shape = record_format(key_values(args.formatter, "--formatter-property"))
    with opened_log(args) as log:
        topic = log.topic(args.topic)
        if any(state.leader >= 0 for state in topic.partition_states):
            say(
                "note: brokers lead this topic, and hold its newest records until they are "
                f"flushed; this looks at the storage only. topic={topic.name}"
            )
        numbers = _partitions(args, topic, key)
        rows = 0
        for number in numbers:
            before = _requests(log)
            found = _find(log, TopicPartition(topic.name, number), key, args, shape, output)
            rows += found.rows
            output.flush()
            say(_summary(f"{topic.name}-{number}", found, _requests(log) - before))
    if not rows and args.partition is None and len(numbers) < topic.partitions:
        say(
            "note: other partitions may have it, if it was sent by another rule or before "
            "partitions were added; --all-partitions looks in all"
        )
    return 0


def _find(
    log: Log,
    where: TopicPartition,
    key: bytes,
    args: Arguments,
    shape: RecordFormat,
    output: Output,
) -> FoundKey:
    columns = JSON_COLUMNS if output.as_json else shape.columns
    partition = log.partition(where.topic, where.partition)
    found = partition.find(key, columns, newest_only=args.latest)
    for batch in found.records:
        if output.as_json:
            for document in record_documents(where, batch):
                output.document(document)
        else:
            output.raw(shape.lines(where, batch))
    return found


def _partitions(args: Arguments, topic: Topic, key: bytes) -> list[int]:
    if args.all_partitions:
        return list(range(topic.partitions))
    if args.partition is not None:
        return [args.partition]
    return [partition_for_key(key, topic.partitions)]


def _requests(log: Log) -> int:
    return sum(count.requests for count in log.requests().values())


def _summary(where: str, found: FoundKey, requests: int) -> str:
    return (
        f"{where}: found {found.rows:,} records; read the keys of {found.searched:,} of "
        f"{found.segments:,} segments ({found.out_of_bounds:,} skipped by their bounds, "
        f"{found.filtered:,} by their filters), {requests:,} requests"
    )


def parse_key(text: str, form: str) -> bytes:
    """Return the bytes of a key. Raises UsageError: the text has another format."""
    try:
        match form:
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode(text, validate=True)
            case "integer":
                return struct.pack(">i", int(text))
            case "long":
                return struct.pack(">q", int(text))
    except (ValueError, binascii.Error, struct.error) as error:
        raise UsageError(f"--key is no {form}: {text!r} ({error})") from error
    return text.encode("utf-8", "surrogateescape")
