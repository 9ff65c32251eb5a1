"""Tables that describe share groups, in kafka-share-groups' format. A missing value is `-`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.cli.console.group_tables import MISSING, WIDTH, spelled_partitions, table_line, width
from sparklog.client.values import GroupDescription, ShareOffsets
from sparklog.core.errors import SparklogError


def share_offset_lines(group_id: str, offsets: ShareOffsets, *, verbose: bool) -> list[str]:
    """Return the table of `--describe --offsets`."""
    columns = [width("", [group_id]), width("", (tp.topic for tp in offsets)), 10]
    columns += [13] if verbose else []
    columns += [WIDTH, 0]
    head = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else [])]
    table: list[list[object]] = [[*head, "START-OFFSET", "LAG"]]
    for tp, at in sorted(offsets.items()):
        epoch = [at.leader_epoch if at.leader_epoch >= 0 else None] if verbose else []
        table.append([group_id, tp.topic, tp.partition, *epoch, at.offset, at.lag])
    return ["", *(table_line(columns, cells) for cells in table)]


def share_member_lines(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the table of `--describe --members`."""
    members = sorted(group.members, key=lambda member: member.member_id)
    columns = [width("", [group.group_id]), width("", (m.member_id for m in members))]
    columns += [width("", (m.host for m in members)), width("", (m.client_id for m in members))]
    columns += [12, *([13] if verbose else []), 0]
    head = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    table: list[list[object]] = [
        [*head, *(["MEMBER-EPOCH"] if verbose else []), "ASSIGNMENT"],
    ]
    for m in members:
        cells: list[object] = [group.group_id, m.member_id, m.host, m.client_id]
        cells += [len(m.assignment), *([m.epoch] if verbose else [])]
        names = spelled_partitions(m.assignment)
        table.append([*cells, "" if names == MISSING else names])
    return ["", *(table_line(columns, cells) for cells in table)]


def share_state_lines(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the table of `--describe --state`."""
    at = group.coordinator
    coordinator = f"{at.host}:{at.port}  ({at.broker_id})"
    columns = [width("", [group.group_id]), width(" " * 25, [coordinator]), WIDTH]
    head: list[object] = ["GROUP", "COORDINATOR (ID)", "STATE"]
    cells: list[object] = [group.group_id, coordinator, group.state]
    if verbose:
        columns += [12, 17]
        head += ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        cells += [group.epoch, group.assignment_epoch]
    columns += [0]
    rows = ([*head, "#MEMBERS"], [*cells, len(group.members)])
    return ["", *(table_line(columns, row) for row in rows)]


def topic_deletion_lines(outcomes: Mapping[str, SparklogError | None]) -> list[str]:
    """Return the table of `--delete-offsets`, which is about whole topics."""
    columns = [width("", outcomes), 0]
    table: list[Sequence[object]] = [("TOPIC", "STATUS")]
    for topic, failure in sorted(outcomes.items()):
        table.append((topic, "Successful" if failure is None else f"Error: {failure}"))
    return ["", *(table_line(columns, cells) for cells in table)]
