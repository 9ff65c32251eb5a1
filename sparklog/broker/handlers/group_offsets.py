"""OffsetCommit (8): commits offsets of a group. Consumers that are not members may commit too.

Source: KIP-98; KIP-848 (member epochs from version 9), KIP-1102 (topic ids from version 10).

OffsetFetch (9): returns committed offsets of groups.

Offsets of a deleted topic may still be stored. They are never returned for a new topic of the same
name. Source: KIP-447 (stable), KIP-709 (several groups), KIP-1102 (topic ids).

OffsetDelete (47): deletes committed offsets of topics that no member reads. Source: KIP-496.

OffsetCommitRequest: one commit for all partitions of a request that exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.classic_groups import commit_code, member_of, milliseconds
from sparklog.broker.handlers.request_parts import partition_of, topic_of
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.coordinator.messages import (
    NO_RETENTION,
    CommitRequest,
    DeletedOffsets,
    FetchRequest,
    GroupOffset,
    GroupOffsetsResult,
    OffsetToCommit,
)
from sparklog.core.errors import SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import uuid_of


class Commits(Protocol):
    """The coordinator that stores offsets; see `broker.coordinator.groups`."""

    async def commit(self, asked: CommitRequest) -> tuple[ErrorCode, ...]:
        """Commit offsets; return a code for each."""
        ...


class OffsetCommitRequest:
    """See the module. Each topic or partition that does not exist gets its own error."""

    def __init__(self, image: MetadataImage, topics: Any) -> None:
        """Look up the partitions of a request."""
        self._topics = topics
        self._codes: list[list[ErrorCode | None]] = []
        """A code per partition; None if the coordinator returns it."""
        offsets: list[OffsetToCommit] = []
        for asked in topics:
            topic = topic_of(image, asked)
            codes: list[ErrorCode | None] = []
            for part in asked.partitions:
                where = partition_of(topic, int(part.partition_index))
                if isinstance(where, SparklogError) or isinstance(topic, SparklogError):
                    codes.append(code_of(where if isinstance(where, SparklogError) else None))
                else:
                    codes.append(None)
                    offsets.append(_offset(topic, part))
            self._codes.append(codes)
        self.offsets = tuple(offsets)
        self._answers: Iterator[ErrorCode] = iter(())

    async def run(self, groups: Commits, asked: CommitRequest) -> None:
        """Commit the existing partitions. If none exists, ask no coordinator, as Kafka does."""
        if not self.offsets:
            return
        try:
            self._answers = iter(await groups.commit(asked))
        except SparklogError as error:
            self._answers = iter([commit_code(error)] * len(self.offsets))

    def codes(self) -> Iterator[tuple[Any, list[tuple[int, ErrorCode]]]]:
        """Yield each topic of the request with its partitions' numbers and codes. Call it once."""
        for topic, codes in zip(self._topics, self._codes, strict=True):
            yield (
                topic,
                [
                    (int(part.partition_index), next(self._answers) if code is None else code)
                    for part, code in zip(topic.partitions, codes, strict=True)
                ],
            )


def _offset(topic: Topic, part: Any) -> OffsetToCommit:
    return OffsetToCommit(
        topic.name,
        int(part.partition_index),
        int(part.committed_offset),
        int(getattr(part, "committed_leader_epoch", -1)),
        part.committed_metadata or "",
        uuid_of(topic.topic_id),
    )


EPOCHS_SINCE: Final = 9
"""The first version for members of groups of the newer protocol."""


async def offset_commit(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every partition."""
    answer = ResponseBuilder.to(request)
    committing = OffsetCommitRequest(node.metadata.image, request.topics)
    retention = getattr(request, "retention_time", None)
    await committing.run(
        node.groups,
        CommitRequest(
            request.group_id,
            member_of(request),
            int(getattr(request, "generation_id_or_member_epoch", -1)),
            committing.offsets,
            NO_RETENTION if retention is None else milliseconds(retention),
            knows_epochs=answer.version >= EPOCHS_SINCE,
        ),
    )
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "OffsetCommitResponseTopic",
                name=getattr(topic, "name", None),
                topic_id=getattr(topic, "topic_id", None),
                partitions=tuple(
                    answer.entity(
                        "OffsetCommitResponsePartition", partition_index=number, error_code=code
                    )
                    for number, code in codes
                ),
            )
            for topic, codes in committing.codes()
        ),
    )


MANY_SINCE: Final = 8
"""The first version with several groups."""
IDS_SINCE: Final = 10
"""The first version that names topics by id."""


async def offset_fetch(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the committed offset of every partition, -1 if there is none."""
    answer = ResponseBuilder.to(request)
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
            GroupOffset(topic, number, error=found.error)
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


async def _group(node: BrokerNode, answer: ResponseBuilder, asked: Any, stable: bool) -> Any:
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
                    GroupOffset("", int(number), error=ErrorCode.unknown_topic_id),
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


async def _found(node: BrokerNode, asked: Any, stable: bool) -> GroupOffsetsResult:
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
        return GroupOffsetsResult(code_of(error))
    image = node.metadata.image
    if not any(_is_of_another(image, one) for one in found.offsets):
        return found
    offsets = (
        GroupOffset(one.topic, one.partition) if _is_of_another(image, one) else one
        for one in found.offsets
    )
    return GroupOffsetsResult(found.error, tuple(offsets))


def _is_of_another(image: MetadataImage, found: GroupOffset) -> bool:
    """Return True if the offset is of a deleted topic that had the same name."""
    topic = image.topics.get(found.topic)
    if topic is None or found.topic_id is None:
        return False
    return found.topic_id != uuid_of(topic.topic_id)


def _named(image: MetadataImage, topics: Iterable[Any]) -> Iterable[tuple[str, int]]:
    """Return the requested partitions by name; clients may ask for deleted topics too."""
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


def _part(answer: ResponseBuilder, structure: str, found: GroupOffset) -> Any:
    return answer.entity(
        structure,
        partition_index=found.partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=found.error,
    )


async def offset_delete(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every partition, or one for the whole request."""
    answer, image = ResponseBuilder.to(request), node.metadata.image
    asked = [(t.name, int(p.partition_index)) for t in request.topics for p in t.partitions]
    known = {
        (t.name, int(p.partition_index)): partition_of(topic_of(image, t), int(p.partition_index))
        for t in request.topics
        for p in t.partitions
    }
    wanted = [where for where in asked if not isinstance(known[where], SparklogError)]
    try:
        deleted = await node.groups.delete_offsets(request.group_id, wanted)
    except SparklogError as error:
        deleted = DeletedOffsets(code_of(error))
    if deleted.error is not ErrorCode.none:
        return answer.response(throttle_time=NO_THROTTLE, error_code=deleted.error, topics=())
    codes = dict(zip(wanted, deleted.offsets, strict=True))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        topics=tuple(
            answer.entity(
                "OffsetDeleteResponseTopic",
                name=topic.name,
                partitions=tuple(
                    answer.entity(
                        "OffsetDeleteResponsePartition",
                        partition_index=part.partition_index,
                        error_code=codes.get(
                            (topic.name, int(part.partition_index)),
                            ErrorCode.unknown_topic_or_partition,
                        ),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
