"""Writes markers into the partitions led here, whatever coordinator they come from.

Those in `__consumer_offsets` go through the group coordinator, which learns of them: offsets of the
transaction count from then on, or are forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.broker.group_coordinator import GroupCoordinator
from sparklog.broker.marking import Marking, PlacedMarker
from sparklog.broker.metadata_access import MetadataAccess
from sparklog.coordinator.placing import GROUPS_TOPIC
from sparklog.coordinator.transaction import EPOCH_BUMP_SINCE
from sparklog.coordinator.transaction_shard import WriteMarkers
from sparklog.coordinator.transaction_state import Partition
from sparklog.core.errors import SparklogError, Unavailable, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.protocol.control import EndTransactionMarker

WRITE_TIMEOUT_S: Final = 8.0
"""Shorter than a coordinator waits for the answer."""


class MarkerWriter:
    """See the module."""

    def __init__(
        self, metadata: MetadataAccess, groups: GroupCoordinator, marking: Marking
    ) -> None:
        """Find topics in `metadata`; append by `marking`, or through `groups`."""
        self._metadata = metadata
        self._groups = groups
        self._marking = marking

    async def write(self, wanted: Sequence[WriteMarkers]) -> list[dict[Partition, ErrorCode]]:
        """Write markers, wait until they are committed; return a code for every partition."""
        codes: list[dict[Partition, ErrorCode]] = [{} for _ in wanted]
        placed: list[PlacedMarker] = []
        places: list[tuple[int, Partition]] = []
        offsets: list[tuple[int, Partition]] = []
        for number, one in enumerate(wanted):
            for partition in sorted(one.partitions):
                where = self._find(partition)
                if where is None:
                    codes[number][partition] = ErrorCode(UnknownTopicOrPartition.kafka_code)
                elif partition[0] == GROUPS_TOPIC:
                    offsets.append((number, partition))
                else:
                    placed.append(PlacedMarker(where, one.producer, _marker(one), _ends_older(one)))
                    places.append((number, partition))
        results, group_results = await asyncio.gather(
            self._marking.append(placed, WRITE_TIMEOUT_S),
            asyncio.gather(*(self._write_to_group(wanted[n], p[1]) for n, p in offsets)),
        )
        for (number, partition), error in zip(
            [*places, *offsets], [*results, *group_results], strict=True
        ):
            code = ErrorCode.none if error is None else ErrorCode(error.kafka_code)
            codes[number][partition] = code
        return codes

    async def _write_to_group(self, one: WriteMarkers, number: int) -> SparklogError | None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._groups.runtime.end_transaction(
                    number, one.producer, _marker(one), ends_older=_ends_older(one)
                )
        except TimeoutError:
            return Unavailable("the marker is not committed in time; send it again")
        except SparklogError as error:
            return error
        return None

    def _find(self, partition: Partition) -> PartitionId | None:
        topic = self._metadata.image.topics.get(partition[0])
        if topic is None or not 0 <= partition[1] < topic.partitions:
            return None
        return PartitionId(topic.topic_id, partition[1])


def _marker(one: WriteMarkers) -> EndTransactionMarker:
    return EndTransactionMarker(one.is_commit, one.coordinator_epoch)


def _ends_older(one: WriteMarkers) -> bool:
    return one.client_version >= EPOCH_BUMP_SINCE
