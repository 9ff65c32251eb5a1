"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): refused as by Kafka without an authorizer.

Whoever reaches a broker may do everything. Tools that carry ACLs along, as MirrorMaker does, take
this answer for "there are none"; without any they report an error at every look.
"""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, error_fields
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import SecurityDisabled
from sparklog.protocol.building import Answer

_REFUSED = error_fields(
    SecurityDisabled("no authorizer is configured: everybody may do everything.")
)


async def describe(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Tell that there are no ACLs, and why (29)."""
    return Answer.to(request).response(throttle_time=NO_THROTTLE, resources=(), **_REFUSED)


async def create(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Refuse every ACL (30)."""
    answer = Answer.to(request)
    results = tuple(answer.entity("AclCreationResult", **_REFUSED) for _ in request.creations)
    return answer.response(throttle_time=NO_THROTTLE, results=results)


async def delete(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Refuse every filter (31)."""
    answer = Answer.to(request)
    results = tuple(
        answer.entity("DeleteAclsFilterResult", matching_acls=(), **_REFUSED)
        for _ in request.filters
    )
    return answer.response(throttle_time=NO_THROTTLE, filter_results=results)
