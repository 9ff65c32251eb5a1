"""One partition that this broker was elected to lead and does not serve yet.

What is said of a partition whose own log is damaged.
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
"""Longest that a request waits for a new leader to serve: clients that hear of it go round less."""


class RecoveringPartition:
    """A leader epoch before it serves. Requests may wait for its end, whatever that is."""

    def __init__(
        self,
        where: PartitionId,
        layout: PartitionLayout,
        state: PartitionState,
        held: PartitionTail,
        rules: TopicRules,
    ) -> None:
        """Recover what `state` says, with the help of what `held` has."""
        self.where = where
        self.layout = layout
        self.leader_epoch = state.leader_epoch
        self.wals = state.wals
        self.has_all = state.leader in state.isr and len(state.isr) > 1
        """Elected from among several in sync: all that is committed is in the partition's own log
        or in what this broker holds. An ISR of one may be a stand-in's, who holds nothing."""
        self.held = held
        self.rules = rules
        self.order = held.order
        self.live = True
        self.damage: PartitionDamaged | None = None
        """Why it cannot be recovered as it is; it is tried again all the same."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.started_s = asyncio.get_running_loop().time()

    @property
    def is_internal(self) -> bool:
        """Say whether only brokers write to its topic."""
        return self.layout.topic in INTERNAL_TOPICS

    def not_yet(self) -> SparklogError:
        """Return what a request is told that does not wait."""
        return self.damage or NotServing(
            "the partition is being recovered by its new leader; try again in a moment. "
            f"partition={self.layout.topic}-{self.layout.partition} "
            f"leader_epoch={self.leader_epoch}"
        )

    def retire(self) -> None:
        """End it: served from now on, or led by another."""
        self.live = False
        if not self.ended.done():
            self.ended.set_result(None)

    async def wait_ended(self, timeout_s: float) -> None:
        """Wait until it serves or never will, at most for `timeout_s`."""
        await asyncio.wait([self.ended], timeout=timeout_s)


Find = Callable[[PartitionId], LeaderPartition | RecoveringPartition]
"""Returns what a broker leads, or raises why it does not."""


def damaged(layout: PartitionLayout, error: DataCorrupt) -> PartitionDamaged:
    """Return what clients and the operator are told. The object is named by the error."""
    return PartitionDamaged(
        "the partition's own log is damaged, so nobody can lead it; verify the log, mend or remove "
        "what is damaged, then have another leader elected or restart its broker. "
        f"partition={layout.topic}-{layout.partition} folder={layout.folder} damage={error}"
    )
