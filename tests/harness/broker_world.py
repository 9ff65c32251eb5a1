"""A virtual world for tests of the broker's shells: a loop, a store, environments of processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sparklog.broker.runtime.environment import Address, Environment, Unreachable
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.core.entropy import SeededEntropy
from sparklog.testing.sim.store import SimObjects, SimStore
from sparklog.testing.virtual_loop import Process, VirtualLoop, new_virtual_loop
from sparklog.testing.virtual_world import Trace, VirtualClock, VirtualCompute

Result = TypeVar("Result")
Serve = Callable[[Any], Awaitable[Any]]


class Wires:
    """`Network` without latency: who listens where, and who is cut off."""

    def __init__(self) -> None:
        self.listeners: dict[Address, Serve] = {}

    async def call(
        self, peer: Address, request: Any, *, timeout_s: float, purpose: str = ""
    ) -> Any:
        if peer not in self.listeners:
            raise Unreachable(f"nobody listens. peer={peer}")
        return await self.listeners[peer](request)

    def introduce(self, client_id_at: Callable[[Address], str]) -> None:
        """All callers count as this broker itself here."""

    def hang_up(self, address: Address) -> None:
        self.listeners.pop(address, None)

    async def close(self) -> None:
        self.listeners.clear()


class World:
    """One seed's world."""

    def __init__(self, seed: int = 1) -> None:
        self.loop: VirtualLoop = new_virtual_loop()
        self.entropy = SeededEntropy(seed)
        self.objects = SimObjects(self.loop, self.entropy, Trace(self.loop))
        self.wires = Wires()
        self.metrics = BrokerMetrics()
        self.crashes: list[BaseException] = []

    @property
    def keys(self) -> list[str]:
        """Every object there is."""
        return [info.key for info in self.objects.objects.list("")]

    def environment(self, host: str = "a") -> Environment:
        return Environment(
            store=SimStore(self.objects, host),
            network=self.wires,
            clock=VirtualClock(self.loop),
            entropy=self.entropy,
            compute=VirtualCompute(self.entropy, 0.0005),
        )

    def run(self, story: Coroutine[Any, Any, Result]) -> Result:
        """Run a story to its end; a crash of any task ends the test."""
        self.loop.after_step = self._look
        try:
            return self.loop.run_until_complete(story)
        finally:
            self.loop.close()
            assert not self.crashes, self.crashes
            assert not self.loop.complaints, self.loop.complaints

    def _look(self, process: Process | None) -> None:
        """End the test at a crash: a waiter for the dead task would wait for all virtual time."""
        assert not self.crashes, self.crashes
