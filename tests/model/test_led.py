"""Leaders and direct writers of one partition, model-checked in every order, with every fault.

Beside what `log_actors` tells, in each state:
  - between a leader's mark and the next hand-back nobody has appended directly;
  - what a leader believes flushed is in the log, and every offset has the record that the leaders
    agreed on, whoever flushed it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from sparklog.core.errors import Fenced, NotServing, OutcomeUnknown
from sparklog.log import flush as flush_module
from sparklog.log import manifest_change
from sparklog.log.effects import Protocol, run
from sparklog.log.flush import flush_at
from sparklog.log.led import hand_back, take_lead
from sparklog.log.manifest import Manifest
from sparklog.log.refresh import refresh
from sparklog.log.segment import Segment
from sparklog.log.view import PartitionView
from sparklog.log.wire_segment import FlushDraft
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
    merger,
    reader,
    writer,
)


@cache
def _flush_draft(base: int, length: int, epoch: int, nonce: str) -> FlushDraft:
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
    )
    return FlushDraft(segment, file(segment), length)


def _flushing(
    done: Callable[[Any], None],
    view: PartitionView,
    name: str,
    epochs: dict[int, int],
    portions: list[int],
    leader_epoch: int,
) -> Protocol[PartitionView]:
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

    def start(done: Callable[[Any], None]) -> Protocol[None]:
        yield from _flushing(done, view, name, epochs, portions, epoch)

    return Actor(name, start)


def leader(name: str, epoch: int, records: int = 1, *, marks: bool = True) -> Actor:
    """Is elected when nobody led: puts its mark, then flushes records of its own."""

    def start(done: Callable[[Any], None]) -> Protocol[None]:
        if marks:
            view = yield from take_lead(COLD, epoch, f"{name}-led")
        else:
            view = yield from refresh(COLD)
        first = view.end_offset
        done(("leads from", first))
        if records:
            epochs = {first + i: epoch for i in range(records)}
            yield from _flushing(done, view, name, epochs, [1] * records, epoch)

    return Actor(name, start)


def returner(name: str, epoch: int) -> Actor:
    """Hands the partition back to direct writers."""

    def start(done: Callable[[Any], None]) -> Protocol[None]:
        view = yield from hand_back(COLD, epoch, f"{name}-unled")
        done(("handed back", view.end_offset))

    return Actor(name, start)


class LedChecker(Checker):
    """Knows leaders by their nonces: NAME-led, NAME-unled, NAME-EPOCH@OFFSET."""

    allowed = (OutcomeUnknown, NotServing, Fenced)

    def check_log(self, log: dict[int, str]) -> None:
        marks = [nonce for nonce in log.values() if "@" not in nonce]
        assert len(marks) == len(set(marks)), f"an append is in the log twice: {log}"
        led = False
        for _, nonce in sorted(log.items()):
            if nonce.endswith("-unled"):
                led = False
            elif "-" in nonce:
                led = True
            else:
                assert not led, f"a direct append amid a leader's records: {log}"

    def judge(self, report: Any, view: PartitionView, log: dict[int, str]) -> None:
        if isinstance(report, PartitionView) or report[0] not in {
            "flushed",
            "leads from",
            "handed back",
        }:
            super().judge(report, view, log)
            return
        what, offset = report
        assert offset <= view.end_offset, f"{what} {offset} is beyond the log: {log}"
        if what == "leads from" and offset in log:
            assert "@" in log[offset], f"another's record where a leader begins: {offset} in {log}"


def _prepared(*protocols: Protocol[Any]) -> tuple[Objects, PartitionView]:
    """Return what a store holds after these, and the view of it."""
    store = MemoryStore("model")
    for protocol in protocols:
        run(protocol, store)
    view = run(refresh(COLD), store)
    return tuple((info.key, store.get(info.key)) for info in store.list("")), view


LED, LED_VIEW = _prepared(take_lead(COLD, 1, "l1-led"))
"""A partition with the first leader's mark at offset 0."""
TRUTH = {1: 1, 2: 1, 3: 2}
"""Epochs of the records that both leaders hold, the second as it took over from the first."""


def _check(actors: list[Actor], objects: Objects = (), **budget: int) -> int:
    states, checker = explore(actors, LedChecker, objects, **budget)
    assert checker.finals > 0
    return states


CASES: dict[str, tuple[list[Actor], Objects, dict[str, int]]] = {
    "a direct writer and a leader": ([writer("a", 2), leader("l1", 1)], (), {}),
    "two direct writers and a leader": (
        [writer("a", 1), writer("b", 1), leader("l1", 1, records=0)],
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
        {"lost_replies": 1},
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
            flusher("l1", LED_VIEW, {1: 1, 2: 1}, [2], 1),
            flusher("l2", LED_VIEW, TRUTH, [1, 1, 1], 2),
        ],
        LED,
        {"lost_replies": 1, "late_puts": 1},
    ),
    "two leaders flush the same beside a merge": (
        [
            flusher("l1", LED_VIEW, {1: 1, 2: 1}, [2], 1),
            flusher("l2", LED_VIEW, TRUTH, [1, 1, 1], 2),
            merger(),
        ],
        LED,
        {},
    ),
    "a leader flushes beside a merge and a reader": (
        [flusher("l1", LED_VIEW, {1: 1, 2: 1}, [1, 1], 1), merger(), reader(LED_VIEW)],
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
    with pytest.raises(AssertionError, match=r"direct append amid|another's record"):
        _check([writer("a", 1), leader("l1", 1)])


def test_a_manifest_that_forgets_the_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = manifest_change.with_tail

    def forgetful(view: PartitionView, expired_before_ms: int) -> Manifest:
        manifest = keep(view, expired_before_ms)
        return Manifest(
            end_offset=manifest.end_offset,
            entries=manifest.entries,
            leader_epoch=manifest.leader_epoch,
        )

    monkeypatch.setattr(manifest_change, "with_tail", forgetful)
    with pytest.raises(AssertionError, match=r"direct append amid|another's record"):
        _check([writer("a", 1), leader("l1", 1), absorber()])


def test_a_flush_without_the_confirming_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(view: PartitionView) -> Protocol[tuple[PartitionView, bool]]:
        yield from ()
        return view, False

    monkeypatch.setattr(flush_module, "newer_manifest", believe)
    actors, objects, _ = CASES["two leaders flush the same beside a merge"]
    with pytest.raises(AssertionError, match="is beyond the log"):
        _check(actors, objects)


def test_a_leader_that_follows_nobody_without_a_mark_of_its_own_is_found() -> None:
    actors = [returner("r2", 2), leader("l3", 3, marks=False), writer("a", 1)]
    with pytest.raises(AssertionError, match="another's record"):
        _check(actors, LED)


def test_a_deposed_leader_that_hands_back_under_its_own_epoch_is_found() -> None:
    """The metadata comes first: a mark under the old epoch takes the successor's place."""
    successor = flusher("l2", LED_VIEW, {1: 2}, [1], 2)
    with pytest.raises(AssertionError, match="other records than its leader"):
        _check([returner("r1", 1), successor], LED)


def test_the_mark_is_put_once_however_often_it_is_tried() -> None:
    twins = [leader("l1", 1, records=0), leader("l1", 1, records=0)]
    _check(twins, lost_replies=1, late_puts=1)
