"""LoginChecks: checks of passwords, within a share of the broker's time.

A check of a PLAIN password costs milliseconds of a core, and anyone who reaches the broker can ask
for a thousand a second.

  LOGIN-CHECKS-1: one check runs at a time, so checks occupy one core at most
  LOGIN-CHECKS-2: checks of clients that do not log in take `FAILED_SHARE` of a core at most. The
      time for a client that logs in is given back, so clients with right passwords do not wait for
      each other
  LOGIN-CHECKS-3: addresses that wait take turns, so a client waits for one check of each other
      address
  LOGIN-CHECKS-4: a check that finds no place to wait gets no answer, so its client tries again
  LOGIN-CHECKS-5: a check whose result is remembered neither waits nor runs
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.broker.network.fair_queue import FairQueue, pause_s
from sparklog.broker.runtime.environment import Compute, caught, shielded, spawn
from sparklog.core.clock import thread_s
from sparklog.core.errors import SparklogError
from sparklog.core.quotas import TokenBucket
from sparklog.security.sasl.mechanism import Check, SaslFailure, Step
from sparklog.security.sasl.remembered_checks import RememberedChecks

FAILED_SHARE: Final = 0.05
"""Processor time for failed checks, in seconds of a core for each second."""
BURST_S: Final = 2.0
"""The share of this time may be used at once: people mistype."""
DEBT_MAX_S: Final = 5.0
"""No check delays the next one by more."""


class NotChecked(SparklogError):
    """A check did not run. The message is for the broker's log."""


@dataclass(slots=True)
class CheckedClient:
    """A connection whose login is checked."""

    host: str
    """The client's address."""
    owed_s: float = 0.0
    """The processor time of its checks since it logged in last."""
    turn: asyncio.Future[None] | None = None
    """Done when it may run a check; None if it does not wait."""


class LoginChecks:
    """The checks of one broker. The event loop's only."""

    def __init__(self, compute: Compute, cost_clock: Callable[[], float] = thread_s) -> None:
        """Run checks by `compute`; `cost_clock` measures their processor time in seconds."""
        self._compute = compute
        self._cost_clock = cost_clock
        self._remembered = RememberedChecks()
        self._budget = TokenBucket(FAILED_SHARE, BURST_S, 0.0, DEBT_MAX_S)
        self._busy = False
        """True while a check runs, has its turn, or waits for the budget."""
        self._pause: asyncio.TimerHandle | None = None
        self._waiting = FairQueue[asyncio.Future[None]]()

    async def run(self, client: CheckedClient, check: Check) -> Step:
        """Return the result of a check, once its client has a turn.

        Raises:
            SaslFailure: the client did not authenticate.
            NotChecked: too many checks wait, or the client has left.
        """
        found = self._known(client, check)
        if found is not None:
            return found
        if self._busy or pause_s(self._budget, asyncio.get_running_loop().time()):
            await self._turn(client)
        self._busy = True
        # A client that goes away does not end its check: the next turn comes after it.
        return await shielded(spawn(caught(self._result(client, check))))

    def logged_in(self, client: CheckedClient) -> None:
        """Give back the time of a client that has logged in."""
        if not client.owed_s:
            return
        self._budget.spend(-client.owed_s, asyncio.get_running_loop().time())
        client.owed_s = 0.0
        if self._pause is not None:
            self._pause.cancel()
            self._next()

    def leave(self, client: CheckedClient) -> None:
        """End the wait of a client that has left."""
        if client.turn is not None and not client.turn.done():
            client.turn.set_exception(NotChecked("the client left before its login was checked."))

    async def _result(self, client: CheckedClient, check: Check) -> Step:
        try:
            found = self._known(client, check)
            return await self._checked(client, check) if found is None else found
        finally:
            self._next()

    def _known(self, client: CheckedClient, check: Check) -> Step | None:
        if not check.key:
            return None
        now_s = asyncio.get_running_loop().time()
        return self._remembered.find(client.host, check.key, now_s)

    async def _checked(self, client: CheckedClient, check: Check) -> Step:
        result, cost_s = await self._compute(self._measured, check)
        now_s = asyncio.get_running_loop().time()
        client.owed_s += cost_s
        self._budget.spend(cost_s, now_s)
        if isinstance(result, SaslFailure):
            if check.key:
                self._remembered.failed(client.host, check.key, result, now_s)
            raise result
        if result.authenticated is not None:
            self.logged_in(client)
        if check.key:
            self._remembered.proved(check.key, result, now_s)
        return result

    def _measured(self, check: Check) -> tuple[Step | SaslFailure, float]:
        """Run a check on a thread; return its result and its processor time in seconds."""
        began_s = self._cost_clock()
        result: Step | SaslFailure
        try:
            result = check.run()
        except SaslFailure as failure:
            result = failure
        return result, self._cost_clock() - began_s

    async def _turn(self, client: CheckedClient) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting.add(client.host, turn):
            raise NotChecked("too many logins wait for a check of their password.")
        client.turn = turn
        if not self._busy:
            self._next()
        try:
            await turn
        except BaseException:
            waited = self._waiting.remove(client.host, turn)
            if not waited and not turn.cancelled() and turn.exception() is None:
                self._next()  # the turn had come already
            raise
        finally:
            client.turn = None

    def _next(self) -> None:
        """Let the next client have its turn, once the budget allows one."""
        self._pause = None
        loop = asyncio.get_running_loop()
        wait_s = pause_s(self._budget, loop.time())
        while self._waiting:
            self._busy = True
            if wait_s:
                self._pause = loop.call_later(wait_s, self._next)
                return
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
