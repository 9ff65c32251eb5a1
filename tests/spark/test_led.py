"""Partitions that brokers lead: Spark reads all there is, and writes through the leaders."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from sparklog.client.producer import Producer
from sparklog.cluster.log import Log
from sparklog.log.effects import run
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, hand_back, take_leadership
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.record_batch import BatchSettings, encode
from sparklog.registry import decisions
from sparklog.registry.model.schema import SubjectVersion, read_content
from sparklog.registry.records import VersionPut, encode_record
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.spark.conftest import MakeLog


def lead(log: Log) -> PartitionView:
    """Lead and flush: two records, a marker, one record."""
    layout = log.partition("led", 0).layout
    view = run(take_leadership(PartitionView(layout), 1, "a" * 32), log.store)
    settings = BatchSettings(
        leader_epoch=1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    marker = encode_end_transaction(
        EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        base_offset=2,
        timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        leader_epoch=1,
    )
    batches = [
        encode(pa.record_batch({"value": pa.array([b"a", b"b"])}), settings, base_offset=0),
        marker,
        encode(
            pa.record_batch({"value": pa.array([b"c"])}),
            BatchSettings(leader_epoch=1),
            base_offset=3,
        ),
    ]
    draft = build_flush(layout, batches, "b" * 32, codec="lz4")
    return run(flush_at(view, draft, 1), log.store)


def test_fences_and_markers_are_no_rows(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(led=1)
    view = lead(log)
    frame = spark.read.format("sparklog").option("path", log_root).option("subscribe", "led")
    frame = frame.option("includeUnflushed", "false")
    assert frame.load().count() == 3
    rows = frame.load().select("offset", "value").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(0, b"a"), (1, b"b"), (3, b"c")]
    late = frame.option("startingOffsets", '{"led": {"0": 2}}').load()
    assert [row.offset for row in late.select("offset").collect()] == [3]
    run(hand_back(view, 2, "c" * 32), log.store)
    new = spark.createDataFrame([(b"mine",)], "value binary")
    writing = new.write.format("sparklog").option("path", log_root).option("topic", "led")
    writing.mode("append").save()
    everything = frame.option("startingOffsets", "earliest").load()
    assert everything.count() == 4


def test_query_copies_between_led_topics_and_all_records_persist(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(source=2, copy=2)
    source = {"path": log_root, "subscribe": "source", "startingOffsets": "earliest"}

    def write(first: int) -> None:
        rows = spark.range(first, first + 1000).selectExpr("CAST(id AS STRING) AS value")
        keyed = rows.selectExpr("value AS key", "value")
        sink = keyed.write.format("sparklog").option("path", log_root).option("topic", "source")
        sink.mode("append").save()

    def numbers(topic: str) -> list[int]:
        read = spark.read.format("sparklog").option("path", log_root).option("subscribe", topic)
        values = read.load().selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
        return sorted(row.n for row in values.collect())

    with Brokers(log_root) as brokers:
        led = [log.partition(t, n) for t in ("source", "copy") for n in (0, 1)]
        eventually(lambda: all(one.view().is_led for one in led), "brokers lead all")
        for first in (0, 1000):
            write(first)
            with Producer(brokers.bootstrap) as producer:  # not flushed yet when it is read
                producer.send("source", b"%d" % (10_000 + first), key=b"k")
            rows = spark.readStream.format("sparklog").options(**source).load()
            sink = rows.select("key", "value").writeStream.format("sparklog")
            places = {"path": log_root, "topic": "copy", "checkpointLocation": str(tmp_path / "c")}
            query = sink.options(**places).trigger(availableNow=True).start()
            assert query.awaitTermination(60)
        expected = [*range(2000), 10_000, 11_000]
        assert numbers("source") == expected
        assert numbers("copy") == expected
    assert numbers("copy") == expected


def test_brokers_keep_timestamps_before_1970(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(old=1)
    # Microseconds: Spark's timestamps have them, and Kafka's milliseconds round them down.
    moments = [-1, -1_000, -1_001, -86_400_000_000, -2_208_988_800_000_000, 1_999]
    expected = [-1, -1, -2, -86_400_000, -2_208_988_800_000, 1]
    with Brokers(log_root) as brokers:
        eventually(lambda: log.partition("old", 0).view().is_led, "a broker leads the topic")
        rows = spark.createDataFrame([(n, t) for n, t in enumerate(moments)], "n INT, t LONG")
        rows = rows.selectExpr("CAST(n AS STRING) AS value", "timestamp_micros(t) AS timestamp")
        sink = rows.coalesce(1).write.format("sparklog").option("path", log_root)
        sink.option("topic", "old").mode("append").save()

        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("old", 0, 0)])
        sent = consumer.consume(len(moments), timeout=60)
        consumer.close()
        assert {int(m.value() or b""): m.timestamp()[1] for m in sent} == dict(enumerate(expected))

        read = spark.read.format("sparklog").option("path", log_root).option("subscribe", "old")
        found = read.load().selectExpr("CAST(CAST(value AS STRING) AS INT) AS n",
                                       "unix_millis(timestamp) AS ms").collect()  # fmt: skip
        assert {row.n: row.ms for row in found} == dict(enumerate(expected))


def test_leaders_check_the_schemas_of_rows_that_spark_writes(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log()
    registry = SchemaRegistry(RootSchemaLog(log))
    content = read_content({"schema": '"string"'})
    made = registry.candidate("valid-value", content)
    first = registry.change(lambda state, parsed: decisions.register(state, made, parsed))
    log.create_topic("valid", partitions=1, configs={"sparklog.schema.validation": "true"})
    read = spark.read.format("sparklog").option("path", log_root).option("subscribe", "valid")

    def write(schema_id: int, bare: int = -1) -> None:
        framed = f"concat(unhex('{schema_id:010X}'), CAST(CAST(id AS STRING) AS BINARY))"
        value = f"IF(id = {bare}, CAST('bare' AS BINARY), {framed}) AS value"
        sink = spark.range(0, 2000, 1, 1).selectExpr(value).write.format("sparklog")
        sink.option("path", log_root).option("topic", "valid").mode("append").save()

    with Brokers(log_root) as brokers:
        eventually(lambda: log.partition("valid", 0).view().is_led, "a broker leads the topic")
        write(first.schema_id)
        with pytest.raises(Exception, match="first_refused=1234: the value carries no id"):
            write(first.schema_id, bare=1234)
        later = first.schema_id + 1
        with pytest.raises(Exception, match=f"not registered first_unknown_schema='id {later}'"):
            write(later)
        assert read.load().count() == 2000, "nothing of what was refused is there"
        version = SubjectVersion("later-value", 1, later, read_content({"schema": '"int"'}))
        key, value = encode_record(VersionPut(version))
        with Producer(brokers.bootstrap) as producer:
            producer.send("_schemas", value, key=key).result(60)
        write(later)
        assert read.load().count() == 4000
