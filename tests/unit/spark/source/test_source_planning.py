"""Planning of reads: schemas, tasks, shares of a trigger. Pure code."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sparklog.core.errors import InvalidRequest
from sparklog.core.types import OffsetRange, TopicPartition
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry, Manifest
from sparklog.log.manifest.view import PartitionView
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.spark.source.schema import SPARK_TYPES, arrow_schema, columns_of, full_schema
from sparklog.spark.source.splitting import (
    COUNTED_ROWS_MAX,
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    TASK_ROWS_MAX,
    Task,
    split,
)
from sparklog.spark.source.stream_reader import Delay, at_most

MIB = 1 << 20


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def view(number: int, sizes: Sequence[tuple[int, int]]) -> ReadablePartition:
    """A partition of objects with these (rows, bytes)."""
    entries, at = [], 0
    for rows, size_bytes in sizes:
        entries.append(Entry(at, at + rows, f"o{at}", size_bytes, rows, 0, 0, 0, ""))
        at += rows
    layout = PartitionLayout("t", "i" * 22, number)
    stored = PartitionView(layout, Manifest(end_offset=at, entries=tuple(entries)))
    return ReadablePartition(stored, at, at)


def sizes_of(tasks: Sequence[Task]) -> list[list[int]]:
    by_place: dict[TopicPartition, list[int]] = {}
    for task in tasks:
        by_place.setdefault(task.place, []).append(len(task.offsets))
    return list(by_place.values())


def test_the_schema_is_the_kafka_sources() -> None:
    assert full_schema(include_headers=False).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    headers = full_schema(include_headers=True)["headers"]
    assert headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_arrow_batches_have_the_very_schema_that_spark_compares_with() -> None:
    for schema in (
        full_schema(include_headers=True),
        StructType(list(reversed(full_schema(include_headers=True).fields))),
        StructType([StructField("OFFSET", SPARK_TYPES["offset"], nullable=False)]),
        StructType([]),
    ):
        assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_columns_may_be_requested_in_any_order_and_case() -> None:
    schema = StructType(
        [
            StructField("Value", SPARK_TYPES["value"]),
            StructField("TIMESTAMPTYPE", SPARK_TYPES["timestampType"], nullable=False),
        ]
    )
    assert columns_of(schema) == ("value", "timestampType")
    assert columns_of(StructType([])) == ()


@pytest.mark.parametrize(
    ("name", "like", "nullable", "message"),
    [
        ("values", "value", True, "did you mean value"),
        ("body", "value", True, "no such column"),
        ("value", "topic", True, "type=binary asked=string"),
        ("offset", "partition", True, "type=bigint asked=int"),
        ("key", "key", False, "without NOT NULL"),
    ],
)
def test_other_columns_are_refused(name: str, like: str, nullable: bool, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        columns_of(StructType([StructField(name, SPARK_TYPES[like], nullable)]))


def test_column_requested_twice_is_rejected() -> None:
    field = StructField("key", SPARK_TYPES["key"])
    with pytest.raises(InvalidRequest, match="twice"):
        columns_of(StructType([field, StructField("KEY", SPARK_TYPES["key"])]))


def test_small_partitions_are_a_task_each_by_default() -> None:
    views = {place(n): view(n, [(10, 1000)]) for n in range(3)}
    ranges = {p: OffsetRange(0, 10) for p in views}
    assert sizes_of(split(ranges, views)) == [[10], [10], [10]]
    ranges[place(1)] = OffsetRange(4, 4)
    assert sizes_of(split(ranges, views)) == [[10], [10]], "nothing to read is no task"
    assert split({}, {}) == []


def test_large_partition_is_cut_by_its_bytes_by_default() -> None:
    objects = [(1000, 32 * MIB)] * 4 + [(8000, 32 * MIB)] * 4
    views = {place(0): view(0, objects)}
    tasks = split({place(0): OffsetRange(0, 36_000)}, views)
    assert sizes_of(tasks) == [[2000] * 2 + [16_000] * 2], "4 tasks of 64 MiB"
    tasks = split({place(0): OffsetRange(32_000, 36_000)}, views)
    assert len(tasks) == 1, "no smaller than 16 MiB"


def test_a_read_of_offsets_only_is_cut_by_rows_not_bytes() -> None:
    views = {place(0): view(0, [(1000, 64 * MIB)] * 200)}
    ranges = {place(0): OffsetRange(0, 200_000)}
    assert sizes_of(split(ranges, views, counted=True)) == [[200_000]]
    many = {place(0): view(0, [(5 * COUNTED_ROWS_MAX, MIB)])}
    tasks = split({place(0): OffsetRange(0, 5 * COUNTED_ROWS_MAX)}, many, counted=True)
    assert sizes_of(tasks) == [[COUNTED_ROWS_MAX] * 5]


def test_tasks_have_bounds_by_default_for_any_size_of_log() -> None:
    views = {place(0): view(0, [(1000, 64 * MIB)] * 200)}
    tasks = split({place(0): OffsetRange(0, 200_000)}, views)
    assert len(tasks) == 200 * 64 * MIB // TASK_BYTES_MAX
    views = {place(0): view(0, [(9 * TASK_ROWS_MAX, TASK_BYTES_MIN)])}
    tasks = split({place(0): OffsetRange(0, 9 * TASK_ROWS_MAX)}, views)
    assert sizes_of(tasks) == [[TASK_ROWS_MAX] * 9], "tiny records: cut by their number"


def test_min_partitions_cuts_as_the_kafka_source_does() -> None:
    views = {place(n): view(n, [(10_000, 1)]) for n in range(3)}

    def cut(sizes: Sequence[int], wanted: int) -> list[list[int]]:
        ranges = {place(n): OffsetRange(5, 5 + size) for n, size in enumerate(sizes)}
        return sizes_of(split(ranges, views, min_partitions=wanted))

    assert cut([10], 3) == [[3, 3, 4]]
    assert cut([5], 3) == [[1, 2, 2]]
    assert cut([100, 5, 5], 1) == [[100], [5], [5]]
    assert cut([100, 5, 5], 6) == [[25] * 4, [5], [5]]
    assert cut([1, 1, 1], 10) == [[1], [1], [1]], "a record cannot be cut"
    assert cut([40, 40], 4) == [[20, 20], [20, 20]]


def test_max_records_per_partition_respects_min_partitions() -> None:
    views = {place(n): view(n, [(10_000, 1)]) for n in range(2)}
    ranges = {place(0): OffsetRange(0, 10), place(1): OffsetRange(0, 3)}
    assert sizes_of(split(ranges, views, max_records=4)) == [[3, 3, 4], [3]]
    tasks = split(ranges, views, max_records=4, min_partitions=8)
    assert len(tasks) >= 7
    assert max(len(task.offsets) for task in tasks) <= 4


@given(
    objects=st.lists(
        st.lists(
            st.tuples(st.integers(1, 10**7), st.integers(0, 300 * MIB)), min_size=1, max_size=9
        ),
        min_size=1,
        max_size=4,
    ),
    skipped=st.floats(0, 1),
    min_partitions=st.none() | st.integers(1, 50),
    max_records=st.none() | st.integers(10**4, 10**7),
)
def test_tasks_cover_every_offset_once_in_order(
    objects: list[list[tuple[int, int]]],
    skipped: float,
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    views = {place(n): view(n, sizes) for n, sizes in enumerate(objects)}
    ranges = {
        p: OffsetRange(math.floor(v.end_offset * skipped), v.end_offset) for p, v in views.items()
    }
    tasks = split(ranges, views, min_partitions=min_partitions, max_records=max_records)
    at = {p: r.base_offset for p, r in ranges.items()}
    for task in tasks:
        assert task.offsets.base_offset == at[task.place]
        assert len(task.offsets) > 0
        at[task.place] = task.offsets.end_offset
        if max_records is not None:
            assert len(task.offsets) <= max_records
    assert at == {p: r.end_offset for p, r in ranges.items()}


def test_maximum_is_shared_in_proportion_to_each_partitions_backlog() -> None:
    begin = {place(0): 100, place(1): 0, place(2): 7, place(3): 9}
    latest = {place(0): 1100, place(1): 100, place(2): 8, place(3): 9}
    assert at_most(110, begin, latest) == {place(0): 199, place(1): 9, place(2): 8, place(3): 9}
    assert at_most(5000, begin, latest) == latest
    assert at_most(1, begin, latest)[place(2)] == 8, "a small partition is not starved"


@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 2**62), st.integers(0, 2**61)), min_size=1
    ),
    st.integers(1, 2**62),
)
def test_a_limited_batch_moves_on_and_never_past_the_end(
    partitions: dict[int, tuple[int, int]], rows_max: int
) -> None:
    begin = {place(n): low for n, (low, _) in partitions.items()}
    latest = {place(n): low + size for n, (low, size) in partitions.items()}
    limited = at_most(rows_max, begin, latest)
    for one, end in limited.items():
        assert begin[one] <= end <= latest[one]
        assert end > begin[one] or latest[one] == begin[one]


def test_a_minimum_waits_for_records_but_not_for_ever() -> None:
    delay = Delay(rows_min=10, delay_max_s=60)
    begin = {place(0): 0, place(1): 0}
    assert delay.holds(begin, begin, 0), "nothing at all"
    assert not delay.holds(begin, {place(0): 1, place(1): 0}, 1), "the first batch does not wait"
    assert delay.holds(begin, {place(0): 5, place(1): 4}, 2)
    assert not delay.holds(begin, {place(0): 5, place(1): 5}, 3)
    assert delay.holds(begin, {place(0): 1, place(1): 0}, 62)
    assert not delay.holds(begin, {place(0): 1, place(1): 0}, 63), "a minute has passed"


def test_types_read_from_ddl_are_those_of_the_source() -> None:
    """Spark parses a user's DDL in the JVM; the JSON it sends is what these types print."""
    for name, wanted in SPARK_TYPES.items():
        schema = StructType.fromJson(StructType([StructField(name, wanted)]).jsonValue())
        assert columns_of(schema) == (name,)
    assert pa.types.is_list(arrow_schema(full_schema(include_headers=True)).field("headers").type)
