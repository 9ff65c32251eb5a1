"""DescribeTransactions (65): what the coordinator knows of transactional ids. Source: KIP-664."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.transaction_state import NO_TIME_MS, Transaction
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ID: Final = -1


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every transactional id, in the order they were asked for."""
    answer = Answer.to(request)
    states = []
    for transactional_id in request.transactional_ids:
        try:
            found = await node.transactions.coordinator.describe(transactional_id)
        except SparklogError as error:
            states.append(_unknown(answer, transactional_id, code_of(error)))
        else:
            states.append(_known(answer, found))
    return answer.response(throttle_time=NO_THROTTLE, transaction_states=tuple(states))


def _known(answer: Answer, found: Transaction) -> Any:
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


def _unknown(answer: Answer, transactional_id: str, code: ErrorCode) -> Any:
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
