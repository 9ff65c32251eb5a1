"""`sparklog leader-election`: kafka-leader-election."""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser, UsageError, whole_number
from sparklog.cli.console.partition_file import entries_of, named_partition, once_each, text_of
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_broker_options, connected
from sparklog.client.values import Election
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition

_EXAMPLE = '{"partitions": [{"topic": "foo", "partition": 1}]}'


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--election-type",
        required=True,
        type=str.lower,
        choices=[election.value for election in Election],
        help="preferred: the first replica leads again; unclean: any live one, records may be lost",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--all-topic-partitions", action="store_true", help="elect for all partitions of all topics"
    )
    which.add_argument("--topic", help="elect for one partition of this topic")
    which.add_argument(
        "--path-to-json-file", metavar="FILE", help=f"of those in a file such as {_EXAMPLE}"
    )
    parser.add_argument("--partition", type=whole_number, metavar="N", help="with --topic")
    add_broker_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Elect leaders, and print the result per partition."""
    election = Election(args.election_type)
    wanted = _partitions(args)
    with connected(args) as admin:
        found = admin.elect_leaders(election, wanted)
    failures = 0
    kind = election.value.upper()
    elected = [str(tp) for tp, outcome in sorted(found.items()) if outcome is True]
    valid = [str(tp) for tp, outcome in sorted(found.items()) if outcome is False]
    if elected:
        output.line(
            f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}"
        )
    if valid:
        output.line(f"Valid replica already elected for partitions {', '.join(valid)}")
    for tp, outcome in sorted(found.items(), key=lambda item: item[0]):
        document = {"topic": tp.topic, "partition": tp.partition}
        if isinstance(outcome, SparklogError):
            failures += 1
            output.line(f"Error completing leader election ({kind}) for partition: {tp}: {outcome}")
            output.document({**document, "error": str(outcome)})
        else:
            output.document({**document, "elected": outcome})
    if failures:
        output.flush()
        say(f"error: leaders of {failures} of {len(found)} partitions could not be elected")
    return 1 if failures else 0


def _partitions(args: Arguments) -> list[TopicPartition] | None:
    if args.topic is None and args.partition is not None:
        raise UsageError("--partition goes with --topic")
    if args.all_topic_partitions:
        return None
    if args.topic is not None:
        if args.partition is None:
            raise UsageError("--topic needs --partition")
        return [TopicPartition(args.topic, args.partition)]
    entries = entries_of(text_of(args.path_to_json_file), _EXAMPLE)
    partitions = [named_partition(entry, _EXAMPLE) for entry in entries]
    once_each(partitions)
    return partitions
