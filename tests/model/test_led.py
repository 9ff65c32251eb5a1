"""Leaders and direct writers of one partition, model-checked in every order, with every fault.

Beside the invariants of `log_actors`, in each state:
  - between a leader's fence and the next hand-back there is no direct append;
  - from where a leader leads on, no offset has a direct append: fences take none;
  - the flushed records of a leader are in the log. Every offset has the record that the leaders
    agreed on, for any leader that flushed it. A leader's own records stay its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sparklog.core.errors import Fenced, NotServing, OutcomeUnknown, Unavailable
from sparklog.log.effects import Program, run
from sparklog.log.manifest import change
from sparklog.log.manifest.manifest import Manifest
from sparklog.log.manifest.refresh import newer_manifest, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition import append, leader_append
from sparklog.log.partition.append import AppendResult, Candidate
from sparklog.log.partition.leader_append import flush_at, hand_back, take_leadership
from sparklog.log.segment.segment import Segment
from sparklog.log.tail.to_segment import FlushBuilder
from sparklog.store.memory import MemoryStore
from tests.model.explorer import Actor, Objects
from tests.model.log_actors import (
    COLD,
    LAYOUT,
    PART,
    Checker,
    absorber,
    explore,
    file,
    index,
    merger,
    reader,
    writer,
)


@cache
def _flush_draft(base: int, length: int, epoch: int, nonce: str) -> FlushBuilder:
    head = (PART.head.length, PART.head.crc)
    segment = Segment(
        LAYOUT.topic_id,
        LAYOUT.partition,
        base,
        base + length,
        length,
        nonce,
        leader_epoch=epoch,
        led=True,
        head=head,
        batches=index(length),
    )
    return FlushBuilder(segment, file(segment), length)


def _flushing(
    done: Callable[[Any], None],
    view: PartitionView,
    name: str,
    epochs: dict[int, int],
    portions: list[int],
    leader_epoch: int,
) -> Program[PartitionView]:
    """Flush the records whose epochs are given by offset, in portions of these sizes."""
    end = max(epochs) + 1
    for portion in portions:
        base = view.end_offset
        length = min(portion, end - base)
        if length <= 0:
            break
        draft = _flush_draft(base, length, epochs[base], f"{name}-{epochs[base]}@{base}")
        view = yield from flush_at(view, draft, leader_epoch)
        done(("flushed", view.end_offset))
    return view


def flusher(
    name: str, view: PartitionView, epochs: dict[int, int], portions: list[int], epoch: int
) -> Actor:
    """A leader that starts from a view it had and flushes what leaders agreed on."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        yield from _flushing(done, view, name, epochs, portions, epoch)

    return Actor(name, start)


def leader(name: str, epoch: int, records: int = 1, *, marks: bool = True) -> Actor:
    """Is elected: puts its fence, then flushes records of its own."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        if marks:
            view = yield from take_leadership(COLD, epoch, f"{name}-led")
        else:
            view = yield from refresh(COLD)
        first = view.end_offset
        done(("leads from", first))
        if records:
            epochs = {first + i: epoch for i in range(records)}
            yield from _flushing(done, view, name, epochs, [1] * records, epoch)
            # A foreign record there would have been a later leader's, whose fence shows.
            done(("own", first, f"{name}-{epoch}@{first}"))

    return Actor(name, start)


def returner(name: str, epoch: int) -> Actor:
    """Hands the partition back to direct writers."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from hand_back(COLD, epoch, f"{name}-unled")
        done(("handed back", view.end_offset))

    return Actor(name, start)


