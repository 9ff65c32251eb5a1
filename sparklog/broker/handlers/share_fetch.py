"""ShareFetch (78): acknowledges records of a share group, and acquires further ones.

ShareAcknowledge (79): acknowledges records only.

A member may acknowledge what it has acquired from this broker. The answer comes when the state is
stored. Source: KIP-932; KIP-1222 (renew), KIP-1206 (record limit).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import groupby, pairwise
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.request_parts import partition_of, topic_known_as
from sparklog.broker.handlers.responses import (
    NO_THROTTLE,
    code_of,
    error_fields,
    leader_hints,
    message_of,
)
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.environment import caught
from sparklog.broker.runtime.request import RequestContext
from sparklog.broker.share.fetch import SharedRecords, ShareFetched, ShareFetchLimits
from sparklog.broker.share.partition import AcknowledgementBatch, SharePartition
from sparklog.broker.share.sessions import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    ShareSession,
    ShareSessionKey,
    TopicPartition,
)
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.coordinator.share.errors import InvalidShareSessionEpoch
from sparklog.coordinator.share.in_flight import Acknowledgement
from sparklog.core.errors import (
    Fenced,
    InvalidRequest,
    NotServing,
    SparklogError,
    TopicAuthorizationFailed,
)
from sparklog.core.quotas import CONSUMER_BYTE_RATE
from sparklog.core.types import PartitionId
from sparklog.protocol.messages.builder import ResponseBuilder

MILLISECOND: Final = timedelta(milliseconds=1)
RECORD_LIMIT: Final = 1
"""The acquire mode with which a member never gets more records than it wants."""
NO_LEADER_HINT: Final = -1
MayRead = Callable[[str], bool]
"""Returns whether the client may read a topic."""
Answers = Mapping[TopicPartition, SparklogError | None]


def everyone_may(topic: str) -> bool:
    """Let the client read each topic: brokers have no authorizer."""
    return True


async def share_fetch(
    node: BrokerNode, request: Any, context: RequestContext, may_read: MayRead = everyone_may
) -> Any:
    """Apply the member's acknowledgements, then acquire records or wait for some."""
    answer = ResponseBuilder.to(request)
    groups = node.share
    acknowledged = _acknowledged(request)
    epoch = request.share_session_epoch
    try:
        key = _key(request)
        if epoch == OPENING_EPOCH and acknowledged:
            raise InvalidRequest("a request that opens a share session acknowledges no record")
        _check_renews(request)
        session = groups.sessions.fetching(key, epoch)
    except SparklogError as error:
        return _refused(answer, error)
    groups.end_with(context.connection, session)
    wanted = [(_id(topic), p.partition_index) for topic in request.topics for p in topic.partitions]
    forgotten = [(_id(t), n) for t in request.forgotten_topics_data for n in t.partitions]
    session.change(wanted, forgotten)
    answers = await _acknowledge(node, session, request, may_read)
    settings = groups.settings_of(key.group_id)
    fetched, throttle = ShareFetched(), NO_THROTTLE
    if epoch == CLOSING_EPOCH:
        groups.end(session)
    elif not getattr(request, "is_renew_ack", False) and request.max_records > 0:
        quotas = node.metadata.image.client_quotas
        most = node.throttle.most_at_once(quotas, CONSUMER_BYTE_RATE, context)
        fetched = await _fetch(node, session, request, may_read, most)
        sizes = (len(b) for one in fetched.records.values() for b in one.batches)
        throttle = node.throttle.charge(quotas, CONSUMER_BYTE_RATE, context, sum(sizes))
    image, leaders = node.image_for(context), set[int]()
    parts = dict.fromkeys([*answers, *fetched.records, *fetched.errors])
    topics = [
        answer.entity(
            "ShareFetchableTopicResponse",
            topic_id=topic_id,
            partitions=tuple(
                _fetched_part(answer, image, where, answers.get(where), fetched, leaders)
                for where in group
            ),
        )
        for topic_id, group in groupby(sorted(parts, key=_order), key=lambda one: one[0])
    ]
    return answer.response(
        throttle_time=throttle,
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=settings.lock_ms * MILLISECOND,
        responses=tuple(topics),
        node_endpoints=leader_hints(answer, "NodeEndpoint", image, leaders),
    )


