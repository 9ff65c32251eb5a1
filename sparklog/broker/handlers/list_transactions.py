"""ListTransactions (66): the transactional ids that this broker coordinates.

Source: KIP-664, KIP-994 (those that run for long), KIP-1152 (those whose id matches a pattern).
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.topic_patterns import check_pattern, matching
from sparklog.coordinator.transaction_state import Transaction, TransactionState
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

STATES: Final = {state.label: state for state in TransactionState}


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the ids that pass the filters."""
    answer = Answer.to(request)
    unknown = tuple(name for name in request.state_filters if name not in STATES)
    states = {STATES[name] for name in request.state_filters if name in STATES}
    nobody = bool(request.state_filters) and not states
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
            if not nobody
        ),
    )


def _matching(pattern: str | None, found: list[Transaction]) -> list[Transaction]:
    """Return those whose id a pattern matches from end to end; none or an empty one matches all.

    Raises:
        InvalidRegularExpression: it cannot be read.
    """
    if not pattern:
        return found
    check_pattern(pattern)
    ids = matching(pattern, [one.transactional_id for one in found])
    return [one for one in found if one.transactional_id in ids]
