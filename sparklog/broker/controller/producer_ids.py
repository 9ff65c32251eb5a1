"""Producer ids: each broker takes a block from the metadata log and hands them out one by one.

Ids that a stopped broker had left are never used; there are 2^63 of them.

A fenced broker takes blocks, too, as in Kafka. The metadata log gives each block once. A client may
be connected to no other broker: librdkafka asks one of those that it is connected to. Source:
Kafka's ProducerIdControlManager, which checks the broker's epoch alone.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import ProducerIdsRecord, Record
from sparklog.core.errors import CoordinatorLoading, OutcomeUnknown, Unavailable

BLOCK: Final = 1000
"""Ids taken at once, as in Kafka: a metadata append for every thousand producers."""


def take_block(image: MetadataImage, broker_id: int) -> list[Record]:
    """Return the record by which a broker takes the next block.

    Raises:
        CoordinatorLoading: the broker is not registered.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise CoordinatorLoading(
            f"this broker is not registered now; try again in a moment. broker={broker_id}"
        )
    return [ProducerIdsRecord(broker_id, broker.epoch, image.next_producer_id + BLOCK)]


class ProducerIds:
    """Hands out producer ids."""

    def __init__(self, metadata: MetadataAccess, broker_id: int) -> None:
        """Take blocks through `metadata` as `broker_id`."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._taking = asyncio.Lock()

    async def take(self) -> int:
        """Return an id that no producer had.

        Raises:
            CoordinatorLoading: this broker is not registered, or the store does not answer. Older
                Java producers end at any other retriable error of InitProducerId.
        """
        async with self._taking:
            if self._next == self._end:
                self._next, self._end = await self._take_block()
            self._next += 1
            return self._next - 1

    async def _take_block(self) -> tuple[int, int]:
        taken = 0

        def decide(image: MetadataImage) -> list[Record]:
            nonlocal taken
            taken = image.next_producer_id
            return take_block(image, self._broker_id)

        try:
            await self._metadata.decide(decide)
        except (Unavailable, OutcomeUnknown) as error:
            raise CoordinatorLoading(
                f"no producer ids could be reserved; try again in a moment. {error}"
            ) from error
        return taken, taken + BLOCK
