"""SimNet: connections between simulated hosts, with latency, cuts and resets, in TCP's order.

Calls of one purpose to one peer use one connection. Messages of one direction arrive in the order
they were sent. A cut holds messages back and does not lose them: they arrive late, after healing.
That holds even if the sender has timed out long before, unless the connection was reset meanwhile.

SIM-NETWORK-1: A killed process resets its connections: its callers get Unreachable.
SIM-NETWORK-2: A paused process accepts connections but is silent; it serves the messages when it
    resumes.
SIM-NETWORK-3: A host without a listener refuses; a host that is cut off is silent.
SIM-NETWORK-4: Connections from one host to another may be refused while others pass, as with a
    wrong address.

Durations are virtual seconds.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kio.static.constants import EntityType

from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.broker.runtime.request import CloseConnection, RequestContext
from sparklog.core.entropy import Entropy
from sparklog.protocol.messages import frames as messages
from sparklog.protocol.messages.schemas import request_schema
from sparklog.testing.virtual_loop import WORLD, Process, VirtualLoop
from sparklog.testing.virtual_world import Trace

Serve = Callable[[Any, RequestContext], Awaitable[Any]]
"""Returns the response to a request entity of a client.

An exception closes the connection, and is recorded unless it is CloseConnection.
"""


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """Latencies, and the share of connections that break."""

    latency_s: float = 0.001
    """Of one direction, on average; drawn from half to one and a half of it."""
    slow: float = 0.0
    """Share of messages that take up to `slow_s` longer; those behind them wait."""
    slow_s: float = 0.5
    reset: float = 0.0
    """Share of messages that are lost together with their connection."""


@dataclass(slots=True)
class _Listener:
    process: Process
    serve: Serve


@dataclass(slots=True, eq=False)
class _Call:
    request: Any
    context: RequestContext
    answer: asyncio.Future[Any]
    response: Any = None
    served: bool = False


@dataclass(slots=True, eq=False)
class _Link:
    """One direction of a connection."""

    source: str
    target: str
    arrives_s: float = 0.0
    """Arrival time of the newest message; the next one arrives no earlier."""
    held: deque[Callable[[], None]] = field(default_factory=deque)
    """Messages that a cut holds back, oldest first."""


class _Connection:
    def __init__(self, world: SimNet, host: str, peer: Address) -> None:
        self.peer = peer
        self.out = _Link(host, peer.host)
        self.back = _Link(peer.host, host)
        self.listener: _Listener | None = None
        self.waiting: dict[_Call, None] = {}
        self.unanswered: deque[_Call] = deque()
        """Requests that arrived at the peer and have no response yet, in order."""
        self.is_open = True
        """The network's view."""
        self.is_lost = False
        """The caller's view."""
        self.serving: asyncio.Task[None] | None = None
        self._world = world

    def send(self, call: _Call) -> None:
        """Send a call; it is lost if the connection is, like all messages after a lost one."""
        self.waiting[call] = None
        if self.is_open:
            self._world.deliver(self, self.out, partial(self._arrived, call))

    def _arrived(self, call: _Call) -> None:
        listener = self._world.listeners.get(self.peer)
        if self.listener is None:
            self.listener = listener
        if self._world.is_refused(self.out):
            self.reset("refused")
            return
        if listener is None or listener is not self.listener:
            self.reset("refused")
            return
        self._world.trace.note("arrived", self.out.source, self.peer, type(call.request).__name__)
        listener.process.call_soon(self._serve, listener, call)

    def _serve(self, listener: _Listener, call: _Call) -> None:
        """Handle a call; runs as the listener's process."""
        self.unanswered.append(call)
        if not self._world.one_at_a_time:
            self._world.loop.create_task(self._answer(listener, call))
        elif self.serving is None or self.serving.done():
            self.serving = self._world.loop.create_task(self._answer_in_turn(listener))

    async def _answer_in_turn(self, listener: _Listener) -> None:
        while any(not call.served for call in self.unanswered):
            await self._answer(listener, next(c for c in self.unanswered if not c.served))

    async def _answer(self, listener: _Listener, call: _Call) -> None:
        try:
            call.response = self._world.recoded(await listener.serve(call.request, call.context))
        except CloseConnection:
            self.reset("hung up")
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            where = " < ".join(f"{f.name}:{f.lineno}" for f in reversed(frames))
            problem = f"{self.peer} {type(call.request).__name__}: {error!r} in {where}"
            self._world.errors.append(problem)
            self._world.trace.note("error", self.peer, type(call.request).__name__, repr(error))
            self.reset("broke")
        call.served = True
        while self.unanswered and self.unanswered[0].served and self.is_open:
            first = self.unanswered.popleft()
            self._world.deliver(self, self.back, partial(self._answered, first))

    def _answered(self, call: _Call) -> None:
        name = type(call.request).__name__
        self._world.trace.note("answered", self.peer, self.out.source, name)
        self.waiting.pop(call, None)
        if not call.answer.done():
            call.answer.set_result(call.response)

    def reset(self, why: str) -> None:
        """Close both ends; the caller learns it unless the way back is cut."""
        if not self.is_open:
            return
        self._world.trace.note("reset", self.out.source, self.peer, why)
        self.is_open = False
        self._world.deliver(self, self.back, partial(self._lost, why))

    def close(self) -> None:
        """Close from the caller's end: all other calls on it fail too."""
        self.is_open = False
        self._lost("closed")

    def _lost(self, why: str) -> None:
        self.is_lost = True
        waiting, self.waiting = self.waiting, {}
        for call in waiting:
            if not call.answer.done():
                call.answer.set_exception(Unreachable(f"connection {why}. peer={self.peer}"))


