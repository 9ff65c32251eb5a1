"""Damage of every kind of object, one after another: its report, its repair, and its loss.

A plain reader judges: it reads offset after offset, and gets an error for unreadable ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import DataCorrupt, InvalidRequest, SparklogError
from sparklog.core.types import OffsetRange
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.garbage import GarbageRules, find_garbage
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.layout import WalLayout
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.pins import pin
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.key_lookup import find_key
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.partition.partition_log import LogConfig, PartitionLog
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.log.repair.drop_damaged import Dropper, LeadNow
from sparklog.log.repair.findings import Damage, DamageKind
from sparklog.log.repair.repair import SETTLED_MS, Repair, Repairer, RepairResult
from sparklog.log.repair.verify import Findings
from sparklog.log.repair.wal_refill import wal_batches
from sparklog.log.tail.producer_rebuild import rebuilt, snapshot
from sparklog.log.tail.producer_snapshot import load_producers, save_producers
from sparklog.log.tail.to_segment import build_flush
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind
from sparklog.log.wal.objects import encode as encode_wal
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch, numbered
from tests.harness.object_damage import HARM, PLAIN, look, mended
from tests.harness.wire_batches import produced, put_unreadable

END = 1000
COLD = PartitionView(LAYOUT)
COLUMNS = ("offset", "timestamp", "key", "value", "headers")


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def direct(store: MemoryStore, clock: ManualClock, pool: ThreadPoolExecutor) -> None:
    """Merged, staged, plain and tail segments of a log without a leader, and a pin."""
    log = PartitionLog(store, LAYOUT, LogConfig(codec="none"), clock=clock, pool=pool)
    for number in range(8):
        log.append([numbered(3 * number, 3)])
    policy = CompactionPolicy.of(parse_topic_configs({}))
    Compactor(store, LAYOUT, policy, Encoding("lz4"), pool, clock=clock).merge()
    log.append_staged([log.stage([numbered(24, 3)])])
    log.append([numbered(27, 3)])
    log.absorb_tail()
    run(pin(COLD, iter(["5" * 32])), store)
    two = [batch([b"x%d" % n * 40_000 for n in range(30)]), batch([b"y"])]
    log.append(two)
    log.append_staged([log.stage([numbered(61, 3)])])
    log.append([numbered(64, 3)])


def direct_log(name: str, pool: ThreadPoolExecutor) -> tuple[MemoryStore, ManualClock]:
    """A store with just that log."""
    clock = ManualClock()
    store = MemoryStore(name, clock)
    direct(store, clock, pool)
    return store, clock


def led(store: MemoryStore, clock: ManualClock, pool: ThreadPoolExecutor) -> None:
    """Segments of a leader with an idempotent producer, and a snapshot of what it came to."""
    view = run(take_leadership(COLD, 1, "a" * 32), store)
    sent = []
    for sequence in range(0, 8, 2):
        made = produced([1] * 2, producer_id=7, producer_epoch=0, base_sequence=sequence,
                        base_offset=view.end_offset, leader_epoch=1)  # fmt: skip
        sent.append(bytes(made.data))
        draft = build_flush(LAYOUT, [sent[-1]], f"{sequence:032x}", codec="none")
        view = run(flush_at(view, draft, 1), store)
        if sequence == 4:
            states = rebuilt([], sent, 1)
            run(save_producers(LAYOUT, view.end_offset, snapshot(states)), store)


LOGS: dict[str, Callable[[MemoryStore, ManualClock, ThreadPoolExecutor], None]] = {
    "direct": direct,
    "led": led,
}
Made = tuple[Mapping[str, bytes], ManualClock]


@pytest.fixture(scope="module", params=LOGS)
def made(request: pytest.FixtureRequest, pool: ThreadPoolExecutor) -> Made:
    clock = ManualClock()
    store = MemoryStore("whole", clock)
    LOGS[request.param](store, clock, pool)
    return {info.key: store.get(info.key) for info in store.list("")}, clock


def copy_of(objects: Mapping[str, bytes], clock: ManualClock) -> MemoryStore:
    store = MemoryStore("copy", clock)
    for key, data in objects.items():
        store.put(key, data)
    return store


def readable(store: MemoryStore, view: PartitionView, pool: ThreadPoolExecutor) -> set[int]:
    """Return the offsets of records that a plain reader gets, one by one."""
    log = PartitionLog(store, LAYOUT, pool=pool)
    found: set[int] = set()
    for offset in range(view.log_start_offset, view.end_offset):
        try:
            for got in log.read(offset, offset + 1, COLUMNS, view=view):
                found.update(got.column("offset").to_pylist())
        except DataCorrupt:
            continue
    return found


def dropped(store: MemoryStore, found: Findings, pool: ThreadPoolExecutor, *, dry: bool) -> None:
    ranges = [
        OffsetRange(d.lost_base, d.lost_end)
        for d in found.damages
        if d.lost_end > d.lost_base or d.kind is DamageKind.CHAIN
    ]
    Dropper(Repair(store, found, pool, Encoding("lz4"), dry), LeadNow()).drop(ranges)


def lost(damages: tuple[Damage, ...]) -> set[int]:
    return {o for d in damages for o in range(d.lost_base, max(_end(d), d.unreachable_end))}


def _end(damage: Damage) -> int:
    """Return where a loss ends; of a last segment that says nothing, beyond everything."""
    return damage.lost_end if damage.end_known else END


@pytest.mark.parametrize("harm", HARM)
def test_reported_losses_equal_the_records_a_reader_misses(
    made: Made, pool: ThreadPoolExecutor, harm: str
) -> None:
    objects, clock = made
    whole = look(copy_of(objects, clock), clock, pool)
    assert whole.damages == ()
    everything = readable(copy_of(objects, clock), whole.view, pool)
    # Without its last segment a log is a shorter log: no object shows that there was one.
    last = LAYOUT.key(whole.view.tail[-1].name)
    kinds: set[DamageKind] = set()
    for key in objects:
        store = copy_of(objects, clock)
        HARM[harm](store, key)
        found = look(store, clock, pool)
        kinds |= {d.kind for d in found.damages}
        left = readable(store, found.view, pool)
        here = everything
        if harm == "deleted" and key == last:
            here = everything - set(range(whole.view.tail[-1].segment.base_offset, END))
        assert left == here - lost(found.damages), (key, harm, found.damages)
        for damage in found.damages:
            assert damage.rows is None or damage.rows <= damage.lost_end - damage.lost_base
        if harm == "cut off":
            assert found.damages or key not in _needed(whole, store), key
        _check_way_out(store, clock, pool, found, here)
    assert kinds or harm != "cut off"


def _needed(whole: Findings, store: MemoryStore) -> set[str]:
    """Return the keys of what the log names."""
    return {LAYOUT.key(e.object) for e in whole.view.entries}


def _check_way_out(
    store: MemoryStore,
    clock: ManualClock,
    pool: ThreadPoolExecutor,
    found: Findings,
    everything: set[int],
) -> None:
    """Repair loses nothing; giving up what is left makes everything else readable."""
    before = readable(store, found.view, pool)
    mended(store, found, clock, pool)
    after = look(store, clock, pool)
    assert readable(store, after.view, pool) >= before
    assert not [d for d in after.damages if d.kind is DamageKind.HINT]
    objects = {info.key: store.get(info.key) for info in store.list("")}
    dropped(store, after, pool, dry=True)
    assert {info.key: store.get(info.key) for info in store.list("")} == objects
    gone = {o for d in after.damages for o in range(d.lost_base, _end(d))}
    dropped(store, after, pool, dry=False)
    last = look(store, clock, pool)
    assert lost(last.damages) == set()
    view = run(refresh(COLD), store)
    assert readable(store, view, pool) == everything - gone
    if not view.is_led:
        end = view.end_offset
        log = PartitionLog(store, LAYOUT, clock=clock, pool=pool)
        assert log.append([numbered(0, 2)]).base_offset == end


def test_damaged_merge_is_replaced_by_its_parts(
    pool: ThreadPoolExecutor,
) -> None:
    store, clock = direct_log("merge", pool)
    before = look(store, clock, pool)
    (merged,) = [e for e in before.view.entries if e.rows == 24]
    store.put(LAYOUT.key(merged.object), b"gone")
    found = look(store, clock, pool)
    assert [(d.lost_base, d.lost_end, d.rows) for d in found.damages] == [(0, 24, 24)]
    late = run(find_garbage(found.view, found.listed, GarbageRules(clock.now_ms(), 0)), store)
    assert len(late.doomed) >= 8
    (done,) = mended(store, found, clock, pool)
    assert "replaced by copies of what it held" in done.what
    for info in late.doomed:  # by who found before that nothing names them
        store.delete(info.key)
    after = look(store, clock, pool)
    assert after.damages == ()
    assert len(readable(store, after.view, pool)) == len(readable(store, before.view, pool)) + 24


def test_compacted_object_is_not_replaced_by_batches_without_marker(
    pool: ThreadPoolExecutor,
) -> None:
    clock = ManualClock()
    store = MemoryStore("compacted", clock)
    view = run(take_leadership(COLD, 1, "a" * 32), store)
    who = {"producer_id": 7, "producer_epoch": 0}

    def flush(epoch: int, wrote: str = "", *, is_commit: bool = False) -> None:
        nonlocal view
        where: dict[str, Any] = {"base_offset": view.end_offset, "leader_epoch": epoch, **who}
        marker = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=1)
        data = encode_end_transaction(marker, timestamp_ms=1, **where)
        if wrote:
            keys = [b"a " + wrote.encode(), b"b " + wrote.encode()]
            data = bytes(produced([1] * 2, keys=keys, is_transactional=True, **where).data)
        draft = build_flush(LAYOUT, [data], f"{view.end_offset:032x}", codec="none")
        view = run(flush_at(view, draft, epoch), store)

    flush(1, "committed")
    view = run(take_leadership(view, 2, "b" * 32), store)
    flush(2, is_commit=True)
    flush(2, "aborted")
    flush(2, is_commit=False)
    policy = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))
    assert Compactor(store, LAYOUT, policy, PLAIN, pool, clock=clock).compact() is not None
    (rewritten,) = [e for e in look(store, clock, pool).view.entries if e.rows]
    store.put(LAYOUT.key(rewritten.object), b"damaged")
    # Its sources are whole and have as many rows, but the next marker is now an abort.
    assert mended(store, look(store, clock, pool), clock, pool) == []


def test_contradicting_producer_snapshot_is_reported_and_deleted(
    pool: ThreadPoolExecutor,
) -> None:
    clock = ManualClock()
    store = MemoryStore("producers", clock)
    led(store, clock, pool)
    (key,) = [info.key for info in store.list(LAYOUT.snapshot_prefix)]
    end = LAYOUT.snapshot_end(key)
    assert end is not None
    wrong = produced([1] * 2, producer_id=7, producer_epoch=0, base_sequence=90,
                     base_offset=5, leader_epoch=1)  # fmt: skip
    store.delete(key)
    document = snapshot(rebuilt([], [bytes(wrong.data)], 1))
    run(save_producers(LAYOUT, end, document), store)
    found = look(store, clock, pool)
    assert [(d.kind, d.object) for d in found.damages] == [(DamageKind.HINT, key)]
    assert "came to sequence 5, and it says 91" in found.damages[0].what
    mended(store, found, clock, pool)
    assert look(store, clock, pool).damages == ()


def test_ranges_are_accepted_as_reported(pool: ThreadPoolExecutor) -> None:
    store, clock = direct_log("ranges", pool)
    end = look(store, clock, pool).view.end_offset
    store.put(LAYOUT.key(LAYOUT.chain_name(27)), b"damaged")
    found = look(store, clock, pool)

    def drop(*ranges: tuple[int, int], led: bool = False) -> list[RepairResult]:
        given = [OffsetRange(*one) for one in ranges]
        repair = Repair(store, look(store, clock, pool), pool, PLAIN, dry_run=False)
        return Dropper(repair, LeadNow(led, 3)).drop(given)

    assert [(d.lost_base, d.lost_end) for d in found.damages] == [(27, 30)]
    for wrong in ((26, 30), (27, 31), (0, 3)):
        with pytest.raises(InvalidRequest, match="27-30"):
            drop(wrong)
    assert len(drop((27, 30))) == 1
    assert look(store, clock, pool).damages == ()
    # The last segment: no object shows its end, so the caller that gives it up names it.
    PartitionLog(store, LAYOUT, clock=clock, pool=pool).append([numbered(end, 3)])
    end += 3
    store.put(LAYOUT.key(LAYOUT.chain_name(end - 3)), b"damaged")
    (last,) = look(store, clock, pool).damages
    assert (last.kind, last.end_known, last.lost_base) == (DamageKind.CHAIN, False, end - 3)
    with pytest.raises(SparklogError, match="only its leader"):
        drop((end - 3, end), led=True)
    drop((end - 3, end + 10))
    assert look(store, clock, pool).view.end_offset == end + 10


def test_ranges_are_given_up_only_together(pool: ThreadPoolExecutor) -> None:
    store, clock = direct_log("all", pool)
    whole = look(store, clock, pool)
    for name in (whole.view.manifest.entries[1].object, whole.view.tail[0].name):
        store.put(LAYOUT.key(name), b"damaged")
    found = look(store, clock, pool)
    assert [(d.lost_base, d.lost_end) for d in found.damages] == [(30, 61), (24, 27)]
    objects = {info.key: store.get(info.key) for info in store.list("")}
    dropper = Dropper(Repair(store, found, pool, PLAIN, False), LeadNow())
    for wrong in (OffsetRange(0, 3), OffsetRange(30, 60), OffsetRange(64, 67)):
        with pytest.raises(InvalidRequest):
            dropper.drop([OffsetRange(24, 27), wrong, OffsetRange(30, 61)])
        assert {info.key: store.get(info.key) for info in store.list("")} == objects
    assert len(dropper.drop([OffsetRange(24, 27), OffsetRange(30, 61)])) == 2
    after = look(store, clock, pool)
    assert after.damages == ()
    assert readable(store, after.view, pool) == {*range(24), *range(27, 30), *range(61, 67)}


def test_a_segment_in_mid_chain_ends_where_the_next_begins(pool: ThreadPoolExecutor) -> None:
    store, clock = direct_log("chain", pool)
    whole = look(store, clock, pool)
    name = whole.view.tail[0].name
    store.delete(LAYOUT.key(name))
    (hole,) = look(store, clock, pool).damages
    assert (hole.kind, hole.end_known) == (DamageKind.CHAIN, True)
    assert (hole.lost_base, hole.lost_end) == (30, 61)
    assert hole.unreachable_end == whole.view.end_offset
    found = look(store, clock, pool)
    dropper = Dropper(Repair(store, found, pool, PLAIN, dry_run=False), LeadNow())
    with pytest.raises(InvalidRequest, match="30-61"):
        dropper.drop([OffsetRange(30, 60)])
    dropper.drop([OffsetRange(30, 61)])
    assert look(store, clock, pool).damages == ()


def test_bad_record_batch_loses_only_its_own_rows(pool: ThreadPoolExecutor) -> None:
    store, clock = direct_log("batches", pool)
    whole = look(store, clock, pool)
    (large,) = [e for e in whole.view.entries if e.size_bytes > 1 << 20]
    key = LAYOUT.key(large.object)
    data = bytearray(store.get(key))
    data[data.index(b"x29")] ^= 1
    store.put(key, bytes(data))
    (damage,) = look(store, clock, pool).damages
    assert damage.rows is not None
    assert 0 < damage.rows < large.rows
    dropped(store, look(store, clock, pool), pool, dry=False)
    after = look(store, clock, pool)
    assert after.damages == ()
    assert after.verified.rows == whole.verified.rows - damage.rows


def wal_of(store: MemoryStore, whole: Findings) -> None:
    """Put what the leader's segments hold into a write-ahead log, as if not yet trimmed."""
    rows = []
    for number, entry in enumerate(e for e in whole.view.entries if e.rows):
        made = produced([1] * 2, producer_id=7, producer_epoch=0, base_sequence=2 * number,
                        base_offset=entry.base_offset, leader_epoch=1)  # fmt: skip
        data = bytes(made.data)
        rows.append(WalBatch(LAYOUT.topic_id, LAYOUT.partition, entry.base_offset, 1, data))
    layout = WalLayout(3, "e" * 32)
    header = WalHeader(WalKind.WINDOW, 1, 0, "f" * 32)
    store.put(layout.key(1), encode_wal(layout, header, rows))


