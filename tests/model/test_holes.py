"""A log that has lost one object, model-checked: its name stays free, and nothing else is lost.

Each case loses another object before the first action. The acknowledged records end at `END`. A new
segment before that would assign an offset twice, and so would a manifest that ends before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.core.errors import DataCorrupt, NotServing, SparklogError
from sparklog.log.effects import Program, run
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.refresh import refresh
from sparklog.log.partition.append import Candidate, append
from sparklog.log.partition.leader_append import take_leadership
from sparklog.store.memory import MemoryStore
from tests.model.explorer import Actor, Explorer, Objects, State
from tests.model.log_actors import COLD, LAYOUT, absorber, draft, merger, reader, trimmer

END = 4


def built(absorbed: int) -> Objects:
    """Return a log of four appends, of which the first `absorbed` are in its manifest."""
    store = MemoryStore("built")
    view = COLD
    for number in range(END):
        view, _ = run(append(view, Candidate(draft(f"old{number}"))), store)
        if number + 1 == absorbed:
            view = run(change(view, absorb_tail(1, 0), "b" * 32), store)
    return tuple(sorted((info.key, store.get(info.key)) for info in store.list("")))


def opened_writer(name: str) -> Actor:
    """Looks, as every process does before its first append, and appends."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from refresh(COLD)
        done((yield from append(view, Candidate(draft(name))))[1])

    return Actor(name, start)


@pytest.mark.parametrize("begins", ["append", "lead"])
def test_old_view_writes_nothing_with_an_unreadable_manifest(begins: str) -> None:
    """The chain's objects are gone, as a newer manifest has named others in their place."""
    store = MemoryStore("old view")
    old, _ = run(append(COLD, Candidate(draft("old0"))), store)
    view = old
    for number in range(1, END):
        view, _ = run(append(view, Candidate(draft(f"old{number}"))), store)
    view = run(change(view, absorb_tail(1, 0), "b" * 32), store)
    for offset in range(1, END):
        store.delete(LAYOUT.key(LAYOUT.chain_name(offset)))
    store.put(LAYOUT.key(LAYOUT.manifest_name(1)), b"damaged")
    program: Program[Any] = (
        append(old, Candidate(draft("new")))
        if begins == "append"
        else take_leadership(old, 1, "e" * 32)
    )
    with pytest.raises(DataCorrupt, match="the newest manifest cannot be read"):
        run(program, store)


def leader() -> Actor:
    """Begins to lead."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from refresh(COLD)
        yield from take_leadership(view, 1, "e" * 32)

    return Actor("leader", start)


class HoleChecker:
    """Compares each state with the objects at the start."""

    def __init__(self, explorer: Explorer, start: Objects) -> None:
        self._explorer = explorer
        self._start = dict(start)
        self.refused = 0

    def __call__(self, state: State, final: bool) -> None:
        now = dict(state.objects)
        for key in now.keys() - self._start.keys():
            position = LAYOUT.chain_position(key)
            assert position is None or position.offset >= END, f"an offset twice: {key}"
            if LAYOUT.manifest_version(key) is not None:
                made = manifests.decode(now[key], LAYOUT, key)
                assert made.end_offset >= END, f"a shorter log: {key}"
        if final:
            for actor, history in enumerate(state.histories):
                error: SparklogError | None = self._explorer.standing(actor, history).error
                assert error is None or isinstance(error, (DataCorrupt, NotServing)), error
                self.refused += isinstance(error, DataCorrupt)


CAST: dict[str, Callable[[], list[Actor]]] = {
    "writers": lambda: [opened_writer("new1"), opened_writer("new2")],
    "a writer and a leader": lambda: [opened_writer("new1"), leader()],
    "a writer and an absorber": lambda: [opened_writer("new1"), absorber()],
    "a merge and a reader": lambda: [merger(), reader()],
    "a trim": lambda: [trimmer()],
}


def explored(whole: Objects, lost: str, actors: list[Actor]) -> HoleChecker:
    left = tuple(one for one in whole if one[0] != lost)
    explorer = Explorer(actors)
    checker = HoleChecker(explorer, left)
    explorer.explore(explorer.start(left, lost_replies=1), checker)
    return checker


@pytest.mark.parametrize("absorbed", [0, 2])
@pytest.mark.parametrize("cast", CAST)
def test_no_offset_is_given_out_twice_when_an_object_is_lost(cast: str, absorbed: int) -> None:
    whole = built(absorbed)
    for lost in [key for key, _ in whole]:
        position = LAYOUT.chain_position(lost)
        if position is not None and position.offset == END - 1:
            continue  # the newest object: no other object reveals its loss
        checker = explored(whole, lost, CAST[cast]())
        if position is not None and position.offset >= absorbed:
            assert checker.refused, f"nobody noticed that it is gone: {lost}"


def test_model_finds_a_double_offset_without_the_later_names_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparklog.log.manifest.refresh._beyond", lambda view, listed: None)
    whole = built(0)
    with pytest.raises(AssertionError, match="an offset twice"):
        explored(whole, LAYOUT.key(LAYOUT.chain_name(1)), [opened_writer("new")])
