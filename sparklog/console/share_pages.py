"""Page of a share group: members, and for each partition the stored states of its records.

The states come from `__share_group_state`, on a root and at brokers alike. The storage has no
state for acquired records: they count as available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sparklog.client.values import INACTIVE, SHARE, GroupDescription, ShareOffset, ShareOffsets
from sparklog.console import share_rows
from sparklog.console.cluster_view import ClusterView
from sparklog.console.group_pages import PLAN_FIELDS, planned_rows
from sparklog.console.resources import PAGE, BoundedValues, PageResource, RowPage
from sparklog.console.share_rows import (
    SharePartitionRow,
    counted_rows,
    ends_of,
    lag_of,
    offsets_by_partition,
    share_positions,
    topic_names,
)
from sparklog.console.stored_share_groups import StoredShareGroup
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.core.config.share_groups import COPIES_RECORDS, DEAD_LETTER_TOPIC
from sparklog.core.errors import GroupIdNotFound, SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.topic_ids import topic_id_of

MEMBERS_LISTED: Final = 200
MEMBER_PARTITIONS: Final = 100


def show_share_group(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return a share group; with `to` also the plan of a reset, which changes nothing.

    Raises:
        GroupIdNotFound: neither a broker nor the storage knows it.
    """
    group_id = values.text("group")
    names = topic_names(view)
    group, members_problem = _described_group(view, group_id)
    stored = view.stored_share_group(group_id)
    positions, positions_problem = _positions(view, group_id)
    holders = _holders(group, stored, group_id, names)
    keys = {*holders, *_keys(positions, group_id, names)}
    if stored is not None:
        keys.update(SharePartitionKey(group_id, *part) for part in stored.partitions)
    page, rows, states = _counted_page(view, group_id, keys, names, values)
    if group is None and stored is None and not page.total:
        why = f" because={states['statesProblem']}" if states["statesProblem"] else ""
        raise GroupIdNotFound(f"no share group of this name is known. group={group_id}{why}")
    rows = [replace(row, position=_at(positions, row)) for row in rows]
    ends = ends_of(view, rows)
    lags = [lag_of(row, ends) for row in rows]
    known = [lag for lag in lags if lag is not None]
    return {
        "group": group_id,
        "type": SHARE,
        "storage": view.kind == "root",
        "live": view.asks_brokers,
        **_group_document(group, stored, group_id, names),
        "inactive": group is None or group.state in INACTIVE,
        "membersProblem": members_problem,
        "positionsProblem": positions_problem,
        **states,
        **page.document(),
        "lag": sum(known) if known else None,
        "partitions": [
            _partition_document(row, holders.get(row.key, []), ends, lag)
            for row, lag in zip(rows, lags, strict=True)
        ],
        **_reset_document(view, positions, values),
        **dead_letter_settings(view, group_id),
    }


def _positions(view: ClusterView, group_id: str) -> tuple[ShareOffsets, str | None]:
    """Return the start offsets that brokers know, or why they are missing; a root asks for none."""
    if view.kind == "root":
        return {}, None
    try:
        with view.brokers_admin() as admin:
            return share_positions(admin, group_id), None
    except SparklogError as error:
        return {}, str(error)


def _keys(
    positions: ShareOffsets, group_id: str, names: Mapping[UUID, str]
) -> list[SharePartitionKey]:
    ids = {name: topic_id for topic_id, name in names.items()}
    return [
        SharePartitionKey(group_id, ids[tp.topic], tp.partition)
        for tp in positions
        if tp.topic in ids
    ]


def _at(positions: ShareOffsets, row: SharePartitionRow) -> ShareOffset | None:
    return None if row.partition is None else positions.get(row.partition)


def _counted_page(
    view: ClusterView,
    group_id: str,
    keys: set[SharePartitionKey],
    names: Mapping[UUID, str],
    values: BoundedValues,
) -> tuple[RowPage, list[SharePartitionRow], dict[str, Any]]:
    """Return one page of partitions with their counts, and what is wrong with the states."""
    problem, is_full = None, False
    try:
        with view.share_states.lend(view) as states:
            page, rows = _rows(keys.union(states.partitions(group_id)), names, values)
            rows = counted_rows(states, rows, share_rows.DECODED_BYTES_MAX)
            is_full = states.is_full
    except SparklogError as error:
        problem = str(error)
        page, rows = _rows(keys, names, values)
    found = {
        "statesProblem": problem,
        "statesBehind": view.share_states.is_behind,
        "statesFull": is_full,
    }
    return page, rows, found


def _reset_document(
    view: ClusterView, positions: ShareOffsets, values: BoundedValues
) -> dict[str, Any]:
    offsets = offsets_by_partition(positions)
    plan = None
    if values.text("to"):
        with view.administered() as admin:
            plan = planned_rows(admin, offsets, values)
    return {
        "topics": sorted({tp.topic for tp in offsets}),
        "to": values.text("to"),
        "topic": values.text("topic"),
        "value": values.text("value"),
        "plan": plan,
    }


