"""The functions and the state that the connections of one broker share.

`Service` is one for all listeners, and `ListenerAccess` one for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sparklog.broker.network.client_login import ClientLogin
from sparklog.broker.network.closing_log import ClosingLog
from sparklog.broker.network.request_memory import RequestMemoryPool
from sparklog.broker.network.request_time import TimedClients
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import Reply, RequestContext
from sparklog.protocol.messages.frames import RequestHeader
from sparklog.protocol.messages.produce_fast_path import PlainProduce
from sparklog.security.principal import ANONYMOUS, Principal

Handle = Callable[[Any, RequestContext], Awaitable[Any]]
"""Answers a request entity with a response entity; with None or `NoResponse` if none is wanted."""

Refuse = Callable[[RequestHeader], Any]
"""Answers ApiVersions of an unknown version."""

BeginProduce = Callable[[PlainProduce, Reply, RequestContext], bool]
"""Begins to answer a plain Produce request, if it can do so at once."""


@dataclass(frozen=True, slots=True)
class FailedLogin:
    """A login that failed."""

    listener: str
    mechanism: str
    reason: str
    host: str
    """The client's address."""
    again: bool
    """True if the connection had a login before."""


def anonymous(transport: asyncio.BaseTransport) -> Principal | None:
    """Return the principal of each client of a listener without authentication."""
    return ANONYMOUS


@dataclass(frozen=True, slots=True)
class ListenerAccess:
    """The name of a listener, and how it knows its clients."""

    name: str = ""
    principal_of: Callable[[asyncio.BaseTransport], Principal | None] = anonymous
    """Returns the principal of a new connection; None ends it."""
    login: Callable[[], ClientLogin] | None = None
    """Makes the login of a connection; None: there is none."""


def _begin_none(asked: PlainProduce, reply: Reply, context: RequestContext) -> bool:
    return False


@dataclass(slots=True)
class Service:
    """The state and the functions that all connections share."""

    handle: Handle
    refuse: Refuse
    request_memory: RequestMemoryPool
    frame_bytes_max: int
    metrics: BrokerMetrics
    timed: TimedClients
    login_failed: Callable[[FailedLogin], None]
    closing_log: ClosingLog
    begin_produce: BeginProduce = _begin_none
    """Until the broker has started, each Produce request waits in `handle`."""
