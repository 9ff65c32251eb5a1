"""Streaming reads on a log in memory, called in the order in which Spark calls."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparklog.cluster.log import Log
from sparklog.core.clock import ManualClock
from sparklog.core.errors import (
    DataCorrupt,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from sparklog.spark.source.stream_reader import SparklogStreamReader
from tests.harness.source_logs import (
    append,
    new_log,
    numbered,
    read_all,
    requests_of,
    stream_reader,
)

ALL = ReadAllAvailable()
COLUMNS = ("partition", "offset", "value")


class Query:
    """Does what Spark's micro-batch execution does, with a checkpoint that outlives a restart."""

    def __init__(self, log: Log, clock: ManualClock | None = None, /, **options: str) -> None:
        self.clock = clock or ManualClock()
        self.log, self.options = log, options
        self.planned: list[str] = []
        """The checkpoint's `offsets` folder."""
        self.done = 0
        """Its `commits`."""
        self.rows: list[Any] = []
        self.start()

    def start(self) -> None:
        self.reader = stream_reader(self.log, COLUMNS, self.clock, **self.options)
        pickle.dumps(self.reader)

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Write the next batch into the checkpoint; says whether there was one."""
        before = self.planned[-1] if self.planned else json.dumps(self.reader.initialOffset())
        limit = limit or self.reader.getDefaultReadLimit()
        latest = json.dumps(self.reader.latestOffset(json.loads(before), limit))
        self.reader.reportLatestOffset()
        if self.planned and latest == before:
            return False
        self.planned.append(latest)
        return True

    def run(self) -> list[Any]:
        """Run the last planned batch and return its rows."""
        at = len(self.planned) - 1
        start = json.loads(self.planned[at - 1]) if at else self.reader.initialOffset()
        parts = self.reader.partitions(start, json.loads(self.planned[at]))
        rows = [(value) for _, _, value in read_all(self.reader, parts)]
        self.rows += rows
        self.done = len(self.planned)
        return rows

    def trigger(self, limit: ReadLimit | None = None) -> list[Any]:
        """One trigger, a moment after the one before."""
        self.clock.sleep_s(1)
        return self.run() if self.plan(limit) else []

    def restart(self) -> None:
        """Start again from the checkpoint; a batch that was not done is run again."""
        self.start()
        if self.done < len(self.planned):
            self.run()


def offset_of(reader: SparklogStreamReader) -> dict[str, Any]:
    return reader.latestOffset(reader.initialOffset(), ALL)


@pytest.fixture
def log() -> Log:
    made = new_log()
    made.create_topic("t", 2)
    append(made, "t", 0, numbered(0, 4))
    append(made, "t", 1, numbered(100, 2))
    return made


def test_offsets_in_the_checkpoint_are_those_of_the_kafka_source(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest")
    query.trigger()
    (planned,) = map(json.loads, query.planned)
    topic_id = log.refresh().topics["t"].topic_id
    assert planned == {"t": {"0": 4, "1": 2}, "~topicIds": {"t": topic_id}}
    assert query.reader.reportLatestOffset() == {"t": {"0": 4, "1": 2}}


def test_checkpoint_without_topic_ids_is_continued_with_them(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest")
    query.trigger()
    query.planned = ['{"t": {"0": 4, "1": 2}}']
    query.start()
    assert query.trigger() == []
    assert "~topicIds" in json.loads(query.planned[-1])
    append(log, "t", 1, [b"new"])
    assert query.trigger() == [b"new"]


def test_batch_planned_before_a_topic_recreation_reads_none_of_it() -> None:
    for fail in ("false", "true"):
        log = new_log()
        log.create_topic("t")
        append(log, "t", 0, [b"old"] * 4)
        query = Query(log, subscribe="t", startingOffsets="earliest", failOnDataLoss=fail)
        assert query.plan()
        log.delete_topic("t")
        log.create_topic("t")
        append(log, "t", 0, numbered(0, 9))
        if fail == "true":
            with pytest.raises(OffsetOutOfRange, match="Topic t was deleted and created again"):
                query.restart()
        else:
            query.restart()
            assert query.rows == []
            assert query.trigger() == numbered(0, 9)


def test_stream_from_earliest_returns_all_records_and_then_new_ones(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest")
    assert query.trigger() == [*numbered(0, 4), *numbered(100, 2)]
    assert query.trigger() == []
    assert len(query.planned) == 1, "no new records, no batch"
    append(log, "t", 1, [b"new"])
    assert query.trigger() == [b"new"]


def test_a_stream_starts_at_the_end_by_default(log: Log) -> None:
    query = Query(log, subscribe="t")
    assert query.trigger() == []
    append(log, "t", 0, [b"new"])
    assert query.trigger() == [b"new"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"t": {"0": 3, "1": -1}}'}, [b"3"]),
        ({"startingTimestamp": "1001"}, [b"1", b"2", b"3", b"101"]),
        (
            {"startingTimestamp": "1002", "startingOffsetsByTimestampStrategy": "latest"},
            [b"2", b"3"],
        ),
    ],
)
def test_stream_starts_at_the_given_offsets(
    log: Log, options: dict[str, str], expected: list[bytes]
) -> None:
    assert Query(log, subscribe="t", **options).trigger() == expected


def test_initial_offset_is_the_same_for_every_call(log: Log) -> None:
    reader = stream_reader(log, subscribe="t")
    first = reader.initialOffset()
    append(log, "t", 0, [b"new"])
    assert reader.initialOffset() == first


@pytest.mark.parametrize("late", [1, 3])
def test_restart_in_the_first_batch_of_a_latest_stream_loses_nothing(log: Log, late: int) -> None:
    """Spark asks a restarted query anew where it began, and by then the end is elsewhere."""
    query = Query(log, subscribe="t", startingOffsets="latest")
    query.reader.initialOffset()
    append(log, "t", 0, [b"a", b"b"])
    query.plan()
    append(log, "t", 0, [b"c"] * late)
    query.restart()
    query.trigger()
    assert query.rows == [b"a", b"b"] + [b"c"] * late


def test_a_batch_that_is_run_again_reads_the_same(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest")
    query.plan()
    append(log, "t", 0, [b"later"])
    query.restart()
    assert query.rows == [*numbered(0, 4), *numbered(100, 2)]
    assert query.trigger() == [b"later"]


def test_missing_topics_and_wrong_partitions_fail_the_start(log: Log) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic=u"):
        stream_reader(log, subscribe="t,u").initialOffset()
    with pytest.raises(UnknownTopicOrPartition, match="partition=2"):
        stream_reader(log, assign='{"t": [2]}').initialOffset()
    with pytest.raises(InvalidRequest, match="Specified"):
        stream_reader(log, subscribe="t", startingOffsets='{"t": {"0": 1}}').initialOffset()


def test_new_partitions_and_topics_are_read_from_the_beginning(log: Log) -> None:
    query = Query(log, subscribePattern="^t", startingOffsets="latest")
    query.trigger()
    log.add_partitions("t", 3)
    append(log, "t", 2, [b"t2"])
    log.create_topic("t-new")
    append(log, "t-new", 0, [b"tn"])
    log.create_topic("other")
    append(log, "other", 0, [b"o"])
    assert query.trigger() == [b"t2", b"tn"]
    planned = json.loads(query.planned[-1])
    assert planned.pop("~topicIds").keys() == {"t", "t-new"}
    assert planned == {"t": {"0": 4, "1": 2, "2": 1}, "t-new": {"0": 1}}


def test_a_pattern_that_matches_nothing_yet_waits(log: Log) -> None:
    query = Query(log, subscribePattern="^u", startingOffsets="earliest")
    assert query.trigger() == []
    log.create_topic("u")
    append(log, "u", 0, [b"u0"])
    assert query.trigger() == [b"u0"]


def test_new_partition_without_its_first_records_is_a_loss(log: Log) -> None:
    for fail in ("true", "false"):
        name = f"late-{fail}"
        query = Query(log, subscribePattern=f"^{name}", failOnDataLoss=fail)
        query.trigger()
        log.create_topic(name)
        append(log, name, 0, numbered(0, 5))
        log.partition(name, 0).delete_records(3)
        if fail == "true":
            with pytest.raises(OffsetOutOfRange, match="starts from 3 instead of 0"):
                query.trigger()
        else:
            assert query.trigger() == [b"3", b"4"]


def test_maximum_is_shared_out_and_all_records_arrive(log: Log) -> None:
    append(log, "t", 0, numbered(4, 6))
    query = Query(log, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert query.trigger() == [b"0", b"1", b"2", b"3", b"4", b"100"]
    assert query.reader.reportLatestOffset() == {"t": {"0": 10, "1": 2}}
    assert query.trigger() == [*numbered(5, 5), b"101"]
    assert query.trigger() == []


def test_a_minimum_waits_for_records_or_for_its_delay(log: Log) -> None:
    options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "30s"}
    query = Query(log, subscribe="t", startingOffsets="earliest", **options)
    assert query.reader.getDefaultReadLimit() == ReadMinRows(3)
    assert len(query.trigger()) == 6
    append(log, "t", 0, [b"a", b"b"])
    assert query.trigger() == []
    append(log, "t", 1, [b"c"])
    assert query.trigger() == [b"a", b"b", b"c"]
    append(log, "t", 0, [b"d"])
    assert query.trigger() == []
    query.clock.sleep_s(30)
    assert query.trigger() == [b"d"]


def test_minimum_and_maximum_hold_together(log: Log) -> None:
    options = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "4"}
    query = Query(log, subscribe="t", startingOffsets="earliest", **options)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert len(query.trigger()) == 3, "shares of four, rounded down"
    assert len(query.trigger()) == 3
    append(log, "t", 0, [b"a"])
    assert query.trigger() == []
    append(log, "t", 0, [b"b", b"c"])
    assert query.trigger() == [b"a", b"b", b"c"]


def test_trigger_once_reads_everything_despite_limits(log: Log) -> None:
    options = {"minOffsetsPerTrigger": "50", "maxOffsetsPerTrigger": "100"}
    query = Query(log, subscribe="t", startingOffsets="earliest", **options)
    assert len(query.trigger(ALL)) == 6


def test_available_now_reads_the_records_at_its_start_and_stops(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert isinstance(query.reader, SupportsTriggerAvailableNow)
    query.reader.prepareForTriggerAvailableNow()
    rows = query.trigger()
    append(log, "t", 0, [b"later"])
    log.add_partitions("t", 3)
    append(log, "t", 2, [b"later"])
    while more := query.trigger():
        rows += more
    assert sorted(rows) == sorted([*numbered(0, 4), *numbered(100, 2)])
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == [b"later", b"later"]
    assert query.trigger() == []


def test_available_now_does_not_wait_for_a_minimum(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest", minOffsetsPerTrigger="100")
    query.trigger()
    append(log, "t", 0, [b"new"])
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == [b"new"]


def test_a_batch_is_cut_into_tasks_by_the_options(log: Log) -> None:
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": "6"}, 6),
        ({"maxRecordsPerPartition": "3"}, 3),
    ):
        reader = stream_reader(log, subscribe="t", startingOffsets="earliest", **options)
        assert len(reader.partitions(reader.initialOffset(), offset_of(reader))) == tasks


def test_records_deleted_before_they_were_read_are_a_loss(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    for fail in ("true", "false"):
        name = f"d{fail}"
        log.create_topic(name)
        append(log, name, 0, numbered(0, 2))
        query = Query(log, subscribe=name, startingOffsets="earliest", failOnDataLoss=fail)
        query.trigger()
        append(log, name, 0, numbered(2, 4))
        log.partition(name, 0).delete_records(4)
        query.start()
        if fail == "true":
            with pytest.raises(OffsetOutOfRange, match=f"{name}-0 was 2 but the log starts at 4"):
                query.trigger()
        else:
            with caplog.at_level(logging.WARNING):
                assert query.trigger() == [b"4", b"5"]
            assert "the log starts at 4" in caplog.text


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_is_deleted_is_a_loss(log: Log, restarted: bool) -> None:
    for fail in ("true", "false"):
        log.create_topic(fail)
        append(log, fail, 0, [b"x"])
        query = Query(log, subscribe=f"t,{fail}", startingOffsets="earliest", failOnDataLoss=fail)
        query.trigger()
        log.delete_topic(fail)
        append(log, "t", 0, [b"y"])
        if restarted:
            query.start()
        if fail == "true":
            with pytest.raises(OffsetOutOfRange, match=r"\[true-0\] have been deleted"):
                query.trigger()
            assert len(query.planned) == 1, "nothing is planned that cannot be read"
        else:
            assert query.trigger() == [b"y"]
            assert query.trigger() == []


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("count", [0, 2, 4, 9])
def test_recreated_topic_is_a_loss_and_is_read_from_the_beginning(
    log: Log, count: int, restarted: bool
) -> None:
    for fail in ("true", "false"):
        log.create_topic(fail)
        append(log, fail, 0, [b"old"] * 4)
        query = Query(log, subscribe=fail, startingOffsets="earliest", failOnDataLoss=fail)
        query.trigger()
        query.rows.clear()
        log.delete_topic(fail)
        log.create_topic(fail)
        if count:
            append(log, fail, 0, numbered(0, count))
        if restarted:
            query.start()
        if fail == "true":
            read = r"Topic true was deleted and created again\. .* up to offsets \{0: 4\}"
            with pytest.raises(OffsetOutOfRange, match=read):
                query.trigger()
        else:
            query.trigger()
            query.trigger()
            assert query.rows == numbered(0, count)
            append(log, fail, 0, [b"new"])
            assert query.trigger() == [b"new"]


def test_a_start_beyond_the_end_is_a_loss(log: Log) -> None:
    options = {"subscribe": "t", "startingOffsets": '{"t": {"0": 9, "1": 2}}'}
    with pytest.raises(OffsetOutOfRange, match=r"t-0 offset was changed from 9 to 4.*set too high"):
        Query(log, **options).trigger()
    query = Query(log, failOnDataLoss="false", **options)
    assert query.trigger() == []
    append(log, "t", 0, [b"next"])
    assert query.trigger() == [b"next"]


def test_idle_trigger_costs_a_request_per_partition_and_one_more(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest")
    query.trigger()
    requests_of(log).reset()
    for _ in range(3):
        query.trigger()
    counted = {k: c.requests for k, c in requests_of(log).by_kind().items()}
    assert counted == {"get": 3 * 3}


def test_stream_polled_constantly_limits_its_store_requests(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest")
    query.trigger()
    query.clock.sleep_s(2)
    query.trigger()
    requests_of(log).reset()
    for _ in range(100):
        query.clock.sleep_s(0.01)
        query.plan()
    assert requests_of(log).by_kind()["get"].requests <= 11 * 3
    append(log, "t", 0, [b"new"])
    query.clock.sleep_s(0.11)
    assert query.plan(), "within a tenth of a second"


def test_log_start_is_refreshed_without_appends(log: Log) -> None:
    query = Query(log, subscribe="t", startingOffsets="earliest")
    query.trigger()
    requests_of(log).reset()
    for _ in range(25):
        query.trigger()
    assert 2 <= requests_of(log).by_kind()["list"].requests / (3 * 3) <= 3


def test_stream_reads_up_to_a_damaged_segment_and_names_it() -> None:
    log = new_log()
    log.create_topic("t", 2)
    for first in (0, 4, 8):
        append(log, "t", 0, numbered(first, 4))
    append(log, "t", 1, numbered(100, 6))
    layout = log.partition("t", 0).layout
    key = layout.key(layout.chain_name(8))
    log.store.put(key, b"no segment")
    log._partitions.clear()  # as a process that opens the log now
    query = Query(log, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="8")
    query.trigger()
    query.trigger()
    assert sorted(map(int, query.rows)) == [*range(8), *range(100, 106)]
    for _ in range(2):
        with pytest.raises(DataCorrupt, match=key):
            query.trigger()
