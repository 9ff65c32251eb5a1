"""Migration between the group protocols: classic members of consumer groups (KIP-848).

A classic group becomes a consumer group when the first member with the newer protocol joins. It
stays one as long as it has such a member. For a classic member the generation is its member epoch.
A rebalance makes it join again, and the coordinator assigns its partitions instead of a leader. So
an application migrates member by member.
Source: Kafka's `GroupMetadataManager` (`classicGroupJoinToConsumerGroup` and related functions).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from sparklog.coordinator.classic.group import ClassicGroup, GroupState, Member
from sparklog.coordinator.consumer.group import ConsumerGroup, ConsumerMember
from sparklog.coordinator.consumer.messages import (
    JOIN_EPOCH,
    NO_PARTS,
    ClassicMember,
    ConsumerHeartbeat,
    Part,
    Parts,
)
from sparklog.coordinator.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberAssignment,
    MemberRecord,
    MemberState,
    MemberTarget,
    TargetEpoch,
)
from sparklog.coordinator.consumer.topics import Topics
from sparklog.coordinator.messages import JoinRequest, JoinResult, MemberIdentity, SyncResult
from sparklog.core.errors import GroupIdNotFound, InconsistentGroupProtocol, InvalidRequest
from sparklog.protocol.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment_and_data,
    decode_subscription,
    encode_assignment,
    version_of,
)

REMEMBERING_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Client assignors whose user data only repeats the members' partitions, for the next assignment.

Kafka upgrades no group whose assignments have user data. That excludes librdkafka, whose assignors
return each member's own user data in its assignment.
"""


def upgraded(classic: ClassicGroup, topics: Topics) -> list[ConsumerRecord]:
    """Return the records that convert a classic group with all its members to a consumer group.

    Every member keeps its partitions; the generation becomes the epoch. A cooperative member reads
    the partitions that it owned at its join until it gets a new assignment.

    Raises:
        GroupIdNotFound: not all members are consumers that the coordinator could assign for.
    """
    group_id, epoch = classic.group_id, classic.generation
    records: list[ConsumerRecord] = [GroupEpoch(group_id, epoch)]
    try:
        said = {m.member_id: _said(m, classic.protocol) for m in classic.members.values()}
    except InvalidRequest as error:
        raise GroupIdNotFound(
            f"Group {group_id} is not a consumer group, and cannot become one: {error}"
        ) from error
    held = _held(said, topics)
    assignments: list[ConsumerRecord] = []
    for m in classic.members.values():
        subscription, parts = said[m.member_id].subscription, held[m.member_id]
        records.append(
            MemberRecord(
                group_id,
                m.member_id,
                m.instance_id,
                subscription.rack_id,
                m.client_id,
                m.client_host,
                tuple(sorted(set(subscription.topics))),
                None,
                m.rebalance_timeout_ms,
                None,
                ClassicMember(m.session_timeout_ms, m.protocols),
            )
        )
        assignments += [
            MemberTarget(group_id, m.member_id, parts),
            MemberAssignment(group_id, m.member_id, epoch, epoch, assigned=parts),
        ]
    return [*records, TargetEpoch(group_id, epoch), *assignments]


class _Said(NamedTuple):
    """A classic member's subscription and last assignment."""

    subscription: Subscription
    assigned: Assignment


def _said(member: Member, protocol: str | None) -> _Said:
    """Return the subscription and the assignment of a classic member.

    Members that rely on user data in their assignment, as in Kafka Streams, cannot be upgraded.

    Raises:
        InvalidRequest: the member relies on user data, or its data cannot be read.
    """
    assigned, more = decode_assignment_and_data(member.assignment)
    if more and protocol not in REMEMBERING_ASSIGNORS:
        raise InvalidRequest(
            "its members have an assignor of their own. "
            f"member_id={member.member_id} protocol={protocol}"
        )
    return _Said(decode_subscription(member.protocols[0][1]), assigned)


def _held(said: Mapping[str, _Said], topics: Topics) -> dict[str, Parts]:
    """Return the partitions that members may be reading; disjoint even if an assignor was wrong."""
    held: dict[str, Parts] = dict.fromkeys(said, NO_PARTS)
    taken: set[Part] = set()
    assigned = [(member_id, facts.assigned) for member_id, facts in said.items()]
    owned = [(member_id, facts.subscription.owned) for member_id, facts in said.items()]
    for member_id, assignment in (*assigned, *owned):
        parts = _parts(assignment, topics) - taken
        taken |= parts
        held[member_id] |= parts
    return held


