"""One HTTP request to an OAuth provider: it follows no redirect, and its answer is bounded.

A redirect would send a secret to another host, so the caller receives its status as any other.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult

TIMEOUT_S: Final = 10.0
"""For the connection, and for each read."""


def request_bounded(
    method: str,
    url: SplitResult,
    bytes_max: int,
    *,
    headers: Mapping[str, str],
    body: str | None = None,
) -> tuple[int, bytes]:
    """Send one request to an http or https address, and return the status and the answer.

    The answer has up to `bytes_max + 1` bytes, so a longer answer shows. Blocks.

    Raises:
        OSError, http.client.HTTPException: the server does not answer, or its certificate is wrong.
    """
    host = url.hostname or ""
    connection: http.client.HTTPConnection
    if url.scheme == "http":
        connection = http.client.HTTPConnection(host, url.port, timeout=TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(
            host, url.port, timeout=TIMEOUT_S, context=ssl.create_default_context()
        )
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:
        connection.request(method, path, body, dict(headers))
        with connection.getresponse() as answer:
            return answer.status, answer.read(bytes_max + 1)
    finally:
        connection.close()
