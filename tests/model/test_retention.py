"""Retention and the deletion of objects, model-checked beside appends, merges and readers.

A stalled appender may put a name that was deleted meanwhile; a reader may hold an old manifest.
The invariants of each state are in `log_actors`. In the model no time passes. With a delay of 0
everything below the boundary is deleted. With 1 every object that a manifest ever named is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.log.cleanup.garbage import GarbageRules, find_garbage, list_folder
from sparklog.log.effects import Program, delete
from sparklog.log.manifest.change import change, with_tail
from sparklog.log.manifest.manifest import Manifest, with_log_start
from sparklog.log.manifest.refresh import read_segment, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.segment import CommitKey
from tests.model.broken import skip_the_confirming_look
from tests.model.explorer import Actor, State
from tests.model.log_actors import COLD, LAYOUT, Checker, absorber, explore, merger, reader, writer


def retainer(nonce: str = "d" * 32, keep: int = 0, delay_ms: int = 0) -> Actor:
    """Removes all segments but the last `keep`, then deletes unneeded objects."""

    def plan(view: PartitionView) -> Manifest | None:
        gone = view.entries[: len(view.entries) - keep]
        if not gone or gone[-1].end_offset <= view.log_start_offset:
            return None
        return with_log_start(with_tail(view, 0), gone[-1].end_offset)

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from change(COLD, plan, nonce)
        listed = yield from list_folder(LAYOUT)
        view = yield from refresh(view)
        found = yield from find_garbage(view, listed, GarbageRules(0, delay_ms))
        for info in found.doomed:
            yield from delete(info.key)

    return Actor("retainer", start)


def collector(delay_ms: int = 0, orphan_age_ms: int = 1) -> Actor:
    """Deletes what nothing needs, beside those who change the manifest."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        listed = yield from list_folder(LAYOUT)
        view = yield from refresh(COLD)
        found = yield from find_garbage(view, listed, GarbageRules(0, delay_ms, orphan_age_ms))
        for info in found.doomed:
            yield from delete(info.key)

    return Actor("collector", start)


def slow_reader() -> Actor:
    """Looks at the log, then reads object after object."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from refresh(COLD)
        for entry in view.entries:
            found = yield from read_segment(LAYOUT, entry.object)
            done(entry.object if found is None else None)

    return Actor("slow reader", start)


class OffsetChecker(Checker):
    """Besides: no offset is acknowledged to two appends, were it below the log start by now."""

    def __call__(self, state: State, final: bool) -> None:
        super().__call__(state, final)
        acknowledged: dict[int, str] = {}
        for actor, history in enumerate(state.histories):
            for report in self.explorer.standing(actor, history).reports:
                if isinstance(report, tuple) and not report[1].repeated:
                    nonce, got = report
                    first = acknowledged.setdefault(got.base_offset, nonce)
                    assert first == nonce, f"offset {got.base_offset} acknowledged twice"


class ReaderChecker(Checker):
    """Besides: no reader finds an object gone that its manifest names."""

    def judge(self, report: Any, view: PartitionView, log: dict[int, str]) -> None:
        if report is None or isinstance(report, str):
            assert report is None, f"a reader within the delay misses {report}"
            return
        super().judge(report, view, log)


CASES: dict[str, tuple[list[Actor], dict[str, int]]] = {
    "two writers and a retainer": ([writer("a", 1), writer("b", 1), retainer()], {}),
    "a writer of two and a retainer that keeps one": (
        [writer("a", 2), writer("b", 1), retainer(keep=1)],
        {},
    ),
    "a writer with a lost reply and a retainer": (
        [writer("a", 2), retainer()],
        {"lost_replies": 1, "crashes": 1},
    ),
    "a put that arrives late and a retainer": (
        [writer("a", 1), writer("b", 1), retainer(keep=1)],
        {"late_puts": 1},
    ),
    "a writer and two retainers": (
        [writer("a", 2), retainer(), retainer("e" * 32, keep=1)],
        {},
    ),
    "a writer, a merge and a collector": ([writer("a", 2), merger(), collector()], {}),
    "a writer, an absorber and a collector": (
        [writer("a", 2), absorber(), collector()],
        {},
    ),
    "a reader beside a writer and a retainer": (
        [writer("a", 2), retainer(keep=1), reader()],
        {"crashes": 1},
    ),
    "one commit key, two writers and a retainer": (
        [
            writer("a", 1, key=CommitKey("q", 7)),
            writer("b", 1, key=CommitKey("q", 7)),
            retainer(),
        ],
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_interleaving_keeps_acknowledged_appends_once(case: str) -> None:
    actors, budget = CASES[case]
    states, checker = explore(actors, OffsetChecker, (), **budget)
    assert checker.finals > 0
    print(f"{case}: {states} states, {checker.finals} ends")


def readers_case(delay_ms: int) -> list[Actor]:
    return [writer("a", 2), retainer(keep=1, delay_ms=delay_ms), slow_reader()]


def test_a_reader_with_an_old_manifest_finishes_within_the_delay() -> None:
    _, checker = explore(readers_case(1), ReaderChecker)
    assert checker.finals > 0


def test_model_finds_a_broken_reader_without_the_delay() -> None:
    with pytest.raises(AssertionError, match="misses"):
        explore(readers_case(0), ReaderChecker)


def test_model_finds_a_lost_append_without_the_confirming_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_the_confirming_look(monkeypatch)
    with pytest.raises(AssertionError, match="twice"):
        explore([writer("a", 1), writer("b", 2), retainer(keep=1)], OffsetChecker)


def test_model_finds_a_dangling_merge_without_an_age_for_orphans() -> None:
    with pytest.raises(AssertionError, match="missing object"):
        explore([writer("a", 2), merger(), collector(orphan_age_ms=-1)])
