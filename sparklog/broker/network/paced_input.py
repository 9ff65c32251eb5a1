"""PacedInput: the bytes of TLS clients that have yet to prove who they are, in paced steps.

A step gives what arrived from a client to its TLS. A step of a handshake costs up to milliseconds.
If many clients share a busy program, their steps become ready at once. Together they would hold up
all other clients of the event loop.

  PACED-INPUT-1: in one turn of the event loop, no step begins after others took `TURN_S`
  PACED-INPUT-2: addresses take turns, so a step waits for one step of each other address
  PACED-INPUT-3: a client's bytes keep their order. While some wait for their step, the broker reads
      no more from their client
  PACED-INPUT-4: bytes of a client that has proved who it is wait for no step
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final, cast

from sparklog.broker.network.fair_queue import FairQueue
from sparklog.core.clock import thread_s

logger = logging.getLogger(__name__)

TURN_S: Final = 0.001
"""The processor time in seconds, after which a turn of the event loop begins no further step."""
READ_BYTES_MAX: Final = 4096
"""The most that the broker reads at once from a client that has yet to prove who it is."""


class StepPacer:
    """The steps of one broker's unproved clients. The event loop's only."""

    def __init__(self, turn_s: float = TURN_S, cost_clock: Callable[[], float] = thread_s) -> None:
        """Let steps take `turn_s` of a turn, as `cost_clock` measures it."""
        self._turn_s = turn_s
        self._cost_clock = cost_clock
        self._left_s = turn_s
        self._waiting = FairQueue[Callable[[], None]](sys.maxsize, sys.maxsize)
        """One step of a connection at most, so limits of connections bound it."""
        self._next: asyncio.Handle | None = None
        self._context = copy_context()
        """No turn begins in the context of a connection."""

    def __len__(self) -> int:
        """Return how many steps wait."""
        return len(self._waiting)

    def run(self, step: Callable[[], None]) -> bool:
        """Run a step now, unless it has to wait; return whether it ran."""
        if self._waiting or self._left_s <= 0.0:
            return False
        self._run(step)
        return True

    def add(self, host: str, step: Callable[[], None]) -> None:
        """Run a step of an address in its turn. It must not raise."""
        self._waiting.add(host, step)
        self._begin_turn_soon()

    def _begin_turn_soon(self) -> None:
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.call_soon(self._begin_turn, context=self._context)

    def _begin_turn(self) -> None:
        self._next = None
        self._left_s = self._turn_s
        while self._waiting and self._left_s > 0.0:
            self._run(self._waiting.pop())
        if self._waiting:
            self._begin_turn_soon()

    def _run(self, step: Callable[[], None]) -> None:
        self._begin_turn_soon()
        began_s = self._cost_clock()
        step()
        self._left_s -= self._cost_clock() - began_s


class PacedInput(asyncio.BufferedProtocol):
    """Stands between the socket of one client and its TLS, until the client proves who it is."""

    def __init__(self, host: str, pacer: StepPacer, logged_in: Callable[[], bool]) -> None:
        """Pace the client of an address.

        `logged_in` returns whether it needs nothing but TLS to have proved who it is.
        """
        self._host = host
        self._pacer = pacer
        self._logged_in = logged_in
        self._connected = False
        """True once the handshake is complete."""
        self._socket: asyncio.Transport | None = None
        self._tls: Any = None
        """The event loop's own protocol for TLS, once it is there."""
        self._buffer = bytearray(2 * READ_BYTES_MAX)
        """With bytes in it, the event loop reads once more at most: when TLS begins."""
        self._filled = 0
        self._waits = False
        """True while a step waits."""
        self._paused = False
        self._context = copy_context()

    async def start_tls(
        self,
        protocol: asyncio.Protocol,
        context: ssl.SSLContext,
        handshake_timeout_s: float,
        shutdown_timeout_s: float,
    ) -> None:
        """Do the handshake, then connect `protocol` to the client.

        With asyncio's own event loop, `protocol` may get bytes before it is connected.

        Raises:
            OSError: the handshake failed, or the client has left.
        """
        assert self._socket is not None
        if self._socket.is_closing():
            raise ConnectionResetError("the client has left")
        loop = asyncio.get_running_loop()
        # The loop replaces this protocol by its own at once, and reads from the next turn on.
        loop.call_soon(self._step_between)
        transport = await loop.start_tls(
            self._socket,
            protocol,
            context,
            server_side=True,
            ssl_handshake_timeout=handshake_timeout_s,
            ssl_shutdown_timeout=shutdown_timeout_s,
        )
        assert transport is not None
        protocol.connection_made(transport)
        self._connected = True
        if not transport.is_closing():
            protocol.data_received(b"")  # it goes on with what came before

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the socket."""
        self._socket = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for the next bytes."""
        return memoryview(self._buffer)[self._filled : self._filled + READ_BYTES_MAX]

    def buffer_updated(self, nbytes: int) -> None:
        """Give what arrived to TLS, now or in a step."""
        self._filled += nbytes
        if self._tls is None:
            self._pause()
        else:
            self._go_on()

    def eof_received(self) -> bool | None:
        """Give TLS the rest, and the end of the client's bytes."""
        if self._tls is None:
            return None
        self._give()
        return cast("bool | None", self._tls.eof_received())

    def pause_writing(self) -> None:
        """Have TLS write nothing: the client does not take its bytes."""
        if self._tls is not None:
            self._tls.pause_writing()

    def resume_writing(self) -> None:
        """Have TLS write again: the client has caught up."""
        if self._tls is not None:
            self._tls.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Have TLS end the connection, and forget what waits."""
        self._filled = 0
        if self._tls is not None:
            self._tls.connection_lost(exc)

    def _step_between(self) -> None:
        assert self._socket is not None
        self._tls = self._socket.get_protocol()
        self._socket.set_protocol(self)
        # TLS begins in this turn of the event loop.
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        assert self._socket is not None
        if not self._filled:
            return
        if self._connected and self._logged_in():
            self._give()
            if not self._socket.is_closing():
                self._socket.set_protocol(self._tls)
        elif self._waits or not self._pacer.run(self._give):
            self._pause()
            self._wait()

    def _wait(self) -> None:
        if not self._waits:
            self._waits = True
            self._pacer.add(self._host, self._step)

    def _step(self) -> None:
        self._waits = False
        self._context.run(self._give)

    def _pause(self) -> None:
        assert self._socket is not None
        self._paused = True
        self._socket.pause_reading()

    def _give(self) -> None:
        """Give TLS what is here, and read on, unless TLS wants no more."""
        assert self._socket is not None
        data, self._filled = memoryview(self._buffer[: self._filled]), 0
        if self._paused:
            self._paused = False
            self._socket.resume_reading()
        try:
            while data and not self._socket.is_closing():
                place = self._tls.get_buffer(len(data))
                size = min(len(place), len(data))
                place[:size] = data[:size]
                self._tls.buffer_updated(size)
                data = data[size:]
        except Exception:
            logger.exception("a connection broke off client=%s", self._host)
            self._socket.abort()
