"""`sparklog consume`: Kafka's console consumer, through brokers or straight from the storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from sparklog.cli.arguments import Arguments, CommandParser, UsageError, key_values, whole_number
from sparklog.cli.console.record_format import (
    JSON_COLUMNS,
    PROPERTIES,
    RecordFormat,
    record_documents,
    record_format,
)
from sparklog.cli.console.record_sources import (
    LogFollower,
    RecordSource,
    SnapshotSource,
    Start,
)
from sparklog.cli.console.topic_filter import matching_topics
from sparklog.cli.output import Output, say
from sparklog.cli.schemas import RecordDecoding, add_format_options, decoded_records
from sparklog.cli.target import (
    add_log_options,
    bootstrap_of,
    client_settings_of,
    connected,
    opened_log,
    warn_if_led,
)
from sparklog.client.values import EARLIEST, LATEST
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import InvalidRequest, UnknownTopicOrPartition
from sparklog.log.segment.unread_batches import Unread
from sparklog.sql.arrived import SourceRecord

READ_THREADS = 8
SETTLE_EVERY_S = 5.0
"""Interval between offset commits of a group while records keep coming, as in Kafka."""


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
    parser.add_argument(
        "--snapshot", metavar="NAME", help="print what this snapshot has, from the start, and stop"
    )
    parser.add_argument(
        "--group", metavar="ID", help="share the partitions with the other members of this group"
    )
    parser.add_argument(
        "--isolation-level",
        choices=["read_committed", "read_uncommitted"],
        default="read_uncommitted",
        help="whether to print records of transactions that are open or aborted "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--consumer-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of librdkafka's consumer",
    )
    parser.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="of a root: pass over batches that nobody can read, with a warning",
    )
    add_format_options(parser)
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print records until the end, a limit or an interrupt."""
    start = _start(args)
    _check_mode(args)
    if args.property and args.formatter:
        raise UsageError("--property and --formatter-property say the same; use one")
    shape = record_format(key_values(args.property or args.formatter, "--formatter-property"))
    with decoded_records(args) as decoding:
        printer = _Printer(output, shape, decoding)
        with _arrivals(args, start, printer) as arrivals:
            try:
                _consume(arrivals, printer, args.max_messages, _timeout_ms(args))
            finally:
                printer.finish()
    return 0


@contextmanager
def _arrivals(args: Arguments, start: Start, printer: _Printer) -> Iterator[RecordSource]:
    """Open the source that the options name, at their offsets."""
    if args.snapshot is not None:
        with opened_log(args) as log, ThreadPoolExecutor(READ_THREADS) as pool:
            pinned = SnapshotSource(
                log.store,
                args.snapshot,
                printer.columns,
                pool,
                unread=_unread(args),
                committed_only=_committed_only(args),
            )
            for topic in _topics(args, lambda: pinned.topics):
                pinned.add_topic(topic, start, args.partition)
            yield pinned
        return
    bootstrap = bootstrap_of(args)
    if bootstrap is None:
        with opened_log(args) as log:
            follower = LogFollower(
                log,
                printer.columns,
                say,
                unread=_unread(args),
                committed_only=_committed_only(args),
            )
            for topic in _topics(args, log.topics):
                warn_if_led(log.topic(topic))
                follower.add_topic(topic, start, args.partition)
            yield follower
        return
    from sparklog.cli.console.broker_source import BrokerSource  # noqa: PLC0415 - a root needs none
    from sparklog.client.consumer import Consumer  # noqa: PLC0415 - likewise

    settings = {"isolation.level": args.isolation_level}
    if args.group is not None:
        settings["auto.offset.reset"] = "earliest" if args.from_beginning else "latest"
    settings |= client_settings_of(args)
    settings |= key_values(args.consumer_property, "--consumer-property")
    with (
        connected(args) as admin,
        Consumer(bootstrap, group=args.group, settings=settings) as consumer,
    ):
        arrivals = BrokerSource(consumer, printer.columns)
        topics = _topics(args, admin.topic_names)
        if args.group is None:
            arrivals.assign(admin, topics, start, args.partition)
        elif not admin.offers_groups():
            raise InvalidRequest(
                "these brokers coordinate no consumer groups; leave out --group to read all "
                f"partitions. group={args.group}"
            )
        else:
            arrivals.subscribe(topics)
        yield arrivals


def _check_mode(args: Arguments) -> None:
    if args.group is not None and args.partition is not None:
        raise UsageError("--group hands out partitions by itself; leave out --partition")
    if args.snapshot is not None and bootstrap_of(args) is not None:
        raise UsageError("a snapshot is read from the storage; give --root, not --bootstrap-server")
    if bootstrap_of(args) is None:
        for option in ("group", "consumer_property"):
            if getattr(args, option):
                raise UsageError(f"--{option.replace('_', '-')} needs --bootstrap-server")
    elif args.skip_unreadable:
        raise UsageError("--skip-unreadable needs --root: brokers send batches as they came")


def _unread(args: Arguments) -> Unread:
    return Unread.PASS_OVER if args.skip_unreadable else Unread.FAIL


def _committed_only(args: Arguments) -> bool:
    return str(args.isolation_level) == "read_committed"


def _timeout_ms(args: Arguments) -> int | None:
    """Return the time to wait for more records; a snapshot never has more."""
    timeout_ms: int | None = 0 if args.snapshot is not None else args.timeout_ms
    return timeout_ms


class _Printer:
    """Prints records and counts them."""

    def __init__(
        self, output: Output, shape: RecordFormat, decoding: RecordDecoding | None
    ) -> None:
        self._output = output
        self._shape = shape
        self._decoding = decoding
        self.columns = JSON_COLUMNS if output.as_json else shape.columns
        if decoding is not None:
            self.columns = decoding.columns(self.columns)
        self.records = 0

    def put(self, arrived: SourceRecord) -> None:
        tp, batch = arrived.topic_partition, arrived.batch
        if self._decoding is not None:
            batch = self._decoding.decoded(tp, batch)
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
        if self._decoding is not None and self._decoding.failed:
            say(f"note: keys or values that did not decode: {self._decoding.failed}")


def _consume(
    arrivals: RecordSource,
    printer: _Printer,
    records_max: int | None,
    timeout_ms: int | None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    last_s = settled_s = clock.monotonic_s()
    while records_max is None or printer.records < records_max:
        before = printer.records
        for arrived in arrivals.ready(None if records_max is None else records_max - before):
            printer.put(arrived)
        now_s = clock.monotonic_s()
        if printer.records == before or now_s - settled_s >= SETTLE_EVERY_S:
            printer.flush()
            arrivals.settle()
            settled_s = now_s
        if printer.records > before:
            last_s = now_s
            continue
        left_s = None if timeout_ms is None else timeout_ms / 1000 - (clock.monotonic_s() - last_s)
        if left_s is not None and left_s <= 0:
            return
        arrivals.wait(left_s)
    printer.flush()
    arrivals.settle()


def _start(args: Arguments) -> Start:
    if args.partition is not None and args.topic is None:
        raise UsageError("--partition needs --topic")
    if args.offset is None:
        return EARLIEST if args.from_beginning or args.snapshot is not None else LATEST
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


def _topics(args: Arguments, known: Callable[[], Iterable[str]]) -> list[str]:
    if args.topic is not None:
        return [args.topic]
    names = matching_topics(known(), args.include)
    if not names:
        raise UnknownTopicOrPartition(
            f"no topic matches; `sparklog topics --list` lists them. include={args.include}"
        )
    return names
