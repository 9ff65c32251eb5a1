"""InitProducerId (22): an id for an idempotent producer. Source: KIP-98, KIP-360."""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

logger = logging.getLogger(__name__)

NO_ID = -1


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a fresh id and epoch 0, also to a producer that gives an older one up.

    A transactional id is refused for good: no broker here coordinates transactions.
    """
    answer = Answer.to(request)
    if request.transactional_id is not None:
        return _refused(answer, ErrorCode.transactional_id_authorization_failed)
    try:
        producer_id = await node.producer_ids.take()
    except SparklogError as error:
        logger.warning("no producer id: %s", error)
        return _refused(answer, code_of(error))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=producer_id,
        producer_epoch=0,
    )


def _refused(answer: Answer, code: ErrorCode) -> Any:
    return answer.response(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=NO_ID, producer_epoch=NO_ID
    )
