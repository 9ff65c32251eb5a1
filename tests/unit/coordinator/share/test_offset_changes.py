"""Administrators alter and delete the offsets of a share group without members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.coordinator.consumer.messages import Parts
from sparklog.coordinator.messages import CommitRequest, MemberIdentity, OffsetToCommit
from sparklog.coordinator.share.errors import NonEmptyGroup
from sparklog.coordinator.share.heartbeat import ShareChange
from sparklog.coordinator.share.messages import InitializeShareState
from sparklog.coordinator.share.offset_changes import (
    begin_alteration,
    begin_offset_deletion,
    end_offset_deletion,
)
from sparklog.core.errors import GroupIdNotFound, InvalidRequest
from tests.harness.share_driver import GROUP, ShareDriver, share_topic_id

ALPHA, BETA = share_topic_id("alpha"), share_topic_id("beta")
NAMES = {ALPHA: "alpha", BETA: "beta"}


def left() -> ShareDriver:
    """Return a driver with a group that had a member of topic alpha."""
    driver = ShareDriver()
    joined = driver.join("m")
    driver.initialize()
    driver.send("m", joined.epoch)
    driver.send("m", -1)
    return driver


def change(driver: ShareDriver, alter: Callable[[ShareChange], Any], group: str = GROUP) -> Any:
    return driver.submit(lambda s, t, n: s.change_share(group, alter, driver.topics, t, n))


def alter(driver: ShareDriver, *parts: tuple[UUID, int]) -> InitializeShareState:
    found = change(driver, lambda it: begin_alteration(it, frozenset(parts), NAMES))
    assert isinstance(found, InitializeShareState)
    return found


def finish(driver: ShareDriver, done: InitializeShareState) -> None:
    driver.submit(lambda s, t, n: s.share_initialized(done, driver.topics, t, n))


def delete(driver: ShareDriver, *topics: UUID) -> list[tuple[UUID, int]]:
    counts = dict.fromkeys(topics, 4)
    keys = change(driver, lambda it: begin_offset_deletion(it, counts))
    return [(key.topic_id, key.partition) for key in keys]


def with_state(driver: ShareDriver) -> set[tuple[UUID, int]]:
    keys = driver.submit(lambda s, t, n: s.share_partitions(GROUP, t, n))
    return {(key.topic_id, key.partition) for key in keys}


def epoch(driver: ShareDriver) -> int:
    (group,) = driver.submit(lambda s, t, n: s.describe_shares([GROUP], t, n))
    return int(group.epoch)


def replayed(driver: ShareDriver) -> tuple[int, set[tuple[UUID, int]]]:
    again = replace(driver)
    again.fail_over(compacted=True)
    return epoch(again), with_state(again)


def test_an_alteration_has_an_epoch_above_all_states() -> None:
    driver = left()
    before = epoch(driver)
    first, second = alter(driver, (ALPHA, 0)), alter(driver, (ALPHA, 0))
    assert (first.state_epoch, second.state_epoch) == (before + 1, before + 2)
    assert epoch(driver) == before + 2
    assert replayed(driver) == (before + 2, set(driver.topics.parts("alpha")))


def test_an_altered_partition_that_was_never_read_gets_a_state() -> None:
    driver = left()
    asked = alter(driver, (BETA, 1), (ALPHA, 2))
    assert asked.parts == ((ALPHA, 2), (BETA, 1))
    assert (BETA, 1) not in with_state(driver)
    finish(driver, asked)
    assert with_state(driver) == {*driver.topics.parts("alpha"), (BETA, 1)}
    assert driver.errands == []
    assert replayed(driver)[1] == with_state(driver)


def test_a_member_waits_for_an_alteration_that_was_not_finished() -> None:
    driver = left()
    alter(driver, (BETA, 1))
    driver.fail_over()
    driver.join("m", "beta")
    (errand,) = driver.errands
    assert (BETA, 1) in errand.parts


def test_offsets_of_one_topic_are_deleted() -> None:
    driver = left()
    finish(driver, alter(driver, (BETA, 1)))
    assert delete(driver, BETA) == [(BETA, 1)]
    assert with_state(driver) == set(driver.topics.parts("alpha"))
    assert delete(driver, BETA) == [(BETA, n) for n in range(4)], "again, until it is done"
    change(driver, lambda it: end_offset_deletion(it, frozenset({BETA})))
    assert delete(driver, BETA) == []
    assert replayed(driver)[1] == with_state(driver)


def test_a_topic_whose_offsets_were_deleted_begins_anew() -> None:
    driver = left()
    assert len(delete(driver, ALPHA)) == 4
    driver.join("m")
    (errand,) = driver.errands
    assert set(errand.parts) == driver.topics.parts("alpha")


def test_a_group_with_members_keeps_its_offsets() -> None:
    driver = left()
    driver.join("m")
    before = len(driver.log)
    with pytest.raises(NonEmptyGroup, match="not empty"):
        alter(driver, (ALPHA, 0))
    with pytest.raises(NonEmptyGroup, match="not empty"):
        delete(driver, ALPHA)
    assert len(driver.log) == before


def test_an_alteration_creates_a_group() -> None:
    driver = ShareDriver()
    names = frozenset({(ALPHA, 1)})

    def created(group_id: str, parts: Parts) -> Any:
        return driver.submit(
            lambda s, t, n: s.change_share(
                group_id,
                lambda it: begin_alteration(it, parts, NAMES),
                driver.topics,
                t,
                n,
                creates=True,
            )
        )

    asked = created(GROUP, names)
    assert (asked.state_epoch, asked.parts) == (1, ((ALPHA, 1),))
    finish(driver, asked)
    assert replayed(driver) == (1, {(ALPHA, 1)})
    for wrong in (" ", "x" * 40_000):
        with pytest.raises(InvalidRequest):
            created(wrong, names)
    offset = OffsetToCommit("alpha", 0, 1, -1, "")
    commit = CommitRequest("classic", MemberIdentity(""), -1, (offset,))
    driver.submit(lambda s, t, n: s.commit(commit, t, n))
    with pytest.raises(GroupIdNotFound):
        created("classic", names)


def test_an_unknown_group_has_no_offsets_to_change() -> None:
    driver = left()
    with pytest.raises(GroupIdNotFound):
        change(driver, lambda it: None, group="other")
