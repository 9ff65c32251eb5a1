"""Web applications that tests serve from a thread over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn
from starlette.applications import Starlette

from sparklog.core.web_requests import open_socket, url_of

GRACE_S = 1
ENDS_WITHIN_S = 20


@contextmanager
def web_server(app: Starlette) -> Iterator[tuple[str, uvicorn.Server]]:
    """Serve `app` on a free port of loopback; its URL and the server.

    The socket listens from the start, so that a client's first request waits for the server. The
    end fails if the server does not stop.
    """
    with open_socket("127.0.0.1", 0) as listening:
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=GRACE_S)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield url_of("127.0.0.1", listening), server
        finally:
            server.should_exit = True
            thread.join(ENDS_WITHIN_S)
            assert not thread.is_alive(), "the server did not stop"
