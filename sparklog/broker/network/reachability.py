"""Brokers that this one can no longer reach: metadata answers do not send clients there.

A client whose leader died asks for metadata within a millisecond, long before a new leader is
elected. If the answer names the dead leader again, the client waits, librdkafka for a second or
two. If the answer names no leader, the client asks again soon. So a leader that this broker cannot
reach counts as none, until it is reached again or for a session's time. Only the controller decides
that it is dead.

Client and broker learn of the death at the same moment, each when its turn comes, and the client
may ask first. One answer with the dead leader ends librdkafka's quick queries, even if the next has
none. It then asks again only when it looks at its topics, once a second in any configuration. So an
answer that would name another broker waits a little for such news.

A broker that was fenced or left stays listed for a while. librdkafka forgets a broker at once when
it is not listed. If the same answer names a new leader for that broker's partitions, librdkafka
loses a second over that (version 2.14).

Durations are seconds of the loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from sparklog.broker.network.broken_links import BrokenLinks
from sparklog.broker.runtime.environment import Address, Network, Unreachable
from sparklog.cluster.metadata.image import Broker, MetadataImage, Topic
from sparklog.cluster.metadata.records import NO_LEADER

LISTED_ON_S: Final = 5.0
NEWS_WITHIN_S: Final = 0.01
"""Time after which this broker has the news that clients have; up to 5 ms on two busy cores.
Clients ask when they start, every few minutes, and when something happened."""


class ReachabilityTracker:
    """Passes every call on and notes whom it does not reach. Implements `environment.Network`."""

    def __init__(self, network: Network, session_s: float, broker_id: int) -> None:
        """Watch the calls of broker `broker_id` that go over `network`."""
        self._network = network
        self.links = BrokenLinks(broker_id)
        self._session_s = session_s
        self._lost_s: dict[Address, float] = {}
        """Since when each broker cannot be reached."""
        self._live: dict[int, Broker] = {}
        self._gone: dict[int, tuple[Broker, float]] = {}
        """Brokers that were live not long ago, and when they were last."""

    async def call(
        self, peer: Address, request: Any, *, timeout_s: float, purpose: str = ""
    ) -> Any:
        """See `environment.Network`."""
        try:
            answer = await self._network.call(peer, request, timeout_s=timeout_s, purpose=purpose)
        except Unreachable:
            self._lost_s.setdefault(peer, asyncio.get_running_loop().time())
            self.links.refused(peer)
            raise
        except TimeoutError:
            self.links.silent(peer)
            raise
        self._lost_s.pop(peer, None)
        self.links.works(peer)
        return answer

    def introduce(self, client_id_at: Callable[[Address], str]) -> None:
        """See `environment.Network`."""
        self._network.introduce(client_id_at)

    async def close(self) -> None:
        """See `environment.Network`."""
        await self._network.close()

    async def wait_for_news(self) -> None:
        """Wait until this broker has the news that made a client ask."""
        await asyncio.sleep(NEWS_WITHIN_S)

    def for_clients(self, image: MetadataImage) -> MetadataImage:
        """Return the image as clients shall see it.

        Without leaders that were just lost, and with brokers that were live a moment ago.
        """
        now_s = asyncio.get_running_loop().time()
        for broker_id in [i for i, (_, s) in self._gone.items() if s + LISTED_ON_S < now_s]:
            del self._gone[broker_id]
        if self._gone:
            listed = {i: broker for i, (broker, _) in self._gone.items()}
            image = replace(image, brokers={**image.brokers, **listed})
        lost = {a for a, since_s in self._lost_s.items() if since_s + self._session_s > now_s}
        gone = {b.broker_id for b in image.live_brokers() if Address(b.host, b.port) in lost}
        if not gone:
            return image
        topics = {name: _without(topic, gone) for name, topic in image.topics.items()}
        return replace(image, topics=topics)

    def saw(self, image: MetadataImage) -> None:
        """Record the live brokers of every image, in order, and those that were live before."""
        self.links.saw(image)
        live = {b.broker_id: b for b in image.live_brokers()}
        now_s = asyncio.get_running_loop().time()
        self._gone.update({i: (b, now_s) for i, b in self._live.items() if i not in live})
        self._live = live
        for broker_id in live:
            self._gone.pop(broker_id, None)


def _without(topic: Topic, gone: set[int]) -> Topic:
    states = tuple(
        replace(p, leader=NO_LEADER) if p.leader in gone else p for p in topic.partition_states
    )
    return replace(topic, partition_states=states)
