"""Routing rows to partitions: what Kafka would do, whole batches at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import InvalidPartitions, InvalidRequest, UnknownTopicOrPartition
from sparklog.log.schema import HEADERS, normalized
from sparklog.protocol.partitioner.partitioner import partition_for_key
from sparklog.spark.sink.routing import Router, gathered, records_of

TOPICS = {"one": 1, "three": 3, "many": 300}


def partitions_of(topic: str) -> int:
    if topic not in TOPICS:
        raise UnknownTopicOrPartition(f"no such topic. topic={topic}")
    return TOPICS[topic]


def routed(batch: pa.RecordBatch, topic: str | None, seed: int = 0) -> dict[str, list[Any]]:
    router = Router(topic, partitions_of, entropy=SeededEntropy(seed))
    found: dict[str, list[Any]] = defaultdict(list)
    for place, records in router.route(batch):
        assert str(place) not in found, "a partition came twice"
        found[str(place)] = records.column("value").to_pylist()
    return found


rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(sorted(TOPICS)),
        "key": st.one_of(st.none(), st.binary(max_size=12)),
        "partition": st.one_of(st.none(), st.just(0)),
    }
)


@given(st.lists(rows, max_size=60), st.booleans(), st.booleans(), st.integers(0, 9))
def test_rows_go_to_kafkas_partitions_in_order(
    given_rows: list[dict[str, Any]], keyed: bool, explicit: bool, cut: int
) -> None:
    names = ["topic", "key", "partition"]
    columns: dict[str, pa.Array] = {
        "topic": pa.array([r["topic"] for r in given_rows], pa.string()),
        "value": pa.array([b"%d" % i for i in range(len(given_rows))], pa.binary()),
    }
    if keyed:
        columns["key"] = pa.array([r["key"] for r in given_rows], pa.binary())
    if explicit:
        columns["partition"] = pa.array([r["partition"] for r in given_rows], pa.int32())
    batch = pa.RecordBatch.from_pydict(columns).slice(cut)
    found = routed(batch, None)
    assert names
    keyless: dict[str, set[int]] = defaultdict(set)
    seen = 0
    for place, values in found.items():
        topic, _, number = place.rpartition("-")
        numbers = [int(v) for v in values]
        assert numbers == sorted(numbers), "rows of one partition changed places"
        seen += len(numbers)
        for row in (given_rows[i] for i in numbers):
            assert row["topic"] == topic
            if explicit and row["partition"] is not None:
                assert int(number) == row["partition"]
            elif keyed and row["key"] is not None:
                assert int(number) == partition_for_key(row["key"], TOPICS[topic])
            else:
                keyless[topic].add(int(number))
    assert seen == max(0, len(given_rows) - cut)
    assert all(len(numbers) == 1 for numbers in keyless.values()), "keyless rows do not stick"


def test_keyless_batches_take_turns_over_all_partitions() -> None:
    router = Router("three", partitions_of, entropy=SeededEntropy(1))
    batch = pa.RecordBatch.from_pydict({"value": [b"x", b"y"]})
    places = [place.partition for _ in range(6) for place, _ in router.route(batch)]
    assert sorted(places[:3]) == [0, 1, 2]
    assert places[:3] == places[3:]


def test_keyless_writers_do_not_all_begin_at_the_same_partition() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    begins = {next(iter(routed(batch, "many", seed))) for seed in range(20)}
    assert len(begins) > 10


@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("others", [[], [None], [0, None]])
def test_a_partition_out_of_range_is_named(number: int, others: list[int | None]) -> None:
    numbers = [*others, number]
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"x"] * len(numbers), "partition": pa.array(numbers, pa.int32())}
    )
    with pytest.raises(InvalidPartitions, match=rf"topic=three partition={number} partitions=3"):
        routed(batch, "three")


def test_null_topic_gets_kafkas_sink_message() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x", b"y"], "topic": ["one", None]})
    with pytest.raises(InvalidRequest, match=r"null topic present in the data"):
        routed(batch, None)


def test_unknown_topic_is_reported() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x"], "topic": ["four"]})
    with pytest.raises(UnknownTopicOrPartition, match="four"):
        routed(batch, None)


def test_strings_and_times_become_the_logs_types() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": ["k", None],
            "value": ["v", "ü"],
            "timestamp": pa.array([1_234_567, None], pa.timestamp("us", tz="UTC")),
            "topic": ["one", "one"],
        }
    )
    found = records_of(batch.slice(0))
    assert found.schema.names == ["timestamp", "key", "value"]
    assert found.column("key").to_pylist() == [b"k", None]
    assert found.column("value").to_pylist() == [b"v", "ü".encode()]
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1234, None]
    assert records_of(batch.slice(1)).column("value").to_pylist() == ["ü".encode()]


def test_a_timestamp_in_seconds_is_one_too() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["v"], "timestamp": [1700000000.125]})
    found = records_of(batch).column("timestamp").cast(pa.int64()).to_pylist()
    assert found == [1_700_000_000_125]


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array(
        [[{"key": "a", "value": b"1"}], None, [{"key": None, "value": b""}]], HEADERS
    )
    batch = pa.RecordBatch.from_pydict({"value": ["v"] * 3, "headers": headers})
    assert records_of(batch.slice(0, 2)).column("headers").to_pylist()[1] is None
    with pytest.raises(InvalidRequest, match="header has no key"):
        records_of(batch)


def test_small_batches_are_gathered_and_none_is_lost() -> None:
    batches = [pa.RecordBatch.from_pydict({"value": [b"%d" % i] * 10_000}) for i in range(20)]
    found = list(gathered(iter(batches)))
    assert len(found) == 3
    assert pa.Table.from_batches(found) == pa.Table.from_batches(batches)
    assert list(gathered([])) == []


def test_times_before_1970_are_rounded_down() -> None:
    micros = [-1, -1_000, -1_001, 0, 1, 999, 1_000, -62_135_596_800_000_001]
    wanted = [-1, -1, -2, 0, 0, 0, 1, -62_135_596_800_001]
    stamps = pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    values = pa.array([b"v"] * len(micros))
    rows = pa.record_batch({"timestamp": stamps, "value": values})
    assert records_of(rows).column("timestamp").cast(pa.int64()).to_pylist() == wanted
    plain = normalized(rows, 0).column("timestamp").cast(pa.int64()).to_pylist()
    assert plain == wanted
    seconds = pa.record_batch({"timestamp": pa.array([-0.0005, 1.5]), "value": values[:2]})
    assert records_of(seconds).column("timestamp").cast(pa.int64()).to_pylist() == [-1, 1_500]
