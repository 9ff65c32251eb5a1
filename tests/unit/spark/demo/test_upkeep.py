"""Comparisons of the demo after the upkeep of its topics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.spark.demo import upkeep
from sparklog.spark.demo.producers import PARTITIONS
from sparklog.spark.schedule.file import parse_schedule

JUNE, JULY = datetime(2013, 6, 30, tzinfo=UTC), datetime(2013, 7, 1, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log with a few flights in one of its partitions, one of them without a tail number."""
    with open_log(str(tmp_path / "log")) as opened:
        for topic in ("flights", upkeep.TOPIC):
            opened.create_topic(topic, PARTITIONS)
        rows = {
            "key": [b"a", None, b"b", b"a"],
            "value": [b"1", b"2", b"3", b"4"],
            "timestamp": pa.array([JUNE, JULY, JULY, JULY], pa.timestamp("ms", "UTC")),
        }
        opened.partition("flights", 1).append([pa.record_batch(rows)])
        yield opened


def test_copied_flights_are_keyed_by_aircraft(log: Log) -> None:
    for number in range(PARTITIONS):
        upkeep._copy(log, number)
    assert upkeep._newest(log).to_pylist() == [
        {"key": b"a", "partition": 1, "offset": 2},
        {"key": b"b", "partition": 1, "offset": 1},
    ]
    assert upkeep._kept_offsets(log)["offset"].to_pylist() == [1, 2, 3]
    held = upkeep.Holdings.of(log, upkeep.TOPIC)
    assert (held.objects, held.records, held.log_starts) == (3, 3, (0, 0, 0))


def test_objects_that_no_log_names_are_counted(log: Log) -> None:
    assert upkeep._left(log, "flights") == 0
    log.partition("flights", 0).stage([pa.record_batch({"value": [b"x"]})])
    assert upkeep._left(log, "flights") == 1


def test_the_last_row_of_each_aircraft_is_the_latest_in_time(log: Log) -> None:
    rows = pa.table({"tailnum": ["a", "b", "a", None, "b"], "flight": [1, 2, 3, 4, 5]})
    times = pa.array([JULY, JULY, JUNE, JULY, JULY], pa.timestamp("s", "UTC"))
    assert upkeep._latest(rows, times).to_pylist() == [
        {"tailnum": "a", "flight": 1},
        {"tailnum": "b", "flight": 5},
    ]


def test_the_schedule_is_one() -> None:
    schedule = parse_schedule(upkeep.SCHEDULE.encode(), "demo")
    assert [job.name for job in schedule.jobs] == [upkeep.COMPACTION, upkeep.RETENTION]
