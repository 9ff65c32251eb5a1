"""Consumer groups of the newer protocol: the coordinator's responses to members."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.consumer.groups import ConsumerGroups
from sparklog.coordinator.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer, Parts
from sparklog.coordinator.consumer.topics import check_pattern, matching
from sparklog.core.config.group import GROUP_CONFIGS
from sparklog.core.config.model import Config
from sparklog.core.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from tests.harness.coordinator_settings import group_settings

TOPIC = UUID(int=7)
SESSION_MS = 45_000
REBALANCE_MS = 10_000
NONE: Parts = frozenset()


class OneTopic:
    def __init__(self, partitions: int = 4) -> None:
        self.version = partitions
        self.partitions = partitions

    def names(self) -> Iterable[str]:
        return ["orders"]

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (TOPIC, self.partitions) if name == "orders" else None

    def name_of(self, topic_id: UUID) -> str | None:
        return "orders" if topic_id == TOPIC else None


class Coordinator:
    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.configs: dict[str, int] = {}
        self.groups = ConsumerGroups(
            settings or group_settings(), lambda group_id: Config(GROUP_CONFIGS, self.configs)
        )
        self.topics = OneTopic()
        self.now_ms = 0

    def join(self, member_id: str, instance_id: str | None = None, **how: Any) -> Any:
        names = how.pop("names", ("orders",))
        return self.send(
            member_id, 0, instance_id=instance_id, rebalance_timeout_ms=REBALANCE_MS,
            names=names, owned=NONE, **how,
        )  # fmt: skip

    def send(self, member_id: str, epoch: int, **more: Any) -> ConsumerHeartbeatAnswer:
        asked = ConsumerHeartbeat("g", member_id, epoch, "client", "/host", **more)
        answer, _ = self.groups.heartbeat(asked, self.topics, self.now_ms)
        return answer

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.groups.expire(self.now_ms)

    @property
    def state(self) -> str:
        found = self.groups.get("g")
        assert found is not None
        return found.state

    @property
    def members(self) -> set[str]:
        found = self.groups.get("g")
        return set(found.members) if found else set()


def parts(*numbers: int) -> Parts:
    return frozenset((TOPIC, number) for number in numbers)


def test_second_member_gets_partitions_that_the_first_revoked() -> None:
    coordinator = Coordinator()
    first = coordinator.join("a")
    assert (first.epoch, first.assignment) == (1, parts(0, 1, 2, 3))
    assert coordinator.state == "Stable"
    second = coordinator.join("b")
    assert (second.epoch, second.assignment) == (2, NONE), "nothing is free yet"
    assert coordinator.state == "Reconciling"

    told = coordinator.send("a", 1)
    assert (told.epoch, told.assignment) == (1, parts(0, 1)), "stays in its epoch until it has"
    assert coordinator.send("a", 1, owned=parts(0, 1, 2, 3)).assignment is None
    assert coordinator.send("b", 2).assignment is None
    after = coordinator.send("a", 1, owned=parts(0, 1))
    assert (after.epoch, after.assignment) == (2, None)
    assert coordinator.send("b", 2).assignment == parts(2, 3)
    assert coordinator.state == "Stable"
    assert coordinator.send("b", 2).assignment is None, "it was told"


def test_heartbeat_interval_is_short_while_partitions_move() -> None:
    coordinator = Coordinator()
    assert coordinator.join("a").heartbeat_interval_ms == 5000
    assert coordinator.join("b").heartbeat_interval_ms == 500
    assert coordinator.send("a", 1).heartbeat_interval_ms == 500
    coordinator.send("a", 1, owned=parts(0, 1))
    assert coordinator.send("b", 2).heartbeat_interval_ms == 5000


def test_heartbeat_response_is_full_after_a_lost_one() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    again = coordinator.send(
        "a", 1, rebalance_timeout_ms=REBALANCE_MS, names=("orders",), owned=NONE
    )
    assert again.assignment == parts(0, 1, 2, 3)
    coordinator.topics = OneTopic(5)
    assert coordinator.send("a", 1).epoch == 2
    missed = coordinator.send("a", 1, owned=parts(0, 1))
    assert (missed.epoch, missed.assignment) == (2, parts(0, 1, 2, 3, 4))


def test_member_is_removed_when_silent_or_not_revoking() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    coordinator.send("a", 1)
    assert coordinator.groups.next_deadline_ms == REBALANCE_MS
    coordinator.pass_time(REBALANCE_MS)
    assert coordinator.members == {"b"}
    assert coordinator.send("b", 2).assignment == parts(0, 1, 2, 3)
    with pytest.raises(UnknownMemberId):
        coordinator.send("a", 1)
    coordinator.pass_time(SESSION_MS - 1)
    assert coordinator.members == {"b"}
    coordinator.pass_time(1)
    assert coordinator.members == set()
    assert coordinator.state == "Empty"


def test_heartbeat_is_fenced_by_a_wrong_epoch() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    with pytest.raises(FencedMemberEpoch):
        coordinator.send("a", 2)
    coordinator.topics = OneTopic(5)
    coordinator.send("a", 1)
    with pytest.raises(FencedMemberEpoch):
        coordinator.send("a", 1, owned=parts(9))
    with pytest.raises(FencedMemberEpoch):
        coordinator.send("a", 1)
    rejoined = coordinator.join("a")
    assert rejoined.assignment == parts(0, 1, 2, 3, 4)


def test_returned_static_member_keeps_its_partitions() -> None:
    coordinator = Coordinator()
    before = coordinator.join("a", "i1")
    coordinator.join("b", "i2")
    with pytest.raises(UnreleasedInstanceId):
        coordinator.join("c", "i1")
    assert coordinator.send("a", -2, instance_id="i1").epoch == -2
    epoch = coordinator.groups.get("g").epoch  # type: ignore[union-attr]
    again = coordinator.join("c", "i1")
    assert again.assignment == parts(0, 1)
    assert before.assignment is not None
    assert again.assignment < before.assignment
    assert coordinator.groups.get("g").epoch == epoch, "no rebalance"  # type: ignore[union-attr]
    with pytest.raises(FencedInstanceId):
        coordinator.send("a", 1, instance_id="i1")
    with pytest.raises(UnknownMemberId):
        coordinator.send("a", 1)
    assert coordinator.send("b", 2, instance_id="i2").assignment == parts(2, 3)
    coordinator.send("c", -2, instance_id="i1")
    coordinator.pass_time(SESSION_MS)
    assert coordinator.members == set()


def test_patterns_follow_topics_and_hostile_ones_are_cheap() -> None:
    coordinator = Coordinator()
    joined = coordinator.join("a", names=None, regex="ord.*")
    assert joined.assignment == parts(0, 1, 2, 3)
    left_alone = coordinator.send("a", 1, names=(), regex="rder")
    assert left_alone.assignment == NONE, "the whole name must match"
    # A backtracking engine would take 2**249 steps, and never end.
    assert matching("(a+)+b", ["a" * 249]) == frozenset()
    assert matching("a|b", ["a", "b", "ab"]) == {"a", "b"}
    for wrong in ("(", "a)|(b", "(?=a)", "a" * 20_000, "((a{1000}){1000}){1000}"):
        with pytest.raises(InvalidRegularExpression):
            check_pattern(wrong)
    with pytest.raises(InvalidRegularExpression):
        coordinator.send("a", 2, regex="[")


def test_invalid_heartbeat_is_rejected_and_changes_nothing() -> None:
    coordinator = Coordinator(group_settings(group_consumer_max_size=1))
    with pytest.raises(GroupIdNotFound):
        coordinator.send("a", 1)
    with pytest.raises(InvalidRequest, match="RebalanceTimeoutMs"):
        coordinator.send("a", 0, names=("orders",))
    for owned in (None, parts(0)):
        with pytest.raises(InvalidRequest, match="TopicPartitions"):
            coordinator.send(
                "a", 0, names=("orders",), rebalance_timeout_ms=REBALANCE_MS, owned=owned
            )
    with pytest.raises(InvalidRequest, match="Subscribed"):
        coordinator.join("a", names=None)
    with pytest.raises(InvalidRequest, match="MemberEpoch"):
        coordinator.send("a", -3)
    with pytest.raises(InvalidRequest, match="cannot be empty"):
        coordinator.join("")
    with pytest.raises(InvalidRequest, match="InstanceId"):
        coordinator.send("a", -2)
    with pytest.raises(UnsupportedAssignor):
        coordinator.join("a", assignor="mine")
    assert coordinator.groups.get("g") is None
    coordinator.join("a")
    with pytest.raises(GroupMaxSizeReached):
        coordinator.join("b")
    with pytest.raises(UnknownMemberId):
        coordinator.send("b", -1)
    assert coordinator.members == {"a"}


def test_assignor_is_the_one_most_members_ask_for() -> None:
    coordinator = Coordinator()
    coordinator.join("a", assignor="range")
    coordinator.join("b")
    found = coordinator.groups.get("g")
    assert found is not None
    assert found.assignor == "range"
    coordinator.send("a", -1)
    assert found.assignor == "uniform"


def test_subscribed_topic_is_assigned_once_it_exists() -> None:
    coordinator = Coordinator()
    assert coordinator.join("a", names=("orders", "later")).assignment == parts(0, 1, 2, 3)
    assert coordinator.join("b", names=("later",)).assignment == NONE
    description = coordinator.groups.get("g").described()  # type: ignore[union-attr]
    assert [m.member_id for m in description.members] == ["a", "b"]
    assert description.members[0].target == parts(0, 1, 2, 3)
    assert replace(description, members=()).state == "Reconciling"


def test_first_enabled_assignor_is_the_default() -> None:
    coordinator = Coordinator(group_settings(group_consumer_assignors=("range",)))
    with pytest.raises(UnsupportedAssignor, match="Supported assignors: range"):
        coordinator.join("a", assignor="uniform")
    coordinator.join("a")
    found = coordinator.groups.get("g")
    assert found is not None
    assert found.assignor == "range"


def test_group_uses_its_own_timeouts() -> None:
    coordinator = Coordinator()
    coordinator.configs["consumer.heartbeat.interval.ms"] = 7_000
    coordinator.configs["consumer.session.timeout.ms"] = 50_000
    assert coordinator.join("a").heartbeat_interval_ms == 7_000
    coordinator.pass_time(49_999)
    assert coordinator.members == {"a"}
    coordinator.pass_time(1)
    assert coordinator.members == set()
