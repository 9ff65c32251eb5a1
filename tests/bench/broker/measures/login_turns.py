"""Turns of an event loop beside wrong logins over TLS: the processor time that the longest take.

One listener runs in this process, without a cluster. The program that guesses is stopped for most
of the time, as a busy machine would stop it. So the next steps of its connections come together.
Other clients of an event loop wait for the whole of a turn.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from sparklog.core.clock import thread_s
from tests.bench.broker.measures.logins import GROUP, PROGRAM
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results
from tests.harness.secured_server import AUTHORITY, Secured, serve

MECHANISM = "SCRAM-SHA-512"
TRIES_PER_S = 333
SECONDS = 5
STOPPED_S = 0.3
GOES_ON_S = 0.1
TICK_S = 0.001
"""Longer than most turns: the time between two ticks is that of few."""
LONG_S = 0.004
SYSTEM = "sparklog"


class Turns:
    """The processor time of an event loop's thread between ticks."""

    def __init__(self) -> None:
        """Begin none."""
        self.costs_s: list[float] = []
        self._at_s = 0.0

    def start(self) -> None:
        """Tick from now on, until the event loop ends."""
        self._at_s = thread_s()
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self.costs_s.append(thread_s() - self._at_s)
        self.start()


def measure_login_turns(work: Path, plan: BrokerPlan, results: Results) -> None:
    """Measure the longest turns, and the time of all long ones."""
    work.mkdir(parents=True, exist_ok=True)
    authority = work / "ca.pem"
    authority.write_text(AUTHORITY.pem)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": MECHANISM,
        "ssl.keystore.location": str(AUTHORITY.issue("broker", "127.0.0.1").write(work / "b.pem")),
    }
    for number in range(plan.rounds):
        turns = Turns()

        async def story(secured: Secured, turns: Turns = turns) -> None:
            turns.start()
            await _guess(str(secured.at("SASL_SSL")), authority)

        with _no_collector():
            serve(story, settings, loop_factory=uvloop.new_event_loop)
        long_s = sum(cost_s for cost_s in turns.costs_s if cost_s > LONG_S)
        longest = Measure("longest turn beside guesses that stop and go on", "ms", (), GROUP)
        results.add(longest, SYSTEM, max(turns.costs_s) * 1000, number)
        all_long = Measure(f"all turns over {LONG_S * 1000:.0f} ms, together", "ms", (), GROUP)
        results.add(all_long, SYSTEM, long_s * 1000, number)


async def _guess(address: str, authority: Path) -> None:
    words = (*PROGRAM, "guess", address, str(authority), MECHANISM, str(TRIES_PER_S), str(SECONDS))
    guesses = await asyncio.create_subprocess_exec(*words, stdout=DEVNULL)
    ended = asyncio.ensure_future(guesses.wait())
    try:
        while not ended.done():
            guesses.send_signal(signal.SIGCONT)
            await asyncio.wait([ended], timeout=GOES_ON_S)
            if not ended.done():
                guesses.send_signal(signal.SIGSTOP)
                await asyncio.sleep(STOPPED_S)
        assert await ended == 0
    finally:
        with suppress(ProcessLookupError):
            guesses.kill()


@contextmanager
def _no_collector() -> Iterator[None]:
    """Run without Python's collector, whose passes over this process are no turns of a broker."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
