"""Batch reads of a named snapshot: the same records, after any change of the topic."""

from __future__ import annotations

import json

import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import create_snapshot, drop_snapshot
from sparklog.core.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from sparklog.spark.source.options import parse_batch_options, parse_stream_options
from tests.harness.source_logs import append, new_log, numbered, root_of, rows_of


@pytest.fixture
def log() -> Log:
    made = new_log()
    made.create_topic("t", 2)
    append(made, "t", 0, numbered(0, 6), at_ms=1000)
    append(made, "t", 1, numbered(100, 2), at_ms=2000)
    made.partition("t", 0).delete_records(1)
    create_snapshot(made, "s", ["t"])
    return made


def test_a_snapshot_is_read_though_the_topic_went_on_and_ended(log: Log) -> None:
    kept = [(b"%d" % n,) for n in (1, 2, 3, 4, 5, 100, 101)]
    append(log, "t", 0, numbered(6, 3))
    assert sorted(rows_of(log, subscribe="t", snapshot="s")) == sorted(kept)
    assert len(rows_of(log, subscribe="t")) == 10
    log.partition("t", 0).delete_records(-1)
    log.delete_topic("t")
    log.create_topic("t", 1)
    assert rows_of(log, subscribe="t") == []
    assert sorted(rows_of(log, subscribe="t", snapshot="s")) == sorted(kept)
    assert sorted(rows_of(log, subscribePattern="t", snapshot="s")) == sorted(kept)
    assert len(rows_of(log, ("offset",), subscribe="t", snapshot="s")) == 7


def test_offsets_and_times_are_within_the_snapshot(log: Log) -> None:
    append(log, "t", 0, numbered(6, 3), at_ms=3000)
    some = json.dumps({"t": {"0": 3, "1": -2}})
    found = rows_of(log, subscribe="t", snapshot="s", startingOffsets=some)
    assert sorted(found) == [(b"100",), (b"101",), (b"3",), (b"4",), (b"5",)]
    late = rows_of(
        log, assign='{"t": [0]}', snapshot="s", startingTimestamp="1004",
        startingOffsetsByTimestampStrategy="latest",
    )  # fmt: skip
    assert late == [(b"4",), (b"5",)]


def test_topic_or_snapshot_that_is_missing_is_reported(log: Log) -> None:
    log.create_topic("later")
    with pytest.raises(UnknownTopicOrPartition):
        rows_of(log, subscribe="later", snapshot="s")
    with pytest.raises(InvalidRequest, match="no such snapshot"):
        rows_of(log, subscribe="t", snapshot="none")
    drop_snapshot(log.store, "s")
    with pytest.raises(InvalidRequest, match="no such snapshot"):
        rows_of(log, subscribe="t", snapshot="s")


def test_a_stream_takes_no_snapshot(log: Log) -> None:
    given = {"path": root_of(log), "subscribe": "t", "snapshot": "s"}
    assert parse_batch_options(given).snapshot == "s"
    assert parse_batch_options(given).leaders() is None
    with pytest.raises(InvalidConfig, match="does not grow"):
        parse_stream_options(given)
    with pytest.raises(InvalidConfig, match="is empty"):
        parse_batch_options({**given, "snapshot": " "})
