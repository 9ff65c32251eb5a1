"""States of records in a share group, and what of them is stored.

A group has one state for each record between its start offset and its end offset in a partition.
All before the start offset is finished; nothing beyond the end offset was delivered yet.

Source: KIP-932; Kafka's `ShareSnapshotValue.json` and `ShareUpdateValue.json`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


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


class StateBatch(NamedTuple):
    """Neighbouring records in one state; both offsets are included."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int
