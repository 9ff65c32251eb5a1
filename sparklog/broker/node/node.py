"""A broker: the composition root of everything that runs in its process.

Its incarnations follow each other. When one is deposed, or something in it breaks, all of it is
stopped and the next one registers, with empty memory. A broker that another process of its id has
replaced ends for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.controller.controller import HeartbeatAnswer
from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.controller.peer_checks import PeerChecks
from sparklog.broker.controller.producer_ids import ProducerIds
from sparklog.broker.controller.registration import register
from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.broker.coordinator.share_states import ShareStateCoordinator
from sparklog.broker.coordinator.transaction_services import TransactionServices
from sparklog.broker.fetch.session import FetchSessionCache
from sparklog.broker.network.cluster_secret import client_id, is_broker
from sparklog.broker.network.quotas import ClientQuotas
from sparklog.broker.network.reachability import ReachabilityTracker
from sparklog.broker.node.audit_writer import AuditWriter
from sparklog.broker.node.authorization import Authorization
from sparklog.broker.node.incarnation import Incarnation
from sparklog.broker.node.replicas import Replicas
from sparklog.broker.runtime.audit_buffer import OFF, AuditBuffer
from sparklog.broker.runtime.current_settings import SettingsInForce
from sparklog.broker.runtime.environment import Address, Environment, spawn
from sparklog.broker.runtime.metrics import BrokerMetrics, Gauge
from sparklog.broker.runtime.request import INTERNAL, RequestContext
from sparklog.broker.runtime.token_secrets import token_secrets_of
from sparklog.broker.share.groups import ShareGroupService
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.cluster.controller.liveness import Vote
from sparklog.cluster.metadata.image import MetadataImage, at_listener
from sparklog.cluster.metadata.records import NO_LEADER, BrokerEndpoint
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import (
    Fenced,
    InvalidConfig,
    OutcomeUnknown,
    RootEmptied,
    SparklogError,
    Unavailable,
)

logger = logging.getLogger(__name__)

INCARNATIONS_MAX: Final = 10
INCARNATIONS_WITHIN_S: Final = 60.0
"""A broker that begins anew this often in this time gives up: something is wrong for good."""
RESTART_PAUSE_S: Final = 0.05
STORE_RETRY_S: Final = 1.0
AUDIT_FLUSH_MAX_S: Final = 5.0
"""Longest that a broker that leaves waits for the audit topic."""
JOIN_RETRY_S: Final = 0.2
JOIN_TRIES_PER_LOOK: Final = 5
"""Tries to reach the controller for each look at the metadata log, which is a request."""


class BrokerNode:
    """One broker. Its environment is all it knows of the world."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        address: Address,
        *,
        make_replicas: Callable[..., Replicas] = Replicas,
        metrics: BrokerMetrics | None = None,
        endpoints: tuple[BrokerEndpoint, ...] = (),
    ) -> None:
        """Be the broker `node.id`, which others reach at `address`.

        `endpoints` has the addresses of all listeners, if there is more than a plain one.

        Raises:
            InvalidConfig: no node.id, another broker.id, a super user without a type, or an audit
                without an authorizer.
        """
        self.broker_id = node_id(config)
        self.config = config
        session_s = config.whole("broker.session.timeout.ms") / 1000
        self.reachability = ReachabilityTracker(environment.network, session_s, self.broker_id)
        self.environment = replace(environment, network=self.reachability)
        self.reachability.introduce(self._client_id_at)
        self.address = address
        self._endpoints = endpoints
        self._extra_listeners = frozenset(
            one.listener for one in endpoints if Address(one.host, one.port) != address
        )
        self.metrics = BrokerMetrics() if metrics is None else metrics
        self.throttle = ClientQuotas(config, self.metrics)
        self.metadata = MetadataLog(self.environment)
        self.metadata.subscribe(self.reachability.saw)
        self.authorization = Authorization(config)
        self.audit = AuditBuffer(config, environment.clock, self.metrics)
        self._audit_writer = AuditWriter(
            self.audit, self.environment, self.metadata, config, self.broker_id, self.metrics
        )
        self.token_secrets = token_secrets_of(config)
        """The secrets of delegation tokens; None if the brokers have none."""
        self._settings = SettingsInForce(config, self.metadata, self.broker_id)
        self._peers = PeerChecks(self.reachability, self.metadata, self.broker_id, session_s)
        self.producer_ids = ProducerIds(self.metadata, self.broker_id)
        slots = config.whole("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessionCache(slots, environment.entropy)
        self._make_replicas = make_replicas
        self._incarnation: Incarnation | None = None
        self._alive = asyncio.Event()
        """Set from the start of the first life on."""
        self._reborn = asyncio.Event()
        """Set when a life starts, and replaced by a fresh one."""
        self._stopping = False
        self._stopped = asyncio.Event()
        self._changing = asyncio.Lock()
        self._began_s: deque[float] = deque(maxlen=INCARNATIONS_MAX)
        self._watch_gauges()

    @property
    def current_incarnation(self) -> Incarnation:
        """Return the newest life; there is none before `start` has ended."""
        assert self._incarnation is not None, "the broker has not started"
        return self._incarnation

    @property
    def replicas(self) -> Replicas:
        """Return the partitions held here."""
        return self.current_incarnation.replicas

    @property
    def groups(self) -> GroupCoordinator:
        """Return the coordinator of groups."""
        return self.current_incarnation.groups

    @property
    def share(self) -> ShareGroupService:
        """Return the service that delivers records to share groups."""
        return self.current_incarnation.share

    @property
    def share_state_coordinator(self) -> ShareStateCoordinator:
        """Return the coordinator of share groups' states."""
        return self.current_incarnation.share_state_coordinator

    @property
    def share_states(self) -> ShareStateClient:
        """Return the client of share groups' states, on whichever broker they are."""
        return self.current_incarnation.share_states

    @property
    def transactions(self) -> TransactionServices:
        """Return what is done for transactions."""
        return self.current_incarnation.transactions

    @property
    def incarnation(self) -> str:
        """Return which of its lives this is."""
        return self.current_incarnation.identity.incarnation

    def settings_in_force(self) -> BrokerConfig:
        """Return this broker's settings, with what was changed for it since it started."""
        return self._settings.config

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return self.metadata.image.cluster_id

    def is_broker(self, context: RequestContext) -> bool:
        """Say whether a broker of this cluster asks, and not a client; this one is one, too."""
        secret = self.metadata.image.cluster_secret
        return context is INTERNAL or is_broker(context.client_id, secret, self.address)

    def image_for(self, context: RequestContext) -> MetadataImage:
        """Return the newest image, with the brokers' addresses for the client's listener."""
        return self.addressed(self.metadata.image, context)

    def addressed(self, image: MetadataImage, context: RequestContext) -> MetadataImage:
        """Return an image with the brokers' addresses for the client's listener."""
        if context.listener not in self._extra_listeners:
            return image
        return at_listener(image, context.listener)

    def _client_id_at(self, peer: Address) -> str:
        return client_id(self.broker_id, self.metadata.image.cluster_secret, peer)

    async def start(self) -> None:
        """Register, and begin to serve.

        Raises:
            Unavailable, OutcomeUnknown: the store does not answer.
            DataCorrupt: the metadata log is damaged.
            InvalidConfig: the root has another cluster, or none.
        """
        await self.metadata.open()
        self._check_cluster_id()
        async with self._changing:
            while self._incarnation is None:
                try:
                    await self._begin()
                except Fenced as error:
                    logger.warning("deposed before it began, beginning anew %s", error)
                    await asyncio.sleep(RESTART_PAUSE_S)

    def _check_cluster_id(self) -> None:
        wanted = self.config.text("sparklog.cluster.id")
        if wanted not in ("", self.cluster_id):
            found = self.cluster_id or "none"
            raise InvalidConfig(
                "the root does not have the cluster of sparklog.cluster.id: it was emptied or "
                "replaced, or a setting is wrong. Bring the root's objects back, or correct the "
                f"setting. sparklog.cluster.id={wanted} found={found}"
            )

    async def run(self) -> None:
        """Live until stopped.

        Raises:
            Fenced: another process has the id of this broker.
            SparklogError: it cannot go on.
        """
        while not self._stopped.is_set():
            stopped = spawn(self._stopped.wait())
            try:
                ended = self.current_incarnation.ended
                await asyncio.wait((stopped, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
            async with self._changing:
                if not self._stopped.is_set():
                    await self._next_incarnation(ended.result())

    async def stop(self, *, drain: bool = True) -> None:
        """End; with `drain`, first hand over everything so that no other broker must recover it."""
        self._stopping = True
        async with self._changing:
            if self._incarnation is None or self._stopped.is_set():
                return
            if drain:
                await self._audit_writer.flush(AUDIT_FLUSH_MAX_S)
                try:
                    if self._incarnation.ended.done():
                        await self._begin_to_leave()
                    if not self._incarnation.ended.done():
                        await self._incarnation.leave()
                except SparklogError as error:
                    logger.warning(
                        "left without handing over broker_id=%d %s", self.broker_id, error
                    )
            self._stopped.set()
            await self._incarnation.stop()
            self._audit_writer.end()

    @property
    def has_started(self) -> bool:
        """Return True from the start of the first incarnation on."""
        return self._alive.is_set()

    async def wait_started(self) -> None:
        """Wait for the start of the first incarnation."""
        await self._alive.wait()

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` beside requests, until this life ends."""
        self.current_incarnation.background(work, name)

    async def broker_heartbeat(self, request: Any) -> HeartbeatAnswer | None:
        """Answer a heartbeat as the controller, or a watch that the controller holds here.

        None when it is for the controller, and that is another broker.
        """
        if request.want_fence:
            answer: HeartbeatAnswer | None = await self._probed(request)
        elif request.broker_id == self.broker_id:
            answer = await self._watched(request)
        else:
            await self._alive.wait()
            answer = await self.current_incarnation.controller.heartbeat(request)
        return answer

    async def _probed(self, request: Any) -> HeartbeatAnswer:
        """Answer whether an incarnation runs: this one, or another broker's that is probed now."""
        if request.broker_id != self.broker_id:
            found = await self._peers.vote(request.broker_id, request.broker_epoch)
            unknown = ErrorCode.stale_broker_epoch if found is Vote.UNKNOWN else ErrorCode.none
            return HeartbeatAnswer(unknown, is_fenced=found is not Vote.REACHED)
        current_incarnation = self._incarnation
        if (
            current_incarnation is None
            or current_incarnation.identity.broker_epoch != request.broker_epoch
        ):
            return HeartbeatAnswer(ErrorCode.stale_broker_epoch, is_fenced=True)
        return HeartbeatAnswer(ErrorCode.none, is_fenced=False)

    async def _watched(self, request: Any) -> HeartbeatAnswer:
        """Hold the controller's watch a while; report if it watches an earlier incarnation."""
        held_s = self.config.whole("broker.heartbeat.interval.ms") / 1000
        try:
            async with asyncio.timeout(held_s):
                while not self._is_later_than(request.broker_epoch):
                    await self._reborn.wait()
        except TimeoutError:
            return HeartbeatAnswer(ErrorCode.none, is_fenced=False, is_caught_up=True)
        return HeartbeatAnswer(ErrorCode.stale_broker_epoch, is_fenced=True)

    def _is_later_than(self, broker_epoch: int) -> bool:
        return (
            self._incarnation is not None and self._incarnation.identity.broker_epoch > broker_epoch
        )

    async def _begin(self) -> None:
        """Start the next life. Under the lock.

        Raises:
            Fenced: deposed before it began.
            Unavailable, OutcomeUnknown: the store does not answer.
        """
        rack = self.config.text("broker.rack") or None
        identity = await register(
            self.environment, self.metadata, self.broker_id, self.address, rack, self._endpoints
        )
        current_incarnation = Incarnation(
            self.environment,
            self.config,
            identity,
            self.metadata,
            self.metrics,
            self._make_replicas,
            self._peers,
        )
        await current_incarnation.start()
        self._incarnation = current_incarnation
        if self.audit.level != OFF:
            write = self._audit_writer.run(current_incarnation.replicas)
            current_incarnation.background(write, "audit")
        self._alive.set()
        self._reborn.set()
        self._reborn = asyncio.Event()
        logger.info("broker lives identity=%s address=%s", identity, self.address)

    async def _next_incarnation(self, why: BaseException) -> None:
        if isinstance(why, RootEmptied):
            await self.current_incarnation.stop()
            raise why
        logger.warning("broker begins anew broker_id=%d because %r", self.broker_id, why)
        await self.current_incarnation.stop()
        await asyncio.sleep(RESTART_PAUSE_S)
        try:
            image = await self.metadata.catch_up()
        except (Unavailable, OutcomeUnknown):
            image = self.metadata.image
        now = image.brokers.get(self.broker_id)
        if now is not None and not now.fenced and now.incarnation != self.incarnation:
            other = Address(now.host, now.port)
            raise Fenced(
                "another process has registered with the id of this broker; give each its own "
                f"node.id, or stop one. broker_id={self.broker_id} other={other}"
            )
        if isinstance(why, Fenced):
            self._peers.deposed = True
        await self._begin_in_time()

    async def _begin_in_time(self) -> None:
        """Start the next incarnation once the store and the one that deposed the last allow it."""
        while not self._stopping:
            now_s = asyncio.get_running_loop().time()
            if (
                len(self._began_s) == INCARNATIONS_MAX
                and now_s - self._began_s[0] < INCARNATIONS_WITHIN_S
            ):
                raise Unavailable(
                    "the broker began anew too often; see the errors before this one. "
                    f"broker_id={self.broker_id} times={INCARNATIONS_MAX} "
                    f"within_s={INCARNATIONS_WITHIN_S}"
                )
            try:
                if self._peers.deposed:
                    await self._until_linked()
                await self._begin()
            except Fenced as error:
                self._began_s.append(now_s)
                logger.warning("deposed before it began, beginning anew %s", error)
                await asyncio.sleep(RESTART_PAUSE_S)
            except (Unavailable, OutcomeUnknown) as error:
                logger.warning("the store lets no broker begin now %s", error)
                await asyncio.sleep(STORE_RETRY_S)
            else:
                self._began_s.append(now_s)
                return

    async def _begin_to_leave(self) -> None:
        """Begin once more after an incarnation broke, if no other broker can recover what it led.

        Else direct writers would wait until brokers come again.

        Raises:
            Fenced: deposed. Unavailable, OutcomeUnknown: the store does not answer.
        """
        image = await self.metadata.catch_up()
        own = image.brokers.get(self.broker_id)
        others = [b for b in image.eligible_brokers() if b.broker_id != self.broker_id]
        if others or own is None or own.incarnation != self.incarnation:
            return
        await self.current_incarnation.stop()
        await self._begin()

    async def _until_linked(self) -> None:
        """Wait while this broker, deposed, and the controller do not reach each other.

        Registered again it would be fenced again. Raises Unavailable: the store does not answer.
        """
        tries = 0
        while not self._stopping:
            if tries % JOIN_TRIES_PER_LOOK == 0:
                await self.metadata.catch_up()
            if await self._peers.may_join(self.metadata.image):
                return
            tries += 1
            await asyncio.sleep(JOIN_RETRY_S)

    def _watch_gauges(self) -> None:
        watch, metadata = self.metrics.watch, self.metadata
        self.metrics.broken_links = self.reachability.links.states

        def active() -> int:
            return int(self._incarnation is not None and self._incarnation.controller.is_active())

        def offline() -> int:
            if not active():
                return 0
            unled = (p for _, p in metadata.image.partitions() if p.leader == NO_LEADER)
            return sum(1 for _ in unled)

        watch(Gauge.ACTIVE_CONTROLLER, active)
        watch(Gauge.ACLS, lambda: len(metadata.image.acls))
        watch(Gauge.FETCH_SESSIONS, lambda: len(self.fetch_sessions))
        watch(Gauge.FETCH_SESSION_PARTITIONS, lambda: self.fetch_sessions.partitions)
        watch(Gauge.OFFLINE_PARTITIONS, offline)
        watch(Gauge.ACTIVE_BROKERS, lambda: len(metadata.image.live_brokers()))
        watch(Gauge.FENCED_BROKERS, lambda: sum(b.fenced for b in metadata.image.brokers.values()))


def node_id(config: BrokerConfig) -> int:
    """Return the broker's id.

    Raises:
        InvalidConfig: not set, or the two names of it differ.
    """
    given = {config.whole("node.id"), config.whole("broker.id")} - {-1}
    if len(given) != 1:
        raise InvalidConfig(
            "each broker needs a number of its own: set node.id (broker.id is its older name). "
            f"node.id={config.whole('node.id')} broker.id={config.whole('broker.id')}"
        )
    return given.pop()
