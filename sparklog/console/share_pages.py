"""Page of a share group: members, and for each partition the stored states of its records.

The states come from `__share_group_state`, on a root and at brokers alike. The storage has no
state for acquired records: they count as available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.client.values import LATEST, GroupDescription, ListedOffset
from sparklog.console.cluster_view import ClusterView
from sparklog.console.resources import PAGE, BoundedValues, PageResource, RowPage
from sparklog.console.share_states import ShareStateCounts, StoredShareStates, counts_of
from sparklog.console.stored_share_groups import SHARE, StoredShareGroup
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.core.config.share_groups import COPIES_RECORDS, DEAD_LETTER_TOPIC
from sparklog.core.errors import DataCorrupt, GroupIdNotFound, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

PARTITION_ROWS: Final = 100
MEMBERS_LISTED: Final = 200
MEMBER_PARTITIONS: Final = 100
DECODED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of states that one page decodes."""


@dataclass(frozen=True, slots=True)
class SharePartitionRow:
    """One partition of a share group."""

    key: SharePartitionKey
    topic: str | None
    """None: no topic has this id now."""
    counts: ShareStateCounts | None = None
    problem: str | None = None

    @property
    def partition(self) -> TopicPartition | None:
        """Return the partition; None without its topic."""
        return None if self.topic is None else TopicPartition(self.topic, self.key.partition)


def counted_rows(
    states: StoredShareStates, rows: Sequence[SharePartitionRow], bytes_max: int
) -> list[SharePartitionRow]:
    """Return the rows with the counts of their states; a row beyond the bound says so."""
    counted = []
    left = bytes_max
    for row in rows:
        size = states.size_bytes(row.key)
        if size > left:
            counted.append(replace(row, problem="not decoded: too many states for one page"))
            continue
        left -= size
        try:
            state = states.state(row.key)
        except (DataCorrupt, Unavailable) as error:
            counted.append(replace(row, problem=str(error)))
            continue
        counted.append(replace(row, counts=None if state is None else counts_of(state)))
    return counted


def stored_share_lags(view: ClusterView, group_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return for each share group the sum of its lag in records, or the problem.

    Cost: one look-up of the ends of all partitions, at most `PARTITION_ROWS` of each group.
    """
    names = _topic_names(view)
    chosen: dict[str, list[SharePartitionRow]] = {}
    numbers: dict[str, int] = {}
    try:
        with view.share_states.lend(view) as states:
            left = DECODED_BYTES_MAX
            for group_id in group_ids:
                keys = states.partitions(group_id)
                numbers[group_id] = len(keys)
                rows = [SharePartitionRow(key, names.get(key.topic_id)) for key in keys]
                chosen[group_id] = counted_rows(states, rows[:PARTITION_ROWS], left)
                left -= sum(
                    states.size_bytes(row.key) for row in chosen[group_id] if row.counts is not None
                )
        found = [row for rows in chosen.values() for row in rows]
        ends = _ends(view, found)
    except SparklogError as error:
        problem = {"lag": None, "partitions": None, "problem": str(error)}
        return dict.fromkeys(group_ids, problem)
    return {
        group_id: {
            "partitions": numbers[group_id],
            **_sum(rows, ends, left_out=numbers[group_id] - len(rows)),
        }
        for group_id, rows in chosen.items()
    }


def _sum(
    rows: Sequence[SharePartitionRow], ends: Mapping[TopicPartition, int | None], left_out: int
) -> dict[str, Any]:
    problems = [row.problem for row in rows if row.problem]
    if left_out:
        problems.append(f"its own page shows the lag of {left_out + len(rows)} partitions")
    if problems:
        return {"lag": None, "problem": problems[0]}
    lags = [_lag(row, ends) for row in rows]
    return {"lag": sum(lag for lag in lags if lag is not None), "problem": None}


def _lag(row: SharePartitionRow, ends: Mapping[TopicPartition, int | None]) -> int | None:
    tp = row.partition
    return None if tp is None or row.counts is None else row.counts.lag(ends.get(tp))


def _ends(view: ClusterView, rows: Sequence[SharePartitionRow]) -> dict[TopicPartition, int | None]:
    """Return the log ends of the rows' partitions; None where none is known."""
    asked = {tp for row in rows if (tp := row.partition) is not None}
    if not asked:
        return {}
    with view.administered() as admin:
        found = admin.offsets(dict.fromkeys(sorted(asked), LATEST))
    return {tp: at.offset if isinstance(at, ListedOffset) else None for tp, at in found.items()}


def _topic_names(view: ClusterView) -> dict[Any, str]:
    """Return the topics' names, by id."""
    found = {}
    for topic in view.topics().values():
        try:
            found[uuid_of(topic.topic_id)] = topic.name
        except ValueError:
            continue  # brokers before 2.8 send no ids
    return found


def show_share_group(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return a share group with one page of its partitions.

    Raises:
        GroupIdNotFound: neither a broker nor the storage knows it.
    """
    group_id = values.text("group")
    names = _topic_names(view)
    group, members_problem = _described_group(view, group_id)
    stored = view.stored_share_group(group_id)
    holders = _holders(group, stored, group_id, names)
    keys = set(holders)
    if stored is not None:
        keys.update(SharePartitionKey(group_id, *part) for part in stored.partitions)
    states_problem = None
    rows: list[SharePartitionRow] = []
    page = RowPage.of(0, 1, PARTITION_ROWS)
    is_full = False
    try:
        with view.share_states.lend(view) as states:
            keys.update(states.partitions(group_id))
            page, rows = _rows(keys, names, values)
            rows = counted_rows(states, rows, DECODED_BYTES_MAX)
            is_full = states.is_full
    except SparklogError as error:
        states_problem = str(error)
        page, rows = _rows(keys, names, values)
    if group is None and stored is None and not keys:
        why = f" because={states_problem}" if states_problem else ""
        raise GroupIdNotFound(f"no share group of this name is known. group={group_id}{why}")
    ends = _ends(view, rows)
    lags = [_lag(row, ends) for row in rows]
    known = [lag for lag in lags if lag is not None]
    return {
        "group": group_id,
        "type": SHARE,
        "storage": view.kind == "root",
        "live": view.asks_brokers,
        **_group_document(group, stored, group_id, names),
        "membersProblem": members_problem,
        "statesProblem": states_problem,
        "statesBehind": view.share_states.is_behind,
        "statesFull": is_full,
        **page.document(),
        "lag": sum(known) if known else None,
        "partitions": [
            _partition_document(row, holders.get(row.key, []), ends, lag)
            for row, lag in zip(rows, lags, strict=True)
        ],
        **dead_letter_settings(view, group_id),
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
    keys: set[SharePartitionKey], names: Mapping[Any, str], values: BoundedValues
) -> tuple[RowPage, list[SharePartitionRow]]:
    page = RowPage.of(len(keys), values.whole("page"), PARTITION_ROWS)
    ordered = sorted(keys, key=lambda key: (names.get(key.topic_id, ""), key))
    shown = ordered[page.first : page.first + PARTITION_ROWS]
    return page, [SharePartitionRow(key, names.get(key.topic_id)) for key in shown]


def _holders(
    group: GroupDescription | None,
    stored: StoredShareGroup | None,
    group_id: str,
    names: Mapping[Any, str],
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
        "startOffset": None if counts is None else counts.start_offset,
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
    names: Mapping[Any, str],
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
        show_share_group, (PAGE,),
    ),
)  # fmt: skip
