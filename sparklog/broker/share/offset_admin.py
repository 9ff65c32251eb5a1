"""ShareOffsetAdmin: reads and changes the offsets of share groups, for administrators.

The group coordinator knows which partitions have a state. The states are in `__share_group_state`,
and the ends of the partitions at their leaders. Both may be on other brokers.

Source: KIP-932, KIP-1226; Kafka's `GroupCoordinatorService`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.broker.runtime.environment import Address, Network, Unreachable
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.coordinator.consumer.messages import Part
from sparklog.coordinator.share.delivery_state import SharePartitionKey, ShareState
from sparklog.coordinator.share.messages import InitializeShareState
from sparklog.coordinator.share.offset_changes import (
    begin_alteration,
    begin_offset_deletion,
    check_empty,
    end_offset_deletion,
)
from sparklog.core.errors import GroupIdNotFound, SparklogError, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

logger = logging.getLogger(__name__)

LIST_VERSION: Final = 5
LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
ENDS_TIMEOUT_S: Final = 2.0
"""Without the end of a partition its lag is unknown, and the rest of the response is not late."""
PURPOSE: Final = "ends of share partitions"

LookUp = Callable[[PartitionId], Awaitable[int]]
"""Returns the end of a partition that this broker leads."""


class NoOffsetInformation(UnknownTopicOrPartition):
    """The group has no offsets of the topic."""


class ShareOffsetAdmin:
    """See the module."""

    def __init__(self, groups: GroupCoordinator, states: ShareStateClient) -> None:
        """Use the coordinator of this broker's groups, and the states on any broker."""
        self._groups = groups
        self._states = states

    async def describe(
        self, group_id: str, asked: Collection[Part] | None
    ) -> dict[Part, ShareState | SparklogError]:
        """Return the states of partitions, or of all that have one. States have no batches.

        As in Kafka, a group that does not exist has no states.

        Raises:
            SparklogError: this broker does not serve the group now.
        """
        try:
            known = await self._groups.share_partitions(group_id)
        except GroupIdNotFound:
            known = ()
        keys = known if asked is None else [SharePartitionKey(group_id, *part) for part in asked]
        found = await self._states.summaries(keys)
        return {(key.topic_id, key.partition): state for key, state in found.items()}

    async def alter(
        self, group_id: str, offsets: Mapping[Part, int], names: Mapping[UUID, str]
    ) -> dict[Part, SparklogError | None]:
        """Set the start offsets of partitions; return each one's error or None.

        `names` has the names of the topics. A group that does not exist is created.

        Raises:
            NonEmptyGroup: the group has members; nothing was changed.
            GroupIdNotFound: the group is of another type.
            SparklogError: this broker does not serve the group now.
        """
        if not offsets:
            await self._groups.change_share(group_id, check_empty, type(None), creates=True)
            return {}
        parts = frozenset(offsets)
        begun = await self._groups.change_share(
            group_id,
            lambda change: begin_alteration(change, parts, names),
            InitializeShareState,
            creates=True,
        )
        wanted = {
            key: (begun.state_epoch, offsets[key.topic_id, key.partition])
            for key in begun.state_keys()
        }
        outcomes = await self._states.initialize(wanted)
        found = {(key.topic_id, key.partition): error for key, error in outcomes.items()}
        done = tuple(part for part in begun.parts if found[part] is None)
        if done:
            await self._groups.share_initialized(replace(begun, parts=done))
        return found

    async def delete(
        self, group_id: str, topics: Mapping[UUID, int]
    ) -> dict[UUID, SparklogError | None]:
        """Delete the offsets of topics, given their numbers of partitions; return their errors.

        Raises as `alter`; GroupIdNotFound also if there is no such group.
        """
        keys = await self._groups.change_share(
            group_id, lambda change: begin_offset_deletion(change, topics), tuple
        )
        outcomes = await self._states.delete(keys)
        found: dict[UUID, SparklogError | None] = {}
        for key, error in outcomes.items():
            found[key.topic_id] = found.get(key.topic_id) or error
        done = frozenset(topic_id for topic_id, error in found.items() if error is None)
        if done:
            await self._groups.change_share(
                group_id, lambda change: end_offset_deletion(change, done), type(None)
            )
        missing = NoOffsetInformation("There is no offset information to delete.")
        return {topic_id: found.get(topic_id, missing) for topic_id in topics}


def lag_of(state: ShareState, end: int | None) -> int:
    """Return the number of records that are not finished; -1 if it is unknown (KIP-1226).

    A state that no leader has written since it was initialized has no finished records.
    """
    if end is None or state.start_offset < 0:
        return -1
    return max(0, end - state.start_offset - max(0, state.delivery_complete_count))


async def ends_of(
    parts: Collection[Part], image: MetadataImage, broker_id: int, look_up: LookUp, network: Network
) -> dict[Part, int]:
    """Return the ends of partitions, without those whose leader does not answer."""
    led: defaultdict[int, list[Part]] = defaultdict(list)
    for topic_id, number in parts:
        state = image.partition(PartitionId(topic_id_of(topic_id), number))
        if state is not None:
            led[state.leader].append((topic_id, number))
    found: dict[Part, int] = {}
    for part in led.pop(broker_id, ()):
        try:
            found[part] = await look_up(PartitionId(topic_id_of(part[0]), part[1]))
        except SparklogError as error:
            logger.info("the end of a share partition is unknown partition=%s %s", part, error)
    for leader, asked in led.items():
        broker = image.brokers.get(leader)
        if broker is not None and not broker.fenced:
            found |= await _ask(broker, asked, image, network)
    return found


async def _ask(
    broker: Broker, parts: Collection[Part], image: MetadataImage, network: Network
) -> dict[Part, int]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for topic_id, number in parts:
        numbers[image.names[topic_id_of(topic_id)]].append(number)
    api, version = Api.LIST_OFFSETS, LIST_VERSION

    def part_of(number: int) -> Any:
        fields = {"partition_index": number, "current_leader_epoch": -1, "timestamp": LATEST}
        return build_request_part(api, version, "ListOffsetsPartition", **fields)

    topics = tuple(
        build_request_part(
            api, version, "ListOffsetsTopic", name=name, partitions=tuple(map(part_of, found))
        )
        for name, found in numbers.items()
    )
    request = build_request(
        api, version, replica_id=-1, isolation_level=READ_UNCOMMITTED, topics=topics
    )
    address = Address(broker.host, broker.port)
    try:
        answer = await network.call(address, request, timeout_s=ENDS_TIMEOUT_S, purpose=PURPOSE)
    except (Unreachable, TimeoutError) as error:
        logger.info("ends of share partitions are unknown broker=%d %s", broker.broker_id, error)
        return {}
    return {
        (uuid_of(image.topics[topic.name].topic_id), int(part.partition_index)): int(part.offset)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code is ErrorCode.none and topic.name in image.topics
    }
