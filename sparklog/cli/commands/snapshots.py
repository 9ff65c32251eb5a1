"""`sparklog snapshots`: keeps the present contents of topics under a name, until dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sparklog.cli.arguments import Arguments, CommandParser, check_options, set_action, whole_number
from sparklog.cli.console.topic_filter import matching_topics
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_client_options, add_root_options, client_settings_of, opened_log
from sparklog.client.values import LATEST
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.named_snapshots import (
    NamedSnapshot,
    PinnedPartition,
    create_snapshot,
    drop_snapshot,
    read_snapshot,
    snapshot_records,
)
from sparklog.core.errors import InvalidRequest, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.log.effects import run as run_protocol

PATIENCE_S = 60
_ACTIONS_OF_OPTION = dict.fromkeys(("topic", "flushed_only", "timeout"), ("create",))

_EPILOG = """
A snapshot keeps the objects that it names: retention, DeleteRecords, compaction and the deletion of
topics go on, and it is read as before (`sparklog consume --snapshot NAME`, Spark's option
`snapshot`). The space comes back with the retention after --drop.

Of partitions that brokers lead, it has what the leaders have flushed. --create asks them where the
records end and waits until that much is flushed, which takes up to `flush.ms`.
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--create", metavar="NAME", help="make a snapshot")
    actions.add_argument("--list", action="store_true", help="list the snapshots")
    actions.add_argument("--describe", metavar="NAME", help="show the partitions of a snapshot")
    actions.add_argument("--drop", metavar="NAME", help="forget a snapshot")
    parser.add_argument(
        "--topic", action="append", default=[],
        help="with --create: only this topic; may be given more than once (default: all but "
        "Kafka's own)",
    )  # fmt: skip
    parser.add_argument(
        "--flushed-only",
        action="store_true",
        help="with --create: ask no brokers, take what is in the storage now",
    )
    parser.add_argument(
        "--timeout", type=whole_number, metavar="SECONDS",
        help=f"with --create: how long brokers may take to flush (default: {PATIENCE_S})",
    )  # fmt: skip
    add_root_options(parser)
    add_client_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Run the requested action."""
    set_action(args, ("create", "list", "describe", "drop"))
    check_options(args, _ACTIONS_OF_OPTION)
    with opened_log(args) as log:
        if args.action == "create":
            _create(log, args, output)
        elif args.action == "describe":
            _describe(read_snapshot(log.store, args.describe), output)
        elif args.action == "drop":
            drop_snapshot(log.store, args.drop)
            output.put(f"Dropped snapshot {args.drop}.", {"dropped": args.drop})
        else:
            _list(log, output)
    return 0


def _create(log: Log, args: Arguments, output: Output) -> None:
    image = log.refresh()
    topics = args.topic or matching_topics(image.topics, None, exclude_internal=True)
    if not topics:
        raise InvalidRequest("there is no topic to make a snapshot of")
    flushed: Mapping[TopicPartition, int] = {}
    if not args.flushed_only:
        flushed = _ends_of_led(image, topics, args)
    patience_s = PATIENCE_S if args.timeout is None else args.timeout
    made = create_snapshot(log, args.create, topics, flushed=flushed, patience_s=patience_s)
    output.put(f"Created snapshot {_line(made)}", _document(made))


def _ends_of_led(
    image: MetadataImage, topics: Sequence[str], args: Arguments
) -> dict[TopicPartition, int]:
    """Return the ends of the partitions that have leaders, from the brokers.

    Raises:
        Unavailable: the brokers do not return them.
    """
    led = [
        TopicPartition(name, number)
        for name in topics
        if name in image.topics
        for number, state in enumerate(image.topics[name].partition_states)
        if state.leader >= 0
    ]
    if not led:
        return {}
    # Seldom needed, and slow to import.
    from sparklog.client.admin import Admin  # noqa: PLC0415
    from sparklog.client.security import SecuritySettings  # noqa: PLC0415
    from sparklog.spark.access.leaders import registered  # noqa: PLC0415

    settings = client_settings_of(args)
    brokers = registered(image, SecuritySettings(settings))
    try:
        with Admin(brokers, settings=settings) as admin:
            found = admin.offsets(dict.fromkeys(led, LATEST))
    except SparklogError as error:
        raise Unavailable(_silent(str(error))) from error
    ends = {}
    for place, answer in found.items():
        if isinstance(answer, SparklogError):
            raise Unavailable(_silent(f"{place}: {answer}"))
        ends[place] = answer.offset
    return ends


def _silent(why: str) -> str:
    return (
        "brokers lead partitions and do not say where their records end; try again, or take what "
        f"is flushed with --flushed-only: {why}"
    )


def _list(log: Log, output: Output) -> None:
    records = run_protocol(snapshot_records(), log.store)
    for snapshot in records.snapshots:
        output.put(_line(snapshot), _document(snapshot))
    for key in records.damaged:
        say(
            f"warning: a snapshot is damaged; drop it, and retention can delete again. object={key}"
        )


def _describe(snapshot: NamedSnapshot, output: Output) -> None:
    output.line(_line(snapshot))
    for one in snapshot.partitions:
        output.put(
            f"\tTopic: {one.topic}\tPartition: {one.partition}\t"
            f"Offsets: {one.log_start_offset} to {one.end_offset}\tRecords: {one.rows}\t"
            f"Objects: {one.objects}\tBytes: {one.size_bytes}",
            _partition_document(one),
        )


def _line(snapshot: NamedSnapshot) -> str:
    parts = snapshot.partitions
    return (
        f"{snapshot.name}\tCreated: {_time(snapshot.timestamp_ms)}\t"
        f"Topics: {','.join(snapshot.topics)}\tPartitions: {len(parts)}\t"
        f"Records: {sum(p.rows for p in parts)}\tBytes: {sum(p.size_bytes for p in parts)}"
    )


def _document(snapshot: NamedSnapshot) -> dict[str, Any]:
    parts = snapshot.partitions
    return {
        "name": snapshot.name,
        "timestamp": snapshot.timestamp_ms,
        "topics": snapshot.topics,
        "partitions": len(parts),
        "records": sum(p.rows for p in parts),
        "bytes": sum(p.size_bytes for p in parts),
    }


def _partition_document(one: PinnedPartition) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "topicId": one.topic_id,
        "partition": one.partition,
        "logStartOffset": one.log_start_offset,
        "endOffset": one.end_offset,
        "records": one.rows,
        "objects": one.objects,
        "bytes": one.size_bytes,
    }


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
