"""Pages of groups: the list, and one consumer group with lag, members and a plan for new offsets.

A plan is read-only: the page of a reset shows it first, and the change repeats its computation.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from sparklog.cli.commands.group_reset import datetime_ms, duration_ms
from sparklog.cli.target import AdminTarget
from sparklog.client.values import (
    EARLIEST,
    INACTIVE,
    LATEST,
    SHARE,
    Committed,
    GroupDescription,
    ListedOffset,
)
from sparklog.console.cluster_view import (
    ClusterView,
    PartitionRange,
    milliseconds_of,
    offsets_of,
)
from sparklog.console.name_filter import FILTER, matching_names
from sparklog.console.resources import PAGE, BoundedValues, FieldSpec, PageResource, RowPage
from sparklog.console.share_rows import share_lags
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition
from sparklog.spark.schedule.history import TIME_MAX_MS

GROUP_ROWS: Final = 50
MEMBERS_SHOWN: Final = 200
PARTITIONS_TIMED: Final = 32
RESET_TO: Final = ("earliest", "latest", "offset", "shift", "time", "duration")

GroupPositions = Mapping[TopicPartition, int | None]
"""Offsets of a group; None where a share group has read nothing yet."""

LIST_PARAMETERS: Final = (
    FILTER,
    FieldSpec("state", "only groups in this state"),
    FieldSpec("lag", "1 adds the lag of each shown group", choices=("0", "1"), default="0"),
    PAGE,
)


def list_groups(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of groups; with `lag` two requests for each shown one."""
    found = view.groups()
    listed = found.listings
    state = values.text("state")
    in_state = [group for group in listed if state in ("", group.state)]
    names = set(matching_names([group.group_id for group in in_state], values.text("filter")))
    chosen = [group for group in in_state if group.group_id in names]
    page = RowPage.of(len(chosen), values.whole("page"), GROUP_ROWS)
    shown = chosen[page.first : page.first + GROUP_ROWS]
    lags: dict[str, dict[str, Any]] = {}
    if values.flag("lag"):
        sharing = [group.group_id for group in shown if group.group_type == SHARE]
        others = [group.group_id for group in shown if group.group_type != SHARE]
        lags = {group_id: group_lag(view, group_id) for group_id in others}
        lags |= share_lags(view, sharing) if sharing else {}
    return {
        **page.document(),
        "all": len(listed),
        "filter": values.text("filter"),
        "state": state,
        "states": sorted({g.state for g in listed}),
        "storage": view.kind == "root",
        "live": view.asks_brokers,
        "problem": found.problem,
        "lagged": values.flag("lag"),
        "groups": [
            {
                "group": g.group_id,
                "state": g.state,
                "type": g.group_type,
                **lags.get(g.group_id, {"lag": None, "partitions": None, "problem": None}),
            }
            for g in shown
        ],
    }


def group_lag(view: ClusterView, group_id: str) -> dict[str, Any]:
    """Return the sum of a group's lag in records, or the problem."""
    try:
        committed = view.committed(group_id)
        with view.administered() as admin:
            ends = admin.offsets(dict.fromkeys(committed, LATEST)) if committed else {}
    except SparklogError as error:
        return {"lag": None, "partitions": None, "problem": str(error)}
    known = [
        max(0, end.offset - committed[tp].offset)
        for tp, end in ends.items()
        if isinstance(end, ListedOffset)
    ]
    return {"lag": sum(known), "partitions": len(committed), "problem": None}


PLAN_FIELDS: Final = (
    FieldSpec("to", "where to", choices=RESET_TO),
    FieldSpec("topic", "only this topic", length_max=249),
    FieldSpec("value", "an offset, a shift in records, a time, or a duration", length_max=64),
)


