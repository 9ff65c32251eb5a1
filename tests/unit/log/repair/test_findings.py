"""Damaged, foreign and missing objects: found, named, never returned as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.log.partition.partition_log import LOOK_AGAIN_S, LogConfig, PartitionLog
from sparklog.log.repair.verify import verify
from sparklog.store.base import ObjectInfo
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch, numbered, open_partition, values


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("test")


def overwrite(store: MemoryStore, name: str, data: bytes) -> None:
    store.put(LAYOUT.key(name), data)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_flipped_bit_anywhere_is_found_or_harmless(store: MemoryStore, codec: str) -> None:
    expected = [b"value-%d" % i for i in range(60)]
    open_partition(store, LogConfig(codec=codec)).append([numbered(0, 60)])
    name = LAYOUT.chain_name(0)
    whole = store.get(LAYOUT.key(name))
    found = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        overwrite(store, name, bytes(damaged))
        try:
            got = values(open_partition(store), 0, 60)
        except DataCorrupt as error:
            found += name in str(error)
        else:
            assert got == expected, f"wrong data returned after a flip at {position}"
    assert found > len(whole) // 3


@pytest.mark.parametrize("keep", [0, 1, 9, 10, 200, 0.5, 0.99, -1])
def test_a_truncated_segment_is_named(store: MemoryStore, keep: int | float) -> None:
    open_partition(store).append([numbered(0, 5000)])
    name = LAYOUT.chain_name(0)
    whole = store.get(LAYOUT.key(name))
    size = int(keep * len(whole)) if isinstance(keep, float) else keep
    overwrite(store, name, whole[:size])
    with pytest.raises(DataCorrupt, match=name):
        values(open_partition(store), 0, 1)


def test_a_missing_object_that_the_log_names_is_reported(store: MemoryStore) -> None:
    log = open_partition(store)
    log.append([numbered(0, 5)])
    log.absorb_tail()
    store.delete(LAYOUT.key(LAYOUT.chain_name(0)))
    with pytest.raises(DataCorrupt, match=r"missing.*00\.arrow"):
        values(open_partition(store), 0, 5)


def test_an_append_never_continues_behind_a_damaged_segment(store: MemoryStore) -> None:
    open_partition(store).append([numbered(0, 5)])
    overwrite(store, LAYOUT.chain_name(0), b"rubbish")
    with pytest.raises(DataCorrupt):
        open_partition(store).append([numbered(5, 1)])


def test_older_manifest_is_read_when_the_newest_is_damaged(
    store: MemoryStore,
) -> None:
    log = open_partition(store)
    for i in range(6):
        log.append([numbered(i, 1)])
        log.absorb_tail()
    newest = log.view().manifest.version
    for version in (newest, newest - 1):
        overwrite(store, LAYOUT.manifest_name(version), b"rubbish that is no manifest")
    again = open_partition(store)
    assert values(again, 0, 6) == [b"value-%d" % i for i in range(6)]
    assert_nobody_writes(store, LAYOUT.manifest_name(newest))
    with pytest.raises(DataCorrupt, match="offsets from 6 on cannot be read"):
        values(again, 0, 7)


def test_the_whole_chain_is_read_when_no_manifest_can_be(store: MemoryStore) -> None:
    log = open_partition(store)
    for i in range(3):
        log.append([numbered(i, 1)])
    log.absorb_tail()
    overwrite(store, LAYOUT.manifest_name(1), b"")
    assert values(open_partition(store), 0, 3) == [b"value-%d" % i for i in range(3)]
    assert_nobody_writes(store, LAYOUT.manifest_name(1))


def test_an_older_manifest_does_no_harm_when_it_is_damaged(store: MemoryStore) -> None:
    log = open_partition(store)
    for i in range(2):
        log.append([numbered(i, 1)])
        log.absorb_tail()
    overwrite(store, LAYOUT.manifest_name(1), b"rubbish")
    assert open_partition(store).append([numbered(2, 1)]).base_offset == 2


def assert_nobody_writes(store: MemoryStore, named: str) -> None:
    """Every way to write to the partition, or to delete of it, fails and names the damage."""
    before = {info.key: store.get(info.key) for info in store.list("")}
    tries: list[Callable[[], object]] = [
        lambda: open_partition(store).append([numbered(9, 1)]),
        lambda: open_partition(store).append_at([numbered(9, 1)], 2),
        lambda: open_partition(store).delete_records(-1),
        lambda: open_partition(store).absorb_tail(),
        lambda: open_partition(store).view(),
        lambda: run(
            take_leadership(run(refresh(PartitionView(LAYOUT)), store), 0, "0" * 32), store
        ),
    ]
    for attempt in tries:
        with pytest.raises(DataCorrupt, match=named):
            attempt()
    assert {info.key: store.get(info.key) for info in store.list("")} == before


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("absorbed", [False, True])
def test_a_hole_is_not_taken_for_the_end(store: MemoryStore, lost: int, absorbed: bool) -> None:
    log = open_partition(store)
    if absorbed:
        log.append([numbered(0, 2)])
        log.absorb_tail()
    first = 2 if absorbed else 0
    for i in range(4):
        log.append([numbered(first + 2 * i, 2)])
    name = LAYOUT.chain_name(first + 2 * lost)
    store.delete(LAYOUT.key(name))
    assert_nobody_writes(store, name)
    end = first + 2 * lost
    assert values(open_partition(store), 0, end) == [b"value-%d" % i for i in range(end)]
    with pytest.raises(DataCorrupt, match=name):
        values(open_partition(store), 0, end + 1)
    with ThreadPoolExecutor(1) as pool:
        (damage,) = verify(store, LAYOUT, pool, deep=False, now_ms=1 << 42).damages
    assert (damage.object, damage.lost_base, damage.lost_end) == (LAYOUT.key(name), end, end + 2)


def test_a_writer_that_looked_long_ago_does_not_fill_a_hole(store: MemoryStore) -> None:
    clock = ManualClock()
    writer, others = PartitionLog(store, LAYOUT, clock=clock), open_partition(store)
    writer.append([numbered(0, 2)])
    for i in range(1, 4):
        others.append([numbered(2 * i, 2)])
    store.delete(LAYOUT.key(LAYOUT.chain_name(2)))
    clock.sleep_s(2 * LOOK_AGAIN_S)
    with pytest.raises(DataCorrupt, match=LAYOUT.chain_name(2)):
        writer.append([numbered(99, 1)])


class Late(MemoryStore):
    """Lists what was there before the last two appends, and then the very last of these."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        found = list(super().list(prefix, start_after))
        hidden = LAYOUT.key(LAYOUT.chain_name(2))
        yield from [one for one in found if one.key != hidden or self.listed]
        self.listed += prefix == LAYOUT.chain_prefix

    listed = 0


