"""A leader's decisions about its followers and the high watermark, case by case."""

from __future__ import annotations

import pytest

from sparklog.cluster.controller.leader_state import (
    CommitRules,
    ExpandIsr,
    HighWatermark,
    LeaderState,
    ShrinkIsr,
)
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend

STORAGE = CommitRules()
MEMORY = CommitRules(waits_for_storage=False)
LAG_MS = STORAGE.replica_lag_time_max_ms


def leading(
    isr: tuple[int, ...] = (1, 2, 3),
    rules: CommitRules = STORAGE,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> LeaderState:
    """Return broker 1 leading from offset 100 on."""
    return LeaderState(
        1, 100, replicas=replicas, isr=isr, joinable=replicas, rules=rules, now_ms=1_000
    )


def test_lone_leader_commits_up_to_the_durable_end() -> None:
    for rules in (STORAGE, MEMORY):
        leader = leading(isr=(1,), rules=rules)
        leader.appended(110)
        assert leader.high_watermark == 100
        assert leader.durable(105) == (HighWatermark(105),)
        assert leader.durable(103) == ()


def test_commit_waits_for_the_wal_and_all_in_sync_replicas() -> None:
    leader = leading()
    leader.appended(110)
    assert leader.durable(110) == ()
    assert leader.follower_fetched(2, 110, 1_001) == ()
    assert leader.follower_fetched(3, 104, 1_001) == (HighWatermark(104),)


def test_commit_in_memory_needs_two_in_sync_replicas() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    assert leader.follower_fetched(2, 107, 1_001) == (HighWatermark(107),)
    assert leader.durable_end == 100


@pytest.mark.parametrize("rules", [STORAGE, MEMORY])
def test_acks_1_needs_the_wal_or_one_in_sync_follower(rules: CommitRules) -> None:
    leader = leading(isr=(1, 2), rules=rules)
    leader.appended(110)
    assert leader.copied_end == 100
    # is proposed for the ISR, and counts only after the commit
    leader.follower_fetched(3, 108, 1_001)
    assert leader.copied_end == 100
    leader.follower_fetched(2, 104, 1_001)
    assert leader.copied_end == 104
    leader.durable(106)
    assert leader.copied_end == 106
    leader.follower_fetched(2, 109, 1_002)
    leader.forget(2)
    assert leader.copied_end == 109, "it never moves back"


def test_commit_waits_for_the_wal_while_a_shrink_is_pending() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    assert leader.tick(1_001 + LAG_MS) == (ShrinkIsr(frozenset({2})),)
    assert leader.follower_fetched(2, 110, 1_002 + LAG_MS) == ()
    assert leader.durable(108) == (HighWatermark(108),)


def test_pending_expansion_counts_for_commits_only() -> None:
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


def test_commit_stops_waiting_for_a_rejected_expansion() -> None:
    leader = leading(isr=(1,))
    leader.follower_fetched(2, 100, 1_001)
    leader.appended(110)
    assert leader.durable(110) == ()
    assert leader.isr_refused() == (HighWatermark(110),)


def test_proposal_stays_pending_after_other_metadata_changes() -> None:
    leader = leading(isr=(1,))
    leader.follower_fetched(2, 100, 1_001)
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1, 2), now_ms=1_002)
    assert leader.pending == ExpandIsr(2)
    assert leader.follower_fetched(3, 100, 1_003) == ()


def test_shrink_stays_pending_until_the_isr_shows_it() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    leader.tick(1_001 + LAG_MS)
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1, 2), joinable=(1, 2, 3), now_ms=1_002)
    assert leader.minimal_isr == {1}
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1, 2, 3), now_ms=1_003)
    assert leader.pending is None


def test_restarted_follower_starts_without_records() -> None:
    leader = leading(isr=(1, 2))
    leader.appended(110)
    leader.follower_fetched(2, 110, 1_001)
    leader.forget(2)
    assert leader.durable(110) == ()
    assert leader.follower_fetched(2, 110, 1_002) == (HighWatermark(110),)


def test_follower_joins_the_isr_when_it_has_all_committed() -> None:
    leader = leading(isr=(1,))
    leader.appended(110)
    leader.durable(110)
    assert leader.follower_fetched(2, 109, 1_001) == ()
    assert leader.follower_fetched(2, 110, 1_002) == (ExpandIsr(2),)


