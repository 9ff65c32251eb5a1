"""Commits by members with an older epoch: which partitions they may still commit."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.consumer.group import ConsumerGroup
from sparklog.coordinator.consumer.messages import ClassicMember
from sparklog.coordinator.consumer.records import MemberAssignment, MemberRecord
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.messages import CommitRequest, MemberIdentity, OffsetToCommit
from tests.harness.group_driver import Driver, offset_of
from tests.unit.coordinator.consumer.test_groups import TOPIC, Coordinator, parts

STALE, NONE = ErrorCode.stale_member_epoch, ErrorCode.none
UNKNOWN, GENERATION = ErrorCode.unknown_member_id, ErrorCode.illegal_generation
PRODUCER = ProducerIdentity(7, 0)
RANGE = ClassicMember(10_000, (("range", b""),))


def commit(group: ConsumerGroup, member_id: str, epoch: int, *numbers: int, **more: Any) -> Any:
    offsets = tuple(OffsetToCommit("orders", n, 5, -1, "", TOPIC) for n in numbers)
    who = MemberIdentity(member_id, more.pop("instance_id", None))
    return group.check_commit(CommitRequest("g", who, epoch, offsets, **more))


def a_group(**about: Any) -> ConsumerGroup:
    """Return a group of one member in epoch 6, with partitions since 3 and 5, one to give up."""
    group = ConsumerGroup("g")
    group.apply(MemberRecord("g", "a", **about))
    since = {(TOPIC, 0): 3, (TOPIC, 1): 5, (TOPIC, 2): 4}
    group.apply(
        MemberAssignment("g", "a", 6, 5, assigned=parts(0, 1), revoking=parts(2), since=since)
    )
    return group


@pytest.mark.parametrize(
    ("epoch", "numbers", "code"),
    [
        (6, (0, 1, 2), NONE),
        (6, (3,), NONE),  # the current epoch is accepted for any partition
        (7, (0,), STALE),
        (5, (0, 1, 2), NONE),
        (4, (0, 2), NONE),
        (4, (0, 1), STALE),
        (3, (0,), NONE),
        (3, (2,), STALE),
        (2, (0,), STALE),
        (5, (3,), STALE),
        (-1, (0,), STALE),
    ],
)
def test_commit_accepts_partitions_held_since_an_older_epoch(
    epoch: int, numbers: tuple[int, ...], code: ErrorCode
) -> None:
    assert commit(a_group(), "a", epoch, *numbers) is code
    classic = GENERATION if code is STALE else code
    assert commit(a_group(classic=RANGE), "a", epoch, *numbers) is classic
    for knows_epochs, told in ((False, classic), (True, code)):  # since TxnOffsetCommit 6
        more = {"producer": PRODUCER, "knows_epochs": knows_epochs}
        assert commit(a_group(), "a", epoch, *numbers, **more) is told


def test_commit_is_checked_against_member_and_epoch() -> None:
    group = a_group()
    assert commit(group, "b", 6, 0) is UNKNOWN
    assert commit(group, "", -1, 0) is UNKNOWN
    assert commit(group, "", -1, 0, producer=PRODUCER) is NONE
    assert commit(group, "", -1, 0, producer=PRODUCER, instance_id="i") is UNKNOWN
    assert commit(ConsumerGroup("g"), "", -1, 0) is NONE
    assert commit(ConsumerGroup("g"), "b", 3, 0) is UNKNOWN
    old = ErrorCode.unsupported_version
    assert commit(group, "a", 6, 0, knows_epochs=False) is old
    assert commit(group, "a", 6, 0, knows_epochs=False, producer=PRODUCER) is NONE
    assert commit(a_group(classic=RANGE), "a", 6, 0, knows_epochs=False) is NONE


def test_commit_without_topic_id_is_stale_in_an_older_epoch() -> None:
    offset = OffsetToCommit("orders", 0, 5, -1, "", None)
    asked = CommitRequest("g", MemberIdentity("a"), 5, (offset,))
    assert a_group().check_commit(asked) is STALE


def test_commit_to_unknown_group_gets_an_error_of_its_version() -> None:
    def refused(**more: Any) -> ErrorCode:
        (code,) = Driver().commit(offset_of("t", 1), generation=3, **more)
        return code

    assert refused() is ErrorCode.group_id_not_found
    assert refused(knows_epochs=False) is GENERATION
    assert refused(producer=PRODUCER) is ErrorCode.group_id_not_found
    assert refused(producer=PRODUCER, knows_epochs=False) is GENERATION


def test_commit_of_kept_partitions_succeeds_while_rebalancing() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    coordinator.send("a", 1)
    group = coordinator.groups.get("g")
    assert group is not None
    assert coordinator.send("a", 1, owned=parts(0, 1)).epoch == 2
    assert commit(group, "a", 1, 0, 1) is NONE
    assert commit(group, "a", 1, 2) is STALE, "it has given it up"
    coordinator.send("b", 2)
    assert commit(group, "b", 1, 2) is STALE
    coordinator.send("b", -1)
    assert coordinator.send("a", 2).assignment == parts(0, 1, 2, 3)
    assert commit(group, "a", 2, 0, 1) is NONE
    assert commit(group, "a", 2, 2) is STALE, "another member had it since"


def test_returned_static_member_commits_from_its_first_epoch() -> None:
    coordinator = Coordinator()
    coordinator.join("a", "i")
    coordinator.send("a", -2, instance_id="i")
    group = coordinator.groups.get("g")
    assert group is not None
    assert commit(group, "a", 1, 0) is STALE, "it has left"
    coordinator.join("a2", "i")
    assert commit(group, "a", 1, 0) is UNKNOWN
    coordinator.topics.partitions = coordinator.topics.version = 5
    assert coordinator.send("a2", 1, instance_id="i", owned=parts(0, 1, 2, 3)).epoch == 2
    assert commit(group, "a2", 1, 0) is NONE
    assert commit(group, "a2", 1, 4) is STALE


def test_late_commit_is_rejected_after_a_static_replacement() -> None:
    coordinator = Coordinator()
    coordinator.join("a", "i")
    coordinator.send("a", -2, instance_id="i")
    coordinator.join("b", "i")
    coordinator.topics.partitions = coordinator.topics.version = 5
    coordinator.send("b", 1, instance_id="i", owned=parts(0, 1, 2, 3))
    coordinator.send("b", -2, instance_id="i")
    assert coordinator.join("a", "i").epoch == 2
    group = coordinator.groups.get("g")
    assert group is not None
    assert commit(group, "a", 1, 0) is STALE, "another member had it since"
    assert commit(group, "a", 2, 0) is NONE


def test_reassigned_partition_counts_as_held_since_then() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    coordinator.send("a", 1)
    coordinator.send("b", -1)
    group = coordinator.groups.get("g")
    assert group is not None
    assert group.members["a"].has.revoking == parts(2, 3)
    again = coordinator.send("a", 1, owned=parts(0, 1))
    assert (again.epoch, again.assignment) == (3, parts(0, 1, 2, 3))
    assert group.members["a"].has.since == dict.fromkeys(parts(0, 1), 1) | dict.fromkeys(
        parts(2, 3), 3
    )
