"""Parts of small web servers: a socket that listens, hosts that requests may name, raw paths.

A page of another site can reach a server on loopback by a name of its own that resolves there. Its
requests name that host, so a server that checks the host refuses them.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

BACKLOG: Final = 128
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that requests to a loopback address name."""


def named_host(header: str) -> str:
    """Return the host of a `Host` header, without its port; an empty text for a wrong header."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return True for an address, or a name, of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_confidential(url: SplitResult) -> bool:
    """Return True for an https address, or an http one of this machine; none may have a user."""
    if not url.hostname or url.username is not None:
        return False
    return url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname))


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        OSError: the address is in use, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def url_of(host: str, listening: socket.socket) -> str:
    """Return the URL of a server that listens at `host`."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


class EncodedPath:
    """Routes by the path as it was sent, so that a part may have an encoded slash."""

    def __init__(self, app: Any) -> None:
        """Wrap an ASGI application."""
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection's request."""
        if scope["type"] == "http":
            raw = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": raw.decode("latin-1")}
        await self._app(scope, receive, send)
