"""A broker's page for Prometheus: `GET /metrics` over HTTP/1.1, on the broker's event loop.

One small request at a time and connection; anything but a GET or HEAD of a known path is refused.
No library is behind it, because a page of text needs none, and a thread would read counters that
only the loop may touch. `/healthz` answers 200 while the loop turns.
"""

from __future__ import annotations

import asyncio

from sparklog.broker.listening import open_sockets
from sparklog.broker.metrics import BrokerMetrics
from sparklog.broker.metrics_page import CONTENT_TYPE, MetricsPage

REQUEST_BYTES_MAX = 8192
"""Request line and headers of a scraper are some 300 bytes; servers commonly allow 8 KiB."""
REQUEST_TIMEOUT_S = 10.0


class MetricsServer:
    """Serves one broker's metrics."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        """Serve `metrics`."""
        self._page = MetricsPage(metrics)
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port: `port`, or a free one for 0.

        Raises:
            OSError: the address cannot be had.
        """
        sockets = open_sockets(host, port)
        bound = int(sockets[0].getsockname()[1])
        for one in sockets:
            server = await asyncio.start_server(self._serve, sock=one, limit=REQUEST_BYTES_MAX)
            self._servers.append(server)
        return bound

    async def stop(self) -> None:
        """Listen no more; a page under way is finished by its connection's task."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # whoever asked is slow, gone, or speaks something else
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"not HTTP/1.1\n")
        method, path = words[0], words[1].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET it\n")
        if path == b"/metrics":
            status, kind, body = "200 OK", CONTENT_TYPE, self._page.render()
        elif path == b"/healthz":
            status, kind, body = "200 OK", "text/plain; charset=utf-8", b"ok\n"
        else:
            return _response("404 Not Found", b"there is /metrics and /healthz\n")
        return _response(status, body, kind, head_only=method == b"HEAD")


def _response(
    status: str,
    body: bytes,
    kind: str = "text/plain; charset=utf-8",
    *,
    head_only: bool = False,
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if head_only else body)
