"""Groups with members of both protocols, under anything that may happen to them.

Classic clients are modelled as they behave. Eager ones give up everything before they join.
Cooperative ones give up the partitions they must, and join again. The group changes its type with
the first member of the newer protocol, and back when the last one has left.

  - No partition is read by two members that the coordinator counts as such.
  - At rest every partition has one reader, and the group has its expected type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.consumer_protocol_subscription.v1 import data as subscription_v1
from kio.schema.errors import ErrorCode

from sparklog.coordinator.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatAnswer, Part
from sparklog.coordinator.effects import CoordinatorRecord, CoordinatorResult, Token
from sparklog.coordinator.group.shard import GroupShard
from sparklog.coordinator.messages import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from sparklog.core.errors import GroupError
from sparklog.protocol.messages.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from sparklog.protocol.messages.encoder import put_entity
from tests.harness.coordinator_settings import group_settings
from tests.property.test_consumer_group import GROUP, NAMES, Client, FakeTopics, topic_id

SESSION_MS = 10_000
REBALANCE_MS = 20_000
ROUND_MS = 2_000


def subscription(owned: set[Part], topics: FakeTopics) -> bytes:
    by_name: dict[str, list[int]] = {}
    for asked, number in sorted(owned):
        name = topics.name_of(asked)
        if name is not None:
            by_name.setdefault(name, []).append(number)
    parts = tuple(
        subscription_v1.TopicPartition(topic=name, partitions=tuple(numbers))  # type: ignore[arg-type]
        for name, numbers in by_name.items()
    )
    out = bytearray(bytes.fromhex("0001"))
    put_entity(
        out,
        subscription_v1.ConsumerProtocolSubscription(
            topics=NAMES,
            user_data=None,
            owned_partitions=parts,
        ),
    )
    return bytes(out)


@dataclass
class Classic:
    """A consumer of the classic protocol."""

    name: str
    cooperative: bool
    member_id: str = ""
    generation: int = -1
    reads: set[Part] = field(default_factory=set)
    must_join: bool = True
    joining: Token | None = None
    syncing: Token | None = None
    ids: int = 0
    led_with: int | None = None
    """The version of the topics that it assigned, if it leads."""

    def forget(self) -> None:
        self.member_id, self.generation, self.must_join = "", -1, True
        self.joining = self.syncing = self.led_with = None
        self.reads.clear()


class World:
    """One group, its members of both protocols, its log."""

    def __init__(self, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self.topics = FakeTopics()
        self.settings = group_settings(group_initial_rebalance_delay_ms=0)
        self.now_ms = 0
        self.log: list[CoordinatorRecord] = []
        self.replies: dict[Token, object] = {}
        self.asked = 0
        self.shard = self.new_shard()
        self.classic: list[Classic] = []
        self.newer: list[Client] = []
        self.made = 0

    def new_shard(self) -> GroupShard:
        return GroupShard(self.settings, lambda: self.topics)

    def submit(self, event: Callable[[GroupShard, Token, int], CoordinatorResult]) -> Token:
        self.asked += 1
        self.take(event(self.shard, self.asked, self.now_ms))
        return self.asked

    def take(self, effects: CoordinatorResult) -> None:
        self.log += effects.records
        self.replies.update(effects.replies)

    def pass_time(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    def move(self, *, compacted: bool) -> None:
        if compacted:
            newest = {record.key: n for n, record in enumerate(self.log)}
            self.log = [r for n, r in enumerate(self.log) if newest[r.key] == n]
        self.shard = self.new_shard()
        for offset, record in enumerate(self.log):
            self.shard.replay(
                record, offset=offset, timestamp_ms=self.now_ms, producer_id=-1, producer_epoch=-1,
                transactional=False,
            )  # fmt: skip
        self.take(self.shard.loaded(self.now_ms))
        for client in self.classic:
            if client.joining in self.replies or client.syncing in self.replies:
                continue
            client.must_join |= client.joining is not None or client.syncing is not None
            client.joining = client.syncing = None

    # Members.

    def act(self, client: Classic) -> None:
        """Do the next thing that a classic client does."""
        if client.joining is not None:
            if client.joining in self.replies:
                self.joined(client, self.replies[client.joining])
        elif client.syncing is not None:
            if client.syncing in self.replies:
                self.synced(client, self.replies[client.syncing])
        elif client.must_join:
            self.join(client)
        else:
            asked = HeartbeatRequest(GROUP, MemberIdentity(client.member_id), client.generation)
            code = self.replies[self.submit(lambda s, t, n: s.heartbeat(asked, t, n))]
            topics_changed = client.led_with not in (None, self.topics.version)
            if code not in (ErrorCode.none, ErrorCode.rebalance_in_progress):
                client.forget()
            elif code is ErrorCode.rebalance_in_progress or topics_changed:
                client.must_join = True

    def join(self, client: Classic) -> None:
        if not client.cooperative:
            client.reads.clear()
        client.ids += 1
        metadata = subscription(client.reads, self.topics)
        asked = JoinRequest(
            GROUP, client.member_id, f"{client.name}-{client.ids}", None, "c", "/h", SESSION_MS,
            REBALANCE_MS, "consumer", (("sharing", metadata),),
        )  # fmt: skip
        client.must_join = False
        client.joining = self.submit(lambda s, t, n: s.join(asked, t, n))

    def joined(self, client: Classic, reply: object) -> None:
        assert isinstance(reply, JoinResult)
        client.joining = None
        if reply.error is ErrorCode.member_id_required:
            client.member_id, client.must_join = reply.member_id, True
        elif reply.error is ErrorCode.rebalance_in_progress:
            client.must_join = True
        elif reply.error is not ErrorCode.none:
            client.forget()
        else:
            client.member_id, client.generation = reply.member_id, reply.generation
            leads = reply.leader == reply.member_id
            client.led_with = self.topics.version if leads else None
            shares = self.shares(reply) if leads else ()
            asked = SyncRequest(
                GROUP, MemberIdentity(client.member_id), client.generation, "consumer", "sharing",
                shares,
            )  # fmt: skip
            client.syncing = self.submit(lambda s, t, n: s.sync(asked, t, n))

    def shares(self, reply: JoinResult) -> tuple[tuple[str, bytes], ...]:
        """Assign as a leader does: in turns, but nothing that another one still owns."""
        owned = {
            (name, number): member.member_id
            for member in reply.members
            for name, numbers in decode_subscription(member.metadata).owned.items()
            for number in numbers
        }
        ids = sorted(member.member_id for member in reply.members)
        found: dict[str, dict[str, tuple[int, ...]]] = {member_id: {} for member_id in ids}
        parts = [(name, n) for name, count in sorted(self.topics.counts.items())
                 for n in range(count)]  # fmt: skip
        for turn, (name, number) in enumerate(parts):
            member_id = ids[turn % len(ids)]
            if owned.get((name, number), member_id) == member_id:
                found[member_id][name] = (*found[member_id].get(name, ()), number)
        return tuple((member_id, encode_assignment(a)) for member_id, a in found.items())

    def synced(self, client: Classic, reply: object) -> None:
        assert isinstance(reply, SyncResult)
        client.syncing = None
        if reply.error is ErrorCode.rebalance_in_progress:
            client.must_join = True
        elif reply.error is not ErrorCode.none:
            client.forget()
        else:
            told = decode_assignment(reply.assignment)
            assigned = {(topic_id(name), n) for name, numbers in told.items() for n in numbers}
            client.must_join = client.cooperative and bool(client.reads - assigned)
            client.reads = assigned

    def heartbeat(self, client: Client) -> None:
        try:
            token = self.submit(
                lambda s, t, n: s.consumer_heartbeat(client.request(), self.topics, t, n)
            )
        except GroupError:
            client.give_up()
            return
        reply = self.replies[token]
        assert isinstance(reply, ConsumerHeartbeatAnswer)
        client.take(reply)
        # It gives up the revoked partitions at once, reports that, and begins with the rest.
        if client.told is not None and not client.reads - client.told:
            client.begin()
        client.revoke()

    def leave(self, client: Classic | Client) -> None:
        if isinstance(client, Classic):
            self.classic.remove(client)
            asked = LeaveRequest(GROUP, (MemberIdentity(client.member_id),))
            self.submit(lambda s, t, n: s.leave(asked, t, n))
            return
        self.newer.remove(client)
        gone = ConsumerHeartbeat(GROUP, client.member_id, -1)
        try:
            self.submit(lambda s, t, n: s.consumer_heartbeat(gone, self.topics, t, n))
        except GroupError:
            pass

    # Invariants.

    def counted(self) -> set[str]:
        """Return the ids of whom the coordinator takes for members."""
        consumers = self.shard._consumers.get(GROUP)
        classic = self.shard._classic.get(GROUP)
        assert consumers is None or classic is None, "a group is of one type"
        return {*(consumers.members if consumers else ()), *(classic.members if classic else ())}

    def check(self) -> None:
        members = self.counted()
        seen: dict[Part, str] = {}
        readers = [(old.member_id, old.reads) for old in self.classic]
        readers += [(newer.member_id, newer.reads) for newer in self.newer if newer.epoch]
        for member_id, reads in readers:
            for part in reads if member_id in members else ():
                assert part not in seen, (part, seen[part], member_id)
                seen[part] = member_id

    def settle(self) -> None:
        for _ in range(60):
            for client in self.classic:
                for _ in range(4):
                    self.act(client)
                    self.check()
            for newer in self.newer:
                self.heartbeat(newer)
                self.check()
            self.pass_time(ROUND_MS)

    def check_quiet(self) -> None:
        if not self.classic and not self.newer:
            return
        ids = {old.member_id for old in self.classic} | {newer.member_id for newer in self.newer}
        assert self.counted() == ids
        token = self.submit(lambda s, t, n: s.list_groups(t, n))
        listed = self.replies[token]
        assert isinstance(listed, tuple)
        (group,) = listed
        assert group.state == "Stable"
        assert group.group_type == ("consumer" if self.newer else "classic")
        read = [part for old in self.classic for part in old.reads]
        read += [part for newer in self.newer for part in newer.reads]
        assert sorted(read) == sorted(self.topics.parts(NAMES))


STEPS = (
    *(["act"] * 14), *("classic", "classic", "newer", "newer", "leave", "crash", "time"),
    *("grow", "move", "compact"),
)  # fmt: skip


def step(world: World, name: str, data: st.DataObject) -> None:
    clients: list[Classic | Client] = [*world.classic, *world.newer]
    if name in ("classic", "newer") and len(clients) < 5:
        world.made += 1
        if name == "newer":
            world.newer.append(Client(f"new{world.made}", NAMES, None))
        else:
            world.classic.append(Classic(f"old{world.made}", world.cooperative))
    elif name == "time":
        world.pass_time(data.draw(st.sampled_from([100, 3_000, 50_000])))
    elif name == "grow":
        world.topics.set(data.draw(st.sampled_from(NAMES)), data.draw(st.integers(1, 5)))
    elif name in ("move", "compact"):
        world.move(compacted=name == "compact")
    elif clients and name in ("act", "leave", "crash"):
        client = data.draw(st.sampled_from(clients))
        if name == "leave":
            world.leave(client)
        elif name == "crash":
            (world.classic if isinstance(client, Classic) else world.newer).remove(client)  # type: ignore[arg-type]
        elif isinstance(client, Classic):
            world.act(client)
        else:
            world.heartbeat(client)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.booleans())
def test_a_group_of_both_protocols_never_reads_a_partition_twice(
    data: st.DataObject, cooperative: bool
) -> None:
    world = World(cooperative=cooperative)
    for number in range(data.draw(st.integers(0, 2))):
        world.classic.append(Classic(f"first{number}", cooperative))
    world.settle()
    for name in data.draw(st.lists(st.sampled_from(STEPS), min_size=10, max_size=50)):
        step(world, name, data)
        world.check()
    world.settle()
    world.check_quiet()
    world.move(compacted=True)
    world.settle()
    world.check_quiet()
