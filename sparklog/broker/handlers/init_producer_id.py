"""InitProducerId (22): an id and an epoch for an idempotent or transactional producer.

Source: KIP-98, KIP-360 (a producer goes on after an error), KIP-588 (fenced and how it is told).
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction import InitProducer
from sparklog.core.errors import InvalidRequest, ProducerFenced, SparklogError
from sparklog.protocol.building import Answer

logger = logging.getLogger(__name__)

NO_ID: Final = -1
FENCED_SINCE: Final = 4
"""The first version whose clients know PRODUCER_FENCED."""
_MILLISECOND: Final = timedelta(milliseconds=1)


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with an id and an epoch.

    Without a transactional id they are fresh, also for a producer that gives older ones up.
    """
    answer = Answer.to(request)
    try:
        if request.transactional_id is None:
            identity = ProducerIdentity(await node.producer_ids.take(), 0)
        else:
            asked = InitProducer(
                request.transactional_id,
                request.transaction_timeout // _MILLISECOND,
                _expected(request),
            )
            identity = await node.transactions.coordinator.init_producer(asked)
    except SparklogError as error:
        logger.info("no producer id: %s", error)
        return _refused(answer, fenced_code(error, answer.version >= FENCED_SINCE))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )


def fenced_code(error: SparklogError, is_known: bool) -> ErrorCode:
    """Return the code of an error, for a client that may not know PRODUCER_FENCED."""
    if isinstance(error, ProducerFenced) and not is_known:
        return ErrorCode.invalid_producer_epoch
    return code_of(error)


def _expected(request: Any) -> ProducerIdentity | None:
    """Return what a producer that wants to go on has."""
    expected = ProducerIdentity(
        int(getattr(request, "producer_id", NO_ID)), int(getattr(request, "producer_epoch", NO_ID))
    )
    if expected == (NO_ID, NO_ID):
        return None
    if NO_ID in expected:
        raise InvalidRequest(f"producer id and epoch go together. {expected}")
    return expected


def _refused(answer: Answer, code: ErrorCode) -> Any:
    return answer.response(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=NO_ID, producer_epoch=NO_ID
    )
