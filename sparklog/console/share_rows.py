"""Rows of share groups' partitions: stored states, ends of logs, and lag, within bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from sparklog.client.admin import Admin
from sparklog.client.values import (
    LATEST,
    ListedOffset,
    ShareOffset,
    ShareOffsets,
)
from sparklog.console.cluster_view import ClusterView
from sparklog.console.share_states import ShareStateCounts, StoredShareStates, counts_of
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.core.errors import DataCorrupt, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.protocol.topic_ids import uuid_of

PARTITION_ROWS: Final = 100
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
    position: ShareOffset | None = None
    """The start offset and the lag, as brokers know them."""

    @property
    def start_offset(self) -> int | None:
        """Return the start offset; None if the group has not begun there, or if it is unknown."""
        if self.counts is not None:
            return self.counts.start_offset
        return None if self.position is None else self.position.offset

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


def share_lags(view: ClusterView, group_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return for each share group the sum of its lag in records, or the problem.

    Brokers send the lags; on a root they come from stored states.
    """
    if view.kind == "root":
        return stored_share_lags(view, group_ids)
    try:
        with view.brokers_admin() as admin:
            found = admin.share_groups.offsets(group_ids)
    except SparklogError as error:
        return dict.fromkeys(group_ids, _unknown(error))
    return {
        group_id: _unknown(offsets)
        if isinstance(offsets, SparklogError)
        else {
            "lag": sum(at.lag for at in offsets.values() if at.lag is not None),
            "partitions": len(offsets),
            "problem": None,
        }
        for group_id, offsets in found.items()
    }


def _unknown(error: SparklogError) -> dict[str, Any]:
    return {"lag": None, "partitions": None, "problem": str(error)}


def share_positions(admin: Admin, group_id: str) -> ShareOffsets:
    """Return the start offsets of a share group, as brokers know them. Raises SparklogError."""
    found = admin.share_groups.offsets([group_id])[group_id]
    if isinstance(found, SparklogError):
        raise found
    return found


def offsets_by_partition(positions: ShareOffsets) -> dict[TopicPartition, int | None]:
    """Return the start offsets; None where the group has read nothing yet."""
    return {tp: at.offset for tp, at in positions.items()}


def stored_share_lags(view: ClusterView, group_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return for each share group the sum of its lag in records, or the problem.

    Cost: one look-up of the ends of all partitions, at most `PARTITION_ROWS` of each group.
    """
    names = topic_names(view)
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
        ends = ends_of(view, found)
    except SparklogError as error:
        return dict.fromkeys(group_ids, _unknown(error))
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
    lags = [lag_of(row, ends) for row in rows]
    return {"lag": sum(lag for lag in lags if lag is not None), "problem": None}


def lag_of(row: SharePartitionRow, ends: Mapping[TopicPartition, int | None]) -> int | None:
    """Return the lag of a partition; None if it is unknown."""
    tp = row.partition
    if tp is not None and row.counts is not None:
        return row.counts.lag(ends.get(tp))
    return None if row.position is None else row.position.lag


def ends_of(
    view: ClusterView, rows: Sequence[SharePartitionRow]
) -> dict[TopicPartition, int | None]:
    """Return the log ends of the rows' partitions; None where none is known."""
    asked = {tp for row in rows if (tp := row.partition) is not None}
    if not asked:
        return {}
    with view.administered() as admin:
        found = admin.offsets(dict.fromkeys(sorted(asked), LATEST))
    return {tp: at.offset if isinstance(at, ListedOffset) else None for tp, at in found.items()}


def topic_names(view: ClusterView) -> dict[UUID, str]:
    """Return the topics' names, by id."""
    found = {}
    for topic in view.topics().values():
        try:
            found[uuid_of(topic.topic_id)] = topic.name
        except ValueError:
            continue  # brokers before 2.8 send no ids
    return found