@pytest.mark.parametrize("absorbed", [False, True])
def test_a_leaders_segment_is_made_again_from_a_write_ahead_log(
    pool: ThreadPoolExecutor, absorbed: bool
) -> None:
    clock = ManualClock()
    store = MemoryStore("wal", clock)
    led(store, clock, pool)
    if absorbed:
        run(change(COLD, absorb_tail(1, 0), "c" * 32), store)
    whole = look(store, clock, pool)
    victim = [e for e in whole.view.entries if e.rows][1]
    key = LAYOUT.key(victim.object)
    store.put(key, b"damaged")
    found = look(store, clock, pool)
    (damage,) = [d for d in found.damages if d.lost_end > d.lost_base]
    assert damage.kind is (DamageKind.SEGMENT if absorbed else DamageKind.CHAIN)
    assert mended(store, found, clock, pool) == [], "nobody else has the records"
    wal_of(store, whole)
    (done,) = mended(store, found, clock, pool)
    assert (done.object, done.what) == (key, "made again from a write-ahead log")
    after = look(store, clock, pool)
    assert after.damages == ()
    assert readable(store, after.view, pool) == set(range(whole.view.end_offset))
    assert (after.view.is_led, after.view.leader_epoch) == (True, 1)
    producers = run(load_producers(after.view, 0), store)
    assert [known.last_sequence for _, known in producers] == [7]


