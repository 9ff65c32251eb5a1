"""Whether a group with members may change its protocol: `group.consumer.migration.policy`."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from sparklog.coordinator.group_messages import MemberIdentity
from sparklog.coordinator.group_settings import GroupSettings
from sparklog.coordinator.subscribed_topics import NoTopics
from sparklog.core.errors import GroupIdNotFound
from tests.unit.coordinator.group_driver import GROUP, Driver

JOIN, LEAVE = 0, -1


def driver(policy: str) -> Driver:
    return Driver(
        GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
    )


def consumer(driven: Driver, epoch: int) -> ConsumerHeartbeatAnswer:
    asked = ConsumerHeartbeat(
        GROUP,
        "new",
        epoch,
        "client",
        "/h",
        rebalance_timeout_ms=9_000,
        names=("t",),
        owned=frozenset(),
    )
    token = driven.submit(lambda s, t, n: s.consumer_heartbeat(asked, NoTopics(), t, n))
    return driven.reply(token, ConsumerHeartbeatAnswer)


def kind(driven: Driver) -> str:
    return driven.listed()[0].group_type


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
def test_a_group_with_members_moves_to_the_newer_protocol(policy: str) -> None:
    driven = driver(policy)
    driven.stable("old")
    consumer(driven, JOIN)
    assert kind(driven) == "consumer"


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_group_with_members_stays_classic(policy: str) -> None:
    driven = driver(policy)
    generation = driven.stable("old")
    with pytest.raises(GroupIdNotFound):
        consumer(driven, JOIN)
    assert kind(driven) == "classic"
    assert driven.heartbeat("old", generation) is ErrorCode.none
    driven.leave(MemberIdentity("old"))
    consumer(driven, JOIN)
    assert kind(driven) == "consumer", "one without members always may"


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        ("bidirectional", "classic"),
        ("downgrade", "classic"),
        ("upgrade", "consumer"),
        ("disabled", "consumer"),
    ],
)
def test_a_group_moves_back_when_only_classic_members_are_left(policy: str, after: str) -> None:
    driven = driver(policy)
    consumer(driven, JOIN)
    driven.member("old")
    assert kind(driven) == "consumer"
    consumer(driven, LEAVE)
    assert kind(driven) == after
    driven.fail_over()
    assert kind(driven) == after
