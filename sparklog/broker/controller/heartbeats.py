"""A broker's heartbeats: it lives, looks when there is news, and replaces a lost controller.

A heartbeat waits at the controller until there is metadata beyond what it names, or for
`broker.heartbeat.interval.ms`. So news travels at once, and an idle broker asks the store nothing.
A second one on a connection of its own, the kick, notifies the controller of this broker's appends.
Durations are seconds of the loop's clock. Source: KIP-631; the waiting and the kick are ours.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.controller.peer_checks import PeerChecks, address_of, heartbeat
from sparklog.broker.runtime.environment import Environment, Unreachable, spawn
from sparklog.broker.runtime.identity import Identity
from sparklog.cluster.controller import controller as decisions
from sparklog.cluster.controller.liveness import Verdict
from sparklog.cluster.metadata.image import Broker, Controller, MetadataImage
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import OutcomeUnknown, Unavailable

logger = logging.getLogger(__name__)

REFUSALS_MEAN_LOST: Final = 3
"""Connections in a row that were lost or refused at once: one may be an accident of the network."""
REDIAL_S: Final = 0.01
STORE_RETRY_S: Final = 0.2
NOT_CONTROLLER_RETRY_S: Final = 0.05
BROKEN_RETRY_S: Final = 0.2
"""Before a controller that runs and cannot be reached is called again."""


class Heartbeats:
    """Keeps one incarnation in touch with the current controller."""

    def __init__(
        self,
        environment: Environment,
        identity: Identity,
        metadata: MetadataLog,
        config: BrokerConfig,
        peers: PeerChecks,
    ) -> None:
        """Speak for `identity`, which is registered."""
        self._environment = environment
        self._identity = identity
        self._metadata = metadata
        self._peers = peers
        self._session_s = config.whole("broker.session.timeout.ms") / 1000
        self._interval_s = config.whole("broker.heartbeat.interval.ms") / 1000
        self._as_registered = metadata.image.brokers[identity.broker_id]
        self._kicked = asyncio.Event()
        self._looking: asyncio.Future[None] | None = None
        self._refusals = 0
        self._denied_since_s: float | None = None
        """Since when the broker that should be the controller says it is not."""
        self._was_controller = False

    def kick(self) -> None:
        """Have the controller look at the metadata log: this broker appended to it."""
        self._kicked.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        try:
            while True:
                await self._next()
        finally:
            if self._looking is not None:
                self._looking.cancel()

    async def _next(self) -> None:
        self._check_look()
        image = self._metadata.image
        controller = image.controller
        if controller is not None and controller.incarnation == self._identity.incarnation:
            self._was_controller = True
            await self._metadata.beyond(image.end_offset)
            return
        if self._was_controller:
            self._was_controller, self._peers.deposed = False, True
        if controller is None or not decisions.is_controller_live(image):
            await self._claim(controller)
        else:
            await self._beat(image, controller)

    async def run_kicks(self) -> None:
        """Notify the controller of appends until cancelled; several at once are one kick."""
        while True:
            await self._kicked.wait()
            self._kicked.clear()
            await self.notify_controller()

    async def notify_controller(self) -> None:
        """Send the controller the end of the metadata log."""
        image = self._metadata.image
        controller = image.controller
        if controller is None or not decisions.is_controller_live(image):
            return
        if controller.incarnation == self._identity.incarnation:
            return
        own = image.brokers.get(self._identity.broker_id, self._as_registered)
        try:
            await self._environment.network.call(
                address_of(image.brokers[controller.broker_id]),
                heartbeat(own, image.end_offset),
                timeout_s=self._session_s,
                purpose="kick",
            )
        except (Unreachable, TimeoutError):
            return  # it looks by itself every second, or is dead

    def _own(self, image: MetadataImage) -> Broker | None:
        own = image.brokers.get(self._identity.broker_id)
        return own if own is not None and own.epoch == self._identity.broker_epoch else None

    async def _beat(self, image: MetadataImage, controller: Controller) -> None:
        own = self._own(image)
        if own is None:
            await self._metadata.beyond(image.end_offset)
            return
        try:
            response = await self._environment.network.call(
                address_of(image.brokers[controller.broker_id]),
                heartbeat(own, image.end_offset, want_shut_down=own.shutting_down),
                timeout_s=self._session_s,
                purpose="heartbeat",
            )
        except Unreachable as error:
            self._refusals += 1
            if self._refusals < REFUSALS_MEAN_LOST:
                await asyncio.sleep(REDIAL_S)
                return
            await self._lost(image, controller, error)
        except TimeoutError as error:
            await self._lost(image, controller, error)
        else:
            self._refusals, self._peers.deposed = 0, False
            await self._answered(response, controller)

    async def _answered(self, response: Any, controller: Controller) -> None:
        if response.error_code is ErrorCode.not_controller:
            await self._misdirected(controller)
            return
        self._denied_since_s = None
        if response.is_fenced or not response.is_caught_up:
            before = self._metadata.image.end_offset
            await self._look()
            if response.is_fenced and self._metadata.image.end_offset == before:
                await asyncio.sleep(NOT_CONTROLLER_RETRY_S)

    async def _lost(self, image: MetadataImage, controller: Controller, why: Exception) -> None:
        """Replace a controller that cannot be reached, unless only the connection is broken."""
        broker = image.brokers[controller.broker_id]
        found = await self._peers.verdict(image, broker)
        if found is Verdict.DEAD or (
            found is Verdict.UNKNOWN and not await self._peers.runs_by_log(broker)
        ):
            logger.warning("the controller is gone controller=%s %s", controller, why)
            await self._claim(controller)
            return
        await asyncio.sleep(BROKEN_RETRY_S)
        await self._look()

    async def _misdirected(self, controller: Controller) -> None:
        """Either it has not read yet that it is the controller, or it is another life of it."""
        now_s = asyncio.get_running_loop().time()
        if self._denied_since_s is None:
            self._denied_since_s = now_s
        await self._look()
        if self._metadata.image.controller != controller:
            self._denied_since_s = None
        elif now_s - self._denied_since_s > self._session_s:
            await self._claim(controller)
        else:
            await asyncio.sleep(NOT_CONTROLLER_RETRY_S)

    async def _look(self) -> None:
        """Read on in the metadata log, or go on beating while that takes long.

        Own appends come first, and may lose races for a while: that is no reason to seem dead. A
        broker whose store does not answer is silent, so that others lead what it cannot.
        """
        self._check_look()
        if self._looking is None:
            self._looking = spawn(self._read_on())
        while not self._looking.done():
            await asyncio.wait([self._looking], timeout=self._interval_s)
            now_s = asyncio.get_running_loop().time()
            has_answered = now_s - self._metadata.answered_s < self._session_s
            if has_answered and not self._looking.done():
                return
        self._check_look()

    def _check_look(self) -> None:
        """Raise the error of a look that has ended, also if no caller waited for that.

        The fault is in this broker, and ends this incarnation of it.
        """
        if self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            looked.result()

    async def _read_on(self) -> None:
        try:
            await self._metadata.catch_up()
        except Unavailable as error:
            logger.warning("the metadata log cannot be read now %s", error)
            await asyncio.sleep(STORE_RETRY_S)

    async def _claim(self, lost: Controller | None) -> None:
        """Become the controller, unless another broker was faster."""
        identity = self._identity

        def claim(image: MetadataImage) -> list[Any]:
            own = self._own(image)
            if own is None or not own.eligible:
                return []
            return decisions.claim(image, identity.broker_id, identity.incarnation, lost)

        self._refusals, self._denied_since_s = 0, None
        try:
            before = self._metadata.image
            if await self._metadata.decide(claim) is before:
                # Another one is the controller by now, or this broker goes and must not be.
                own = self._own(before)
                able = own is not None and own.eligible
                await asyncio.sleep(REDIAL_S if able else STORE_RETRY_S)
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("the controller cannot be replaced now %s", error)
            await asyncio.sleep(STORE_RETRY_S)
