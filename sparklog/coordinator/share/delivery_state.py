"""States of records in a share group, and what of them is stored.

A group has one state for each record between its start offset and its end offset in a partition.
All before the start offset is finished; nothing beyond the end offset was delivered yet.

Source: KIP-932; Kafka's `ShareSnapshotValue.json` and `ShareUpdateValue.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.core.errors import InvalidRequest
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

NO_START_OFFSET: Final = -1
"""The group has no start offset yet: the partition's leader finds it by the reset policy."""
NO_COUNT: Final = -1
"""The number of finished records beyond the start offset is unknown."""


class DeliveryState(IntEnum):
    """The state of a record in a share group, by the numbers that Kafka stores."""

    AVAILABLE = 0
    """A member may acquire it."""
    ACQUIRED = 1
    """A member has it, until its lock expires. This state is never stored."""
    ACKNOWLEDGED = 2
    """A member has accepted it."""
    ARCHIVED = 4
    """The group is done with it: rejected, delivered too often, or no longer in the log."""


class SharePartitionKey(NamedTuple):
    """One partition as one share group consumes it."""

    group_id: str
    topic_id: UUID
    partition: int

    @classmethod
    def parse(cls, coordinator_key: str) -> SharePartitionKey:
        """Return the key of which this is the `coordinator_key`.

        Raises:
            InvalidRequest: it is none.
        """
        parts = coordinator_key.rsplit(":", 2)  # a group's id may have colons, too
        try:
            group_id, topic_id, partition = parts
            key = cls(group_id, uuid_of(topic_id), int(partition))
        except ValueError:
            key = cls("", UUID(int=0), -1)
        if not key.is_valid or key.coordinator_key != coordinator_key:
            raise InvalidRequest(
                "no key of a share group's partition; it is group:topicId:partition. "
                f"key={coordinator_key!r}"
            )
        return key

    @property
    def is_valid(self) -> bool:
        """Return True if it names a group, a topic and a partition."""
        return bool(self.group_id) and self.topic_id.int != 0 and self.partition >= 0

    @property
    def coordinator_key(self) -> str:
        """Return the key by which FindCoordinator finds the coordinator of this state."""
        return f"{self.group_id}:{topic_id_of(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Neighbouring records in one state; both offsets are included."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The stored state of a share group in one partition."""

    state_epoch: int
    """Increases when the group's offsets are initialized or altered."""
    start_offset: int = NO_START_OFFSET
    batches: tuple[StateBatch, ...] = ()
    """States of records from the start offset on, in order; a record without one is AVAILABLE."""
    leader_epoch: int = -1
    """Leader epoch of the partition's leader that read or wrote the state last."""
    delivery_complete_count: int = NO_COUNT
    """Number of finished records beyond the start offset (KIP-1226)."""


@dataclass(frozen=True, slots=True)
class ShareStateUpdate:
    """A change of the stored state, which the partition's leader writes."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    """The records that have changed; they replace the stored states of the same offsets."""
    delivery_complete_count: int = NO_COUNT
