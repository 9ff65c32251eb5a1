"""Serves an ASGI application on sockets, with limits, until a signal to end."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Final

IDLE_S: Final = 60
CONNECTIONS_MAX: Final = 500
"""Connections beyond it get 503."""
FINISH_S: Final = 10


def serve_application(
    application: Any, listening: Sequence[socket.socket], *, finish_s: int = FINISH_S
) -> None:
    """Serve until a signal to end; requests that have begun get `finish_s` seconds."""
    import uvicorn  # noqa: PLC0415 - of an extra

    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=finish_s,
    )
    uvicorn.Server(config).run(sockets=list(listening))
