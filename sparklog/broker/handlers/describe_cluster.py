"""DescribeCluster (60): the cluster's id, its controller and its live brokers. Source: KIP-700."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import (
    CLUSTER_OPERATIONS,
    NO_THROTTLE,
    NOT_ASKED,
    controller_id,
    listed,
)
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.building import Answer

BROKERS = 1
"""The type of endpoints that there are; Kafka's controllers have endpoints of their own."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer from the metadata image."""
    answer = Answer.to(request)
    image = node.metadata.image
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    asks_operations = request.include_cluster_authorized_operations
    answerable = endpoint_type == BROKERS
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if answerable else ErrorCode.unsupported_endpoint_type,
        error_message=None if answerable else "brokers are controllers too; ask for brokers.",
        endpoint_type=endpoint_type,
        cluster_id=node.cluster_id,
        controller_id=controller_id(image),
        brokers=listed(answer, "DescribeClusterBroker", image.live_brokers(), "broker_id")
        if answerable
        else (),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asks_operations else NOT_ASKED,
    )
