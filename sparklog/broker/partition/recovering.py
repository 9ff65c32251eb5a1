"""RecoveringPartition: a partition that this broker was elected to lead and does not serve yet.

The module also makes the error of a partition whose own log is damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from sparklog.broker.partition.config import TopicRules
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.tail import PartitionTail
from sparklog.cluster.metadata.image import PartitionState
from sparklog.coordinator.internal_topics import INTERNAL_TOPICS
from sparklog.core.errors import DataCorrupt, NotServing, PartitionDamaged, SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout

RECOVERY_WAIT_MAX_S: Final = 5.0
"""Longest wait of a request for a new leader; the wait spares clients some retries."""


class RecoveringPartition:
    """A leader epoch before it serves. Requests may wait until recovery succeeds or fails."""

    def __init__(
        self,
        where: PartitionId,
        layout: PartitionLayout,
        state: PartitionState,
        held: PartitionTail,
        rules: TopicRules,
    ) -> None:
        """Recover the epoch that `state` names, with the batches that `held` has already."""
        self.where = where
        self.layout = layout
        self.leader_epoch = state.leader_epoch
        self.wals = state.wals
        self.has_all_committed = state.leader in state.isr and len(state.isr) > 1
        """The leader was elected from several in-sync replicas. Then every committed record is in
        the partition's own log or in this broker's tail. An ISR of one proves nothing: its member
        may be a substitute that the controller chose, and that has no records."""
        self.held = held
        self.rules = rules
        self.append_queue = held.append_queue
        self.live = True
        self.damage: PartitionDamaged | None = None
        """The error that prevents recovery at present; the broker tries again nevertheless."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.started_s = asyncio.get_running_loop().time()

    @property
    def is_internal(self) -> bool:
        """Return True if only brokers write to its topic."""
        return self.layout.topic in INTERNAL_TOPICS

    def not_ready_error(self) -> SparklogError:
        """Return the error for a request that does not wait."""
        return self.damage or NotServing(
            "the new leader still recovers the partition; try again in a moment. "
            f"partition={self.layout.topic}-{self.layout.partition} "
            f"leader_epoch={self.leader_epoch}"
        )

    def retire(self) -> None:
        """End the wait: this broker serves the partition now, or another broker leads it."""
        self.live = False
        if not self.ended.done():
            self.ended.set_result(None)

    async def wait_ended(self, timeout_s: float) -> None:
        """Wait until recovery ends, with or without success, at most for `timeout_s`."""
        await asyncio.wait([self.ended], timeout=timeout_s)


Find = Callable[[PartitionId], LeaderPartition | RecoveringPartition]
"""Returns the partition that a broker leads, or raises the reason that it does not."""


def damaged(layout: PartitionLayout, error: DataCorrupt) -> PartitionDamaged:
    """Return the error for clients and for the log. Its text names the damaged object."""
    return PartitionDamaged(
        "the partition's own log is damaged, so no broker can lead it; verify the log, repair or "
        "remove the damaged objects, then elect another leader or restart this one's broker. "
        f"partition={layout.topic}-{layout.partition} folder={layout.folder} damage={error}"
    )
