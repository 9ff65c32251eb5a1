"""DescribeProducers (61): the producers that partitions here know of. Source: KIP-664.

A follower knows of none; for the partitions that it follows, it asks their leader. Kafka's tool
that looks for hanging transactions asks one broker about all of its replicas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from sparklog.broker.environment import Address, Unreachable
from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.broker.marking import KnownProducer
from sparklog.broker.request import RequestContext
from sparklog.core.errors import NotServing, SparklogError, Unavailable
from sparklog.core.types import PartitionId
from sparklog.protocol.api import Api
from sparklog.protocol.building import Answer, build_request, build_request_part

ASK_TIMEOUT_S: Final = 5.0
PURPOSE: Final = "producers"

Place = tuple[str, int]


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition asked for."""
    answer = Answer.to(request)
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
    node: HandlerNode, where: PartitionId | SparklogError
) -> list[KnownProducer] | SparklogError:
    if isinstance(where, SparklogError):
        return where
    try:
        return await node.replicas.marking.producers(where)
    except SparklogError as error:
        return error


async def _ask(
    node: HandlerNode, answer: Answer, leader: int, places: Iterable[Place]
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


def _part(answer: Answer, number: int, found: list[KnownProducer] | SparklogError) -> Any:
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
