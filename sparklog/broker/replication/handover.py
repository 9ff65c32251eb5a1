"""LeadershipHandover: flushes all records of led partitions, then passes leadership on.

  HANDOVER-1: a closed partition appends no record, so its log has a final end
  HANDOVER-2: leadership passes on only when the partition's own log reaches that end. So no broker
      needs this broker's write-ahead log for it.

Cost: a flush per partition with unflushed records, and one metadata append for partitions that move
together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.recovering import RecoveringPartition
from sparklog.broker.replication.flusher import Flusher
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.identity import Identity
from sparklog.broker.runtime.log_limiter import RateLimitedLog
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.cluster.controller import election
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import Fenced, NotServing, OutcomeUnknown, SparklogError, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import hand_back

logger = logging.getLogger(__name__)

COMMIT_WAIT_S = 5.0
"""Longest wait of a closed partition for the commit of its last records."""
RETRY_S = 0.5
HAND_BACKS_AT_ONCE = 16
TRIES_MAX = 20


class LeadershipHandover:
    """Closes led partitions, for other brokers or for direct writers."""

    def __init__(
        self,
        environment: Environment,
        identity: Identity,
        metadata: MetadataAccess,
        flusher: Flusher,
    ) -> None:
        """Flush with `flusher`, and record new leaders through `metadata`."""
        self._environment = environment
        self._identity = identity
        self._metadata = metadata
        self._flusher = flusher
        self.draining = False
        """True once the broker stops: every partition is closed for good."""
        self._interrupted = RateLimitedLog()

    async def hand_over(self, led: LeaderPartition) -> None:
        """Flush a closed partition and make the next leader its leader.

        If its records are not committed in time, the partition opens again for a while. So a
        follower that lags does not block producers for long. Then it closes for another try.
        """
        where, me, epoch = led.where, self._identity.broker_id, led.leader_epoch
        while led.live and led.closing:
            try:
                if await self._flush_all(led, COMMIT_WAIT_S):
                    await self._metadata.decide(
                        lambda image: election.hand_over(image, where, me, epoch)
                    )
                    return
            except NotServing:
                return
            except (Unavailable, OutcomeUnknown) as error:
                logger.warning("handover interrupted partition=%s %s", where, error)
            led.closing = self.draining
            await asyncio.sleep(COMMIT_WAIT_S)
            if self._is_draining():
                return  # `drain` closed it for good
            state = self._metadata.image.partition(where)
            led.closing = state is not None and state.next_leader >= 0

    async def drain(
        self,
        led: Callable[[], Sequence[LeaderPartition]],
        recovering: Sequence[RecoveringPartition],
        timeout_s: float,
    ) -> set[PartitionId]:
        """Close partitions for good; return those whose own logs have all records.

        Waits for partitions that still recover if memory alone may hold their committed records.
        `timeout_s` is the longest wait for each partition's recovery and for its commit.
        """
        self.draining = True
        for one in led():
            one.closing = True
        await asyncio.gather(
            *(r.wait_ended(timeout_s) for r in recovering if not r.rules.commit.waits_for_storage)
        )
        closed = led()  # partitions that recovered meanwhile were closed from the start
        done = await asyncio.gather(*(self._drain_one(one, timeout_s) for one in closed))
        return {one.where for one, is_done in zip(closed, done, strict=True) if is_done}

    async def hand_back(self, partitions: Mapping[PartitionLayout, int]) -> None:
        """Mark partitions as open to direct writers, with their epochs without a leader."""
        slots = asyncio.Semaphore(HAND_BACKS_AT_ONCE)

        async def mark(layout: PartitionLayout, leader_epoch: int) -> None:
            async with slots:
                nonce = new_nonce(self._environment.entropy)
                protocol = hand_back(PartitionView(layout), leader_epoch, nonce)
                try:
                    await self._environment.store.run(protocol)
                except Fenced:
                    logger.info("a broker led it again before the hand-back %s", layout.folder)
                except SparklogError as error:
                    # The log still says that a broker leads. The next leader, or the next
                    # hand-back, corrects that.
                    logger.warning("hand-back failed %s %s", layout.folder, error)

        await asyncio.gather(*(mark(layout, epoch) for layout, epoch in partitions.items()))

    def _is_draining(self) -> bool:
        return self.draining

    async def _drain_one(self, led: LeaderPartition, timeout_s: float) -> bool:
        for _ in range(TRIES_MAX):
            try:
                return await self._flush_all(led, timeout_s)
            except NotServing:
                return False
            except (Unavailable, OutcomeUnknown) as error:
                text = "draining interrupted partition=%s %s"
                self._interrupted.warn(logger, text, led.where, error)
            await asyncio.sleep(RETRY_S)
        return False

    async def _flush_all(self, led: LeaderPartition, timeout_s: float) -> bool:
        """Wait until all records are committed, then flush them; return False at the timeout.

        Raises:
            NotServing: this broker no longer leads the partition.
            Unavailable, OutcomeUnknown: the store does not respond.
        """
        # Requests that entered the queue before the close append first.
        async with led.append_queue.turn():
            end_offset = led.tail.end_offset
        if not await led.wait_until_committed(end_offset, timeout_s):
            return False
        await self._flusher.flush_to(led, end_offset)
        return led.live and led.tail.end_offset == end_offset
