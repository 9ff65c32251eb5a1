"""Produce (0): appends batches to the partitions that this broker leads.

`begin` is the fast path of nearly all requests. It appends the batches when the request comes in,
and sends the response when they are acknowledged. There is no task or coroutine between the bytes
of the request and the append, nor between the acknowledgement and the bytes of the response.

`handle` does everything else: it verifies transactions, waits for partitions and returns errors.
If a batch of `begin` fails, a task returns the errors.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, cast

from sparklog.broker.handlers import transactional_batches
from sparklog.broker.handlers.access import Access, access_of, audits_allowed
from sparklog.broker.handlers.request_parts import asked_as, partition_of, topic_of
from sparklog.broker.handlers.responses import code_of, leader_hints, message_of, named_twice
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.produce.request import ProducedPartition, ProduceRequest
from sparklog.broker.runtime.request import (
    UNTHROTTLED,
    CloseConnection,
    NoResponse,
    Reply,
    RequestContext,
)
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.coordinator.transaction.state import Partition
from sparklog.core.errors import (
    InvalidRequest,
    InvalidTopic,
    NotServing,
    RecordsRefused,
    SparklogError,
    UnknownTopicOrPartition,
)
from sparklog.core.quotas import PRODUCER_BYTE_RATE
from sparklog.core.topic_names import AUDIT_TOPIC, CLOSED_TOPICS, JOBS_TOPIC, check_not_closed
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.messages.produce_fast_path import PlainProduce
from sparklog.protocol.records.header import (
    REFERENCE_BIT,
    TRANSACTIONAL_BIT,
    BytesLike,
    has_attribute,
)
from sparklog.security.acls import AclOperation, ResourceType

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1
ACKS: Final = frozenset({0, 1, ACKS_ALL})
MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNKNOWN: Final = -1


class InvalidRequiredAcks(InvalidRequest):
    """`acks` is not 0, 1 or -1 (all)."""

    kafka_code = 21


Outcome = ProducedPartition | SparklogError


async def handle(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Append every valid batch; each other partition gets its own error.

    Raises:
        CloseConnection: a partition failed and the producer wants no response (`acks` is 0).
    """
    image = node.metadata.image
    topics = [topic_of(image, t) for t in request.topic_data]
    outcomes: dict[tuple[int, int], Outcome] = {}
    batches: dict[PartitionId, bytes] = {}
    names: dict[PartitionId, Partition] = {}
    places: dict[PartitionId, tuple[int, int]] = {}
    refusal = _refusal(request)
    by_broker = node.is_broker(context)
    for at, (asked, topic) in enumerate(zip(request.topic_data, topics, strict=True)):
        for number, data in enumerate(asked.partition_data):
            where = refusal or _where(topic, data, batches, by_broker=by_broker)
            if isinstance(where, SparklogError):
                outcomes[at, number] = where
                _remember_unknown(node, asked_as(topic, asked, data.index), data.records, where)
            else:
                batches[where] = data.records or b""
                places[where] = (at, number)
                assert isinstance(topic, Topic), topic
                names[where] = topic.name, data.index
    if batches:
        produced = await _produce(node, request, batches, names)
        outcomes.update({places[where]: outcome for where, outcome in produced.items()})
    _count(node, topics, outcomes)
    throttle = charge(node, context, batches)
    if request.acks == 0:
        _hang_up_on_error(outcomes)
        return NoResponse(throttle) if throttle else None
    return _response(
        ResponseBuilder.to(request), node.image_for(context), request, topics, outcomes, throttle
    )


def charge(
    node: BrokerNode, context: RequestContext, batches: Mapping[PartitionId, BytesLike]
) -> timedelta:
    """Charge a producer for its batches; return the time to read nothing from its connection."""
    quotas = node.metadata.image.client_quotas
    if not quotas or node.is_broker(context):
        return UNTHROTTLED
    size_bytes = sum(map(len, batches.values()))
    return node.throttle.charge(quotas, PRODUCER_BYTE_RATE, context, size_bytes)


def answer(
    node: BrokerNode,
    request: Any,
    outcomes: Sequence[Outcome],
    throttle: timedelta,
    context: RequestContext,
) -> Any:
    """Return the response with the result of each batch, in the order of the request."""
    image = node.image_for(context)
    topics = [topic_of(image, t) for t in request.topic_data]
    places = (
        (at, number)
        for at, asked in enumerate(request.topic_data)
        for number in range(len(asked.partition_data))
    )
    results = dict(zip(places, outcomes, strict=True))
    _count(node, topics, results)
    return _response(ResponseBuilder.to(request), image, request, topics, results, throttle)


