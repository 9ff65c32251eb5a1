"""`sparklog groups`: kafka-consumer-groups and kafka-share-groups, plus lag in time.

`sparklog groups --describe` prints offsets and lag, members, or state of groups. The command finds
out by itself which of the groups of `--group` are share groups: `share_groups` handles those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparklog.cli.arguments import Arguments
from sparklog.cli.console.group_tables import (
    GroupProgressRow,
    member_lines,
    progress_lines,
    state_document,
    state_lines,
)
from sparklog.cli.output import Output, say
from sparklog.cli.target import bootstrap_of, client_settings_of
from sparklog.client.groups import oldest_unread_ms
from sparklog.client.values import (
    CLASSIC,
    CONSUMER,
    LATEST,
    SHARE,
    Committed,
    GroupDescription,
    GroupMember,
    ListedOffset,
)
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import GroupIdNotFound, SparklogError
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
from sparklog.cli.arguments import (
    CommandParser,
    UsageError,
    add_actions,
    check_options,
    counting_number,
    is_given,
    spelled,
    whole_number,
)
from sparklog.cli.commands.group_reset import WHERE, datetime_ms, duration_ms, reset
from sparklog.cli.commands.share_groups import (
    ShareGroupsFound,
    delete_share_offsets,
    describe_shares,
    shares_among,
)
from sparklog.cli.console.group_filter import parse_topic
from sparklog.cli.console.group_tables import deletion_lines, listing_lines
from sparklog.cli.target import add_broker_options, connected
from sparklog.coordinator.consumer.topics import check_pattern
from sparklog.core.errors import InvalidRegularExpression, UnknownTopicOrPartition

LAG_TIMEOUT_S = 10.0
_REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}


def describe(admin: Admin, group_ids: Sequence[str], args: Arguments, output: Output) -> int:
    """Describe consumer groups; continue after one that fails."""
    failed = 0
    for group_id, group in sorted(admin.groups.describe(group_ids).items()):
        if isinstance(group, SparklogError):
            failed += 1
            _complain(output, group_id, group)
            continue
        if args.state is not None:
            _warn(group)
            _print(output, state_lines(group, verbose=args.verbose))
            output.document(state_document(group))
        elif args.members:
            _warn(group)
            _print(output, member_lines(group, verbose=args.verbose))
            for member in group.members:
                output.document(_member_document(group, member))
        else:
            _describe_offsets(admin, group, args, output)
    return 1 if failed else 0


def _describe_offsets(
    admin: Admin, group: GroupDescription, args: Arguments, output: Output
) -> None:
    committed = admin.groups.offsets([group.group_id])[group.group_id]
    if isinstance(committed, SparklogError):
        raise committed
    rows = _progress(admin, group, committed)
    if args.lag_time:
        rows = _aged(args, rows)
    _warn(group)
    if rows:
        _print(output, progress_lines(rows, verbose=args.verbose, in_time=args.lag_time))
    for row in rows:
        output.document(_progress_document(row, in_time=args.lag_time))


def _progress(
    admin: Admin, group: GroupDescription, committed: Committed
) -> list[GroupProgressRow]:
    """Return a row per partition: those with a member first, by number of partitions."""
    readers: list[tuple[GroupMember | None, Sequence[TopicPartition]]] = [
        (member, member.assignment)
        for member in sorted(group.members, key=lambda member: -len(member.assignment))
    ]
    read = {tp for _, partitions in readers for tp in partitions}
    readers.append((None, [tp for tp in committed if tp not in read]))
    ends = admin.offsets(dict.fromkeys([*read, *committed], LATEST))
    rows = []
    for member, partitions in readers:
        for tp in sorted(partitions):
            end, at = ends[tp], committed.get(tp)
            rows.append(
                GroupProgressRow(
                    group.group_id,
                    tp,
                    at.offset if at else None,
                    at.leader_epoch if at and at.leader_epoch >= 0 else None,
                    end.offset if isinstance(end, ListedOffset) else None,
                    member,
                )
            )
    return rows


def _aged(args: Arguments, rows: Sequence[GroupProgressRow]) -> list[GroupProgressRow]:
    behind = {r.topic_partition: r.offset for r in rows if r.offset is not None and r.lag}
    found = oldest_unread_ms(
        bootstrap_of(args) or "",
        behind,
        SYSTEM_CLOCK,
        timeout_s=LAG_TIMEOUT_S,
        settings=client_settings_of(args),
    )
    now_ms = SYSTEM_CLOCK.now_ms()

    def age(row: GroupProgressRow) -> int | None:
        if row.lag == 0:
            return 0
        oldest_ms = found.get(row.topic_partition)
        return None if oldest_ms is None else max(0, now_ms - oldest_ms)

    return [replace(row, lag_ms=age(row)) for row in rows]


def _warn(group: GroupDescription) -> None:
    """Print a note about a group's state, as Kafka's tool does."""
    if group.state == "Empty":
        say(f"Consumer group '{group.group_id}' has no active members.")
    elif group.state in _REBALANCING:
        say(f"Warning: Consumer group '{group.group_id}' is rebalancing.")


def _complain(output: Output, group_id: str, error: SparklogError) -> None:
    output.flush()
    if isinstance(error, GroupIdNotFound):
        say(f"error: Consumer group '{group_id}' does not exist.")
    else:
        say(f"error: {error}")


def _print(output: Output, lines: Sequence[str]) -> None:
    for line in lines:
        output.line(line)


def _progress_document(row: GroupProgressRow, *, in_time: bool) -> dict[str, object]:
    who = row.member
    return {
        "group": row.group_id,
        "topic": row.topic_partition.topic,
        "partition": row.topic_partition.partition,
        "leaderEpoch": row.leader_epoch,
        "offset": row.offset,
        "logEndOffset": row.log_end_offset,
        "lag": row.lag,
        **({"lagMs": row.lag_ms} if in_time else {}),
        "consumerId": who.member_id if who else None,
        "host": who.host if who else None,
        "clientId": who.client_id if who else None,
    }


def _member_document(group: GroupDescription, member: GroupMember) -> dict[str, object]:
    return {
        "group": group.group_id,
        "consumerId": member.member_id,
        "groupInstanceId": member.instance_id,
        "host": member.host,
        "clientId": member.client_id,
        "epoch": member.epoch,
        "targetEpoch": group.assignment_epoch,
        "assignment": [[tp.topic, tp.partition] for tp in sorted(member.assignment)],
        "targetAssignment": [[tp.topic, tp.partition] for tp in sorted(member.target)],
        "upgraded": member.upgraded,
    }


STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
)
TYPES = (CLASSIC, CONSUMER, SHARE)

_ACTIONS = {
    "list": "print the names of all groups; with --state or --type a table",
    "describe": "show what groups have read and their lag; or --members, or --state",
    "reset_offsets": "move the offsets of groups that have no members",
    "delete_offsets": "forget what a group committed of --topic",
    "delete": "delete groups without members, with their offsets",
}
_ACTIONS_OF_OPTION = {
    "group": ("describe", "reset_offsets", "delete_offsets", "delete"),
    "all_groups": ("describe", "reset_offsets", "delete"),
    "topic": ("reset_offsets", "delete_offsets"),
    "all_topics": ("reset_offsets",),
    "state": ("list", "describe"),
    "type": ("list", "describe", "reset_offsets", "delete"),
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "lag_time": ("describe",),
    "dry_run": ("reset_offsets",),
    "execute": ("reset_offsets",),
    "export": ("reset_offsets",),
}


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_actions(parser, _ACTIONS).add_argument(
        "--validate-regex", metavar="REGEX", help="say whether brokers take a pattern of topics"
    )
    parser.add_argument("--group", action="append", help="a group; may be given several times")
    parser.add_argument(
        "--all-groups",
        action="store_true",
        help="all consumer groups; with --type those of some types, such as share",
    )
    parser.add_argument(
        "--topic", action="append", help="a topic, or topic:0,1; may be given several times"
    )
    parser.add_argument(
        "--all-topics", action="store_true", help="everything the group has committed"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="with --describe: offsets (default)")
    what.add_argument("--members", action="store_true", help="with --describe: who is in the group")
    what.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATES",
        help="with --describe: the group's state; with --list: states, or only groups in those",
    )
    parser.add_argument(
        "--type",
        nargs="?",
        const="",
        help="with --list: types, or only groups of those; with --all-groups: all of those; "
        "with --reset-offsets: the type of new groups",
    )
    parser.add_argument("--verbose", action="store_true", help="with --describe: more columns")
    parser.add_argument(
        "--lag-time",
        action="store_true",
        help="with --describe: also how old the oldest record is that is not read; reads it",
    )
    _add_reset_options(parser)
    parser.add_argument(
        "--timeout",
        type=counting_number,
        default=30_000,
        metavar="MS",
        help="how long to wait for brokers (default %(default)s)",
    )
    add_broker_options(parser)


def _add_reset_options(parser: CommandParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--to-earliest", action="store_true", help="to the start of the log")
    where.add_argument("--to-latest", action="store_true", help="to the end of the log")
    where.add_argument(
        "--to-current", action="store_true", help="to where the group is, moved into the log"
    )
    where.add_argument("--to-offset", type=whole_number, metavar="N", help="to this offset")
    where.add_argument("--shift-by", type=int, metavar="N", help="forward, or back when negative")
    where.add_argument(
        "--to-datetime", type=datetime_ms, metavar="TIME", help="such as 2026-01-31T23:59:59.000"
    )
    where.add_argument(
        "--by-duration", type=duration_ms, metavar="PnDTnHnMnS", help="to so long before now"
    )
    where.add_argument("--from-file", metavar="FILE", help="to what a CSV file of --export says")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--dry-run", action="store_true", help="only show what would be done (default)"
    )
    how.add_argument("--execute", action="store_true", help="do it")
    parser.add_argument(
        "--export",
        action="store_true",
        help="print the new offsets as CSV, which --from-file takes",
    )


def run(args: Arguments, output: Output) -> int:
    """Run the requested action."""
    if args.validate_regex is not None:
        return _validate(args.validate_regex, output)
    _check(args)
    with connected(args, args.timeout / 1000) as admin:
        if args.action == "list":
            return _list(admin, args, output)
        group_ids: Sequence[str] = args.group or ()
        types = _words(args.type, TYPES, "--type")
        if args.all_groups:
            group_ids = [group.group_id for group in admin.groups.list(types=types)]
        if args.action == "reset_offsets" and types == [SHARE]:
            return reset(admin, admin.share_groups, group_ids, args, output)
        shares = shares_among(admin, group_ids)
        others = [group_id for group_id in group_ids if group_id not in shares]
        if args.action == "delete_offsets":
            delete = delete_share_offsets if shares else _delete_offsets
            return delete(admin, args.group[0], args.topic, output)
        failed = 0
        if others or not shares:
            failed = _run(admin, others, args, output)
        if shares:
            failed |= _run_shares(admin, shares, args, output)
        return failed


def _run(admin: Admin, group_ids: Sequence[str], args: Arguments, output: Output) -> int:
    if args.action == "describe":
        return describe(admin, group_ids, args, output)
    if args.action == "delete":
        return _delete(admin, group_ids, "consumer", output)
    return reset(admin, admin.groups, group_ids, args, output)


def _run_shares(admin: Admin, shares: ShareGroupsFound, args: Arguments, output: Output) -> int:
    if args.action == "describe":
        return describe_shares(admin, shares, args, output)
    if args.action == "delete":
        return _delete(admin, list(shares), "share", output)
    return reset(admin, admin.share_groups, list(shares), args, output)


def _validate(pattern: str, output: Output) -> int:
    try:
        check_pattern(pattern)
        why = None
    except InvalidRegularExpression as error:
        why = str(error)
    words = "valid" if why is None else f"invalid: {why}"
    output.line(f"The regular expression `{pattern}` is {words}.")
    output.document({"pattern": pattern, "valid": why is None} | ({"error": why} if why else {}))
    return 0 if why is None else 1


def _check(args: Arguments) -> None:
    check_options(args, _ACTIONS_OF_OPTION)
    given = [option for option in WHERE if is_given(args, option)]
    if given and args.action != "reset_offsets":
        raise UsageError(f"{spelled(given[0])} goes with --reset-offsets")
    if args.action == "reset_offsets" and not given:
        choice = ", ".join(map(spelled, WHERE))
        raise UsageError(f"--reset-offsets needs one of {choice}")
    if args.action == "describe" and args.state:
        raise UsageError("--state takes no value with --describe")
    if args.action == "delete_offsets" and (len(args.group or ()) != 1 or not args.topic):
        raise UsageError("--delete-offsets needs one --group and a --topic")
    if args.action not in ("list", "delete_offsets") and bool(args.group) == args.all_groups:
        raise UsageError(f"{spelled(args.action)} needs either --group or --all-groups")
    if args.type is not None and args.action in ("describe", "delete") and not args.all_groups:
        raise UsageError("--type goes with --list, --all-groups or --reset-offsets")
    if args.topic and args.all_topics:
        raise UsageError("--topic does not go with --all-topics")


def _list(admin: Admin, args: Arguments, output: Output) -> int:
    states = _words(args.state, STATES, "--state")
    groups = admin.groups.list(states, _words(args.type, TYPES, "--type") or TYPES)
    shown = [
        ("TYPE", "group_type", args.type is not None),
        ("STATE", "state", args.state is not None),
    ]
    columns = [(head, field) for head, field, wanted in shown if wanted]
    rows = [[g.group_id, *(getattr(g, field) for _, field in columns)] for g in groups]
    if columns:
        lines = listing_lines(rows, ["GROUP", *(head for head, _ in columns)])
    else:
        lines = [group.group_id for group in groups]
    for line in lines:
        output.line(line)
    for group in groups:
        output.document({"group": group.group_id, "type": group.group_type, "state": group.state})
    return 0


def _delete(admin: Admin, group_ids: Sequence[str], kind: str, output: Output) -> int:
    outcomes = admin.groups.delete(group_ids)
    deleted = [f"'{group}'" for group, failure in outcomes.items() if failure is None]
    failures = {group: failure for group, failure in outcomes.items() if failure is not None}
    names = ", ".join(deleted)
    if not failures:
        output.line(f"Deletion of requested {kind} groups ({names}) was successful.")
    elif deleted:
        output.line(f"These {kind} groups were deleted successfully: {names}")
    for group_id, failure in outcomes.items():
        output.document(
            {"group": group_id, "deleted": failure is None}
            | ({} if failure is None else {"error": str(failure)})
        )
    output.flush()
    for group_id, failure in failures.items():
        say(f"error: Group '{group_id}' could not be deleted due to: {failure}")
    return 1 if failures else 0


def _delete_offsets(admin: Admin, group_id: str, topics: Sequence[str], output: Output) -> int:
    known = admin.topics()
    outcomes: dict[TopicPartition, SparklogError | None] = {}
    asked = []
    for word in topics:
        name, numbers = parse_topic(word)
        if numbers is None and name not in known:
            missing = UnknownTopicOrPartition(f"no such topic. topic={name}")
            outcomes[TopicPartition(name, -1)] = missing
        else:
            partitions = range(known[name].partitions) if numbers is None else numbers
            asked += [TopicPartition(name, partition) for partition in partitions]
    if asked:
        outcomes |= admin.groups.delete_offsets(group_id, asked)
    failed = [tp for tp, failure in outcomes.items() if failure is not None]
    if not failed:
        output.line(f"Request succeeded for deleting offsets from group {group_id}.")
    rows = [
        (tp, "Successful" if failure is None else f"Error: {failure}")
        for tp, failure in sorted(outcomes.items(), key=lambda item: item[0])
    ]
    for line in deletion_lines(rows):
        output.line(line)
    for tp, failure in sorted(outcomes.items(), key=lambda item: item[0]):
        output.document(
            {"group": group_id, "topic": tp.topic, "partition": tp.partition}
            | ({"deleted": True} if failure is None else {"error": str(failure)})
        )
    output.flush()
    if failed:
        say(f"error: offsets of {len(failed)} of {len(outcomes)} partitions were not deleted")
    return 1 if failed else 0


def _words(text: str | None, known: Sequence[str], option: str) -> list[str]:
    spelled = {word.lower(): word for word in known}
    found = []
    for word in (text or "").split(",") if text else ():
        name = spelled.get(word.strip().lower())
        if name is None:
            raise UsageError(f"{option} knows no {word.strip()!r}; there are {', '.join(known)}")
        found.append(name)
    return found
