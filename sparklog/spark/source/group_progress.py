"""A streaming read's place as the committed offsets of a group, for the tools that show lag.

The query resumes from its checkpoint; the source commits to the group only for monitoring, and
never reads it. So a failure here costs nothing but news: it is logged, and tried again a little
later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.client.connections import BrokerConnections
from sparklog.client.offsets import move_group_offsets
from sparklog.client.security import SecuritySettings
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import NotServing, OutcomeUnknown, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.spark.access.leaders import connect_brokers, registered

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 1.0
"""The longest time that a commit may delay a batch."""
AGAIN_S: Final = 10.0
"""Pause after a failure, so that unreachable brokers do not slow a query."""
LAST_PATIENCE_S: Final = 30.0
"""The longest time that a commit may delay a query's end; a dead broker is replaced long
before.
"""
LAST_AGAIN_S: Final = 0.5


class GroupProgress:
    """Commits a query's offsets to the group's coordinator.

    Keeps its connections; not for threads.
    """

    def __init__(
        self,
        group_id: str,
        bootstrap: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        security: SecuritySettings | None = None,
    ) -> None:
        """Commit for `group_id`, with brokers at `bootstrap` or those that the metadata names.

        `security`: TLS and SASL; None takes those of the process.
        """
        self._security = security
        self._group_id = group_id
        self._bootstrap = bootstrap
        self._clock = clock
        self._brokers: BrokerConnections | None = None
        self._addresses = ""
        self._committed: dict[TopicPartition, int] = {}
        self._not_before_s = clock.monotonic_s()

    def tell(self, image: MetadataImage, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets`, the next to be processed, unless they are what was committed last.

        Cost: nothing while they stay; else one request to the coordinator, and one to find it when
        it has moved. Without brokers nothing is committed.
        """
        if self._clock.monotonic_s() < self._not_before_s:
            return
        failure = self._try(image, offsets)
        if failure is not None:
            self._failed(failure)

    def tell_last(
        self, refresh: Callable[[], MetadataImage], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Commit where a query ends; as no later commit follows, wait for unreachable brokers.

        `refresh` returns the metadata as it is; a query that ends may have begun with older one.
        """
        deadline_s = self._clock.monotonic_s() + LAST_PATIENCE_S
        while (failure := self._try(refresh(), offsets)) is not None:
            passes = isinstance(failure, Unavailable | NotServing | OutcomeUnknown)
            if not passes or self._clock.monotonic_s() >= deadline_s:
                self._failed(failure)
                return
            self._clock.sleep_s(LAST_AGAIN_S)

    def close(self) -> None:
        """Drop the connections."""
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def _try(
        self, image: MetadataImage, offsets: Mapping[TopicPartition, int]
    ) -> SparklogError | None:
        """Commit new offsets, if there is a coordinator; return what went wrong."""
        news = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        addresses = self._bootstrap or registered(image, self._security)
        if not news or not addresses:
            return None
        try:
            outcomes = move_group_offsets(
                self._connected(addresses), self._group_id, news, self._clock
            )
        except SparklogError as error:
            return error
        self._committed.update(
            (tp, news[tp]) for tp, failure in outcomes.items() if failure is None
        )
        return next((failure for failure in outcomes.values() if failure is not None), None)

    def _connected(self, addresses: str) -> BrokerConnections:
        if self._brokers is None or addresses != self._addresses:
            self.close()
            self._addresses = addresses
            self._brokers = connect_brokers(addresses, PATIENCE_S, self._security)
        return self._brokers

    def _failed(self, error: SparklogError) -> None:
        self._not_before_s = self._clock.monotonic_s() + AGAIN_S
        logger.warning(
            "the query's offsets were not committed, so tools show it behind; trying again later "
            "group=%s %s",
            self._group_id,
            error,
        )
