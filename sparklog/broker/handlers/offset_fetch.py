"""OffsetFetch (9): how far groups have read.

What was committed for a topic that was deleted is not told of another one of the same name, even
before it is forgotten. Source: KIP-447 (stable), KIP-709 (several groups), KIP-1102 (topic ids).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import topic_of
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import MetadataImage
from sparklog.coordinator.offset_messages import FetchRequest, FoundOffset, FoundOffsets
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer
from sparklog.protocol.topic_ids import uuid_of

MANY_SINCE: Final = 8
"""The first version with several groups."""
IDS_SINCE: Final = 10
"""The first version in which topics go by id."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with every partition's offset, -1 where none is committed."""
    answer = Answer.to(request)
    stable = bool(getattr(request, "require_stable", False))
    if answer.version >= MANY_SINCE:
        groups = await asyncio.gather(
            *(_group(node, answer, group, stable) for group in request.groups)
        )
        return answer.response(throttle_time=NO_THROTTLE, groups=tuple(groups))
    found = await _found(node, request, stable)
    offsets = found.offsets
    if found.error is not ErrorCode.none:
        offsets = tuple(
            FoundOffset(topic, number, error=found.error)
            for topic, number in _partitions(request.topics or ())
        )
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=found.error,
        topics=tuple(
            answer.entity(
                "OffsetFetchResponseTopic",
                name=name,
                partitions=tuple(_part(answer, "OffsetFetchResponsePartition", f) for f in parts),
            )
            for name, parts in groupby(offsets, attrgetter("topic"))
        ),
    )


async def _group(node: HandlerNode, answer: Answer, asked: Any, stable: bool) -> Any:
    image = node.metadata.image
    by_id = answer.version >= IDS_SINCE
    unknown: list[Any] = []
    if by_id and asked.topics is not None:
        unknown = [t for t in asked.topics if isinstance(topic_of(image, t), SparklogError)]
    found = await _found(node, asked, stable)
    topics = [
        answer.entity(
            "OffsetFetchResponseTopics",
            **_names(image, name, by_id),
            partitions=tuple(_part(answer, "OffsetFetchResponsePartitions", f) for f in parts),
        )
        for name, parts in groupby(found.offsets, attrgetter("topic"))
        if not by_id or name in image.topics
    ]
    topics += [
        answer.entity(
            "OffsetFetchResponseTopics",
            topic_id=topic.topic_id,
            partitions=tuple(
                _part(
                    answer,
                    "OffsetFetchResponsePartitions",
                    FoundOffset("", int(number), error=ErrorCode.unknown_topic_id),
                )
                for number in topic.partition_indexes
            ),
        )
        for topic in unknown
    ]
    return answer.entity(
        "OffsetFetchResponseGroup",
        group_id=asked.group_id,
        topics=tuple(topics),
        error_code=found.error,
    )


async def _found(node: HandlerNode, asked: Any, stable: bool) -> FoundOffsets:
    image = node.metadata.image
    partitions = None if asked.topics is None else tuple(_named(image, asked.topics))
    try:
        found = await node.groups.fetch(
            FetchRequest(
                asked.group_id,
                partitions,
                stable,
                getattr(asked, "member_id", None) or "",
                int(getattr(asked, "member_epoch", -1)),
            )
        )
    except SparklogError as error:
        return FoundOffsets(code_of(error))
    image = node.metadata.image
    if not any(_is_of_another(image, one) for one in found.offsets):
        return found
    offsets = (
        FoundOffset(one.topic, one.partition) if _is_of_another(image, one) else one
        for one in found.offsets
    )
    return FoundOffsets(found.error, tuple(offsets))


def _is_of_another(image: MetadataImage, found: FoundOffset) -> bool:
    """Say whether an offset was committed for a topic of this name that was deleted since."""
    topic = image.topics.get(found.topic)
    if topic is None or found.topic_id is None:
        return False
    return found.topic_id != uuid_of(topic.topic_id)


def _named(image: MetadataImage, topics: Iterable[Any]) -> Iterable[tuple[str, int]]:
    """Return the partitions asked for, by name; offsets of deleted topics may be asked for too."""
    for asked in topics:
        name = getattr(asked, "name", None)
        if name is None:
            topic = topic_of(image, asked)
            if isinstance(topic, SparklogError):
                continue
            name = topic.name
        yield from ((name, int(number)) for number in asked.partition_indexes)


def _partitions(topics: Iterable[Any]) -> Iterable[tuple[str, int]]:
    return ((t.name, int(number)) for t in topics for number in t.partition_indexes)


def _names(image: MetadataImage, name: str, by_id: bool) -> dict[str, Any]:
    return {"topic_id": uuid_of(image.topics[name].topic_id)} if by_id else {"name": name}


def _part(answer: Answer, structure: str, found: FoundOffset) -> Any:
    return answer.entity(
        structure,
        partition_index=found.partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=found.error,
    )
