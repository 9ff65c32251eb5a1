"""ClassicGroup: the members and the state of one classic group. It has no clock.

- Empty -> PreparingRebalance: a member joins.
- PreparingRebalance -> CompletingRebalance: all members joined, or the time is up.
- PreparingRebalance -> Empty: no member is left.
- CompletingRebalance -> Stable: the leader sent the assignment.
- CompletingRebalance -> PreparingRebalance: the members changed meanwhile.
- Stable -> PreparingRebalance: members or subscriptions changed.
- any other -> Dead: deleted, expired, or converted to a consumer group.

CLASSIC-GROUP-1: A generation has one leader, one protocol that every member supports, and one
    assignment.
CLASSIC-GROUP-2: An instance id names one member. A member that joins with it replaces the previous
    holder.
CLASSIC-GROUP-3: Generations rise. The coordinator rejects a request of an older generation.

Source: Kafka's classic group protocol; KIP-345 (static members), KIP-394 (member ids).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator.effects import RECORD_OVERHEAD_BYTES, Token
from sparklog.coordinator.group_records import NEVER_MS, GroupValue, MemberValue
from sparklog.coordinator.messages import JoinedMember, MemberIdentity, Protocols
from sparklog.core.errors import InvalidRequest
from sparklog.protocol.messages.consumer_protocol import PROTOCOL_TYPE, decode_subscription

CLASSIC: Final = "classic"
UTF8_BYTES_MAX: Final = 4


class GroupState(StrEnum):
    """States of a classic group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT_STATES: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


