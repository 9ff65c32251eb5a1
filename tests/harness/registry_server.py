"""A schema registry over HTTP, in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.cluster.log import Log
from sparklog.core.web_requests import LOOPBACK_NAMES
from sparklog.registry.http.server import application
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from tests.harness.web_server import web_server


@contextmanager
def served_registry(log: Log) -> Iterator[str]:
    """Serve the registry of a log; the value is its URL."""
    app = application(SchemaRegistry(RootSchemaLog(log)), LOOPBACK_NAMES)
    with web_server(app) as (url, _):
        yield url
