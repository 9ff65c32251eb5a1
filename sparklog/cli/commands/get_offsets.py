"""`sparklog get-offsets`: kafka-get-offsets, one `topic:partition:offset` a line."""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.console.topic_filter import (
    described,
    matching_topics,
    partition_filter,
    partition_numbers,
)
from sparklog.cli.output import Output
from sparklog.cli.root_log import RootLog
from sparklog.cli.target import AdminTarget, add_log_options, administered, warn_if_led
from sparklog.client.values import EARLIEST, LATEST, MAX_TIMESTAMP, ListedOffset
from sparklog.core.errors import SparklogError, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument("--topic", help="topics, a regular expression; all without it")
    parser.add_argument("--partitions", metavar="N,...", help="partitions; all without it")
    parser.add_argument(
        "--topic-partitions", metavar="PATTERNS", help="such as t1:1,t2:0-3,t3,t4:5-,t5:-3"
    )
    parser.add_argument(
        "--time",
        default="latest",
        metavar="TIME",
        help="latest or -1 (default), earliest or -2, max-timestamp or -3, or ms since 1970; "
        "a time means the first record at or after it",
    )
    parser.add_argument(
        "--exclude-internal-topics", action="store_true", help="leave out internal topics"
    )
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Look up one offset per partition; continue after a partition that fails."""
    at = _time(args.time)
    with administered(args) as log:
        chosen = _chosen(log, args)
        if isinstance(log, RootLog):
            topics = log.topics()
            for name in sorted({tp.topic for tp in chosen}):
                warn_if_led(topics[name])
        found = log.offsets(dict.fromkeys(chosen, at))
    failure: SparklogError | None = None
    for tp in chosen:
        answer = found[tp]
        if isinstance(answer, SparklogError):
            failure = failure or answer
        else:
            _print(tp, answer, output)
    if failure is not None:
        raise failure
    return 0


def _chosen(log: AdminTarget, args: Arguments) -> list[TopicPartition]:
    if args.topic_partitions is not None and (args.topic or args.partitions):
        raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
    topics = log.topics()
    exclude_internal = args.exclude_internal_topics
    if args.topic_partitions is not None:
        matches = partition_filter(args.topic_partitions)
        names = matching_topics(topics, None, exclude_internal=exclude_internal)
    else:
        wanted = partition_numbers(args.partitions) if args.partitions else None
        names = matching_topics(topics, args.topic, exclude_internal=exclude_internal)

        def matches(_: str, partition: int) -> bool:
            return wanted is None or partition in wanted

    chosen = [
        TopicPartition(name, partition)
        for name in names
        for partition in range(topics[name].partitions)
        if matches(name, partition)
    ]
    if not chosen:
        asked = described([args.topic, args.partitions, args.topic_partitions])
        raise UnknownTopicOrPartition(
            "no topic and partition matches; `sparklog topics --describe` shows what there is. "
            f"wanted={asked}"
        )
    return chosen


def _time(time: str) -> int:
    match time:
        case "latest" | "-1":
            return LATEST
        case "earliest" | "-2":
            return EARLIEST
        case "max-timestamp" | "-3":
            return MAX_TIMESTAMP
    if not (time.isascii() and time.isdigit()):
        raise UsageError(
            f"malformed time {time!r}; use -1 or latest, -2 or earliest, -3 or max-timestamp, or "
            "milliseconds since 1970"
        )
    return int(time)


def _print(tp: TopicPartition, answer: ListedOffset, output: Output) -> None:
    if answer.offset >= 0:
        output.line(f"{tp.topic}:{tp.partition}:{answer.offset}")
    output.document(
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": answer.offset,
            "timestamp": answer.timestamp_ms,
        }
    )
