"""ShareGroupStates: the stored states of share groups, as their group coordinator needs them.

A partition is assigned once its state is initialized, and the states of a group go before the
group. The coordinator of the states may be another broker: see `broker.share.state_client`.

Source: KIP-932; Kafka's `GroupCoordinatorService.persisterInitialize`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from sparklog.coordinator.share.delivery_state import NO_START_OFFSET, SharePartitionKey
from sparklog.coordinator.share.messages import InitializeShareState, ShareStatesToDelete
from sparklog.core.errors import SparklogError

Errors = dict[SharePartitionKey, SparklogError | None]
InitializeStates = Callable[[Mapping[SharePartitionKey, tuple[int, int]]], Awaitable[Errors]]
"""Begins the state epoch of each key at a start offset."""
DeleteStates = Callable[[Collection[SharePartitionKey]], Awaitable[Errors]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShareGroupStates:
    """See the module."""

    initialize: InitializeStates
    delete: DeleteStates

    async def run(self, errand: InitializeShareState) -> InitializeShareState:
        """Initialize states; return the errand with those partitions for which that succeeded.

        The start offset is left to the leader of each partition, which finds it by the reset policy
        of the group.
        """
        keys = errand.state_keys()
        begin = errand.state_epoch, NO_START_OFFSET
        outcomes = await self.initialize(dict.fromkeys(keys, begin))
        failed = {key: error for key, error in outcomes.items() if error is not None}
        if failed:
            key, error = next(iter(failed.items()))
            logger.warning(
                "states of a share group are not initialized; the coordinator tries again "
                "group=%s partitions=%d of=%d first=%s-%d %s",
                errand.group_id,
                len(failed),
                len(keys),
                key.topic_id,
                key.partition,
                error,
            )
        done = tuple((key.topic_id, key.partition) for key in keys if key not in failed)
        return replace(errand, parts=done)

    async def forget(self, states: ShareStatesToDelete) -> None:
        """Delete the states of a group.

        Raises:
            SparklogError: not all were deleted.
        """
        outcomes = await self.delete(states.keys)
        for error in outcomes.values():
            if error is not None:
                raise error
