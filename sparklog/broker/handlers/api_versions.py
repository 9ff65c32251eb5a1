"""ApiVersions (18): what this broker answers. Source: KIP-511, KIP-584, KIP-1242."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.api import APIS, FEATURES, Api, advertised
from sparklog.protocol.building import Answer
from sparklog.protocol.messages import RequestHeader

FEATURES_SINCE: Final = 3
ANY_NODE: Final = -1


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the table of APIs, and the features that are in force."""
    answer = Answer.to(request)
    known = _is_meant(node, request)
    return answer.response(
        error_code=ErrorCode.none if known else ErrorCode.rebootstrap_required,
        api_keys=_keys(answer, advertised()) if known else (),
        throttle_time=NO_THROTTLE,
        **(_features(answer) if answer.version >= FEATURES_SINCE else {}),
    )


def _is_meant(node: HandlerNode, request: Any) -> bool:
    """Return whether a client means this cluster and this broker, if it says which (KIP-1242)."""
    cluster_id = getattr(request, "cluster_id", None)
    node_id = int(getattr(request, "node_id", ANY_NODE))
    return cluster_id in {None, node.cluster_id} and node_id in {ANY_NODE, node.broker_id}


def refuse(header: RequestHeader) -> Any:
    """Answer a version from the future in the oldest form, which every client reads."""
    answer = Answer(Api.API_VERSIONS, 0)
    versions = APIS[Api.API_VERSIONS]
    known = [(int(Api.API_VERSIONS), versions.min, versions.max)]
    return answer.response(error_code=ErrorCode.unsupported_version, api_keys=_keys(answer, known))


def _features(answer: Answer) -> dict[str, Any]:
    return {
        "supported_features": tuple(
            answer.entity("SupportedFeatureKey", name=f.name, min_version=1, max_version=f.level)
            for f in FEATURES
        ),
        "finalized_features_epoch": 0,
        "finalized_features": tuple(
            answer.entity(
                "FinalizedFeatureKey",
                name=f.name,
                max_version_level=f.level,
                min_version_level=f.level,
            )
            for f in FEATURES
        ),
    }


def _keys(answer: Answer, known: list[tuple[int, int, int]]) -> tuple[Any, ...]:
    return tuple(
        answer.entity("ApiVersion", api_key=key, min_version=lowest, max_version=highest)
        for key, lowest, highest in known
    )
