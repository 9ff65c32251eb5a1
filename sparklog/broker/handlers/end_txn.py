"""EndTxn (26): commit or abort. Answered once decided; the markers follow.

From version 5 on every end raises the producer's epoch, and the answer says to what.
Source: KIP-98, KIP-890.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.init_producer_id import fenced_code
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction import EPOCH_BUMP_SINCE, EndTransaction
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

FENCED_SINCE: Final = 2
EPOCH_BUMP_VERSION: Final = 5
NOBODY: Final = ProducerIdentity(-1, -1)


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer once the outcome is decided."""
    answer = Answer.to(request)
    asked = EndTransaction(
        request.transactional_id,
        ProducerIdentity(int(request.producer_id), int(request.producer_epoch)),
        bool(request.committed),
        EPOCH_BUMP_SINCE if answer.version >= EPOCH_BUMP_VERSION else 0,
    )
    code, identity = ErrorCode.none, NOBODY
    try:
        identity = await node.transactions.coordinator.end(asked)
    except SparklogError as error:
        code = fenced_code(error, answer.version >= FENCED_SINCE)
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )
