"""Values behind the messages of classic groups, and of requests for committed offsets.

An error is Kafka's code, as in the response. Time-outs are ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.coordinator.effects import ProducerIdentity

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""

Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignors with the member's metadata for each, the preferred one first."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A consumer joins a group, or joins again."""

    group_id: str
    member_id: str
    """Empty if the client has none yet."""
    new_member_id: str
    """The id for a client without one; the caller generates it, as the shard has no randomness."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_member_id: bool = True
    """True if a new member first gets its id, and joins with that (KIP-394)."""
    can_skip_assignment: bool = True
    """True if the client knows that a leader may have nothing to assign (KIP-814)."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The response to a join."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader; empty for others."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The ids that a member sends."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its assignment; the leader sends those of all members."""

    group_id: str
    member: MemberIdentity
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The response to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member's heartbeat. The response is a code."""

    group_id: str
    member: MemberIdentity
    generation: int


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """Members that leave or that an administrator removes, also by instance id alone."""

    group_id: str
    members: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The response to a leave: one code for the request, and one for each member in order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()


NO_OFFSET: Final = -1
NO_RETENTION: Final = -1


class OffsetToCommit(NamedTuple):
    """One partition's offset in a commit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Offsets to commit. The response has one code for each, in the same order."""

    group_id: str
    member: MemberIdentity
    generation: int
    """The generation, or the member epoch in a consumer group; -1 if the client is not a member."""
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = NO_RETENTION
    """Retention time in ms, from older clients."""
    producer: ProducerIdentity | None = None
    """The producer whose transaction decides the commit."""
    knows_epochs: bool = True
    """True if the request version can carry a member epoch, and get an error for it."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A request for committed offsets of a group."""

    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    """Topics and partitions; None asks for all offsets."""
    require_stable: bool = False
    """Reject offsets that an open transaction may change."""
    member_id: str = NO_MEMBER
    member_epoch: int = NO_GENERATION


class GroupOffset(NamedTuple):
    """A committed offset, or -1 if there is none."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.none
    topic_id: UUID | None = None
    """Id of the topic that had the name at the commit, if known."""


@dataclass(frozen=True, slots=True)
class GroupOffsetsResult:
    """The response for one group."""

    error: ErrorCode
    offsets: tuple[GroupOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedOffsets:
    """The response to OffsetDelete: one code for the request, and one for each offset."""

    error: ErrorCode
    offsets: tuple[ErrorCode, ...] = ()
