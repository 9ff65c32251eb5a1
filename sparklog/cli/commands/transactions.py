"""`sparklog transactions`: kafka-transactions, with its commands as options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    add_actions,
    check_needed,
    check_options,
    whole_number,
)
from sparklog.cli.console.hanging_transactions import (
    UNKNOWN_EPOCH_AS,
    abort_at,
    hanging_transactions,
    producers_of,
)
from sparklog.cli.output import Output
from sparklog.cli.target import add_broker_options, connected
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin


Row = dict[str, object]
MINUTE_MS = 60_000
HEADS = {
    "list": ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
    "describe": (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    ),
    "describe_producers": (
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"),
        *("LastTimestamp", "CurrentTransactionStartOffset"),
    ),
    "find_hanging": (
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch"),
        *("StartOffset", "LastTimestamp", "Duration(min)"),
    ),
}
_HELP = {
    "list": "print all transactional ids",
    "describe": "show the state of --transactional-id",
    "describe_producers": "show the producers that write to --topic and --partition",
    "find_hanging": "look for transactions whose coordinator will not end them",
    "abort": "abort a hanging transaction of --topic and --partition",
}
_ACTIONS_OF_OPTION = {
    "transactional_id": ("describe",),
    "topic": ("describe_producers", "find_hanging", "abort"),
    "partition": ("describe_producers", "find_hanging", "abort"),
    "broker_id": ("describe_producers", "find_hanging"),
    "max_transaction_timeout": ("find_hanging",),
    "start_offset": ("abort",),
    "producer_id": ("abort",),
    "producer_epoch": ("abort",),
    "coordinator_epoch": ("abort",),
}
_NEEDED = {
    "list": (),
    "describe": ("transactional_id",),
    "describe_producers": ("topic", "partition"),
    "find_hanging": (),
    "abort": ("topic", "partition"),
}
DEFAULT_TIMEOUT_MIN = 15


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_actions(parser, _HELP)
    parser.add_argument("--transactional-id", metavar="ID", help="with --describe")
    parser.add_argument("--topic", help="where the transaction writes")
    parser.add_argument("--partition", type=whole_number, metavar="N", help="with --topic")
    parser.add_argument(
        "--broker-id",
        type=whole_number,
        metavar="ID",
        help="with --describe-producers: ask this broker; with --find-hanging: look only there",
    )
    parser.add_argument(
        "--max-transaction-timeout",
        type=whole_number,
        metavar="MINUTES",
        help=f"with --find-hanging: older than this (default {DEFAULT_TIMEOUT_MIN})",
    )
    parser.add_argument(
        "--start-offset", type=whole_number, metavar="N", help="where the transaction begins"
    )
    parser.add_argument(
        "--producer-id", type=whole_number, metavar="N", help="instead of --start-offset"
    )
    parser.add_argument(
        "--producer-epoch", type=whole_number, metavar="N", help="with --producer-id"
    )
    parser.add_argument(
        "--coordinator-epoch", type=int, metavar="N", help="with --producer-id (default 0)"
    )
    add_broker_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Run the requested action."""
    check_options(args, _ACTIONS_OF_OPTION)
    check_needed(args, _NEEDED[args.action])
    with connected(args) as admin:
        if args.action == "abort":
            _abort(admin, args)
            return 0
        rows = _ROWS[args.action](admin, args)
    _print(HEADS[args.action], rows, output)
    return 0


def _listed(admin: Admin, _: Arguments) -> list[Row]:
    return [
        dict(
            zip(
                HEADS["list"],
                (t.transactional_id, t.coordinator_id, t.producer_id, t.state),
                strict=True,
            )
        )
        for t in admin.transactions.list()
    ]


def _described(admin: Admin, args: Arguments) -> list[Row]:
    name = args.transactional_id
    found = admin.transactions.describe([name])[name]
    if isinstance(found, SparklogError):
        raise found
    start_ms = found.start_time_ms
    age_ms = None if start_ms is None else SYSTEM_CLOCK.now_ms() - start_ms
    values = (
        *(found.coordinator_id, name, found.producer_id, found.producer_epoch, found.state),
        *(found.timeout_ms, start_ms, age_ms),
        ",".join(map(str, found.partitions)),
    )
    return [dict(zip(HEADS["describe"], values, strict=True))]


def _producers(admin: Admin, args: Arguments) -> list[Row]:
    tp = TopicPartition(args.topic, args.partition)
    rows: list[Row] = []
    for p in producers_of(admin, [tp], args.broker_id)[tp]:
        values = (
            *(p.producer_id, p.producer_epoch, p.coordinator_epoch, p.last_sequence),
            *(p.last_timestamp_ms, p.transaction_start_offset),
        )
        rows.append(dict(zip(HEADS["describe_producers"], values, strict=True)))
    return rows


def _hanging(admin: Admin, args: Arguments) -> list[Row]:
    if args.topic is None and args.broker_id is None:
        raise UsageError("--find-hanging needs --topic or --broker-id")
    if args.partition is not None and args.topic is None:
        raise UsageError("--partition goes with --topic")
    limit = args.max_transaction_timeout
    limit_ms = MINUTE_MS * (DEFAULT_TIMEOUT_MIN if limit is None else limit)
    found = hanging_transactions(
        admin, _searched(admin, args), older_than_ms=limit_ms, now_ms=SYSTEM_CLOCK.now_ms(),
        broker_id=args.broker_id,
    )  # fmt: skip
    rows: list[Row] = []
    for one in found:
        tp, p = one.partition, one.producer
        values = (
            *(tp.topic, tp.partition, p.producer_id, p.producer_epoch, p.coordinator_epoch),
            *(p.transaction_start_offset, p.last_timestamp_ms),
            one.age_ms // MINUTE_MS,
        )
        rows.append(dict(zip(HEADS["find_hanging"], values, strict=True)))
    return rows


def _searched(admin: Admin, args: Arguments) -> list[TopicPartition]:
    topics = {args.topic: admin.topic(args.topic)} if args.topic is not None else admin.topics()
    return [
        TopicPartition(name, number)
        for name, topic in sorted(topics.items())
        for number, state in enumerate(topic.partition_states)
        if args.partition in (None, number) and args.broker_id in (None, *state.replicas)
    ]


def _abort(admin: Admin, args: Arguments) -> None:
    tp = TopicPartition(args.topic, args.partition)
    if args.start_offset is not None:
        abort_at(admin, tp, args.start_offset)
        return
    if args.producer_id is None or args.producer_epoch is None:
        raise UsageError("--abort needs --start-offset, or --producer-id and --producer-epoch")
    epoch = max(UNKNOWN_EPOCH_AS, args.coordinator_epoch or 0)
    admin.transactions.abort(tp, args.producer_id, args.producer_epoch, epoch)


def _print(head: Sequence[str], rows: Sequence[Row], output: Output) -> None:
    table = [list(head), *([_word(value) for value in row.values()] for row in rows)]
    widths = [max(len(cells[n]) for cells in table) for n in range(len(head))]
    for cells in table:
        output.line("".join(f"{c:<{width}}\t" for c, width in zip(cells, widths, strict=True)))
    for row in rows:
        output.document({_json_name(name): value for name, value in row.items()})


def _word(value: object) -> str:
    return "None" if value is None else str(value)


def _json_name(name: str) -> str:
    return name[0].lower() + name[1:].replace("(min)", "Min")


_ROWS = {
    "list": _listed,
    "describe": _described,
    "describe_producers": _producers,
    "find_hanging": _hanging,
}
