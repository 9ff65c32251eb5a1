"""`sparklog consume`: Kafka's console consumer, reading without a broker."""

from __future__ import annotations

from sparklog.cli.follow import EARLIEST, LATEST, Arrived, Follower, Start
from sparklog.cli.output import Output, say
from sparklog.cli.record_format import (
    JSON_COLUMNS,
    PROPERTIES,
    RecordFormat,
    record_documents,
    record_format,
)
from sparklog.cli.root import add_root_options, opened_log
from sparklog.cli.selection import matching_topics
from sparklog.cli.usage import Arguments, CommandParser, UsageError, key_values, whole_number
from sparklog.cluster.open import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import UnknownTopicOrPartition


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", help="the topic to read")
    which.add_argument("--include", metavar="REGEX", help="the topics to read")
    parser.add_argument(
        "--partition", type=whole_number, metavar="N", help="read this partition only"
    )
    parser.add_argument(
        "--offset", metavar="OFFSET", help="where to start: a number, earliest or latest"
    )
    parser.add_argument(
        "--from-beginning", action="store_true", help="start at the earliest record, not the latest"
    )
    parser.add_argument(
        "--max-messages", type=whole_number, metavar="N", help="stop after so many records"
    )
    parser.add_argument(
        "--timeout-ms", type=whole_number, metavar="MS", help="stop when none came for so long"
    )
    for option, name in (("--property", "property"), ("--formatter-property", "formatter")):
        parser.add_argument(
            option,
            dest=name,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"how to print a record: {', '.join(PROPERTIES)}",
        )
    add_root_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print records until told to stop."""
    start = _start(args)
    if args.property and args.formatter:
        raise UsageError("--property and --formatter-property say the same; use one")
    shape = record_format(key_values(args.property or args.formatter, "--formatter-property"))
    printer = _Printer(output, shape)
    with opened_log(args) as log:
        follower = Follower(log, printer.columns, say)
        for topic in _topics(log, args):
            follower.add_topic(topic, start, args.partition)
        try:
            _consume(follower, printer, args.max_messages, args.timeout_ms)
        finally:
            printer.finish()
    return 0


class _Printer:
    """Prints records and counts them."""

    def __init__(self, output: Output, shape: RecordFormat) -> None:
        self._output = output
        self._shape = shape
        self.columns = JSON_COLUMNS if output.as_json else shape.columns
        self.records = 0

    def put(self, arrived: Arrived) -> None:
        tp, batch = arrived.topic_partition, arrived.batch
        if self._output.as_json:
            for document in record_documents(tp, batch):
                self._output.document(document)
        else:
            self._output.raw(self._shape.lines(tp, batch))
        self.records += batch.num_rows

    def flush(self) -> None:
        self._output.flush()

    def finish(self) -> None:
        say(f"Processed a total of {self.records} messages")


def _consume(
    follower: Follower,
    printer: _Printer,
    records_max: int | None,
    timeout_ms: int | None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    last_s = clock.monotonic_s()
    while records_max is None or printer.records < records_max:
        before = printer.records
        for arrived in follower.ready(None if records_max is None else records_max - before):
            printer.put(arrived)
        if printer.records > before:
            last_s = clock.monotonic_s()
            continue
        printer.flush()
        left_s = None if timeout_ms is None else timeout_ms / 1000 - (clock.monotonic_s() - last_s)
        if left_s is not None and left_s <= 0:
            return
        follower.wait(left_s)


def _start(args: Arguments) -> Start:
    if args.partition is not None and args.topic is None:
        raise UsageError("--partition needs --topic")
    if args.offset is None:
        return EARLIEST if args.from_beginning else LATEST
    if args.from_beginning:
        raise UsageError("--from-beginning and --offset contradict each other")
    if args.partition is None:
        raise UsageError("--offset needs --partition")
    match args.offset.lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case text if text.isascii() and text.isdigit():
            return int(text)
    raise UsageError(f"--offset takes earliest, latest or a number from 0, not {args.offset!r}")


def _topics(log: Log, args: Arguments) -> list[str]:
    if args.topic is not None:
        return [args.topic]
    names = matching_topics(log.topics(), args.include)
    if not names:
        raise UnknownTopicOrPartition(
            f"no topic matches; `sparklog topics --list` lists them. include={args.include}"
        )
    return names
