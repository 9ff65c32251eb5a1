"""Records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own formats.

    key 3    group: group                          value: epoch, hash of its topics
    key 4    topics of a group: of before Kafka 4, passed over
    key 5    member: group, member                 value: who it is, what it subscribes to
    key 6    target: group                         value: epoch of the target assignment
    key 7    target of a member: group, member     value: what it shall read
    key 8    member's assignment: group, member    value: its epoch, what it reads and gives up
    key 16   pattern: group, pattern               value: the topics it stood for

Their bytes are in `consumer_record_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from sparklog.coordinator.consumer_messages import NO_PARTS, ClassicMember, Part, Parts


class MemberState(IntEnum):
    """How far a member is with its target, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It is yet to give up partitions before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others are yet to give up."""


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """Key 3: the group, and when it changed last."""

    group_id: str
    epoch: int | None
    """None: the group is gone."""
    topics_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Key 5: who a member is."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """Key 6: the epoch of the group that the target assignment was made for."""

    group_id: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """Key 7: what a member shall read."""

    group_id: str
    member_id: str
    parts: Parts | None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Key 8: what a member reads."""

    group_id: str
    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Parts = NO_PARTS
    revoking: Parts = NO_PARTS
    gone: bool = False
    since: Mapping[Part, int] = field(default_factory=dict)
    """The epoch in which the member was handed each partition that it has not given up (KIP-1251).
    Where none is said, as in records of before Kafka 4.3, it is the member's own."""

    def __post_init__(self) -> None:
        """Know an epoch of every partition, and of no other."""
        said, own = self.since, max(self.epoch, 0)
        since = {part: said.get(part, own) for part in self.assigned | self.revoking}
        object.__setattr__(self, "since", since)


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """Key 16: the topics that a pattern stands for."""

    group_id: str
    pattern: str
    names: frozenset[str] | None
    version: int = 0
    resolved_ms: int = 0


@dataclass(frozen=True, slots=True)
class OldRecord:
    """Key 4, which nobody needs any more."""

    group_id: str


ConsumerRecord = (
    GroupEpoch | MemberRecord | TargetEpoch | MemberTarget | MemberAssignment | ResolvedPattern
)
CONSUMER_KEYS: Final = frozenset({3, 4, 5, 6, 7, 8, 16})
