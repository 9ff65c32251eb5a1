"""What a leader decides about its followers and the high watermark, case by case."""

from __future__ import annotations

import pytest

from sparklog.cluster.leadership import (
    CommitRules,
    ExpandIsr,
    HighWatermark,
    Leadership,
    ShrinkIsr,
)
from sparklog.core.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend
from sparklog.core.settings import parse_topic_configs

STORAGE = CommitRules()
MEMORY = CommitRules(waits_for_storage=False)
LAG_MS = STORAGE.replica_lag_time_max_ms


def leading(
    isr: tuple[int, ...] = (1, 2, 3),
    rules: CommitRules = STORAGE,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> Leadership:
    """Return broker 1 leading from offset 100 on."""
    return Leadership(
        1, 100, replicas=replicas, isr=isr, joinable=replicas, rules=rules, now_ms=1_000
    )


def test_a_lone_leader_commits_what_the_wal_holds() -> None:
    for rules in (STORAGE, MEMORY):
        leader = leading(isr=(1,), rules=rules)
        leader.appended(110)
        assert leader.high_watermark == 100
        assert leader.durable(105) == (HighWatermark(105),)
        assert leader.durable(103) == ()


def test_storage_and_every_in_sync_broker_hold_what_is_committed() -> None:
    leader = leading()
    leader.appended(110)
    assert leader.durable(110) == ()
    assert leader.follower_fetched(2, 110, 1_001) == ()
    assert leader.follower_fetched(3, 104, 1_001) == (HighWatermark(104),)


def test_two_in_sync_brokers_commit_without_storage_when_the_topic_says_so() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    assert leader.follower_fetched(2, 107, 1_001) == (HighWatermark(107),)
    assert leader.durable_end == 100


@pytest.mark.parametrize("rules", [STORAGE, MEMORY])
def test_acks_1_needs_the_wal_or_one_follower_that_is_surely_in_sync(rules: CommitRules) -> None:
    leader = leading(isr=(1, 2), rules=rules)
    leader.appended(110)
    assert leader.copied_end == 100
    leader.follower_fetched(3, 108, 1_001)  # is asked to join, and counts only when it has
    assert leader.copied_end == 100
    leader.follower_fetched(2, 104, 1_001)
    assert leader.copied_end == 104
    leader.durable(106)
    assert leader.copied_end == 106
    leader.follower_fetched(2, 109, 1_002)
    leader.forget(2)
    assert leader.copied_end == 109, "it never moves back"


def test_a_pending_shrink_makes_the_last_two_wait_for_storage() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    assert leader.tick(1_001 + LAG_MS) == (ShrinkIsr(frozenset({2})),)
    assert leader.follower_fetched(2, 110, 1_002 + LAG_MS) == ()
    assert leader.durable(108) == (HighWatermark(108),)


def test_an_expansion_counts_at_once_and_makes_memory_enough_only_when_committed() -> None:
    leader = leading(isr=(1,), rules=MEMORY)
    assert leader.follower_fetched(2, 100, 1_001) == (ExpandIsr(2),)
    assert leader.maximal_isr == {1, 2}
    leader.appended(110)
    assert leader.follower_fetched(2, 110, 1_002) == ()
    assert leader.durable(104) == (HighWatermark(104),)
    changed = leader.metadata_changed(
        replicas=(1, 2, 3), isr=(1, 2), joinable=(1, 2, 3), now_ms=1_003
    )
    assert changed == (HighWatermark(110),)
    assert leader.pending is None


def test_a_refused_expansion_is_no_longer_waited_for() -> None:
    leader = leading(isr=(1,))
    leader.follower_fetched(2, 100, 1_001)
    leader.appended(110)
    assert leader.durable(110) == ()
    assert leader.isr_refused() == (HighWatermark(110),)


def test_other_metadata_changes_leave_a_proposal_pending() -> None:
    leader = leading(isr=(1,))
    leader.follower_fetched(2, 100, 1_001)
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1, 2), now_ms=1_002)
    assert leader.pending == ExpandIsr(2)
    assert leader.follower_fetched(3, 100, 1_003) == ()


def test_a_shrink_stays_pending_until_the_isr_shows_it() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    leader.tick(1_001 + LAG_MS)
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1, 2), joinable=(1, 2, 3), now_ms=1_002)
    assert leader.minimal_isr == {1}
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1, 2, 3), now_ms=1_003)
    assert leader.pending is None


def test_what_a_follower_had_before_it_began_anew_does_not_count() -> None:
    leader = leading(isr=(1, 2))
    leader.appended(110)
    leader.follower_fetched(2, 110, 1_001)
    leader.forget(2)
    assert leader.durable(110) == ()
    assert leader.follower_fetched(2, 110, 1_002) == (HighWatermark(110),)


