"""What is asked about committed offsets, and what is answered: the values behind the messages."""

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
    """One partition's offset, as it is to be committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Offsets to commit. The answer is one code for each, in the same order."""

    group_id: str
    member: MemberIdentity
    generation: int
    """Or the member's epoch, in a group of the newer protocol; -1 of whoever is no member."""
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = NO_RETENTION
    """Older clients say for how long."""
    producer: ProducerIdentity | None = None
    """Whose transaction decides whether they count."""
    knows_epochs: bool = True
    """The client's message may tell the epoch of a member, and be refused for it."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Whose committed offsets are asked for."""

    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    """Topics and partitions; None asks for all there are."""
    require_stable: bool = False
    """Refuse offsets that an open transaction may change."""
    member_id: str = NO_MEMBER
    member_epoch: int = NO_GENERATION


class FoundOffset(NamedTuple):
    """A committed offset, or that there is none."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.none
    topic_id: UUID | None = None
    """Of the topic that had the name when it was committed, if that is known."""


@dataclass(frozen=True, slots=True)
class FoundOffsets:
    """The answer about one group."""

    error: ErrorCode
    offsets: tuple[FoundOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedOffsets:
    """The answer to a request to delete offsets: for the whole, and one code for each."""

    error: ErrorCode
    offsets: tuple[ErrorCode, ...] = ()
