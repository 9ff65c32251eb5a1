"""Values behind the messages of share groups (KIP-932), between clients and their coordinator.

The coordinator assigns partitions, and several members may have the same one. A member chooses its
own id. The coordinator raises each rejection as Kafka's error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.coordinator.consumer.messages import Part, Parts
from sparklog.coordinator.share.delivery_state import SharePartitionKey

JOIN_EPOCH: Final = 0
"""The epoch of a client that is not a member yet, or no longer."""
LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A member's heartbeat. None stands for a value that did not change since the last one."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShareHeartbeatAnswer:
    """The response to a heartbeat. Without an assignment, the last one stays valid."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assignment: Parts | None = None


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """One member, for administrators."""

    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    names: tuple[str, ...]
    assigned: Parts


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """One group, for administrators."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...]


@dataclass(frozen=True, slots=True)
class InitializeShareState:
    """An errand: initialize the stored states of partitions, then submit `share_initialized`."""

    group_id: str
    state_epoch: int
    parts: tuple[Part, ...]

    def state_keys(self) -> tuple[SharePartitionKey, ...]:
        """Return the keys of the stored states."""
        return tuple(SharePartitionKey(self.group_id, *part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class ShareStatesToDelete:
    """The reply to the deletion of a group: delete these states first, then call again."""

    keys: tuple[SharePartitionKey, ...]
