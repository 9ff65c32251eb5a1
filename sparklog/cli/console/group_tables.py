"""Tables that describe groups, in kafka-consumer-groups' format. A missing value is `-`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from sparklog.client.values import GroupDescription, GroupMember
from sparklog.core.types import TopicPartition

MISSING = "-"
WIDTH = 15


@dataclass(frozen=True, slots=True)
class GroupProgressRow:
    """A group's position in one partition, and the member that reads it."""

    group_id: str
    topic_partition: TopicPartition
    offset: int | None
    leader_epoch: int | None
    log_end_offset: int | None
    member: GroupMember | None
    lag_ms: int | None = None
    """Age of the oldest unread record; 0 if all are read; None if unknown."""

    @property
    def lag(self) -> int | None:
        """Return the number of unread offsets."""
        if self.offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.offset


def progress_lines(rows: Sequence[GroupProgressRow], *, verbose: bool, in_time: bool) -> list[str]:
    """Return the table of `--describe --offsets`; `in_time` adds a column that Kafka lacks."""
    group = width("", (row.group_id for row in rows))
    topic = width("", (row.topic_partition.topic for row in rows))
    member = width("", (row.member.member_id for row in rows if row.member))
    host = width("", (row.member.host for row in rows if row.member))
    columns = [group, topic, 10, *([WIDTH] * (3 + verbose + in_time)), member, host, 0]
    head = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else [])]
    head += ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", *(["LAG-TIME"] if in_time else [])]
    table: list[list[object]] = [[*head, "CONSUMER-ID", "HOST", "CLIENT-ID"]]
    for row in rows:
        who = row.member
        cells: list[object] = [row.group_id, row.topic_partition.topic]
        cells += [row.topic_partition.partition, *([row.leader_epoch] if verbose else [])]
        cells += [row.offset, row.log_end_offset, row.lag]
        cells += [spelled_age(row.lag_ms)] if in_time else []
        cells += [who.member_id, who.host, who.client_id] if who else [None, None, None]
        table.append(cells)
    return ["", *(table_line(columns, cells) for cells in table)]


def member_lines(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the table of `--describe --members`."""
    members = group.members
    static = any(member.instance_id for member in members)
    mixed = {member.upgraded for member in members} >= {True, False}
    columns = [width("", [group.group_id]), width("", (m.member_id for m in members))]
    columns += [width(" " * 17, (m.instance_id or "" for m in members))] if static else []
    columns += [width("", (m.host for m in members)), width("", (m.client_id for m in members))]
    columns += [WIDTH]
    head = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else [])]
    head += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        columns += [WIDTH, width(" " * 20, (spelled_partitions(m.assignment) for m in members))]
        columns += [WIDTH, width(" " * 20, (spelled_partitions(m.target) for m in members))]
        columns += [0] if mixed else []
        head += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        head += ["UPGRADED"] if mixed else []
    table: list[list[object]] = [list(head)]
    for member in members:
        cells: list[object] = [group.group_id, member.member_id]
        cells += [member.instance_id or ""] if static else []
        cells += [member.host, member.client_id, len(member.assignment)]
        if verbose:
            cells += [member.epoch, spelled_partitions(member.assignment)]
            cells += [group.assignment_epoch, spelled_partitions(member.target)]
            cells += [str(member.upgraded).lower()] if mixed else []
        table.append(cells)
    end = "" if verbose else " "
    return ["", *(table_line(columns, cells) + end for cells in table)]


def state_lines(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the table of `--describe --state`."""
    at = group.coordinator
    coordinator = f"{at.host}:{at.port}  ({at.broker_id})"
    columns = [width("", [group.group_id]), width(" " * 25, [coordinator]), 20, 20]
    head: list[object] = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    cells: list[object] = [group.group_id, coordinator, group.assignor or None, group.state]
    if verbose:
        columns += [WIDTH, 25]
        head += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [group.epoch, group.assignment_epoch]
    columns += [0]
    return [
        "",
        table_line(columns, [*head, "#MEMBERS"]),
        table_line(columns, [*cells, len(group.members)]),
    ]


def listing_lines(rows: Sequence[Sequence[str]], head: Sequence[str]) -> list[str]:
    """Return the table of `--list` with states or types; the first column is the group."""
    columns = [10 + width("", (row[0] for row in rows)), *([20] * (len(head) - 1))]
    return [table_line(columns, row) for row in (head, *rows)]


def reset_lines(rows: Sequence[tuple[str, TopicPartition, int]]) -> list[str]:
    """Return the table of `--reset-offsets`."""
    columns = [
        width("", (group for group, _, _ in rows)),
        width("", (tp.topic for _, tp, _ in rows)),
        10,
        0,
    ]
    table: list[Sequence[object]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    table += [(group, tp.topic, tp.partition, offset) for group, tp, offset in rows]
    return ["", *(table_line(columns, cells) for cells in table)]


def deletion_lines(rows: Sequence[tuple[TopicPartition, str]]) -> list[str]:
    """Return the table of `--delete-offsets`; a partition below zero stands for a whole topic."""
    columns = [width("", (tp.topic for tp, _ in rows)), 10, WIDTH]
    table: list[Sequence[object]] = [("TOPIC", "PARTITION", "STATUS")]
    table += [(tp.topic, tp.partition if tp.partition >= 0 else None, word) for tp, word in rows]
    return ["", *(table_line(columns, cells) for cells in table)]


def spelled_partitions(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions as `topic:0,1;other:2`."""
    parts = groupby(sorted(partitions), lambda tp: tp.topic)
    found = [f"{topic}:{','.join(str(tp.partition) for tp in tps)}" for topic, tps in parts]
    return ";".join(found) or MISSING


def spelled_age(age_ms: int | None) -> str | None:
    """Return a readable time: `2d3h`, `4m5s`, `120ms`; None if unknown."""
    if age_ms is None:
        return None
    if age_ms < 1000:
        return f"{age_ms}ms"
    left, parts = age_ms // 1000, []
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def width(least: str, cells: Iterable[str]) -> int:
    """Return the width of a column; without `least` it is that of Kafka's tools."""
    return max(map(len, [least or " " * WIDTH, *cells]))


def table_line(columns: Sequence[int], cells: Sequence[object]) -> str:
    """Return a line of a table with columns of these widths."""
    words = (MISSING if cell is None else str(cell) for cell in cells)
    return " ".join(f"{word:<{width}}" for word, width in zip(words, columns, strict=True))


def state_document(group: GroupDescription) -> dict[str, object]:
    """Return the state of a group of any type as JSON values."""
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
