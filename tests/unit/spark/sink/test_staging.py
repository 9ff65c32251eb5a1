"""Staging of one task: bounded memory, order kept, nothing left behind on failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.records import ConfigRecord
from sparklog.cluster.publication import StagedPartition, append_once
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import (
    InvalidRequest,
    RecordTooLarge,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.spark.sink.options import SinkOptions
from sparklog.spark.sink.staging import Staging
from sparklog.spark.sink.writer import stage_rows
from sparklog.store.base import Data, PutOutcome
from sparklog.store.memory import MemoryStore
from tests.harness.newer_metadata import spelled, stored


@pytest.fixture
def log() -> Log:
    log = Log(MemoryStore("staging"))
    log.create_topic("t", 3)
    return log


def opener(log: Log, place: TopicPartition) -> PartitionLog:
    return log.partition(place.topic, place.partition)


def values(log: Log, partition: int) -> list[bytes]:
    place = log.partition("t", partition)
    batches = place.read(0, place.view().end_offset, ("value",))
    return [v for b in batches for v in b.column("value").to_pylist()]


def staged_keys(log: Log) -> list[str]:
    return [info.key for info in log.store.list("topics/t") if "/staged/" in info.key]


pieces = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 400)), max_size=40)


@given(pieces, st.integers(100, 3000), st.integers(1000, 20_000))
def test_records_of_a_partition_keep_their_order_under_any_limits(
    given_pieces: list[tuple[int, int]], roll_bytes: int, buffered_bytes_max: int
) -> None:
    log = Log(MemoryStore("staging"), entropy=SeededEntropy(3))
    log.create_topic("t", 3)
    staging = Staging(
        lambda place: opener(log, place),
        roll_bytes=lambda _: roll_bytes,
        buffered_bytes_max=buffered_bytes_max,
    )
    wanted: dict[int, list[bytes]] = defaultdict(list)
    number = 0
    for partition, rows in given_pieces:
        made = [b"%08d" % (number + i) for i in range(rows)]
        number += rows
        wanted[partition] += made
        staging.add(TopicPartition("t", partition), pa.RecordBatch.from_pydict({"value": made}))
    append_once(log, staging.finish())
    assert [values(log, p) for p in range(3)] == [wanted[p] for p in range(3)]


def test_the_largest_buffer_is_staged_when_all_of_them_grow_too_large(log: Log) -> None:
    staging = Staging(
        lambda place: opener(log, place), roll_bytes=lambda _: 1 << 20, buffered_bytes_max=3000
    )
    for partition, rows in [(0, 30), (1, 100), (2, 30), (0, 30), (2, 30)]:
        batch = pa.RecordBatch.from_pydict({"value": [b"0123456789"] * rows})
        staging.add(TopicPartition("t", partition), batch)
    found = staging.finish()
    assert [sum(r.rows for r in part.staged) for part in found] == [60, 100, 60]
    assert len(staged_keys(log)) == 3


def test_no_object_is_larger_than_a_segment_of_the_topic_may_be(log: Log) -> None:
    log.alter_configs("t", {"segment.bytes": "1048576"})
    batch = pa.RecordBatch.from_pydict({"value": [b"%01000d" % i for i in range(5000)]})
    staged = stage_rows(log, SinkOptions("", "t"), ["value"], iter([batch]))
    sizes = [r.rows for part in staged for r in part.staged]
    assert len(sizes) == 5
    append_once(log, staged)
    (place,) = {part.partition for part in staged}
    assert values(log, place) == batch.column("value").to_pylist()


def test_a_topic_with_a_value_of_a_newer_version_is_written(log: Log) -> None:
    log.alter_configs("t", {"cleanup.policy": "compact"})
    stored(log, spelled(ConfigRecord("t", "compression.type", "brotli")))
    keyed = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"]})
    staged = stage_rows(log, SinkOptions("", "t"), ["key", "value"], iter([keyed]))
    append_once(log, staged)
    assert values(log, staged[0].partition) == [b"v"]
    with pytest.raises(InvalidRequest, match="without a key"):
        stage_rows(log, SinkOptions("", "t"), ["value"], iter([keyed]))


def test_empty_input_stages_no_object(log: Log) -> None:
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    assert stage_rows(log, SinkOptions("", "t"), ["value"], iter([empty])) == ()
    assert stage_rows(log, SinkOptions("", "t"), ["value"], iter([])) == ()
    assert staged_keys(log) == []


class FailingStore(MemoryStore):
    """Answers `puts_left` puts of staged objects and then no more."""

    puts_left = 1_000_000

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        if "/staged/" in key:
            if not self.puts_left:
                raise Unavailable("the store is gone")
            self.puts_left -= 1
        return super().put_if_absent(key, data)


def test_a_failed_upload_fails_the_task_and_leaves_nothing() -> None:
    store = FailingStore("failing")
    log = Log(store)
    log.create_topic("t", 1, {"segment.bytes": "1048576"})
    store.puts_left = 3
    batch = pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 1000})
    with pytest.raises(Unavailable, match="the store is gone"):
        stage_rows(log, SinkOptions("", "t"), ["value"], iter([batch] * 8))
    assert store.puts_left == 0, "the case did not come about"
    assert staged_keys(log) == []


def test_an_input_that_fails_leaves_nothing(log: Log) -> None:
    log.alter_configs("t", {"segment.bytes": "1048576"})

    def rows() -> Iterator[pa.RecordBatch]:
        yield from [pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 1000})] * 8
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stage_rows(log, SinkOptions("", "t"), ["value"], rows())
    assert staged_keys(log) == []


def test_a_record_over_the_topics_limit_is_refused(log: Log) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x" * 2_000_000]})
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        stage_rows(log, SinkOptions("", "t"), ["value"], iter([batch]))


def test_a_compacted_topic_takes_no_row_without_a_key(log: Log) -> None:
    log.alter_configs("t", {"cleanup.policy": "compact"})
    keyed = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"x"]})
    assert stage_rows(log, SinkOptions("", "t"), ["key", "value"], iter([keyed]))
    bare = pa.RecordBatch.from_pydict({"key": [b"k", None], "value": [b"x", b"y"]})
    for columns in (["key", "value"], ["value"]):
        with pytest.raises(InvalidRequest, match="without a key"):
            stage_rows(log, SinkOptions("", "t"), columns, iter([bare]))


def test_unknown_topic_is_an_error_with_the_way_to_create_it(log: Log) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    with pytest.raises(UnknownTopicOrPartition, match=r"topics --create --topic nosuch"):
        stage_rows(log, SinkOptions("", "nosuch"), ["value"], iter([batch]))


def codec_of(log: Log, staged: tuple[StagedPartition, ...]) -> str:
    append_once(log, staged)
    (part,) = staged
    place = log.partition(part.topic, part.partition)
    name = part.staged[0].object
    data = log.store.get(place.layout.key(name))
    return next(c for c in ("zstd", "lz4", "none") if f'"codec":"{c}"'.encode() in data)


@pytest.mark.parametrize(
    ("topics_own", "producers", "stored"),
    [
        (None, None, "lz4"),
        (None, "none", "none"),
        (None, "gzip", "zstd"),
        (None, "zstd", "zstd"),
        ("producer", "zstd", "zstd"),
        ("lz4", "zstd", "lz4"),
        ("uncompressed", "lz4", "none"),
    ],
)
def test_the_producers_compression_acts_unless_the_topic_has_its_own(
    log: Log, topics_own: str | None, producers: str | None, stored: str
) -> None:
    if topics_own is not None:
        log.alter_configs("t", {"compression.type": topics_own})
    batch = pa.RecordBatch.from_pydict({"value": [b"x" * 100] * 100})
    options = SinkOptions("", "t", compression=producers)
    assert codec_of(log, stage_rows(log, options, ["value"], iter([batch]))) == stored
