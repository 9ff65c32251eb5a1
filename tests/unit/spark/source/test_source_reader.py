"""Batch reads on a log in memory: ranges, times, losses, and what they cost."""

from __future__ import annotations

import json
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import (
    DataCorrupt,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnreadableRecords,
)
from sparklog.core.topic_names import JOBS_TOPIC
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.manifest.change import change
from sparklog.log.manifest.manifest import Manifest
from sparklog.log.manifest.view import PartitionView
from sparklog.log.schema import HEADERS
from sparklog.spark.source.scan import BATCH_ROWS, EMPTY_BATCH_ROWS
from sparklog.spark.source.schema import ARROW_TYPES
from sparklog.store.memory import MemoryStore
from tests.harness.crafted_objects import craft, numbers
from tests.harness.source_logs import (
    append,
    batch_reader,
    new_log,
    numbered,
    read_all,
    requests_of,
    rows_of,
)
from tests.harness.wire_batches import put_unreadable

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

VALUE_ENDS = 3
"""Number of that buffer in a segment of timestamps and values."""


@pytest.fixture
def log() -> Log:
    """Topic t: partition 0 has offsets 0 to 9 in three appends, partition 1 has 0 to 3."""
    made = new_log()
    made.create_topic("t", 2)
    append(made, "t", 0, numbered(0, 4), at_ms=1000)
    append(made, "t", 0, numbered(4, 4), at_ms=2000)
    append(made, "t", 0, numbered(8, 2), at_ms=3000)
    append(made, "t", 1, numbered(100, 4), at_ms=1500)
    return made


def offsets(p0: int, p1: int) -> str:
    return json.dumps({"t": {"0": p0, "1": p1}})


def test_reader_returns_all_records_by_default(log: Log) -> None:
    assert rows_of(log, ("partition", "offset", "value"), subscribe="t") == [
        *((0, i, b"%d" % i) for i in range(10)),
        *((1, i, b"%d" % (100 + i)) for i in range(4)),
    ]


def test_unreadable_batch_fails_the_read_or_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = new_log()
    made.create_topic("old", 1)
    put_unreadable(made.store, made.partition("old", 0).layout)
    columns = ("offset", "value")
    with pytest.raises(UnreadableRecords, match="topic=old partition=0 base_offset=0 end_offset=2"):
        rows_of(made, columns, subscribe="old", includeUnflushed="false")
    assert rows_of(
        made, columns, subscribe="old", includeUnflushed="false", failOnDataLoss="false"
    ) == [(2, b"good")]
    assert "passed over: records cannot be read" in caplog.text


def test_a_time_that_spark_cannot_hold_is_named_or_null() -> None:
    made = new_log()
    made.create_topic("far", 1)
    append(made, "far", 0, [b"a", b"b"], at_ms=1000)
    append(made, "far", 0, [b"c"], at_ms=9_223_372_036_854_776)
    append(made, "far", 0, [b"d"], at_ms=-9_223_372_036_854_775)
    columns = ("timestamp", "value")
    with pytest.raises(DataCorrupt, match=r"topic=far partition=0 offset=2 timestamp_ms=922337203"):
        rows_of(made, columns, subscribe="far")
    rows = rows_of(made, ("value",), subscribe="far")
    assert rows == [(b"a",), (b"b",), (b"c",), (b"d",)]
    for option in ({"failOnDataLoss": "false"}, {"farTimestamps": "null"}):
        reader = batch_reader(made, columns, subscribe="far", **option)
        found = pa.Table.from_batches(b for p in reader.partitions() for b in reader.read(p))
        micros = found["timestamp"].cast(pa.int64()).to_pylist()
        assert micros == [1_000_000, 1_001_000, None, -9_223_372_036_854_775_000]
    with pytest.raises(DataCorrupt, match="timestamp_ms=922337203"):
        rows_of(made, columns, subscribe="far", failOnDataLoss="false", farTimestamps="fail")


