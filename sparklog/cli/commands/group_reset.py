"""`sparklog groups --reset-offsets`: new positions for groups.

It plans offsets for groups without members, and commits them only with --execute. An offset outside
a partition's log moves to the nearer end.

Offset plans are CSV: `topic,partition,offset`, with a group before it for several groups.

Times and durations have the format of Kafka's tools: ISO 8601.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments import Arguments, UsageError, is_given
from sparklog.cli.console.group_filter import chosen_partitions
from sparklog.cli.console.group_tables import reset_lines
from sparklog.cli.console.partition_file import text_of
from sparklog.cli.output import Output, say
from sparklog.client.values import (
    EARLIEST,
    INACTIVE,
    LATEST,
    ListedOffset,
)
from sparklog.core.clock import SYSTEM_CLOCK, parse_duration_ms
from sparklog.core.errors import GroupIdNotFound, InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.client.groups import Groups
    from sparklog.client.share_groups import ShareGroupAdmin
import argparse
from datetime import UTC, datetime

FORMS = "topic,partition,offset or group,topic,partition,offset"


def parse_plan(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets of a plan by group; a plan without groups is for the only given one.

    Raises:
        UsageError: not such a plan.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    for row in csv.reader(io.StringIO(text)):
        if not row:
            continue
        fields = row
        if len(row) == 3 and len(groups) == 1:
            fields = [groups[0], *row]
        if len(fields) != 4 or not all(_is_number(word) for word in fields[2:]):
            raise UsageError(f"--from-file takes lines {FORMS}, not {','.join(row)!r}")
        group, topic, partition, offset = fields
        found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    return found


def plan_lines(rows: Iterable[tuple[str, TopicPartition, int]], *, one_group: bool) -> list[str]:
    """Return a plan for `parse_plan`; an empty line ends it, as in Kafka's tool."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, tp, offset in rows:
        fields = (tp.topic, tp.partition, offset)
        writer.writerow(fields if one_group else (group, *fields))
    return out.getvalue().split("\n")


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


Offsets = dict[TopicPartition, int]

WHERE = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)
"""The options for the new position; a call has one of them."""


def reset(
    admin: Admin,
    groups: Groups | ShareGroupAdmin,
    group_ids: Sequence[str],
    args: Arguments,
    output: Output,
) -> int:
    """Plan the offsets of each group, commit them with --execute, and print them.

    `groups` are those of `admin` of the type of these groups.
    """
    if not args.execute and not args.dry_run:
        say("note: nothing is changed without --execute; --dry-run says that it shall be so")
    planned: dict[str, Offsets] = {}
    failed = 0
    for group_id, group in groups.describe(group_ids).items():
        if not isinstance(group, SparklogError) and group.state not in INACTIVE:
            failed += 1
            say(
                f"error: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {group.state}."
            )
        elif isinstance(group, SparklogError) and not isinstance(group, GroupIdNotFound):
            raise group
        else:
            planned[group_id] = _planned(admin, groups, group_id, args)
    if args.execute:
        for group_id, offsets in planned.items():
            _carry_out(groups, group_id, offsets)
    _print(planned, args, output, one_group=len(args.group or ()) == 1)
    return 1 if failed else 0


def _print(
    planned: Mapping[str, Offsets], args: Arguments, output: Output, *, one_group: bool
) -> None:
    rows = [(g, tp, at) for g, offsets in planned.items() for tp, at in sorted(offsets.items())]
    for group_id, tp, at in rows:
        output.document(
            {"group": group_id, "topic": tp.topic, "partition": tp.partition, "newOffset": at}
        )
    lines = plan_lines(rows, one_group=one_group) if args.export else reset_lines(rows)
    for line in lines if rows or not args.export else ():
        output.line(line)


def _carry_out(groups: Groups | ShareGroupAdmin, group_id: str, offsets: Offsets) -> None:
    if not offsets:
        return
    for failure in groups.move_offsets(group_id, offsets).values():
        if failure is not None:
            raise failure


