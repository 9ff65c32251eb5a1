"""Swaps of rewritten objects, model-checked beside appends, trims, deletion and each other.

The invariants of each state are in `log_actors`. A rewriter here copies everything into one
object, as a merge or a compaction does, and publishes it by the product's own swap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparklog.log.effects import Program, create
from sparklog.log.manifest.change import Replacement, absorb_tail, change, raise_log_start, swap
from sparklog.log.manifest.manifest import REWRITTEN_NONCE, Cleaning, Entry, Manifest
from sparklog.log.manifest.refresh import read_segment
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.segment import Append, Segment
from tests.model.explorer import Actor
from tests.model.log_actors import COLD, LAYOUT, PART, explore, file, index, reader, writer
from tests.model.test_retention import OffsetChecker, collector


def rewriter(nonce: str) -> Actor:
    """Makes one object of all there is, and publishes it, cleaned up to its end."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from change(COLD, absorb_tail(1, 0), nonce)
        old = view.manifest.entries
        if not old:
            return
        appends: list[Append] = []
        for entry in old:
            found = yield from read_segment(LAYOUT, entry.object)
            if found is None:
                return  # another was faster
            one = Append(entry.base_offset, entry.end_offset, 0, found[0].nonce)
            appends.extend(found[0].appends or [one])
        base, end = old[0].base_offset, old[-1].end_offset
        name = LAYOUT.rewritten_name(base, nonce)
        segment = Segment(LAYOUT.topic_id, 0, base, end, end - base, nonce, appends=tuple(appends))
        head = (PART.head.length, PART.head.crc)
        data = file(replace(segment, head=head, batches=index(end - base)))
        yield from create(LAYOUT.key(name), data)
        new = Entry(base, end, name, len(data), end - base, -1, -1, 0, REWRITTEN_NONCE)
        plan = swap([Replacement(old, (new,))], Cleaning(end, 7))
        yield from change(view, plan, nonce)

    return Actor(f"rewriter {nonce[0]}", start)


def trimmer(offset: int) -> Actor:
    def plan(view: PartitionView) -> Manifest | None:
        return raise_log_start(min(offset, view.end_offset))(view)

    def start(done: Callable[[Any], None]) -> Program[None]:
        yield from change(COLD, plan, "d" * 32)

    return Actor("trimmer", start)


A, B = "e" * 32, "f" * 32
CASES: dict[str, tuple[list[Actor], dict[str, int]]] = {
    "a writer and two rewriters": ([writer("a", 1), rewriter(A), rewriter(B)], {}),
    "two appends and two rewriters": ([writer("a", 2), rewriter(A), rewriter(B)], {}),
    "a writer, a rewriter and a collector": ([writer("a", 2), rewriter(A), collector()], {}),
    "a writer, a rewriter and a trim": ([writer("a", 2), rewriter(A), trimmer(1)], {}),
    "a rewriter that dies, and a reader": (
        [writer("a", 1), rewriter(A), reader()],
        {"crashes": 1, "lost_replies": 1},
    ),
}


SLOW = {"two appends and two rewriters", "a writer, a rewriter and a trim"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.soak) if c in SLOW else c for c in CASES]
)
def test_every_interleaving_keeps_acknowledged_appends_once(case: str) -> None:
    actors, budget = CASES[case]
    states, checker = explore(actors, OffsetChecker, (), **budget)
    assert checker.finals > 0
    print(f"{case}: {states} states, {checker.finals} ends")
