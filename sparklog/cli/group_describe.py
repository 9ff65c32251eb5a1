"""`sparklog groups --describe`: offsets and lag, members, or state of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparklog.cli.group_tables import (
    Progress,
    member_lines,
    progress_lines,
    state_lines,
)
from sparklog.cli.output import Output, say
from sparklog.cli.root import bootstrap_of
from sparklog.cli.usage import Arguments
from sparklog.client.group_values import (
    Committed,
    GroupDescription,
    GroupMember,
)
from sparklog.client.lag import oldest_unread_ms
from sparklog.client.values import LATEST, FoundOffset
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import GroupIdNotFound, SparklogError
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin

LAG_TIMEOUT_S = 10.0
_REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}


def describe(admin: Admin, group_ids: Sequence[str], args: Arguments, output: Output) -> int:
    """Describe groups; continue after one that fails."""
    failed = 0
    for group_id, group in sorted(admin.groups.describe(group_ids).items()):
        if isinstance(group, SparklogError):
            failed += 1
            _complain(output, group_id, group)
            continue
        if args.state is not None:
            _warn(group)
            _print(output, state_lines(group, verbose=args.verbose))
            output.document(_state_document(group))
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
        rows = _aged(bootstrap_of(args) or "", rows)
    _warn(group)
    if rows:
        _print(output, progress_lines(rows, verbose=args.verbose, in_time=args.lag_time))
    for row in rows:
        output.document(_progress_document(row, in_time=args.lag_time))


def _progress(admin: Admin, group: GroupDescription, committed: Committed) -> list[Progress]:
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
                Progress(
                    group.group_id,
                    tp,
                    at.offset if at else None,
                    at.leader_epoch if at and at.leader_epoch >= 0 else None,
                    end.offset if isinstance(end, FoundOffset) else None,
                    member,
                )
            )
    return rows


def _aged(bootstrap: str, rows: Sequence[Progress]) -> list[Progress]:
    behind = {r.topic_partition: r.offset for r in rows if r.offset is not None and r.lag}
    found = oldest_unread_ms(bootstrap, behind, SYSTEM_CLOCK, timeout_s=LAG_TIMEOUT_S)
    now_ms = SYSTEM_CLOCK.now_ms()

    def age(row: Progress) -> int | None:
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


def _progress_document(row: Progress, *, in_time: bool) -> dict[str, object]:
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


def _state_document(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "assignor": group.assignor,
        "members": len(group.members),
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
        "coordinator": group.coordinator.broker_id,
        "host": group.coordinator.host,
        "port": group.coordinator.port,
    }