def test_batches_are_as_spark_wants_them(log: Log) -> None:
    log.partition("t", 1).append(
        [
            pa.RecordBatch.from_pydict(
                {
                    "key": pa.array([b"k", None]),
                    "value": pa.array([None, b""], pa.binary()),
                    "headers": pa.array([[("h", b"1")], None], HEADERS),
                }
            )
        ]
    )
    reader = batch_reader(log, ALL, subscribe="t", startingOffsets=offsets(10, 4))
    (batch,) = (b for p in reader.partitions() for b in reader.read(p))
    assert batch.schema == pa.schema([(name, ARROW_TYPES[name]) for name in ALL])
    row = batch.to_pylist()[0]
    assert (row["key"], row["value"], row["topic"], row["partition"]) == (b"k", None, "t", 1)
    assert row["headers"] == [{"key": "h", "value": b"1"}]
    assert batch.column("headers")[1].as_py() is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": offsets(8, -2), "endingOffsets": offsets(-1, 1)}, [8, 9, 100]),
        ({"startingOffsets": offsets(2, 4), "endingOffsets": offsets(5, 4)}, [2, 3, 4]),
        ({"startingTimestamp": "2003", "startingOffsetsByTimestampStrategy": "latest"}, [7, 8, 9]),
        ({"startingTimestamp": "1002", "endingTimestamp": "1502"}, [2, 3, 100, 101]),
        ({"startingOffsets": offsets(9, 4), "endingTimestamp": "9999"}, [9]),
        ({"endingOffsetsByTimestamp": offsets(1001, 1501)}, [0, 100]),
        (
            {
                "startingOffsetsByTimestamp": offsets(3001, 9999),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [9],
        ),
    ],
)
def test_ranges_by_offsets_and_times(
    log: Log, options: dict[str, str], expected: list[int]
) -> None:
    assert rows_of(log, subscribe="t", **options) == [(b"%d" % i,) for i in expected]


