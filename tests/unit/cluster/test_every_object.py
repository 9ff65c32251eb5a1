"""One object of a log is flipped, cut, emptied or deleted: whichever it is, no harm spreads.

Records that are returned are right, no offset is given out twice, and nothing else is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

from sparklog.cluster import orphans
from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import create_snapshot, snapshot_records
from sparklog.cluster.publication import StagedPartition, publish
from sparklog.cluster.usage_reports import UsageReport, encode_usage, sum_up, usage_day
from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_stored_topic_configs
from sparklog.core.counters import RequestCount
from sparklog.core.errors import SparklogError
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.garbage import ORPHAN_AGE_MS
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.layout import usage_key, usage_sum_key
from sparklog.spark.jobs.partition_tasks import with_pins, work_on
from sparklog.spark.jobs.retain import RetainJob, delete_all, retained_by, with_unpublished
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import numbered

APPENDS = 12
RECORDS = 2 * APPENDS + 2
EXPECTED = [b"value-%d" % number for number in range(2 * APPENDS)] + [b"staged-0", b"staged-1"]

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4])
    + data[len(data) // 2 + 1 :],
    "cut": lambda data: data[: len(data) // 2],
    "zeroed": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "deleted": lambda data: None,
}  # fmt: skip


def build(clock: ManualClock) -> MemoryStore:
    """Return a store with one of every kind of object that a log without brokers has."""
    store = MemoryStore("every", clock)
    log = Log(store, clock=clock)
    log.create_topic("t", 1, configs={"retention.ms": "-1"})
    place = log.partition("t", 0)
    for number in range(APPENDS):
        place.append([numbered(2 * number, 2)])
        if number == 8:
            place.absorb_tail()
            with ThreadPoolExecutor(2) as pool:
                policy = CompactionPolicy.of(parse_stored_topic_configs({}))
                merging = Compactor(store, place.layout, policy, Encoding("lz4"), pool, clock=clock)
                assert merging.merge() is not None
        if number == 10:
            place.absorb_tail()
            create_snapshot(log, "s", ["t"], clock=clock)
    batch = pa.RecordBatch.from_pydict({"value": [b"staged-0", b"staged-1"]})
    staged = place.stage([batch])
    publish(log, "q", 0, [StagedPartition("t", place.layout.topic_id, 0, (staged,))], clock=clock)
    log.close()
    report = encode_usage(UsageReport({"sparklog get": {("get", "t"): RequestCount(2, 20)}}))
    store.put(usage_sum_key(usage_day(clock.now_ms(), 1)), report)
    store.put(usage_key(usage_day(clock.now_ms()), "ab" * 16, 0), report)
    return store


def copy_of(store: MemoryStore, clock: ManualClock) -> MemoryStore:
    copy = MemoryStore("copy", clock)
    for info in store.list(""):
        copy.put(info.key, store.get(info.key))
    return copy


def values(log: Log, end: int) -> list[bytes]:
    batches = log.partition("t", 0).read(0, end, ("value",))
    return [value for one in batches for value in one.column("value").to_pylist()]


def upkeep(log: Log, clock: ManualClock) -> None:
    """Have retention delete what it may, long after everything happened."""
    for _ in range(2):
        clock.sleep_s(2 * ORPHAN_AGE_MS / 1000)
        records = run(orphans.publication_records(clock.now_ms()), log.store)
        works = with_unpublished(work_on(log.topics().values()), records)
        for work in with_pins(works, run(snapshot_records(), log.store)):
            retained_by(RetainJob(root="memory://every"), clock)(log, work)
        delete_all(log.store, run(sum_up(clock.now_ms()), log.store).doomed)


def keys() -> list[str]:
    return sorted(info.key for info in build(ManualClock()).list(""))


def test_the_log_has_every_kind_of_object() -> None:
    kinds = {"/log/", "/manifest/", "/staged/", "/pinned/", "commits/", "snapshots/", "usage/"}
    found = keys()
    assert {kind for kind in kinds if any(kind in key for key in found)} == kinds
    assert any("__cluster_metadata" in key for key in found)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_of_one_object_does_not_spread(damage: str) -> None:
    clock = ManualClock()
    whole = build(clock)
    names = sorted(info.key for info in whole.list(""))
    for key in names:
        now = ManualClock()
        store = copy_of(whole, now)
        data = DAMAGE[damage](whole.get(key))
        if data is None:
            store.delete(key)
        else:
            store.put(key, data)
        check(store, whole, now, key)


def check(store: MemoryStore, whole: MemoryStore, clock: ManualClock, key: str) -> None:
    for end in range(1, RECORDS + 1):
        try:
            found = values(Log(store, clock=clock), end)
        except SparklogError:
            continue
        assert found == EXPECTED[:end], f"wrong records: {key}"
    try:
        appended = Log(store, clock=clock).partition("t", 0).append([numbered(99, 1)])
    except SparklogError:
        pass
    else:
        assert appended.base_offset >= RECORDS or is_newest(key), f"an offset twice: {key}"
        return
    with suppress(SparklogError):
        upkeep(Log(store, clock=clock), clock)
    store.put(key, whole.get(key))
    healed = Log(store, clock=clock)
    assert values(healed, RECORDS) == EXPECTED, f"something else was deleted: {key}"


@pytest.mark.parametrize("damage", DAMAGE)
def test_upkeep_beside_one_damaged_object_deletes_nothing_more(damage: str) -> None:
    whole = build(ManualClock())
    before = {info.key for info in whole.list("")}
    usual = deleted_by_upkeep(whole, before)
    for key in sorted(before):
        store = copy_of(whole, ManualClock())
        data = DAMAGE[damage](whole.get(key))
        if data is None:
            store.delete(key)
        else:
            store.put(key, data)
        more = deleted_by_upkeep(store, before - {key}) - usual
        if damage == "deleted" and key.startswith("snapshots/"):
            assert all("/pinned/" in name for name in more), "a snapshot is dropped in this way"
        elif damage == "deleted" and is_newest(key):
            assert all("/staged/" in name for name in more), "it named no other object"
        else:
            assert not more, f"deleted beside {key}"


def deleted_by_upkeep(store: MemoryStore, before: set[str]) -> set[str]:
    """Return which of the objects upkeep deletes from a copy of the store."""
    clock = ManualClock()
    copy = copy_of(store, clock)
    with suppress(SparklogError):
        upkeep(Log(copy, clock=clock), clock)
    return before - {info.key for info in copy.list("")}


def is_newest(key: str) -> bool:
    """Return True if no other object of the log reveals the loss of this object of its chain."""
    return key.endswith(f"/log/{2 * APPENDS:020d}.arrow")
