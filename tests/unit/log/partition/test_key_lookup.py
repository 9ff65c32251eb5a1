"""Look-ups by key: their cost, and their error on damage."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.log.effects import run
from sparklog.log.layout import topic_of_key
from sparklog.log.manifest.refresh import read_segment
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.partition.partition_log import LogConfig, PartitionLog
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.record_batch import BatchSettings, encode
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from tests.harness.log_records import LAYOUT, batch

SEGMENTS = 40
FILTERED = LogConfig(indexes_keys=True)


def filled(store: MemoryStore | MeteredStore, config: LogConfig) -> PartitionLog:
    log = PartitionLog(store, LAYOUT, config)
    for n in range(SEGMENTS):
        keys = [b"%03d" % n, b"all", b"key-%d" % n]
        log.append([batch([b"v%d" % n] * 3, keys=keys)])
    log.append([batch([b"no key"])])
    return log


def test_segments_are_skipped_by_bounds_and_by_filters() -> None:
    log = filled(MemoryStore("find"), FILTERED)
    found = log.find(b"key-7", ("offset", "value"))
    assert [row for part in found.records for row in part.to_pylist()] == [
        {"offset": 23, "value": b"v7"}
    ]
    assert found.segments == SEGMENTS + 1
    assert found.searched <= 3
    assert log.find(b"000").out_of_bounds == SEGMENTS
    assert log.find(b"zzz").searched == 0
    assert log.find(b"all").rows == SEGMENTS


def test_the_newest_record_ends_the_search() -> None:
    log = filled(MemoryStore("find"), FILTERED)
    found = log.find(b"all", newest_only=True)
    assert [part.column("offset").to_pylist() for part in found.records] == [[118]]
    assert found.segments == 2
    assert found.searched == 1


def test_flushed_segments_of_leaders_are_skipped_too() -> None:
    store = MemoryStore("find")
    view = run(take_leadership(PartitionView(LAYOUT), 1, "1" * 32), store)
    for n in range(3):
        rows = batch([b"v"] * 2, keys=[b"a-%d" % n, b"z-%d" % n])
        wire = encode(rows, BatchSettings(leader_epoch=1), base_offset=view.end_offset)
        draft = build_flush(LAYOUT, [wire], f"{n:032x}", codec="lz4", indexes_keys=True)
        view = run(flush_at(view, draft, 1), store)
    found = PartitionLog(store, LAYOUT).find(b"z-1", ("offset",))
    assert [part.column("offset").to_pylist() for part in found.records] == [[3]]
    assert found.segments == 3
    assert found.searched < 3


def test_look_up_without_an_index_reads_all_keys() -> None:
    log = filled(MemoryStore("find"), LogConfig())
    found = log.find(b"key-7")
    assert found.rows == 1
    assert (found.searched, found.filtered) == (SEGMENTS, 0)


def test_a_lookup_costs_a_footer_and_a_page_for_each_segment() -> None:
    store = MeteredStore(MemoryStore("find"), topic_of_key)
    log = filled(store, FILTERED)
    view = log.view()
    store.counters.reset()
    found = log.find(b"key-7", view=view)
    gets = sum(c.requests for c in store.counters.by_kind().values())
    bounded = SEGMENTS + 1 - found.out_of_bounds
    assert gets <= SEGMENTS + 1 + bounded + 2 * found.searched


def test_damaged_filter_and_unknown_column_are_errors() -> None:
    store = MemoryStore("find")
    log = PartitionLog(store, LAYOUT, FILTERED)
    log.append([batch([b"v"], keys=[b"key"])])
    name = LAYOUT.key(LAYOUT.chain_name(0))
    read = run(read_segment(LAYOUT, LAYOUT.chain_name(0)), store)
    assert read is not None
    keys = read[0].keys
    assert keys is not None
    data = bytearray(store.get(name))
    data[keys.start] ^= 0xFF
    store.put(name, bytes(data))
    with pytest.raises(DataCorrupt, match="key filter"):
        PartitionLog(store, LAYOUT).find(b"key")
    with pytest.raises(InvalidRequest):
        log.find(b"key", ("nothing",))
