"""One incarnation of a broker: all that runs from its registration until its end.

INCARNATION-1: an incarnation ends when the metadata log, or the write-ahead log, shows that it was
    deposed. Then everything it ran is stopped, and no part of it acknowledges anything from then
    on
INCARNATION-2: an incarnation that leaves hands over what it leads before it is unregistered. It
    also seals its own write-ahead log, so that nothing it did not flush is forgotten
INCARNATION-3: an incarnation that cannot apply a new image ends, whichever caller read or appended
    it. It gets no image twice, so it would go on with half of the change
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sparklog.broker.controller.controller import ControllerShell
from sparklog.broker.controller.heartbeats import Heartbeats
from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.controller.peer_checks import PeerChecks
from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.broker.coordinator.share_groups import ShareGroupStates
from sparklog.broker.coordinator.share_states import ShareStateCoordinator
from sparklog.broker.coordinator.transaction_services import TransactionServices
from sparklog.broker.node.replicas import Replicas
from sparklog.broker.runtime.cause import MetadataCause, caused_by
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.identity import Identity
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.share.groups import ShareGroupService
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.cluster.controller import election
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.coordinator.internal_topics import (
    GROUPS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import Fenced, OutcomeUnknown, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.wal.sealing import Sealed, clear, seal

logger = logging.getLogger(__name__)

DRAIN_MAX_S: Final = 60.0
"""Longest that flushing everything may take; what is left then is recovered by others."""
HAND_BACK_MAX_S: Final = 15.0
"""Longest that the last broker waits for what it was given as others left and has to recover."""
APPEND_RETRY_S: Final = 0.2
"""Before the metadata log is asked once more by one that leaves: others append to it meanwhile."""
LEAVING_LOOK_S: Final = 0.2
"""Between looks at whether it may leave: what it waits for takes several requests to the store."""


class Incarnation:
    """One incarnation, registered."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        identity: Identity,
        metadata: MetadataLog,
        metrics: BrokerMetrics,
        make_replicas: Callable[..., Replicas],
        peers: PeerChecks,
    ) -> None:
        """Begin nothing yet: see `start`."""
        self.identity = identity
        self.ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Why it cannot go on: Fenced, or what crashed."""
        self._environment = environment
        self._metadata = metadata
        self._leaving = False
        self._stopped = False
        self._tasks = TaskScope(f"broker {identity.broker_id}", self._end)
        self.replicas = make_replicas(
            environment,
            config,
            identity,
            metadata,
            metrics=metrics,
            on_fenced=lambda why: self._end(Fenced(why)),
            on_crash=self._end,
        )
        world = environment, config, identity.broker_id, metadata, self._tasks
        self.share_state_coordinator = ShareStateCoordinator(*world)
        self.replicas.watch(SHARE_STATE_TOPIC, self.share_state_coordinator.runtime)
        self.share_states = ShareStateClient(*world, self.share_state_coordinator)
        self.groups = GroupCoordinator(
            *world, ShareGroupStates(self.share_states.initialize, self.share_states.delete)
        )
        self.replicas.watch(GROUPS_TOPIC, self.groups.runtime)
        self.transactions = TransactionServices(*world, self.groups, self.replicas.txn_markers)
        self.replicas.watch(TRANSACTIONS_TOPIC, self.transactions.coordinator)
        self.share = ShareGroupService(*world, self.share_states, metrics, self.replicas.services)
        self.controller = ControllerShell(
            environment, identity, metadata, config, self._tasks, peers
        )
        self._heartbeats = Heartbeats(environment, identity, metadata, config, peers)
        peers.undecided = self.replicas.suspect

    async def start(self) -> None:
        """Start to hold partitions and to send heartbeats.

        Raises:
            Fenced: deposed already.
            Unavailable, OutcomeUnknown: the store does not answer.
        """
        await self.replicas.start()
        self._metadata.appended = self._heartbeats.kick
        self._metadata.subscribe(self._changed)
        self._changed(self._metadata.image)
        self._tasks.start(self._heartbeats.run(), "heartbeats")
        self._tasks.start(self._heartbeats.run_kicks(), "kicks")
        self._tasks.start(self.controller.run(), "controller")
        self._tasks.start(self.controller.poll(), "metadata poll")
        self._tasks.start(self.controller.answer_log(), "answers in the log")
        self._heartbeats.kick()

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` until this life ends."""
        self._tasks.start(work, name)

    async def stop(self) -> None:
        """End everything at once; what it leads is for others to recover. Twice is no harm."""
        if self._stopped:
            return
        self._stopped = True
        self._metadata.unsubscribe(self._changed)
        await self._tasks.close()
        await self.replicas.stop()

    async def leave(self) -> None:
        """Hand over everything and be unregistered.

        Raises:
            Fenced: deposed meanwhile; others recover what it led.
            Unavailable, OutcomeUnknown: the store does not answer.
        """
        identity = self.identity
        who = identity.broker_id, identity.incarnation
        await self._append(lambda image: election.begin_shutdown(image, *who))
        loop = asyncio.get_running_loop()
        until_s, alone_until_s = loop.time() + DRAIN_MAX_S, loop.time() + HAND_BACK_MAX_S
        drained = await self._drained(until_s)

        def is_needed(image: MetadataImage) -> bool:
            """Say whether what it leads and has not flushed is better waited for."""
            me, now_s = identity.broker_id, loop.time()
            return (now_s <= until_s and bool(election.only_holds(image, me, drained))) or (
                now_s <= alone_until_s and bool(election.leaderless_without(image, me, drained))
            )

        while is_needed(self._metadata.image):
            await asyncio.sleep(LEAVING_LOOK_S)
            drained |= await self._drained(until_s)
        self._leaving = True
        sealed = await self._seal()
        unled: dict[PartitionId, int] = {}

        def unregister(image: MetadataImage) -> list[Record]:
            records = election.controlled_shutdown(image, *who, drained)
            if is_needed(image):
                return []
            unled.clear()
            unled.update(election.handed_back(records))
            return records

        image = await self._append(unregister)
        while identity.broker_id in image.brokers:  # it was given something to lead meanwhile
            await asyncio.sleep(LEAVING_LOOK_S)
            drained |= await self._drained(until_s)
            image = await self._append(unregister)
        await self._heartbeats.notify_controller()
        if unled:
            await self.replicas.hand_back(unled)
        name = identity.wal.folder.removeprefix("wal/").rstrip("/")
        if not any(name in partition.wals for _, partition in image.partitions()):
            await self._environment.store.run(clear(identity.wal, sealed))

    async def _drained(self, until_s: float) -> set[PartitionId]:
        """Flush what is led, and return what is wholly flushed."""
        try:
            async with asyncio.timeout_at(until_s):
                return await self.replicas.drain()
        except TimeoutError:
            logger.warning(
                "not everything was flushed in time broker_id=%d", self.identity.broker_id
            )
            return set()

    async def _seal(self) -> Sealed:
        nonce = new_nonce(self._environment.entropy)
        return await self._environment.store.run(seal(self.identity.wal, nonce))

    async def _append(self, decision: Callable[[MetadataImage], list[Record]]) -> MetadataImage:
        """Decide, and once more when it is not known whether it was appended."""
        try:
            return await self._metadata.decide(decision)
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("metadata append is not settled, deciding again %s", error)
            await asyncio.sleep(APPEND_RETRY_S)
            return await self._metadata.decide(decision)

    def _changed(self, image: MetadataImage) -> None:
        """Apply a new image (INCARNATION-3). Never raises: any part that decides may call it."""
        try:
            with caused_by(MetadataCause(image.end_offset)):
                self._apply(image)
        except Exception as error:
            logger.exception("metadata cannot be taken in identity=%s", self.identity)
            self._end(error)

    def _apply(self, image: MetadataImage) -> None:
        own = image.brokers.get(self.identity.broker_id)
        deposed = own is None or own.incarnation != self.identity.incarnation or own.fenced
        self.replicas.apply(image)  # which ends every role of one that is deposed, or has left
        self.share.forget_resigned()
        if not deposed:
            self.groups.apply(image)
            self.share_state_coordinator.apply(image)
        elif not self._leaving:
            self._end(Fenced(f"deposed in the metadata log. identity={self.identity} now={own}"))
        self.controller.wake()

    def _end(self, why: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_result(why)
