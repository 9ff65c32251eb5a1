"""What members of classic groups ask and are answered: the values behind the messages.

An error is Kafka's code, as the answer carries it. Time-outs are ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""

Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignors with what the member tells each, the preferred one first."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A consumer wants to be a member, or tells that it still is."""

    group_id: str
    member_id: str
    """Empty when it has none yet."""
    new_member_id: str
    """The id to give it then: made up by whoever has randomness."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_member_id: bool = True
    """Whether a new member is first told its id, and joins with that (KIP-394)."""
    can_skip_assignment: bool = True
    """Whether its client knows that a leader may have nothing to assign (KIP-814)."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member, as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader; others see none."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Who a member says it is."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings everybody's."""

    group_id: str
    member: MemberIdentity
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member lives. The answer is a code."""

    group_id: str
    member: MemberIdentity
    generation: int


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """Members leave, or are removed; by instance id alone too."""

    group_id: str
    members: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """The answer to a leave: for the whole, and for every member in the request's order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()
