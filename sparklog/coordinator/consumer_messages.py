"""What members of consumer groups (KIP-848) tell and are told: the values behind the messages.

Their coordinator assigns partitions; a heartbeat tells what a member wants and owns, its answer
what it may read. Refusals are raised, each as Kafka's error. Time-outs are ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sparklog.coordinator.group_messages import Protocols

JOIN_EPOCH: Final = 0
"""The epoch of a member that is not one yet, or not any more."""
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""Of a static member that comes back: what it had is kept for it until its session ends."""
UNCHANGED_MS: Final = -1

Part = tuple[UUID, int]
"""A partition, by topic id."""
Parts = frozenset[Part]
NO_PARTS: Final[Parts] = frozenset()


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What is kept of a member that still speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A member lives. None stands for what did not change since it last said it."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    names: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Parts | None = None
    classic: ClassicMember | None = None
    """It is a classic member's join, put into the words of a heartbeat."""

    @property
    def is_full(self) -> bool:
        """Return whether it says everything, as after a lost answer: it is told all in turn."""
        subscribed = self.names is not None or self.regex is not None
        everything = self.rebalance_timeout_ms != UNCHANGED_MS and self.owned is not None
        return self.epoch == JOIN_EPOCH or (everything and subscribed)


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """What a member is told. No assignment: the one it was told last stands."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assignment: Parts | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberDescription:
    """One member, for administrators."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    names: tuple[str, ...]
    regex: str | None
    assigned: Parts
    target: Parts
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """One group, for administrators."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
