"""The listener: accepts clients, bounds how many there are, and ends those that fell silent.

The settings `listeners` and `advertised.listeners` are spelled as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable
from typing import Final

from sparklog.broker.network.connection import BeginProduce, Connection, Handle, Refuse, Service
from sparklog.broker.network.listener_sockets import EVERY_INTERFACE, open_sockets
from sparklog.broker.network.request_memory import RequestMemoryPool
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.log_limiter import RateLimitedLog
from sparklog.broker.runtime.metrics import BrokerMetrics, Gauge
from sparklog.broker.runtime.request import Reply, RequestContext
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidConfig
from sparklog.protocol.messages.produce_fast_path import PlainProduce

logger = logging.getLogger(__name__)

BACKLOG: Final = 512
"""Connections the kernel holds until they are accepted: a restart meets all clients at once."""
SWEEPS_PER_IDLE_TIME: Final = 4
SWEEP_SHORTEST_S: Final = 0.01


class Server:
    """Kafka's protocol on a TCP port."""

    def __init__(
        self,
        handle: Handle,
        refuse: Refuse,
        config: BrokerConfig,
        metrics: BrokerMetrics | None = None,
        begin_produce: BeginProduce | None = None,
    ) -> None:
        """Answer requests by `handle`, and ApiVersions of unknown versions by `refuse`.

        Produce requests are given to `begin_produce` first.
        """
        self._connections: set[Connection] = set()
        self.in_force: Callable[[], BrokerConfig] = lambda: config
        """Returns the settings in force, once the broker has read them."""
        self._refused = RateLimitedLog()
        self._idle_s = config.whole("connections.max.idle.ms") / 1000
        """Negative: connections may be idle for ever."""
        metrics = BrokerMetrics() if metrics is None else metrics
        metrics.watch(Gauge.CONNECTIONS, lambda: len(self._connections))
        self._service = Service(
            handle,
            refuse,
            RequestMemoryPool(config.whole("queued.max.request.bytes")),
            config.whole("socket.request.max.bytes"),
            metrics,
            self._forget,
            begin_produce or _begin_none,
        )
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self, address: Address) -> Address:
        """Listen on `address`; port 0 takes a free one. Returns the address with its port.

        Raises:
            OSError: the address is taken or not this machine's.
        """
        loop = asyncio.get_running_loop()
        try:
            sockets = open_sockets(address.host, address.port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise OSError(
                error.errno,
                f"a broker cannot listen there ({why}): choose another port or host",
                str(address),
            ) from error
        port = int(sockets[0].getsockname()[1])
        for one in sockets:
            self._servers.append(await loop.create_server(self._accept, sock=one, backlog=BACKLOG))
        if self._idle_s >= 0 and self._sweeper is None:
            self._sweep()
        return Address(address.host, port)

    async def stop(self, drain_s: float = 0.0) -> None:
        """Stop accepting; answer the requests that came, for `drain_s` at most; hang up."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(drain_s):
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()

    @property
    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._connections)

    def _accept(self) -> asyncio.Protocol:
        connections_max = self.in_force().whole("max.connections")
        if len(self._connections) >= connections_max:
            message = "refusing connections: raise max.connections=%d"
            self._refused.warn(logger, message, connections_max)
            return _RejectedConnection()
        connection = Connection(self._service)
        self._connections.add(connection)
        self._empty.clear()
        return connection

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._idle_s
        for connection in [c for c in self._connections if c.active_s < oldest and not c.busy]:
            connection.close()
        pause_s = max(self._idle_s / SWEEPS_PER_IDLE_TIME, SWEEP_SHORTEST_S)
        self._sweeper = loop.call_later(pause_s, self._sweep)


def _begin_none(asked: PlainProduce, reply: Reply, context: RequestContext) -> bool:
    return False


class _RejectedConnection(asyncio.Protocol):
    """A connection over the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hang up."""
        transport.close()


PORT_MAX: Final = 65_535
_LISTENER = re.compile(r"([A-Za-z][A-Za-z0-9_]*)://(\[[0-9A-Fa-f:.]+\]|[^:/\[\],]*):([0-9]{1,5})")


def listener_of(config: BrokerConfig) -> Address:
    """Return where to listen; an empty host is every network interface.

    Raises:
        InvalidConfig: not a listener, or more than one.
    """
    return _parsed("listeners", config.text("listeners"))


def advertised_of(config: BrokerConfig, bound: Address) -> Address:
    """Return where others reach a broker that listens at `bound`.

    Raises:
        InvalidConfig: not a listener, or none though it listens on every interface.
    """
    text = config.text("advertised.listeners")
    if text:
        given = _parsed("advertised.listeners", text)
        found = Address(given.host or bound.host, given.port or bound.port)
    else:
        found = bound
    if found.host in EVERY_INTERFACE:
        raise InvalidConfig(
            "clients need to be told a host that reaches the broker: set advertised.listeners. "
            f"listeners={config.text('listeners')} advertised.listeners={text!r}"
        )
    return found


def _parsed(name: str, text: str) -> Address:
    match = _LISTENER.fullmatch(text.strip())
    if match is None or int(match.group(3)) > PORT_MAX:
        raise InvalidConfig(f"{name} takes one PLAINTEXT://host:port. {name}={text!r}")
    protocol, host, port = match.groups()
    if protocol.upper() != "PLAINTEXT":
        raise InvalidConfig(
            f"{name} takes one PLAINTEXT://host:port; other protocols are not known. "
            f"{name}={text!r}"
        )
    return Address(host.strip("[]"), int(port))
