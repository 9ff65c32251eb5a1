"""Share groups under anything that may happen to their members, topics and states.

Heartbeats and answers get lost, members crash and come back, topics grow and go, and states cannot
be initialized. The coordinator moves to another broker, which has only the log, compacted or not.

  - A replay of the log has the same groups, after any sequence of events.
  - A member has only partitions with a state, of topics that it subscribes to.
  - At rest every subscribed partition has a member.

And the assignor: coverage, balance, and no move without need.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.coordinator.consumer.messages import Parts
from sparklog.coordinator.group.shard import GroupShard
from sparklog.coordinator.share.assignor import Sharer, assign_simply
from sparklog.coordinator.share.group import ShareGroup
from sparklog.coordinator.share.messages import ShareStatesToDelete
from sparklog.core.errors import GroupError
from tests.harness.share_driver import GROUP, ShareDriver, share_topic_id

NAMES = ("alpha", "beta", "gamma")
WISHES = (NAMES, ("alpha",), ("beta", "gamma"), ("alpha", "missing"))


class World:
    """One group and its clients: the epoch that each of them knows, and its subscription."""

    def __init__(self) -> None:
        self.driver = ShareDriver()
        self.epochs: dict[str, int] = {}
        self.wishes: dict[str, tuple[str, ...]] = {}
        self.has: dict[str, Parts] = {}

    def heartbeat(self, member_id: str, *, lose: bool = False) -> None:
        epoch, names = self.epochs[member_id], None
        if epoch == 0 or member_id not in self.has:
            names = self.wishes[member_id]
        try:
            answer = self.driver.send(member_id, epoch, names=names)
        except GroupError:
            self.epochs[member_id] = 0
            self.has.pop(member_id, None)
            return
        if lose:
            self.has.pop(member_id, None)  # the next request is a full one
            return
        self.epochs[member_id] = answer.epoch
        if answer.assignment is not None:
            self.has[member_id] = answer.assignment

    def leave(self, member_id: str) -> None:
        try:
            self.driver.send(member_id, -1)
        except GroupError:
            pass  # the coordinator has removed it before
        self.crash(member_id)

    def crash(self, member_id: str) -> None:
        del self.epochs[member_id], self.wishes[member_id]
        self.has.pop(member_id, None)

    def delete(self) -> None:
        found = self.driver.submit(lambda s, t, n: s.delete(GROUP, t, n))
        if isinstance(found, ShareStatesToDelete):
            self.driver.submit(lambda s, t, n: s.delete(GROUP, t, n, states_deleted=True))

    def drop_topic(self, name: str) -> None:
        self.driver.topics.set(name, None)
        gone = frozenset({share_topic_id(name)})
        self.driver.submit(lambda s, t, n: s.forget_share_topics(gone, t, n))

    def check(self) -> None:
        assert of(self.driver.replayed()) == of(self.driver.shard)
        group = group_of(self.driver.shard)
        if group is None:
            return
        states = group.partitions
        assert not states.initialized & states.initializing
        assert states.names.keys() == states.topic_ids()
        for member in group.members.values():
            topics = {share_topic_id(name) for name in member.about.names}
            assert {topic for topic, _ in member.has.assigned} <= topics

    def settle(self) -> None:
        for _ in range(4):
            for member_id in list(self.epochs):
                self.heartbeat(member_id)
            self.driver.initialize()
            self.driver.wait(5_000)

    def check_rest(self) -> None:
        group = group_of(self.driver.shard)
        if not self.epochs:
            return
        assert group is not None
        assert group.members.keys() == self.epochs.keys()
        assert group.epoch == group.target_epoch
        names = {name for wish in self.wishes.values() for name in wish}
        assert frozenset().union(*self.has.values()) == self.driver.topics.parts(*names)
        for member_id, member in group.members.items():
            assert member.has.assigned == self.has[member_id]


def group_of(shard: GroupShard) -> ShareGroup | None:
    return shard._shares.get(GROUP)


def of(shard: GroupShard) -> object:
    group = group_of(shard)
    if group is None:
        return None
    return (
        group.epoch, group.target_epoch, group.topics_hash, group.members, group.targets,
        group.partitions,
    )  # fmt: skip


STEPS = (
    *("join", "join", *(["heartbeat"] * 8), "lose", "lose", "leave", "crash", "time", "long time"),
    *("grow", "drop", "wish", "initialize", "initialize", "fail", "move", "compact", "delete"),
)


def step(world: World, name: str, data: st.DataObject) -> None:
    members, driver = sorted(world.epochs), world.driver
    match name:
        case "join" if len(members) < 6:
            member_id = f"m{data.draw(st.integers(0, 8))}"
            world.epochs[member_id] = 0
            world.wishes[member_id] = data.draw(st.sampled_from(WISHES))
            world.heartbeat(member_id)
        case "time":
            driver.wait(data.draw(st.integers(0, 20_000)))
        case "long time":
            driver.wait(45_001)
        case "grow":
            driver.topics.set(data.draw(st.sampled_from(NAMES)), data.draw(st.integers(1, 6)))
        case "drop":
            world.drop_topic(data.draw(st.sampled_from(NAMES)))
        case "initialize":
            driver.initialize()
        case "fail":
            parts = sorted(driver.topics.parts(*NAMES))
            driver.initialize(frozenset(part for part in parts if data.draw(st.booleans())))
        case "move" | "compact":
            driver.fail_over(compacted=name == "compact")
        case "delete":
            world.delete()
        case "heartbeat" | "lose" | "leave" | "crash" | "wish" if members:
            member_id = data.draw(st.sampled_from(members))
            if name == "wish":
                world.wishes[member_id] = data.draw(st.sampled_from(WISHES))
                world.has.pop(member_id, None)
            elif name == "leave":
                world.leave(member_id)
            elif name == "crash":
                world.crash(member_id)
            else:
                world.heartbeat(member_id, lose=name == "lose")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_replay_has_the_same_groups_and_a_group_at_rest_reads_all(data: st.DataObject) -> None:
    world = World()
    for name in data.draw(st.lists(st.sampled_from(STEPS), min_size=5, max_size=50)):
        step(world, name, data)
        world.check()
    for _ in range(11):  # crashed members are removed, and failed initializations tried again
        world.settle()
    world.check()
    world.check_rest()
    world.driver.fail_over(compacted=True)
    world.settle()
    world.check()
    world.check_rest()


TOPIC_IDS = [share_topic_id(name) for name in NAMES]


@st.composite
def sharers_and_parts(draw: st.DrawFn) -> tuple[dict[str, Sharer], Parts]:
    counts = {topic: draw(st.integers(0, 8)) for topic in TOPIC_IDS}
    parts = frozenset((t, number) for t, count in counts.items() for number in range(count))
    old = [(topic, number) for topic in TOPIC_IDS for number in range(10)]
    sharers = {
        f"m{n}": Sharer(
            draw(st.frozensets(st.sampled_from(TOPIC_IDS))),
            draw(st.frozensets(st.sampled_from(old), max_size=14)),
        )
        for n in range(draw(st.integers(0, 12)))
    }
    return sharers, parts


@given(sharers_and_parts())
def test_each_subscribed_partition_has_members_that_want_it(
    given_: tuple[dict[str, Sharer], Parts],
) -> None:
    sharers, parts = given_
    found = assign_simply(sharers, parts)
    assert found.keys() == sharers.keys()
    wanted = {topic for sharer in sharers.values() for topic in sharer.topics}
    assert frozenset().union(*found.values()) == {part for part in parts if part[0] in wanted}
    assert all(t in sharers[m].topics for m, has in found.items() for t, _ in has)
    again = {m: Sharer(sharer.topics, found[m]) for m, sharer in sharers.items()}
    assert assign_simply(again, parts) == found


@given(sharers_and_parts())
def test_equal_subscriptions_are_balanced_and_sticky(
    given_: tuple[dict[str, Sharer], Parts],
) -> None:
    sharers, parts = given_
    if not sharers or not parts:
        return
    alike = {m: Sharer(frozenset(TOPIC_IDS), sharer.has) for m, sharer in sharers.items()}
    even = assign_simply(alike, parts)
    sizes = [len(has) for has in even.values()]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1, "no member is idle"
    shared = Counter(part for has in even.values() for part in has)
    assert set(shared.values()) == {-(-len(alike) // len(parts))}
    gone = min(even)
    left = {m: Sharer(frozenset(TOPIC_IDS), even[m]) for m in alike if m != gone}
    after = assign_simply(left, parts)
    if len(parts) >= len(alike):
        assert all(even[m] <= after[m] for m in left), "only the partitions of the other one moved"
