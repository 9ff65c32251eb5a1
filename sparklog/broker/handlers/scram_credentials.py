"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): nobody has a password here.

kafka-configs asks for them whenever it describes users, whose quotas it tells besides.
Source: KIP-554.
"""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, error_fields
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import ResourceNotFound, UnsupportedSaslMechanism
from sparklog.protocol.building import Answer


async def describe(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Tell of each user that is asked for that he has no credentials; of all, nothing (50)."""
    answer = Answer.to(request)
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


async def alter(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Refuse every change, once per user (51)."""
    answer = Answer.to(request)
    error = UnsupportedSaslMechanism("brokers authenticate nobody, so nobody needs a password.")
    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    results = tuple(
        answer.entity("AlterUserScramCredentialsResult", user=user, **error_fields(error))
        for user in users
    )
    return answer.response(throttle_time=NO_THROTTLE, results=results)
