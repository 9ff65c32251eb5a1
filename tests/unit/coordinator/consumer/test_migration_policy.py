"""Migration of groups with members between the protocols: `group.consumer.migration.policy`."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from sparklog.coordinator.consumer.topics import NoTopics
from sparklog.coordinator.messages import JoinResult, MemberIdentity, Protocols
from sparklog.core.errors import GroupIdNotFound
from sparklog.protocol.messages.consumer_protocol import encode_assignment
from tests.harness.coordinator_settings import group_settings
from tests.harness.group_driver import GROUP, READS_T, Driver

JOIN, LEAVE = 0, -1
ASSIGNED = encode_assignment({"t": (0,)}, 0)
NULL = bytes.fromhex("ffffffff")
USER_DATA = bytes.fromhex("00000002 0102")
SAID = READS_T.removesuffix(NULL) + USER_DATA
"""A subscription in the format of assignors that remember a member's partitions."""
SAID_LATER = READS_T.removesuffix(NULL) + bytes.fromhex("00000002 0103")
TOLD = ASSIGNED.removesuffix(NULL) + USER_DATA
"""An assignment in librdkafka's format: with the member's own user data."""


def driver(policy: str) -> Driver:
    return Driver(
        group_settings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
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


def assigned(
    driven: Driver, assignment: bytes, protocols: Protocols, *, instance: str | None = None
) -> int:
    """Add a member `old` with this assignment; return the generation."""
    member_id = "" if instance else driven.reply(driven.join(new="old"), JoinResult).member_id
    token = driven.join(member_id, new="old", instance=instance, protocols=protocols)
    driven.wait(1)
    joined = driven.reply(token, JoinResult)
    driven.sync(joined.member_id, joined.generation, {"old": assignment}, protocol=joined.protocol)
    return joined.generation


def kind(driven: Driver) -> str:
    return driven.listed()[0].group_type


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
def test_group_with_members_upgrades_to_the_newer_protocol(policy: str) -> None:
    driven = driver(policy)
    driven.stable("old", share=lambda _: ASSIGNED)
    consumer(driven, JOIN)
    assert kind(driven) == "consumer"


@pytest.mark.parametrize(
    ("protocol", "assignment", "moves"),
    [
        ("range", ASSIGNED, True),
        ("range", b"", True),
        ("range", TOLD, True),
        ("roundrobin", TOLD, True),
        ("sticky", TOLD, True),
        ("cooperative-sticky", TOLD, True),
        ("stream", ASSIGNED, True),
        ("stream", b"", True),
        ("stream", TOLD, False),
        ("range", b"what only its assignor knows", False),
    ],
)
def test_group_with_its_own_assignor_stays_classic(
    protocol: str, assignment: bytes, moves: bool
) -> None:
    driven = driver("bidirectional")
    generation = assigned(driven, assignment, ((protocol, SAID),))
    if moves:
        consumer(driven, JOIN)
        assert kind(driven) == "consumer"
        return
    with pytest.raises(GroupIdNotFound):
        consumer(driven, JOIN)
    assert kind(driven) == "classic"
    assert driven.heartbeat("old", generation) is ErrorCode.none


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
@pytest.mark.parametrize("later", ["range", "roundrobin"])
def test_group_upgrades_while_its_members_rejoin(state: str, later: str) -> None:
    """Their subscriptions are newer than their assignments, and may be for another assignor."""
    driven = driver("bidirectional")
    assigned(driven, TOLD, (("range", SAID), ("roundrobin", SAID)))
    driven.member("other", protocols=(("range", READS_T), ("roundrobin", READS_T)))
    if state == "PreparingRebalance":
        driven.join(new="waited for")
    driven.join("old", protocols=((later, SAID_LATER),))
    assert driven.describe().state == state
    consumer(driven, JOIN)
    assert kind(driven) == "consumer"


def test_group_upgrades_after_a_static_member_returned() -> None:
    driven = driver("bidirectional")
    assigned(driven, TOLD, (("range", SAID),), instance="one")
    back = driven.reply(driven.join(new="again", instance="one"), JoinResult)
    assert back.error is ErrorCode.none
    consumer(driven, JOIN)
    assert kind(driven) == "consumer"


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_group_with_members_stays_classic_without_upgrade_policy(policy: str) -> None:
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
def test_group_downgrades_when_only_classic_members_are_left(policy: str, after: str) -> None:
    driven = driver(policy)
    consumer(driven, JOIN)
    driven.member("old")
    assert kind(driven) == "consumer"
    consumer(driven, LEAVE)
    assert kind(driven) == after
    driven.fail_over()
    assert kind(driven) == after
