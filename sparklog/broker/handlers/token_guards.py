"""Guards of the requests about delegation tokens. Source: KafkaApis of Kafka 4.4, KIP-373.

Renewing and expiring need no ACL: the handler knows the owner and the renewers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.delegation_tokens import (
    check_identity,
    owner_of,
    refused_creation,
)
from sparklog.broker.handlers.guards import GuardedCall
from sparklog.core.token_errors import (
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
)
from sparklog.security.acls import AclOperation, ResourceType
from sparklog.security.principal import Principal


async def create_delegation_token(call: GuardedCall) -> Any:
    """Each client creates its own tokens, and needs CREATE_TOKENS on another user."""
    request, context = call.request, call.context
    owner = owner_of(request, context)
    try:
        check_identity(context)
    except DelegationTokenRequestNotAllowed as error:
        return refused_creation(request, context, error)
    if owner != context.principal and not call.access.may(
        AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        denied = DelegationTokenAuthorizationFailed("Delegation Token authorization failed.")
        return refused_creation(request, context, denied)
    return await call.proceed()


def described_tokens(call: GuardedCall, response: Any) -> Any:
    """Show the tokens that a client owns or may renew, and those that an ACL lets it describe."""
    if response.error_code is not ErrorCode.none:
        return response
    return replace(response, tokens=tuple(t for t in response.tokens if _may_see(call, t)))


def _may_see(call: GuardedCall, token: Any) -> bool:
    owner = Principal(token.principal_type, token.principal_name)
    renewers = (Principal(one.principal_type, one.principal_name) for one in token.renewers)
    if call.context.principal in (owner, *renewers):
        return True
    may = call.access.may
    return may(
        AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, filters=True
    ) or may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(owner), filters=True)