def test_a_listing_that_missed_an_append_is_no_hole() -> None:
    store = Late("late")
    log = open_partition(store)
    store.listed = 1
    for i in range(3):
        log.append([numbered(2 * i, 2)])
    store.listed = 0
    assert values(open_partition(store), 0, 6) == [b"value-%d" % i for i in range(6)]


def test_a_lost_manifest_is_not_taken_for_the_end(store: MemoryStore) -> None:
    """A merged object holds records that the manifests which are left do not name."""
    log = open_partition(store)
    log.append([numbered(0, 2)])
    log.absorb_tail()
    store.put(LAYOUT.key(LAYOUT.rewritten_name(2, "a" * 32)), b"of records that were merged")
    assert_nobody_writes(store, LAYOUT.chain_name(2))


@pytest.mark.parametrize(
    "name",
    ["log/readme.txt", "log/1.arrow", "log/00000000000000000003.arrow.bak", "manifest/x.arrow",
     "staged/x", "log/sub/00000000000000000003.arrow"],
)  # fmt: skip
def test_a_foreign_object_changes_nothing(store: MemoryStore, name: str) -> None:
    open_partition(store).append([numbered(0, 3)])
    overwrite(store, name, b"somebody's notes")
    log = open_partition(store)
    log.append([numbered(3, 2)])
    assert values(log, 0, 5) == [b"value-%d" % i for i in range(5)]


def test_an_orphan_inside_a_covered_range_is_not_part_of_the_log(store: MemoryStore) -> None:
    log = open_partition(store)
    log.append([numbered(0, 4)])
    log.append([numbered(4, 1)])
    # A foreign writer created a name in the middle of a segment: no chain leads there.
    overwrite(store, LAYOUT.chain_name(2), store.get(LAYOUT.key(LAYOUT.chain_name(4))))
    again = open_partition(store)
    assert again.view().end_offset == 5
    assert values(again, 0, 5) == [b"value-%d" % i for i in range(5)]


def test_another_partitions_segment_is_refused(store: MemoryStore) -> None:
    open_partition(store).append([numbered(0, 1)])
    data = store.get(LAYOUT.key(LAYOUT.chain_name(0)))
    other = LAYOUT.__class__(LAYOUT.topic, LAYOUT.topic_id, 9)
    store.put(other.key(other.chain_name(0)), data)
    with pytest.raises(DataCorrupt, match="another partition"):
        PartitionLog(store, other).view()


def test_a_newer_format_is_refused_by_name(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("sparklog.log.segment.footer.FORMAT_VERSION", 3)
        open_partition(store).append([batch([b"from the future"])])
    with pytest.raises(DataCorrupt, match=r"upgrade this reader.*format=3"):
        open_partition(store).view()


def test_records_before_a_damaged_segment_of_the_tail_are_read(store: MemoryStore) -> None:
    """Both old and new readers of the log read it, and no writer appends behind it."""
    known = open_partition(store)
    for i in range(4):
        known.append([numbered(i, 1)])
    known.append([numbered(4, 3)])
    name = LAYOUT.chain_name(4)
    whole = store.get(LAYOUT.key(name))
    overwrite(store, name, whole[:-20])
    for log in (known, open_partition(store)):
        view = log.readable()
        if log is not known:  # who has seen the footer knows where it ends
            assert view.end_offset == 4
            assert name in str(view.damage)
        assert values(log, 1, 4) == [b"value-%d" % i for i in (1, 2, 3)]
        with pytest.raises(DataCorrupt, match=name):
            values(log, 1, 5)
    fresh = open_partition(store)
    assert values(fresh, 0, 4)
    for act in (
        lambda: fresh.append([numbered(7, 1)]),
        fresh.view,
        fresh.probe,
        fresh.absorb_tail,
        lambda: fresh.delete_records(2),
    ):
        with pytest.raises(DataCorrupt, match=name):
            act()
    overwrite(store, name, whole)
    assert fresh.readable(probing=True).damage is None
    assert fresh.append([numbered(7, 1)]).base_offset == 7
    assert values(fresh, 0, 8) == [b"value-%d" % i for i in range(8)]


def test_records_before_an_unreadable_object_come_before_the_error(
    store: MemoryStore,
) -> None:
    log = open_partition(store)
    for i in range(3):
        log.append([numbered(i, 1)])
    log.absorb_tail()
    overwrite(store, LAYOUT.chain_name(2), b"rubbish")
    fresh = open_partition(store)
    rows = fresh.read(0, 3, ("value",))
    assert [next(rows).column("value").to_pylist() for _ in range(2)] == [
        [b"value-0"],
        [b"value-1"],
    ]
    with pytest.raises(DataCorrupt, match=LAYOUT.chain_name(2)):
        next(rows)
