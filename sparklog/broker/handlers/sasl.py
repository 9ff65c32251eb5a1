"""SaslHandshake (17) and SaslAuthenticate (36) on a connection that needs no login, or has one.

A listener with a login handles both requests itself, before any handler: see
`network.client_login`. A client that sends them elsewhere gets ILLEGAL_SASL_STATE.
Source: KIP-43, KIP-152.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from sparklog.broker.handlers.responses import code_of, error_fields
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.errors import IllegalSaslState
from sparklog.protocol.messages.builder import ResponseBuilder

_NO_LOGIN: Final = IllegalSaslState(
    "this listener expects no login; set security.protocol to PLAINTEXT or SSL, or use the port "
    "of a listener with SASL."
)


async def sasl_handshake(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Reject the choice of a mechanism (17)."""
    return ResponseBuilder.to(request).response(error_code=code_of(_NO_LOGIN), mechanisms=())


async def sasl_authenticate(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Reject a token (36)."""
    return ResponseBuilder.to(request).response(
        **error_fields(_NO_LOGIN), auth_bytes=b"", session_lifetime=timedelta(0)
    )