def test_batches_of_another_epoch_or_with_a_gap_make_no_segment(pool: ThreadPoolExecutor) -> None:
    clock = ManualClock()
    store = MemoryStore("wal", clock)
    led(store, clock, pool)
    wal_of(store, look(store, clock, pool))
    assert len(run(wal_batches(LAYOUT, 0, 4, 1), store)) == 2
    for base, end, epoch in ((0, 4, 2), (1, 4, 1), (0, 3, 1), (0, 10, 1)):
        assert run(wal_batches(LAYOUT, base, end, epoch), store) == []


def test_a_damaged_filter_of_keys_loses_nothing_and_is_written_anew(
    pool: ThreadPoolExecutor,
) -> None:
    clock = ManualClock()
    store = MemoryStore("filter", clock)
    config = LogConfig(codec="none", indexes_keys=True)
    PartitionLog(store, LAYOUT, config, clock=clock, pool=pool).append([numbered(0, 40)])
    whole = look(store, clock, pool)
    (entry,) = whole.view.entries
    index = SegmentReader(store, LAYOUT, pool).footer(entry).keys
    assert index is not None
    key = LAYOUT.key(entry.object)
    data = bytearray(store.get(key))
    data[index.start] ^= 1
    store.put(key, bytes(data))
    found = look(store, clock, pool)
    assert [(d.kind, d.lost_end - d.lost_base) for d in found.damages] == [(DamageKind.INDEX, 0)]
    encoding = Encoding("none", indexes_keys=True)
    for dry_run in (True, False):
        mender = Repairer(Repair(store, found, pool, encoding, dry_run), clock.now_ms())
        assert [one.object for one in mender.repair_all()] == [key]
        assert len(look(store, clock, pool).damages) == dry_run
    after = look(store, clock, pool)
    assert readable(store, after.view, pool) == set(range(40))
    columns = ("offset", "value")
    got = find_key(store, pool, after.view, b"key-3", columns, newest_only=True)
    assert [b.column("value").to_pylist() for b in got.records] == [[b"value-38"]]


