"""Values behind the messages of consumer groups (KIP-848).

The coordinator assigns partitions. A heartbeat carries a member's subscription and the partitions
that it owns; the response carries its assignment. The coordinator raises each rejection as Kafka's
error. Time-outs are ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sparklog.coordinator.messages import Protocols

JOIN_EPOCH: Final = 0
"""The epoch of a client that is not a member yet, or no longer."""
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves and will return: its partitions stay reserved until its session ends."""
UNCHANGED_MS: Final = -1

Part = tuple[UUID, int]
"""A partition, by topic id."""
Parts = frozenset[Part]
NO_PARTS: Final[Parts] = frozenset()
FilterTopics = Callable[[Iterable[str]], frozenset[str]]
"""Returns those of some topics that a client may describe."""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """The classic protocol's part of a member's record."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A member's heartbeat. None stands for a value that did not change since the last one."""

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
    """Set if the heartbeat stands for a classic member's join."""
    may_describe: FilterTopics | None = None
    """Limits the topics that a pattern matches to those that the client may describe."""

    @property
    def is_full(self) -> bool:
        """Return True if it has all values, as after a lost response: the response is full too."""
        subscribed = self.names is not None or self.regex is not None
        everything = self.rebalance_timeout_ms != UNCHANGED_MS and self.owned is not None
        return self.epoch == JOIN_EPOCH or (everything and subscribed)


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """The response to a heartbeat. Without an assignment, the last one stays valid."""

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
