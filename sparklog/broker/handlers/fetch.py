"""Fetch (1): read batches, for consumers and for followers.

A partition that one request names twice is read where it is named last, as by Kafka.
Source: KIP-74, KIP-227, KIP-320, KIP-516.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.fetch.read import FetchedPartition, FetchSpec
from sparklog.broker.fetch.session import (
    LAST_EPOCH,
    NO_SESSION,
    FetchContext,
    PartKey,
    RequestedPartition,
    TopicKey,
)
from sparklog.broker.handlers.brokers_only import check_broker
from sparklog.broker.handlers.request_parts import partition_of, topic_known_as
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of, leader_hints
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.runtime.request import CloseConnection, RequestContext
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.core.errors import Fenced, NotServing, SparklogError, TopicAuthorizationFailed
from sparklog.core.quotas import CONSUMER_BYTE_RATE, Quotas
from sparklog.core.types import PartitionId
from sparklog.protocol.messages.builder import ResponseBuilder

MILLISECOND: Final = timedelta(milliseconds=1)
CONSUMER: Final = -1
ERROR_SINCE: Final = 7
"""Before, a refusal has no place in the answer."""
TOPIC_IDS_SINCE: Final = 13
LEADER_HINTS_SINCE: Final = 16
DIVERGENCE_SINCE: Final = 12
_UNKNOWN: Final = -1


MayRead = Callable[[str, int], bool]
"""Returns whether the client may read a topic; it asks for this number of partitions."""


async def handle(
    node: BrokerNode, request: Any, context: RequestContext, may_read: MayRead | None = None
) -> Any:
    """Read what there is, or wait for it; every partition has its own error.

    Topics are checked by `may_read`, if it is given, with those of the session. If ACLs changed
    while the request waited, they are checked again: a fetch may wait for minutes.
    """
    answer = ResponseBuilder.to(request)
    try:
        if _replica_id(request) != CONSUMER:
            check_broker(node, context, "FetchFollower")
        turn = node.fetch_sessions.begin(_asked(request), asyncio.get_running_loop().time())
    except SparklogError as refused:
        if answer.version < ERROR_SINCE:
            raise CloseConnection(str(refused)) from None
        return answer.response(
            throttle_time=NO_THROTTLE,
            error_code=code_of(refused),
            session_id=NO_SESSION,
            responses=(),
        )
    image = node.metadata.image
    found = _found(image, turn.wanted, may_read)
    quota = _quota(node, request)
    most = node.throttle.most_at_once(quota, CONSUMER_BYTE_RATE, context)
    spec = _spec(node, request, turn, found, most)
    fetched = await node.replicas.fetch_service.fetch(spec)
    found |= turn.roused(fetched.keys() - spec.partitions.keys())
    if may_read is not None and node.metadata.image.acls is not image.acls:
        found |= _errors_of(found, _denied(node.metadata.image, found, may_read))
    outcomes = {
        key: where if isinstance(where, SparklogError) else fetched[where]
        for key, where in found.items()
    }
    sent = {key: one for key, one in outcomes.items() if turn.answers(key, one)}
    throttle = _charge(node, quota, context, sent.values())
    return _response(answer, node.image_for(context), turn.session_id, found, sent, throttle)


def _quota(node: BrokerNode, request: Any) -> Quotas:
    """Return the quotas that hold: none does for followers."""
    return node.metadata.image.client_quotas if _replica_id(request) == CONSUMER else {}


def _charge(
    node: BrokerNode,
    quotas: Quotas,
    context: RequestContext,
    sent: Iterable[FetchedPartition | SparklogError],
) -> timedelta:
    if not quotas:
        return NO_THROTTLE
    read = (part for part in sent if isinstance(part, FetchedPartition))
    size_bytes = sum(len(batch) for part in read for batch in part.batches)
    return node.throttle.charge(quotas, CONSUMER_BYTE_RATE, context, size_bytes)


def _asked(request: Any) -> RequestedPartition:
    by_topic_id = request.__version__ >= TOPIC_IDS_SINCE
    field = "topic_id" if by_topic_id else "topic"
    return RequestedPartition(
        session_id=getattr(request, "session_id", NO_SESSION),
        epoch=getattr(request, "session_epoch", LAST_EPOCH),
        by_topic_id=by_topic_id,
        is_follower=_replica_id(request) != CONSUMER,
        parts={
            (getattr(topic, field), part.partition): _at(part)
            for topic in request.topics
            for part in topic.partitions
        },
        forgotten=[
            (getattr(topic, field), number)
            for topic in getattr(request, "forgotten_topics_data", ())
            for number in topic.partitions
        ],
    )


def _found(
    image: MetadataImage, wanted: Iterable[PartKey], may_read: MayRead | None
) -> dict[PartKey, PartitionId | SparklogError]:
    topics = {} if may_read is None else _denied(image, wanted, may_read)
    found: dict[PartKey, PartitionId | SparklogError] = {}
    for key in wanted:
        name, number = key
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = topic_known_as(image, name)
        found[key] = partition_of(topic, number)
    return found


def _denied(
    image: MetadataImage, wanted: Iterable[PartKey], may_read: MayRead
) -> dict[TopicKey, Topic | SparklogError]:
    """Return the topics that the client may not read, whether they exist or not."""
    denied: dict[TopicKey, Topic | SparklogError] = {}
    for key, partitions in Counter(key for key, _ in wanted).items():
        topic = topic_known_as(image, key)
        name = topic.name if isinstance(topic, Topic) else key
        if isinstance(name, str) and not may_read(name, partitions):
            denied[key] = TopicAuthorizationFailed("the client may not read the topic")
    return denied


def _errors_of(
    found: Iterable[PartKey], denied: Mapping[TopicKey, Topic | SparklogError]
) -> dict[PartKey, SparklogError]:
    return {key: error for key in found if isinstance(error := denied.get(key[0]), SparklogError)}


def _replica_id(request: Any) -> int:
    replica = getattr(request, "replica_state", None)
    return int(request.replica_id if replica is None else replica.replica_id)


def _spec(
    node: BrokerNode,
    request: Any,
    turn: FetchContext,
    found: Mapping[PartKey, PartitionId | SparklogError],
    most: int | None,
) -> FetchSpec:
    """Return what is to be read, `most` bytes of it if that is given."""
    max_bytes = min(max(0, request.max_bytes), node.config.whole("fetch.max.bytes"))
    if most is not None:
        max_bytes = min(max_bytes, most)
    partitions: dict[PartitionId, FetchPosition] = {}
    known: dict[PartitionId, FetchedPartition] = {}
    for key, where in found.items():
        if isinstance(where, SparklogError):
            continue
        partitions[where] = turn.wanted[key]
        unchanged = turn.placed(key, where)
        if unchanged is not None:
            known[where] = unchanged
    replica = getattr(request, "replica_state", None)
    return FetchSpec(
        replica_id=_replica_id(request),
        replica_epoch=_UNKNOWN if replica is None else replica.replica_epoch,
        max_wait_ms=max(0, request.max_wait // MILLISECOND),
        min_bytes=min(max(0, request.min_bytes), max_bytes),
        max_bytes=max_bytes,
        isolation=request.isolation_level,
        partitions=partitions,
        known=known,
        watch=turn.watch,
    )


def _at(part: Any) -> FetchPosition:
    return FetchPosition(
        offset=part.fetch_offset,
        max_bytes=max(0, part.partition_max_bytes),
        current_leader_epoch=getattr(part, "current_leader_epoch", _UNKNOWN),
        last_fetched_epoch=getattr(part, "last_fetched_epoch", _UNKNOWN),
    )


def _response(
    answer: ResponseBuilder,
    image: MetadataImage,
    session_id: int,
    found: Mapping[PartKey, PartitionId | SparklogError],
    sent: Mapping[PartKey, FetchedPartition | SparklogError],
    throttle: timedelta,
) -> Any:
    leaders: set[int] = set()
    topics: dict[TopicKey, list[Any]] = {}
    for key, outcome in sent.items():
        name, number = key
        if isinstance(outcome, FetchedPartition):
            part = _read(answer, number, outcome)
        else:
            hint = _hint(answer, image, found[key], outcome, leaders)
            part = _failed(answer, number, outcome, hint)
        topics.setdefault(name, []).append(part)
    field = "topic_id" if answer.version >= TOPIC_IDS_SINCE else "topic"
    responses = tuple(
        answer.entity("FetchableTopicResponse", partitions=tuple(parts), **{field: name})
        for name, parts in topics.items()
    )
    endpoints = leader_hints(answer, "NodeEndpoint", image, leaders) if leaders else ()
    return answer.response(
        throttle_time=throttle,
        error_code=ErrorCode.none,
        session_id=session_id,
        responses=responses,
        **({"node_endpoints": endpoints} if endpoints else {}),
    )


def _read(answer: ResponseBuilder, number: int, fetched: FetchedPartition) -> Any:
    more: dict[str, Any] = {}
    if fetched.diverging is not None and answer.version >= DIVERGENCE_SINCE:
        more["diverging_epoch"] = answer.entity(
            "EpochEndOffset",
            epoch=fetched.diverging.leader_epoch,
            end_offset=fetched.diverging.end_offset,
        )
    aborted = fetched.aborted
    batches = fetched.batches
    return answer.entity(
        "PartitionData",
        partition_index=number,
        error_code=ErrorCode.none,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else tuple(
            answer.entity("AbortedTransaction", producer_id=producer_id, first_offset=offset)
            for producer_id, offset in aborted
        ),
        records=batches[0] if len(batches) == 1 else b"".join(batches),
        **more,
    )


def _failed(
    answer: ResponseBuilder, number: int, error: SparklogError, hint: dict[str, Any]
) -> Any:
    return answer.entity(
        "PartitionData",
        partition_index=number,
        error_code=code_of(error),
        high_watermark=_UNKNOWN,
        aborted_transactions=None,
        records=b"",
        **hint,
    )


def _hint(
    answer: ResponseBuilder,
    image: MetadataImage,
    where: PartitionId | SparklogError,
    error: SparklogError,
    leaders: set[int],
) -> dict[str, Any]:
    """Say who leads a partition that is led elsewhere. Source: KIP-951."""
    if answer.version < LEADER_HINTS_SINCE or not isinstance(where, PartitionId):
        return {}
    state = image.partition(where)
    if state is None or not isinstance(error, NotServing | Fenced):
        return {}
    leaders.add(state.leader)
    return {
        "current_leader": answer.entity(
            "LeaderIdAndEpoch", leader_id=state.leader, leader_epoch=state.leader_epoch
        )
    }