class SimNet:
    """All hosts and the connections between them."""

    def __init__(self, loop: VirtualLoop, entropy: Entropy, trace: Trace) -> None:
        """Start without listeners and without faults."""
        self.loop = loop
        self.trace = trace
        self.faults = NetworkFaults()
        self.listeners: dict[Address, _Listener] = {}
        self.one_at_a_time = True
        """True if a server handles the requests of a connection one after the other."""
        self.recoded: Callable[[Any], Any] = _as_it_is
        """Transforms every entity in transit; `through_bytes` finds faulty ones."""
        self.errors: list[str] = []
        """Unexpected exceptions of servers."""
        self._entropy = entropy
        self._cut: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        self._connections: dict[_Connection, None] = {}

    def listen(self, address: Address, process: Process, serve: Serve) -> None:
        """Let a process serve an address from now on, until it dies."""
        self.listeners[address] = _Listener(process, serve)
        process.when_killed(lambda: self.hang_up(address))

    def hang_up(self, address: Address) -> None:
        """Stop listening and reset every connection to the address (SIM-NETWORK-1)."""
        self.listeners.pop(address, None)
        for connection in list(self._connections):
            if connection.peer == address and connection.listener is not None:
                connection.reset("reset")

    def cut(self, source: str, target: str) -> None:
        """Hold messages from one host to another back, one way."""
        self._cut.add((source, target))

    def refuse(self, source: str, target: str) -> None:
        """Refuse connections from one host to another, and reset the existing ones.

        Connections of the target to the source are not affected.
        """
        self._refused.add((source, target))
        for connection in list(self._connections):
            if (connection.out.source, connection.out.target) == (source, target):
                connection.reset("refused")

    def is_refused(self, link: _Link) -> bool:
        """Return True if connections in that direction are refused."""
        return (link.source, link.target) in self._refused

    def heal(self) -> None:
        """End every cut and refusal; deliver the held messages."""
        self._cut.clear()
        self._refused.clear()
        for connection in list(self._connections):
            for link in (connection.out, connection.back):
                held, link.held = link.held, deque()
                for message in held:
                    self.deliver(connection, link, message)

    def break_connections(self, host: str) -> None:
        """Reset every connection from or to a host."""
        for connection in list(self._connections):
            if host in (connection.out.source, connection.peer.host):
                connection.reset("broken")

    def connect(self, host: str, peer: Address) -> _Connection:
        """Return a new connection. A missing listener shows when a message arrives."""
        connection = _Connection(self, host, peer)
        self._connections[connection] = None
        return connection

    def forget(self, connection: _Connection) -> None:
        """Remove a closed connection, unless messages on it are held back."""
        if not connection.out.held:
            self._connections.pop(connection, None)

    def deliver(self, connection: _Connection, link: _Link, message: Callable[[], None]) -> None:
        """Deliver a message in order."""
        faults = self.faults
        if faults.reset > 0 and connection.is_open and self._entropy.random() < faults.reset:
            connection.reset("lost")
            return
        delay_s = faults.latency_s * (0.5 + self._entropy.random())
        if faults.slow > 0 and self._entropy.random() < faults.slow:
            delay_s += faults.slow_s * self._entropy.random()
        link.arrives_s = max(link.arrives_s, self.loop.time() + delay_s)
        self.loop.call_at(link.arrives_s, self._arrive, link, message, context=WORLD)

    def _arrive(self, link: _Link, message: Callable[[], None]) -> None:
        if link.held or (link.source, link.target) in self._cut:
            link.held.append(message)
        else:
            message()


class SimNetwork:
    """`Network` as one process on a host sees it."""

    def __init__(self, world: SimNet, host: str) -> None:
        """Call from `host`."""
        self._world = world
        self._host = host
        self._client_id_at: Callable[[Address], str | None] = lambda _: None
        self._connections: dict[tuple[Address, str], _Connection] = {}

    async def call(
        self, peer: Address, request: Any, *, timeout_s: float, purpose: str = ""
    ) -> Any:
        """Send a request entity and return the response entity.

        Raises:
            Unreachable: connection refused, or lost before the response; the request may have run.
            TimeoutError: no response in time; the request may have run. The connection is closed.
        """
        if self._world.loop.closing:
            raise asyncio.CancelledError
        connection = self._connections.get((peer, purpose))
        if connection is None or connection.is_lost:
            connection = self._world.connect(self._host, peer)
            self._connections[peer, purpose] = connection
        context = RequestContext(self._client_id_at(peer), self._host)
        answer = self._world.loop.create_future()
        call = _Call(self._world.recoded(request), context, answer)
        connection.send(call)
        try:
            async with asyncio.timeout(timeout_s):
                return await call.answer
        except TimeoutError:
            self._world.trace.note("timeout", self._host, peer, type(request).__name__)
            connection.close()
            raise
        finally:
            if connection.is_lost:
                self._world.forget(connection)

    def introduce(self, client_id_at: Callable[[Address], str]) -> None:
        """See `environment.Network`."""
        self._client_id_at = client_id_at

    async def close(self) -> None:
        """Close every connection."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()
            self._world.forget(connection)


def through_bytes(entity: Any) -> Any:
    """Return the entity as the peer gets it: encoded and decoded."""
    if entity is None:
        return None
    if entity.__type__ is EntityType.request:
        frame = messages.encode_request(entity, 0, "simulated")
        return messages.decode_request(bytes(frame[messages.SIZE_BYTES :]))[1]
    header = messages.RequestHeader(entity.__api_key__, entity.__version__, 0)
    frame = messages.encode_response(header, entity)
    request_type = request_schema(entity.__api_key__, entity.__version__)
    return messages.decode_response(bytes(frame[messages.SIZE_BYTES :]), request_type)


def _as_it_is(entity: Any) -> Any:
    return entity
