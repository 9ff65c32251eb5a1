"""The options and columns of a write."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.spark.sink.options import SinkOptions, check_sink_schema, parse_sink_options
from sparklog.spark.source.schema import full_schema


def test_option_names_are_case_insensitive_and_a_topic_is_trimmed() -> None:
    found = parse_sink_options({"Path": "/x", "TOPIC": " t "}, streaming=False)
    assert found == SinkOptions("/x", "t")


def test_the_root_comes_from_the_environment_when_no_path_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARKLOG_ROOT", "/from/environment")
    assert parse_sink_options({}, streaming=False).root == "/from/environment"
    assert parse_sink_options({"path": "/given"}, streaming=False).root == "/given"


def test_a_missing_root_names_both_ways_to_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKLOG_ROOT", raising=False)
    with pytest.raises(InvalidConfig, match=r"`path`.*SPARKLOG_ROOT"):
        parse_sink_options({"topic": "t"}, streaming=False)


@pytest.mark.parametrize(
    "options",
    [
        {"checkpointlocation": "/c", "queryname": "q"},
        {"includeheaders": "true"},
        {"kafka.acks": "all", "kafka.linger.ms": "5"},
        {"kafka.partitioner.ignore.keys": "false"},
    ],
)
def test_options_of_a_job_for_kafka_are_accepted(options: dict[str, str]) -> None:
    assert parse_sink_options({"path": "/x", **options}, streaming=True) == SinkOptions("/x")


def test_brokers_are_named_as_for_the_kafka_sink() -> None:
    options = {"path": "/x", "kafka.bootstrap.servers": "a:1"}
    assert parse_sink_options(options, streaming=True).bootstrap == "a:1"
    with pytest.raises(InvalidConfig, match="host:port"):
        parse_sink_options({**options, "kafka.bootstrap.servers": "a:b"}, streaming=True)


def test_security_is_kept_with_references_only() -> None:
    options = {
        "path": "/x",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "etl",
        "kafka.sasl.password": "${file:/run/secrets/kafka:password}",
    }
    security = parse_sink_options(options, streaming=True).security
    assert security is not None
    assert security.given["sasl.password"] == "${file:/run/secrets/kafka:password}"
    with pytest.raises(InvalidConfig, match=r"options=kafka\.sasl\.password") as caught:
        parse_sink_options({**options, "kafka.sasl.password": "marked-secret"}, streaming=True)
    assert "marked-secret" not in str(caught.value)
    with pytest.raises(InvalidConfig, match=r"did you mean sasl\.mechanism"):
        parse_sink_options({**options, "kafka.sasl.mechanisn": "PLAIN"}, streaming=True)


def test_the_producers_compression_is_kept() -> None:
    options = {"path": "/x", "kafka.compression.type": "ZSTD", "kafka.compression.zstd.level": "9"}
    found = parse_sink_options(options, streaming=False)
    assert (found.compression, found.zstd_level) == ("zstd", "9")


def test_a_transaction_is_taken_from_a_batch_write() -> None:
    options = {"path": "/x", "txnAppId": "job-1", "txnVersion": "12"}
    assert parse_sink_options(options, streaming=False).transaction == ("job-1", 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topik": "t"}, r"did you mean topic\?.*option=topik"),
        ({"subscribe": "t"}, r"no such option.*option=subscribe"),
        ({"topic": " "}, r"`topic` is empty"),
        ({"path": " "}, r"no log to write to"),
        ({"kafka.key.serializer": "x"}, r"'key.serializer' is not supported"),
        ({"kafka.partitioner.class": "x"}, r"`partition` column"),
        ({"kafka.partitioner.ignore.keys": "true"}, r"drop the key column"),
        ({"kafka.interceptor.classes": "x"}, r"not supported"),
        ({"kafka.compression.type": "brotli"}, r"none, gzip, snappy, lz4, zstd"),
        ({"kafka.compression.zstd.level": "99"}, r"compression\.zstd\.level takes a value of at"),
        ({"txnAppId": "a"}, r"belong together"),
        ({"txnVersion": "1"}, r"belong together"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, r"letters, digits"),
        ({"txnAppId": "..", "txnVersion": "1"}, r"letters, digits"),
        ({"txnAppId": "a", "txnVersion": "-1"}, r"a number from 0"),
    ],
)
def test_invalid_sink_options_are_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_sink_options({"path": "/x", **options}, streaming=False)


def test_a_stream_takes_no_transaction_of_its_own() -> None:
    options = {"path": "/x", "txnAppId": "a", "txnVersion": "1"}
    with pytest.raises(InvalidConfig, match=r"batch writes"):
        parse_sink_options(options, streaming=True)


HEADERS = ArrayType(
    StructType([StructField("key", StringType(), False), StructField("value", BinaryType())])
)
RENAMED_HEADERS = ArrayType(
    StructType([StructField("name", StringType()), StructField("value", BinaryType())])
)
TEXT = StringType()
EVERY: dict[str, DataType] = {
    "headers": HEADERS,
    "partition": IntegerType(),
    "timestamp": TimestampType(),
    "value": BinaryType(),
    "key": BinaryType(),
    "topic": TEXT,
}


def columns(types: Mapping[str, DataType], topic: str | None = None) -> tuple[str, ...]:
    fields = [StructField(name, kind, nullable=name != "value") for name, kind in types.items()]
    return check_sink_schema(StructType(fields), topic)


def test_columns_are_accepted_in_any_order_and_type() -> None:
    assert set(columns(EVERY)) == set(EVERY)
    given = {"key": TEXT, "value": TEXT, "timestamp": DoubleType()}
    assert set(columns(given, "t")) == set(given)


def test_topic_option_overrides_the_topic_column() -> None:
    assert "topic" not in columns(EVERY, "t")
    assert columns({"topic": IntegerType(), "value": TEXT}, "t") == ("value",)


def test_rows_read_from_a_topic_can_be_written_as_they_are() -> None:
    read = full_schema(include_headers=True)
    assert set(check_sink_schema(read, None)) == set(EVERY)


@pytest.mark.parametrize(
    ("types", "topic", "message"),
    [
        ({"value": TEXT}, None, r"topic option required when no 'topic' attribute is present"),
        ({"key": TEXT}, "t", r"Required attribute 'value' not found"),
        ({"Value": TEXT}, "t", r"Required attribute 'value' not found"),
        ({"value": IntegerType()}, "t", r"value attribute unsupported type int. value must be a\("),
        ({"value": TEXT, "key": LongType()}, "t", r"key attribute unsupported type bigint"),
        ({"value": TEXT, "topic": IntegerType()}, None, r"topic attribute unsupported type int"),
        ({"value": TEXT, "partition": LongType()}, "t", r"partition attribute unsupported type"),
        ({"value": TEXT, "headers": MapType(TEXT, TEXT)}, "t", r"headers attribute unsupported"),
        (
            {"value": TEXT, "headers": RENAMED_HEADERS},
            "t",
            r"headers must be a\(n\) array<struct<key:string,value:binary>>",
        ),
        ({"value": TEXT, "timestamp": TEXT}, "t", r"timestamp must be a\(n\) timestamp or double"),
        ({"value": TEXT, "timestamp": TimestampNTZType()}, "t", r"timestamp attribute unsupported"),
    ],
)
def test_missing_column_or_wrong_type_gets_kafkas_sink_message(
    types: dict[str, DataType], topic: str | None, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        columns(types, topic)
