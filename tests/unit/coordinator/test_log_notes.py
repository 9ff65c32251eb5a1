"""Log lines about groups: joins, rebalances with reasons, removals."""

from __future__ import annotations

from sparklog.coordinator import log_notes
from sparklog.coordinator.messages import MemberIdentity
from tests.harness.group_driver import DELAY_MS, GROUP, REBALANCE_MS, SESSION_MS, Driver
from tests.unit.coordinator.consumer.test_groups import SESSION_MS as CONSUMER_SESSION_MS
from tests.unit.coordinator.consumer.test_groups import Coordinator


def preparing(state: str, generation: int, reason: str) -> str:
    return (
        f"Preparing to rebalance group {GROUP} in state {state} with old generation "
        f"{generation} (reason: {reason})"
    )


def test_classic_group_logs_joins_and_the_reason_of_a_rebalance() -> None:
    driver = Driver()
    driver.stable("one", "two")
    assert driver.notes == [
        (
            f"Member one with client id client joins group {GROUP} in Empty state, adding it to "
            "the group"
        ),
        preparing("Empty", 0, "adding new member one"),
        (
            f"Member two with client id client joins group {GROUP} in PreparingRebalance state, "
            "adding it to the group"
        ),
        f"Stabilized group {GROUP} generation 1 with 2 members",
        (
            f"Assignment received from leader one for group {GROUP} for generation 1. The group "
            "has 2 members"
        ),
    ]


def test_classic_group_logs_leaving_members_and_when_it_is_empty() -> None:
    driver = Driver()
    driver.stable("one")
    driver.notes.clear()
    driver.leave(MemberIdentity("one"))
    assert driver.notes == [
        f"Members one left group {GROUP} by LeaveGroup",
        preparing("Stable", 1, "removing one on LeaveGroup"),
        f"Group {GROUP} with generation 2 is now empty",
    ]


def test_classic_group_logs_removed_members_with_the_reason() -> None:
    driver = Driver()
    driver.stable("one")
    driver.notes.clear()
    driver.wait(SESSION_MS)
    assert driver.notes[:2] == [
        f"Member one in group {GROUP} has failed, removing it from the group",
        preparing("Stable", 1, "removing member one on heartbeat expiration"),
    ]


def test_classic_group_logs_members_without_a_sync() -> None:
    driver = Driver()
    driver.member("one", session_timeout_ms=10 * SESSION_MS)
    driver.wait(DELAY_MS)
    driver.notes.clear()
    driver.wait(REBALANCE_MS)
    assert driver.notes[:2] == [
        f"Group {GROUP} removed members who haven't sent their sync: one",
        preparing("CompletingRebalance", 1, "removing one on pending sync request expiration"),
    ]


def test_consumer_group_logs_joins_leaves_and_fencing() -> None:
    coordinator = Coordinator()
    coordinator.join("one")
    assert coordinator.groups.take_notes() == [
        "[GroupId g] Member one with client id client joined the consumer group",
        (
            "[GroupId g] Bumped group epoch to 1 (reason: Member one with client id client joined "
            "the consumer group)"
        ),
        "[GroupId g] Computed a new target assignment for epoch 1",
    ]
    coordinator.send("one", 1)
    assert coordinator.groups.take_notes() == []
    coordinator.pass_time(CONSUMER_SESSION_MS)
    gone = "Member one fenced because its session expired"
    assert coordinator.groups.take_notes() == [
        f"[GroupId g] {gone}",
        f"[GroupId g] Bumped group epoch to 2 (reason: {gone})",
    ]


def test_a_name_neither_forges_a_line_nor_fills_the_log() -> None:
    assert log_notes.name("a\nb\x1b[2J") == r"a\nb\x1b[2J"
    assert len(log_notes.name("x" * 32_767)) == log_notes.CHARACTERS_MAX + 1
    assert log_notes.members(f"m{n}" for n in range(7)) == "m0, m1, m2, m3, m4 and 2 more"