class LedChecker(Checker):
    """Knows leaders' records by their nonces: NAME-EPOCH@OFFSET."""

    allowed = (OutcomeUnknown, NotServing, Fenced, Unavailable)

    def check_chain(self, view: PartitionView) -> None:
        super().check_chain(view)
        led = view.manifest.led
        for one in view.tail:
            segment = one.segment
            if segment.kind == "fence":
                led = segment.led
            else:
                assert segment.led or not led, f"a direct append amid a leader's: {segment}"

    def check_log(self, log: dict[int, str]) -> None:
        direct = [nonce for nonce in log.values() if "@" not in nonce]
        assert len(direct) == len(set(direct)), f"an append is in the log twice: {log}"

    def judge(self, report: Any, view: PartitionView, log: dict[int, str]) -> None:
        match report:
            case ("flushed" | "handed back" as what, int(offset)):
                assert offset <= view.end_offset, f"{what} {offset} is beyond the log: {log}"
            case ("leads from", int(offset)):
                late = [n for at, n in log.items() if at >= offset and "@" not in n]
                assert not late, f"{late} appended directly where a leader leads: {offset} in {log}"
            case ("own", int(offset), str(nonce)):
                assert log.get(offset) == nonce, f"lost: {nonce} at {offset} in {log}"
            case _:
                super().judge(report, view, log)


def _prepared(*protocols: Program[Any]) -> tuple[Objects, PartitionView]:
    """Return what a store holds after these, and the view of it."""
    store = MemoryStore("model")
    for protocol in protocols:
        run(protocol, store)
    view = run(refresh(COLD), store)
    return tuple((info.key, store.get(info.key)) for info in store.list("")), view


LED, LED_VIEW = _prepared(take_leadership(COLD, 1, "l1-led"))
"""An empty partition with a leader's fence."""
TRUTH = {0: 1, 1: 1, 2: 2}
"""Epochs of the records that both leaders hold, the second as it took over from the first."""


def _check(actors: list[Actor], objects: Objects = (), **budget: int) -> int:
    states, checker = explore(actors, LedChecker, objects, **budget)
    assert checker.finals > 0
    return states


