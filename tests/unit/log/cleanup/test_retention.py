"""Retention: the records that it removes, and the objects that it deletes after them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import DataCorrupt
from sparklog.log.cleanup.garbage import (
    DAY_MS,
    ORPHAN_AGE_MS,
    Garbage,
    GarbageRules,
    find_garbage,
    list_folder,
)
from sparklog.log.cleanup.record_age import WrittenTimes, newest_ms, oldest_ms
from sparklog.log.cleanup.retention import RetentionPolicy, raise_to_retained, retained_start
from sparklog.log.effects import run
from sparklog.log.manifest.change import VERSIONS_KEPT, change
from sparklog.log.manifest.manifest import Entry, Manifest, encode
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from tests.harness.log_records import LAYOUT, batch, numbered, values

DELAY_MS = 60_000
COLD = PartitionView(LAYOUT)


def policy(**settings: object) -> RetentionPolicy:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return RetentionPolicy.of(parse_topic_configs(given))


def entry(base: int, end: int, size: int = 10, oldest: int = 0, newest: int = 0) -> Entry:
    return Entry(base, end, f"log/{base:020d}.arrow", size, end - base, oldest, newest, 0, "n")


def view_of(*entries: Entry, log_start: int = 0) -> PartitionView:
    end = entries[-1].end_offset
    return PartitionView(LAYOUT, Manifest(1, "n", log_start, end, entries))


def mark(at: int) -> Entry:
    return Entry(at, at + 1, f"log/{at:020d}.arrow", 5, 0, -1, -1, 1, "m")


def test_segments_go_while_their_newest_record_is_too_old() -> None:
    view = view_of(entry(0, 5, newest=100), entry(5, 9, newest=200), entry(9, 10, newest=300))
    by_time = policy(retention_ms=1000)
    assert [retained_start(view, by_time, now) for now in (1100, 1101, 1200, 1201)] == [0, 5, 5, 9]


def test_an_old_segment_behind_a_young_one_stays() -> None:
    view = view_of(entry(0, 5, newest=900), entry(5, 9, newest=1), entry(9, 10, newest=1))
    assert retained_start(view, policy(retention_ms=1000), 1500) == 0


@pytest.mark.parametrize("stamp", [-1, -1_000, -62_135_596_800_000])
def test_records_without_a_usable_time_are_as_old_as_their_object(stamp: int) -> None:
    """As in Kafka; they were deleted at once."""
    fresh, later = entry(0, 5, oldest=stamp, newest=stamp), entry(5, 6, newest=90_000)
    view = view_of(fresh, later)
    rules = policy(retention_ms=1000, segment_ms=1000)
    assert retained_start(view, rules, 60_000) == 0
    written = {fresh.object: 59_500, later.object: 90_000}
    assert retained_start(view, rules, 60_000, lambda e: written[e.object]) == 0
    assert retained_start(view, rules, 60_501, lambda e: written[e.object]) == 5
    alone = view_of(fresh)
    assert retained_start(alone, rules, 60_000, lambda e: written[e.object]) == 0
    assert retained_start(alone, rules, 60_501, lambda e: written[e.object]) == 5


def test_written_time_comes_from_the_store() -> None:
    clock = ManualClock(now_ms=5_000)
    store = MemoryStore("written", clock)
    log = PartitionLog(store, LAYOUT, clock=clock)
    log.append([batch([b"v"], timestamps_ms=[-1])])
    (one,) = log.view().entries
    written = WrittenTimes(store, LAYOUT)
    assert newest_ms(one, written) == oldest_ms(one, written) == 5_000
    assert newest_ms(entry(9, 10, newest=7), written) == 7
    gone = entry(8, 9, oldest=-1, newest=-1)
    assert newest_ms(gone, written) > 1 << 60, "what is gone is never old"


def test_newest_segment_expires_by_time_only_after_it_rolled() -> None:
    small = view_of(entry(0, 5, newest=100), entry(5, 9, oldest=150, newest=200))
    old = policy(retention_ms=1000, segment_ms=10_000)
    assert retained_start(small, old, 5_000) == 5
    assert retained_start(small, old, 10_150) == 9
    large = view_of(entry(0, 9, size=1 << 20, newest=200))
    assert retained_start(large, policy(retention_ms=1000, segment_bytes=1 << 20), 5_000) == 9


def test_entry_without_records_has_no_age() -> None:
    marked = view_of(mark(0), entry(1, 5, newest=100), mark(5))
    assert retained_start(marked, policy(retention_ms=10, segment_ms=10_000), 5_000) == 5
    assert retained_start(view_of(mark(0)), policy(retention_ms=10), 1 << 50) == 0


def test_the_oldest_go_while_the_rest_is_as_large_as_it_may_be() -> None:
    view = view_of(entry(0, 1), entry(1, 2), entry(2, 3), entry(3, 4))
    kept = {limit: retained_start(view, policy(retention_bytes=limit), 0) for limit in
            (-1, 40, 31, 30, 25, 20, 1, 0)}  # fmt: skip
    assert kept == {-1: 0, 40: 0, 31: 0, 30: 1, 25: 1, 20: 2, 1: 3, 0: 4}


def test_retention_removes_nothing_without_delete_in_the_policy() -> None:
    view = view_of(entry(0, 5), entry(5, 9), log_start=3)
    for kept in ("compact", ""):
        only = policy(cleanup_policy=kept, retention_bytes=0, retention_ms=0, segment_ms=1)
        assert retained_start(view, only, 1 << 50) == 3
    both = policy(cleanup_policy="compact,delete", retention_bytes=0)
    assert retained_start(view, both, 0) == 9


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.integers(0, 100)), min_size=1),
    st.integers(-1, 200),
    st.integers(-1, 100),
    st.integers(0, 200),
)
def test_retention_equals_kafkas_rule_segment_by_segment(
    shapes: list[tuple[int, int, int]], keep_bytes: int, keep_ms: int, now_ms: int
) -> None:
    entries = []
    for base, (rows, size, newest) in enumerate(shapes):
        entries.append(
            Entry(base, base + 1, "o", size, rows, newest if rows else -1,
                  newest if rows else -1, 0, "n")
        )  # fmt: skip
    rules = RetentionPolicy(True, keep_ms, keep_bytes, 1 << 20, 10, 0)
    start = retained_start(view_of(*entries), rules, now_ms)
    left = sum(e.size_bytes for e in entries[start:])
    if keep_bytes >= 0 and start < len(entries):
        assert left - entries[start].size_bytes < keep_bytes
    if keep_ms >= 0:
        first = next((e for e in entries[start:] if e.rows), None)
        if first is not None:
            is_newest = first is entries[-1]
            rolled = now_ms - first.min_timestamp_ms >= 10
            assert first.max_timestamp_ms >= now_ms - keep_ms or (is_newest and not rolled)
    for gone in entries[:start]:
        too_old = keep_ms >= 0 and gone.max_timestamp_ms < now_ms - keep_ms
        rest = sum(e.size_bytes for e in entries[gone.end_offset :])
        assert too_old or not gone.rows or (keep_bytes >= 0 and rest >= keep_bytes)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore("retention", clock)


@pytest.fixture
def log(store: MemoryStore, clock: ManualClock) -> PartitionLog:
    return PartitionLog(store, LAYOUT, clock=clock)


def look(store: MemoryStore, clock: ManualClock, **more: object) -> Garbage:
    rules = GarbageRules(clock.now_ms(), DELAY_MS, **more)  # type: ignore[arg-type]
    listed = run(list_folder(LAYOUT), store)
    return run(find_garbage(run(refresh(COLD), store), listed, rules), store)


def collect(store: MemoryStore, clock: ManualClock, **more: object) -> list[str]:
    found = look(store, clock, **more)
    for info in found.doomed:
        store.delete(info.key)
    return sorted(LAYOUT.relative(info.key) for info in found.doomed)


def test_objects_go_only_when_the_delay_is_over(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    for n in range(4):
        log.append([numbered(3 * n, 3)])
    log.absorb_tail()
    clock.sleep_s(3600)
    old = log.view()
    log.delete_records(7)
    for _ in range(2):
        assert collect(store, clock) == []
        assert len(list(log.read(0, 12, ("value",), view=old))) == 4
        clock.sleep_s(DELAY_MS / 2000)
    clock.sleep_s(0.001)
    assert collect(store, clock) == [LAYOUT.chain_name(0), LAYOUT.chain_name(3)]
    assert values(log, 7, 12) == [b"value-%d" % n for n in range(7, 12)]
    assert collect(store, clock) == []


def test_object_never_in_a_manifest_waits_as_long(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    log.append_staged([log.stage([numbered(0, 3)])])
    log.append([numbered(3, 2)])
    old = log.view()
    clock.sleep_s(3600)
    log.delete_records(5)
    assert collect(store, clock) == []
    assert len(list(log.read(0, 5, ("value",), view=old))) == 2
    clock.sleep_s(DELAY_MS / 1000 + 1)
    assert collect(store, clock) == [LAYOUT.chain_name(0), LAYOUT.chain_name(3)]
    # No manifest shows by now that the staged object was in the log: it goes as an orphan.
    assert look(store, clock).waiting == 1
    clock.sleep_s(ORPHAN_AGE_MS / 1000)
    assert len(collect(store, clock)) == 1


def test_old_staged_objects_are_deleted_unless_published(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    dead, decided, published = (log.stage([batch([b"%d" % n])]) for n in range(3))
    log.append_staged([published])
    clock.sleep_s(ORPHAN_AGE_MS / 1000 - 1)
    assert collect(store, clock, unpublished=frozenset([decided.object])) == []
    clock.sleep_s(2)
    assert collect(store, clock, unpublished=frozenset([decided.object])) == [dead.object]
    assert values(log, 0, 1) == [b"2"]
    log.absorb_tail()
    clock.sleep_s(DELAY_MS / 1000 + 1)
    # The reference segment is not needed where a manifest names what it points at.
    assert collect(store, clock, unpublished=frozenset([decided.object])) == [LAYOUT.chain_name(0)]
    assert values(log, 0, 1) == [b"2"]


def test_manifests_beyond_the_kept_versions_go(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    for n in range(VERSIONS_KEPT + 3):
        log.append([batch([b"%d" % n])])
        log.absorb_tail()
    # Left behind by a writer that died between its put and its delete, or came late.
    store.put(LAYOUT.key(LAYOUT.manifest_name(2)), b"stray")
    clock.sleep_s(DELAY_MS / 1000 + 1)
    assert collect(store, clock) == [LAYOUT.manifest_name(2)]


def test_no_object_is_deleted_while_manifests_do_not_show_its_use(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    log.append([numbered(0, 3)])
    log.append([numbered(3, 3)])
    log.absorb_tail()
    log.delete_records(3)
    for n in range(VERSIONS_KEPT + 1):
        log.append([batch([b"%d" % n])])
        log.absorb_tail()
    found = look(store, clock)
    assert not found.doomed
    assert "try again later" in found.problem
    clock.sleep_s(DELAY_MS / 1000 + 1)
    assert collect(store, clock) == [LAYOUT.chain_name(0)]


def test_a_damaged_manifest_in_use_keeps_everything(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    log.append([numbered(0, 3)])
    log.absorb_tail()
    log.delete_records(3)
    clock.sleep_s(3600)
    log.append([numbered(3, 1)])
    log.absorb_tail()
    store.put(LAYOUT.key(LAYOUT.manifest_name(2)), b"damaged")
    assert "run verify" in look(store, clock).problem


def test_retention_stops_when_the_newest_manifest_is_unreadable(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    log.append([numbered(0, 3)])
    log.absorb_tail()
    store.put(LAYOUT.key(LAYOUT.manifest_name(2)), b"damaged")
    with pytest.raises(DataCorrupt, match="the newest manifest cannot be read"):
        look(store, clock)


def test_names_of_others_are_left_alone(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    log.append([numbered(0, 3)])
    log.delete_records(3)
    store.put(LAYOUT.key("log/notes.txt"), b"mine")
    store.put(LAYOUT.key("snapshot/00000000000000000003.json"), b"{}")
    clock.sleep_s(2 * ORPHAN_AGE_MS / 1000)
    assert collect(store, clock) == [LAYOUT.chain_name(0)]


def test_retention_moves_the_log_start_of_a_led_partition(
    store: MemoryStore, clock: ManualClock, log: PartitionLog
) -> None:
    log.append([numbered(0, 3)])
    view = run(take_leadership(COLD, 1, "1" * 32), store)
    now_ms = 10 * DAY_MS
    after = run(change(COLD, raise_to_retained(policy(), now_ms), "2" * 32), store)
    assert (after.log_start_offset, after.end_offset, after.is_led) == (3, 3, True)
    again = run(change(view, raise_to_retained(policy(), now_ms), "3" * 32), store)
    assert again.manifest == after.manifest


def test_ten_thousand_segments_are_decided_from_manifests_alone(clock: ManualClock) -> None:
    store = MeteredStore(MemoryStore("many", clock), lambda key: "")
    size = 10_000
    entries = tuple(entry(n, n + 1, newest=n) for n in range(size))
    made = Manifest(1, "n", 0, size, entries)
    store.put(LAYOUT.key(LAYOUT.manifest_name(1)), encode(made, LAYOUT))
    rules = policy(retention_ms=1000)
    store.counters.reset()
    assert run(change(COLD, raise_to_retained(rules, 9_000), "2" * 32), store).log_start_offset == (
        8_000
    )
    counted = {kind: count.requests for kind, count in store.counters.by_kind().items()}
    assert counted == {"list": 4, "get": 1, "put": 1}
    store.counters.reset()
    run(change(COLD, raise_to_retained(rules, 9_000), "3" * 32), store)
    counted = {kind: count.requests for kind, count in store.counters.by_kind().items()}
    assert counted == {"list": 3, "get": 1}