def dead_letter_settings(view: ClusterView, group_id: str) -> dict[str, Any]:
    """Return the settings of a group's dead letters, or why they are unknown."""
    try:
        settings = view.group_settings(group_id)
    except SparklogError as error:
        return {"deadLetterTopic": None, "copiesRecords": None, "settingsProblem": str(error)}
    return {
        "deadLetterTopic": settings.get(DEAD_LETTER_TOPIC, ""),
        "copiesRecords": settings.get(COPIES_RECORDS, "false") == "true",
        "settingsProblem": None,
    }


def _described_group(
    view: ClusterView, group_id: str
) -> tuple[GroupDescription | None, str | None]:
    try:
        return view.share_group(group_id), None
    except GroupIdNotFound as error:
        # Stored states may be all that is left of it.
        return None, str(error)
    except SparklogError as error:
        if view.kind != "root":
            raise
        return None, str(error)


def _rows(
    keys: set[SharePartitionKey], names: Mapping[UUID, str], values: BoundedValues
) -> tuple[RowPage, list[SharePartitionRow]]:
    page = RowPage.of(len(keys), values.whole("page"), share_rows.PARTITION_ROWS)
    ordered = sorted(keys, key=lambda key: (names.get(key.topic_id, ""), key))
    shown = ordered[page.first : page.first + share_rows.PARTITION_ROWS]
    return page, [SharePartitionRow(key, names.get(key.topic_id)) for key in shown]


def _holders(
    group: GroupDescription | None,
    stored: StoredShareGroup | None,
    group_id: str,
    names: Mapping[UUID, str],
) -> dict[SharePartitionKey, list[str]]:
    """Return for each assigned partition the ids of its members."""
    found: dict[SharePartitionKey, list[str]] = {}
    if group is not None:
        ids = {name: topic_id for topic_id, name in names.items()}
        for member in group.members:
            for tp in member.assignment:
                if tp.topic in ids:
                    key = SharePartitionKey(group_id, ids[tp.topic], tp.partition)
                    found.setdefault(key, []).append(member.member_id)
    elif stored is not None:
        for one in stored.members:
            for part in one.assigned:
                found.setdefault(SharePartitionKey(group_id, *part), []).append(one.member_id)
    return found


def _partition_document(
    row: SharePartitionRow,
    members: Sequence[str],
    ends: Mapping[TopicPartition, int | None],
    lag: int | None,
) -> dict[str, Any]:
    tp, counts = row.partition, row.counts
    return {
        "topic": row.topic,
        "topicId": topic_id_of(row.key.topic_id),
        "partition": row.key.partition,
        "startOffset": row.start_offset,
        "windowEnd": None if counts is None else counts.window_end,
        "endOffset": None if tp is None else ends.get(tp),
        "lag": lag,
        "available": None if counts is None else counts.available,
        "acknowledged": None if counts is None else counts.acknowledged,
        "archived": None if counts is None else counts.archived,
        "deliveryCountMax": None if counts is None else counts.delivery_count_max,
        "memberCount": len(members),
        "members": list(members[:MEMBER_PARTITIONS]),
        "problem": row.problem,
    }


def _group_document(
    group: GroupDescription | None,
    stored: StoredShareGroup | None,
    group_id: str,
    names: Mapping[UUID, str],
) -> dict[str, Any]:
    if group is not None:
        return {
            "state": group.state,
            "assignor": group.assignor,
            "coordinator": group.coordinator.broker_id,
            "epoch": group.epoch,
            "memberCount": len(group.members),
            "members": [
                _member(one.member_id, one.client_id, one.host, list(map(str, one.assignment)))
                for one in group.members[:MEMBERS_LISTED]
            ],
        }
    members = [] if stored is None else stored.members
    return {
        "state": "Unknown",
        "assignor": None,
        "coordinator": None,
        "epoch": None if stored is None else stored.epoch,
        "memberCount": len(members),
        "members": [
            _member(
                one.member_id,
                one.client_id,
                one.client_host,
                [f"{names.get(i, topic_id_of(i))}-{number}" for i, number in sorted(one.assigned)],
            )
            for one in members[:MEMBERS_LISTED]
        ],
    }


def _member(member_id: str, client: str, host: str, partitions: list[str]) -> dict[str, Any]:
    return {
        "member": member_id,
        "client": client,
        "host": host,
        "partitionCount": len(partitions),
        "partitions": partitions[:MEMBER_PARTITIONS],
    }


PAGES: Final = (
    PageResource(
        "/share-groups/{group}", "shareGroup",
        "Show a share group, with the states of its records.", "share_group.html",
        show_share_group, (PAGE, *PLAN_FIELDS),
    ),
)  # fmt: skip
