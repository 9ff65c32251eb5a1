"""One partition as this broker holds it, and the one role it has at a time.

I1  a role belongs to one leader epoch; the next epoch's role is a new object
I2  the role before is retired before the next one begins
"""

from __future__ import annotations

from sparklog.broker.followed_partition import FollowedPartition
from sparklog.broker.held_tail import HeldTail
from sparklog.broker.led_partition import LedPartition
from sparklog.broker.recovering_partition import RecoveringPartition
from sparklog.broker.topic_rules import TopicRules
from sparklog.cluster.image import Partition
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout

Role = LedPartition | RecoveringPartition | FollowedPartition


class Replica:
    """See the module."""

    def __init__(
        self,
        where: PartitionId,
        layout: PartitionLayout,
        state: Partition,
        held: HeldTail,
        rules: TopicRules,
    ) -> None:
        """Hold a partition in no role yet."""
        self.where = where
        self.layout = layout
        self.state = state
        """As the newest image has it."""
        self.held = held
        self.rules = rules
        self.role: Role | None = None

    @property
    def led(self) -> LedPartition | None:
        """Return the role of a leader that serves, if it has that."""
        role = self.role
        return role if isinstance(role, LedPartition) and role.live else None
