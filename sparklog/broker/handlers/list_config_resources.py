"""ListConfigResources (74): what has settings, by type. Source: KIP-1142.

Version 0 lists clients' metrics subscriptions only, of which there are none here.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.config_entries import Resource
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import MetadataImage
from sparklog.protocol.building import Answer

CLIENT_METRICS: Final = 16
BROKER_LOGGER: Final = 8
KNOWN: Final = frozenset({*Resource, CLIENT_METRICS, BROKER_LOGGER})
"""Types that Kafka lists; of those that are no `Resource` there is nothing."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """List the names of some types, or of all where none is given."""
    answer = Answer.to(request)
    asked = getattr(request, "resource_types", (CLIENT_METRICS,)) or KNOWN
    known = KNOWN.issuperset(asked)
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if known else ErrorCode.unsupported_version,
        config_resources=tuple(
            answer.entity("ConfigResource", resource_name=name, resource_type=kind)
            for kind in Resource
            if known and kind in asked
            for name in _names(node.metadata.image, kind)
        ),
    )


def _names(image: MetadataImage, kind: Resource) -> list[str]:
    match kind:
        case Resource.TOPIC:
            return sorted(image.topics)
        case Resource.BROKER:
            return [str(broker.broker_id) for broker in image.live_brokers()]
        case Resource.GROUP:
            return sorted(image.group_configs)
