"""ApiVersions (18): what this broker answers. Source: KIP-511, KIP-584."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.api import APIS, Api, advertised
from sparklog.protocol.building import Answer
from sparklog.protocol.messages import RequestHeader


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the table of APIs. No features are told of: clients then use what is oldest."""
    answer = Answer.to(request)
    return answer.response(
        error_code=ErrorCode.none, api_keys=_keys(answer, advertised()), throttle_time=NO_THROTTLE
    )


def refuse(header: RequestHeader) -> Any:
    """Answer a version from the future in the oldest form, which every client reads."""
    answer = Answer(Api.API_VERSIONS, 0)
    versions = APIS[Api.API_VERSIONS]
    known = [(int(Api.API_VERSIONS), versions.min, versions.max)]
    return answer.response(error_code=ErrorCode.unsupported_version, api_keys=_keys(answer, known))


def _keys(answer: Answer, known: list[tuple[int, int, int]]) -> tuple[Any, ...]:
    return tuple(
        answer.entity("ApiVersion", api_key=key, min_version=lowest, max_version=highest)
        for key, lowest, highest in known
    )
