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
from sparklog.cli.output import Output
from sparklog.cli.target import add_broker_options, connected
from sparklog.client.values import ActiveProducer, TransactionDescription
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import InvalidRequest, SparklogError
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
    for p in _producers_of(admin, [tp], args.broker_id)[tp]:
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
    now_ms = SYSTEM_CLOCK.now_ms()
    candidates = [
        (tp, producer)
        for tp, producers in _producers_of(admin, _searched(admin, args), args.broker_id).items()
        for producer in producers
        if producer.transaction_start_offset is not None
        and now_ms - producer.last_timestamp_ms > limit_ms
    ]
    expected = _expected(admin, sorted({p.producer_id for _, p in candidates}))
    rows: list[Row] = []
    for tp, p in candidates:
        if (p.producer_id, tp) in expected:
            continue
        values = (
            *(tp.topic, tp.partition, p.producer_id, p.producer_epoch, p.coordinator_epoch),
            *(p.transaction_start_offset, p.last_timestamp_ms),
            (now_ms - p.last_timestamp_ms) // MINUTE_MS,
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


def _expected(admin: Admin, producer_ids: Sequence[int]) -> set[tuple[int, TopicPartition]]:
    """Return the transactions that a coordinator knows, and will end."""
    if not producer_ids:
        return set()
    names = [t.transactional_id for t in admin.transactions.list(producer_ids)]
    return {
        (found.producer_id, tp)
        for found in admin.transactions.describe(names).values()
        if isinstance(found, TransactionDescription)
        for tp in found.partitions
    }


def _abort(admin: Admin, args: Arguments) -> None:
    tp = TopicPartition(args.topic, args.partition)
    if args.start_offset is not None:
        producers = _producers_of(admin, [tp], None)[tp]
        found = [p for p in producers if p.transaction_start_offset == args.start_offset]
        if not found:
            raise InvalidRequest(
                f"no open transaction begins there. partition={tp} start_offset={args.start_offset}"
            )
        producer_id, epoch = found[0].producer_id, found[0].producer_epoch
        coordinator_epoch = found[0].coordinator_epoch
    elif args.producer_id is not None and args.producer_epoch is not None:
        producer_id, epoch = args.producer_id, args.producer_epoch
        coordinator_epoch = args.coordinator_epoch or 0
    else:
        raise UsageError("--abort needs --start-offset, or --producer-id and --producer-epoch")
    # The coordinator epoch is unknown for a producer that never ended a transaction; none is below
    # 0.
    admin.transactions.abort(tp, producer_id, epoch, max(0, coordinator_epoch))


def _producers_of(
    admin: Admin, partitions: Sequence[TopicPartition], broker_id: int | None
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    found = {}
    for tp, producers in admin.transactions.producers(partitions, broker_id).items():
        if isinstance(producers, SparklogError):
            raise producers
        found[tp] = producers
    return found


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
