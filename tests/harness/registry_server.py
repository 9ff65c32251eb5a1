"""A schema registry over HTTP, in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn

from sparklog.cluster.log import Log
from sparklog.core.web_requests import LOOPBACK_NAMES, open_socket
from sparklog.registry.http.server import application
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog

ENDS_WITHIN_S = 10


@contextmanager
def served_registry(log: Log) -> Iterator[str]:
    """Serve the registry of a log; the value is its URL."""
    listening = open_socket("127.0.0.1", 0)
    app = application(SchemaRegistry(RootSchemaLog(log)), LOOPBACK_NAMES)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(ENDS_WITHIN_S)