async def share_acknowledge(
    node: BrokerNode, request: Any, context: RequestContext, may_read: MayRead = everyone_may
) -> Any:
    """Apply the member's acknowledgements; each partition has its own error."""
    answer = ResponseBuilder.to(request)
    groups = node.share
    try:
        if request.share_session_epoch == OPENING_EPOCH:
            raise InvalidShareSessionEpoch("only a fetch opens a share session")
        _check_renews(request)
        session = groups.sessions.continued(_key(request), request.share_session_epoch)
    except SparklogError as error:
        return _refused(answer, error)
    answers = await _acknowledge(node, session, request, may_read)
    if request.share_session_epoch == CLOSING_EPOCH:
        groups.end(session)
    image, leaders = node.image_for(context), set[int]()
    topics = [
        answer.entity(
            "ShareAcknowledgeTopicResponse",
            topic_id=topic_id,
            partitions=tuple(
                answer.entity(
                    "PartitionData",
                    partition_index=where[1],
                    current_leader=_leader(answer, image, where, answers[where], leaders),
                    **error_fields(answers[where]),
                )
                for where in group
            ),
        )
        for topic_id, group in groupby(sorted(answers, key=_order), key=lambda one: one[0])
    ]
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=groups.settings_of(session.key.group_id).lock_ms * MILLISECOND,
        responses=tuple(topics),
        node_endpoints=leader_hints(answer, "NodeEndpoint", image, leaders),
    )


def _key(request: Any) -> ShareSessionKey:
    if not request.group_id or not request.member_id:
        raise InvalidRequest("a share session needs a group and a member id")
    return ShareSessionKey(request.group_id, request.member_id)


def _id(topic: Any) -> UUID:
    """Return a topic's id; kio reads the id of no topic as None."""
    found: UUID | None = topic.topic_id
    return found or UUID(int=0)


def _order(where: TopicPartition) -> tuple[int, int]:
    return where[0].int, where[1]


def _refused(answer: ResponseBuilder, error: SparklogError) -> Any:
    return answer.response(
        throttle_time=NO_THROTTLE,
        acquisition_lock_timeout=NO_THROTTLE,
        responses=(),
        node_endpoints=(),
        **error_fields(error),
    )


# Acknowledgements.


def _acknowledged(request: Any) -> dict[TopicPartition, Any]:
    """Return the acknowledgement batches of each partition that has some."""
    return {
        (_id(topic), part.partition_index): part.acknowledgement_batches
        for topic in request.topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }


def _check_renews(request: Any) -> None:
    """Check that a request renews locks only if it says so."""
    renews = getattr(request, "is_renew_ack", False)
    kinds = {
        kind
        for batches in _acknowledged(request).values()
        for batch in batches
        for kind in batch.acknowledge_types
    }
    if Acknowledgement.RENEW in kinds and not renews:
        raise InvalidRequest("a request that renews locks says so by IsRenewAck")


async def _acknowledge(
    node: BrokerNode, session: ShareSession, request: Any, may_read: MayRead
) -> dict[TopicPartition, SparklogError | None]:
    """Apply all acknowledgements; return the error of each partition, None for success."""
    acknowledged = _acknowledged(request)
    outcomes = await asyncio.gather(
        *(
            caught(_acknowledge_one(node, session, where, batches, may_read))
            for where, batches in acknowledged.items()
        )
    )
    found: dict[TopicPartition, SparklogError | None] = {}
    for where, outcome in zip(acknowledged, outcomes, strict=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, SparklogError):
            raise outcome
        found[where] = outcome
    return found


async def _acknowledge_one(
    node: BrokerNode,
    session: ShareSession,
    where: TopicPartition,
    batches: Iterable[Any],
    may_read: MayRead,
) -> None:
    _partition(node.metadata.image, where, may_read)
    groups = node.share
    types = [_batch(one) for one in batches]
    for before, after in pairwise(batches):
        if after.first_offset <= before.last_offset:
            raise InvalidRequest("acknowledged records are not in order, or are named twice")
    renews = any(kind is Acknowledgement.RENEW for one in types for _, kind in one.types)
    if renews and not groups.settings_of(session.key.group_id).renew:
        raise InvalidRequest(
            "the group does not renew locks; see share.renew.acknowledge.enable. "
            f"group={session.key.group_id}"
        )
    part = await groups.partitions.find(session.key.group_id, *where)
    await part.acknowledge(session.key.member_id, types)


