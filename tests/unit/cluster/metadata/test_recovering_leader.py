"""A leader deposed before it had recovered: the next leader fences the log before it serves."""

from __future__ import annotations

import pytest

from sparklog.cluster.controller.election import led_by
from sparklog.cluster.metadata.image import PartitionState
from sparklog.core.errors import Fenced
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.tail.to_segment import FlushBuilder, build_flush
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT
from tests.harness.wire_batches import produced


def drafted(base_offset: int, leader_epoch: int) -> FlushBuilder:
    data = produced([1, 2], base_offset=base_offset, leader_epoch=leader_epoch).data
    return build_flush(LAYOUT, [data], f"{leader_epoch:032x}", codec="lz4")


def test_new_leader_does_not_fence_the_log_after_a_recovered_one() -> None:
    served = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4)
    assert not led_by(served, 2, (2,)).take_lead


@pytest.mark.parametrize(
    "before",
    [
        PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, recovering=True),
        PartitionState(replicas=(1, 2)),
        PartitionState(replicas=(1, 2), leader=1, leader_epoch=1, recovering=True, take_lead=True),
    ],
)
def test_new_leader_fences_the_log_after_an_unrecovered_one(
    before: PartitionState,
) -> None:
    assert led_by(before, 2, (2,)).take_lead


def test_late_recovery_of_a_deposed_leader_is_fenced() -> None:
    store = MemoryStore("memory://late")
    view = run(take_leadership(PartitionView(LAYOUT), 1, "a" * 32), store)
    view = run(flush_at(view, drafted(0, 1), 1), store)
    # Epoch 2 found records of epoch 1 beyond the log in its replica, and is paused before its put.
    late = drafted(2, 1)
    newer = run(refresh(view), store)
    newer = run(take_leadership(newer, 3, "c" * 32), store)
    with pytest.raises(Fenced):
        run(flush_at(view, late, 2), store)
    served = run(flush_at(newer, drafted(2, 3), 3), store)
    assert served.end_offset == 4


def test_early_recovery_of_a_deposed_leader_precedes_the_fence() -> None:
    store = MemoryStore("memory://in-time")
    view = run(take_leadership(PartitionView(LAYOUT), 1, "a" * 32), store)
    run(flush_at(view, drafted(0, 1), 2), store)
    marked = run(take_leadership(view, 3, "c" * 32), store)
    assert marked.position == (2, 1)
    assert marked.leader_epoch == 3
