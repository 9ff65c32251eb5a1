"""The controller: handles heartbeats, fences dead brokers, and keeps topics as they want.

Every incarnation has one of these; it acts while the metadata log names it as the controller. Its
decisions are pure (`cluster.controller`, `cluster.election`) and made on the newest image, so a
deposed controller finds out at its next append. Durations are seconds of the loop's clock.
  CONTROLLER-1: a broker is fenced only after its write-ahead log is sealed, for any cause of
      seeming dead
  CONTROLLER-2: before it seals, the controller looks whether it still is the controller. It
      fences what it has sealed, even if another one has replaced it meanwhile
  CONTROLLER-3: a controller may get heartbeats of none of two or more others, if only for half a
      session. It may itself be cut off. So it fences no broker for silence until the others have
      had ample time to replace it
  CONTROLLER-4: a controller that was paused gives every broker a new session: it was deaf, not
      they silent
  CONTROLLER-5: a broker that refuses connections is dead if most brokers find so. It is also dead
      if it appends no HeartbeatRecord either while it is cut off: see `peer_checks`
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.controller.heartbeats import (
    BROKEN_RETRY_S,
    REDIAL_S,
    REFUSALS_MEAN_LOST,
    STORE_RETRY_S,
)
from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.controller.peer_checks import (
    METADATA_POLL_S,
    PeerChecks,
    address_of,
    heartbeat,
)
from sparklog.broker.runtime.environment import Environment, TaskScope, Unreachable
from sparklog.broker.runtime.identity import Identity
from sparklog.cluster.controller import controller as decisions
from sparklog.cluster.controller import liveness
from sparklog.cluster.controller.liveness import Verdict
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.cluster.metadata.token_changes import remove_expired
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import DataCorrupt, Fenced, OutcomeUnknown, Unavailable
from sparklog.log.wal.sealing import seal

logger = logging.getLogger(__name__)

ISOLATED_SESSIONS: Final = 4
"""Sessions that a controller waits if it gets no heartbeat of several brokers: cut off, perhaps."""
PLACING_WAITS_S: Final = 1.0
"""After a broker came, before partitions are given out: brokers of one start come together."""
PLACING_WAITS_MAX_S: Final = 3.0


@dataclass(slots=True)
class _Session:
    """The controller's state of one incarnation of a broker."""

    broker: Broker
    heartbeat_s: float
    dead: bool = False
    """Its process is gone."""
    shown: int = liveness.NEVER
    """Offset of the newest HeartbeatRecord of it that was read."""
    lost_s: float | None = None
    """Since when it takes no connection, and no vote decided whether it is dead."""
    due_s: float = math.inf
    """When it is dead, unless it shows itself before."""


