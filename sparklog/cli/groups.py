"""`sparklog groups`: kafka-consumer-groups, plus lag in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparklog.cli.actions import add_actions, check_options, is_given, spelled
from sparklog.cli.group_describe import describe
from sparklog.cli.group_reset import WHERE, reset
from sparklog.cli.group_scope import parse_topic
from sparklog.cli.group_tables import deletion_lines, listing_lines
from sparklog.cli.output import Output, say
from sparklog.cli.root import add_broker_options, connected
from sparklog.cli.times import datetime_ms, duration_ms
from sparklog.cli.usage import Arguments, CommandParser, UsageError, counting_number, whole_number
from sparklog.coordinator.topic_patterns import check_pattern
from sparklog.core.errors import InvalidRegularExpression, SparklogError, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin

STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
)
TYPES = ("Classic", "Consumer")

_ACTIONS = {
    "list": "print the names of all consumer groups; with --state or --type a table",
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
    "type": ("list",),
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
    parser.add_argument("--all-groups", action="store_true", help="all consumer groups")
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
        "--type", nargs="?", const="", help="with --list: types, or only groups of those"
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
        if args.action == "delete_offsets":
            return _delete_offsets(admin, args.group[0], args.topic, output)
        group_ids: Sequence[str] = args.group or ()
        if args.all_groups:
            group_ids = [group.group_id for group in admin.groups.list()]
        if args.action == "describe":
            return describe(admin, group_ids, args, output)
        if args.action == "delete":
            return _delete(admin, group_ids, output)
        return reset(admin, group_ids, args, output)


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
    if args.topic and args.all_topics:
        raise UsageError("--topic does not go with --all-topics")


def _list(admin: Admin, args: Arguments, output: Output) -> int:
    states = _words(args.state, STATES, "--state")
    groups = admin.groups.list(states, _words(args.type, TYPES, "--type"))
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


def _delete(admin: Admin, group_ids: Sequence[str], output: Output) -> int:
    outcomes = admin.groups.delete(group_ids)
    deleted = [f"'{group}'" for group, failure in outcomes.items() if failure is None]
    failures = {group: failure for group, failure in outcomes.items() if failure is not None}
    names = ", ".join(deleted)
    if not failures:
        output.line(f"Deletion of requested consumer groups ({names}) was successful.")
    elif deleted:
        output.line(f"These consumer groups were deleted successfully: {names}")
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
