"""Rows sent to brokers by Kafka's protocol: names of headers arrive as they are, or are refused."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

import sparklog
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.values import EARLIEST
from sparklog.core.errors import InvalidRequest
from sparklog.core.types import TopicPartition
from sparklog.protocol.records.columns import HEADERS_TYPE
from sparklog.protocol.records.header_names import text_of
from sparklog.spark.jobs.produce import send_batch
from tests.interop.brokers import Brokers


def rows(name: str) -> pa.RecordBatch:
    headers = pa.array([[{"key": name, "value": b"1"}]], HEADERS_TYPE)
    return pa.RecordBatch.from_arrays(
        [pa.array([b"value"], pa.binary()), headers], names=["value", "headers"]
    )


def test_header_names_are_sent_as_text_and_others_are_rejected() -> None:
    with Brokers(f"memory://{uuid4()}") as brokers:
        with sparklog.Admin(brokers.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        with Producer(brokers.bootstrap) as producer:
            send_batch(producer, "t", rows("plain é"))
            send_batch(producer, "t", rows(text_of("\ufffdbase64:".encode())))
            with pytest.raises(InvalidRequest, match="name=\ufffdbase64:/w=="):
                send_batch(producer, "t", rows(text_of(b"\xff")))
        found: list[object] = []
        with Consumer(brokers.bootstrap) as consumer:
            consumer.assign({TopicPartition("t", 0): EARLIEST})
            while len(found) < 2:
                found += [record.headers for record in consumer.poll()]
    assert found == [(("plain é", b"1"),), (("\ufffdbase64:", b"1"),)]
