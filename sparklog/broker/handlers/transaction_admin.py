"""DescribeTransactions (65): what the coordinator knows of transactional ids. Source: KIP-664.

ListTransactions (66): the transactional ids that this broker coordinates.

Source: KIP-664, KIP-994 (those that run for long), KIP-1152 (those whose id matches a pattern).

DescribeProducers (61): the producers that partitions here know of. Source: KIP-664.

A follower knows of none; for the partitions that it follows, it asks their leader. Kafka's tool
that looks for hanging transactions asks one broker about all of its replicas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.txn_markers import KnownProducer
from sparklog.broker.handlers.request_parts import partition_of, topic_of
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of, message_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.broker.runtime.request import RequestContext
from sparklog.coordinator.consumer.topics import check_pattern, matching
from sparklog.coordinator.transaction.state import NO_TIME_MS, TransactionMetadata, TransactionState
from sparklog.core.errors import NotServing, SparklogError, Unavailable
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import ResponseBuilder, build_request, build_request_part

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ID: Final = -1


async def describe_transactions(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every transactional id, in the order they were asked for."""
    answer = ResponseBuilder.to(request)
    states = []
    for transactional_id in request.transactional_ids:
        try:
            found = await node.transactions.coordinator.describe(transactional_id)
        except SparklogError as error:
            states.append(_unknown(answer, transactional_id, code_of(error)))
        else:
            states.append(_known(answer, found))
    return answer.response(throttle_time=NO_THROTTLE, transaction_states=tuple(states))


def _known(answer: ResponseBuilder, found: TransactionMetadata) -> Any:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(found.partitions):
        by_topic[topic].append(number)
    return answer.entity(
        "TransactionState",
        error_code=ErrorCode.none,
        transactional_id=found.transactional_id,
        transaction_state=found.state.label,
        transaction_timeout=timedelta(milliseconds=found.timeout_ms),
        transaction_start_time=_time(found.started_ms),
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=tuple(
            answer.entity("TopicData", topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        ),
    )


def _unknown(answer: ResponseBuilder, transactional_id: str, code: ErrorCode) -> Any:
    return answer.entity(
        "TransactionState",
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=timedelta(0),
        transaction_start_time=_time(NO_TIME_MS),
        producer_id=_NO_ID,
        producer_epoch=_NO_ID,
        topics=(),
    )


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


STATES: Final = {state.label: state for state in TransactionState}


async def list_transactions(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the ids that pass the filters."""
    answer = ResponseBuilder.to(request)
    unknown = tuple(name for name in request.state_filters if name not in STATES)
    states = {STATES[name] for name in request.state_filters if name in STATES}
    matches_none = bool(request.state_filters) and not states
    try:
        found = await node.transactions.coordinator.list_transactions(
            states,
            {int(one) for one in request.producer_id_filters},
            int(getattr(request, "duration_filter", -1)),
        )
        found = _matching(getattr(request, "transactional_id_pattern", None), found)
    except SparklogError as error:
        return answer.response(
            throttle_time=NO_THROTTLE,
            error_code=code_of(error),
            unknown_state_filters=unknown,
            transaction_states=(),
        )
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=unknown,
        transaction_states=tuple(
            answer.entity(
                "TransactionState",
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.label,
            )
            for one in found
            if not matches_none
        ),
    )


def _matching(pattern: str | None, found: list[TransactionMetadata]) -> list[TransactionMetadata]:
    """Return those whose id a pattern matches from end to end; none or an empty one matches all.

    Raises:
        InvalidRegularExpression: it cannot be read.
    """
    if not pattern:
        return found
    check_pattern(pattern)
    ids = matching(pattern, [one.transactional_id for one in found])
    return [one for one in found if one.transactional_id in ids]


ASK_TIMEOUT_S: Final = 5.0
PURPOSE: Final = "producers"

Place = tuple[str, int]


async def describe_producers(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition asked for."""
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    parts: dict[Place, Any] = {}
    followed: dict[int, list[Place]] = defaultdict(list)
    for asked in request.topics:
        topic = topic_of(image, asked)
        for number in map(int, asked.partition_indexes):
            where = partition_of(topic, number)
            found = await _here(node, where)
            parts[asked.name, number] = _part(answer, number, found)
            if isinstance(found, NotServing) and isinstance(where, PartitionId):
                state = image.partition(where)
                if state is not None and node.broker_id in state.replicas:
                    followed[state.leader].append((asked.name, number))
    if not node.is_broker(context):  # not passed on twice
        for leader, places in followed.items():
            parts.update(await _ask(node, answer, leader, places))
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "TopicResponse",
                name=asked.name,
                partitions=tuple(parts[asked.name, int(n)] for n in asked.partition_indexes),
            )
            for asked in request.topics
        ),
    )


async def _here(
    node: BrokerNode, where: PartitionId | SparklogError
) -> list[KnownProducer] | SparklogError:
    if isinstance(where, SparklogError):
        return where
    try:
        return await node.replicas.txn_markers.producers(where)
    except SparklogError as error:
        return error


async def _ask(
    node: BrokerNode, answer: ResponseBuilder, leader: int, places: Iterable[Place]
) -> dict[Place, Any]:
    """Return what the leader of partitions followed here answers; nothing when it does not."""
    broker = node.metadata.image.brokers.get(leader)
    if broker is None:
        return {}
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in places:
        by_topic[topic].append(number)
    request = build_request(
        Api.DESCRIBE_PRODUCERS,
        answer.version,
        topics=tuple(
            build_request_part(
                Api.DESCRIBE_PRODUCERS,
                answer.version,
                "TopicRequest",
                name=topic,
                partition_indexes=tuple(numbers),
            )
            for topic, numbers in by_topic.items()
        ),
    )
    try:
        found = await node.environment.network.call(
            Address(broker.host, broker.port), request, timeout_s=ASK_TIMEOUT_S, purpose=PURPOSE
        )
    except (Unreachable, TimeoutError) as error:
        silent = Unavailable(f"the partition's leader does not answer: {error} leader={leader}")
        return {place: _part(answer, place[1], silent) for place in places}
    return {
        (topic.name, int(part.partition_index)): part
        for topic in found.topics
        for part in topic.partitions
    }


def _part(answer: ResponseBuilder, number: int, found: list[KnownProducer] | SparklogError) -> Any:
    failed = found if isinstance(found, SparklogError) else None
    return answer.entity(
        "PartitionResponse",
        partition_index=number,
        error_code=code_of(failed),
        error_message=message_of(failed),
        active_producers=tuple(
            answer.entity(
                "ProducerState",
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.written_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.transaction_start,
            )
            for one in (() if isinstance(found, SparklogError) else found)
        ),
    )
