"""SqlGuard: checks the host and the site of each request, and adds headers that limit a browser."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklog.core.web_requests import named_host

OWN_SITE: Final = frozenset({"same-origin", "none"})
HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SqlGuard:
    """An ASGI layer around the application."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        """Answer requests for `hosts` only; an empty set allows all."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        given = Headers(scope=scope)
        refused = None
        if self._hosts and named_host(given.get("host", "")) not in self._hosts:
            refused = JSONResponse({"error": "the server does not serve this host name"}, 421)
        elif given.get("sec-fetch-site", "none") not in OWN_SITE:
            refused = JSONResponse({"error": "the request comes from another site"}, 403)
        await (refused or self._app)(scope, receive, guarded)