def _planned(
    admin: Admin, groups: Groups | ShareGroupAdmin, group_id: str, args: Arguments
) -> Offsets:
    if args.from_file is not None:
        plan = parse_plan(text_of(args.from_file), args.group or ())
        return _within(admin, plan.get(group_id, {}))
    partitions = _scope(admin, groups, group_id, args)
    match next(option for option in WHERE if is_given(args, option)):
        case "to_earliest":
            return _found(admin, dict.fromkeys(partitions, EARLIEST))
        case "to_latest":
            return _found(admin, dict.fromkeys(partitions, LATEST))
        case "to_offset":
            return _within(admin, dict.fromkeys(partitions, args.to_offset))
        case "to_datetime":
            return _at_time(admin, partitions, args.to_datetime)
        case "by_duration":
            return _at_time(admin, partitions, SYSTEM_CLOCK.now_ms() - args.by_duration)
        case "shift_by":
            return _shifted(admin, partitions, _positions(groups, group_id), args.shift_by)
    return _current(admin, partitions, _positions(groups, group_id))


def _scope(
    admin: Admin, groups: Groups | ShareGroupAdmin, group_id: str, args: Arguments
) -> list[TopicPartition]:
    if args.all_topics:
        return sorted(_committed(groups, group_id))
    if not args.topic:
        raise UsageError("--reset-offsets needs --all-topics or --topic, or --from-file")
    return chosen_partitions(admin, args.topic)


def _committed(groups: Groups | ShareGroupAdmin, group_id: str) -> dict[TopicPartition, int | None]:
    """Return a group's positions; None where a share group has read nothing yet."""
    found = groups.offsets([group_id])[group_id]
    if isinstance(found, SparklogError):
        raise found
    return {tp: at.offset for tp, at in found.items()}


def _positions(groups: Groups | ShareGroupAdmin, group_id: str) -> Offsets:
    return {tp: at for tp, at in _committed(groups, group_id).items() if at is not None}


def _found(admin: Admin, wanted: Mapping[TopicPartition, int]) -> Offsets:
    return {tp: _offset(answer) for tp, answer in admin.offsets(wanted).items()}


def _at_time(admin: Admin, partitions: Iterable[TopicPartition], time_ms: int) -> Offsets:
    found = _found(admin, dict.fromkeys(partitions, max(0, time_ms)))
    later = [tp for tp, offset in found.items() if offset < 0]
    for tp in later:
        say(f"note: no record is that new; the end of the log is taken. partition={tp}")
    return found | _found(admin, dict.fromkeys(later, LATEST))


def _shifted(
    admin: Admin, partitions: Iterable[TopicPartition], committed: Offsets, by: int
) -> Offsets:
    wanted = list(partitions)
    for tp in wanted:
        if tp not in committed:
            raise InvalidRequest(
                f"an offset that was never committed cannot be shifted. partition={tp}"
            )
    return _within(admin, {tp: committed[tp] + by for tp in wanted})


def _current(admin: Admin, partitions: Iterable[TopicPartition], committed: Offsets) -> Offsets:
    wanted = list(partitions)
    found = _within(admin, {tp: committed[tp] for tp in wanted if tp in committed})
    rest = [tp for tp in wanted if tp not in committed]
    return found | _found(admin, dict.fromkeys(rest, LATEST))


def _within(admin: Admin, wanted: Offsets) -> Offsets:
    starts = _found(admin, dict.fromkeys(wanted, EARLIEST))
    ends = _found(admin, dict.fromkeys(wanted, LATEST))
    inside = {tp: min(max(at, starts[tp]), ends[tp]) for tp, at in wanted.items()}
    for tp, at in wanted.items():
        if inside[tp] != at:
            say(
                "note: the offset lies outside the log and was moved to its end. "
                f"partition={tp} offset={at} moved_to={inside[tp]}"
            )
    return inside


def _offset(answer: ListedOffset | SparklogError) -> int:
    if isinstance(answer, SparklogError):
        raise answer
    return answer.offset


def datetime_ms(text: str) -> int:
    """Return ms since 1970 of `2026-01-31T23:59:59.000`, in UTC unless the text has a zone.

    For `type=`.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"not a time such as 2026-01-31T23:59:59.000: {text!r}"
        ) from error
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Return ms of a duration such as `P1DT2H30M` or `PT0.5S`, for `type=`."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
