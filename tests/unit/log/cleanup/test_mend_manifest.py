"""Repair of a damaged manifest: when an older one may take its place, and when it may not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import DataCorrupt
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.garbage import GarbageRules, find_garbage
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.append import Candidate, append
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.schema import normalized
from sparklog.log.segment.builder import build_records
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, numbered
from tests.harness.object_damage import look, mended

COLD = PartitionView(LAYOUT)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def collect(store: MemoryStore, clock: ManualClock) -> None:
    """Delete what retention would, long after everything happened."""
    clock.sleep_s(20 * 86_400)
    listed = list(store.list(LAYOUT.folder))
    rules = GarbageRules(clock.now_ms(), 60_000)
    for info in run(find_garbage(run(refresh(COLD), store), listed, rules), store).doomed:
        store.delete(info.key)


def assert_no_repair_takes_offsets_again(
    store: MemoryStore, clock: ManualClock, pool: ThreadPoolExecutor
) -> None:
    """The damaged manifest alone says where the log ends: it must stay so."""
    assert mended(store, look(store, clock, pool), clock, pool) == []
    with pytest.raises(DataCorrupt, match="the newest manifest cannot be read"):
        PartitionLog(store, LAYOUT, clock=clock, pool=pool).append([numbered(99, 1)])


def test_a_damaged_manifest_is_left_when_all_it_covered_was_deleted(
    pool: ThreadPoolExecutor,
) -> None:
    clock = ManualClock()
    store = MemoryStore("trimmed", clock)
    log = PartitionLog(store, LAYOUT, clock=clock, pool=pool)
    for number in range(4):
        log.append([numbered(number, 1)])
    log.delete_records(-1)
    collect(store, clock)
    assert not list(store.list(LAYOUT.chain_prefix))
    store.put(LAYOUT.key(LAYOUT.manifest_name(1)), b"damaged")
    assert_no_repair_takes_offsets_again(store, clock, pool)


def test_damaged_manifest_stays_if_a_late_append_took_its_offsets(
    pool: ThreadPoolExecutor,
) -> None:
    clock = ManualClock()
    store = MemoryStore("merged", clock)
    late = PartitionLog(store, LAYOUT, clock=clock, pool=pool)
    late.append([numbered(0, 1)])
    view = late.absorb_tail()
    log = PartitionLog(store, LAYOUT, clock=clock, pool=pool)
    for number in range(1, 9):
        log.append([numbered(number, 1)])
    log.absorb_tail()
    policy = CompactionPolicy.of(parse_topic_configs({}))
    Compactor(store, LAYOUT, policy, Encoding("lz4"), pool, clock=clock).merge()
    collect(store, clock)
    for version in (2, 3):
        store.put(LAYOUT.key(LAYOUT.manifest_name(version)), b"damaged")
    clock.sleep_s(1)
    draft = build_records(LAYOUT, [normalized(numbered(50, 20), 0)], "c" * 32, codec="none")
    with pytest.raises(DataCorrupt, match="the newest manifest cannot be read"):
        run(append(view, Candidate(draft)), store)
    assert_no_repair_takes_offsets_again(store, clock, pool)
