"""Consumer groups of the newer protocol under anything that may happen to their members.

Clients behave as real ones do. They read on for a while from partitions that they must give up, and
report their partitions with a later heartbeat. Heartbeats and answers get lost, members crash and
come back, and topics grow and go. The coordinator moves to another broker, which has only the log,
compacted or not.

  - No partition is read by two members that the coordinator counts as alive.
  - A late commit is accepted until another member has read the partition, and not after.
  - A member that knows its newest epoch may commit any offset, as with Kafka. A client reports a
    given-up partition after its commits, and on the same connection.
  - At rest every partition has one reader, and a replay of the log has the same groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from sparklog.coordinator.consumer.assignors import (
    ASSIGNORS,
    Reader,
    assign_ranges,
    assign_uniformly,
)
from sparklog.coordinator.consumer.group import ConsumerGroup
from sparklog.coordinator.consumer.groups import ConsumerGroups
from sparklog.coordinator.consumer.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Part,
    Parts,
)
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.messages import CommitRequest, MemberIdentity, OffsetToCommit
from sparklog.core.errors import GroupError
from tests.harness.coordinator_settings import group_settings

GROUP = "g"
SESSION_MS = 45_000
REBALANCE_MS = 60_000
NAMES = ("alpha", "beta", "gamma")
WISHES: tuple[tuple[tuple[str, ...] | None, str | None], ...] = (
    (NAMES, None),
    (("alpha",), None),
    ((), "^(alpha|gamma)$"),
    (("beta",), "al.*"),
)


@dataclass
class FakeTopics:
    """Topics that tests change."""

    counts: dict[str, int] = field(default_factory=lambda: {"alpha": 4, "beta": 3})
    version: int = 1

    def names(self) -> Iterable[str]:
        return list(self.counts)

    def find(self, name: str) -> tuple[UUID, int] | None:
        count = self.counts.get(name)
        return None if count is None else (topic_id(name), count)

    def name_of(self, asked: UUID) -> str | None:
        return next((name for name in self.counts if topic_id(name) == asked), None)

    def parts(self, names: Iterable[str]) -> set[Part]:
        return {(topic_id(n), p) for n in names if n in self.counts for p in range(self.counts[n])}

    def set(self, name: str, count: int | None) -> None:
        self.version += 1
        if count is None:
            self.counts.pop(name, None)
        else:
            self.counts[name] = max(count, self.counts.get(name, 0))


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"."))


@dataclass
class Client:
    """A consumer: the partitions it reads, its assignment, and its own report."""

    member_id: str
    names: tuple[str, ...] | None
    regex: str | None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    reads: set[Part] = field(default_factory=set)
    told: Parts | None = None
    tells_all: bool = True
    lives: int = 0
    """Number of times it gave up everything, to join anew."""

    def request(self) -> ConsumerHeartbeat:
        if not (self.tells_all or self.epoch == 0):
            return ConsumerHeartbeat(
                GROUP, self.member_id, self.epoch, "c", "/h", self.instance_id,
                owned=frozenset(self.reads),
            )  # fmt: skip
        return ConsumerHeartbeat(
            GROUP, self.member_id, self.epoch, "c", "/h", self.instance_id, None, REBALANCE_MS,
            self.names, self.regex or "", self.assignor,
            frozenset() if self.epoch == 0 else frozenset(self.reads),
        )  # fmt: skip

    def take(self, answer: ConsumerHeartbeatAnswer) -> None:
        self.tells_all, self.epoch = False, answer.epoch
        if answer.assignment is not None:
            self.told = answer.assignment

    def revoke(self) -> None:
        if self.told is not None:
            self.reads &= self.told

    def begin(self) -> None:
        """Read the assigned partitions; a client first gives up the others."""
        if self.told is not None:
            self.reads = set(self.told)

    def give_up(self) -> None:
        self.epoch, self.told, self.tells_all = 0, None, True
        self.lives += 1
        self.reads.clear()


@dataclass
class LateCommit:
    """A commit that is under way, of a client in one of its lives."""

    client: Client
    current_incarnation: int
    part: Part
    asked: CommitRequest
    readers: int
    """Number of members that had begun to read the partition when it was sent."""


def late_commit(client: Client, part: Part, readers: int) -> LateCommit:
    offset = OffsetToCommit("", part[1], 1, -1, "", part[0])
    who = MemberIdentity(client.member_id)
    asked = CommitRequest(GROUP, who, client.epoch, (offset,))
    return LateCommit(client, client.lives, part, asked, readers)


class World:
    """One group, its clients, its log."""

    def __init__(self) -> None:
        self.topics = FakeTopics()
        self.now_ms = 0
        self.log: list[CoordinatorRecord] = []
        self.groups = ConsumerGroups(group_settings())
        self.clients: dict[str, Client] = {}
        self.made = 0
        self.readers: defaultdict[Part, list[str]] = defaultdict(list)
        """Members that began to read a partition, one after the other."""
        self.commits: dict[tuple[str, int, Part], LateCommit] = {}

    @property
    def group(self) -> ConsumerGroup:
        found = self.groups.get(GROUP)
        assert found is not None
        return found

    def heartbeat(self, client: Client, *, lose: bool = False) -> None:
        try:
            answer, records = self.groups.heartbeat(client.request(), self.topics, self.now_ms)
        except GroupError:
            client.give_up()
            return
        self.log += records
        if lose:
            client.tells_all = True
        else:
            client.take(answer)

    def leave(self, client: Client, epoch: int) -> None:
        asked = ConsumerHeartbeat(GROUP, client.member_id, epoch, instance_id=client.instance_id)
        client.give_up()
        del self.clients[client.member_id]
        try:
            _, records = self.groups.heartbeat(asked, self.topics, self.now_ms)
        except GroupError:
            return
        self.log += records

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.log += self.groups.expire(self.now_ms)

    def move(self, *, compacted: bool) -> None:
        if compacted:
            newest = {record.key: n for n, record in enumerate(self.log)}
            self.log = [r for n, r in enumerate(self.log) if newest[r.key] == n]
        before = self.snapshot(self.groups)
        self.groups = ConsumerGroups(group_settings())
        for record in self.log:
            self.groups.replay(record)
        self.groups.loaded(self.now_ms)
        assert self.snapshot(self.groups) == before

    def snapshot(self, groups: ConsumerGroups) -> object:
        found = groups.get(GROUP)
        if found is None:
            return None
        return (
            found.epoch, found.target_epoch, found.topics_hash, found.members, found.static,
            {m: p for m, p in found.targets.items() if m in found.members},
            found.patterns, found.holders,
        )  # fmt: skip

    def check(self) -> None:
        """Check that no two current members read the same partition."""
        found = self.groups.get(GROUP)
        seen: dict[Part, str] = {}
        for client in self.clients.values():
            member = found.members.get(client.member_id) if found else None
            if member is None or client.epoch == 0:
                continue  # a removed member finds out with its next heartbeat
            for part in client.reads:
                assert part not in seen, (part, seen[part], client.member_id)
                seen[part] = client.member_id

    def begin(self, client: Client) -> None:
        before = set(client.reads)
        client.begin()
        for part in client.reads - before:
            self.readers[part].append(client.member_id)

    def check_commits(self) -> None:
        """Check that no late commit overwrites progress, and that no current reader is rejected."""
        for client in self.clients.values():
            for part in client.reads:
                key = client.member_id, client.epoch, part
                if key not in self.commits:
                    self.commits[key] = late_commit(client, part, len(self.readers[part]))
        found = self.groups.get(GROUP)
        for late in self.commits.values() if found is not None else ():
            assert found is not None
            client = late.client
            taken = found.check_commit(late.asked) is ErrorCode.none
            since = self.readers[late.part][late.readers :]
            reads_on = client.member_id in found.members and late.part in client.reads
            if set(since) - {client.member_id}:
                member = found.members.get(client.member_id)
                knows_newest = member is not None and member.epoch == late.asked.generation
                assert taken is knows_newest, "another member has read it since"
            elif not since and reads_on and client.lives == late.current_incarnation:
                assert taken, "it has read it all the time"

    def settle(self) -> None:
        """Let all clients act until nothing changes."""
        for client in list(self.clients.values()):
            if client.instance_id and self.is_superseded(client):
                del self.clients[client.member_id]
        for _ in range(12 + 4 * len(self.clients)):
            for client in self.clients.values():
                self.heartbeat(client)
                client.revoke()
                self.begin(client)
                self.check()
            self.pass_time(5_000)

    def is_superseded(self, client: Client) -> bool:
        found = self.groups.get(GROUP)
        holder = found.static.get(client.instance_id or "") if found else None
        return holder is not None and holder != client.member_id

    def check_quiet(self) -> None:
        if not self.clients:
            return
        group = self.group
        assert set(group.members) == set(self.clients)
        assert group.state == "Stable"
        wanted = self.topics.parts(group.subscribed())
        read = [part for client in self.clients.values() for part in client.reads]
        assert sorted(read) == sorted(wanted)


STEPS = (
    *("join", "join", *(["heartbeat and begin"] * 8), *(["heartbeat"] * 4), "lose", "revoke"),
    *("leave", "leave static", "come back", "crash", "time", "long time", "grow", "delete"),
    *("wish", "move", "compact"),
)


def step(world: World, name: str, data: st.DataObject) -> None:
    clients = sorted(world.clients.values(), key=lambda client: client.member_id)
    if name == "join" and len(clients) < 5:
        world.made += 1
        names, regex = data.draw(st.sampled_from(WISHES))
        instance = data.draw(st.sampled_from([None, None, "i1", "i2"]))
        assignor = data.draw(st.sampled_from([None, "uniform", "range"]))
        client = Client(f"m{world.made}", names, regex, instance, assignor)
        world.clients[client.member_id] = client
    elif name == "time":
        world.pass_time(data.draw(st.integers(0, 20_000)))
    elif name == "long time":
        world.pass_time(SESSION_MS + 1)
    elif name == "grow":
        world.topics.set(data.draw(st.sampled_from(NAMES)), data.draw(st.integers(1, 6)))
    elif name == "delete":
        world.topics.set(data.draw(st.sampled_from(NAMES)), None)
    elif name in ("move", "compact"):
        world.move(compacted=name == "compact")
    elif clients and name != "join":
        act(world, name, data.draw(st.sampled_from(clients)), data)


def act(world: World, name: str, client: Client, data: st.DataObject) -> None:
    match name:
        case "heartbeat":
            world.heartbeat(client)
        case "heartbeat and begin":
            told = client.told
            world.heartbeat(client)
            if client.told is not None and not (client.reads - client.told):
                world.begin(client)  # there is nothing to give up first
            elif client.told is not told:
                return
            client.revoke()
        case "lose":
            world.heartbeat(client, lose=True)
        case "revoke":
            client.revoke()
        case "leave":
            world.leave(client, -1)
        case "leave static" if client.instance_id is not None:
            world.leave(client, -2)
        case "come back" if client.instance_id is not None:
            world.leave(client, -2)
            world.made += 1
            again = Client(f"m{world.made}", client.names, client.regex, client.instance_id)
            world.clients[again.member_id] = again
        case "crash":
            del world.clients[client.member_id]
        case "wish":
            client.names, client.regex = data.draw(st.sampled_from(WISHES))
            client.tells_all = True


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_partition_has_one_reader_and_a_group_at_rest_reads_all(
    data: st.DataObject,
) -> None:
    world = World()
    for number in range(data.draw(st.integers(0, 2))):
        world.clients[f"first{number}"] = Client(f"first{number}", NAMES, None)
    world.settle()
    for name in data.draw(st.lists(st.sampled_from(STEPS), min_size=10, max_size=60)):
        step(world, name, data)
        world.check()
        world.check_commits()
    world.pass_time(0)
    world.settle()
    for _ in range(11):  # crashed members are removed
        world.pass_time(5_000)
        for client in world.clients.values():
            world.heartbeat(client)
            client.revoke()
    world.settle()
    world.check_quiet()
    world.move(compacted=True)
    world.settle()
    world.check_quiet()
    world.check_commits()


TOPIC_IDS = [topic_id(name) for name in NAMES]


@st.composite
def readers_and_counts(draw: st.DrawFn) -> tuple[dict[str, Reader], dict[UUID, int]]:
    counts = {topic: draw(st.integers(0, 12)) for topic in TOPIC_IDS}
    parts = [(topic, number) for topic in TOPIC_IDS for number in range(14)]
    readers = {
        f"m{n}": Reader(
            draw(st.frozensets(st.sampled_from(TOPIC_IDS))),
            draw(st.sampled_from([None, f"i{n}"])),
            draw(st.frozensets(st.sampled_from(parts), max_size=14)),
        )
        for n in range(draw(st.integers(0, 7)))
    }
    return readers, counts


@pytest.mark.parametrize("name", ASSIGNORS)
@given(given_=readers_and_counts())
def test_every_partition_has_one_reader_that_wants_it(
    name: str, given_: tuple[dict[str, Reader], dict[UUID, int]]
) -> None:
    readers, counts = given_
    found = ASSIGNORS[name](readers, counts)
    assert found.keys() == readers.keys()
    wanted = {t for reader in readers.values() for t in reader.topics}
    expected = sorted((t, n) for t in wanted for n in range(counts[t]))
    assert sorted(part for parts in found.values() for part in parts) == expected
    assert all(t in readers[m].topics for m, parts in found.items() for t, _ in parts)


@given(readers_and_counts())
def test_uniform_is_even_and_moves_nothing_without_need(
    given_: tuple[dict[str, Reader], dict[UUID, int]],
) -> None:
    readers, counts = given_
    first = assign_uniformly(readers, counts)
    kept = {m: Reader(r.topics, r.instance_id, first[m]) for m, r in readers.items()}
    assert assign_uniformly(kept, counts) == first
    alike = {m: Reader(frozenset(TOPIC_IDS), None, r.has) for m, r in readers.items()}
    even = assign_uniformly(alike, counts)
    if even:
        sizes = [len(parts) for parts in even.values()]
        assert max(sizes) - min(sizes) <= 1
        gone = min(even)
        left = {m: Reader(r.topics, None, even[m]) for m, r in alike.items() if m != gone}
        after = assign_uniformly(left, counts)
        assert all(even[m] <= after[m] for m in left), "only what the one who left had has moved"


def test_ranges_of_topics_with_equal_numbers_meet_at_the_same_reader() -> None:
    topics = frozenset(TOPIC_IDS[:2])
    found = assign_ranges(
        {"b": Reader(topics, "1"), "a": Reader(topics, "2")}, dict.fromkeys(TOPIC_IDS[:2], 3)
    )
    assert found["b"] == {(t, n) for t in topics for n in (0, 1)}
    assert found["a"] == {(t, 2) for t in topics}
