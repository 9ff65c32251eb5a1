"""The listeners: accept clients, bound how many there are, and end those that fell silent.

Each socket has a task that accepts one connection at a time. A listener with TLS does the handshake
before the connection's first request. A failed handshake is one line in the log, with its cause.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sparklog.broker.network.closing_log import ClosingLog
from sparklog.broker.network.connection import Connection
from sparklog.broker.network.connection_gate import ConnectionGate
from sparklog.broker.network.connection_limits import ConnectionLimits, host_of
from sparklog.broker.network.listener_sockets import accept_after_first_bytes, open_sockets
from sparklog.broker.network.paced_input import PacedInput, StepPacer
from sparklog.broker.network.request_memory import RequestMemoryPool
from sparklog.broker.network.request_time import TimedClients
from sparklog.broker.network.service import (
    BeginProduce,
    FailedLogin,
    Handle,
    ListenerAccess,
    Refuse,
    Service,
)
from sparklog.broker.network.tls import ListenerTls, handshake_fault
from sparklog.broker.network.tls_alerts import handshaking
from sparklog.broker.runtime.environment import Address, spawn
from sparklog.broker.runtime.log_limiter import RateLimitedLog, kind_of
from sparklog.broker.runtime.metrics import BrokerMetrics, Gauge
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.quotas import CONNECTION_CREATION_RATE, Quotas

logger = logging.getLogger(__name__)

BACKLOG: Final = 512
"""Connections the kernel holds until they are accepted: a restart meets all clients at once."""
SWEEPS_PER_IDLE_TIME: Final = 4
SWEEP_SHORTEST_S: Final = 0.01
HANDSHAKE_S: Final = 10.0
"""The time that a TLS handshake may take."""
GOODBYE_S: Final = 1.0
"""The time that the end of a TLS connection may take."""
ACCEPT_RETRY_S: Final = 0.1
"""The pause after the system has no file for a connection."""
TLS: Final = "TLS"
"""In place of a mechanism: the client did not complete the handshake."""
TOO_MANY_UNPROVED: Final = "too many connections wait whose clients have yet to log in"


@dataclass(frozen=True, slots=True)
class ServedListener:
    """A listener as the server needs it."""

    access: ListenerAccess = field(default_factory=ListenerAccess)
    tls: ListenerTls | None = None
    passes_limit: bool = False
    """True for the listener of brokers beside others: clients cannot use up its connections."""
    gate: ConnectionGate | None = None
    """Paces connections whose clients have to prove who they are; None: they have not."""


def _unaudited(login: FailedLogin) -> None:
    """Ignore a failed login: the broker has no audit yet."""


PLAIN: Final = ServedListener()
NO_QUOTAS: Final[Quotas] = {}


class Server:
    """Kafka's protocol on a TCP port."""

    def __init__(
        self,
        handle: Handle,
        refuse: Refuse,
        config: BrokerConfig,
        metrics: BrokerMetrics | None = None,
        timed: TimedClients | None = None,
    ) -> None:
        """Answer requests by `handle`, and ApiVersions of unknown versions by `refuse`.

        `timed` times some clients.
        """
        self._connections: dict[Connection, str] = {}
        """The host of each client."""
        self.in_force: Callable[[], BrokerConfig] = lambda: config
        """Returns the settings in force, once the broker has read them."""
        self.client_quotas: Callable[[], Quotas] = lambda: NO_QUOTAS
        """Returns the quotas of the newest metadata image, once the broker has read it."""
        self._refused = RateLimitedLog()
        self.audit_failed_login: Callable[[FailedLogin], None] = _unaudited
        """Records a failed login, once the broker has a place for that."""
        self._closing_log = ClosingLog(logger)
        self._limits = ConnectionLimits(config, now_s=0.0)
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
            timed or TimedClients(),
            self._failed_login,
            self._closing_log,
        )
        self._accepting: dict[asyncio.Task[None], socket.socket] = {}
        self._held: dict[socket.socket, tuple[str, asyncio.TimerHandle]] = {}
        """Connections over the quota of their address, with the address and the timer to close."""
        self._waiting: dict[socket.socket, str] = {}
        """Connections that have yet to pass the gate of their listener, with the address."""
        self._pacer = StepPacer()
        """Paces the TLS clients of all listeners that have yet to prove who they are."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def begin_produce_by(self, begin: BeginProduce) -> None:
        """Give plain Produce requests to `begin` first from now on."""
        self._service.begin_produce = begin

    async def start(self, address: Address, listener: ServedListener = PLAIN) -> Address:
        """Listen on `address`; port 0 takes a free one. Returns the address with its port.

        Raises:
            OSError: the address is taken or not this machine's.
        """
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
            if listener.tls is not None:
                # Else many could begin without a byte, and send their first ones at once.
                accept_after_first_bytes(one, HANDSHAKE_S)
            one.listen(BACKLOG)
            self._accepting[spawn(self._accept(one, listener))] = one
        if self._idle_s >= 0 and self._sweeper is None:
            self._sweep()
        return Address(address.host, port)

    async def stop(self, drain_s: float = 0.0) -> None:
        """Stop accepting; answer the requests that came, for `drain_s` at most; hang up."""
        accepting, self._accepting = self._accepting, {}
        for task in accepting:
            task.cancel()
        await asyncio.gather(*accepting, return_exceptions=True)
        for one in accepting.values():
            one.close()
        for client, (host, timer) in list(self._held.items()):
            timer.cancel()
            self._end_held(client, host)
        for client, host in self._waiting.items():
            self._end(client, host)
        self._waiting.clear()
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
        self._closing_log.close()

    @property
    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._connections)

    async def _accept(self, listening: socket.socket, listener: ServedListener) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(listening)
            except OSError as error:
                self._refused.warn(logger, "cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            host = host_of(peer)
            # Others have their turn between two connections, however many wait.
            try:
                pause_s = self._take(client, host, listener)
            except Exception:
                # One connection is lost; the listener must not be.
                logger.exception("a connection was not accepted client=%s", host)
                client.close()
                pause_s = ACCEPT_RETRY_S
            await asyncio.sleep(pause_s)

    def _take(self, client: socket.socket, host: str, listener: ServedListener) -> float:
        """Open, hold or close a connection; return the seconds until the next one is accepted."""
        loop = asyncio.get_running_loop()
        if not self._admits(host, listener):
            client.close()
        elif self._holds(client, host, listener):
            return 0.0
        else:
            self._enter(client, host, listener)
        return self._limits.pause_s(loop.time())

    def _admits(self, host: str, listener: ServedListener) -> bool:
        most = self.in_force().whole("max.connections")
        taken = len(self._connections) + len(self._held) + len(self._waiting)
        if taken >= most and not listener.passes_limit:
            self._refused.warn(logger, "refusing connections: raise max.connections=%d", most)
            return False
        if not self._limits.opened(host):
            message = (
                "refusing connections of an address: raise max.connections.per.ip=%d client=%s"
            )
            self._refused.warn(logger, message, self._limits.limit_of(host), host)
            return False
        return True

    def _holds(self, client: socket.socket, host: str, listener: ServedListener) -> bool:
        """Hold a connection for a while, if it is over the quota of its address; then close it.

        A held connection counts as one of its address, and the brokers' listener has no quota.
        """
        if listener.passes_limit:
            return False
        loop = asyncio.get_running_loop()
        hold_s = self._limits.hold_s(self.client_quotas(), host, loop.time())
        if hold_s == 0.0:
            return False
        self._service.metrics.throttled(CONNECTION_CREATION_RATE, hold_s)
        message = "holding connections over the quota of an address: raise %s of ip=%s"
        self._refused.warn(logger, message, CONNECTION_CREATION_RATE, host)
        self._held[client] = host, loop.call_later(hold_s, self._end_held, client, host)
        return True

    def _end_held(self, client: socket.socket, host: str) -> None:
        del self._held[client]
        self._end(client, host)

    def _end(self, client: socket.socket, host: str) -> None:
        client.close()
        self._limits.closed(host)

    def _enter(self, client: socket.socket, host: str, listener: ServedListener) -> None:
        """Open a connection, now or once it passes the gate of its listener."""
        self._waiting[client] = host
        begin = partial(self._begin, client, host, listener)
        if listener.gate is None:
            begin()
        elif not listener.gate.enter(host, begin):
            del self._waiting[client]
            self._end(client, host)
            name = listener.access.name
            login = FailedLogin(name, "", TOO_MANY_UNPROVED, host, False)
            self._report(f"{name} {TOO_MANY_UNPROVED}", f"{TOO_MANY_UNPROVED}.", login)

    def _begin(self, client: socket.socket, host: str, listener: ServedListener) -> bool:
        """Open a connection; return False if it has ended."""
        if self._waiting.pop(client, None) is None:
            return False  # the server has stopped
        if listener.gate is not None and _has_left(client):
            self._end(client, host)
            return False
        spawn(self._open(client, host, listener))
        return True

    async def _open(self, client: socket.socket, host: str, listener: ServedListener) -> None:
        connection = Connection(self._service, listener.access, self._forget)
        self._connections[connection] = host
        self._empty.clear()
        tls = listener.tls
        handshaking.set(client)
        loop = asyncio.get_running_loop()
        try:
            if tls is None:
                await loop.connect_accepted_socket(lambda: connection, client)
            else:
                await self._handshake(client, host, connection, listener.gate, tls.context())
                if listener.gate is not None and listener.access.login is None:
                    listener.gate.proved()
        except (OSError, TimeoutError) as error:
            # The loop owns the socket now and closes it; its number may have a new owner soon.
            self._forget(connection)
            if tls is not None:
                self._failed_handshake(error, host, listener)
        except Exception:
            logger.exception("a connection was not opened client=%s", host)
            self._forget(connection)

    async def _handshake(self, client: socket.socket, host: str, connection: Connection,
                         gate: ConnectionGate | None, context: ssl.SSLContext) -> None:  # fmt: skip
        """Do the TLS handshake of a client, and connect it; behind a gate, in paced steps."""
        loop = asyncio.get_running_loop()
        if gate is None:
            await loop.connect_accepted_socket(
                lambda: connection,
                client,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            )
            return
        login = connection.login
        paced = PacedInput(host, self._pacer, lambda: login is None or login.principal is not None)
        await loop.connect_accepted_socket(lambda: paced, client)
        await paced.start_tls(connection, context, HANDSHAKE_S, GOODBYE_S)

    def _failed_login(self, login: FailedLogin) -> None:
        kind = f"{login.listener} {login.mechanism} {kind_of(login.reason)}"
        self._service.metrics.authentication(
            login.listener, login.mechanism, succeeded=False, again=login.again
        )
        self._report(kind, f"the login failed: {login.reason}", login)

    def _failed_handshake(self, error: Exception, host: str, listener: ServedListener) -> None:
        fault, name = handshake_fault(error), listener.access.name
        self._service.metrics.authentication(name, TLS, succeeded=False)
        self._report(f"{name} {fault}", f"{fault}.", FailedLogin(name, TLS, fault, host, False))

    def _report(self, kind: str, fault: str, login: FailedLogin) -> None:
        """Log a failed login or handshake, each kind once in a while, and have it audited."""
        text = f"closing a connection: {fault} listener={login.listener} client={login.host}"
        self._closing_log.add(kind, text, login.host)
        self.audit_failed_login(login)

    def _forget(self, connection: Connection) -> None:
        host = self._connections.pop(connection, None)
        if host is not None:
            self._limits.closed(host)
        if not self._connections:
            self._empty.set()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._idle_s
        for connection in [c for c in self._connections if c.active_s < oldest and not c.busy]:
            connection.close()
        pause_s = max(self._idle_s / SWEEPS_PER_IDLE_TIME, SWEEP_SHORTEST_S)
        self._sweeper = loop.call_later(pause_s, self._sweep)


def _has_left(client: socket.socket) -> bool:
    """Return whether a client has closed its connection, as far as the system knows."""
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
