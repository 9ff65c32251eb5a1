"""Real brokers on a real Spark application: written to by Spark, killed, drained, read by Spark."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer, Record
from sparklog.client.producer import Producer
from sparklog.client.values import EARLIEST
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.types import TopicPartition
from sparklog.spark.demo.brokers import out_of_order
from sparklog.spark.demo.plain_client import PlainClient, read_everything
from sparklog.spark.jobs.produce import produce
from sparklog.spark.jobs.produce_arguments import parse_produce
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.serve.broker_task import parent_of
from tests.harness.waiting import eventually
from tests.peers.sparklog import DEADLINE_S, SparklogCluster

CSV = "id,name,born\n1,ann,2001-02-03T04:05:06Z\n2,bob,NA\n3,NA,2003-01-01T00:00:00Z\n"
BORN_MS = 981_173_106_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparklogCluster]:
    """Three brokers on three executors, for all tests here; the last test ends them."""
    with SparklogCluster(tmp_path_factory.mktemp("serve"), "--brokers", "3") as cluster:
        yield cluster


def run_job(spark: SparkSession, *words: str) -> dict[str, Any]:
    """Run the producing job in this session; returns its report."""

    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    report = produce(parse_produce(words), session, JobProgress(io.StringIO()))
    found: dict[str, Any] = json.loads(report.to_json())
    return found


def read_all(bootstrap: str, topic: str, partitions: int, count: int) -> list[Record]:
    """Read a topic from its beginning until `count` records are there."""
    found: list[Record] = []
    deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S
    with Consumer(bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, n): EARLIEST for n in range(partitions)})
        while len(found) < count:
            assert SYSTEM_CLOCK.monotonic_s() < deadline_s, f"{len(found)} of {count} records"
            found += consumer.poll()
    return found


def test_rows_of_a_job_arrive_through_brokers(
    brokers: SparklogCluster, spark: SparkSession, tmp_path: Path
) -> None:
    people = tmp_path / "people.csv"
    people.write_text(CSV)
    report = run_job(
        spark,
        *("--bootstrap-server", brokers.bootstrap, "--topic", "people", "--create"),
        *("--partitions", "3", "--replication-factor", "3", "--input", str(people)),
        *("--option", "nullValue=NA", "--schema", "id INT, name STRING, born STRING"),
        *("--key", "id", "--headers", "name=name,kind='a,b'"),
        *("--timestamp", "coalesce(to_timestamp(born), timestamp_millis(5))"),
    )
    assert (report["rows"], report["created"]) == (3, True)
    offsets = [one["end_offset"] - one["base_offset"] for one in report["partitions"]]
    assert sum(offsets) == 3
    records = {record.key: record for record in read_all(brokers.bootstrap, "people", 3, 3)}
    ann = records[b"1"]
    assert json.loads(ann.value or b"") == {"id": 1, "name": "ann", "born": "2001-02-03T04:05:06Z"}
    assert ann.timestamp_ms == BORN_MS
    assert list(ann.headers) == [("name", b"ann"), ("kind", b"a,b")]
    assert list(records[b"3"].headers) == [("name", None), ("kind", b"a,b")]
    assert records[b"2"].timestamp_ms == 5


def test_acknowledged_records_survive_the_loss_of_an_executor(brokers: SparklogCluster) -> None:
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic("numbers", 1, replication_factor=3)
    victim = _leader(brokers, "numbers")
    acknowledged = []
    with Producer(brokers.bootstrap) as producer:
        for number in range(300):
            acknowledged.append(producer.send("numbers", b"%d" % number))
            if number == 100:
                acknowledged[-1].result(DEADLINE_S)
                os.kill(_executor(brokers, victim), signal.SIGKILL)
    assert all(delivery.result(DEADLINE_S).offset >= 0 for delivery in acknowledged)
    found = [record.value for record in read_all(brokers.bootstrap, "numbers", 1, 300)]
    assert found == [b"%d" % number for number in range(300)]
    brokers.until("ready", broker=victim)


def test_a_broker_that_is_restarted_in_good_order_fails_no_request(
    brokers: SparklogCluster,
) -> None:
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic("steady", 3, replication_factor=3)
    rows = [{"tailnum": f"N{number}"} for number in range(100)]
    client = PlainClient(brokers.bootstrap, "steady", rows)
    client.start()
    try:
        _await_acknowledgements(client, 100)
        leader = _leader(brokers, "steady")
        os.kill(brokers.brokers[leader]["pid"], signal.SIGTERM)
        brokers.until("drained", broker=leader)
        # It could end only after it led no partition, and producers have another leader.
        assert _leader(brokers, "steady") != leader
        _await_acknowledgements(client, len(client.acknowledged) + 100)
        brokers.until("ready", broker=leader)
    finally:
        client.stop()
    assert client.failed == []
    assert len(client.acknowledged) == client.sent
    found = read_everything(brokers.bootstrap, "steady", 3)
    assert sorted(one.number or 0 for one in found) == list(range(client.sent))
    assert out_of_order(found) == 0


def test_handed_back_topic_is_read_and_written_without_brokers(
    brokers: SparklogCluster, spark: SparkSession, tmp_path: Path
) -> None:
    brokers.process.send_signal(signal.SIGINT)
    ended = brokers.rest()
    assert ended[-1]["drained"] == 3, ended
    back = spark.read.format("sparklog").option("path", brokers.root).option("subscribe", "numbers")
    values = [row.value for row in back.load().orderBy("offset").collect()]
    assert values == [b"%d" % number for number in range(300)]
    more = tmp_path / "more.csv"
    more.write_text("n\n300\n301\n")
    words = ("--root", brokers.root, "--topic", "numbers", "--input", str(more), "--value", "n")
    assert run_job(spark, *words)["rows"] == 2
    assert back.load().count() == 302


def _await_acknowledgements(client: PlainClient, count: int) -> None:
    eventually(lambda: len(client.acknowledged) >= count, f"{count} acknowledgements", DEADLINE_S)


def _leader(brokers: SparklogCluster, topic: str) -> int:
    with Admin(brokers.bootstrap) as admin:
        return admin.topic(topic).partition_states[0].leader


def _executor(brokers: SparklogCluster, broker: int) -> int:
    """Return the JVM behind a broker: worker, daemon, JVM."""
    daemon = parent_of(brokers.brokers[broker]["pid"])
    assert daemon is not None
    jvm = parent_of(daemon)
    assert jvm is not None
    return jvm