def test_unreadable_batch_is_given_up_when_it_is_named(
    pool: ThreadPoolExecutor,
) -> None:
    clock = ManualClock()
    store = MemoryStore("unread", clock)
    put_unreadable(store, LAYOUT)
    found = look(store, clock, pool)
    (unread,) = found.damages
    assert unread.kind is DamageKind.UNREAD
    dropper = Dropper(Repair(store, found, pool, PLAIN, False), LeadNow(True, 1))
    with pytest.raises(InvalidRequest, match="damaged=0-2"):
        dropper.drop([OffsetRange(0, 1)])
    assert len(dropper.drop([OffsetRange(0, 2)])) == 1
    after = look(store, clock, pool)
    assert after.damages == ()
    assert after.verified.end_offset == found.verified.end_offset
    log = PartitionLog(store, LAYOUT, LogConfig(), clock=clock, pool=pool)
    values = [v for rows in log.read(0, 3, ["value"]) for v in rows.column("value").to_pylist()]
    assert values == [b"good"]


def test_a_damaged_manifest_is_written_anew_and_old_ones_go_later(
    pool: ThreadPoolExecutor,
) -> None:
    store, clock = direct_log("manifests", pool)
    before = look(store, clock, pool)
    version = before.view.manifest.version
    key = LAYOUT.key(LAYOUT.manifest_name(version))
    store.put(key, b"damaged")
    found = look(store, clock, pool)
    assert [d.kind for d in found.damages] == [DamageKind.MANIFEST]
    assert [one.object for one in mended(store, found, clock, pool)] == [key]
    again = look(store, clock, pool)
    assert again.view.manifest.version == version + 1
    assert again.view.end_offset == before.view.end_offset
    assert mended(store, again, clock, pool) == [], "somebody may be reading through the old one"
    clock.sleep_s(SETTLED_MS / 1000 + 1)
    assert len(mended(store, again, clock, pool)) == 1
    assert look(store, clock, pool).damages == ()
