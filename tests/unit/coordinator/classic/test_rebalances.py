"""Members of classic groups, from the client's side: joins, syncs, leaves and expired sessions."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.classic.rebalance import NEW_MEMBER_TIMEOUT_MS
from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.messages import JoinResult, MemberIdentity, SyncResult
from sparklog.core.config.broker import parse_broker_configs
from tests.harness.coordinator_settings import group_settings
from tests.harness.group_driver import DELAY_MS, READS_T, REBALANCE_MS, SESSION_MS, Driver


def test_first_rebalance_collects_members_into_one_generation() -> None:
    driver = Driver()
    first = driver.member("a")
    driver.wait(DELAY_MS - 1)
    second = driver.member("b")
    assert first not in driver.replies
    driver.wait(DELAY_MS + 1)
    told, other = driver.reply(first, JoinResult), driver.reply(second, JoinResult)
    assert (told.generation, told.leader, told.protocol) == (1, "a", "range")
    assert [m.member_id for m in told.members] == ["a", "b"]
    assert told.members[0].metadata == READS_T
    assert (other.generation, other.leader, other.members) == (1, "a", ())

    waits = driver.sync("b", 1)
    assert waits not in driver.replies
    led = driver.sync("a", 1, {"a": b"for a", "b": b"for b"})
    assert driver.reply(led, SyncResult) == SyncResult(
        ErrorCode.none, "consumer", "range", b"for a"
    )
    assert driver.reply(waits, SyncResult).assignment == b"for b"
    assert driver.heartbeat("a", 1) is ErrorCode.none
    described = driver.describe()
    assert (described.state, described.protocol) == ("Stable", "range")
    assert [(m.member_id, m.assignment) for m in described.members] == [
        ("a", b"for a"),
        ("b", b"for b"),
    ]


def test_first_rebalance_ends_at_the_rebalance_timeout() -> None:
    driver = Driver()
    tokens = [driver.member("m0", rebalance_timeout_ms=3 * DELAY_MS)]
    for number in range(1, 4):
        driver.wait(DELAY_MS - 1)
        tokens.append(driver.member(f"m{number}", rebalance_timeout_ms=3 * DELAY_MS))
    assert not driver.replies.keys() & set(tokens[:3])
    driver.wait(5)
    assert driver.reply(tokens[0], JoinResult).generation == 1
    assert len(driver.reply(tokens[0], JoinResult).members) >= 3


def test_new_member_makes_all_members_rejoin() -> None:
    driver = Driver()
    generation = driver.stable("a")
    newcomer = driver.member("b")
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    assert newcomer not in driver.replies
    again = driver.join("a")
    assert driver.reply(again, JoinResult).generation == generation + 1
    assert driver.reply(newcomer, JoinResult).leader == "a"
    assert driver.heartbeat("a", generation) is ErrorCode.illegal_generation


def test_member_is_removed_when_it_does_not_rejoin_in_time() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    newcomer = driver.member("c")
    again = driver.join("b")
    while driver.now_ms and again not in driver.replies:
        driver.heartbeat("a", generation)
        driver.wait(SESSION_MS // 2)
    assert driver.reply(newcomer, JoinResult).generation == generation + 1
    assert driver.reply(again, JoinResult).leader == "b"
    assert driver.heartbeat("a", generation + 1) is ErrorCode.unknown_member_id


def test_member_is_removed_when_its_session_expires() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    codes = []
    for _ in range(4):
        driver.wait(SESSION_MS // 4)
        codes.append(driver.heartbeat("a", generation))
    assert codes == [ErrorCode.none] * 3 + [ErrorCode.rebalance_in_progress]
    again = driver.join("a")
    assert [m.member_id for m in driver.reply(again, JoinResult).members] == ["a"]
    assert driver.heartbeat("b", generation) is ErrorCode.unknown_member_id


def test_member_leaves_at_once() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    assert driver.leave(MemberIdentity("b"), MemberIdentity("x")).members == (
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    )
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    assert driver.leave(MemberIdentity("a")).error is ErrorCode.none
    assert driver.describe().state == "Empty"
    assert driver.leave(MemberIdentity("a")).members == (ErrorCode.unknown_member_id,)


def test_waiting_join_gets_an_error_when_its_member_is_removed() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    waits = driver.join("b", protocols=(("range", b"other"),))
    driver.leave(MemberIdentity("b"))
    told = driver.reply(waits, JoinResult)
    assert (told.error, told.member_id) == (ErrorCode.unknown_member_id, "")
    driver.join("a")
    assert driver.heartbeat("a", generation + 1) is ErrorCode.none


def test_new_member_is_removed_when_it_waits_too_long() -> None:
    driver = Driver()
    static(driver, "a")
    patient = {"rebalance_timeout_ms": 10 * NEW_MEMBER_TIMEOUT_MS}
    newcomer = driver.member("c", **patient)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // SESSION_MS + 1):
        assert newcomer not in driver.replies
        driver.wait(SESSION_MS - 1)
        driver.heartbeat("a", 1, "i-a")
    driver.wait(SESSION_MS)
    assert driver.reply(newcomer, JoinResult).error is ErrorCode.unknown_member_id


def test_leader_is_removed_when_it_sends_no_assignment_in_time() -> None:
    driver = Driver()
    tokens = [driver.member("a"), driver.member("b")]
    driver.wait(2 * DELAY_MS)
    generation = driver.reply(tokens[1], JoinResult).generation
    waits = driver.sync("b", generation)
    passed_ms = 0
    while passed_ms < REBALANCE_MS:
        driver.wait(SESSION_MS // 2)
        passed_ms += SESSION_MS // 2
        driver.heartbeat("a", generation)
    assert driver.reply(waits, SyncResult).error is ErrorCode.rebalance_in_progress
    assert driver.heartbeat("a", generation) is ErrorCode.unknown_member_id
    assert driver.reply(driver.join("b"), JoinResult).leader == "b"


def test_repeated_join_gets_the_same_generation() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    assert driver.reply(driver.join("b"), JoinResult).generation == generation
    assert driver.reply(driver.sync("b", generation), SyncResult).assignment == b"share of b"
    assert driver.describe().state == "Stable"


def test_leader_that_rejoins_starts_a_rebalance() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    leader = driver.join("a")
    assert driver.heartbeat("b", generation) is ErrorCode.rebalance_in_progress
    driver.join("b")
    assert driver.reply(leader, JoinResult).generation == generation + 1


def test_changed_subscription_starts_a_rebalance() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    driver.join("b", protocols=(("range", b"other"),))
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress


def test_protocol_is_common_to_all_and_preferred_by_most() -> None:
    driver = Driver()
    tokens = [
        driver.member("a", protocols=(("x", b""), ("range", b""), ("sticky", b""))),
        driver.member("b", protocols=(("sticky", b""), ("range", b""))),
        driver.member("c", protocols=(("range", b""), ("sticky", b""))),
    ]
    driver.wait(2 * DELAY_MS)
    assert driver.reply(tokens[0], JoinResult).protocol == "range"
    refused = driver.reply(driver.join(new="d", protocols=(("x", b""),)), JoinResult)
    assert refused.error is ErrorCode.inconsistent_group_protocol
    refused = driver.reply(driver.join(new="d", protocol_type="connect"), JoinResult)
    assert refused.error is ErrorCode.inconsistent_group_protocol


def test_unused_member_id_delays_a_rebalance_for_one_session() -> None:
    driver = Driver()
    generation = driver.stable("a")
    driver.join(new="b")
    driver.join("a")
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    driver.wait(SESSION_MS)
    assert driver.heartbeat("a", generation + 1) is ErrorCode.none
    assert driver.reply(driver.join("b"), JoinResult).error is ErrorCode.unknown_member_id


def test_older_client_joins_in_one_step() -> None:
    driver = Driver()
    token = driver.join(new="a", requires_member_id=False)
    driver.wait(DELAY_MS)
    assert driver.reply(token, JoinResult).member_id == "a"


def test_join_is_rejected_when_the_group_is_full() -> None:
    driver = Driver(group_settings(group_max_size=2))
    generation = driver.stable("a", "b")
    assert driver.reply(driver.join(new="c"), JoinResult).error is ErrorCode.group_max_size_reached
    assert driver.heartbeat("a", generation) is ErrorCode.none


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": -1}, ErrorCode.invalid_session_timeout),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
    ],
)
def test_invalid_join_is_rejected_and_creates_no_group(
    more: dict[str, object], error: ErrorCode
) -> None:
    driver = Driver()
    token = driver.join(**more)  # type: ignore[arg-type]
    assert driver.reply(token, JoinResult).error is error
    assert driver.listed() == ()


def test_requests_are_rejected_when_the_group_does_not_exist() -> None:
    driver = Driver()
    assert driver.heartbeat("a", 1) is ErrorCode.unknown_member_id
    assert driver.reply(driver.sync("a", 1), SyncResult).error is ErrorCode.unknown_member_id
    assert driver.leave(MemberIdentity("a")).error is ErrorCode.unknown_member_id
    assert driver.describe().error is ErrorCode.group_id_not_found
    assert driver.delete() is ErrorCode.group_id_not_found


def test_sync_is_rejected_for_another_generation_or_protocol() -> None:
    driver = Driver()
    generation = driver.stable("a")

    def error(**more: object) -> ErrorCode:
        return driver.reply(
            driver.sync("a", **{"generation": generation, **more}),  # type: ignore[arg-type]
            SyncResult,
        ).error

    assert error(generation=generation - 1) is ErrorCode.illegal_generation
    assert error(protocol="sticky") is ErrorCode.inconsistent_group_protocol
    assert error(protocol_type="connect") is ErrorCode.inconsistent_group_protocol
    assert error(protocol=None, protocol_type=None) is ErrorCode.none


def test_first_join_gets_a_response_when_it_is_sent_again() -> None:
    driver = Driver()
    first = driver.member("a")
    second = driver.join("a")
    assert driver.reply(first, JoinResult).error is ErrorCode.rebalance_in_progress
    driver.wait(DELAY_MS)
    assert driver.reply(second, JoinResult).error is ErrorCode.none


def test_sync_is_rejected_when_the_group_is_too_large_to_store() -> None:
    driver = Driver()
    token = driver.member("a")
    driver.wait(DELAY_MS)
    assert driver.reply(token, JoinResult).generation == 1
    large = driver.sync("a", 1, {"a": bytes(1_000_000)})
    assert driver.reply(large, SyncResult).error is ErrorCode.unknown_server_error
    assert driver.log == []
    fitting = driver.sync("a", 1, {"a": bytes(900_000)})
    assert driver.reply(fitting, SyncResult).error is ErrorCode.none


# Static members.


def static(driver: Driver, *names: str) -> int:
    """Let static members `i-<name>` form a group led by the first."""
    tokens = [driver.join(new=name, instance=f"i-{name}") for name in names]
    driver.wait(2 * DELAY_MS)
    generation = driver.reply(tokens[0], JoinResult).generation
    shares = {name: f"share of {name}".encode() for name in names}
    for name in names:
        who = MemberIdentity(name, f"i-{name}")
        driver.sync(name, generation, shares if name == names[0] else None, member=who)
    return generation


def test_restarted_static_member_keeps_its_assignment() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    back = driver.reply(driver.join(new="b2", instance="i-b"), JoinResult)
    assert (back.error, back.member_id, back.generation) == (ErrorCode.none, "b2", generation)
    assert back.leader == "a"
    who = MemberIdentity("b2", "i-b")
    shared = driver.reply(driver.sync("b2", generation, member=who), SyncResult)
    assert shared.assignment == b"share of b"
    assert driver.heartbeat("a", generation, "i-a") is ErrorCode.none
    assert driver.heartbeat("b", generation, "i-b") is ErrorCode.fenced_instance_id


@pytest.mark.parametrize("knows", [True, False])
def test_restarted_static_leader_does_not_assign_again(knows: bool) -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    token = driver.join(new="a2", instance="i-a", can_skip_assignment=knows)
    back = driver.reply(token, JoinResult)
    assert (back.generation, back.skip_assignment, len(back.members)) == (
        generation,
        knows,
        2 if knows else 0,
    )
    assert back.leader == ("a2" if knows else "a")
    driver.fail_over()
    assert {m.member_id for m in driver.describe().members} == {"a2", "b"}


def test_restarted_static_member_fences_its_old_process() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    driver.join("a", instance="i-a")  # the leader wants a rebalance
    old = driver.join("b", instance="i-b")
    assert driver.reply(old, JoinResult).generation == generation + 1
    waits = driver.sync("b", generation + 1, member=MemberIdentity("b", "i-b"))
    new = driver.join(new="b2", instance="i-b")
    assert driver.reply(waits, SyncResult).error is ErrorCode.fenced_instance_id
    assert new not in driver.replies
    driver.join("a", instance="i-a")
    assert driver.reply(new, JoinResult).generation == generation + 2


def test_restarted_static_member_continues_to_wait_for_the_join() -> None:
    driver = Driver()
    generation = driver.stable("x")
    driver.join(new="a", instance="i")
    driver.wait(1)
    back = driver.join(new="a2", instance="i")
    for _ in range(2 * SESSION_MS // 9_000 + 1):  # it waits, and sends no heartbeats
        driver.wait(9_000)
        assert driver.heartbeat("x", generation) is ErrorCode.rebalance_in_progress
    assert back not in driver.replies
    driver.join("x")
    joined = driver.reply(back, JoinResult)
    assert (joined.error, joined.generation) == (ErrorCode.none, generation + 1)


def test_leave_removes_a_static_member_by_its_instance_id() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    left = driver.leave(MemberIdentity("", "i-b"), MemberIdentity("", "i-x"))
    assert left.members == (ErrorCode.none, ErrorCode.unknown_member_id)
    assert driver.heartbeat("a", generation, "i-a") is ErrorCode.rebalance_in_progress


def test_absent_static_member_stays_until_its_session_expires() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    newcomer = driver.member("c", rebalance_timeout_ms=SESSION_MS // 2)
    driver.join("a", instance="i-a", rebalance_timeout_ms=SESSION_MS // 2)
    driver.wait(SESSION_MS - 1)
    assert newcomer not in driver.replies
    driver.wait(1)  # b's session ends before the 60 s it may take to join
    assert driver.reply(newcomer, JoinResult).generation == generation + 1


# A new coordinator.


def test_new_coordinator_keeps_members_and_sessions() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    before = driver.describe()
    driver.wait(SESSION_MS - 1)
    driver.fail_over()
    assert driver.describe() == before
    driver.wait(SESSION_MS - 1)
    assert driver.heartbeat("a", generation) is ErrorCode.none
    assert driver.heartbeat("b", generation) is ErrorCode.none
    driver.wait(SESSION_MS)
    assert driver.describe().state == "Empty"


def test_group_shrinks_to_the_first_joins_when_over_its_limit() -> None:
    driver = Driver()
    generation = driver.stable("a", "b", "c")
    driver.settings = group_settings(group_max_size=2)
    driver.fail_over()
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    tokens = [driver.join(name) for name in ("c", "b", "a")]
    assert driver.reply(tokens[2], JoinResult).error is ErrorCode.group_max_size_reached
    driver.wait(SESSION_MS)
    assert [m.member_id for m in driver.describe().members] == ["b", "c"]
    assert driver.reply(tokens[0], JoinResult).generation == generation + 1


def test_group_settings_are_those_of_the_brokers_configuration() -> None:
    given = {
        "group.max.size": "7",
        "group.consumer.assignors": "range",
        "group.consumer.migration.policy": "upgrade",
        "offsets.retention.minutes": "2",
    }
    settings = GroupSettings.of(parse_broker_configs(given))
    assert settings == group_settings(
        group_max_size=7,
        group_consumer_assignors=("range",),
        group_consumer_migration_policy="upgrade",
        offsets_retention_ms=120_000,
    )
    assert (settings.group_min_session_timeout_ms, settings.may_downgrade) == (6_000, False)


def test_lost_rebalance_is_repeated_by_a_new_coordinator() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    driver.member("c")
    assert len(driver.fail_over()) == 1
    assert driver.heartbeat("a", generation) is ErrorCode.none
    assert driver.reply(driver.join("c"), JoinResult).error is ErrorCode.unknown_member_id
    newcomer = driver.member("c")
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    driver.join("a")
    driver.join("b")
    assert driver.reply(newcomer, JoinResult).generation == generation + 1


def test_deleted_group_stays_deleted_after_a_replay() -> None:
    driver = Driver()
    generation = driver.stable("a")
    assert driver.delete() is ErrorCode.non_empty_group
    driver.leave(MemberIdentity("a"))
    assert driver.delete() is ErrorCode.none
    assert driver.heartbeat("a", generation) is ErrorCode.unknown_member_id
    driver.fail_over()
    assert driver.listed() == ()
