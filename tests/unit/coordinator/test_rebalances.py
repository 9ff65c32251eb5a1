"""Members of classic groups: joining, sharing, leaving, falling silent; as clients see it."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.group_messages import Joined, MemberIdentity, Synced
from sparklog.coordinator.group_settings import GroupSettings
from sparklog.coordinator.rebalancing import NEW_MEMBER_TIMEOUT_MS
from sparklog.core.broker_settings import parse_broker_configs
from tests.unit.coordinator.group_driver import (
    DELAY_MS,
    READS_T,
    REBALANCE_MS,
    SESSION_MS,
    Driver,
)


def test_members_that_come_together_share_one_generation() -> None:
    driver = Driver()
    first = driver.member("a")
    driver.wait(DELAY_MS - 1)
    second = driver.member("b")
    assert first not in driver.replies
    driver.wait(DELAY_MS + 1)
    told, other = driver.reply(first, Joined), driver.reply(second, Joined)
    assert (told.generation, told.leader, told.protocol) == (1, "a", "range")
    assert [m.member_id for m in told.members] == ["a", "b"]
    assert told.members[0].metadata == READS_T
    assert (other.generation, other.leader, other.members) == (1, "a", ())

    waits = driver.sync("b", 1)
    assert waits not in driver.replies
    led = driver.sync("a", 1, {"a": b"for a", "b": b"for b"})
    assert driver.reply(led, Synced) == Synced(ErrorCode.none, "consumer", "range", b"for a")
    assert driver.reply(waits, Synced).assignment == b"for b"
    assert driver.heartbeat("a", 1) is ErrorCode.none
    described = driver.describe()
    assert (described.state, described.protocol) == ("Stable", "range")
    assert [(m.member_id, m.assignment) for m in described.members] == [
        ("a", b"for a"),
        ("b", b"for b"),
    ]


def test_a_first_rebalance_waits_no_longer_than_its_members_may() -> None:
    driver = Driver()
    tokens = [driver.member("m0", rebalance_timeout_ms=3 * DELAY_MS)]
    for number in range(1, 4):
        driver.wait(DELAY_MS - 1)
        tokens.append(driver.member(f"m{number}", rebalance_timeout_ms=3 * DELAY_MS))
    assert not driver.replies.keys() & set(tokens[:3])
    driver.wait(5)
    assert driver.reply(tokens[0], Joined).generation == 1
    assert len(driver.reply(tokens[0], Joined).members) >= 3


def test_a_newcomer_makes_everybody_join_again() -> None:
    driver = Driver()
    generation = driver.stable("a")
    newcomer = driver.member("b")
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    assert newcomer not in driver.replies
    again = driver.join("a")
    assert driver.reply(again, Joined).generation == generation + 1
    assert driver.reply(newcomer, Joined).leader == "a"
    assert driver.heartbeat("a", generation) is ErrorCode.illegal_generation


def test_who_does_not_join_again_in_time_is_no_member_any_more() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    newcomer = driver.member("c")
    again = driver.join("b")
    while driver.now_ms and again not in driver.replies:
        driver.heartbeat("a", generation)
        driver.wait(SESSION_MS // 2)
    assert driver.reply(newcomer, Joined).generation == generation + 1
    assert driver.reply(again, Joined).leader == "b"
    assert driver.heartbeat("a", generation + 1) is ErrorCode.unknown_member_id


def test_a_silent_member_is_let_go_when_its_session_ends() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    codes = []
    for _ in range(4):
        driver.wait(SESSION_MS // 4)
        codes.append(driver.heartbeat("a", generation))
    assert codes == [ErrorCode.none] * 3 + [ErrorCode.rebalance_in_progress]
    again = driver.join("a")
    assert [m.member_id for m in driver.reply(again, Joined).members] == ["a"]
    assert driver.heartbeat("b", generation) is ErrorCode.unknown_member_id


def test_a_member_that_leaves_leaves_at_once() -> None:
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


def test_a_member_that_is_removed_while_it_waits_is_told_to_begin_again() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    waits = driver.join("b", protocols=(("range", b"other"),))
    driver.leave(MemberIdentity("b"))
    told = driver.reply(waits, Joined)
    assert (told.error, told.member_id) == (ErrorCode.unknown_member_id, "")
    driver.join("a")
    assert driver.heartbeat("a", generation + 1) is ErrorCode.none


def test_a_newcomer_that_waits_too_long_is_given_up() -> None:
    driver = Driver()
    static(driver, "a")
    patient = {"rebalance_timeout_ms": 10 * NEW_MEMBER_TIMEOUT_MS}
    newcomer = driver.member("c", **patient)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // SESSION_MS + 1):
        assert newcomer not in driver.replies
        driver.wait(SESSION_MS - 1)
        driver.heartbeat("a", 1, "i-a")
    driver.wait(SESSION_MS)
    assert driver.reply(newcomer, Joined).error is ErrorCode.unknown_member_id


def test_who_brings_no_assignment_in_time_is_let_go() -> None:
    driver = Driver()
    tokens = [driver.member("a"), driver.member("b")]
    driver.wait(2 * DELAY_MS)
    generation = driver.reply(tokens[1], Joined).generation
    waits = driver.sync("b", generation)
    passed_ms = 0
    while passed_ms < REBALANCE_MS:
        driver.wait(SESSION_MS // 2)
        passed_ms += SESSION_MS // 2
        driver.heartbeat("a", generation)
    assert driver.reply(waits, Synced).error is ErrorCode.rebalance_in_progress
    assert driver.heartbeat("a", generation) is ErrorCode.unknown_member_id
    assert driver.reply(driver.join("b"), Joined).leader == "b"


def test_a_client_that_missed_the_answer_gets_it_again() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    assert driver.reply(driver.join("b"), Joined).generation == generation
    assert driver.reply(driver.sync("b", generation), Synced).assignment == b"share of b"
    assert driver.describe().state == "Stable"


def test_a_leader_that_joins_again_wants_a_rebalance() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    leader = driver.join("a")
    assert driver.heartbeat("b", generation) is ErrorCode.rebalance_in_progress
    driver.join("b")
    assert driver.reply(leader, Joined).generation == generation + 1


def test_other_interests_of_a_member_make_a_rebalance() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    driver.join("b", protocols=(("range", b"other"),))
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress


def test_the_protocol_is_one_that_all_know_and_most_prefer() -> None:
    driver = Driver()
    tokens = [
        driver.member("a", protocols=(("x", b""), ("range", b""), ("sticky", b""))),
        driver.member("b", protocols=(("sticky", b""), ("range", b""))),
        driver.member("c", protocols=(("range", b""), ("sticky", b""))),
    ]
    driver.wait(2 * DELAY_MS)
    assert driver.reply(tokens[0], Joined).protocol == "range"
    refused = driver.reply(driver.join(new="d", protocols=(("x", b""),)), Joined)
    assert refused.error is ErrorCode.inconsistent_group_protocol
    refused = driver.reply(driver.join(new="d", protocol_type="connect"), Joined)
    assert refused.error is ErrorCode.inconsistent_group_protocol


def test_an_id_given_out_and_not_used_holds_a_rebalance_up_for_one_session() -> None:
    driver = Driver()
    generation = driver.stable("a")
    driver.join(new="b")
    driver.join("a")
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    driver.wait(SESSION_MS)
    assert driver.heartbeat("a", generation + 1) is ErrorCode.none
    assert driver.reply(driver.join("b"), Joined).error is ErrorCode.unknown_member_id


def test_older_clients_join_in_one_step() -> None:
    driver = Driver()
    token = driver.join(new="a", requires_member_id=False)
    driver.wait(DELAY_MS)
    assert driver.reply(token, Joined).member_id == "a"


def test_a_group_has_at_most_so_many_members() -> None:
    driver = Driver(GroupSettings(group_max_size=2))
    generation = driver.stable("a", "b")
    assert driver.reply(driver.join(new="c"), Joined).error is ErrorCode.group_max_size_reached
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
def test_a_join_that_cannot_be_is_refused_and_leaves_nothing(
    more: dict[str, object], error: ErrorCode
) -> None:
    driver = Driver()
    token = driver.join(**more)  # type: ignore[arg-type]
    assert driver.reply(token, Joined).error is error
    assert driver.listed() == ()


def test_requests_about_a_group_that_is_not_there() -> None:
    driver = Driver()
    assert driver.heartbeat("a", 1) is ErrorCode.unknown_member_id
    assert driver.reply(driver.sync("a", 1), Synced).error is ErrorCode.unknown_member_id
    assert driver.leave(MemberIdentity("a")).error is ErrorCode.unknown_member_id
    assert driver.describe().error is ErrorCode.group_id_not_found
    assert driver.delete() is ErrorCode.group_id_not_found


def test_a_sync_of_another_generation_or_protocol_is_refused() -> None:
    driver = Driver()
    generation = driver.stable("a")

    def error(**more: object) -> ErrorCode:
        return driver.reply(driver.sync("a", **{"generation": generation, **more}), Synced).error  # type: ignore[arg-type]

    assert error(generation=generation - 1) is ErrorCode.illegal_generation
    assert error(protocol="sticky") is ErrorCode.inconsistent_group_protocol
    assert error(protocol_type="connect") is ErrorCode.inconsistent_group_protocol
    assert error(protocol=None, protocol_type=None) is ErrorCode.none


def test_a_join_sent_again_leaves_the_first_one_not_unanswered() -> None:
    driver = Driver()
    first = driver.member("a")
    second = driver.join("a")
    assert driver.reply(first, Joined).error is ErrorCode.rebalance_in_progress
    driver.wait(DELAY_MS)
    assert driver.reply(second, Joined).error is ErrorCode.none


def test_a_group_too_large_to_be_stored_gets_no_assignment() -> None:
    driver = Driver()
    token = driver.member("a")
    driver.wait(DELAY_MS)
    assert driver.reply(token, Joined).generation == 1
    large = driver.sync("a", 1, {"a": bytes(1_000_000)})
    assert driver.reply(large, Synced).error is ErrorCode.unknown_server_error
    assert driver.log == []
    fitting = driver.sync("a", 1, {"a": bytes(900_000)})
    assert driver.reply(fitting, Synced).error is ErrorCode.none


# Static members.


def static(driver: Driver, *names: str) -> int:
    """Have static members `i-<name>` form a group led by the first."""
    tokens = [driver.join(new=name, instance=f"i-{name}") for name in names]
    driver.wait(2 * DELAY_MS)
    generation = driver.reply(tokens[0], Joined).generation
    shares = {name: f"share of {name}".encode() for name in names}
    for name in names:
        who = MemberIdentity(name, f"i-{name}")
        driver.sync(name, generation, shares if name == names[0] else None, member=who)
    return generation


def test_a_static_member_that_restarts_gets_its_share_back_without_a_rebalance() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    back = driver.reply(driver.join(new="b2", instance="i-b"), Joined)
    assert (back.error, back.member_id, back.generation) == (ErrorCode.none, "b2", generation)
    assert back.leader == "a"
    who = MemberIdentity("b2", "i-b")
    shared = driver.reply(driver.sync("b2", generation, member=who), Synced)
    assert shared.assignment == b"share of b"
    assert driver.heartbeat("a", generation, "i-a") is ErrorCode.none
    assert driver.heartbeat("b", generation, "i-b") is ErrorCode.fenced_instance_id


@pytest.mark.parametrize("knows", [True, False])
def test_a_static_leader_that_restarts_assigns_nothing(knows: bool) -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    token = driver.join(new="a2", instance="i-a", can_skip_assignment=knows)
    back = driver.reply(token, Joined)
    assert (back.generation, back.skip_assignment, len(back.members)) == (
        generation,
        knows,
        2 if knows else 0,
    )
    assert back.leader == ("a2" if knows else "a")
    driver.fail_over()
    assert {m.member_id for m in driver.describe().members} == {"a2", "b"}


def test_a_static_member_that_restarts_in_a_rebalance_fences_the_one_before_it() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    driver.join("a", instance="i-a")  # the leader wants a rebalance
    old = driver.join("b", instance="i-b")
    assert driver.reply(old, Joined).generation == generation + 1
    waits = driver.sync("b", generation + 1, member=MemberIdentity("b", "i-b"))
    new = driver.join(new="b2", instance="i-b")
    assert driver.reply(waits, Synced).error is ErrorCode.fenced_instance_id
    assert new not in driver.replies
    driver.join("a", instance="i-a")
    assert driver.reply(new, Joined).generation == generation + 2


def test_a_static_member_that_restarts_while_it_waits_to_join_waits_on() -> None:
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
    joined = driver.reply(back, Joined)
    assert (joined.error, joined.generation) == (ErrorCode.none, generation + 1)


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    left = driver.leave(MemberIdentity("", "i-b"), MemberIdentity("", "i-x"))
    assert left.members == (ErrorCode.none, ErrorCode.unknown_member_id)
    assert driver.heartbeat("a", generation, "i-a") is ErrorCode.rebalance_in_progress


def test_static_members_that_are_away_keep_their_place_until_their_session_ends() -> None:
    driver = Driver()
    generation = static(driver, "a", "b")
    newcomer = driver.member("c", rebalance_timeout_ms=SESSION_MS // 2)
    driver.join("a", instance="i-a", rebalance_timeout_ms=SESSION_MS // 2)
    driver.wait(SESSION_MS - 1)
    assert newcomer not in driver.replies
    driver.wait(1)  # b's session ends before the 60 s it may take to join
    assert driver.reply(newcomer, Joined).generation == generation + 1


# A new coordinator.


def test_a_new_coordinator_goes_on_with_members_as_they_were() -> None:
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


def test_a_group_that_is_too_large_by_now_shrinks_to_whoever_comes_first() -> None:
    driver = Driver()
    generation = driver.stable("a", "b", "c")
    driver.settings = GroupSettings(group_max_size=2)
    driver.fail_over()
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    tokens = [driver.join(name) for name in ("c", "b", "a")]
    assert driver.reply(tokens[2], Joined).error is ErrorCode.group_max_size_reached
    driver.wait(SESSION_MS)
    assert [m.member_id for m in driver.describe().members] == ["b", "c"]
    assert driver.reply(tokens[0], Joined).generation == generation + 1


def test_settings_have_the_same_defaults_here_and_in_the_brokers_table() -> None:
    assert GroupSettings.of(parse_broker_configs({})) == GroupSettings()


def test_a_rebalance_that_a_new_coordinator_does_not_know_is_done_again() -> None:
    driver = Driver()
    generation = driver.stable("a", "b")
    driver.member("c")
    assert len(driver.fail_over()) == 1
    assert driver.heartbeat("a", generation) is ErrorCode.none
    assert driver.reply(driver.join("c"), Joined).error is ErrorCode.unknown_member_id
    newcomer = driver.member("c")
    assert driver.heartbeat("a", generation) is ErrorCode.rebalance_in_progress
    driver.join("a")
    driver.join("b")
    assert driver.reply(newcomer, Joined).generation == generation + 1


def test_a_deleted_group_stays_deleted() -> None:
    driver = Driver()
    generation = driver.stable("a")
    assert driver.delete() is ErrorCode.non_empty_group
    driver.leave(MemberIdentity("a"))
    assert driver.delete() is ErrorCode.none
    assert driver.heartbeat("a", generation) is ErrorCode.unknown_member_id
    driver.fail_over()
    assert driver.listed() == ()
