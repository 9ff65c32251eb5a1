"""A damaged fence: repaired where what follows can be read, else given up by the leader."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.types import OffsetRange
from sparklog.log.effects import run
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import hand_back, take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.repair.drop_damaged import Dropper, LeadNow
from sparklog.log.repair.findings import DamageKind
from sparklog.log.repair.repair import Repair
from sparklog.log.repair.verify import Findings
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, numbered
from tests.harness.object_damage import PLAIN, look, mended

COLD = PartitionView(LAYOUT)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


@pytest.mark.parametrize("gone", [False, True])
def test_damaged_fence_is_skipped_before_a_readable_segment(
    pool: ThreadPoolExecutor, gone: bool
) -> None:
    clock = ManualClock()
    store = MemoryStore("fence", clock)
    view = run(take_leadership(COLD, 4, "a" * 32), store)
    run(take_leadership(view, 5, "b" * 32), store)
    whole = run(hand_back(view, 6, "c" * 32), store)
    _, second, last = whole.tail

    def harm(name: str) -> Findings:
        store.delete(LAYOUT.key(name)) if gone else store.put(LAYOUT.key(name), b"damaged")
        return look(store, clock, pool)

    found = harm(second.name)
    (damage,) = found.damages
    assert (damage.kind, damage.lost_base, damage.lost_end, damage.rows) == (
        DamageKind.CHAIN,
        0,
        0,
        0,
    )
    (done,) = mended(store, found, clock, pool)
    assert done.object == LAYOUT.key(second.name)
    after = look(store, clock, pool)
    assert after.damages == ()
    assert (after.view.position, after.view.tail[0].name) == (whole.position, last.name)
    assert (after.view.is_led, after.view.leader_epoch) == (False, 6)
    assert PartitionLog(store, LAYOUT, pool=pool).append([numbered(0, 1)]).base_offset == 0


def test_damaged_fence_before_another_is_given_up_by_the_leader(
    pool: ThreadPoolExecutor,
) -> None:
    clock = ManualClock()
    store = MemoryStore("fences", clock)
    view = run(take_leadership(COLD, 4, "a" * 32), store)
    view = run(take_leadership(view, 5, "b" * 32), store)
    for one in view.tail:
        store.put(LAYOUT.key(one.name), b"damaged")
    found = look(store, clock, pool)
    assert mended(store, found, clock, pool) == []
    repair = Repair(store, found, pool, PLAIN, dry_run=False)
    Dropper(repair, LeadNow(True, 5)).drop([OffsetRange(0, 0)])
    after = look(store, clock, pool)
    assert (after.view.position, after.view.is_led, after.view.leader_epoch) == ((0, 1), True, 5)
