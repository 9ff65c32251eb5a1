"""Streaming reads through Spark itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklog.cluster.log import Log
from tests.harness.waiting import eventually
from tests.spark.conftest import MakeLog

PATIENCE_S = 300


def append(log: Log, topic: str, partition: int, *values: str) -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([v.encode() for v in values])})
    log.partition(topic, partition).append([batch])


def stream(spark: SparkSession, root: str, **options: str) -> DataFrame:
    given = {"startingOffsets": "earliest", **options}
    if "subscribePattern" not in given:
        given.setdefault("subscribe", "t")
    return spark.readStream.format("sparklog").options(**given).load(root)


class Sink:
    """A sink that keeps what each batch brought."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches: dict[int, list[str]] = {}

    def start(self, df: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = df.selectExpr("CAST(value AS STRING) AS value").writeStream
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.foreachBatch(self.keep).option("checkpointLocation", str(self.folder)).start()

    def keep(self, df: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = sorted(r.value for r in df.collect())

    def run(self, df: DataFrame) -> list[dict[str, Any]]:
        """Run until everything available is read; returns the progress of the batches."""
        query = self.start(df, availableNow=True)
        assert query.awaitTermination(PATIENCE_S)
        return [json.loads(p.json) for p in query.recentProgress]

    @property
    def rows(self) -> list[str]:
        return [v for _, values in sorted(self.batches.items()) for v in values]

    def offsets(self) -> list[str]:
        """Return the offsets of each batch as the checkpoint has them."""
        files = [f for f in (self.folder / "offsets").iterdir() if f.name.isdecimal()]
        return [f.read_text().split("\n")[2] for f in sorted(files, key=lambda f: int(f.name))]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "checkpoint")


@pytest.fixture
def log(make_log: MakeLog) -> Log:
    made = make_log(t=2)
    append(made, "t", 0, *(f"a{i}" for i in range(6)))
    append(made, "t", 1, "b0", "b1", "b2")
    return made


def test_available_now_reads_bounded_batches_from_its_checkpoint(
    spark: SparkSession, log: Log, log_root: str, sink: Sink
) -> None:
    df = stream(spark, log_root, maxOffsetsPerTrigger="3")
    progress = sink.run(df)
    assert sink.rows == ["a0", "a1", "b0", "a2", "a3", "b1", "a4", "a5", "b2"]
    topic_ids = {"t": log.refresh().topics["t"].topic_id}
    assert [json.loads(one) for one in sink.offsets()] == [
        {"t": {"0": 2, "1": 1}, "~topicIds": topic_ids},
        {"t": {"0": 4, "1": 2}, "~topicIds": topic_ids},
        {"t": {"0": 6, "1": 3}, "~topicIds": topic_ids},
    ]
    source = progress[0]["sources"][0]
    assert json.loads(json.dumps(source["latestOffset"])) in (
        {"t": {"0": 6, "1": 3}},
        '{"t": {"0": 6, "1": 3}}',
    )
    append(log, "t", 1, "b3")
    log.add_partitions("t", 3)
    append(log, "t", 2, "c0")
    sink.run(df)
    assert sorted(sink.rows[9:]) == ["b3", "c0"]


def test_a_running_stream_follows_appends_new_topics_and_deletions(
    spark: SparkSession, log: Log, log_root: str, sink: Sink
) -> None:
    df = stream(spark, log_root, subscribePattern="^t", failOnDataLoss="false")
    query = sink.start(df)
    try:
        eventually(lambda: len(sink.rows) == 9, "what is there")
        append(log, "t", 0, "a6")
        eventually(lambda: sink.rows[9:] == ["a6"], "an append")
        log.create_topic("t-new")
        append(log, "t-new", 0, "n0")
        eventually(lambda: sink.rows[10:] == ["n0"], "a new topic")
        log.delete_topic("t")
        append(log, "t-new", 0, "n1")
        eventually(lambda: sink.rows[11:] == ["n1"], "an append after a deletion")
        assert query.exception() is None
    finally:
        query.stop()


def test_a_stream_begins_at_the_end_by_default(
    spark: SparkSession, log: Log, log_root: str, sink: Sink
) -> None:
    df = spark.readStream.format("sparklog").option("subscribe", "t").load(log_root)
    query = sink.start(df)
    try:
        eventually(lambda: sink.batches, "an empty first batch")
        append(log, "t", 0, "new")
        eventually(lambda: sink.rows == ["new"], "the new row")
    finally:
        query.stop()


def test_lost_records_end_the_query_with_an_explanation(
    spark: SparkSession, log: Log, log_root: str, sink: Sink
) -> None:
    sink.run(stream(spark, log_root))
    append(log, "t", 0, "a6", "a7", "a8")
    log.partition("t", 0).delete_records(8)
    with pytest.raises(StreamingQueryException, match=r"t-0 was 6 but the log starts at 8"):
        sink.run(stream(spark, log_root))
    sink.run(stream(spark, log_root, failOnDataLoss="false"))
    assert sink.rows[9:] == ["a8"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"subscribe": "nowhere"}, "no such topic.*topic=nowhere"),
        ({"maxOffsetsPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_bad_options_end_the_query_with_an_explanation(
    spark: SparkSession,
    log: Log,
    log_root: str,
    sink: Sink,
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(Exception, match=f"(?s){message}"):
        sink.run(stream(spark, log_root, **options))


def test_a_stream_joins_itself(spark: SparkSession, log: Log, log_root: str, sink: Sink) -> None:
    one = stream(spark, log_root)
    union = one.where("partition = 0").union(one.where("partition = 1 AND offset = 1"))
    sink.run(union)
    assert sink.rows == [*(f"a{i}" for i in range(6)), "b1"]
