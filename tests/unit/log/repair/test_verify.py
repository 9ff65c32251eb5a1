"""Verification of a partition: damage is reported object by object, with the lost records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.core.config.topic import parse_topic_configs
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.repair.findings import DamageKind, Verified
from sparklog.log.repair.verify import verify
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, numbered, open_partition
from tests.harness.wire_batches import put_unreadable


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("verify")


@pytest.fixture
def log(store: MemoryStore) -> PartitionLog:
    """Four segments of three records: two in a manifest, one staged, one in the chain."""
    log = open_partition(store)
    log.append([numbered(0, 3)])
    log.append_staged([log.stage([numbered(3, 3)])])
    log.absorb_tail()
    log.append([numbered(6, 3)])
    log.append([numbered(9, 3)])
    return log


Look = Callable[..., Verified]


@pytest.fixture
def look(store: MemoryStore, pool: ThreadPoolExecutor) -> Look:
    def verified(deep: bool = True) -> Verified:
        return verify(store, LAYOUT, pool, deep=deep, now_ms=1 << 42)

    return verified


def damage(store: MemoryStore, name: str, at: int | bytes) -> None:
    key = LAYOUT.key(name)
    data = bytearray(store.get(key))
    data[data.index(at) if isinstance(at, bytes) else at] ^= 0xFF
    store.put(key, bytes(data))


def test_a_whole_partition_is_whole(log: PartitionLog, look: Look) -> None:
    found = look()
    assert (found.damages, found.foreign) == ((), ())
    assert (found.objects, found.rows, found.end_offset) == (4, 12, 12)
    # The reference segment, whose object the manifest names by now.
    assert found.orphans == 1


def test_damaged_records_are_found_by_a_deep_look(
    log: PartitionLog, store: MemoryStore, look: Look
) -> None:
    damage(store, LAYOUT.chain_name(0), b"value-0")
    assert look(deep=False).damages == ()
    (one,) = look().damages
    assert (one.lost_base, one.lost_end) == (0, 3)
    assert one.object == LAYOUT.key(LAYOUT.chain_name(0))
    assert look().rows == 9


def test_a_damaged_footer_and_a_missing_object_are_found_by_any(
    log: PartitionLog, store: MemoryStore, look: Look
) -> None:
    staged = next(e.object for e in log.view().entries if e.object.startswith("staged"))
    store.delete(LAYOUT.key(staged))
    damage(store, LAYOUT.chain_name(0), b'"rows"')
    found = look(deep=False).damages
    assert [(d.lost_base, d.lost_end) for d in found] == [(0, 3), (3, 6)]


def test_hole_in_the_chain_reports_unreachable_objects(
    log: PartitionLog, store: MemoryStore, look: Look
) -> None:
    damage(store, LAYOUT.chain_name(6), -1)
    (cut,) = look().damages
    assert (cut.lost_base, cut.lost_end) == (6, 9)
    assert "1 segments after it" in cut.what
    store.delete(LAYOUT.key(LAYOUT.chain_name(6)))
    (gone,) = look().damages
    assert (gone.lost_base, gone.lost_end) == (6, 9)
    assert "hole" in gone.what


def test_a_damaged_manifest_loses_no_record(
    log: PartitionLog, store: MemoryStore, look: Look
) -> None:
    damage(store, LAYOUT.manifest_name(1), 20)
    (one,) = look().damages
    assert one.lost_base == one.lost_end
    assert look().rows == 12


def test_foreign_names_are_reported(log: PartitionLog, store: MemoryStore, look: Look) -> None:
    store.put(LAYOUT.key("log/notes.txt"), b"mine")
    assert look().foreign == (LAYOUT.key("log/notes.txt"),)


def test_a_led_and_compacted_partition_is_whole(
    store: MemoryStore, pool: ThreadPoolExecutor, log: PartitionLog, look: Look
) -> None:
    policy = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))
    run(take_leadership(PartitionView(LAYOUT), 3, "3" * 32), store)
    done = Compactor(store, LAYOUT, policy, Encoding("zstd"), pool).compact()
    assert done is not None
    found = look()
    assert found.damages == ()
    assert (found.rows, found.end_offset) == (7, 12)


def test_unreadable_batch_is_named_and_the_rest_is_whole(store: MemoryStore, look: Look) -> None:
    put_unreadable(store, LAYOUT)
    for found in (look(), look(deep=False)):
        (one,) = found.damages
        assert (one.kind, one.lost_base, one.lost_end, one.rows) == (DamageKind.UNREAD, 0, 2, 2)
        assert "acknowledged by an older version" in one.what
        assert (found.rows, found.orphans) == (1, 0)