class ControllerShell:
    """The controller's duty of one incarnation."""

    def __init__(
        self,
        environment: Environment,
        identity: Identity,
        metadata: MetadataLog,
        config: BrokerConfig,
        tasks: TaskScope,
        peers: PeerChecks,
    ) -> None:
        """Act for `identity`; watchers of brokers are started in `tasks`."""
        self._environment = environment
        self._identity = identity
        self._metadata = metadata
        self._tasks = tasks
        self._peers = peers
        self._session_s = config.whole("broker.session.timeout.ms") / 1000
        self._interval_s = config.whole("broker.heartbeat.interval.ms") / 1000
        self._replication_factor = config.whole("default.replication.factor")
        self._rebalances = config.flag("auto.leader.rebalance.enable")
        self._rebalance_s = float(config.whole("leader.imbalance.check.interval.seconds"))
        self._sessions: dict[int, _Session] = {}
        self._woken = asyncio.Event()
        self._has_news = asyncio.Event()
        self._kept: MetadataImage | None = None
        """The image that topics were last brought up to what they want on."""
        self._eligible: set[tuple[int, int]] = set()
        """Brokers, with their epochs, that partitions could be given to when last looked at."""
        self._place_at_s = 0.0
        self._place_latest_s = 0.0
        self._rebalance_at_s = math.inf
        self._token_check_s = config.whole("delegation.token.expiry.check.interval.ms") / 1000
        self._token_check_at_s = 0.0

    def is_active(self) -> bool:
        """Say whether the metadata log, as known here, names this incarnation."""
        controller = self._metadata.image.controller
        return controller is not None and controller.incarnation == self._identity.incarnation

    def wake(self) -> None:
        """Look at what is to do, now."""
        self._woken.set()

    async def run(self) -> None:
        """Do the duty until cancelled, whenever it is this incarnation's. `wake` signals news."""
        looked_s = self._now_s()
        self._rebalance_at_s = looked_s + self._rebalance_s
        while True:
            if not self.is_active():
                self._sessions.clear()
                self._kept, self._eligible = None, set()
                self._rebalance_at_s = self._now_s() + self._rebalance_s
                await self._metadata.beyond(self._metadata.image.end_offset)
                looked_s = self._now_s()
                continue
            now_s = self._now_s()
            if now_s - looked_s > self._session_s / 2:
                self._begin_anew(now_s)
            looked_s = now_s
            try:
                self._meet_brokers(now_s)
                await self._fence_dead()
                await self._keep_up()
                await self._rebalance()
                await self._remove_expired_tokens()
            except Fenced:
                continue
            except (Unavailable, OutcomeUnknown) as error:
                logger.warning("the controller cannot append now, it tries again %s", error)
                await asyncio.sleep(STORE_RETRY_S)
                looked_s = self._now_s()
            await self._rest()

    async def poll(self) -> None:
        """Look at the metadata log now and then, while it is this incarnation's duty."""
        while True:
            try:
                async with asyncio.timeout(METADATA_POLL_S):
                    await self._has_news.wait()
            except TimeoutError:
                pass
            self._has_news.clear()
            if self.is_active():
                try:
                    await self._metadata.catch_up()
                except Unavailable as error:
                    logger.warning("the metadata log cannot be read now %s", error)

    async def answer_log(self) -> None:
        """Answer brokers that show through the metadata log that they run, until cancelled.

        They cannot reach this controller by the network; without an answer they replace it.
        """
        while True:
            image = self._metadata.image
            if not liveness.answer(image, self._identity.incarnation):
                await self._metadata.beyond(image.end_offset)
                continue
            try:
                await self._metadata.decide(
                    lambda newest: liveness.answer(newest, self._identity.incarnation)
                )
            except (Unavailable, OutcomeUnknown) as error:
                logger.warning("a broker's heartbeat in the log is not answered yet %s", error)
                await asyncio.sleep(STORE_RETRY_S)

    async def heartbeat(self, request: Any) -> HeartbeatAnswer | None:
        """Answer a broker; None when this is not the controller. Waits while there is no news."""
        if not self.is_active():
            return None
        offset = request.current_metadata_offset
        is_known = self._note_heartbeat(request)
        ahead = offset > self._metadata.image.end_offset
        if ahead:
            self._has_news.set()
        if ahead or is_known:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._metadata.beyond(offset - 1 if ahead else offset)
            except TimeoutError:
                pass  # no news, or reading them takes long
            if not is_known:
                self._note_heartbeat(request)
        if not self.is_active():
            return None
        image = self._metadata.image
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return HeartbeatAnswer(ErrorCode.stale_broker_epoch, is_fenced=True)
        return HeartbeatAnswer(
            ErrorCode.none,
            is_fenced=broker.fenced,
            is_caught_up=image.end_offset <= offset,
            should_shut_down=broker.shutting_down,
        )

    def _note_heartbeat(self, request: Any) -> bool:
        """Note that a broker lives. Says whether it is one that is watched over."""
        self._meet_brokers(self._now_s())
        session = self._sessions.get(request.broker_id)
        if session is None or session.broker.epoch != request.broker_epoch:
            return False
        session.heartbeat_s = self._now_s()
        session.dead, session.lost_s = False, None
        self._peers.deposed = False
        return True

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _begin_anew(self, now_s: float) -> None:
        for session in self._sessions.values():
            session.heartbeat_s = now_s

    def _meet_brokers(self, now_s: float) -> None:
        """Open a session for every live broker, and forget those that are gone."""
        others = {
            b.broker_id: b
            for b in self._metadata.image.live_brokers()
            if b.broker_id != self._identity.broker_id
        }
        for broker_id in [i for i in self._sessions if i not in others]:
            del self._sessions[broker_id]
        for broker_id, broker in others.items():
            known = self._sessions.get(broker_id)
            if known is not None and known.broker.epoch == broker.epoch:
                known.broker = broker
                self._read_heartbeats(known)
                continue
            session = _Session(broker, now_s)
            self._sessions[broker_id] = session
            self._tasks.start(self._watch(session), f"watch broker {broker_id}")

    async def _watch(self, session: _Session) -> None:
        """Hold a connection to a broker, to learn at once that its process ended."""
        refusals, since_s = 0, 0.0
        while self._sessions.get(session.broker.broker_id) is session:
            broker = session.broker
            try:
                answer = await self._environment.network.call(
                    address_of(broker),
                    heartbeat(broker, self._metadata.image.end_offset),
                    timeout_s=self._session_s,
                    purpose="watch",
                )
            except TimeoutError:
                continue  # perhaps it hangs: its session decides
            except Unreachable:
                refusals += 1
                since_s = self._now_s() if refusals == 1 else since_s
                if refusals < REFUSALS_MEAN_LOST:
                    await asyncio.sleep(REDIAL_S)
                    continue
                await self._check(session, since_s)
            else:
                refusals, session.lost_s = 0, None
                if answer.error_code is not ErrorCode.stale_broker_epoch:
                    continue
                session.dead = True  # another incarnation of it answers
            if session.dead:
                self.wake()
                await asyncio.sleep(self._interval_s)
            else:
                left_s = session.due_s - self._now_s()
                await asyncio.sleep(min(BROKEN_RETRY_S, max(REDIAL_S, left_s)))

    async def _check(self, session: _Session, since_s: float) -> None:
        """Find out whether a broker without a connection since `since_s` is dead (CONTROLLER-5)."""
        session.due_s = math.inf
        found = await self._peers.verdict(self._metadata.image, session.broker)
        if session.heartbeat_s > max(since_s, self._now_s() - 2 * self._interval_s):
            return  # its own connections work
        if found is not Verdict.UNKNOWN:
            session.dead, session.lost_s = found is Verdict.DEAD, None
            return
        now_s = self._now_s()
        if session.lost_s is None:
            session.lost_s = self._peers.lost_since_s(session.broker)
            self._peers.prepare(self._metadata.image)
        has_shown = session.shown > session.broker.epoch
        within_s = self._peers.log_shows_within_s(session.broker, has_shown=has_shown)
        session.due_s = session.lost_s + within_s
        session.dead = now_s >= session.due_s
        if not session.dead and not has_shown:
            self._has_news.set()  # it may have shown itself in the metadata log

    def _read_heartbeats(self, session: _Session) -> None:
        """Take a broker for alive that has shown itself in the metadata log."""
        broker = session.broker
        at = liveness.shown(self._metadata.image, broker.broker_id)
        if at > max(session.shown, broker.epoch):
            session.shown, session.dead = at, False
            session.lost_s = self._now_s() + self._session_s  # it shows itself once a session

    def _dead(self) -> list[_Session]:
        now_s = self._now_s()
        dead = [s for s in self._sessions.values() if s.dead]
        others = [s for s in self._sessions.values() if not s.dead]
        silent = [s for s in others if s.heartbeat_s < now_s - self._session_s]
        # Sessions end one after the other. A live broker's beat is here by then, or comes next.
        is_connected = any(s.heartbeat_s >= now_s - self._session_s / 2 for s in others)
        if len(others) > 1 and not is_connected:
            silent = [
                s for s in silent if s.heartbeat_s < now_s - ISOLATED_SESSIONS * self._session_s
            ]
        return dead + silent

    async def _fence_dead(self) -> None:
        if not self._dead():
            return
        image = await self._metadata.catch_up()
        decisions.check_controller(image, self._identity.incarnation)
        self._meet_brokers(self._now_s())
        dead = [session.broker for session in self._dead()]
        if not dead:
            return
        logger.warning("fencing brokers %s", [(b.broker_id, b.incarnation) for b in dead])
        sealed = await asyncio.gather(*map(self._seal, dead))
        gone = {b.broker_id: b.epoch for b, done in zip(dead, sealed, strict=True) if done}
        own = self._identity.broker_id, self._identity.incarnation
        await self._metadata.decide(lambda newest: decisions.fence_sealed(newest, *own, gone))

    async def _seal(self, broker: Broker) -> bool:
        nonce = new_nonce(self._environment.entropy)
        try:
            await self._environment.store.run(seal(broker.wal, nonce))
        except (Unavailable, DataCorrupt) as error:
            logger.error("a dead broker's log cannot be sealed wal=%s %s", broker.wal.folder, error)
            return False
        return True

    async def _keep_up(self) -> None:
        """Bring topics to what they want, those that changed or all when brokers did."""
        image, kept = self._metadata.image, self._kept
        if self._waits_for_brokers(image):
            return
        if kept is None or _eligible(kept) != _eligible(image):
            names = list(image.topics)
        else:
            names = [topic.name for topic in image.changed_topics(kept)]
        decide = self._as_controller(
            lambda newest: decisions.upkeep(newest, names, self._replication_factor)
        )
        if names and decide(image):
            await self._metadata.decide(decide)
        else:
            self._kept = image

    def _waits_for_brokers(self, image: MetadataImage) -> bool:
        """Say whether more brokers may be about to come, so that giving out now would be unfair."""
        eligible, now_s = _eligible(image), self._now_s()
        if eligible - self._eligible:
            if self._place_at_s <= now_s:
                self._place_latest_s = now_s + PLACING_WAITS_MAX_S
            self._place_at_s = min(now_s + PLACING_WAITS_S, self._place_latest_s)
        self._eligible = eligible
        return now_s < self._place_at_s

    async def _rebalance(self) -> None:
        now_s = self._now_s()
        if not self._rebalances or now_s < self._rebalance_at_s:
            return
        self._rebalance_at_s = now_s + self._rebalance_s
        decide = self._as_controller(decisions.rebalance)
        if decide(self._metadata.image):
            await self._metadata.decide(decide)

    async def _remove_expired_tokens(self) -> None:
        now_s = self._now_s()
        if now_s < self._token_check_at_s:
            return
        self._token_check_at_s = now_s + self._token_check_s
        now_ms = self._environment.clock.now_ms()
        decide = self._as_controller(lambda newest: remove_expired(newest, now_ms))
        if decide(self._metadata.image):
            await self._metadata.decide(decide)

    def _as_controller(
        self, decision: Callable[[MetadataImage], list[Record]]
    ) -> Callable[[MetadataImage], list[Record]]:
        def decide(image: MetadataImage) -> list[Record]:
            decisions.check_controller(image, self._identity.incarnation)
            return decision(image)

        return decide

    async def _rest(self) -> None:
        """Wait for news, or until the next look at sessions is due."""
        try:
            async with asyncio.timeout(self._interval_s / 2):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The controller's answer to a broker."""

    error_code: ErrorCode
    is_fenced: bool
    is_caught_up: bool = False
    should_shut_down: bool = False


def _eligible(image: MetadataImage) -> set[tuple[int, int]]:
    return {(b.broker_id, b.epoch) for b in image.eligible_brokers()}
