"""`sparklog get`: the newest value of a key, as a table of keys has it."""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser, whole_number
from sparklog.cli.commands.find import KEY_FORMATS, parse_key
from sparklog.cli.console.record_format import record_documents
from sparklog.cli.output import Output, say
from sparklog.cli.query_target import add_query_options, opened_topics
from sparklog.cli.target import add_client_options, add_root_options
from sparklog.sql.key_state import newest_record

ABSENT = 1
"""The exit code when the key has no value."""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", metavar="TOPIC", help="topic to look in")
    parser.add_argument("key", metavar="KEY", help="the key, whole")
    parser.add_argument(
        "--key-format",
        choices=KEY_FORMATS,
        default="string",
        help="how the key is written here, as for find (default string)",
    )
    parser.add_argument(
        "--partition",
        type=whole_number,
        metavar="N",
        help="look here (default: where Kafka's producers put the key)",
    )
    add_query_options(parser)
    add_root_options(parser)
    add_client_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print the value; the exit code is 1 if there is none."""
    key = parse_key(args.key, args.key_format)
    with opened_topics(args) as topics:
        found = newest_record(topics, args.topic, key, args.partition)
    if found is None:
        where = "in the partition where Kafka's producers put it; --partition N looks elsewhere"
        if args.partition is not None:
            where = f"in partition {args.partition}"
        say(f"no record has the key {where}. topic={args.topic}")
        return ABSENT
    place, record = found
    value = record.column("value")[0].as_py()
    if output.as_json:
        for document in record_documents(place, record):
            output.document(document)
    elif value is not None:
        output.line(value)
    if value is None:
        say(f"the newest record of the key is a tombstone. topic={args.topic}")
        return ABSENT
    return 0
