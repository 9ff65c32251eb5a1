"""WebGuard: checks the host of each request, and adds the headers that limit a browser.

The host check stops DNS rebinding: another site's name that resolves to loopback is refused. It is
the outermost layer of the console, of SQL over HTTP, and of the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from sparklog.core.web_requests import named_host

MISDIRECTED: Final = 421
FORBIDDEN: Final = 403
NO_CONTENT_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
"""For answers that no browser shows as a page."""
_OWN_SITE: Final = ("same-origin", "none")
_COMMON: Final = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class WebGuard:
    """An ASGI layer around an application."""

    def __init__(
        self,
        app: Any,
        *,
        hosts: Collection[str],
        refuse: Callable[[int, str], Any],
        headers: Mapping[str, str],
        own_site_only: bool = False,
    ) -> None:
        """Guard an ASGI application.

        Args:
            app: the application.
            hosts: in lower case; requests name one of them, or any if it is empty.
            refuse: makes the application that answers a refused request, from status and words.
            headers: of every response, besides the common ones; names in any case. A response
                keeps a `Cache-Control` of its own.
            own_site_only: refuse requests that a browser sends for another site.
        """
        self._app = app
        self._hosts = hosts
        self._refuse = refuse
        self._headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in {"Cache-Control": "no-store", **_COMMON, **headers}.items()
        ]
        self._own_site_only = own_site_only

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._with_ours(message.get("headers", ()))}
            await send(message)

        given = {name: value.decode("latin-1") for name, value in scope["headers"]}
        app = self._app
        if self._hosts and named_host(given.get(b"host", "")) not in self._hosts:
            app = self._refuse(MISDIRECTED, "the server does not serve this host name")
        elif self._own_site_only and given.get(b"sec-fetch-site", "none") not in _OWN_SITE:
            app = self._refuse(FORBIDDEN, "the request comes from another site")
        await app(scope, receive, guarded)

    def _with_ours(self, theirs: Any) -> list[tuple[bytes, bytes]]:
        ours = dict(self._headers)
        kept = []
        for name, value in theirs:
            lower = name.lower()
            if lower == b"cache-control":
                ours.pop(lower, None)
            if lower not in ours:
                kept.append((name, value))
        return [*kept, *ours.items()]
