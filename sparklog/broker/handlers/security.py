"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): refused as by Kafka without an authorizer.

Whoever reaches a broker may do everything. Tools that carry ACLs along, as MirrorMaker does, take
this answer for "there are none"; without any they report an error at every look.

DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): nobody has a password here.

kafka-configs asks for them whenever it describes users, whose quotas it tells besides.
Source: KIP-554.
"""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.responses import NO_THROTTLE, error_fields
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.errors import ResourceNotFound, SecurityDisabled, UnsupportedSaslMechanism
from sparklog.protocol.messages.builder import ResponseBuilder

_REFUSED = error_fields(
    SecurityDisabled("no authorizer is configured: everybody may do everything.")
)


async def describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Tell that there are no ACLs, and why (29)."""
    return ResponseBuilder.to(request).response(throttle_time=NO_THROTTLE, resources=(), **_REFUSED)


async def create(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Refuse every ACL (30)."""
    answer = ResponseBuilder.to(request)
    results = tuple(answer.entity("AclCreationResult", **_REFUSED) for _ in request.creations)
    return answer.response(throttle_time=NO_THROTTLE, results=results)


async def delete(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Refuse every filter (31)."""
    answer = ResponseBuilder.to(request)
    results = tuple(
        answer.entity("DeleteAclsFilterResult", matching_acls=(), **_REFUSED)
        for _ in request.filters
    )
    return answer.response(throttle_time=NO_THROTTLE, filter_results=results)


async def scram_credentials_describe(
    node: BrokerNode, request: Any, context: RequestContext
) -> Any:
    """Tell of each user that is asked for that he has no credentials; of all, nothing (50)."""
    answer = ResponseBuilder.to(request)
    results = tuple(
        answer.entity(
            "DescribeUserScramCredentialsResult",
            user=user.name,
            credential_infos=(),
            **error_fields(
                ResourceNotFound(f"the user has no SCRAM credentials. user={user.name!r}")
            ),
        )
        for user in request.users or ()
    )
    return answer.response(throttle_time=NO_THROTTLE, results=results, **error_fields(None))


async def alter(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Refuse every change, once per user (51)."""
    answer = ResponseBuilder.to(request)
    error = UnsupportedSaslMechanism("brokers authenticate nobody, so nobody needs a password.")
    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    results = tuple(
        answer.entity("AlterUserScramCredentialsResult", user=user, **error_fields(error))
        for user in users
    )
    return answer.response(throttle_time=NO_THROTTLE, results=results)