@dataclass(slots=True)
class Member:
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    """Names the pending JoinGroup request of this member."""
    sync_token: Token | None = None
    is_new: bool = False
    """True until the response to its first join: without an id it cannot send heartbeats yet."""

    @property
    def identity(self) -> MemberIdentity:
        """Return the member id and the instance id."""
        return MemberIdentity(self.member_id, self.instance_id)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for an assignor."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the candidate that this member prefers; it supports all of them."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroup:
    """One classic group; see the module."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        """Start without members."""
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        """None until a member joins: until then the group only holds offsets."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending: set[str] = set()
        """Member ids that were returned to clients which have not joined with them yet."""
        self.to_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.delay_left_ms: int | None = None
        """First rebalance only: how long the group may still wait for more members."""
        self.grew = False
        """First rebalance only: True if a member joined since the last check."""

    @classmethod
    def of(cls, group_id: str, value: GroupValue) -> ClassicGroup:
        """Return the group that a record describes."""
        group = cls(group_id, value.state_since_ms)
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader = value.leader
        for stored in value.members:
            group.add(
                Member(
                    member_id=stored.member_id,
                    instance_id=stored.instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=stored.rebalance_timeout_ms,
                    session_timeout_ms=stored.session_timeout_ms,
                    protocols=((value.protocol or "", stored.subscription),),
                    assignment=stored.assignment,
                )
            )
        return group

    def value(self) -> GroupValue:
        """Return the value of the group's record."""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_since_ms=self.state_since_ms,
            members=tuple(
                MemberValue(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    session_timeout_ms=m.session_timeout_ms,
                    subscription=m.metadata(self.protocol),
                    assignment=m.assignment,
                )
                for m in self.members.values()
            ),
        )

    def stored_bytes(self, assignments: Mapping[str, bytes]) -> int:
        """Return an upper bound for the group's record with these assignments, in bytes."""
        return sum(
            len(m.metadata(self.protocol))
            + len(assignments.get(m.member_id, b""))
            + UTF8_BYTES_MAX * len(m.member_id + m.client_id + m.client_host)
            + UTF8_BYTES_MAX * len(m.instance_id or "")
            + RECORD_OVERHEAD_BYTES
            for m in self.members.values()
        )

    def become(self, state: GroupState, now_ms: int) -> None:
        """Change the state, as `NEXT_STATES` allows."""
        assert state in NEXT_STATES[self.state], (self.group_id, self.state, state)
        self.state = state
        self.state_since_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation with the present members."""
        self.generation += 1
        self.delay_left_ms, self.grew = None, False
        if self.members:
            self.protocol = self.elected_protocol()
            self.become(GroupState.COMPLETING_REBALANCE, now_ms)
            self.to_sync = set(self.members)
        else:
            self.protocol = None
            self.to_sync = set()
            self.become(GroupState.EMPTY, now_ms)

    # Members.

    def add(self, member: Member) -> None:
        """Add a member. The first one becomes the leader."""
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member. When the leader is removed, the oldest member becomes the leader."""
        member = self.members.pop(member_id)
        self.to_sync.discard(member_id)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, member: Member, member_id: str) -> None:
        """Give a static member a new id; it keeps its place in the order."""
        old_id = member.member_id
        member.member_id = member_id
        self.members = {m.member_id: m for m in self.members.values()}
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id
        if old_id in self.to_sync:
            self.to_sync.remove(old_id)
            self.to_sync.add(member_id)
        if self.leader == old_id:
            self.leader = member_id

    def check(self, who: MemberIdentity) -> ErrorCode:
        """Return the error for a member that identifies itself as `who`, or `none`."""
        if who.instance_id is not None:
            known = self.static.get(who.instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != who.member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if who.member_id in self.members else ErrorCode.unknown_member_id

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has joined this rebalance; return False if no member has."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_token is not None:
            return True
        joined = (m.member_id for m in self.members.values() if m.join_token is not None)
        found = next(joined, None)
        if found is not None:
            self.leader = found
        return found is not None

    @property
    def all_joined(self) -> bool:
        """Return True if the rebalance waits for no member."""
        return not self.pending and all(m.join_token is not None for m in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest time that a member may take to join again."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def described(self) -> tuple[JoinedMember, ...]:
        """Return the members for the leader's JoinGroup response."""
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol))
            for m in self.members.values()
        )

    # Protocols.

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return True if such a member has a protocol in common with all others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        return not self.members or any(name in self._candidates() for name, _ in protocols)

    def _candidates(self) -> set[str]:
        supported = ({name for name, _ in m.protocols} for m in self.members.values())
        return set.intersection(*supported)

    def elected_protocol(self) -> str:
        """Return the protocol that most members prefer; a new generation uses it."""
        candidates = self._candidates()
        votes = Counter(m.vote(candidates) for m in self.members.values())
        return votes.most_common(1)[0][0]

    # Offsets.

    @property
    def is_consumer(self) -> bool:
        """Return True if the members are consumers, and not for example Connect workers."""
        return self.protocol_type == PROTOCOL_TYPE

    def subscribed(self) -> frozenset[str] | None:
        """Return the topics that members read; None if some metadata cannot be decoded."""
        if not self.is_consumer:
            return frozenset()
        topics: set[str] = set()
        for member in self.members.values():
            for name, metadata in member.protocols:
                # Before the first generation no protocol is chosen: read the metadata for every
                # assignor.
                if self.protocol not in (None, name):
                    continue
                try:
                    topics.update(decode_subscription(metadata).topics)
                except InvalidRequest:
                    return None
        return frozenset(topics)

    def check_commit(
        self, who: MemberIdentity, generation: int, *, transactional: bool
    ) -> ErrorCode:
        """Return the error for an offset commit, or `none`.

        A commit without a generation comes from an administrator, or from a consumer that assigns
        partitions itself. It is valid in a transaction, or while the group has no members.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.none
        if generation >= 0 or who.member_id or who.instance_id is not None:
            error = self.check(who)
            if error is not ErrorCode.none:
                return error
            if generation != self.generation:
                return ErrorCode.illegal_generation
        elif not transactional and self.state is not GroupState.EMPTY:
            return ErrorCode.unknown_member_id
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def offsets_unused_since_ms(self, commit_ms: int) -> int | None:
        """Return since when an offset of an unread topic is unused, in ms; None if it is in use."""
        if self.protocol_type is None:
            return commit_ms
        if self.state is GroupState.EMPTY:
            return commit_ms if self.state_since_ms == NEVER_MS else self.state_since_ms
        if self.state is GroupState.STABLE and self.is_consumer:
            return commit_ms
        return None
