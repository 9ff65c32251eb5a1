"""Pinning a partition, model-checked beside retention, merges, collectors and the topic's end.

A pin that its maker takes for complete keeps every object it names, in every state from then on.
That holds for every deletion and every pause. No time passes in the model, and nothing is kept for
readers (a delay of 0). So only the order of the steps keeps an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparklog.core.errors import OutcomeUnknown, TopicDeleted
from sparklog.log.cleanup import garbage
from sparklog.log.cleanup.garbage import GarbageRules, find_garbage, list_folder
from sparklog.log.effects import Program, delete, run
from sparklog.log.manifest import pins
from sparklog.log.manifest.change import change, raise_log_start
from sparklog.log.manifest.pins import Pin, pin
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.tombstone import deletable_objects, write_tombstone
from sparklog.log.partition.append import Candidate, append
from sparklog.store.memory import MemoryStore
from tests.model.explorer import Actor, Explorer, Objects, State
from tests.model.log_actors import COLD, LAYOUT, Checker, absorber, draft, explore, merger, writer
from tests.model.test_retention import collector, retainer


def pinner(letter: str = "7") -> Actor:
    """Pins what the partition holds, and reports the pin."""

    def nonces() -> Iterator[str]:
        for number in range(100):
            yield f"{letter}{number:031d}"

    def start(done: Callable[[Any], None]) -> Program[None]:
        done((yield from pin(COLD, nonces())))

    return Actor("pinner", start)


def hasty_collector() -> Actor:
    """Deletes what nothing needs, having asked for the pins before it looked."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        pinned, _ = yield from pins.pinned_objects(LAYOUT)
        listed = yield from list_folder(LAYOUT)
        view = yield from refresh(COLD)
        found = yield from find_garbage(view, listed, GarbageRules(0, 0, 1))
        for info in found.doomed:
            if LAYOUT.relative(info.key) not in pinned:
                yield from delete(info.key)

    return Actor("hasty collector", start)


def mover() -> Actor:
    """Deletes all records, and leaves the objects to others."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        yield from change(COLD, raise_log_start(-1), "e" * 32)

    return Actor("mover", start)


def undertaker() -> Actor:
    """Deletes the topic, and its objects at once."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        grave = yield from write_tombstone(COLD, "9" * 32)
        doomed, _ = yield from deletable_objects(LAYOUT, grave)
        for info in doomed:
            yield from delete(info.key)

    return Actor("undertaker", start)


class PinChecker(Checker):
    """Every pin that was taken for complete can be read, whole, for ever."""

    allowed = (OutcomeUnknown, TopicDeleted)

    def __init__(self, explorer: Explorer) -> None:
        super().__init__(explorer)
        self.complete = 0
        self._read: dict[tuple[Objects, str], None] = {}

    def __call__(self, state: State, final: bool) -> None:
        self.finals += final
        for actor, history in enumerate(state.histories):
            standing = self.explorer.standing(actor, history)
            assert standing.error is None or isinstance(standing.error, self.allowed), standing
            for report in standing.reports:
                if isinstance(report, Pin):
                    self.complete += final
                    self._check(report, state)

    def _check(self, made: Pin, state: State) -> None:
        if (state.objects, made.nonce) in self._read:
            return
        self._read[(state.objects, made.nonce)] = None
        named = {LAYOUT.key(e.object) for e in made.manifest.entries}
        missing = named - {key for key, _ in state.objects}
        assert not missing, f"a pin lost {missing}"
        assert any(key == LAYOUT.key(LAYOUT.pin_name(made.nonce)) for key, _ in state.objects)


def written(appends: int) -> Objects:
    """Return the objects of a log with `appends` segments."""
    store = MemoryStore("start")
    view = COLD
    for number in range(appends):
        view, _ = run(append(view, Candidate(draft(f"{number:032x}"))), store)
    return tuple((info.key, store.get(info.key)) for info in store.list(""))


CASES: dict[str, tuple[int, list[Actor], dict[str, int]]] = {
    "beside a retainer that dies": (2, [retainer(keep=1), pinner()], {"crashes": 1}),
    "beside a merge and a collector": (2, [merger(deletes=False), collector(), pinner()], {}),
    "beside an absorber and a retainer": (1, [absorber(), retainer(), pinner()], {}),
    "beside a writer and a retainer": (1, [writer("a", 1), retainer(), pinner()], {}),
    "beside the topic's end": (2, [undertaker(), pinner()], {"crashes": 1}),
    "with a lost reply": (2, [retainer(), pinner()], {"lost_replies": 1}),
    "with a put that arrives late": (1, [retainer(), pinner()], {"late_puts": 1}),
}
"""Segments at the start, who acts, and faults."""


LARGE = {"beside an absorber and a retainer"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.soak) if c in LARGE else c for c in CASES]
)
def test_complete_pin_keeps_every_object_it_names(case: str) -> None:
    appends, actors, budget = CASES[case]
    states, checker = explore(actors, PinChecker, written(appends), **budget)
    assert isinstance(checker, PinChecker)
    assert checker.finals > 0
    assert checker.complete > 0
    print(f"{case}: {states} states, {checker.finals} ends, {checker.complete} with a pin")


def test_model_finds_a_pin_without_object_if_the_recheck_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pins, "still_named", lambda made, view: True)
    with pytest.raises(AssertionError, match="a pin lost"):
        explore([retainer(), pinner()], PinChecker, written(2))


def test_pins_listed_before_the_look_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(*_: Any, **__: Any) -> Program[tuple[set[str], str]]:
        yield from ()
        return set(), ""

    monkeypatch.setattr(garbage, "pinned_objects", forgotten)
    with pytest.raises(AssertionError, match="a pin lost"):
        explore([mover(), hasty_collector(), pinner()], PinChecker, written(1))


def test_pins_listed_before_the_grave_are_not_enough() -> None:
    def hasty() -> Actor:
        def start(done: Callable[[Any], None]) -> Program[None]:
            doomed, _ = yield from deletable_objects(LAYOUT, "")
            yield from write_tombstone(COLD, "9" * 32)
            for info in doomed:
                yield from delete(info.key)

        return Actor("hasty undertaker", start)

    with pytest.raises(AssertionError, match="a pin lost"):
        explore([hasty(), pinner()], PinChecker, written(1))
