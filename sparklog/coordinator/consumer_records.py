"""Records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own formats.

- key 3, group: group id. Value: epoch, hash of the subscribed topics.
- key 4, topics of a group: written before Kafka 4, ignored.
- key 5, member: group id, member id. Value: its metadata and subscription.
- key 6, target: group id. Value: epoch of the target assignment.
- key 7, target of a member: group id, member id. Value: its target assignment.
- key 8, assignment of a member: group id, member id. Value: its epoch, assigned and revoked
  partitions.
- key 16, pattern: group id, pattern. Value: the topics that it matched.

`consumer_record_bytes` encodes and decodes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from sparklog.coordinator.consumer_messages import NO_PARTS, ClassicMember, Part, Parts


class MemberState(IntEnum):
    """Progress of a member towards its target, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members must revoke."""


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """Key 3: the group and its epoch."""

    group_id: str
    epoch: int | None
    """None: the group is deleted."""
    topics_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Key 5: a member's metadata."""

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
    """Key 6: the group epoch of the target assignment."""

    group_id: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """Key 7: the target assignment of a member."""

    group_id: str
    member_id: str
    parts: Parts | None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Key 8: the current assignment of a member."""

    group_id: str
    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Parts = NO_PARTS
    revoking: Parts = NO_PARTS
    gone: bool = False
    since: Mapping[Part, int] = field(default_factory=dict)
    """The epoch in which each held partition was assigned to the member (KIP-1251).

    Records before Kafka 4.3 have none: then it is the member epoch.
    """

    def __post_init__(self) -> None:
        """Complete `since`: an epoch for every held partition, and for no other."""
        said, own = self.since, max(self.epoch, 0)
        since = {part: said.get(part, own) for part in self.assigned | self.revoking}
        object.__setattr__(self, "since", since)


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """Key 16: the topics that a pattern matches."""

    group_id: str
    pattern: str
    names: frozenset[str] | None
    version: int = 0
    resolved_ms: int = 0


@dataclass(frozen=True, slots=True)
class OldRecord:
    """Key 4, which is obsolete."""

    group_id: str


ConsumerRecord = (
    GroupEpoch | MemberRecord | TargetEpoch | MemberTarget | MemberAssignment | ResolvedPattern
)
CONSUMER_KEYS: Final = frozenset({3, 4, 5, 6, 7, 8, 16})
