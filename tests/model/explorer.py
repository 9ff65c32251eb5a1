"""Runs protocols (generators over `log.effects`) through every interleaving, exhaustively.

A state is the objects in the store, each actor's history of answers, the puts under way, and the
faults left to spend. A generator is deterministic in its answers, so histories stand for its inner
state. Equal states are visited once, and an actor is re-run only for a new history.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from sparklog.core.errors import SparklogError
from sparklog.log.effects import Delete, Effect, GetMany, ListAfter, Put, Together, Work
from sparklog.store.base import ObjectInfo, PutOutcome

TORN = b"torn"
Objects = tuple[tuple[str, bytes], ...]
History = tuple[Any, ...]


@dataclass(frozen=True)
class AnyOf:
    """Several requests under way at once. Answer: [index, answer] of whichever is answered next."""

    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Actor:
    """A caller that runs a protocol; its reports through `done` count from that moment on."""

    name: str
    start: Callable[[Callable[[Any], None]], Generator[Effect | AnyOf, Any, Any]]


@dataclass(frozen=True)
class Standing:
    """Position of an actor after a history: its next request, or its end; and its reports."""

    effect: Effect | AnyOf | None
    reports: tuple[Any, ...]
    error: SparklogError | None = None


@dataclass(frozen=True)
class State:
    """One moment of the whole."""

    objects: Objects
    histories: tuple[History, ...]
    crashed: tuple[bool, ...]
    late: tuple[tuple[str, bytes], ...] = ()
    """Puts whose sender got no answer and that may still arrive."""
    lost_replies: int = 0
    late_puts: int = 0
    crashes: int = 0
    power_cuts: int = 0
    """Of the machine with the disk, which may lack what was not forced: all who began crash."""
    unforced: tuple[str, ...] = ()
    """Names that were created or deleted, which may not be on the disk yet."""
    damaged: tuple[str, ...] = ()
    """Names that a power cut took, or whose objects it tore."""


class Explorer:
    """Visits every state reachable from a start; calls `check` on each."""

    def __init__(self, actors: list[Actor]) -> None:
        """Explore what `actors` can do."""
        self.actors = actors
        self._standings: dict[tuple[int, History], Standing] = {}

    def start(
        self,
        objects: Objects = (),
        /,
        *,
        lost_replies: int = 0,
        late_puts: int = 0,
        crashes: int = 0,
        power_cuts: int = 0,
    ) -> State:
        """Return the state before the first action, with these numbers of faults of each kind."""
        nothing: History = ()
        return State(
            objects,
            (nothing,) * len(self.actors),
            (False,) * len(self.actors),
            lost_replies=lost_replies,
            late_puts=late_puts,
            crashes=crashes,
            power_cuts=power_cuts,
        )

    def standing(self, actor: int, history: History) -> Standing:
        """Return where `actor` stands after these answers."""
        found = self._standings.get((actor, history))
        if found is None:
            found = self._rerun(actor, history)
            self._standings[(actor, history)] = found
        return found

    def _rerun(self, actor: int, history: History) -> Standing:
        reports: list[Any] = []
        protocol = _in_every_order(self.actors[actor].start(reports.append))
        try:
            effect = next(protocol)
            for answer in history:
                effect = protocol.send(list(answer) if isinstance(answer, tuple) else answer)
        except StopIteration:
            return Standing(None, tuple(reports))
        except SparklogError as error:
            return Standing(None, tuple(reports), error)
        return Standing(effect, tuple(reports))

    def explore(self, start: State, check: Callable[[State, bool], None]) -> int:
        """Call `check(state, final)` for every reachable state; returns how many there are."""
        seen = {start}
        stack = [start]
        while stack:
            state = stack.pop()
            following = list(self.steps(state))
            check(state, not following)
            for one in following:
                if one not in seen:
                    seen.add(one)
                    stack.append(one)
        return len(seen)

    def steps(self, state: State) -> Iterator[State]:
        """Yield every state one step further."""
        for key, data in state.late:
            rest = tuple(p for p in state.late if p != (key, data))
            yield replace(state, objects=_created(state.objects, key, data), late=rest)
        for actor in range(len(self.actors)):
            if state.crashed[actor]:
                continue
            effect = self.standing(actor, state.histories[actor]).effect
            if effect is None:
                continue
            yield from self._answers(state, actor, effect)
            if state.crashes:
                crashed = (*state.crashed[:actor], True, *state.crashed[actor + 1 :])
                yield replace(state, crashed=crashed, crashes=state.crashes - 1)
        if state.power_cuts:
            yield from _without_power(state)

    def _answers(self, state: State, actor: int, effect: Effect | AnyOf) -> Iterator[State]:
        objects = dict(state.objects)
        match effect:
            case AnyOf(effects):
                for index, one in enumerate(effects):
                    for step in self._answers(state, actor, one):
                        yield _answered(state, actor, (index, step.histories[actor][-1]), step)
            case GetMany(ranges):
                answer = tuple(
                    None if r.key not in objects else objects[r.key][r.start : r.end]
                    for r in ranges
                )
                yield _answered(state, actor, answer)
            case ListAfter(prefix, start_after):
                listed = tuple(
                    ObjectInfo(k, len(d), 0)
                    for k, d in state.objects
                    if k.startswith(prefix) and k > start_after
                )
                yield _answered(state, actor, listed)
            case Delete(key):
                gone = tuple(item for item in state.objects if item[0] != key)
                deleted = replace(_answered(state, actor, None), objects=gone)
                if state.power_cuts and key in objects:
                    deleted = replace(deleted, unforced=_with(state.unforced, key))
                yield deleted
            case Work(function):
                yield _answered(state, actor, function())
            case Put(key, data, forced):
                if not forced and state.power_cuts and key not in objects:
                    state = replace(state, unforced=_with(state.unforced, key))
                yield from self._put(state, actor, key, bytes(data))

    def _put(self, state: State, actor: int, key: str, data: bytes) -> Iterator[State]:
        there = any(k == key for k, _ in state.objects)
        created = _created(state.objects, key, data)
        outcome = PutOutcome.EXISTS if there else PutOutcome.CREATED
        yield replace(_answered(state, actor, outcome), objects=created)
        unknown = _answered(state, actor, PutOutcome.UNKNOWN)
        if state.lost_replies:
            spent = replace(unknown, lost_replies=state.lost_replies - 1)
            yield replace(spent, objects=created)
            # A client library that retries by itself reports its own object as a foreign one.
            exists = _answered(state, actor, PutOutcome.EXISTS)
            yield replace(exists, objects=created, lost_replies=state.lost_replies - 1)
        if state.late_puts:
            late = tuple(sorted({*state.late, (key, data)}))
            yield replace(unknown, late=late, late_puts=state.late_puts - 1)


def _in_every_order(
    protocol: Generator[Effect | AnyOf, Any, Any],
) -> Generator[Effect | AnyOf, Any, Any]:
    """Run a protocol whose reads at once are answered one after the other, in any order."""
    answer: Any = None
    try:
        while True:
            effect = protocol.send(answer)
            if isinstance(effect, Together):
                waiting = list(enumerate(effect.reads))
                answers: dict[int, Any] = {}
                while waiting:
                    index, given = yield AnyOf(tuple(read for _, read in waiting))
                    number, _ = waiting.pop(index)
                    answers[number] = list(given)
                answer = [answers[number] for number in sorted(answers)]
            else:
                answer = yield effect
    except StopIteration as end:
        return end.value


def _answered(state: State, actor: int, answer: Any, step: State | None = None) -> State:
    """Return `state`, or what its `step` made of it, with one more answer in the history."""
    histories = (
        *state.histories[:actor],
        (*state.histories[actor], answer),
        *state.histories[actor + 1 :],
    )
    return replace(step or state, histories=histories)


def _created(objects: Objects, key: str, data: bytes) -> Objects:
    if any(k == key for k, _ in objects):
        return objects
    return tuple(sorted((*objects, (key, data))))


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(sorted({*names, name}))


def _without_power(state: State) -> Iterator[State]:
    """Yield what the disk may hold when its machine lost its power.

    Each name that was not forced shows what it did, nothing, or an object that is torn. One that
    was deleted may be back, and its file may have been written anew: torn as well.
    """
    fates = product((False, None, True), repeat=len(state.unforced))
    for fate in fates:
        objects = dict(state.objects)
        damaged: list[str] = []
        for name, torn in zip(state.unforced, fate, strict=True):
            before = objects.pop(name, None)
            if torn:
                objects[name] = TORN
            elif torn is False and before is not None:
                objects[name] = before
            if before is not None and torn is not False:
                damaged.append(name)
        yield replace(
            state,
            objects=tuple(sorted(objects.items())),
            crashed=tuple(
                c or bool(h) for c, h in zip(state.crashed, state.histories, strict=True)
            ),
            power_cuts=state.power_cuts - 1,
            unforced=(),
            damaged=tuple(damaged),
        )