def _batch(batch: Any) -> AcknowledgementBatch:
    """Return an acknowledgement batch with a length for each run of equal types."""
    length, kinds = batch.last_offset - batch.first_offset + 1, batch.acknowledge_types
    if batch.first_offset < 0 or length < 1 or len(kinds) not in (1, length):
        raise InvalidRequest(
            "an acknowledgement has one type, or one for each record. "
            f"offsets={batch.first_offset}-{batch.last_offset} types={len(kinds)}"
        )
    try:
        runs = [(len(list(run)), Acknowledgement(kind)) for kind, run in groupby(kinds)]
    except ValueError as error:
        raise InvalidRequest(f"no such type of an acknowledgement: {error}") from None
    if len(kinds) == 1:
        runs = [(length, runs[0][1])]
    return AcknowledgementBatch(batch.first_offset, runs)


def _partition(image: MetadataImage, where: TopicPartition, may_read: MayRead) -> PartitionId:
    topic = topic_known_as(image, where[0])
    if isinstance(topic, Topic) and not may_read(topic.name):
        raise TopicAuthorizationFailed("the client may not read the topic")
    found = partition_of(topic, where[1])
    if isinstance(found, SparklogError):
        raise found
    return found


# Records.


async def _fetch(
    node: BrokerNode, session: ShareSession, request: Any, may_read: MayRead, most: int | None
) -> ShareFetched:
    groups, found = node.share, ShareFetched()

    async def ready(where: TopicPartition) -> SharePartition:
        _partition(node.metadata.image, where, may_read)
        return await groups.partitions.find(session.key.group_id, *where)

    wanted = list(session.partitions)
    outcomes = await asyncio.gather(*(caught(ready(where)) for where in wanted))
    parts: dict[TopicPartition, SharePartition] = {}
    for where, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, SharePartition):
            parts[where] = outcome
        elif isinstance(outcome, SparklogError):
            found.errors[where] = outcome
        else:
            raise outcome
    max_bytes = min(max(0, request.max_bytes), node.config.whole("fetch.max.bytes"))
    limits = ShareFetchLimits(
        max_wait_ms=0 if found.errors else max(0, request.max_wait // MILLISECOND),
        min_bytes=max(0, request.min_bytes),
        max_bytes=max_bytes if most is None else min(max_bytes, most),
        max_records=request.max_records,
        strict=getattr(request, "share_acquire_mode", 0) == RECORD_LIMIT,
    )
    committed = groups.settings_of(session.key.group_id).read_committed
    got = await groups.fetch_service.fetch(session, parts, limits, committed=committed)
    return ShareFetched(got.records, {**got.errors, **found.errors})


def _fetched_part(
    answer: ResponseBuilder,
    image: MetadataImage,
    where: TopicPartition,
    acknowledged: SparklogError | None,
    fetched: ShareFetched,
    leaders: set[int],
) -> Any:
    got = fetched.records.get(where) or SharedRecords((), ())
    failed = fetched.errors.get(where)
    return answer.entity(
        "PartitionData",
        partition_index=where[1],
        acknowledge_error_code=code_of(acknowledged),
        acknowledge_error_message=message_of(acknowledged),
        current_leader=_leader(answer, image, where, failed or acknowledged, leaders),
        records=b"".join(got.batches),
        acquired_records=tuple(
            answer.entity(
                "AcquiredRecords",
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                delivery_count=one.delivery_count,
            )
            for one in got.acquired
        ),
        **error_fields(failed),
    )


def _leader(
    answer: ResponseBuilder,
    image: MetadataImage,
    where: TopicPartition,
    error: SparklogError | None,
    leaders: set[int],
) -> Any:
    """Say where a partition is led, if it is not here."""
    found = partition_of(topic_known_as(image, where[0]), where[1])
    state = image.partition(found) if isinstance(found, PartitionId) else None
    if state is None or not isinstance(error, NotServing | Fenced):
        return answer.entity(
            "LeaderIdAndEpoch", leader_id=NO_LEADER_HINT, leader_epoch=NO_LEADER_HINT
        )
    leaders.add(state.leader)
    return answer.entity(
        "LeaderIdAndEpoch", leader_id=state.leader, leader_epoch=state.leader_epoch
    )
