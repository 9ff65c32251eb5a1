"""Partitions that brokers lead: Spark reads their history, and writes through brokers only."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog.cluster.open import Log
from sparklog.log.effects import run
from sparklog.log.flush import flush_at
from sparklog.log.led import hand_back, take_lead
from sparklog.log.view import PartitionView
from sparklog.log.wire_segment import draft_batches
from sparklog.protocol.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.record_batch import BatchSettings, encode
from tests.spark.conftest import MakeLog


def lead(log: Log) -> PartitionView:
    """Lead and flush: a mark, two records, a marker, one record."""
    layout = log.partition("led", 0).layout
    view = run(take_lead(PartitionView(layout), 1, "a" * 32), log.store)
    settings = BatchSettings(
        leader_epoch=1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    marker = encode_end_transaction(
        EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        base_offset=3,
        timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        leader_epoch=1,
    )
    batches = [
        encode(pa.record_batch({"value": pa.array([b"a", b"b"])}), settings, base_offset=1),
        marker,
        encode(
            pa.record_batch({"value": pa.array([b"c"])}),
            BatchSettings(leader_epoch=1),
            base_offset=4,
        ),
    ]
    draft = draft_batches(layout, batches, "b" * 32, codec="lz4")
    return run(flush_at(view, draft, 1), log.store)


def test_marks_and_markers_are_no_rows_and_direct_writes_are_sent_to_brokers(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(led=1)
    view = lead(log)
    frame = spark.read.format("sparklog").option("path", log_root).option("subscribe", "led")
    assert frame.load().count() == 3
    rows = frame.load().select("offset", "value").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(1, b"a"), (2, b"b"), (4, b"c")]
    late = frame.option("startingOffsets", '{"led": {"0": 3}}').load()
    assert [row.offset for row in late.select("offset").collect()] == [4]
    new = spark.createDataFrame([(b"mine",)], "value binary")
    with pytest.raises(PySparkException, match="led by a broker"):
        new.write.format("sparklog").option("path", log_root).option("topic", "led").mode(
            "append"
        ).save()
    assert log.partition("led", 0).view().end_offset == 5
    run(hand_back(view, 2, "c" * 32), log.store)
    new.write.format("sparklog").option("path", log_root).option("topic", "led").mode(
        "append"
    ).save()
    assert frame.load().count() == 4
