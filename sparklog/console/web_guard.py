"""WebGuard: checks the host of each request, and adds the headers that limit a browser.

The host check stops DNS rebinding: another site's name that resolves to loopback is refused. The
policy allows the console's own files only, so markup that escaped its quotes could run nothing.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklog.core.web_requests import LOOPBACK_NAMES, named_host

ASSET_SECONDS: Final = 3600
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# Not no-referrer: a browser would then send forms of the console's own pages with `Origin: null`.
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOOPBACK: Final = LOOPBACK_NAMES


class WebGuard:
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
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                static = scope["path"].startswith("/static/")
                cached = f"max-age={ASSET_SECONDS}" if static else "no-store"
                headers.setdefault("Cache-Control", cached)
            await send(message)

        host = named_host(Headers(scope=scope).get("host", ""))
        if self._hosts and host not in self._hosts:
            refused = PlainTextResponse(
                "The console does not serve this host name; start it with --host NAME.\n", 421
            )
            await refused(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)