def test_start_timestamp_without_a_matching_record_fails(log: Log) -> None:
    with pytest.raises(InvalidRequest, match=r"No offset matched from request of .* t-1"):
        rows_of(log, subscribe="t", startingTimestamp="2000")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"t": {"0": 1}}'}, r"Specified: \[t-0\] Assigned: \[t-0, t-1\]"),
        ({"endingOffsets": '{"u": {"0": 1}}'}, r"Specified: \[u-0\]"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 1}}'}, "timestamp based start"),
        ({"startingOffsets": offsets(11, 0)}, "start offset 11 is greater than .* end offset 10"),
        ({"startingTimestamp": "1501", "endingTimestamp": "1001"}, "is greater than"),
    ],
)
def test_ranges_that_do_not_fit_the_topic_are_refused(
    log: Log, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        rows_of(log, subscribe="t", failOnDataLoss="false", **options)


def test_topics_are_found_by_name_pattern_or_partition(log: Log) -> None:
    log.create_topic("other-t2")
    append(log, "other-t2", 0, [b"x"])
    for internal in ("__consumer_offsets", JOBS_TOPIC):
        log.create_topic(internal, by_cluster=True)
        append(log, internal, 0, [b"internal"])
    assert len(rows_of(log, subscribe="t,other-t2")) == 15
    assert len(rows_of(log, subscribePattern="t2$")) == 1
    assert len(rows_of(log, subscribePattern="[st]")) == 15, "found anywhere, never internal topics"
    assert rows_of(log, subscribePattern="nothing-like-it") == []
    assert len(rows_of(log, assign='{"t": [1]}')) == 4
    for options in ({"subscribe": "t,u"}, {"assign": '{"u": [0]}'}, {"assign": '{"t": [2]}'}):
        with pytest.raises(UnknownTopicOrPartition, match="no such"):
            rows_of(log, **options)


def test_deleted_records_fail_the_read_or_are_skipped_with_a_warning(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.partition("t", 0).delete_records(6)
    assert len(rows_of(log, subscribe="t")) == 8, "earliest is the log start"
    asked = {"subscribe": "t", "startingOffsets": offsets(2, 0)}
    with pytest.raises(OffsetOutOfRange, match=r"failOnDataLoss to false.*t-0 was 2 .*starts at 6"):
        rows_of(log, **asked)
    with caplog.at_level(logging.WARNING):
        assert len(rows_of(log, failOnDataLoss="false", **asked)) == 8
    assert "the log starts at 6" in caplog.text


def test_an_end_beyond_the_log_is_a_loss_too(log: Log) -> None:
    asked = {"subscribe": "t", "endingOffsets": offsets(12, 4)}
    with pytest.raises(OffsetOutOfRange, match="t-0 was 12 but the log ends at 10"):
        rows_of(log, **asked)
    assert len(rows_of(log, failOnDataLoss="false", **asked)) == 14


def test_range_below_the_log_start_reads_nothing_if_loss_is_accepted(
    log: Log,
) -> None:
    log.partition("t", 0).delete_records(6)
    asked = {"startingOffsets": offsets(1, 4), "endingOffsets": offsets(3, 4)}
    assert rows_of(log, subscribe="t", failOnDataLoss="false", **asked) == []


@pytest.mark.parametrize("columns", [("offset",), (), ("partition", "topic"), ("offset", "topic")])
def test_counting_reads_no_object(log: Log, columns: tuple[str, ...]) -> None:
    reader = batch_reader(log, columns, subscribe="t")
    partitions = reader.partitions()
    requests_of(log).reset()
    assert sum(b.num_rows for p in partitions for b in reader.read(p)) == 14
    assert requests_of(log).by_kind() == {}


def test_task_requests_only_footers_and_ranges(log: Log) -> None:
    reader = batch_reader(log, ("value",), subscribe="t", minPartitions="7")
    partitions = reader.partitions()
    assert len(partitions) == 7
    requests_of(log).reset()
    assert len(read_all(reader, partitions)) == 14
    assert set(requests_of(log).by_kind()) == {"get"}
    assert requests_of(log).by_kind()["get"].requests <= 4 + 9, "4 objects, 9 pieces"


def test_pickled_task_is_small(log: Log) -> None:
    for _ in range(200):
        append(log, "t", 0, [b"x"])
    reader = batch_reader(log, ("value",), subscribe="t", maxRecordsPerPartition="50")
    sizes = [len(pickle.dumps(p)) for p in reader.partitions()]
    assert len(sizes) == 6
    assert max(sizes) < 5_000, "50 objects of one record, most of it their names"
    assert len(pickle.dumps(reader)) < 3_000


def test_empty_range_makes_no_task(log: Log) -> None:
    log.create_topic("empty", 3)
    assert batch_reader(log, subscribe="empty").partitions() == []


def test_small_batches_are_joined_and_large_ones_left(log: Log) -> None:
    log.create_topic("many")
    for _ in range(10):
        append(log, "many", 0, [b"x"] * 5000)
    reader = batch_reader(log, ("value",), subscribe="many", minPartitions="1")
    sizes = [b.num_rows for p in reader.partitions() for b in reader.read(p)]
    assert sum(sizes) == 50_000
    assert len(sizes) == -(-50_000 // (BATCH_ROWS // 5000 * 5000))
    reader = batch_reader(log, (), subscribe="many")
    assert [b.num_rows for p in reader.partitions() for b in reader.read(p)] == [50_000]
    assert EMPTY_BATCH_ROWS > 50_000


def test_a_plan_older_than_a_rewrite_of_its_objects_still_reads(log: Log) -> None:
    reader = batch_reader(log, ("offset", "value"), assign='{"t": [0]}')
    partitions = reader.partitions()
    partition = log.partition("t", 0)
    layout = partition.layout
    (first,) = [e for e in partition.view().entries if e.base_offset == 4]
    moved = layout.rewritten_name(4, "0" * 32)
    log.store.put_if_absent(layout.key(moved), log.store.get(layout.key(first.object)))
    _replace_entry(log, first.object, moved)
    log.store.delete(layout.key(first.object))
    assert read_all(reader, partitions) == [(i, b"%d" % i) for i in range(10)]


@pytest.mark.parametrize("columns", [("value",), ("offset", "value")])
def test_a_compaction_while_gaps_are_read_neither_loses_nor_repeats(
    log: Log, columns: tuple[str, ...]
) -> None:
    log.create_topic("c", 1, {"cleanup.policy": "compact"})
    partition = log.partition("c", 0)
    policy = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))
    # Objects of their own for each stretch, so that one may be read before the next is gone.
    small = replace(policy, segment_bytes=1)

    def compact() -> None:
        with ThreadPoolExecutor(2) as pool:
            work = Compactor(log.store, partition.layout, small, Encoding("none"), pool)
            assert work.compact(force=True) is not None

    for n in range(8):
        keys = [b"k%d" % n, b"again", b"gone"]
        values = [b"%d-%s" % (n, key) for key in keys]
        partition.append([pa.record_batch({"key": keys, "value": values})])
    compact()
    reader = batch_reader(log, columns, subscribe="c")
    partitions = reader.partitions()
    first, *rest = log.partition("c", 0).view().entries
    partition.append([pa.record_batch({"key": [b"again"], "value": [b"last"]})])
    compact()
    for entry in rest:
        moved = log.partition("c", 0).view().covering(entry.base_offset, entry.end_offset)
        if all(one.object != entry.object for one in moved):
            log.store.delete(partition.layout.key(entry.object))
    assert first in log.partition("c", 0).view().entries
    values = [row[-1] for row in read_all(reader, partitions)]
    assert values == [b"%d-k%d" % (n, n) for n in range(8)] + [b"7-gone"]


def test_a_plan_older_than_a_deletion_of_its_records_is_a_loss(log: Log) -> None:
    planned = {
        fail: batch_reader(log, ("offset", "value"), assign='{"t": [0]}', failOnDataLoss=fail)
        for fail in ("true", "false")
    }
    partitions = {fail: reader.partitions() for fail, reader in planned.items()}
    partition = log.partition("t", 0)
    partition.delete_records(4)
    log.store.delete(partition.layout.key(partition.layout.chain_name(0)))
    with pytest.raises(OffsetOutOfRange, match="log starts at 4"):
        read_all(planned["true"], partitions["true"])
    rows = read_all(planned["false"], partitions["false"])
    assert rows == [(i, b"%d" % i) for i in range(4, 10)]


def test_a_plan_older_than_the_deletion_of_its_topic_is_a_loss(log: Log) -> None:
    planned = {
        fail: batch_reader(log, ("value",), subscribe="t", failOnDataLoss=fail)
        for fail in ("true", "false")
    }
    partitions = {fail: reader.partitions() for fail, reader in planned.items()}
    log.delete_topic("t")
    log.create_topic("t", 2)
    append(log, "t", 0, numbered(0, 20))
    with pytest.raises(OffsetOutOfRange, match="Topic t was deleted while it was read"):
        read_all(planned["true"], partitions["true"])
    assert read_all(planned["false"], partitions["false"]) == []


def test_damage_is_damage(log: Log) -> None:
    partition = log.partition("t", 0)
    key = partition.layout.key(partition.layout.chain_name(4))
    data = bytearray(log.store.get(key))
    reader = batch_reader(log, ("value",), subscribe="t")
    partitions = reader.partitions()
    data[len(data) // 4] ^= 0xFF
    log.store.delete(key)
    log.store.put_if_absent(key, bytes(data))
    with pytest.raises(DataCorrupt, match=key):
        read_all(reader, partitions)


def test_source_refuses_offsets_outside_of_their_column(log: Log) -> None:
    log.create_topic("plain", 1, {"compression.type": "uncompressed"})
    append(log, "plain", 0, numbered(0, 4))
    layout = log.partition("plain", 0).layout
    store = MemoryStore("crafted")
    name = layout.chain_name(0)
    store.put(layout.key(name), log.store.get(layout.key(name)))
    key = craft(store, layout, name, numbers(VALUE_ENDS, 1, 1 << 20))
    log.store.put(key, store.get(key))
    with pytest.raises(DataCorrupt, match=f"object={key}"):
        rows_of(log, subscribe="plain")


def test_reads_into_a_damaged_tail_fail_and_name_the_object(log: Log) -> None:
    layout = log.partition("t", 0).layout
    key = layout.key(layout.chain_name(8))
    log.store.put(key, b"no segment")
    log._partitions.clear()  # as a process that opens the log now
    assert len(rows_of(log, subscribe="t", endingOffsets=offsets(8, -1))) == 12
    by_time = {"startingTimestamp": "1502", "endingTimestamp": "2002"}
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert [int(v) for (v,) in rows_of(log, subscribe="t", **by_time)] == [4, 5, 102, 103]
    for options in (
        {},
        {"endingOffsets": offsets(9, 4)},
        {"startingOffsets": offsets(8, 0), "endingOffsets": offsets(-1, 4)},
        {"endingTimestamp": "2999"},
        {"startingTimestamp": "2999", "endingOffsets": offsets(8, 4), **strategy},
        {"failOnDataLoss": "false"},
    ):
        with pytest.raises(DataCorrupt, match=key):
            rows_of(log, subscribe="t", **options)
    assert len(rows_of(log, assign='{"t": [1]}')) == 4


def _replace_entry(log: Log, old: str, new: str) -> None:
    """Do what a merge does to the manifest."""

    def plan(view: PartitionView) -> Manifest | None:
        if all(entry.object != old for entry in view.manifest.entries):
            return None
        entries = tuple(
            replace(e, object=new) if e.object == old else e for e in view.manifest.entries
        )
        return replace(view.manifest, entries=entries)

    run(change(log.partition("t", 0).absorb_tail(), plan, "f" * 32), log.store)