def test_fenced_follower_does_not_join_the_isr() -> None:
    leader = leading(isr=(1,))
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1, 3), now_ms=1_000)
    assert leader.follower_fetched(2, 100, 1_001) == ()
    assert leader.follower_fetched(3, 100, 1_001) == (ExpandIsr(3),)


def test_follower_one_round_trip_behind_stays_in_sync() -> None:
    leader = leading(isr=(1, 2))
    now_ms, end = 1_000, 100
    for _ in range(10):
        had, end = end, end + 10
        leader.appended(end)
        now_ms += LAG_MS // 2
        leader.follower_fetched(2, had, now_ms)
        assert leader.tick(now_ms) == ()


def test_follower_is_removed_when_it_never_catches_up() -> None:
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


def test_follower_of_an_idle_partition_stays_in_sync() -> None:
    leader = leading(isr=(1, 2))
    leader.follower_fetched(2, 100, 1_001)
    assert leader.tick(1_001 + 10 * LAG_MS) == ()


def test_last_follower_stays_while_only_memory_holds_committed() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    leader.follower_fetched(2, 110, 1_001)
    leader.appended(120)
    late_ms = 1_002 + LAG_MS
    assert leader.tick(late_ms) == ()
    leader.durable(110)
    assert leader.tick(late_ms) == (ShrinkIsr(frozenset({2})),)


def test_replica_that_lost_its_memory_is_removed_at_once() -> None:
    leader = leading(isr=(1, 2, 3))
    leader.appended(110)
    leader.durable(110)
    leader.follower_fetched(2, 110, 1_001)
    assert leader.follower_fetched(3, 110, 1_001) == (HighWatermark(110),)
    assert leader.follower_fetched(3, 100, 1_002) == (ShrinkIsr(frozenset({3})),)
    assert leader.high_watermark == 110


def test_follower_need_not_copy_flushed_records() -> None:
    leader = leading(isr=(1, 2))
    leader.appended(110)
    leader.durable(110)
    leader.follower_fetched(2, 110, 1_001)
    leader.flushed(110)
    leader.forget(2)
    assert leader.follower_fetched(2, 40, 1_002) == ()
    assert leader.follower_fetched(2, 110, 1_003) == ()
    assert leader.pending is None


def test_fetches_of_strangers_or_beyond_the_log_are_ignored() -> None:
    leader = leading(isr=(1, 2))
    leader.appended(110)
    leader.durable(110)
    assert leader.follower_fetched(9, 110, 1_001) == ()
    assert leader.follower_fetched(2, 111, 1_001) == ()
    assert leader.high_watermark == 100


def test_high_watermark_stays_when_rules_get_stricter() -> None:
    leader = leading(isr=(1, 2), rules=MEMORY)
    leader.appended(110)
    leader.follower_fetched(2, 110, 1_001)
    assert leader.rules_changed(STORAGE) == ()
    assert leader.high_watermark == 110


def test_too_few_in_sync_fails_before_and_after_the_append() -> None:
    leader = leading(isr=(1, 2), rules=CommitRules(min_insync_replicas=2))
    leader.check_enough()
    leader.appended(110)
    leader.durable(110)
    leader.follower_fetched(2, 110, 1_001)
    assert (leader.high_watermark, leader.late_error()) == (110, None)
    leader.metadata_changed(replicas=(1, 2, 3), isr=(1,), joinable=(1,), now_ms=1_002)
    after = leader.late_error()
    assert isinstance(after, NotEnoughReplicasAfterAppend)
    with pytest.raises(NotEnoughReplicas) as before:
        leader.check_enough()
    assert (before.value.kafka_code, after.kafka_code) == (19, 20)
    assert before.value.retriable


def test_min_isr_is_capped_at_the_number_of_replicas() -> None:
    leader = leading(isr=(1,), replicas=(1,), rules=CommitRules(min_insync_replicas=2))
    leader.check_enough()


def test_commit_rules_come_from_topic_settings() -> None:
    config = parse_topic_configs({"sparklog.commit": "memory", "min.insync.replicas": "2"})
    assert CommitRules.of(config, 5_000) == CommitRules(
        waits_for_storage=False, min_insync_replicas=2, replica_lag_time_max_ms=5_000
    )
