"""BrokenLinks: the other live brokers that this one cannot reach, for the log and the metrics.

A link is one direction: from this broker to another one's address. The other broker counts its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from sparklog.broker.runtime.environment import Address
from sparklog.cluster.metadata.image import Broker, MetadataImage

logger = logging.getLogger(__name__)

REFUSALS_MEAN_BROKEN: Final = 3
"""Refused or lost connections in a row: one may be an accident of the network."""


class BrokenLinks:
    """Counts calls that failed, by address."""

    def __init__(self, broker_id: int) -> None:
        """Count for broker `broker_id`; every link works so far."""
        self._broker_id = broker_id
        self._others: dict[Address, Broker] = {}
        self._refusals: dict[Address, int] = {}
        self._broken: dict[Address, str] = {}
        """Why each link is broken; an address may belong to a broker that is gone."""

    def refused(self, peer: Address) -> None:
        """Count a call whose connection was refused or lost."""
        self._refusals[peer] = self._refusals.get(peer, 0) + 1
        if self._refusals[peer] >= REFUSALS_MEAN_BROKEN:
            self._break(peer, "refused")

    def silent(self, peer: Address) -> None:
        """Count a call that had no answer in time."""
        self._break(peer, "no answer")

    def works(self, peer: Address) -> None:
        """Count a call that was answered."""
        if peer in self._refusals:
            del self._refusals[peer]
        if peer in self._broken:
            del self._broken[peer]
            logger.info("broker %d reaches %s again", self._broker_id, self._name(peer))

    def saw(self, image: MetadataImage) -> None:
        """Record the live brokers; drop the links to those that are gone."""
        self._others = {
            Address(b.host, b.port): b
            for b in image.live_brokers()
            if b.broker_id != self._broker_id
        }
        for known in (self._refusals, self._broken):
            for peer in [peer for peer in known if peer not in self._others]:
                del known[peer]

    def states(self) -> Mapping[int, bool]:
        """Return whether the link to each other live broker is broken, by broker id."""
        return {b.broker_id: peer in self._broken for peer, b in self._others.items()}

    def _break(self, peer: Address, why: str) -> None:
        if peer in self._broken or peer not in self._others:
            return
        self._broken[peer] = why
        links = ", ".join(f"{self._name(p)}: {w}" for p, w in self._broken.items())
        logger.warning(
            "broker %d cannot reach other live brokers; if they run, check the network and their "
            "advertised.listeners. broken_links=[%s]",
            self._broker_id,
            links,
        )

    def _name(self, peer: Address) -> str:
        broker = self._others.get(peer)
        return str(peer) if broker is None else f"broker {broker.broker_id} at {peer}"