def downgraded(group: ConsumerGroup, topics: Topics, now_ms: int) -> ClassicGroup:
    """Return the stable classic group for a group that has only classic members.

    A member's assignment includes all partitions that it may be reading. So a newer member that
    joins before the next rebalance gets none of them.
    """
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation = group.epoch
    classic.protocol_type = PROTOCOL_TYPE
    for member in group.members.values():
        about = member.about
        assert about.classic is not None, about
        held = member.has.assigned | member.has.revoking
        classic.add(
            Member(
                member_id=member.member_id,
                instance_id=about.instance_id,
                client_id=about.client_id,
                client_host=about.client_host,
                rebalance_timeout_ms=about.rebalance_timeout_ms,
                session_timeout_ms=about.classic.session_timeout_ms,
                protocols=about.classic.protocols,
                assignment=_spelled(held, about.classic, topics),
            )
        )
    classic.state = GroupState.STABLE
    classic.protocol = classic.elected_protocol()
    return classic


def as_heartbeat(asked: JoinRequest, member_id: str, topics: Topics) -> ConsumerHeartbeat:
    """Return a classic member's join as the heartbeat of a joining member.

    Raises:
        InconsistentGroupProtocol: the client is not a consumer.
    """
    if asked.protocol_type != PROTOCOL_TYPE or not asked.protocols:
        raise InconsistentGroupProtocol(
            f"the members of the group are consumers. group={asked.group_id}"
        )
    subscription = _subscription(asked.protocols[0][1])
    return ConsumerHeartbeat(
        asked.group_id,
        member_id,
        JOIN_EPOCH,
        asked.client_id,
        asked.client_host,
        asked.instance_id,
        subscription.rack_id,
        asked.rebalance_timeout_ms,
        subscription.topics,
        "",
        None,
        _parts(subscription.owned, topics),
        ClassicMember(asked.session_timeout_ms, asked.protocols),
    )


def has_protocol_in_common(group: ConsumerGroup, asked: JoinRequest) -> bool:
    """Return True if all classic members could still agree on an assignor of their own."""
    names = {name for name, _ in asked.protocols}
    for member in group.members.values():
        classic = member.about.classic
        if classic is not None and member.member_id != asked.member_id:
            names &= {name for name, _ in classic.protocols}
    return bool(names)


def joined(member: ConsumerMember) -> JoinResult:
    """Return the JoinGroup response to a classic member; it names no leader."""
    return JoinResult(
        ErrorCode.none, member.member_id, member.epoch, PROTOCOL_TYPE, _protocol(member)
    )


def synced(member: ConsumerMember, topics: Topics) -> SyncResult:
    """Return a classic member's assignment."""
    classic = member.about.classic
    assert classic is not None, member
    assignment = _spelled(member.has.assigned, classic, topics)
    return SyncResult(ErrorCode.none, PROTOCOL_TYPE, _protocol(member), assignment)


def find_classic(
    group: ConsumerGroup, who: MemberIdentity, generation: int | None = None
) -> ConsumerMember | ErrorCode:
    """Return a classic member, or the error for these ids and this generation."""
    member_id = who.member_id
    if who.instance_id is not None:
        holder = group.static.get(who.instance_id)
        if holder is None:
            return ErrorCode.unknown_member_id
        if member_id and holder != member_id:
            return ErrorCode.fenced_instance_id
        member_id = holder
    member = group.members.get(member_id)
    if member is None or not member.is_classic:
        return ErrorCode.unknown_member_id
    if generation is not None and generation != member.epoch:
        return ErrorCode.illegal_generation
    return member


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return True if a classic member must revoke partitions, or could get more."""
    if member.epoch < group.epoch or member.has.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.has.state is MemberState.STABLE:
        return False
    missing = group.targets.get(member.member_id, NO_PARTS) - member.has.assigned
    return any(not group.is_held_by_other(part, member.member_id) for part in missing)


def _protocol(member: ConsumerMember) -> str:
    classic = member.about.classic
    return classic.protocols[0][0] if classic is not None else ""


def _subscription(metadata: bytes) -> Subscription:
    try:
        return decode_subscription(metadata)
    except InvalidRequest as error:
        raise InconsistentGroupProtocol(
            f"a member's subscription cannot be read: {error}"
        ) from error


def _parts(assignment: Assignment, topics: Topics) -> Parts:
    return frozenset(
        (found[0], number)
        for name, numbers in assignment.items()
        if (found := topics.find(name)) is not None
        for number in numbers
    )


def _spelled(parts: Parts, classic: ClassicMember, topics: Topics) -> bytes:
    named = {
        name: tuple(number for _, number in found)
        for topic_id, found in groupby(sorted(parts), itemgetter(0))
        if (name := topics.name_of(topic_id)) is not None
    }
    return encode_assignment(named, version_of(classic.protocols[0][1]))
