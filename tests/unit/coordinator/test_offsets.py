"""Committed offsets: permission to commit, fetches, transactions and expiry."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.messages import (
    FetchRequest,
    GroupOffset,
    GroupOffsetsResult,
    JoinResult,
    MemberIdentity,
)
from sparklog.core.errors import RecordTooLarge
from tests.harness.coordinator_settings import group_settings
from tests.harness.group_driver import DELAY_MS, GROUP, Driver, offset_of

OK = (ErrorCode.none,)
RETENTION_MS = 100_000
EXPIRING = group_settings(
    offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=1_000
)
PRODUCER = ProducerIdentity(7, 0)
A = MemberIdentity("a")


def test_commit_is_fetched_after_a_change_of_coordinator() -> None:
    driver = Driver()
    assert driver.commit(offset_of("t", 5, metadata="note"), offset_of("t", 6, 1)) == OK * 2
    driver.commit(offset_of("t", 8))
    for _ in range(2):
        assert driver.offset("t") == GroupOffset("t", 0, 8, 3, "")
        assert driver.offset("t", 1).offset == 6
        assert driver.offset("u") == GroupOffset("u", 0)
        driver.fail_over()


def test_fetch_without_partitions_returns_all_offsets() -> None:
    driver = Driver()
    driver.commit(offset_of("t", 5), offset_of("u", 6))
    token = driver.submit(lambda s, t, n: s.fetch(FetchRequest(GROUP, None), t, n))
    assert [o.offset for o in driver.reply(token, GroupOffsetsResult).offsets] == [5, 6]


def test_commit_is_rejected_from_clients_that_are_not_members() -> None:
    driver = Driver()
    generation = driver.stable("a")
    offset = offset_of("t", 5)
    assert driver.commit(offset, member=A, generation=generation) == OK
    assert driver.commit(offset) == (ErrorCode.unknown_member_id,)
    stale = driver.commit(offset, member=A, generation=generation - 1)
    assert stale == (ErrorCode.illegal_generation,)
    foreign = MemberIdentity("b")
    unknown = driver.commit(offset, member=foreign, generation=generation)
    assert unknown == (ErrorCode.unknown_member_id,)
    driver.join("a")
    rejoining = driver.commit(offset, member=A, generation=generation + 1)
    assert rejoining == (ErrorCode.rebalance_in_progress,)


def test_commit_with_a_generation_is_rejected_without_a_group() -> None:
    driver = Driver()
    refused = driver.commit(offset_of("t", 5), member=A, generation=3, knows_epochs=False)
    assert refused == (ErrorCode.illegal_generation,)
    assert driver.listed() == ()


def test_commit_of_fenced_static_member_is_rejected() -> None:
    driver = Driver()
    token = driver.join(new="a", instance="i")
    driver.wait(DELAY_MS)
    generation = driver.reply(token, JoinResult).generation
    driver.sync("a", generation, member=MemberIdentity("a", "i"))
    driver.join(new="a2", instance="i")
    old = MemberIdentity("a", "i")
    refused = driver.commit(offset_of("t", 5), member=old, generation=generation)
    assert refused == (ErrorCode.fenced_instance_id,)


def test_commit_extends_the_session_of_its_member() -> None:
    driver = Driver()
    generation = driver.stable("a")
    for number in range(5):
        driver.wait(9_000)
        assert driver.commit(offset_of("t", number), member=A, generation=generation) == OK


def test_too_long_metadata_is_rejected_for_its_partition_only() -> None:
    driver = Driver()
    codes = driver.commit(
        offset_of("t", 1, metadata="x" * 4096), offset_of("t", 2, 1, "\U0001f600" * 2048 + "é")
    )
    assert codes == (ErrorCode.none, ErrorCode.offset_metadata_too_large)
    assert driver.offset("t", 1).offset == -1
    driver = Driver()
    assert driver.commit(offset_of("t", 1, metadata="x" * 5000)) != OK
    assert driver.listed() == ()


def test_metadata_length_is_counted_as_in_java() -> None:
    driver = Driver()
    notes = "é" * 4096, "\U0001f600" * 2048
    for number, note in enumerate(notes):
        assert driver.commit(offset_of("t", 5, number, metadata=note)) == OK
        assert driver.offset("t", number).metadata == note


# Transactions.


def test_transactional_offsets_apply_when_it_commits() -> None:
    driver = Driver()
    driver.commit(offset_of("t", 5))
    assert driver.commit(offset_of("t", 9), producer=PRODUCER) == OK
    for _ in range(2):
        assert driver.offset("t").offset == 5
        unstable = driver.offset("t", stable=True)
        assert (unstable.error, unstable.offset) == (ErrorCode.unstable_offset_commit, -1)
        driver.fail_over()
    driver.end_transaction(PRODUCER, commit=True)
    for _ in range(2):
        assert driver.offset("t", stable=True).offset == 9
        driver.fail_over()


def test_transactional_offsets_vanish_when_it_aborts() -> None:
    driver = Driver()
    driver.commit(offset_of("t", 9), producer=PRODUCER)
    assert driver.listed()[0].group_id == GROUP
    driver.end_transaction(PRODUCER, commit=False)
    for _ in range(2):
        assert driver.offset("t", stable=True).offset == -1
        assert driver.listed() == ()
        driver.fail_over()


@pytest.mark.parametrize("how", ["group", "offsets", "topic"])
@pytest.mark.parametrize("fails_over", [False, True])
def test_deleted_offset_stays_deleted_when_a_transaction_ends(how: str, fails_over: bool) -> None:
    driver = Driver()
    driver.commit(offset_of("t", 5), offset_of("u", 5))
    driver.commit(offset_of("t", 9), offset_of("t", 9, 1), producer=PRODUCER)
    driver.commit(offset_of("t", 7), producer=ProducerIdentity(8, 0))
    if how == "group":
        assert driver.delete() is ErrorCode.none
    elif how == "offsets":
        assert driver.delete_offsets(("t", 0), ("t", 1)).offsets == OK + OK
    else:
        driver.submit(lambda s, t, n: s.forget_topics(frozenset({"t"}), t, n))
    if fails_over:
        driver.fail_over()
    for producer in (PRODUCER, ProducerIdentity(8, 0)):
        driver.end_transaction(producer, commit=True)
    assert [driver.offset("t", n).offset for n in (0, 1)] == [-1, -1]
    assert driver.offset("u").offset == (-1 if how == "group" else 5)
    assert len(driver.listed()) == (0 if how == "group" else 1)


@pytest.mark.parametrize("fails_over", [None, "before", "after"])
def test_later_commit_wins_over_an_earlier_transaction(fails_over: str | None) -> None:
    driver = Driver()
    driver.commit(offset_of("u", 1))
    driver.commit(offset_of("t", 9), producer=PRODUCER)
    if fails_over == "before":
        driver.fail_over()
    driver.commit(offset_of("t", 12))
    if fails_over == "after":
        driver.fail_over()
    driver.end_transaction(PRODUCER, commit=True)
    assert driver.offset("t").offset == 12


def test_transactional_commit_of_older_client_needs_no_member() -> None:
    driver = Driver()
    generation = driver.stable("a")
    assert driver.commit(offset_of("t", 1), producer=PRODUCER) == OK
    stale = driver.commit(offset_of("t", 1), producer=PRODUCER, member=A, generation=generation - 1)
    assert stale == (ErrorCode.illegal_generation,)


# Deletion and expiry.


def test_delete_keeps_offsets_of_subscribed_topics() -> None:
    driver = Driver()
    generation = driver.stable("a")
    driver.commit(offset_of("t", 1), offset_of("u", 2), member=A, generation=generation)
    deleted = driver.delete_offsets(("t", 0), ("u", 0), ("u", 7))
    assert deleted.offsets == (ErrorCode.group_subscribed_to_topic, ErrorCode.none, ErrorCode.none)
    driver.leave(A)
    for _ in range(2):
        assert (driver.offset("t").offset, driver.offset("u").offset) == (1, -1)
        driver.fail_over()
    assert driver.delete_offsets(("t", 0)).offsets == OK


def test_delete_of_offsets_is_rejected_without_a_group() -> None:
    assert Driver().delete_offsets(("t", 0)).error is ErrorCode.group_id_not_found
    driver = Driver()
    driver.member("w", protocol_type="connect", protocols=(("compatible", b"?"),))
    assert driver.delete_offsets(("t", 0)).error is ErrorCode.non_empty_group


def test_delete_removes_a_group_with_its_offsets() -> None:
    driver = Driver()
    driver.stable("a")
    driver.leave(A)
    driver.commit(offset_of("t", 1))
    assert driver.delete() is ErrorCode.none
    for _ in range(2):
        assert driver.offset("t").offset == -1
        assert driver.listed() == ()
        driver.fail_over()


def test_delete_removes_a_group_with_many_offsets_in_steps() -> None:
    driver = Driver()
    for first in range(0, 2_500, 500):
        driver.commit(*(offset_of("t", 1, first + n) for n in range(500)))
    assert driver.delete() is ErrorCode.none
    for _ in range(2):
        assert driver.listed() == ()
        driver.fail_over()


def test_too_large_commit_changes_nothing() -> None:
    driver = Driver()
    driver.commit(offset_of("t", 1))
    with pytest.raises(RecordTooLarge):
        driver.commit(*(offset_of("t", 2, n, "x" * 4_000) for n in range(300)))
    assert driver.offset("t").offset == 1


def test_offsets_without_members_expire_after_their_commit() -> None:
    driver = Driver(EXPIRING)
    driver.commit(offset_of("t", 1))
    driver.wait(RETENTION_MS - 1)
    driver.commit(offset_of("u", 1))
    driver.wait(1_001)
    assert (driver.offset("t").offset, driver.offset("u").offset) == (-1, 1)
    driver.wait(RETENTION_MS)
    assert driver.listed() == ()
    driver.fail_over()
    assert driver.listed() == ()


def test_offsets_expire_after_the_last_member_left() -> None:
    driver = Driver(EXPIRING)
    generation = driver.stable("a")
    driver.commit(offset_of("t", 1), offset_of("u", 1), member=A, generation=generation)
    for _ in range(3 * RETENTION_MS // 5_000):
        driver.wait(5_000)
        assert driver.heartbeat("a", generation) is ErrorCode.none
    assert (driver.offset("t").offset, driver.offset("u").offset) == (1, -1)
    driver.leave(A)
    driver.wait(RETENTION_MS - 1)
    driver.fail_over()
    assert driver.offset("t").offset == 1
    driver.wait(1_001)
    assert driver.offset("t").offset == -1
    assert driver.listed() == ()


def test_offsets_expire_after_an_older_clients_retention_time() -> None:
    driver = Driver(EXPIRING)
    driver.commit(offset_of("t", 1), retention_ms=5_000)
    driver.commit(offset_of("u", 1), retention_ms=2 * RETENTION_MS)
    driver.wait(6_001)
    assert driver.offset("t").offset == -1
    driver.wait(RETENTION_MS + 1_000)
    assert driver.offset("u").offset == 1


def test_offsets_do_not_expire_while_a_transaction_is_pending() -> None:
    driver = Driver(EXPIRING)
    driver.commit(offset_of("t", 1))
    driver.commit(offset_of("t", 2), producer=PRODUCER)
    driver.wait(2 * RETENTION_MS)
    assert driver.offset("t").offset == 1


def test_offsets_are_removed_when_their_topic_is_deleted() -> None:
    driver = Driver()
    driver.commit(offset_of("t", 1), offset_of("u", 2))
    token = driver.submit(lambda s, t, n: s.forget_topics(frozenset({"t"}), t, n))
    assert driver.replies[token] is False
    for _ in range(2):
        assert (driver.offset("t").offset, driver.offset("u").offset) == (-1, 2)
        driver.fail_over()


def test_many_expired_offsets_are_removed_in_steps() -> None:
    driver = Driver(EXPIRING)
    for number in range(2_500):
        driver.commit(offset_of("t", 1, number), group_id=f"g{number}")
    driver.log.clear()
    driver.wait(RETENTION_MS + 1_500)
    assert driver.listed() == ()
    assert len(driver.log) == 2_500
