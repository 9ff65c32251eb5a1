"""Requests about delegation tokens: create (38), renew (39), expire (40), describe (41).

Only a client that proved its identity may send them, and not by a token: a token shall not outlive
itself. A token's HMAC goes to those who may log in by it and into no log line.
Source: KIP-48, KIP-373.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sparklog.broker.handlers.refusals import blank_response
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import token_changes
from sparklog.cluster.metadata.access_state import token_record
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record, RemoveDelegationTokenRecord
from sparklog.cluster.metadata.token_changes import TokenRequest
from sparklog.core.entropy import new_topic_id
from sparklog.core.errors import SparklogError
from sparklog.core.token_errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenError,
    DelegationTokenRequestNotAllowed,
)
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.security.sasl.delegation_tokens import DelegationToken, TokenSecrets

_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def create(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Create a token for the sender, or for the owner that the request names (38)."""
    asked = TokenRequest(
        owner_of(request, context),
        context.principal,
        tuple(Principal(one.principal_type, one.principal_name) for one in request.renewers),
        request.max_lifetime // _MILLISECOND,
    )
    try:
        secrets = _secrets(node, context)
        token = token_changes.new_token(
            asked,
            new_topic_id(node.environment.entropy),
            node.environment.clock.now_ms(),
            node.config.whole("delegation.token.max.lifetime.ms"),
            node.config.whole("delegation.token.expiry.time.ms"),
        )
        await node.metadata.decide(lambda image: token_changes.create_token(image, token))
    except SparklogError as error:
        return refused_creation(request, context, error)
    return ResponseBuilder.to(request).response(
        error_code=code_of(None),
        **_principals(token),
        issue_timestamp=_instant(token.issue_ms),
        expiry_timestamp=_instant(token.expiry_ms),
        max_timestamp=_instant(token.max_ms),
        token_id=token.token_id,
        hmac=secrets.hmac(token.token_id),
        throttle_time=NO_THROTTLE,
    )


def owner_of(request: Any, context: RequestContext) -> Principal:
    """Return the owner of the token that a request asks for: the sender, if it names none."""
    name = getattr(request, "owner_principal_name", None)
    if not name:
        return context.principal
    return Principal(request.owner_principal_type or "", name)


def refused_creation(request: Any, context: RequestContext, error: SparklogError) -> Any:
    """Return the answer to a token that is not created."""
    owner, requester = owner_of(request, context), context.principal
    return blank_response(
        request,
        error,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
    )


async def renew(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Move the expiry of a token into the future (39)."""
    most_ms = node.config.whole("delegation.token.expiry.time.ms")
    asked_ms = request.renew_period // _MILLISECOND
    period_ms = min(most_ms, asked_ms) if asked_ms > 0 else most_ms
    return await _changed(node, request, context, token_changes.renew_token, period_ms)


async def expire(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Set the expiry of a token; a negative period removes the token at once (40)."""
    period_ms = request.expiry_time_period // _MILLISECOND
    return await _changed(node, request, context, token_changes.expire_token, period_ms)


async def _changed(
    node: BrokerNode,
    request: Any,
    context: RequestContext,
    change: Callable[[DelegationToken | None, Principal, int, int], DelegationToken | None],
    period_ms: int,
) -> Any:
    """Change the token with the request's HMAC; remove it if it becomes None."""
    now_ms = expiry_ms = node.environment.clock.now_ms()

    def decide(image: MetadataImage) -> list[Record]:
        nonlocal expiry_ms
        found = secrets.find(bytes(request.hmac), image.tokens)
        changed = change(found, context.principal, now_ms, period_ms)
        if changed is not None:
            expiry_ms = changed.expiry_ms
            return [token_record(changed)]
        return [] if found is None else [RemoveDelegationTokenRecord(found.token_id)]

    try:
        secrets = _secrets(node, context)
        try:
            await node.metadata.decide(decide)
        except DelegationTokenError:  # perhaps another broker has just created or renewed it
            await node.metadata.catch_up()
            await node.metadata.decide(decide)
    except SparklogError as error:
        return blank_response(request, error)
    return ResponseBuilder.to(request).response(
        error_code=code_of(None), expiry_timestamp=_instant(expiry_ms), throttle_time=NO_THROTTLE
    )


async def describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the tokens of some owners, or all, with their HMACs (41); the guard filters them.

    A token is one of its renewers' tokens, too. An empty list of owners asks for none.
    """
    try:
        secrets = _secrets(node, context)
    except SparklogError as error:
        return blank_response(request, error)
    answer = ResponseBuilder.to(request)
    tokens = list(node.metadata.image.tokens.values())
    if request.owners is not None:
        owners = {Principal(one.principal_type, one.principal_name) for one in request.owners}
        tokens = [one for one in tokens if owners.intersection((one.owner, *one.renewers))]
    return answer.response(
        error_code=code_of(None),
        tokens=tuple(_described(answer, token, secrets) for token in tokens),
        throttle_time=NO_THROTTLE,
    )


def _described(answer: ResponseBuilder, token: DelegationToken, secrets: TokenSecrets) -> Any:
    return answer.entity(
        "DescribedDelegationToken",
        **_principals(token),
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secrets.hmac(token.token_id),
        renewers=tuple(
            answer.entity(
                "DescribedDelegationTokenRenewer",
                principal_type=one.kind,
                principal_name=one.name,
            )
            for one in token.renewers
        ),
    )


def _principals(token: DelegationToken) -> dict[str, str]:
    return {
        "principal_type": token.owner.kind,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.kind,
        "token_requester_principal_name": token.requester.name,
    }


def check_identity(context: RequestContext) -> None:
    """Check that a client proved its identity, and not by a token.

    Raises:
        DelegationTokenRequestNotAllowed: it did not.
    """
    if context.by_token or context.principal == ANONYMOUS:
        raise DelegationTokenRequestNotAllowed(
            "requests about tokens need a login, or a client certificate, and no token."
        )


def _secrets(node: BrokerNode, context: RequestContext) -> TokenSecrets:
    check_identity(context)
    if node.token_secrets is None:
        raise DelegationTokenAuthDisabled(
            "the brokers have no delegation tokens: set delegation.token.secret.key."
        )
    return node.token_secrets


def _instant(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
