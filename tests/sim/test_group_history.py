"""Faults in a history of groups: two owners of a partition, lost commits, and invented ones."""

from __future__ import annotations

from sparklog.core.types import TopicPartition
from sparklog.testing.history import (
    CommittedHistory,
    GroupLog,
    Looked,
    Owned,
    OwnershipClaim,
    check_group,
)

WHERE = TopicPartition("t", 0)


def _kinds(log: GroupLog) -> list[str]:
    return [anomaly.kind for anomaly in check_group(log)]


def test_a_partition_has_one_owner_a_generation() -> None:
    log = GroupLog(owned=[Owned(1, "a", WHERE), Owned(1, "a", WHERE), Owned(2, "b", WHERE)])
    assert _kinds(log) == []
    log.owned.append(Owned(2, "a", WHERE))
    assert _kinds(log) == ["two-owners"]


def test_read_after_a_commit_returns_it_or_a_later_one() -> None:
    log = GroupLog(commits=[CommittedHistory(WHERE, 5, 1.0)], tried={(WHERE, 5), (WHERE, 7)})
    log.looks = [Looked(WHERE, -1, 0.9), Looked(WHERE, 5, 1.1), Looked(WHERE, 7, 1.2)]
    assert _kinds(log) == []
    log.looks = [Looked(WHERE, -1, 1.1), Looked(WHERE, 6, 1.2)]
    assert _kinds(log) == ["lost-commit", "invented-commit"]


def test_partition_is_not_assigned_while_another_member_owns_it() -> None:
    log = GroupLog(
        claims=[OwnershipClaim("a", WHERE, 1.0, 2.0), OwnershipClaim("b", WHERE, 2.0, 3.0)]
    )
    assert _kinds(log) == []
    log.claims.append(OwnershipClaim("a", WHERE, 2.5, 2.6))
    assert _kinds(log) == ["read-by-two"]
    log.claims[2] = OwnershipClaim("b", WHERE, 2.5, 2.6)
    assert _kinds(log) == []
