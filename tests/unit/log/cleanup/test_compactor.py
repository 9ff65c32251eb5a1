"""Compaction beside others: killed at every step, two at once, trims, readers with an old view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import DataCorrupt, Unavailable
from sparklog.log.cleanup.compaction_policy import CompactionPolicy, merge_runs, plan_compaction
from sparklog.log.cleanup.compaction_shares import CompactionShares, ShareOutcome
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.merged_footer import APPENDS_KEPT, lineage_of
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.manifest.change import Replacement, forgotten, swap
from sparklog.log.manifest.manifest import REWRITTEN_NONCE, Cleaning, Entry, Manifest
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.segment import Append, Segment
from sparklog.store.base import Data, ObjectStore, PutOutcome
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch, numbered, open_partition

COMPACT = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))


class Meddling(MemoryStore):
    """Runs a callback before the n-th put."""

    def __init__(self, meddle: Callable[[str], None] | None = None, at: int = 0) -> None:
        super().__init__("meddling")
        self.meddle = meddle
        self.at = at
        self.puts = 0

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        self.puts += 1
        if self.meddle is not None and self.puts == self.at:
            meddle, self.meddle = self.meddle, None
            meddle(key)
        return super().put_if_absent(key, data)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def compactor(store: ObjectStore, pool: ThreadPoolExecutor, **settings: str) -> Compactor:
    policy = CompactionPolicy.of(
        parse_topic_configs(
            {"cleanup.policy": "compact"} | {k.replace("_", "."): v for k, v in settings.items()}
        )
    )
    return Compactor(store, LAYOUT, policy, Encoding("lz4"), pool)


def filled(store: ObjectStore) -> PartitionLog:
    log = open_partition(store)
    for n in range(10):
        log.append([numbered(5 * n, 5)])
    return log


def shared(
    store: ObjectStore, pool: ThreadPoolExecutor
) -> tuple[PartitionLog, Compactor, CompactionShares]:
    """A filled log, its compaction, and how that is done in shares."""
    log, job = filled(store), compactor(store, pool)
    shares = job.compact_or_share(0)
    assert isinstance(shares, CompactionShares)
    return log, job, shares


def offsets(store: ObjectStore) -> list[int]:
    log = open_partition(store)
    view = log.view()
    return [
        offset
        for one in log.read(view.log_start_offset, view.end_offset, ("offset",))
        for offset in one.column(0).to_pylist()
    ]


def test_compaction_killed_before_any_put_leaves_the_log_unchanged(
    pool: ThreadPoolExecutor,
) -> None:
    def die(key: str) -> None:
        raise Unavailable(f"killed. key={key}")

    seen = []
    for step in range(1, 5):
        store = Meddling()
        filled(store)
        store.meddle, store.at = die, store.puts + step
        try:
            done = compactor(store, pool).compact()
        except Unavailable:
            assert offsets(store) == list(range(50))
            seen.append(step)
            done = compactor(store, pool).compact()
        assert done is not None
        assert done.rows_after == 7
        assert offsets(store) == list(range(43, 50))
    assert seen == [1, 2, 3], "the tail's manifest, the object, the swap"


def test_compaction_beside_another_publishes_one_result(pool: ThreadPoolExecutor) -> None:
    for step in range(1, 4):
        store = Meddling()
        filled(store)
        first: list[object] = []

        def other(key: str, store: Meddling = store, first: list[object] = first) -> None:
            first.append(compactor(store, pool).compact())

        store.meddle, store.at = other, store.puts + step
        second = compactor(store, pool).compact()
        assert len(first) == 1
        assert second is not None
        assert second.overtaken
        assert offsets(store) == list(range(43, 50))


def test_shares_are_published_together_or_not_at_all(pool: ThreadPoolExecutor) -> None:
    store = MemoryStore("shares")
    log, job, shares = shared(store, pool)
    before = offsets(store)
    parts = [job.share(shares, number, 2) for number in range(2)]
    done = [part for part in parts if part is not None]
    assert len(done) == 2
    log.append([numbered(50, 5)])
    log.absorb_tail()  # another manifest, but the same objects below its end
    assert offsets(store) == [*before, *range(50, 55)]
    told = job.publish(shares, done)
    assert (told.rows_before, told.rows_after, told.overtaken) == (50, 7, False)
    assert offsets(store) == list(range(43, 55))
    assert job.publish(shares, done) == told, "to publish twice is to publish once"


def test_a_share_of_a_log_that_changed_is_refused(pool: ThreadPoolExecutor) -> None:
    store = MemoryStore("shares")
    log, job, shares = shared(store, pool)
    first = job.share(shares, 0, 2)
    assert first is not None
    log.delete_records(41)
    assert job.share(shares, 1, 2) is None
    other = job.compact()
    assert other is not None
    assert not other.overtaken
    kept = offsets(store)
    assert job.publish(shares, [first]).overtaken
    assert offsets(store) == kept


def test_records_appended_meanwhile_stay_and_the_log_start_may_move(
    pool: ThreadPoolExecutor,
) -> None:
    for step in (2, 3):
        store = Meddling()
        filled(store)

        def meddle(key: str, store: Meddling = store) -> None:
            log = open_partition(store)
            log.append([numbered(50, 3)])
            log.delete_records(47)

        store.meddle, store.at = meddle, store.puts + step
        done = compactor(store, pool).compact()
        assert done is not None
        assert not done.overtaken
        assert offsets(store) == list(range(47, 53))
        assert open_partition(store).append([numbered(53, 1)]).base_offset == 53


def test_a_reader_with_the_old_view_finishes(pool: ThreadPoolExecutor) -> None:
    store = MemoryStore("old view")
    log = filled(store)
    old = log.view()
    compactor(store, pool).compact()
    read = sum(one.num_rows for one in log.read(0, 50, ("key", "value"), view=old))
    assert read == 50


def test_damage_is_named_and_changes_nothing(pool: ThreadPoolExecutor) -> None:
    store = MemoryStore("damage")
    filled(store)
    key = LAYOUT.key(LAYOUT.chain_name(20))
    data = bytearray(store.get(key))
    data[data.index(b"key-")] ^= 0xFF
    store.put(key, bytes(data))
    with pytest.raises(DataCorrupt, match=LAYOUT.chain_name(20)):
        compactor(store, pool).compact()
    store.delete(key)
    with pytest.raises(DataCorrupt, match=LAYOUT.chain_name(20)):
        compactor(store, pool).compact()


def test_tombstone_hides_earlier_records_and_is_removed_later(pool: ThreadPoolExecutor) -> None:
    clock = ManualClock()
    store = MemoryStore("tombstones", clock)
    log = PartitionLog(store, LAYOUT, clock=clock)

    def compact() -> list[int]:
        work = Compactor(store, LAYOUT, COMPACT, Encoding("none"), pool, clock=clock)
        work.compact(force=True)
        return offsets(store)

    log.append([batch([b"1", b"2", None], keys=[b"a", b"b", b"a"])])
    assert compact() == [1, 2]
    clock.sleep_s(86_399)
    log.append([batch([b"3"], keys=[b"c"])])
    assert compact() == [1, 2, 3]
    clock.sleep_s(2)
    log.append([batch([None], keys=[b"d"])])
    assert compact() == [1, 3, 4]
    assert [c.end_offset for c in log.view().manifest.cleaned] == [3, 4, 5]


def test_segments_of_two_leaders_are_not_made_one() -> None:
    entries = tuple(
        Entry(n, n + 1, "o", 10, 1, 0, 0, epoch, "n") for n, epoch in enumerate([1] * 3 + [2] * 3)
    )
    runs = merge_runs(Manifest(1, "n", 0, 6, entries), COMPACT)
    assert runs == [entries[:3]], "three at the end are too few yet"


def test_age_of_the_object_protects_records_without_timestamp() -> None:
    """`min.compaction.lag.ms` did not hold for them, and they kept neighbours from merging."""
    timeless = tuple(Entry(n, n + 1, f"o{n}", 10, 1, -1, -1, 0, "n") for n in range(3))
    view = PartitionView(LAYOUT, Manifest(1, "n", 0, 3, timeless))
    policy = replace(COMPACT, lag_min_ms=1_000)
    written = {"o0": 100, "o1": 200, "o2": 5_000}

    def planned(now_ms: int) -> int:
        found = plan_compaction(
            view, policy, 3, now_ms, force=True, written=lambda e: written[e.object]
        )
        return 0 if found is None else len(found.entries)

    assert [planned(now_ms) for now_ms in (1_000, 1_150, 5_500, 6_000)] == [0, 1, 2, 3]
    overdue = replace(COMPACT, lag_max_ms=1_000, dirty_ratio_min=1.0)
    for now_ms, is_due in ((1_000, False), (1_101, True)):
        found = plan_compaction(
            view, overdue, 3, now_ms, force=False, written=lambda e: written[e.object]
        )
        assert (found is not None) is is_due
    mixed = tuple(
        Entry(n, n + 1, "o", 10, 1, stamp, stamp, 0, "n")
        for n, stamp in enumerate([-1, 1_700_000_000_000] * 4)
    )
    assert merge_runs(Manifest(1, "n", 0, 8, mixed), COMPACT) == [mixed]


def test_large_or_long_objects_are_not_merged() -> None:
    large, small = COMPACT.segment_bytes // 2, 10
    sizes = [small] * 9 + [large] + [small] * 9

    def entries(step_ms: int) -> tuple[Entry, ...]:
        return tuple(
            Entry(n, n + 1, "o", size, 1, step_ms * n, step_ms * n, 0, "n")
            for n, size in enumerate(sizes)
        )

    def runs(step_ms: int) -> list[int]:
        made = Manifest(1, "n", 0, 19, entries(step_ms))
        return [len(run) for run in merge_runs(made, COMPACT)]

    assert runs(0) == [9, 9]
    assert runs(COMPACT.segment_ms // 4) == [5, 4, 5]


def test_objects_that_decompress_to_full_size_are_merged_once(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore("zeros")
    log = open_partition(store)
    for _ in range(8):
        log.append([batch([bytes(1 << 19)])])
    monkeypatch.setattr("sparklog.log.cleanup.compactor.PLAIN_BYTES_MAX", 1 << 20)
    assert compactor(store, pool).merge() == ShareOutcome()
    assert len(log.view().entries) == 8
    monkeypatch.setattr("sparklog.log.cleanup.compactor.PLAIN_BYTES_MAX", 2 << 20)
    compactor(store, pool).merge()
    assert len(log.view().entries) == 1


def test_a_large_object_is_not_copied_for_the_sake_of_small_ones() -> None:
    sizes = [1000, *[10] * 9]
    entries = tuple(Entry(n, n + 1, "o", s, 1, 0, 0, 0, "n") for n, s in enumerate(sizes))
    (run,) = merge_runs(Manifest(1, "n", 0, 10, entries), COMPACT)
    assert run == entries[1:]


def entry(base: int, end: int, name: str) -> Entry:
    return Entry(base, end, name, 10, end - base, 0, 0, 0, "n")


def test_swap_needs_all_replaced_objects_except_trimmed_ones() -> None:
    old = entry(0, 4, "a"), entry(4, 8, "b"), entry(8, 9, "c")
    new = entry(0, 8, "x")
    swapping = swap([Replacement(old[:2], (new,))], Cleaning(8, 5))

    def after(entries: tuple[Entry, ...], log_start: int = 0) -> tuple[str, ...] | None:
        view = PartitionView(LAYOUT, Manifest(1, "n", log_start, 9, entries))
        planned = swapping(view)
        return None if planned is None else tuple(e.object for e in planned.entries)

    assert after(old) == ("x", "c")
    assert after(old[1:], log_start=5) == ("x", "c")
    assert after((entry(0, 8, "y"), old[2])) is None
    assert after((new, old[2])) is None, "published already"
    assert after((old[2],), log_start=8) == ("c",)
    with pytest.raises(ValueError, match="covers"):
        Replacement(old[:1], (new,))


def test_old_cleanings_are_forgotten_but_the_last() -> None:
    all_of_them = tuple(Cleaning(n, 10 * n) for n in range(1, 6))
    assert forgotten(all_of_them, 35) == all_of_them[2:]
    assert forgotten(all_of_them, 0) == all_of_them


def test_appends_too_many_to_keep_are_not_taken_for_others() -> None:
    count = APPENDS_KEPT + 10
    appends = tuple(Append(n, n + 1, 0, f"{n:032x}") for n in range(count))
    whole = Segment(LAYOUT.topic_id, 0, 0, count, 0, "r", appends=appends)
    source = Entry(0, count, "o", 1, 0, -1, -1, 0, REWRITTEN_NONCE)
    kept = lineage_of([(source, whole)], compacted=True)
    made = kept.within(0, count).relative(whole, 0)
    assert made.nonce_at(9) is None
    assert made.nonce_at(10) == f"{10:032x}"
    nothing = kept.within(0, 5).relative(whole, 0)
    assert [nothing.nonce_at(n) for n in range(5)] == [None] * 5