def show_group(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return a group; with `to` also the plan of a reset, which changes nothing."""
    group_id = values.text("group")
    group, problem = _known_group(view, group_id)
    committed = view.committed(group_id)
    members = () if group is None else group.members
    owners = {tp: member for member in members for tp in member.assignment}
    every = sorted({*committed, *owners})
    with view.administered() as admin:
        ends = admin.offsets(dict.fromkeys(every, LATEST)) if every else {}
        plan = planned_rows(admin, positions_of(committed), values) if values.text("to") else None
    waits = waiting_times(view, committed, ends) if values.flag("time") else {}
    rows: list[dict[str, Any]] = []
    for tp in every:
        end, at = ends[tp], committed.get(tp)
        high = end.offset if isinstance(end, ListedOffset) else None
        owner = owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": None if at is None else at.offset,
                "endOffset": high,
                "lag": None if at is None or high is None else max(0, high - at.offset),
                "lagTime": waits.get(tp),
                "member": None if owner is None else owner.member_id,
                "client": None if owner is None else owner.client_id,
                "problem": str(end) if isinstance(end, SparklogError) else None,
            }
        )
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    lag = sum(lags) if lags else None
    view.lags.watch(group_id, lag)
    return {
        "group": group_id,
        "storage": view.kind == "root",
        "live": view.asks_brokers,
        "membersProblem": problem,
        "lag": lag,
        "timed": values.flag("time"),
        "lagTime": max((row["lagTime"] or 0 for row in rows), default=None)
        if values.flag("time")
        else None,
        "chart": view.lags.chart(group_id),
        "offsets": rows,
        "topics": sorted({tp.topic for tp in committed}),
        "inactive": group is None or group.state in INACTIVE,
        **_described(group),
        "to": values.text("to"),
        "topic": values.text("topic"),
        "value": values.text("value"),
        "plan": plan,
    }


def _known_group(view: ClusterView, group_id: str) -> tuple[GroupDescription | None, str | None]:
    """Return a group as brokers describe it, or the reason why a root's page lacks that."""
    try:
        return view.group(group_id), None
    except SparklogError as error:
        if view.kind != "root":
            raise
        return None, str(error)


def waiting_times(
    view: ClusterView,
    committed: Committed,
    ends: Mapping[TopicPartition, ListedOffset | SparklogError],
) -> dict[TopicPartition, int]:
    """Return for each partition how long its first unread record has waited, in ms; 0 without lag.

    Cost: a read of one record for each partition with lag, at most `PARTITIONS_TIMED` of them.
    """
    found: dict[TopicPartition, int] = {}
    ranges: list[PartitionRange] = []
    for tp, at in committed.items():
        end = ends.get(tp)
        if not isinstance(end, ListedOffset):
            continue
        found[tp] = 0
        if at.offset < end.offset and len(ranges) < PARTITIONS_TIMED:
            ranges.append(PartitionRange(tp, max(0, at.offset), end.offset))
    now_ms = SYSTEM_CLOCK.now_ms()

    def take(tp: TopicPartition, batch: pa.RecordBatch) -> bool:
        if not batch.num_rows:
            return True
        written_ms = milliseconds_of(batch.column("timestamp")[0].as_py())
        if written_ms is not None:
            found[tp] = max(0, now_ms - written_ms)
        return False

    if ranges:
        view.read(ranges, take)
    return found


def _described(group: GroupDescription | None) -> dict[str, Any]:
    if group is None:
        return {"state": "Unknown", "type": None, "assignor": None, "coordinator": None,
                "epoch": None, "members": [], "memberCount": 0}  # fmt: skip
    return {
        "state": group.state,
        "type": group.group_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator.broker_id,
        "epoch": group.epoch,
        "memberCount": len(group.members),
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [str(tp) for tp in member.assignment],
            }
            for member in group.members[:MEMBERS_SHOWN]
        ],
    }


def positions_of(committed: Committed) -> GroupPositions:
    """Return the committed offsets as positions."""
    return {tp: at.offset for tp, at in committed.items()}


def planned_rows(
    admin: AdminTarget, positions: GroupPositions, values: BoundedValues
) -> list[dict[str, Any]]:
    """Return the rows of a plan. Raises as `planned_offsets`."""
    planned = planned_offsets(admin, positions, values)
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": positions[tp],
            "newOffset": offset,
        }
        for tp, offset in sorted(planned.items())
    ]


def planned_offsets(
    admin: AdminTarget, positions: GroupPositions, values: BoundedValues
) -> dict[TopicPartition, int]:
    """Return the new offsets, each within its log.

    Raises:
        InvalidRequest: no such topic among the group's, or a wrong value.
    """
    topic, text = values.text("topic"), values.text("value")
    chosen = [tp for tp in positions if topic in ("", tp.topic)]
    if not chosen:
        raise InvalidRequest(f"the group has no committed offset there. topic={topic or 'any'}")
    starts = offsets_of(admin.offsets(dict.fromkeys(chosen, EARLIEST)))
    ends = offsets_of(admin.offsets(dict.fromkeys(chosen, LATEST)))
    match values.text("to"):
        case "earliest":
            return starts
        case "latest":
            return ends
        case "time":
            wanted = _at_time(admin, chosen, _time_ms(text), ends)
        case "duration":
            wanted = _at_time(admin, chosen, SYSTEM_CLOCK.now_ms() - _duration_ms(text), ends)
        case "offset":
            wanted = dict.fromkeys(chosen, _number(text))
        case _:
            by = _number(text)
            wanted = {tp: at + by for tp in chosen if (at := positions[tp]) is not None}
            if not wanted:
                raise InvalidRequest("the group has no offset yet, so none to shift")
    return {tp: min(max(at, starts[tp]), ends[tp]) for tp, at in wanted.items()}


def _at_time(
    admin: AdminTarget, chosen: Sequence[TopicPartition], time_ms: int, ends: Mapping[Any, int]
) -> dict[TopicPartition, int]:
    found = offsets_of(admin.offsets(dict.fromkeys(chosen, min(max(0, time_ms), TIME_MAX_MS))))
    return {tp: at if at >= 0 else ends[tp] for tp, at in found.items()}


def _time_ms(text: str) -> int:
    try:
        return datetime_ms(text)
    except Exception as error:
        raise InvalidRequest(
            f"value is a time such as 2026-01-31T23:59:59, not {text!r}"
        ) from error


def _duration_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ArgumentTypeError as error:
        raise InvalidRequest(f"value is {error}") from error


def _number(text: str) -> int:
    FieldSpec("value", "", "integer", least=-(2**62), most=2**62).check(text)
    return int(text)


PAGES: Final = (
    PageResource(
        "/groups", "groups", "List groups.", "groups.html", list_groups, LIST_PARAMETERS
    ),
    PageResource(
        "/groups/{group}", "group", "Show a group, and the plan of a reset.", "group.html",
        show_group,
        (
            *PLAN_FIELDS,
            FieldSpec("time", "1 adds the lag in time", choices=("0", "1"), default="0"),
        ),
    ),
)  # fmt: skip
