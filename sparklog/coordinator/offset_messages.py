"""Values behind the requests for committed offsets and their responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.group_messages import NO_GENERATION, NO_MEMBER, MemberIdentity

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


class FoundOffset(NamedTuple):
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
class FoundOffsets:
    """The response for one group."""

    error: ErrorCode
    offsets: tuple[FoundOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedOffsets:
    """The response to OffsetDelete: one code for the request, and one for each offset."""

    error: ErrorCode
    offsets: tuple[ErrorCode, ...] = ()