CASES: dict[str, tuple[list[Actor], Objects, dict[str, int]]] = {
    "a direct writer and a leader": ([writer("a", 2), leader("l0", 0)], (), {}),
    "two direct writers and a leader": (
        [writer("a", 1), writer("b", 1), leader("l0", 0, records=0)],
        (),
        {},
    ),
    "a writer and a leader, lost replies": (
        [writer("a", 1), leader("l1", 1)],
        (),
        {"lost_replies": 2, "crashes": 1},
    ),
    "a writer and a leader, puts that arrive late": (
        [writer("a", 1), leader("l1", 1)],
        (),
        {"late_puts": 2},
    ),
    "a writer, a leader, and the tail taken in": (
        [writer("a", 2), leader("l1", 1), absorber()],
        (),
        {},
    ),
    "a writer, a leader, and a merge that deletes": (
        [writer("a", 1), leader("l1", 1, records=0), merger()],
        (),
        {},
    ),
    "a writer and a hand-back": ([writer("a", 2), returner("r2", 2)], LED, {}),
    "a writer, a hand-back, and the tail taken in": (
        [writer("a", 1), returner("r2", 2), absorber()],
        LED,
        {},
    ),
    "a hand-back that the next leader overtakes": (
        [returner("r2", 2), leader("l3", 3)],
        LED,
        {"lost_replies": 1, "crashes": 1},
    ),
    "a hand-back, the next leader and a writer": (
        [returner("r2", 2), leader("l3", 3), writer("a", 1)],
        LED,
        {},
    ),
    "a hand-back that arrives late": (
        [returner("r2", 2), leader("l3", 3)],
        LED,
        {"late_puts": 1},
    ),
    "two leaders flush the same": (
        [
            flusher("l1", LED_VIEW, {0: 1, 1: 1}, [2], 1),
            flusher("l2", LED_VIEW, TRUTH, [1, 1, 1], 2),
        ],
        LED,
        {"lost_replies": 1, "late_puts": 1},
    ),
    "two leaders flush the same beside a merge": (
        [
            flusher("l1", LED_VIEW, {0: 1, 1: 1}, [2], 1),
            flusher("l2", LED_VIEW, TRUTH, [1, 1, 1], 2),
            merger(),
        ],
        LED,
        {},
    ),
    "a leader recovers beside one that was elected in between": (
        [flusher("l3", LED_VIEW, {0: 1}, [1], 3), leader("l2", 2)],
        LED,
        {"lost_replies": 1, "crashes": 1},
    ),
    "two leaders race for a fence": (
        [leader("l1", 1), leader("l2", 2)],
        (),
        {"lost_replies": 1, "late_puts": 1, "crashes": 1},
    ),
    "two leaders race for a fence that is taken in": (
        [leader("l1", 1), leader("l2", 2), absorber()],
        (),
        {},
    ),
    "two leaders race for a fence beside a writer": (
        [leader("l0", 0), leader("l1", 1), writer("a", 1)],
        (),
        {},
    ),
    "a deposed leader flushes when its successor's fence is gone": (
        [flusher("l1", LED_VIEW, {0: 1}, [1], 1), leader("l2", 2), absorber()],
        LED,
        {},
    ),
    "a writer, a leader, and its fence is gone": (
        [writer("a", 1), leader("l0", 0), absorber()],
        (),
        {"crashes": 1},
    ),
    "a leader flushes beside a merge and a reader": (
        [flusher("l1", LED_VIEW, {0: 1, 1: 1}, [1, 1], 1), merger(), reader(LED_VIEW)],
        LED,
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_interleaving_keeps_leaders_and_writers_apart(case: str) -> None:
    actors, objects, budget = CASES[case]
    print(f"{case}: {_check(actors, objects, **budget)} states")


def test_a_writer_that_ignores_the_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionView, "is_led", False)
    with pytest.raises(AssertionError, match="direct"):
        _check([writer("a", 1), leader("l1", 1)])


def test_a_manifest_that_forgets_the_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = change.with_tail

    def forgetful(view: PartitionView, expired_before_ms: int) -> Manifest:
        return replace(keep(view, expired_before_ms), led=False)

    monkeypatch.setattr(change, "with_tail", forgetful)
    with pytest.raises(AssertionError, match="direct"):
        _check([writer("a", 1), leader("l1", 1), absorber()])


def test_a_flush_without_the_confirming_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(view: PartitionView) -> Program[tuple[PartitionView, bool]]:
        yield from ()
        return view, False

    monkeypatch.setattr(leader_append, "newer_manifest", believe)
    actors, objects, _ = CASES["two leaders flush the same beside a merge"]
    with pytest.raises(AssertionError, match="is beyond the log"):
        _check(actors, objects)


def _by_offset_alone(
    view: PartitionView, candidate: Candidate, size_bytes: int
) -> Program[tuple[PartitionView, AppendResult | None]]:
    newer, _ = yield from newer_manifest(view)
    base = view.end_offset
    if newer.manifest.end_offset <= base:
        return newer, AppendResult(base, base + 1, repeated=False)
    return (yield from refresh(newer)), None


def test_an_append_that_is_confirmed_by_its_offset_alone_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The manifest has passed a fence at the very offset, and the fence's name is free again."""
    monkeypatch.setattr(append, "_confirm", _by_offset_alone)
    actors, objects, _ = CASES["a writer, a leader, and its fence is gone"]
    with pytest.raises(AssertionError, match=r"lost|in the log twice"):
        _check(actors, objects)


def test_a_fence_without_the_confirming_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(view: PartitionView) -> Program[tuple[PartitionView, bool]]:
        yield from ()
        return view, False

    monkeypatch.setattr(leader_append, "newer_manifest", believe)
    actors, objects, _ = CASES["two leaders race for a fence that is taken in"]
    with pytest.raises(AssertionError, match=r"lost|other records than its leader"):
        _check(actors, objects)


def test_leader_without_predecessor_and_fence_is_found() -> None:
    actors = [returner("r2", 2), leader("l3", 3, marks=False), writer("a", 1)]
    with pytest.raises(AssertionError, match="appended directly where a leader leads"):
        _check(actors, LED)


def test_model_finds_a_hand_back_under_a_deposed_leaders_epoch() -> None:
    """The metadata comes first: else a writer gets in where the successor gives out offsets."""
    successor = flusher("l2", LED_VIEW, {0: 2}, [1], 2)
    with pytest.raises(AssertionError, match="other records than its leader"):
        _check([returner("r1", 1), successor, writer("a", 1)], LED)


def test_fence_is_put_once_for_any_number_of_tries() -> None:
    twins = [leader("l1", 1, records=0), leader("l1", 1, records=0)]
    _check(twins, lost_replies=1, late_puts=1)
