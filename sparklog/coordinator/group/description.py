"""Groups as administrators see them. Source: Kafka's DescribeGroups and ListGroups."""

from __future__ import annotations

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from sparklog.coordinator.classic.group import CLASSIC, ClassicGroup, GroupState
from sparklog.coordinator.consumer.group import CONSUMER, ConsumerGroup
from sparklog.coordinator.share.group import SHARE, ShareGroup


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One classic group; the state of one that does not exist is Dead."""

    group_id: str
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    state: str = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group of any type, in a list."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


def described(group: ClassicGroup) -> DescribedGroup:
    """Return a classic group; metadata and assignments only if the group is stable."""
    agreed = group.state is GroupState.STABLE
    return DescribedGroup(
        group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if agreed else "",
        members=tuple(
            DescribedMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.metadata(group.protocol) if agreed else b"",
                m.assignment if agreed else b"",
            )
            for m in group.members.values()
        ),
    )


def unknown(group_id: str) -> DescribedGroup:
    """Return the description of a group that does not exist."""
    return DescribedGroup(group_id, ErrorCode.group_id_not_found, f"Group {group_id} not found.")


def listed(group: ClassicGroup) -> ListedGroup:
    """Return the list entry of a classic group."""
    return ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)


def listed_consumer(group: ConsumerGroup) -> ListedGroup:
    """Return the list entry of a consumer group (KIP-848)."""
    return ListedGroup(group.group_id, CONSUMER, group.state, CONSUMER)


def listed_share(group: ShareGroup) -> ListedGroup:
    """Return the list entry of a share group (KIP-932)."""
    return ListedGroup(group.group_id, SHARE, group.state, SHARE)
