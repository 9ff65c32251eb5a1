"""PeerChecks: finds out whether another broker is dead, or only a connection to it broken.

A probe is a BrokerHeartbeat with `want_fence`. A broker answers one about itself at once. For one
about another broker it probes that one and answers with the outcome, which is its vote. Brokers
that no vote decides about show through the metadata log that they run: see `cluster.liveness`.
A broker that refuses connections has most likely ended, so the first wait for it to show itself is
short. Later waits, and those for a silent broker, are longer. Durations are seconds of the loop's
clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.runtime.environment import Address, Network, Unreachable
from sparklog.cluster.controller import liveness
from sparklog.cluster.controller.controller import is_controller_live
from sparklog.cluster.controller.liveness import Verdict, Vote
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.core.errors import OutcomeUnknown, Unavailable
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request

logger = logging.getLogger(__name__)

METADATA_POLL_S: Final = 1.0
"""The controller reads the log so often for changes made without it; one request each time."""
PROBE_MAX_S: Final = 0.5
ASK_AGAIN_S: Final = 0.1
"""Between two looks for the controller's answer in the metadata log."""
REFUSED_WAIT_S: Final = 0.4
"""The first wait for a broker that refuses connections to show itself in the metadata log."""
APPENDS_WAITED: Final = 4
"""Durations of the newest append by which this wait is longer: a slow store delays all brokers."""


def heartbeat(
    broker: Broker, end_offset: int, *, want_fence: bool = False, want_shut_down: bool = False
) -> Any:
    """Return the heartbeat of a broker that has the metadata log up to `end_offset`.

    With `want_fence` it is a probe of that broker.
    """
    return build_request(
        Api.BROKER_HEARTBEAT,
        1,
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        current_metadata_offset=end_offset,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
    )


def address_of(broker: Broker) -> Address:
    """Return where a broker listens."""
    return Address(broker.host, broker.port)


