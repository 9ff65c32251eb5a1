"""ConnectionGate: the rate of connections whose clients do not prove who they are.

A failed login costs the event loop half a millisecond, and with TLS more than one. So a client that
guesses a thousand times a second would hold up all others.

  CONNECTION-GATE-1: a broker begins `UNPROVED_PER_S` connections a second at most that do not log
      in. One that logs in gives its place back, so clients that all reconnect at once do not wait
      for this rate
  CONNECTION-GATE-2: further connections wait unread, and addresses take turns. So a client waits
      for one connection of each other address
  CONNECTION-GATE-3: a connection that finds no place to wait is closed at once, without an answer.
      Its client tries again
  CONNECTION-GATE-4: one connection that waited begins in a turn of the event loop, so a broker's
      other clients have their turn between two of them
  CONNECTION-GATE-5: a TLS handshake that costs more than `PLACE_S` takes a place for each. So
      handshakes with large keys take no larger share of a core
  CONNECTION-GATE-6: without logins, `AT_ONCE` connections begin at once and `CAUTIOUS_PER_S` a
      second. Each login lets `LED_BY_LOGIN` connections begin that wait, within CONNECTION-GATE-1.
      So clients that all reconnect begin ever faster, as a sender in TCP's slow start

On a listener without logins, a client has proved what it can once its TLS handshake is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from sparklog.broker.network.fair_queue import FairQueue, pause_s
from sparklog.core.quotas import TokenBucket

UNPROVED_PER_S: Final = 50.0
BURST_S: Final = 4.0
"""The connections of this many seconds may be open without a login: a restart meets all clients."""
CAUTIOUS_PER_S: Final = 30.0
AT_ONCE: Final = 10
"""Handshakes of more take the cores from other clients, before any shows that it can log in."""
LED_BY_LOGIN: Final = 2
WAITING_OF_ADDRESS_MAX: Final = 446
"""Connections of one address that wait: after a restart, all clients behind a gateway come."""

PLACE_S: Final = 0.001
"""The processor time of a TLS handshake for which one place stands."""


def no_handshake() -> float:
    """Return the cost of a handshake without TLS."""
    return 0.0


class ConnectionGate:
    """The gate of one listener. The event loop's only."""

    def __init__(
        self,
        per_s: float = UNPROVED_PER_S,
        burst_s: float = BURST_S,
        waiting_of_address_max: int = WAITING_OF_ADDRESS_MAX,
        handshake_s: Callable[[], float] = no_handshake,
    ) -> None:
        """Let `AT_ONCE` connections pass at once, or those of a shorter burst.

        `handshake_s` returns the processor time of a recent TLS handshake, in seconds.
        """
        self._handshake_s = handshake_s
        self._budget = TokenBucket(per_s, burst_s, 0.0)
        cautious_s = min(CAUTIOUS_PER_S, per_s)
        at_once = min(AT_ONCE, per_s * burst_s)
        self._cautious = TokenBucket(cautious_s, at_once / cautious_s, 0.0)
        self._earned = 0.0
        """Places that logins have earned for connections that wait."""
        self._waiting = FairQueue[Callable[[], bool]](of_address_max=waiting_of_address_max)
        self._timer: asyncio.Handle | None = None
        self._context = copy_context()
        """No connection begins in the context of another."""

    def __len__(self) -> int:
        """Return how many connections wait."""
        return len(self._waiting)

    def enter(self, host: str, begin: Callable[[], bool]) -> bool:
        """Begin a connection of an address, now or in its turn; return False if it may not wait.

        `begin` returns False if the client has left meanwhile.
        """
        if not self._waiting and not self._pause_s():
            self._begin(begin)
            return True
        if not self._waiting.add(host, begin):
            return False
        if self._timer is None:
            self._context.run(self._next)
        return True

    def proved(self) -> None:
        """Give back the place of a client that has proved who it is."""
        loop, places = asyncio.get_running_loop(), self._places()
        self._budget.spend(-places, loop.time())
        if not self._waiting:
            self._cautious.spend(-places, loop.time())
            return
        open_max = self._budget.per_s * self._budget.burst_s
        self._earned = min(self._earned + LED_BY_LOGIN * places, open_max)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = loop.call_soon(self._next, context=self._context)

    def _next(self) -> None:
        """Begin one connection, if the rate allows; others have their turn before the next one."""
        self._timer = None
        loop = asyncio.get_running_loop()
        wait_s = self._pause_s()
        if not wait_s:
            self._begin(self._waiting.pop())
        if not self._waiting:
            self._cautious.spend(-self._earned, loop.time())
            self._earned = 0.0
            return
        if wait_s:
            self._timer = loop.call_later(wait_s, self._next, context=self._context)
        else:
            self._timer = loop.call_soon(self._next, context=self._context)

    def _pause_s(self) -> float:
        """Return the seconds until the next connection may begin; 0: now."""
        now_s = asyncio.get_running_loop().time()
        cautious_s = 0.0 if self._earned else pause_s(self._cautious, now_s)
        return max(pause_s(self._budget, now_s), cautious_s)

    def _begin(self, begin: Callable[[], bool]) -> None:
        if not begin():
            return
        now_s, places = asyncio.get_running_loop().time(), self._places()
        self._budget.spend(places, now_s)
        if self._earned:
            self._earned = max(0.0, self._earned - places)
        else:
            self._cautious.spend(places, now_s)

    def _places(self) -> float:
        """Return the places that one connection takes."""
        return max(1.0, self._handshake_s() / PLACE_S)
