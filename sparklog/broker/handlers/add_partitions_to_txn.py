"""AddPartitionsToTxn (24): partitions become part of a transaction.

Up to version 3 a producer asks, for all or nothing. From version 4 on the partitions' leaders ask,
for several producers at once, and may only want to know. Source: KIP-98, KIP-890.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.brokers_only import check_broker
from sparklog.broker.handlers.init_producer_id import fenced_code
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import MetadataImage
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction import EPOCH_BUMP_SINCE
from sparklog.coordinator.transaction_state import Partition
from sparklog.core.errors import ClusterAuthorizationFailed, SparklogError
from sparklog.core.names import CLOSED_TOPICS
from sparklog.protocol.api import Api
from sparklog.protocol.building import Answer

BATCHED_SINCE: Final = 4
FENCED_SINCE: Final = 2

Codes = Mapping[Partition, ErrorCode]


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition."""
    answer = Answer.to(request)
    if answer.version < BATCHED_SINCE:
        codes = await _add_all(node, answer, request)
        return answer.response(
            throttle_time=NO_THROTTLE,
            results_by_topic_v3_and_below=_topics(answer, request.v3_and_below_topics, codes),
        )
    try:
        check_broker(node, context, Api.ADD_PARTITIONS_TO_TXN.label)
    except ClusterAuthorizationFailed as refused:
        return answer.response(
            throttle_time=NO_THROTTLE, error_code=code_of(refused), results_by_transaction=()
        )
    results = await asyncio.gather(*(_one(node, one) for one in request.transactions))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results_by_transaction=tuple(
            answer.entity(
                "AddPartitionsToTxnResult",
                transactional_id=asked.transactional_id,
                topic_results=_topics(answer, asked.topics, codes),
            )
            for asked, codes in zip(request.transactions, results, strict=True)
        ),
    )


async def _add_all(node: HandlerNode, answer: Answer, request: Any) -> Codes:
    """Add what a producer asks for, if all of it exists."""
    partitions = _partitions(request.v3_and_below_topics)
    missing = {
        p: code
        for p, code in _missing(node.metadata.image, request.v3_and_below_topics)
        if code is not ErrorCode.none
    }
    if missing:
        untried = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
        return {**untried, **missing}
    producer = ProducerIdentity(
        int(request.v3_and_below_producer_id), int(request.v3_and_below_producer_epoch)
    )
    try:
        await node.transactions.coordinator.add_partitions(
            request.v3_and_below_transactional_id, producer, partitions, 0, waits=True
        )
    except SparklogError as error:
        return dict.fromkeys(partitions, fenced_code(error, answer.version >= FENCED_SINCE))
    return dict.fromkeys(partitions, ErrorCode.none)


async def _one(node: HandlerNode, asked: Any) -> Codes:
    """Add or verify one producer's partitions on behalf of their leader."""
    coordinator = node.transactions.coordinator
    producer = ProducerIdentity(int(asked.producer_id), int(asked.producer_epoch))
    partitions = _partitions(asked.topics)
    try:
        if asked.verify_only:
            found = await coordinator.verify(asked.transactional_id, producer, partitions)
            absent = ErrorCode.transaction_abortable
            return {p: ErrorCode.none if p in found else absent for p in partitions}
        await coordinator.add_partitions(
            asked.transactional_id, producer, partitions, EPOCH_BUMP_SINCE, waits=False
        )
    except SparklogError as error:
        return dict.fromkeys(partitions, code_of(error))
    return dict.fromkeys(partitions, ErrorCode.none)


def _partitions(topics: Any) -> list[Partition]:
    return [(topic.name, int(number)) for topic in topics for number in topic.partitions]


def _missing(image: MetadataImage, topics: Any) -> Iterable[tuple[Partition, ErrorCode]]:
    for asked in topics:
        topic = topic_of(image, asked)
        for number in asked.partitions:
            where = partition_of(topic, int(number))
            code = code_of(where if isinstance(where, SparklogError) else None)
            if asked.name in CLOSED_TOPICS:  # as Kafka, whose clients take no other code for this
                code = ErrorCode.topic_authorization_failed
            yield (asked.name, int(number)), code


def _topics(answer: Answer, topics: Any, codes: Codes) -> tuple[Any, ...]:
    return tuple(
        answer.entity(
            "AddPartitionsToTxnTopicResult",
            name=topic.name,
            results_by_partition=tuple(
                answer.entity(
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=number,
                    partition_error_code=codes[topic.name, int(number)],
                )
                for number in topic.partitions
            ),
        )
        for topic in topics
    )
