"""A streaming read's place as the committed offsets of a group, for the tools that show lag.

The query's checkpoint is what it goes on from; the group is told for whoever watches it, and never
read. So a failure here costs nothing but news: it is logged, and tried again a little later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.asking import Brokers
from sparklog.client.group_offsets import move_group_offsets
from sparklog.cluster.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.spark.leaders import registered

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 1.0
"""How long a batch may be held up for this."""
AGAIN_S: Final = 10.0
"""How long nothing is tried after a failure, so that brokers that are away do not slow a query."""


class GroupProgress:
    """Tells a group's coordinator where a query is. Keeps its connections; not for threads."""

    def __init__(
        self, group_id: str, bootstrap: str | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Commit for `group_id`, with brokers at `bootstrap` or those that the metadata names."""
        self._group_id = group_id
        self._bootstrap = bootstrap
        self._clock = clock
        self._brokers: Brokers | None = None
        self._addresses = ""
        self._told: dict[TopicPartition, int] = {}
        self._not_before_s = clock.monotonic_s()

    def tell(self, image: MetadataImage, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets`, the next to be processed, unless they are what was committed last.

        Cost: nothing while they stay; else one request to the coordinator, and one to find it when
        it has moved. Without brokers nothing is committed.
        """
        news = {tp: offset for tp, offset in offsets.items() if self._told.get(tp) != offset}
        now_s = self._clock.monotonic_s()
        addresses = self._bootstrap or registered(image)
        if not news or not addresses or now_s < self._not_before_s:
            return
        try:
            outcomes = move_group_offsets(
                self._connected(addresses), self._group_id, news, self._clock
            )
        except SparklogError as error:
            self._failed(error)
            return
        self._told.update((tp, news[tp]) for tp, failure in outcomes.items() if failure is None)
        failures = [failure for failure in outcomes.values() if failure is not None]
        if failures:
            self._failed(failures[0])

    def close(self) -> None:
        """Drop the connections."""
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def _connected(self, addresses: str) -> Brokers:
        if self._brokers is None or addresses != self._addresses:
            self.close()
            self._addresses = addresses
            self._brokers = Brokers(bootstrap_addresses(addresses), PATIENCE_S)
        return self._brokers

    def _failed(self, error: SparklogError) -> None:
        self._not_before_s = self._clock.monotonic_s() + AGAIN_S
        logger.warning(
            "the query's offsets were not committed, so tools show it behind; trying again later "
            "group=%s %s",
            self._group_id,
            error,
        )
