"""DescribeCluster (60): the cluster's id, its controller and its live brokers. Source: KIP-700."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import (
    CLUSTER_OPERATIONS,
    NO_THROTTLE,
    NOT_ASKED,
    controller_id,
)
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import MetadataImage
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
        brokers=_brokers(answer, image, fenced=getattr(request, "include_fenced_brokers", False))
        if answerable
        else (),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asks_operations else NOT_ASKED,
    )


def _brokers(answer: Answer, image: MetadataImage, *, fenced: bool) -> tuple[Any, ...]:
    """Return the live brokers by id, and with `fenced` those that are not. Source: KIP-1073."""
    shown = image.brokers.values() if fenced else image.live_brokers()
    return tuple(
        answer.entity(
            "DescribeClusterBroker",
            broker_id=one.broker_id,
            host=one.host,
            port=one.port,
            rack=one.rack,
            is_fenced=one.fenced,
        )
        for one in sorted(shown, key=lambda one: one.broker_id)
    )
