"""Effects: the requests of pure log code to a store, and the function that performs them.

A program (append, refresh, change the manifest) is a generator: it yields requests and receives
their answers. It never calls a store itself. So the exhaustive model in `tests/model` runs the
production code one request at a time, in every order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from sparklog.core.errors import OutcomeUnknown
from sparklog.store.base import Data, ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome

CREATE_TRIES_MAX = 8


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes [start, end) of one object; a negative start counts from its end."""

    key: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class GetMany:
    """Read several ranges at once. Answer: for each its bytes, or None if the object is absent."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Create an object unless it exists. Answer: PutOutcome."""

    key: str
    data: Data
    forced: bool = True
    """True if the object must be on a disk when it counts as created. If not, a power cut may lose
    or truncate it; a store may force it all the same."""


@dataclass(frozen=True, slots=True)
class ListAfter:
    """List keys under a prefix after a key. Answer: list of ObjectInfo."""

    prefix: str
    start_after: str
    keys_max: int | None = None
    """The asker uses no more of the first keys, so a store may list fewer pages."""


@dataclass(frozen=True, slots=True)
class Together:
    """Send several reads at once. Answer: theirs, in order; each may show another moment.

    Only the last one may be of several ranges.
    """

    reads: tuple[GetMany | ListAfter, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object that is no longer needed. Answer: None."""

    key: str


@dataclass(frozen=True, slots=True)
class Work:
    """Compute something that would block an event loop. Answer: the function's result."""

    function: Callable[[], object]


Effect = GetMany | Put | ListAfter | Together | Delete | Work
Answer = list[bytes | None] | PutOutcome | list[ObjectInfo] | object | None
Result = TypeVar("Result")
Program = Generator[Effect, Any, Result]
"""A protocol that ends with a Result. Answers are typed by the request, see `get`, `put`, …"""


def get_many(ranges: tuple[Range, ...]) -> Program[list[bytes | None]]:
    """Ask for several ranges."""
    found: list[bytes | None] = yield GetMany(ranges)
    return found


def get(key: str, start: int | None = None, end: int | None = None) -> Program[bytes | None]:
    """Ask for one range; None when the object is absent."""
    found: list[bytes | None] = yield GetMany((Range(key, start, end),))
    return found[0]


def put(key: str, data: Data, *, forced: bool = True) -> Program[PutOutcome]:
    """Ask for an object to be created."""
    outcome: PutOutcome = yield Put(key, data, forced)
    return outcome


def create(key: str, data: Data) -> Program[None]:
    """Create an object under a name that no other writer uses.

    Raises:
        OutcomeUnknown: the result of the put is unknown; use another name.
    """
    for _ in range(CREATE_TRIES_MAX):
        outcome = yield from put(key, data)
        if outcome is PutOutcome.CREATED or (yield from get(key)) == data:
            return
    raise OutcomeUnknown(f"the store does not tell whether the upload happened. object={key}")


def list_after(prefix: str, start_after: str) -> Program[list[ObjectInfo]]:
    """Ask for the objects after a key."""
    found: list[ObjectInfo] = yield ListAfter(prefix, start_after)
    return found


def delete(key: str) -> Program[None]:
    """Ask for an object to be deleted."""
    yield Delete(key)


def work(function: Callable[[], Result]) -> Program[Result]:
    """Ask for something to be computed."""
    result: Result = yield Work(function)
    return result


def perform(effect: Effect, store: ObjectStore, pool: Executor | None = None) -> Answer:
    """Answer one request from a store; several ranges are read in parallel when a pool is given."""
    match effect:
        case GetMany(ranges):
            if pool is None or len(ranges) < 2:
                return [_read(store, r) for r in ranges]
            return list(pool.map(lambda r: _read(store, r), ranges))
        case Put(key, data, _):
            return store.put_if_absent(key, data)
        case ListAfter(prefix, start_after, keys_max):
            return list(islice(store.list(prefix, start_after), keys_max))
        case Together(reads):
            if pool is None:
                return [perform(one, store) for one in reads]
            *others, last = reads
            sent = [pool.submit(perform, one, store) for one in others]
            answer = perform(last, store, pool)
            return [*(one.result() for one in sent), answer]
        case Delete(key):
            store.delete(key)
            return None
        case Work(function):
            return function()


def run(program: Program[Result], store: ObjectStore, pool: Executor | None = None) -> Result:
    """Run a program to its end on a store. Errors of the store are raised inside it."""
    try:
        effect = next(program)
        while True:
            try:
                answer = perform(effect, store, pool)
            except Exception as error:
                effect = program.throw(error)
            else:
                effect = program.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(
    program: Program[Result], perform_one: Callable[[Effect], Awaitable[Answer]]
) -> Result:
    """Run a program to its end; `perform_one` answers its requests, and errors are raised inside.

    A task that is cancelled closes the program.
    """
    try:
        effect = next(program)
        while True:
            try:
                answer = await perform_one(effect)
            except Exception as error:
                effect = program.throw(error)
            else:
                effect = program.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        program.close()


def _read(store: ObjectStore, wanted: Range) -> bytes | None:
    try:
        return store.get(wanted.key, wanted.start, wanted.end)
    except ObjectNotFound:
        return None
