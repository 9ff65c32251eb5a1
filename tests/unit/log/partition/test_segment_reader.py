"""Reading: ranges, columns, times, and what it costs in requests and bytes."""

from __future__ import annotations

import os
import re

import pyarrow as pa
import pytest

from sparklog.core.errors import InvalidRequest, OffsetOutOfRange, RecordTooLarge
from sparklog.core.types import TimestampType
from sparklog.log.partition.partition_log import LogConfig
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from tests.harness.log_records import batch, numbered, open_partition, values


@pytest.fixture
def store() -> MeteredStore:
    return MeteredStore(MemoryStore("test"), lambda key: "")


def test_every_column_comes_back_as_it_was_appended(store: MeteredStore) -> None:
    log = open_partition(store)
    log.append(
        [
            batch(
                [b"a", None, b""],
                keys=[None, b"k", b""],
                timestamps_ms=[5, 3, 9],
                headers=[[("h", b"1"), ("h", None)], None, []],
            )
        ]
    )
    table = pa.Table.from_batches(
        log.read(0, 3, ("offset", "timestamp", "timestampType", "key", "value", "headers"))
    )
    assert table["offset"].to_pylist() == [0, 1, 2]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [5, 3, 9]
    assert table["timestampType"].to_pylist() == [0, 0, 0]
    assert table["key"].to_pylist() == [None, b"k", b""]
    assert table["value"].to_pylist() == [b"a", None, b""]
    assert table["headers"].to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        None,
        [],
    ]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_any_range_crosses_segments_and_batches(store: MeteredStore, codec: str) -> None:
    log = open_partition(store, LogConfig(codec=codec))
    at = 0
    for count in (1, 40_000, 3, 20_000):
        log.append([numbered(at, count)])
        at += count
    everything = [b"value-%d" % i for i in range(at)]
    for low, high in ((0, at), (0, 1), (1, 2), (16_384, 16_386), (40_000, 40_005), (39_000, at)):
        assert values(log, low, high) == everything[low:high]
    assert values(log, 7, 7) == []


def test_columns_are_returned_in_the_requested_order(store: MeteredStore) -> None:
    log = open_partition(store)
    log.append([numbered(0, 3)])
    (one,) = log.read(0, 3, ("value", "offset"))
    assert one.schema.names == ["value", "offset"]
    with pytest.raises(InvalidRequest, match="no such column"):
        log.read(0, 3, ("valu",))


def test_counting_a_range_opens_no_object(store: MeteredStore) -> None:
    log = open_partition(store)
    log.append([numbered(0, 100_000)])
    view = log.view()
    store.counters.reset()
    assert sum(b.num_rows for b in log.read(10, 99_990, (), view=view)) == 99_980
    assert sum(b.num_rows for b in log.read(10, 99_990, ("offset",), view=view)) == 99_980
    assert store.counters.snapshot() == {}


