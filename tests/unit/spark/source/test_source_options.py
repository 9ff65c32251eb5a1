"""Options of a read: what is taken, what is refused, and in which words."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from sparklog.core.errors import InvalidConfig
from sparklog.core.types import TopicPartition
from sparklog.spark.source import options
from sparklog.spark.source.offset_options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Everywhere,
    format_offsets,
    parse_limit,
    parse_offsets,
    parse_topic_ids,
)
from sparklog.spark.source.options import (
    KNOWN,
    WITHOUT_EFFECT,
    SourceOptions,
    check_read_or_write_options,
    include_headers,
    parse_batch_options,
    parse_stream_options,
)
from sparklog.spark.source.selection import Assign, Subscribe, SubscribePattern

A0, A1, B2 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2)


def batch(**options: str) -> SourceOptions:
    return parse_batch_options({"path": "memory://x", "subscribe": "t", **options})


def stream(**options: str) -> SourceOptions:
    return parse_stream_options({"path": "memory://x", "subscribe": "t", **options})


def test_defaults_are_those_of_the_kafka_source() -> None:
    assert batch().starting == Everywhere(EARLIEST)
    assert batch().ending == Everywhere(LATEST)
    assert stream().starting == Everywhere(LATEST)
    for parsed in (batch(), stream()):
        assert parsed.root == "memory://x"
        assert parsed.selection == Subscribe(("t",))
        assert parsed.fail_on_data_loss
        assert not parsed.unmatched_start_is_latest
        assert parsed.min_partitions is None
        assert parsed.max_trigger_delay_ms == 15 * 60 * 1000


def test_option_names_are_accepted_in_any_case() -> None:
    options = {"PATH": "/x", "SUBSCRIBE": "t", "STARTINGoffsets": "earliest", "minPARTITIONS": "3"}
    assert parse_stream_options(options).min_partitions == 3


def test_the_root_comes_from_the_environment_where_no_path_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARKLOG_ROOT", "/from/environment")
    assert parse_batch_options({"subscribe": "t"}).root == "/from/environment"
    assert batch(path="/given").root == "/given"
    monkeypatch.delenv("SPARKLOG_ROOT")
    with pytest.raises(InvalidConfig, match=r"`path`.*SPARKLOG_ROOT.*brokers"):
        parse_batch_options({"subscribe": "t", "kafka.bootstrap.servers": "localhost:9092"})


@pytest.mark.parametrize("path", [" file:///logs ", "s3a://bucket#1/log", "file://host/logs"])
def test_a_path_that_cannot_be_kept_whole_is_refused(path: str) -> None:
    with pytest.raises(InvalidConfig, match="root="):
        batch(path=path)


def test_a_root_means_the_same_in_every_process() -> None:
    assert batch(path="logs/here").root == str(Path("logs/here").absolute())
    assert batch(path="file:///logs").root == "file:///logs"
    assert batch(path="logs/#1?2").root == str(Path("logs/#1?2").absolute())
    assert batch(path="a/../b").root == str(Path("a/../b").absolute()), "a may be a link"
    assert batch(path="s3a://bucket/log").root == "s3://bucket/log"
    with pytest.raises(InvalidConfig, match="lives in one process"):
        check_read_or_write_options({"path": "memory://x"})


def test_topics_are_chosen_in_three_ways() -> None:
    assert batch(subscribe=" a, b ,a,").selection == Subscribe(("a", "b"))
    pattern = {"path": "/x", "subscribePattern": " topic-.* "}
    assert parse_batch_options(pattern).selection == SubscribePattern("topic-.*")
    assign = {"path": "/x", "assign": '{"b": [2], "a": [1, 0, 1]}'}
    assert parse_batch_options(assign).selection == Assign((A0, A1, B2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "One of the following options must be specified"),
        ({"subscribe": "t", "assign": "{}"}, "Only one of the following options can be specified"),
        ({"subscribe": " , "}, "No topics to subscribe to"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "a:0"}, "No topicpartitions to assign"),
        ({"assign": '{"a": 0}'}, "Expected e.g."),
        ({"assign": '{"a": [-1]}'}, "Expected e.g."),
        ({"assign": "{}"}, "Expected e.g."),
        ({"assign": "{]"}, "Expected e.g."),
    ],
)
def test_a_bad_choice_of_topics_is_refused(options: dict[str, str], message: str) -> None:
    for parse in (parse_batch_options, parse_stream_options):
        with pytest.raises(InvalidConfig, match=message):
            parse({"path": "/x", **options})


def test_starting_time_overrides_times_by_partition_and_offsets() -> None:
    everything = {
        "startingOffsets": '{"a": {"0": 5, "1": -2}}',
        "startingOffsetsByTimestamp": '{"a": {"0": 17}}',
        "startingTimestamp": " 18 ",
    }
    assert batch(**everything).starting == AtTime(18)
    del everything["startingTimestamp"]
    assert batch(**everything).starting == AtTimes({A0: 17})
    del everything["startingOffsetsByTimestamp"]
    assert batch(**everything).starting == AtOffsets({A0: 5, A1: EARLIEST})
    assert batch(endingOffsets='{"a": {"0": 5, "1": -1}}').ending == AtOffsets({A0: 5, A1: LATEST})
    assert batch(endingTimestamp="7").ending == AtTime(7)
    assert stream(startingOffsets=" LATEST ").starting == Everywhere(LATEST)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "startingOffsets for a-0 can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "ending offset for a-0 can't be earliest"),
        ({"startingOffsets": "first"}, "Expected e.g.*startingOffsets"),
        ({"startingOffsets": '{"a": 5}'}, "Expected e.g."),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "Expected e.g."),
        ({"startingOffsets": '{"a": {"0": true}}'}, "Expected e.g."),
        ({"startingOffsets": '{"a": {"0": 1.5}}'}, "Expected e.g."),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "Expected e.g."),
        ({"endingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "Expected e.g.*ByTimestamp"),
        ({"startingTimestamp": "yesterday"}, "Expected a single long value"),
        ({"startingTimestamp": "-5"}, "not negative"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error, latest"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"minPartitions": "two"}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"failOnDataLoss": "no"}, "true, false"),
        ({"farTimestamps": "none"}, "choose from fail, null"),
        ({"includeHeaders": "yes"}, "true, false"),
        (
            {
                "startingOffsets": '{"a": {"0": 1}}',
                "endingOffsets": '{"a": {"1": 2}}',
            },
            "should have the same topic-partitions",
        ),
        (
            {
                "startingOffsets": '{"a": {"0": 3}}',
                "endingOffsets": '{"a": {"0": 2}}',
            },
            "start offset 3 is greater than the end offset 2 for topic a partition 0",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"a": {"0": 3}}',
                "endingOffsetsByTimestamp": '{"a": {"0": 2}}',
            },
            "greater than the end offset",
        ),
    ],
)
def test_bad_values_of_a_batch_read_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        batch(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingTimestamp": "5"}, "ending timestamp not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
        ({"maxOffsetsPerTrigger": "0"}, "must be positive"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            r"minOffsetsPerTrigger\(9\) is higher than the maxOffsetsPerTrigger\(8\)",
        ),
        ({"maxTriggerDelay": "soon"}, "for example 15m"),
        ({"maxTriggerDelay": "5 weeks"}, "for example 15m"),
    ],
)
def test_bad_values_of_a_stream_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        stream(**options)


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("15m", 900_000),
        ("3min", 180_000),
        ("10s", 10_000),
        ("7", 7),
        ("250 ms", 250),
        ("2h", 7.2e6),
    ],
)
def test_a_delay_is_spelt_as_spark_spells_times(text: str, delay_ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == delay_ms


def test_batch_read_ignores_trigger_limits_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        batch(maxOffsetsPerTrigger="5", maxTriggerDelay="1m")
    assert "maxOffsetsPerTrigger" in caplog.text
    assert "maxTriggerDelay" in caplog.text


def test_an_unknown_option_is_refused_with_the_names_that_are_close() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean startingOffsets.*option=startingofset"):
        batch(startingOfset="earliest")
    with pytest.raises(InvalidConfig, match="it may be misspelt"):
        batch(zzz="1")
    with pytest.raises(InvalidConfig, match="read with subscribe"):
        batch(topic="t")


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_consumer_settings_that_the_kafka_source_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"Kafka option '{name}' is not supported"):
        stream(**{f"kafka.{name}": "x"})


def test_connection_options_of_kafka_are_accepted_without_effect() -> None:
    moved = {
        "kafka.client.id": "c",
        "kafka.session.timeout.ms": "10000",
        "kafka.isolation.level": "read_uncommitted",
        "groupIdPrefix": "p",
        "kafkaConsumer.pollTimeoutMs": "1000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "10",
    }
    assert stream(**moved) == stream()


def test_uncommitted_records_are_read_by_default() -> None:
    kafkas = "kafka.isolation.level"
    assert not stream().committed_only
    assert stream(isolationLevel="READ_COMMITTED").committed_only
    assert stream(**{kafkas: "read_committed", "isolationLevel": "read_committed"}).committed_only
    with pytest.raises(InvalidConfig, match="read_committed, read_uncommitted"):
        stream(**{kafkas: "serializable"})
    with pytest.raises(InvalidConfig, match="one isolation level"):
        stream(**{kafkas: "read_committed", "isolationLevel": "read_uncommitted"})


def test_a_group_is_named_as_for_the_kafka_source() -> None:
    assert stream().group_id is None
    assert stream(**{"kafka.group.id": " g "}).group_id == "g"
    with pytest.raises(InvalidConfig, match=r"kafka\.group\.id is empty"):
        stream(**{"kafka.group.id": " "})


def test_brokers_are_named_as_for_the_kafka_source() -> None:
    assert stream().bootstrap is None
    assert stream(**{"kafka.bootstrap.servers": " a:1,b:2 "}).bootstrap == "a:1,b:2"
    with pytest.raises(InvalidConfig, match=r"kafka\.bootstrap\.servers.*host:port"):
        stream(**{"kafka.bootstrap.servers": "a:x"})


def test_security_is_kept_with_references_only() -> None:
    assert stream().security is None
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username=a password="${{env:PASSWORD}}";',
    }
    security = stream(**options).security
    assert security is not None
    assert "PASSWORD" in security.given["sasl.jaas.config"]
    line = f"{module} required username=a password=marked-secret;"
    with pytest.raises(InvalidConfig, match=r"kafka\.sasl\.jaas\.config") as caught:
        stream(**{**options, "kafka.sasl.jaas.config": line})
    assert "marked-secret" not in str(caught.value)


def test_unflushed_records_are_read_unless_switched_off() -> None:
    assert stream().leaders() is not None
    assert stream(includeUnflushed="false").leaders() is None


def test_option_names_are_checked_before_read_or_write_is_known() -> None:
    check_read_or_write_options({})
    check_read_or_write_options({"path": "/x", "topic": "t", "txnAppId": "a", "kafka.acks": "all"})
    with pytest.raises(InvalidConfig, match="did you mean subscribe"):
        check_read_or_write_options({"subscribes": "t"})
    with pytest.raises(InvalidConfig, match="Only one of"):
        check_read_or_write_options({"subscribe": "t", "subscribePattern": "t"})
    with pytest.raises(InvalidConfig, match="minPartitions must be positive"):
        check_read_or_write_options({"path": "/x", "subscribe": "t", "minPartitions": "-3"})


def test_table_rejects_options_that_its_reads_would_not_get() -> None:
    properties = {"provider": "sparklog", "owner": "me", "comment": "c", "any.property": "x"}
    check_read_or_write_options(properties)
    check_read_or_write_options({**properties, "includeHeaders": "true"})
    for name in ("path", "subscribe", "failOnDataLoss"):
        with pytest.raises(InvalidConfig, match=r"WITH \(path = .*create_topic_views"):
            check_read_or_write_options({**properties, name: "x"})


def test_headers_are_a_column_only_on_request() -> None:
    assert not include_headers({})
    assert include_headers({"includeheaders": "TRUE"})


def test_every_option_of_the_kafka_source_is_known() -> None:
    assert set(KNOWN) >= {
        "assign",
        "subscribe",
        "subscribePattern",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "endingOffsets",
        "failOnDataLoss",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "includeHeaders",
        "startingOffsetsByTimestampStrategy",
    }


def test_offsets_have_the_shape_of_the_kafka_sources_checkpoints() -> None:
    offsets = {B2: 3, TopicPartition("a", 10): 7, A1: 0}
    document = {"a": {"1": 0, "10": 7}, "b": {"2": 3}}
    assert format_offsets(offsets) == document
    assert list(format_offsets(offsets)["a"]) == ["1", "10"], "the same text for the same offsets"
    assert parse_offsets(document, "x") == offsets
    named = format_offsets(offsets, {"a": "id of a", "b": "id of b", "c": "of none of them"})
    assert named == {**document, "~topicIds": {"a": "id of a", "b": "id of b"}}
    assert parse_offsets(named, "x") == offsets
    assert parse_topic_ids(named, "x") == {"a": "id of a", "b": "id of b"}
    assert parse_topic_ids(document, "x") == {}
    assert parse_limit(
        "starting", time=None, times=None, offsets=json.dumps(named), default=EARLIEST
    ) == AtOffsets(offsets), "a checkpoint's offsets may be given as an option"
    ids: list[object] = [[], {"a": 5}]
    for strange in ids:
        with pytest.raises(InvalidConfig, match="topicIds"):
            parse_topic_ids({"~topicIds": strange}, "x")
    others: list[object] = [None, [], {"a": 3}, {"a": {"0": -1}}, {"a": {"0": "5"}}]
    for wrong in others:
        with pytest.raises(InvalidConfig, match=r"Expected e\.g\."):
            parse_offsets(wrong, "x")


def test_documented_options_are_exactly_the_accepted_ones() -> None:
    page = (Path(options.__file__).parents[1] / "SOURCE.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| .* \| (?:both|batch|stream) \|", page, re.MULTILINE)
    assert sorted(table) == sorted(KNOWN)
    for name in WITHOUT_EFFECT:
        assert f"`{name}`" in page
