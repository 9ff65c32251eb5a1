"""AlterPartitionQueue: appends leaders' ISR changes and ends of recovery to the metadata log.

While one append is under way, the changes of all partitions gather for the next one. So a broker
that takes over a thousand partitions appends a few times, not a thousand.
  ALTER-PARTITION-1: a change is decided on the newest image, and only if the partition's leader
      still leads in the epoch of the proposal
  ALTER-PARTITION-2: a proposal ends when the image shows it, when the log continues without it, or
      with its epoch. If an append's outcome is unknown, the proposal is decided again, never
      dropped.
Source: KIP-497; here leaders append by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.runtime.environment import TaskScope
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.cluster.controller import isr
from sparklog.cluster.controller.leader_state import ExpandIsr, ShrinkIsr
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.core.errors import NotServing, OutcomeUnknown, Unavailable

logger = logging.getLogger(__name__)

RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class _IsrChange:
    """A proposal of a led partition."""

    change: ExpandIsr | ShrinkIsr
    joining: Mapping[int, int]
    """The joining follower's broker epoch at the time of the proposal, by broker id."""


class AlterPartitionQueue:
    """Appends the changes that the partitions led by this broker propose."""

    def __init__(
        self, metadata: MetadataAccess, broker_id: int, tasks: TaskScope, metrics: BrokerMetrics
    ) -> None:
        """Append through `metadata` as `broker_id`."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._tasks = tasks
        self._metrics = metrics
        self._isr: dict[LeaderPartition, _IsrChange] = {}
        self._recovered: dict[LeaderPartition, None] = {}
        self._running = False

    def change_isr(self, led: LeaderPartition, change: ExpandIsr | ShrinkIsr) -> None:
        """Propose that replicas join or leave the ISR."""
        joining: dict[int, int] = {}
        if isinstance(change, ExpandIsr):
            # Only this incarnation of the follower was seen to have all records (KIP-903).
            joining[change.broker_id] = led.follower_epochs.get(change.broker_id, -1)
        self._isr[led] = _IsrChange(change, joining)
        self._start()

    def recovered(self, led: LeaderPartition) -> None:
        """Record the end of recovery: all batches of sealed WALs are in the partition's own log."""
        self._recovered[led] = None
        self._start()

    def _start(self) -> None:
        if not self._running:
            self._running = True
            self._tasks.start(self._append_all(), "metadata changes")

    async def _append_all(self) -> None:
        try:
            while self._isr or self._recovered:
                changes, self._isr = self._isr, {}
                recovered, self._recovered = self._recovered, {}
                changes = {led: c for led, c in changes.items() if led.live}
                recovered = {led: None for led in recovered if led.live}
                if changes or recovered:
                    await self._append(changes, list(recovered))
        finally:
            self._running = False

    async def _append(
        self, changes: dict[LeaderPartition, _IsrChange], recovered: list[LeaderPartition]
    ) -> None:
        try:
            await self._metadata.decide(lambda i: self._decision(i, changes, recovered))
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("metadata append is not settled, deciding again %s", error)
            await asyncio.sleep(RETRY_S)
            self._isr = {**changes, **self._isr}
            self._recovered.update(dict.fromkeys(recovered))
            return
        for led, change in changes.items():
            # Use the present image, not the one decided on: it may be newer by now.
            self._settle(led, change.change, self._metadata.image)

    def _decision(
        self,
        image: MetadataImage,
        changes: dict[LeaderPartition, _IsrChange],
        recovered: list[LeaderPartition],
    ) -> list[Record]:
        records = isr.recovered(
            image, [(r.where, r.leader_epoch) for r in recovered], self._broker_id
        )
        projected = image.applied(records, image.end_offset + len(records))
        for led, change in changes.items():
            where = (projected, led.where, self._broker_id, led.leader_epoch)
            try:
                match change.change:
                    case ExpandIsr():
                        records += isr.expand(*where, change.joining)
                    case ShrinkIsr(leaving):
                        records += isr.shrink(*where, leaving)
            except NotServing:
                continue
        return records

    def _settle(
        self, led: LeaderPartition, change: ExpandIsr | ShrinkIsr, image: MetadataImage
    ) -> None:
        state = image.partition(led.where)
        current = (self._broker_id, led.leader_epoch)
        if not led.live or state is None or (state.leader, state.leader_epoch) != current:
            return
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        joinable = [b.broker_id for b in image.eligible_brokers()]
        led.apply_events(
            led.leadership.metadata_changed(
                replicas=state.replicas, isr=state.isr, joinable=joinable, now_ms=now_ms
            )
        )
        if led.leadership.pending == change:
            led.apply_events(led.leadership.isr_refused())
        elif isinstance(change, ExpandIsr):
            self._metrics.isr_expanded()
        else:
            self._metrics.isr_shrunk()
