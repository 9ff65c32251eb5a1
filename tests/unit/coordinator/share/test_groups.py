"""Share groups: the coordinator's responses to members and administrators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.consumer.messages import ConsumerHeartbeat, Parts
from sparklog.coordinator.messages import (
    CommitRequest,
    FetchRequest,
    JoinRequest,
    MemberIdentity,
    OffsetToCommit,
)
from sparklog.coordinator.share.messages import ShareGroupDescription, ShareStatesToDelete
from sparklog.coordinator.share.settings import DEFAULTS
from sparklog.core.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
)
from tests.harness.share_driver import GROUP, ShareDriver, share_topic_id

NONE: Parts = frozenset()
ALPHA = share_topic_id("alpha")
BETA = share_topic_id("beta")


def parts(*numbers: int) -> Parts:
    return frozenset((ALPHA, number) for number in numbers)


def delete(driver: ShareDriver, *, states_deleted: bool = False) -> Any:
    return driver.submit(lambda s, t, n: s.delete(GROUP, t, n, states_deleted=states_deleted))


def description(driver: ShareDriver) -> ShareGroupDescription:
    (found,) = driver.submit(lambda s, t, n: s.describe_shares((GROUP,), t, n))
    assert isinstance(found, ShareGroupDescription)
    return found


def test_member_gets_partitions_when_their_states_are_initialized() -> None:
    driver = ShareDriver()
    joined = driver.join("a")
    assert (joined.member_id, joined.epoch, joined.assignment) == ("a", 1, NONE)
    assert joined.heartbeat_interval_ms == 500, "it learns of its partitions soon"
    (errand,) = driver.errands
    assert (errand.group_id, errand.state_epoch) == (GROUP, 1)
    assert frozenset(errand.parts) == parts(0, 1, 2, 3)
    assert [key.partition for key in errand.state_keys()] == [0, 1, 2, 3]
    driver.initialize(only=parts(0, 2))
    some = driver.send("a", 1)
    assert (some.epoch, some.assignment, some.heartbeat_interval_ms) == (2, parts(0, 2), 500)
    driver.wait(30_000)
    driver.initialize()
    told = driver.send("a", 2)
    assert (told.epoch, told.assignment, told.heartbeat_interval_ms) == (
        3,
        parts(0, 1, 2, 3),
        5_000,
    )
    assert driver.send("a", 3).assignment is None
    found = driver.submit(lambda s, t, n: s.share_partitions(GROUP, t, n))
    assert [(key.group_id, key.topic_id, key.partition) for key in found] == [
        (GROUP, ALPHA, number) for number in range(4)
    ]


def test_members_beyond_the_partitions_share_them() -> None:
    driver = ShareDriver()
    driver.topics.set("one", 1)
    for name in "abc":
        driver.join(name, "one")
    driver.initialize()
    one = driver.topics.parts("one")
    assert [driver.send(name, 0, names=("one",)).assignment for name in "abc"] == [one] * 3
    driver.send("b", -1)
    described = description(driver)
    assert [member.member_id for member in described.members] == ["a", "c"]
    assert (described.state, described.assignor) == ("Stable", "simple")


def test_a_failed_initialization_is_tried_again_after_a_pause() -> None:
    driver = ShareDriver()
    driver.join("a")
    driver.errands.clear()
    driver.send("a", 1)
    driver.send("a", 1, names=("alpha", "beta"))
    (errand,) = driver.errands
    assert {topic for topic, _ in errand.parts} == {BETA}, "the other ones are under way"
    driver.errands.clear()
    driver.wait(29_999)
    driver.send("a", 2)
    assert driver.errands == []
    driver.wait(1)
    (errand,) = driver.errands
    assert len(errand.parts) == 7
    driver.initialize()
    driver.wait(30_000)
    assert driver.errands == []


def test_states_that_the_leader_before_had_begun_are_initialized_anew() -> None:
    driver = ShareDriver()
    driver.join("a")
    driver.initialize(only=parts(0))
    driver.fail_over()
    (errand,) = driver.errands
    assert frozenset(errand.parts) == parts(1, 2, 3)
    driver.initialize()
    assert driver.send("a", 1).assignment == parts(0, 1, 2, 3)


def test_a_group_without_members_initializes_nothing() -> None:
    driver = ShareDriver()
    driver.join("a")
    driver.errands.clear()
    driver.send("a", -1)
    driver.wait(60_000)
    driver.fail_over()
    assert driver.errands == []
    driver.join("b")
    assert frozenset(driver.errands[0].parts) == parts(0, 1, 2, 3)


def test_member_without_heartbeats_is_removed() -> None:
    driver = ShareDriver()
    driver.join("a")
    driver.join("b")
    driver.initialize()
    first = driver.send("a", 0, names=("alpha",))
    assert first.assignment is not None
    assert len(first.assignment) == 2
    driver.wait(44_999)
    driver.send("a", first.epoch)
    driver.wait(1)
    assert "[GroupId g] Member b fenced because its session expired" in driver.notes
    assert driver.send("a", first.epoch).assignment == parts(0, 1, 2, 3)
    with pytest.raises(UnknownMemberId):
        driver.send("b", 1)
    driver.configs["share.session.timeout.ms"] = 60_000
    driver.send("a", first.epoch + 1)
    driver.wait(59_999)
    assert description(driver).state == "Stable"
    driver.wait(1)
    assert description(driver).state == "Empty"


def test_new_topics_and_partitions_are_noticed() -> None:
    driver = ShareDriver()
    driver.join("a", "alpha", "gamma")
    driver.initialize()
    epoch = driver.send("a", 1).epoch
    driver.topics.set("gamma", 1)
    driver.topics.set("alpha", 5)
    assert driver.send("a", epoch).assignment is None
    assert driver.initialize() == {(ALPHA, 4), (share_topic_id("gamma"), 0)}
    told = driver.send("a", epoch + 1)
    assert told.assignment == driver.topics.parts("alpha", "gamma")


def test_states_of_deleted_topics_are_forgotten() -> None:
    driver = ShareDriver()
    driver.join("a", "alpha", "beta")
    driver.initialize()
    epoch = driver.send("a", 1).epoch
    driver.topics.set("beta", None)
    driver.submit(lambda s, t, n: s.forget_share_topics(frozenset({BETA}), t, n))
    assert driver.send("a", epoch).assignment == parts(0, 1, 2, 3)
    found = driver.submit(lambda s, t, n: s.share_partitions(GROUP, t, n))
    assert {key.topic_id for key in found} == {ALPHA}
    before = len(driver.log)
    driver.submit(lambda s, t, n: s.forget_share_topics(frozenset({BETA}), t, n))
    assert len(driver.log) == before, "nothing is left to forget"


@pytest.mark.parametrize(
    ("member_id", "epoch", "more", "words"),
    [
        ("", 0, {"names": ("alpha",)}, "MemberId can't be empty"),
        ("m", 0, {"names": ("alpha",), "group_id": " "}, "GroupId can't be empty"),
        ("m", 0, {"names": ("alpha",), "rack_id": ""}, "RackId can't be empty"),
        ("m", 0, {"names": ()}, "SubscribedTopicNames must be set"),
        ("m", 0, {}, "SubscribedTopicNames must be set"),
        ("m", -2, {}, "MemberEpoch is invalid"),
        ("m" * 32_768, 0, {"names": ("alpha",)}, "MemberId is too long"),
    ],
)
def test_invalid_heartbeats_are_refused(
    member_id: str, epoch: int, more: dict[str, Any], words: str
) -> None:
    driver = ShareDriver()
    with pytest.raises(InvalidRequest, match=words):
        driver.send(member_id, epoch, **more)
    assert driver.log == []


def test_a_group_begins_with_a_join() -> None:
    driver = ShareDriver()
    for epoch in (-1, 1):
        with pytest.raises(GroupIdNotFound):
            driver.send("a", epoch)
    with pytest.raises(GroupIdNotFound):
        driver.submit(lambda s, t, n: s.share_partitions(GROUP, t, n))
    assert driver.submit(lambda s, t, n: s.describe_shares((GROUP,), t, n)) == (None,)


def test_previous_epoch_of_a_member_is_valid_and_others_are_fenced() -> None:
    driver = ShareDriver()
    driver.join("a")
    driver.initialize()
    assert driver.send("a", 1).epoch == 2
    again = driver.send("a", 1)
    assert (again.epoch, again.assignment) == (2, parts(0, 1, 2, 3)), "its answer was lost"
    driver.join("b")
    driver.send("a", 2)
    for epoch, words in ((1, "smaller"), (4, "greater")):
        with pytest.raises(FencedMemberEpoch, match=words):
            driver.send("a", epoch)
    with pytest.raises(UnknownMemberId):
        driver.send("c", 3)
    assert driver.send("a", 0, names=("alpha",)).epoch == 3, "a member may join anew"


def test_a_full_group_takes_no_more_members() -> None:
    driver = ShareDriver(replace(DEFAULTS, size_max=2))
    driver.join("a")
    driver.join("b")
    with pytest.raises(GroupMaxSizeReached, match="maximum capacity of 2 members"):
        driver.join("c")
    driver.join("b")


def test_deletion_names_the_states_that_go_first() -> None:
    driver = ShareDriver()
    driver.join("a")
    driver.initialize()
    assert delete(driver) is ErrorCode.non_empty_group
    driver.send("a", -1)
    first = delete(driver)
    assert isinstance(first, ShareStatesToDelete)
    assert [key.partition for key in first.keys] == [0, 1, 2, 3]
    driver.fail_over()
    assert delete(driver) == first, "the states may still be there"
    assert delete(driver, states_deleted=True) is ErrorCode.none
    assert delete(driver) is ErrorCode.group_id_not_found
    driver.fail_over(compacted=True)
    assert delete(driver) is ErrorCode.group_id_not_found


def test_member_that_joins_during_the_deletion_gets_new_states() -> None:
    driver = ShareDriver()
    driver.join("a")
    driver.initialize()
    driver.send("a", -1)
    delete(driver)
    driver.join("b")
    assert delete(driver, states_deleted=True) is ErrorCode.non_empty_group
    assert driver.initialize() == parts(0, 1, 2, 3)
    assert driver.send("b", 0, names=("alpha",)).assignment == parts(0, 1, 2, 3)


def test_group_of_another_type_is_not_a_share_group() -> None:
    driver = ShareDriver()
    consumer = ConsumerHeartbeat(
        GROUP, "m", 0, rebalance_timeout_ms=1, names=("alpha",), owned=NONE
    )
    driver.submit(lambda s, t, n: s.consumer_heartbeat(consumer, driver.topics, t, n))
    with pytest.raises(GroupIdNotFound, match="is not a share group"):
        driver.join("a")
    offset = OffsetToCommit("alpha", 0, 1, -1, "")
    commit = CommitRequest("classic", MemberIdentity(""), -1, (offset,))
    driver.submit(lambda s, t, n: s.commit(commit, t, n))
    with pytest.raises(GroupIdNotFound, match="is not a share group"):
        driver.send("a", 0, names=("alpha",), group_id="classic")


def test_requests_of_other_groups_are_refused_by_a_share_group() -> None:
    driver = ShareDriver()
    driver.join("a")
    consumer = ConsumerHeartbeat(
        GROUP, "m", 0, rebalance_timeout_ms=1, names=("alpha",), owned=NONE
    )
    with pytest.raises(GroupIdNotFound, match="is not a consumer group"):
        driver.submit(lambda s, t, n: s.consumer_heartbeat(consumer, driver.topics, t, n))
    join = JoinRequest(
        group_id=GROUP, member_id="", new_member_id="m", instance_id=None, client_id="c",
        client_host="/h", protocol_type="consumer", protocols=(("range", b""),),
        session_timeout_ms=10_000, rebalance_timeout_ms=10_000, requires_member_id=False,
    )  # fmt: skip
    refused = driver.submit(lambda s, t, n: s.join(join, t, n))
    assert (refused.error, refused.member_id) == (ErrorCode.inconsistent_group_protocol, "")
    commit = CommitRequest(GROUP, MemberIdentity(""), -1, (OffsetToCommit("alpha", 0, 1, -1, ""),))
    assert driver.submit(lambda s, t, n: s.commit(commit, t, n)) == (ErrorCode.group_id_not_found,)
    fetch = FetchRequest(GROUP, None)
    fetched = driver.submit(lambda s, t, n: s.fetch(fetch, t, n))
    assert fetched.error is ErrorCode.group_id_not_found
    deleted = driver.submit(lambda s, t, n: s.delete_offsets(GROUP, (), t, n))
    assert deleted.error is ErrorCode.group_id_not_found
    (listed,) = driver.submit(lambda s, t, n: s.list_groups(t, n))
    assert (listed.protocol_type, listed.state, listed.group_type) == ("share", "Stable", "share")
    (described,) = driver.submit(lambda s, t, n: s.describe((GROUP,), t, n))
    assert described.error is ErrorCode.group_id_not_found
