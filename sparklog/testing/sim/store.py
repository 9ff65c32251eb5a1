"""SimStore: an object store in the simulated world: slow and faulty, but linearizable.

A request and its response have a latency each. In between the operation happens at one instant, so
put-if-absent keeps STORE-1 to STORE-5. A sent request belongs to the world: it may or may not
happen after its sender died. `StoreFaults` sets the shares of faults; the given `Entropy` picks
the requests. Durations are virtual seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sparklog.core.entropy import Entropy
from sparklog.core.errors import Unavailable
from sparklog.log.effects import (
    Answer,
    Delete,
    Effect,
    GetMany,
    ListAfter,
    Program,
    Put,
    Range,
    Together,
    Work,
    run_async,
)
from sparklog.store.base import Data, ObjectInfo, ObjectNotFound, PutOutcome
from sparklog.store.memory import MemoryStore
from sparklog.testing.virtual_loop import WORLD, Process, ProcessState, VirtualLoop
from sparklog.testing.virtual_world import Trace, VirtualClock

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """Latencies, and the share of requests with each fault."""

    latency_s: float = 0.01
    """Of one direction, on average; drawn from half to one and a half of it."""
    slow: float = 0.0
    """Requests that take `slow_s` longer to arrive."""
    slow_s: float = 1.0
    refused: float = 0.0
    """Requests with a 503 until the client gives up: nothing happens."""
    lost_request: float = 0.0
    """Requests that never arrive."""
    lost_reply: float = 0.0
    """Requests that happen, but whose response is lost."""
    late: float = 0.0
    """Writes that happen up to `late_s` after the client gave up."""
    late_s: float = 5.0
    own_exists: float = 0.0
    """Puts whose first attempt succeeded without a response, so that the second one found its own
    object.
    """
    timeout_s: float = 0.7
    """Time after which a client gives up."""


CALM = StoreFaults()
WHOLE_SHARE = 0.8
TORN_SHARE = 0.1


class SimObjects:
    """All objects, and the faults on the way to them."""

    def __init__(self, loop: VirtualLoop, entropy: Entropy, trace: Trace) -> None:
        """Start empty and without faults."""
        self.objects = MemoryStore("simulation", VirtualClock(loop))
        """For inspection: no latency, no faults."""
        self.calm = CALM
        """Latencies without a fault."""
        self.faults = CALM
        self.cut_off: set[str] = set()
        """Hosts that cannot reach the store now."""
        self.unforced: dict[str, str] = {}
        """Objects that were not forced to a disk, with their hosts."""
        self.requests = 0
        self.loop = loop
        self.entropy = entropy
        self.trace = trace

    def chance(self, share: float) -> bool:
        """Return True for `share` of all calls; draws nothing for a share of zero."""
        return share > 0 and self.entropy.random() < share

    def lose_power(self, host: str) -> int:
        """Draw losses among objects that `host` did not force to a disk; return their number.

        Kill its processes first. Each object is whole, or torn, or gone.
        """
        harmed = 0
        for key in [k for k, of in self.unforced.items() if of == host]:
            del self.unforced[key]
            left = self.entropy.random()
            try:
                data = self.objects.get(key)
            except ObjectNotFound:
                continue  # deleted since
            if left < WHOLE_SHARE:
                continue
            harmed += 1
            self.objects.delete(key)
            if left < WHOLE_SHARE + TORN_SHARE:
                self.objects.put(key, data[: len(data) // 2])
        return harmed

    def latency_s(self) -> float:
        """Return the latency of one direction, drawn anew."""
        return self.faults.latency_s * (0.5 + self.entropy.random())


class SimStore:
    """`AsyncStore` as a process on a host sees it."""

    def __init__(self, world: SimObjects, host: str, process: Process | None = None) -> None:
        """Access `world` from `host`. If `process` dies, half of its requests are lost."""
        self._world = world
        self._host = host
        self._process = process

    async def run(self, program: Program[Result]) -> Result:
        """Run a program of the log to its end; raise its errors and the store's."""
        return await run_async(program, self._perform)

    async def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes [start, end) of an object. Raises ObjectNotFound, Unavailable."""
        objects = self._world.objects
        return await self._request("get", key, lambda: objects.get(key, start, end))

    async def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """Create an object unless it exists. Raises Unavailable: nothing was written."""
        objects = self._world.objects
        try:
            outcome = await self._request(
                "put", key, lambda: objects.put_if_absent(key, data), writes=True
            )
        except _SimNoAnswer:
            return PutOutcome.UNKNOWN
        if outcome is PutOutcome.CREATED and self._world.chance(self._world.faults.own_exists):
            return PutOutcome.EXISTS
        return outcome

    async def put(self, key: str, data: bytes) -> None:
        """Write a hint, which no invariant depends on. Raises Unavailable."""
        await self._request("hint", key, lambda: self._world.objects.put(key, data), writes=True)

    async def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        """List keys under a prefix, in order. Raises Unavailable."""
        objects = self._world.objects
        return await self._request("list", prefix, lambda: list(objects.list(prefix, start_after)))

    async def delete(self, key: str) -> None:
        """Remove an object; an absent one is no error. Raises Unavailable."""
        await self._request("delete", key, lambda: self._world.objects.delete(key), writes=True)

    async def tidy(self, prefix: str) -> None:
        """Do nothing: processes leave only objects here."""

    async def retire_in_turn(self, keys: Sequence[str]) -> int:
        """Remove objects one after the other; return how many are gone."""
        for number, key in enumerate(keys):
            try:
                await self.delete(key)
            except Unavailable:
                return number
        return len(keys)

    async def _perform(self, effect: Effect) -> Answer:
        match effect:
            case GetMany(ranges):
                return list(await asyncio.gather(*map(self._range, ranges)))
            case Put(key, data, forced):
                if not forced:
                    self._world.unforced.setdefault(key, self._host)
                return await self.put_if_absent(key, data)
            case ListAfter(prefix, start_after):
                return await self.list(prefix, start_after)
            case Together(reads):
                return list(await asyncio.gather(*map(self._perform, reads)))
            case Delete(key):
                await self.delete(key)
                return None
            case Work(function):
                return function()

    async def _range(self, wanted: Range) -> bytes | None:
        try:
            return await self.get(wanted.key, wanted.start, wanted.end)
        except ObjectNotFound:
            return None

    async def _request(
        self, operation: str, key: str, act: Callable[[], Result], *, writes: bool = False
    ) -> Result:
        world, faults = self._world, self._world.faults
        if world.loop.closing:
            raise asyncio.CancelledError
        if world.chance(faults.refused):
            await asyncio.sleep(2 * world.latency_s())
            world.trace.note("store", self._host, operation, key, "refused")
            raise Unavailable(f"simulated 503. host={self._host} operation={operation} key={key}")
        delay_s = world.latency_s()
        if world.chance(faults.slow):
            delay_s += world.entropy.random() * faults.slow_s
        patience_s = faults.timeout_s + delay_s
        answer: asyncio.Future[Any] = world.loop.create_future()
        reply = None if world.chance(faults.lost_reply) else answer
        if writes and world.chance(faults.late):
            reply, delay_s = None, patience_s + world.entropy.random() * faults.late_s
        if not world.chance(faults.lost_request) and self._host not in world.cut_off:
            world.loop.call_later(delay_s, self._arrive, operation, key, act, reply, context=WORLD)
        try:
            async with asyncio.timeout(patience_s):
                result: Result = await answer
                return result
        except TimeoutError:
            world.trace.note("store", self._host, operation, key, "no answer")
            raise _SimNoAnswer(
                f"simulated silence. host={self._host} operation={operation} key={key}"
            ) from None

    def _arrive(
        self,
        operation: str,
        key: str,
        act: Callable[[], object],
        answer: asyncio.Future[Any] | None,
    ) -> None:
        """Perform a request. The world calls this, even if the sender is dead."""
        world, process = self._world, self._process
        if process is not None and process.state is ProcessState.DEAD and world.chance(0.5):
            return
        world.requests += 1
        try:
            result, error = act(), None
        except Exception as raised:
            result, error = None, raised
        shown = result.value if isinstance(result, PutOutcome) else error
        world.trace.note("store", self._host, operation, key, shown)
        if answer is not None and self._host not in world.cut_off:
            world.loop.call_later(world.latency_s(), _settle, answer, result, error, context=WORLD)


class _SimNoAnswer(Unavailable):
    """The client gave up: a write may have happened, or may yet happen."""


def _settle(answer: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
