"""DescribeShareGroupOffsets (90): the start offsets of share groups, and their lag.

AlterShareGroupOffsets (91): new start offsets for a share group without members.

DeleteShareGroupOffsets (92): forget the offsets of topics in a share group without members.

Source: KIP-932, KIP-1226.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.request_parts import partition_of, topic_known_as
from sparklog.broker.handlers.responses import NO_THROTTLE, error_fields
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.broker.share.offset_admin import (
    LATEST,
    READ_UNCOMMITTED,
    ShareOffsetAdmin,
    ends_of,
    lag_of,
)
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.coordinator.consumer.messages import Part
from sparklog.coordinator.share.delivery_state import NO_START_OFFSET, ShareState
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import PartitionId
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

FIRST_EPOCH: Final = 0
"""The leader epoch that Kafka gives to a partition without a start offset."""
LAG_SINCE: Final = 1
"""The first version of DescribeShareGroupOffsets with a lag."""


def _admin(node: BrokerNode) -> ShareOffsetAdmin:
    return ShareOffsetAdmin(node.groups, node.share_states)


async def describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the start offsets of each group, or its error."""
    answer = ResponseBuilder.to(request)
    groups = await asyncio.gather(*(_describe(node, answer, one) for one in request.groups))
    return answer.response(throttle_time=NO_THROTTLE, groups=tuple(groups))


async def _describe(node: BrokerNode, answer: ResponseBuilder, asked: Any) -> Any:
    image = node.metadata.image
    unknown: dict[tuple[str, int], SparklogError] = {}
    parts: dict[Part, None] | None = None
    if asked.topics is not None:
        parts = {}
        for topic in asked.topics:
            for number in topic.partitions:
                where = _find(image, topic.topic_name, int(number))
                if isinstance(where, SparklogError):
                    unknown[topic.topic_name, int(number)] = where
                else:
                    parts[where] = None
    topics: Iterable[Any] = ()
    failure: SparklogError | None = None
    try:
        states = await _admin(node).describe(asked.group_id, parts)
    except SparklogError as error:
        failure = error
    else:
        image = node.metadata.image
        ends = await _ends(node, image, states) if answer.version >= LAG_SINCE else {}
        topics = _described(answer, image, states, ends, unknown)
    return answer.entity(
        "DescribeShareGroupOffsetsResponseGroup",
        group_id=asked.group_id,
        topics=tuple(topics),
        **error_fields(failure),
    )


async def _ends(
    node: BrokerNode, image: MetadataImage, states: Mapping[Part, ShareState | SparklogError]
) -> dict[Part, int]:
    async def look_up(where: PartitionId) -> int:
        lookup = node.replicas.offset_lookup
        return (await lookup.list_offset(where, LATEST, READ_UNCOMMITTED, -1)).offset

    started = [
        part
        for part, state in states.items()
        if isinstance(state, ShareState) and state.start_offset != NO_START_OFFSET
    ]
    return await ends_of(started, image, node.broker_id, look_up, node.environment.network)


def _described(
    answer: ResponseBuilder,
    image: MetadataImage,
    states: Mapping[Part, ShareState | SparklogError],
    ends: Mapping[Part, int],
    unknown: Mapping[tuple[str, int], SparklogError],
) -> Iterable[Any]:
    """Return the topics of a group; a deleted topic has no name, so it is left out."""
    rows: list[tuple[str, int, UUID | None, ShareState | SparklogError, int | None]] = [
        (name, number, topic_id, state, ends.get((topic_id, number)))
        for (topic_id, number), state in states.items()
        if (name := image.names.get(topic_id_of(topic_id))) is not None
    ]
    rows += [(name, number, None, error, None) for (name, number), error in unknown.items()]
    for name, found in groupby(sorted(rows, key=itemgetter(0, 1)), itemgetter(0)):
        parts = list(found)
        yield answer.entity(
            "DescribeShareGroupOffsetsResponseTopic",
            topic_name=name,
            topic_id=next((part[2] for part in parts if part[2] is not None), None),
            partitions=tuple(
                _part(answer, number, state, end) for _, number, _, state, end in parts
            ),
        )


def _part(
    answer: ResponseBuilder, number: int, state: ShareState | SparklogError, end: int | None
) -> Any:
    failed = state if isinstance(state, SparklogError) else None
    shown = ShareState(0) if isinstance(state, SparklogError) else state
    epoch = FIRST_EPOCH if shown.start_offset == NO_START_OFFSET else shown.leader_epoch
    lag = {"lag": lag_of(shown, end)} if answer.version >= LAG_SINCE else {}
    return answer.entity(
        "DescribeShareGroupOffsetsResponsePartition",
        partition_index=number,
        start_offset=shown.start_offset,
        leader_epoch=epoch,
        **lag,
        **error_fields(failed),
    )


async def alter(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every partition, or one for the whole request."""
    answer, image = ResponseBuilder.to(request), node.metadata.image
    offsets: dict[Part, int] = {}
    places: dict[tuple[str, int], Part] = {}
    outcomes: dict[tuple[str, int], SparklogError | None] = {}
    for topic in request.topics:
        for part in topic.partitions:
            named = topic.topic_name, int(part.partition_index)
            where = _find(image, *named)
            if isinstance(where, SparklogError):
                outcomes[named] = where
            elif part.start_offset < 0:
                outcomes[named] = InvalidRequest("A start offset is 0 or more.")
            else:
                places[named], offsets[where] = where, int(part.start_offset)
    names = {uuid_of(image.topics[name].topic_id): name for name, _ in places}
    try:
        altered = await _admin(node).alter(request.group_id, offsets, names)
    except SparklogError as error:
        return answer.response(throttle_time=NO_THROTTLE, responses=(), **error_fields(error))
    outcomes |= {named: altered[where] for named, where in places.items()}
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(
            answer.entity(
                "AlterShareGroupOffsetsResponseTopic",
                topic_name=topic.topic_name,
                topic_id=_id_of(image, topic.topic_name),
                partitions=tuple(
                    answer.entity(
                        "AlterShareGroupOffsetsResponsePartition",
                        partition_index=part.partition_index,
                        **error_fields(outcomes[topic.topic_name, int(part.partition_index)]),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


async def delete(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every topic, or one for the whole request."""
    answer, image = ResponseBuilder.to(request), node.metadata.image
    found = {t.topic_name: topic_known_as(image, t.topic_name) for t in request.topics}
    topics = {
        uuid_of(topic.topic_id): topic.partitions
        for topic in found.values()
        if isinstance(topic, Topic)
    }
    try:
        deleted = await _admin(node).delete(request.group_id, topics)
    except SparklogError as error:
        return answer.response(throttle_time=NO_THROTTLE, responses=(), **error_fields(error))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(
            answer.entity(
                "DeleteShareGroupOffsetsResponseTopic",
                topic_name=name,
                topic_id=_id_of(image, name),
                **error_fields(
                    topic if isinstance(topic, SparklogError) else deleted[uuid_of(topic.topic_id)]
                ),
            )
            for name, topic in found.items()
        ),
    )


def _find(image: MetadataImage, name: str, number: int) -> Part | SparklogError:
    where = partition_of(topic_known_as(image, name), number)
    return where if isinstance(where, SparklogError) else (uuid_of(where.topic_id), number)


def _id_of(image: MetadataImage, name: str) -> UUID | None:
    topic = image.topics.get(name)
    return None if topic is None else uuid_of(topic.topic_id)
