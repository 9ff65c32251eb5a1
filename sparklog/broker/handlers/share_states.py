"""Handlers of the requests about share groups' states, which brokers send each other (KIP-932).

InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary: each names partitions, and each partition has a result of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from sparklog.broker.handlers.brokers_only import check_broker
from sparklog.broker.handlers.responses import error_fields
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.coordinator.share.delivery_state import (
    NO_COUNT,
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.state_shard import UNINITIALIZED
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import ResponseBuilder

_NO_TOPIC: Final = UUID(int=0)
Call = Callable[[SharePartitionKey, Any], Awaitable[ShareState | None]]
"""Runs the request for one partition; gets its key, and its part of the request."""
Fields = Callable[[ResponseBuilder, ShareState], dict[str, Any]]
"""Returns the fields of a partition's result beside the error."""


async def initialize(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Begin a state epoch of each partition."""
    coordinator = node.share_state_coordinator

    async def call(key: SharePartitionKey, part: Any) -> None:
        await coordinator.initialize(key, int(part.state_epoch), int(part.start_offset))

    return await _answered(node, request, context, "InitializeStateResult", call)


async def read(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the state of each partition to its new leader."""
    coordinator = node.share_state_coordinator

    async def call(key: SharePartitionKey, part: Any) -> ShareState:
        return await coordinator.read(key, int(part.leader_epoch))

    return await _answered(node, request, context, "ReadStateResult", call, _read_fields)


async def write(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Change the state of each partition."""
    coordinator = node.share_state_coordinator

    async def call(key: SharePartitionKey, part: Any) -> None:
        update = ShareStateUpdate(
            key,
            int(part.state_epoch),
            int(part.leader_epoch),
            int(part.start_offset),
            tuple(_batch(one) for one in part.state_batches),
            int(getattr(part, "delivery_complete_count", NO_COUNT)),
        )
        await coordinator.write(update)

    return await _answered(node, request, context, "WriteStateResult", call)


async def delete(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Delete the state of each partition."""
    coordinator = node.share_state_coordinator

    async def call(key: SharePartitionKey, part: Any) -> None:
        await coordinator.delete(key)

    return await _answered(node, request, context, "DeleteStateResult", call)


async def summary(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the start offset of each partition, and the number of finished records after it."""
    coordinator = node.share_state_coordinator

    async def call(key: SharePartitionKey, part: Any) -> ShareState:
        return await coordinator.summary(key)

    return await _answered(node, request, context, "ReadStateSummaryResult", call, _summary_fields)


async def _answered(
    node: BrokerNode,
    request: Any,
    context: RequestContext,
    structure: str,
    call: Call,
    fields: Fields | None = None,
) -> Any:
    """Return the response with a result for each partition, from `call` or an error."""
    answer = ResponseBuilder.to(request)
    group_id = str(request.group_id)

    async def result(topic: Any, part: Any) -> Any:
        key = SharePartitionKey(group_id, topic.topic_id or _NO_TOPIC, int(part.partition))
        found: ShareState | None = None
        error: SparklogError | None = None
        try:
            check_broker(node, context, Api(request.__api_key__).label)
            found = await call(key, part)
        except SparklogError as raised:
            error = raised
        more = {} if fields is None else fields(answer, found or UNINITIALIZED)
        return answer.entity(
            "PartitionResult", partition=part.partition, **error_fields(error), **more
        )

    async def results(topic: Any) -> Any:
        found = await asyncio.gather(*(result(topic, part) for part in topic.partitions))
        return answer.entity(structure, topic_id=topic.topic_id, partitions=tuple(found))

    return answer.response(
        results=tuple(await asyncio.gather(*(results(topic) for topic in request.topics)))
    )


def _read_fields(answer: ResponseBuilder, state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": tuple(
            answer.entity(
                "StateBatch",
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=int(batch.state),
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ),
    }


def _summary_fields(answer: ResponseBuilder, state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
    }


def _batch(batch: Any) -> StateBatch:
    """Return a batch of a request.

    Raises:
        InvalidRequest: there is no such state.
    """
    try:
        state = DeliveryState(int(batch.delivery_state))
    except ValueError:
        raise InvalidRequest(f"no such state. delivery_state={batch.delivery_state}") from None
    return StateBatch(
        int(batch.first_offset), int(batch.last_offset), state, int(batch.delivery_count)
    )