def test_a_follower_joins_when_it_has_what_is_committed() -> None:
    leader = leading(isr=(1,))
    leader.appended(110)
    leader.durable(110)
    assert leader.follower_fetched(2, 109, 1_001) == ()
    assert leader.follower_fetched(2, 110, 1_002) == (ExpandIsr(2),)


def test_a_fenced_follower_does_not_join() -> None:
    leader = leading(isr=(1,))
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1, 3), now_ms=1_000)
    assert leader.follower_fetched(2, 100, 1_001) == ()
    assert leader.follower_fetched(3, 100, 1_001) == (ExpandIsr(3),)


def test_a_follower_always_a_round_trip_behind_stays_in_sync() -> None:
    leader = leading(isr=(1, 2))
    now_ms, end = 1_000, 100
    for _ in range(10):
        had, end = end, end + 10
        leader.appended(end)
        now_ms += LAG_MS // 2
        leader.follower_fetched(2, had, now_ms)
        assert leader.tick(now_ms) == ()


def test_a_follower_that_never_catches_up_is_asked_out() -> None:
    leader = leading(isr=(1, 2))
    end, at, now_ms = 100, 100, 1_000
    asked: tuple[object, ...] = ()
    for _ in range(4):
        end, at = end + 100, at + 1
        leader.appended(end)
        now_ms += LAG_MS // 2
        leader.follower_fetched(2, at, now_ms)
        asked = asked or leader.tick(now_ms)
    assert asked == (ShrinkIsr(frozenset({2})),)


def test_a_follower_of_an_idle_partition_stays_in_sync() -> None:
    leader = leading(isr=(1, 2))
    leader.follower_fetched(2, 100, 1_001)
    assert leader.tick(1_001 + 10 * LAG_MS) == ()


def test_the_last_other_broker_stays_while_the_leader_alone_would_hold_what_is_committed() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    leader.follower_fetched(2, 110, 1_001)
    leader.appended(120)
    late_ms = 1_002 + LAG_MS
    assert leader.tick(late_ms) == ()
    leader.durable(110)
    assert leader.tick(late_ms) == (ShrinkIsr(frozenset({2})),)


def test_a_broker_that_lost_its_memory_is_asked_out_at_once() -> None:
    leader = leading(isr=(1, 2, 3))
    leader.appended(110)
    leader.durable(110)
    leader.follower_fetched(2, 110, 1_001)
    assert leader.follower_fetched(3, 110, 1_001) == (HighWatermark(110),)
    assert leader.follower_fetched(3, 100, 1_002) == (ShrinkIsr(frozenset({3})),)
    assert leader.high_watermark == 110


def test_what_is_flushed_need_not_be_copied() -> None:
    leader = leading(isr=(1, 2))
    leader.appended(110)
    leader.durable(110)
    leader.follower_fetched(2, 110, 1_001)
    leader.flushed(110)
    leader.forget(2)
    assert leader.follower_fetched(2, 40, 1_002) == ()
    assert leader.follower_fetched(2, 110, 1_003) == ()
    assert leader.pending is None


def test_strangers_and_offsets_never_given_out_are_ignored() -> None:
    leader = leading(isr=(1, 2))
    leader.appended(110)
    leader.durable(110)
    assert leader.follower_fetched(9, 110, 1_001) == ()
    assert leader.follower_fetched(2, 111, 1_001) == ()
    assert leader.high_watermark == 100


def test_the_high_watermark_stays_when_the_rules_get_stricter() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    leader.follower_fetched(2, 110, 1_001)
    assert leader.rules_changed(STORAGE) == ()
    assert leader.high_watermark == 110


def test_too_few_in_sync_is_told_before_and_after_the_append() -> None:
    leader = leading(isr=(1, 2), rules=CommitRules(min_insync_replicas=2))
    leader.check_enough()
    leader.appended(110)
    leader.durable(110)
    assert not leader.is_committed(110)
    leader.follower_fetched(2, 110, 1_001)
    assert leader.is_committed(110)
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1,), now_ms=1_002)
    with pytest.raises(NotEnoughReplicasAfterAppend) as after:
        leader.is_committed(110)
    with pytest.raises(NotEnoughReplicas) as before:
        leader.check_enough()
    assert (before.value.kafka_code, after.value.kafka_code) == (19, 20)
    assert before.value.retriable


def test_no_more_in_sync_replicas_are_asked_for_than_there_are_replicas() -> None:
    leader = leading(isr=(1,), replicas=(1,), rules=CommitRules(min_insync_replicas=2))
    leader.check_enough()


def test_rules_come_from_the_topic() -> None:
    config = parse_topic_configs({"sparklog.commit": "memory", "min.insync.replicas": "2"})
    assert CommitRules.of(config, 5_000) == CommitRules(
        waits_for_storage=False, min_insync_replicas=2, replica_lag_time_max_ms=5_000
    )