def test_a_single_record_costs_a_constant_number_of_requests(store: MeteredStore) -> None:
    costs = set()
    for rounds in (1, 3):
        writer = open_partition(store)
        for _ in range(rounds * 40):
            writer.append([numbered(writer.view(refreshed=False).end_offset, 500)])
        writer.absorb_tail()
        end = writer.view().end_offset
        reader = open_partition(store)
        store.counters.reset()
        assert values(reader, end // 2, end // 2 + 1) == [b"value-%d" % (end // 2)]
        by_offset = sum(c.requests for c in store.counters.by_kind().values())
        store.counters.reset()
        found = open_partition(store).offset_for_time(1_000_000 + 10 * (end // 2))
        assert found is not None
        assert found.offset == end // 2
        costs.add((by_offset, sum(c.requests for c in store.counters.by_kind().values())))
    assert len(costs) == 1
    assert max(costs.pop()) <= 6


def test_read_of_one_percent_costs_about_one_percent_of_the_bytes() -> None:
    store = MeteredStore(MemoryStore("test"), lambda key: "")
    log = open_partition(store, LogConfig(codec="none"))
    for _ in range(10):
        log.append([batch([os.urandom(100) for _ in range(200_000)])])
    log.absorb_tail()
    whole = sum(e.size_bytes for e in log.view().entries)
    store.counters.reset()
    assert sum(b.num_rows for b in log.read(1_234_567, 1_254_567, ("value",))) == 20_000
    touched = store.counters.by_kind()["get"].bytes
    # Both ends fall inside a record batch of about 1 MiB, and the footer is read once.
    assert touched < 0.01 * whole + 2 * (1 << 20) + 64 * 1024


def test_unrequested_column_is_not_read(store: MeteredStore) -> None:
    log = open_partition(store, LogConfig(codec="none"))
    big = batch(
        [os.urandom(1000) for _ in range(50_000)], keys=[b"k%08d" % i for i in range(50_000)]
    )
    log.append([big])
    log.view()
    list(log.read(0, 1, ("key",)))  # the footer is known from here on
    store.counters.reset()
    (found,) = {b.column("key")[0].as_py() for b in log.read(49_999, 50_000, ("key",))}
    assert found == b"k%08d" % 49_999
    assert store.counters.by_kind()["get"].bytes < 50_000


def test_time_lookup_follows_kafkas_rule(store: MeteredStore) -> None:
    log = open_partition(store)
    log.append([batch([b"0", b"1", b"2"], timestamps_ms=[100, 300, 200])])
    log.append([batch([b"3", b"4"], timestamps_ms=[150, 400])])
    expected = {0: 0, 100: 0, 101: 1, 200: 1, 300: 1, 301: 4, 400: 4}
    for target, offset in expected.items():
        found = log.offset_for_time(target)
        assert found is not None
        assert found.offset == offset, target
    assert log.offset_for_time(401) is None
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (4, 400)


def test_time_lookup_passes_over_deleted_records(store: MeteredStore) -> None:
    log = open_partition(store)
    log.append([batch([b"0", b"1", b"2"], timestamps_ms=[100, 300, 200])])
    log.append([batch([b"3"], timestamps_ms=[250])])
    log.delete_records(2)
    found = log.offset_for_time(250)
    assert found is not None
    assert found.offset == 3


def test_log_append_time_overrides_the_producers_time(store: MeteredStore) -> None:
    log = open_partition(store, LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
    log.append([batch([b"a"], timestamps_ms=[1])])
    (one,) = log.read(0, 1, ("timestamp", "timestampType"))
    assert one.column("timestampType").to_pylist() == [1]
    assert one.column("timestamp").cast(pa.int64())[0].as_py() > 1_600_000_000_000


def test_a_range_outside_the_log_is_refused_with_both_ends(store: MeteredStore) -> None:
    log = open_partition(store)
    log.append([numbered(0, 10)])
    log.delete_records(4)
    for low, high in ((3, 5), (0, 10), (5, 11)):
        with pytest.raises(OffsetOutOfRange, match=r"log_start_offset=4 log_end_offset=10"):
            list(log.read(low, high))


def test_an_oversized_record_is_refused_by_row_and_nothing_is_written(store: MeteredStore) -> None:
    log = open_partition(store, LogConfig(max_message_bytes=1000))
    with pytest.raises(RecordTooLarge, match=r"row=1 .*max\.message\.bytes=1000"):
        log.append([batch([b"x", b"y" * 2000])])
    with pytest.raises(RecordTooLarge) as refused:
        log.append([batch([b"x", b"y" * 980])])
    told = re.search(r"bytes=(\d+)", str(refused.value))
    assert told, refused.value
    assert int(told[1]) > 1000, "the size that is told is above the limit"
    with pytest.raises(RecordTooLarge, match="row=1"):
        log.append([batch([b"x", b"y"], headers=[None, [("h", b"z" * 2000)]])])
    assert log.append([batch([b"x" * 100] * 50)]).end_offset == 50
    assert log.view().end_offset == 50


def test_wrong_columns_are_refused(store: MeteredStore) -> None:
    log = open_partition(store)
    with pytest.raises(InvalidRequest, match="only value"):
        log.append([pa.record_batch({"key": pa.array([b"k"])})])
    with pytest.raises(InvalidRequest, match="only value"):
        log.append([pa.record_batch({"value": pa.array([b"k"]), "colour": pa.array([1])})])
    with pytest.raises(InvalidRequest, match="column cannot be stored"):
        log.append([pa.record_batch({"value": pa.array([1.5])})])
    with pytest.raises(InvalidRequest, match="no records"):
        log.append([])