async def _produce(
    node: BrokerNode,
    request: Any,
    batches: dict[PartitionId, bytes],
    names: dict[PartitionId, Partition],
) -> Mapping[PartitionId, Outcome]:
    """Verify the transactions of transactional batches, then append all batches."""
    timeout_ms = max(0, request.timeout // MILLISECOND)
    asked = transactional_batches.find(request, batches, names)
    if asked is None:
        return await node.replicas.produce_service.produce(batches, request.acks, timeout_ms)
    checked = await transactional_batches.verify(node, asked)
    for where, error in checked.refused.items():
        node.replicas.produce_service.refused(where, batches[where], error)
    left = {where: data for where, data in batches.items() if where not in checked.refused}
    if not left:
        return {**checked.refused}
    produced = await node.replicas.produce_service.produce(
        left, request.acks, timeout_ms, checked.verified
    )
    return {**produced, **checked.refused}


def _refusal(request: Any) -> SparklogError | None:
    if request.acks not in ACKS:
        return InvalidRequiredAcks(f"acks is 0, 1 or -1 (all). acks={request.acks}")
    return None


def _where(
    topic: Topic | SparklogError, data: Any, taken: dict[PartitionId, bytes], *, by_broker: bool
) -> PartitionId | SparklogError:
    if isinstance(topic, Topic) and topic.name in CLOSED_TOPICS:
        refusal = _closed(topic.name, data.records or b"", by_broker=by_broker)
        if refusal is not None:
            return refusal
    where = partition_of(topic, data.index)
    if isinstance(where, PartitionId) and where in taken:
        return named_twice("partition", str(where))
    return where


def _closed(name: str, records: BytesLike, *, by_broker: bool) -> SparklogError | None:
    """Return the error of an append to an internal topic, or None if it is allowed.

    Brokers append to the audit topic by produce requests to its leader.
    The history of jobs accepts reference batches. They name an object in the partition's own
    folder, so their producer can write to the storage. Source: decision 49.
    """
    if name == AUDIT_TOPIC and by_broker:
        return None
    if name == JOBS_TOPIC and has_attribute(records, REFERENCE_BIT):
        return None
    try:
        check_not_closed(name, "append to it")
    except InvalidTopic as refusal:
        return refusal
    return None


def _remember_unknown(
    node: BrokerNode, where: PartitionId, records: bytes | None, error: SparklogError
) -> None:
    """Remember a rejected batch of a partition that this broker's metadata may soon contain."""
    if isinstance(error, UnknownTopicOrPartition):
        node.replicas.produce_service.refused(where, records or b"", error)


def _count(
    node: BrokerNode,
    topics: list[Topic | SparklogError],
    outcomes: dict[tuple[int, int], Outcome],
) -> None:
    for (at, _), outcome in outcomes.items():
        topic = topics[at]
        if isinstance(outcome, SparklogError) and isinstance(topic, Topic):
            node.metrics.produce_failed(topic.name)


def _hang_up_on_error(outcomes: dict[tuple[int, int], Outcome]) -> None:
    failed = next((o for o in outcomes.values() if isinstance(o, SparklogError)), None)
    if failed is not None:
        raise CloseConnection(f"produce failed, and its producer wants no answer: {failed}")


def _response(
    answer: ResponseBuilder,
    image: MetadataImage,
    request: Any,
    topics: list[Topic | SparklogError],
    outcomes: dict[tuple[int, int], Outcome],
    throttle: timedelta,
) -> Any:
    leaders: set[int] = set()
    responses = []
    for at, (asked, topic) in enumerate(zip(request.topic_data, topics, strict=True)):
        parts = []
        for number, data in enumerate(asked.partition_data):
            outcome = outcomes[at, number]
            if isinstance(outcome, NotServing) and isinstance(topic, Topic):
                parts.append(_moved(answer, image, data.index, topic, outcome, leaders))
            else:
                parts.append(_part(answer, data.index, outcome))
        responses.append(
            answer.entity(
                "TopicProduceResponse",
                name=getattr(asked, "name", None),
                topic_id=getattr(asked, "topic_id", None),
                partition_responses=tuple(parts),
            )
        )
    return answer.response(
        responses=tuple(responses),
        throttle_time=throttle,
        **_endpoints(answer, image, leaders),
    )


def _part(answer: ResponseBuilder, number: int, outcome: Outcome, **more: Any) -> Any:
    failed = outcome if isinstance(outcome, SparklogError) else None
    return answer.entity(
        "PartitionProduceResponse",
        index=number,
        error_code=code_of(failed),
        base_offset=_UNKNOWN if isinstance(outcome, SparklogError) else outcome.base_offset,
        log_append_time=None
        if isinstance(outcome, SparklogError)
        else _time(outcome.append_time_ms),
        log_start_offset=_UNKNOWN
        if isinstance(outcome, SparklogError)
        else outcome.log_start_offset,
        record_errors=_record_errors(answer, failed),
        error_message=message_of(failed),
        **more,
    )


def _record_errors(answer: ResponseBuilder, failed: SparklogError | None) -> tuple[Any, ...]:
    """Return the records that caused the rejection of a batch. Source: KIP-467."""
    if not isinstance(failed, RecordsRefused):
        return ()
    return tuple(
        answer.entity(
            "BatchIndexAndErrorMessage",
            batch_index=one.batch_index,
            batch_index_error_message=one.message,
        )
        for one in failed.record_errors
    )


def _moved(
    answer: ResponseBuilder,
    image: MetadataImage,
    number: int,
    topic: Topic,
    error: SparklogError,
    leaders: set[int],
) -> Any:
    """Return the error of a partition with another leader, and that leader. Source: KIP-951."""
    state = image.partition(PartitionId(topic.topic_id, number))
    if state is None or answer.version < LEADER_HINTS_SINCE:
        return _part(answer, number, error)
    leaders.add(state.leader)
    hint = answer.entity(
        "LeaderIdAndEpoch", leader_id=state.leader, leader_epoch=state.leader_epoch
    )
    return _part(answer, number, error, current_leader=hint)


LEADER_HINTS_SINCE: Final = 10


def _endpoints(answer: ResponseBuilder, image: MetadataImage, leaders: set[int]) -> dict[str, Any]:
    if not leaders:
        return {}
    return {"node_endpoints": leader_hints(answer, "NodeEndpoint", image, leaders)}


def _time(milliseconds: int) -> datetime | None:
    return None if milliseconds < 0 else _EPOCH + timedelta(milliseconds=milliseconds)


ACKS_WITH_RESPONSE: Final = ACKS - {0}


def begin(node: BrokerNode, asked: PlainProduce, reply: Reply, context: RequestContext) -> bool:
    """Append the batches of a plain request, and respond when they are acknowledged.

    Return False, with nothing done, if the append must wait or the request is not plain. So is a
    request that the guard has more to do about: to deny it, or to audit what it allows.
    """
    access = access_of(node, context, Api.PRODUCE)
    if access is not None and audits_allowed(node.audit):
        return False
    batches = _batches(node.metadata.image, asked, access)
    if not batches or asked.acks not in ACKS_WITH_RESPONSE:
        return False
    ended = partial(_ended, node, asked, reply, context)
    return node.replicas.produce_service.begin(batches, asked.acks, max(0, asked.timeout_ms), ended)


def _batches(
    image: MetadataImage, asked: PlainProduce, access: Access | None
) -> Mapping[PartitionId, BytesLike] | None:
    """Return the batches of a request in its order, None if the request is not plain."""
    batches: dict[PartitionId, BytesLike] = {}
    for key, _, partitions in asked.topics:
        topic = image.topic_of(key) if asked.by_id else image.topics.get(key)
        if topic is None or topic.name in CLOSED_TOPICS:
            return None
        if access is not None and not access.allows(
            AclOperation.WRITE, ResourceType.TOPIC, topic.name
        ):
            return None
        for number, records in partitions:
            where = PartitionId(topic.topic_id, number)
            if where in batches or not 0 <= number < len(topic.partition_states):
                return None
            if has_attribute(records, TRANSACTIONAL_BIT | REFERENCE_BIT):
                return None
            batches[where] = records
    return batches


def _ended(
    node: BrokerNode,
    asked: PlainProduce,
    reply: Reply,
    context: RequestContext,
    job: ProduceRequest,
) -> None:
    job.end()
    if job.has_failed:
        reply.go_on(_failed(node, asked, context, job))
        return
    throttle = charge(node, context, job.batches)
    places = cast("list[ProducedPartition]", job.outcomes)
    reply.answer(produce_fast_path.answer(asked, places, throttle // MILLISECOND), throttle)


async def _failed(
    node: BrokerNode, asked: PlainProduce, context: RequestContext, job: ProduceRequest
) -> Any:
    await node.replicas.produce_service.finish(job)
    _, request = frames.decode_request(asked.frame)
    return answer(node, request, job.outcomes, charge(node, context, job.batches), context)