class PeerChecks:
    """Checks that one broker makes of the others; one for all of its incarnations."""

    def __init__(
        self, network: Network, metadata: MetadataLog, broker_id: int, session_s: float
    ) -> None:
        """Ask for broker `broker_id`; `session_s` is `broker.session.timeout.ms`."""
        self._network = network
        self._metadata = metadata
        self._broker_id = broker_id
        self._session_s = session_s
        self._probe_s = min(PROBE_MAX_S, session_s / 6)
        self._answered: tuple[str, float] | None = None
        self._refusals: dict[int, tuple[int, float]] = {}
        """By broker id: the epoch of an incarnation that refuses every connection, and since when.
        """
        self._asked_in_vain_s: float | None = None
        """When this broker asked in the log for a controller that never answered."""
        self.undecided: Callable[[Broker], None] = lambda broker: None
        """Called with a broker that refuses connections, while no vote decides about it."""
        self.deposed = False
        """This process was replaced while it ran, and no controller has answered it since. It may
        be cut off, so no vote is enough for it to replace another one, and it registers again only
        when it is reached. Else two brokers could replace each other for ever."""

    def log_answers_within_s(self, controller: Broker, *, watched: bool) -> float:
        """Return the time in which a controller that runs answers a HeartbeatRecord.

        `watched` says whether it watches this broker: it does so for those that are not fenced.
        """
        has_shown = self._answered is not None and self._answered[0] == controller.incarnation
        quick_s = self._quick_s(controller, has_shown=has_shown) if watched else None
        return quick_s or self._patient_s

    def log_shows_within_s(self, broker: Broker, *, has_shown: bool) -> float:
        """Return the time in which a broker cut off from the controller shows itself in the log.

        `has_shown` says whether it has done so before: then the controller seldom reads the log.
        """
        patient_s = self._patient_s + 2 * self._probe_s
        return self._quick_s(broker, has_shown=has_shown) or patient_s

    def lost_since_s(self, broker: Broker) -> float:
        """Return since when a broker that no vote decides about has had reason to show itself.

        One that refuses connections lost the last controller no later than this broker did.
        """
        refused_s = self._refused_since_s(broker)
        if refused_s is None or self._asked_in_vain_s is None:
            return asyncio.get_running_loop().time()
        return max(refused_s, self._asked_in_vain_s)

    def _refused_since_s(self, broker: Broker) -> float | None:
        epoch, since_s = self._refusals.get(broker.broker_id, (None, 0.0))
        return since_s if epoch == broker.epoch else None

    @property
    def _patient_s(self) -> float:
        return METADATA_POLL_S + max(1.0, self._session_s / 2)

    def _quick_s(self, broker: Broker, *, has_shown: bool) -> float | None:
        if has_shown or self._refused_since_s(broker) is None:
            return None
        return self._fence_s

    @property
    def _fence_s(self) -> float:
        """Return the time within which a controller that sealed a log fences its broker."""
        return REFUSED_WAIT_S + APPENDS_WAITED * self._metadata.append_s

    def prepare(self, image: MetadataImage) -> None:
        """Have this broker prepare to recover what those led that refuse connections."""
        for broker in image.live_brokers():
            if self._refused_since_s(broker) is not None:
                self.undecided(broker)

    async def vote(self, broker_id: int, broker_epoch: int) -> Vote:
        """Say whether this broker reaches that incarnation of another one."""
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return Vote.UNKNOWN
        return Vote.REACHED if await self._reaches(broker) else Vote.LOST

    async def verdict(self, image: MetadataImage, suspect: Broker) -> Verdict:
        """Judge a live broker that cannot be reached, by asking all others that are live."""
        live = image.live_brokers()
        known = {suspect.broker_id, self._broker_id}
        voters = [voter for voter in live if voter.broker_id not in known]
        is_reached, votes = await asyncio.gather(
            self._reaches(suspect),
            asyncio.gather(*(self._ask(voter, suspect) for voter in voters)),
        )
        found = Verdict.ALIVE if is_reached else liveness.verdict(votes, len(live))
        if found is Verdict.DEAD and self.deposed:
            return Verdict.UNKNOWN
        return found

    async def runs_by_log(self, controller: Broker) -> bool:
        """Say whether the controller shows through the metadata log that it runs.

        Waits for its answer. One answer holds for a session, so that few records are appended. True
        as well when there is another controller by now, or the store does not answer.
        """
        now_s = asyncio.get_running_loop().time()
        if self._answered is not None:
            incarnation, until_s = self._answered
            if incarnation == controller.incarnation and now_s < until_s:
                return True
        try:
            runs = await self._answers(controller)
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("the controller cannot be asked through the metadata log now %s", error)
            return True
        self._asked_in_vain_s = None if runs else now_s
        if runs:
            now_s = asyncio.get_running_loop().time()
            self._answered = controller.incarnation, now_s + self._session_s
        return runs

    async def may_join(self, image: MetadataImage) -> bool:
        """Say whether a broker that was deposed while it ran may register again.

        It may when the controller and it reach each other, or when there is no controller. If it
        became the controller while another one sealed its log, that one fences it soon.
        """
        own = image.brokers.get(self._broker_id)
        controller = image.controller
        if own is None or controller is None or not is_controller_live(image):
            return True
        other = image.brokers[controller.broker_id]
        if other is own:
            await asyncio.sleep(self._fence_s)
            newest = await self._metadata.catch_up()
            return newest.controller == controller and is_controller_live(newest)
        if await self._reaches(other):
            return await self._ask(other, own) is Vote.REACHED
        return not await self.runs_by_log(other)

    async def _answers(self, controller: Broker) -> bool:
        def is_replaced(image: MetadataImage) -> bool:
            now = image.controller
            return now is None or now.incarnation != controller.incarnation

        def show(image: MetadataImage) -> list[Record]:
            own = image.brokers.get(self._broker_id)
            if own is None or is_replaced(image):
                return []
            return liveness.show(self._broker_id, own.epoch)

        image = await self._metadata.decide(show)
        self.prepare(image)  # not before: this append must not wait for other requests
        asked = liveness.shown(image, self._broker_id)
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        own = image.brokers.get(self._broker_id)
        watched = own is not None and not own.fenced  # else the controller seldom reads the log
        while loop.time() < asked_s + self.log_answers_within_s(controller, watched=watched):
            if is_replaced(image) or liveness.shown(image, controller.broker_id) > asked:
                return True
            await asyncio.sleep(ASK_AGAIN_S)
            if await self._reaches(controller):  # the connection has healed meanwhile
                return True
            image = await self._metadata.catch_up()
        return is_replaced(image) or liveness.shown(image, controller.broker_id) > asked

    async def _reaches(self, broker: Broker) -> bool:
        """Say whether that incarnation of a broker answers a probe."""
        answer = await self._probed(broker, broker, self._probe_s, "probe")
        return answer is not None and answer.error_code is ErrorCode.none

    async def _ask(self, voter: Broker, about: Broker) -> Vote:
        # A connection for each suspect: a voter answers in order, and may wait for a silent one.
        purpose = f"vote {about.broker_id}"
        answer = await self._probed(voter, about, 2 * self._probe_s, purpose)
        if answer is None or answer.error_code is not ErrorCode.none:
            return Vote.UNKNOWN
        return Vote.LOST if answer.is_fenced else Vote.REACHED

    async def _probed(self, to: Broker, about: Broker, timeout_s: float, purpose: str) -> Any:
        """Send a probe about a broker; None when there is no answer."""
        request = heartbeat(about, 0, want_fence=True)
        answer = None
        try:
            answer = await self._network.call(
                address_of(to), request, timeout_s=timeout_s, purpose=purpose
            )
        except Unreachable:
            if self._refused_since_s(to) is None:
                self._refusals[to.broker_id] = to.epoch, asyncio.get_running_loop().time()
            return None
        except TimeoutError:
            pass  # it is silent
        self._refusals.pop(to.broker_id, None)
        return answer
